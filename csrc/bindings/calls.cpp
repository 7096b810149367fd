// Kernels as calls: what an array runs at once, and an executable where its plan has placed it.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <tuple>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/kernels.h"
#include "elementwise/bit_generator.h"
#include "movement/indexed.h"
#include "reductions/choose.h"
#include "reductions/scatter.h"
#include "reductions/sort.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

using Arrays = std::vector<py::array>;
using Program = std::shared_ptr<Chain>;

std::vector<const void*> places_of(std::initializer_list<const Arrays*> lists) {
    std::vector<const void*> data;
    for (const Arrays* const arrays : lists)
        for (const py::array& a : *arrays) data.push_back(a.data());
    return data;
}

// Rows of (size, from one index vector to the next, of the array, of the result), and of (offset,
// limit, stride): Indexed says what they are.
using DimensionRow = std::tuple<int64_t, int64_t, int64_t, int64_t>;
using ComponentRow = std::tuple<int64_t, int64_t, int64_t>;
Indexed make_indexed(int dtype, const std::vector<DimensionRow>& dimensions,
                     const std::vector<ComponentRow>& components) {
    Indexed indexed{{}, {}, dtype_code(dtype)};
    require(is_integer(indexed.dtype), "an index is an integer");
    for (const auto& [size, indices, array, result] : dimensions)
        indexed.dimensions.push_back({size, indices, array, result});
    for (const auto& [offset, limit, stride] : components)
        indexed.components.push_back({offset, limit, stride});
    return indexed;
}

std::shared_ptr<Call> gather(const py::array& operand, const py::array& indices, int dtype,
                             const std::vector<DimensionRow>& dimensions,
                             const std::vector<ComponentRow>& components,
                             const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                             const std::vector<int64_t>& result_strides, const py::array& result) {
    require(operand.itemsize() == result.itemsize() && shape.size() == strides.size() &&
                shape.size() == result_strides.size(),
            "a slice has strides in the operand and in the result");
    check_itemsize(indices, dtype_code(dtype));
    Copy slice{{}, static_cast<int64_t>(operand.itemsize())};
    for (size_t d = 0; d < shape.size(); ++d)
        slice.axes.push_back({shape[d], strides[d], result_strides[d]});
    return bound(GatherCall{make_indexed(dtype, dimensions, components), simplified(slice)},
                 {operand.data(), indices.data(), result.data()});
}

std::shared_ptr<Call> scatter_rows(const Program& computation, const py::array& indices, int dtype,
                                   const std::vector<DimensionRow>& dimensions,
                                   const std::vector<ComponentRow>& components, int64_t row,
                                   const Arrays& updates, const Arrays& targets) {
    const size_t n = targets.size();
    require(n > 0 && updates.size() == n && computation->inputs().size() == 2 * n &&
                computation->output_count() == n && !computation->draws(),
            "the computation takes elements and updates, and gives elements");
    const Indexed indexed = make_indexed(dtype, dimensions, components);
    check_itemsize(indices, indexed.dtype);
    for (size_t i = 0; i < n; ++i) {
        check_itemsize(targets[i], computation->inputs()[i]);
        check_itemsize(updates[i], computation->inputs()[n + i]);
        require(computation->inputs()[i] == computation->output_dtype(i) && is_dense(targets[i]) &&
                    is_dense(updates[i]) && updates[i].size() == indexed.count() * row,
                "targets and updates are dense");
    }
    std::vector<const void*> data = places_of({&updates, &targets});
    data.insert(data.begin(), indices.data());
    return bound(ScatterCall{computation, indexed, row}, data);
}

std::shared_ptr<Call> select_and_scatter(const Program& select, const Program& computation,
                                         const WindowRows& rows, const py::array& operand,
                                         const py::array& source, const py::array& target) {
    require(!select->inputs().empty() && computation->inputs().size() == 2 &&
                computation->output_count() == 1 && is_dense(source) && is_dense(target) &&
                shape_of(operand) == shape_of(target),
            "a selection takes two elements, and a source and a target are dense");
    const View view = view_of(operand, select->inputs()[0]);
    check_itemsize(source, computation->inputs()[1]);
    check_itemsize(target, computation->output_dtype(0));
    return bound(SelectAndScatterCall{select, computation, make_windows(operand, source, rows), view},
                 {operand.data(), source.data(), target.data()});
}

std::shared_ptr<Call> fold(const Program& computation, const WindowRows& rows, const Arrays& inputs,
                           const Arrays& initial, const Arrays& outputs) {
    const size_t count = outputs.size();
    require(count > 0 && inputs.size() == count && initial.size() == count &&
                computation->inputs().size() == 2 * count && computation->output_count() == count,
            "the computation takes accumulators and elements, and gives results");
    const Windows windows = make_windows(inputs[0], outputs[0], rows);
    const auto half = computation->inputs().begin() + static_cast<ptrdiff_t>(count);
    const std::vector<View> views =
        views_of(inputs, {half, computation->inputs().end()}, windows.input_shape);
    for (size_t i = 0; i < count; ++i) {
        check_itemsize(initial[i], computation->output_dtype(i));
        check_itemsize(outputs[i], computation->output_dtype(i));
        require(initial[i].size() == 1 && shape_of(outputs[i]) == windows.output_shape &&
                    is_dense(outputs[i]),
                "an initial value is one element, and the outputs have the windows' shape");
    }
    return bound(FoldCall{computation, windows, views}, places_of({&inputs, &initial, &outputs}));
}

// None where the computation does more than to choose.
std::shared_ptr<Call> choose(const Program& computation, int kept, const Arrays& inputs,
                             const Arrays& initial, const Arrays& outputs) {
    const auto choice = Choice::of(*computation);
    if (!choice) return nullptr;
    require(inputs.size() == 2 && initial.size() == 2 && outputs.size() == 2 && kept >= 0 &&
                kept <= inputs[0].ndim(),
            "a choice is one of pairs");
    const std::vector<int64_t> shape = shape_of(inputs[0]);
    const std::vector<View> views =
        views_of(inputs, {computation->inputs()[0], computation->inputs()[1]}, shape);
    for (size_t i = 0; i < 2; ++i) {
        check_itemsize(initial[i], views[i].dtype);
        check_itemsize(outputs[i], views[i].dtype);
        require(initial[i].size() == 1 && is_dense(outputs[i]) &&
                    outputs[i].size() == element_count({shape.begin(), shape.begin() + kept}),
                "the outputs have the kept dimensions");
    }
    return bound(ChooseCall{*choice, kept, views[0], views[1]},
                 places_of({&inputs, &initial, &outputs}));
}

using Keys = std::vector<std::tuple<Program, bool, bool>>;

std::shared_ptr<Call> sort_lines(const Program& comparator, const Keys& keys, const Arrays& operands,
                                 const Arrays& outputs) {
    require(!operands.empty() && operands.size() == outputs.size() && operands[0].ndim() > 0,
            "sort takes at least one operand");
    const std::vector<int64_t> shape = shape_of(operands[0]);
    std::vector<DType> types;
    for (size_t i = 0; i < comparator->inputs().size(); i += 2)
        types.push_back(comparator->inputs()[i]);
    std::vector<SortKey> ordered;
    for (const auto& [key, descends, total] : keys) {
        require(key->inputs() == types && key->output_count() == 1,
                "a key is one of an element of each operand");
        ordered.push_back({key, descends, total});
    }
    return bound(SortCall{comparator, ordered, views_of(operands, types, shape),
                          views_of(outputs, types, shape)},
                 places_of({&operands, &outputs}));
}

// In the order of arrays.
std::shared_ptr<Call> argsort(int dtype, const py::array& input, const py::array& places) {
    const View view = view_of(input, dtype_code(dtype)), to = view_of(places, DType::int64);
    require(input.ndim() > 0 && shape_of(places) == shape_of(input), "each element has a place");
    return bound(SortCall{nullptr, {}, {view}, {to}, true}, {input.data(), places.data()});
}

// `values` is None, or receives the elements.
std::shared_ptr<Call> top(int dtype, bool descends, const py::array& input, const py::array& places,
                          const std::optional<py::array>& values) {
    const View view = view_of(input, dtype_code(dtype));
    require(input.ndim() > 0 && is_dense(places) && places.ndim() == input.ndim() &&
                (places.itemsize() == 4 || places.itemsize() == 8),
            "the places of the first elements are dense");
    std::vector<const void*> data{input.data(), places.data()};
    if (values) {
        check_itemsize(*values, view.dtype);
        require(is_dense(*values) && shape_of(*values) == shape_of(places),
                "the first elements are dense");
        data.push_back(values->data());
    }
    const int64_t count = places.shape(places.ndim() - 1);
    require(count <= view.axes.back().size, "a line has not so many elements");
    const DType type = places.itemsize() == 4 ? DType::int32 : DType::int64;
    return bound(TopCall{descends, view, count, type, values.has_value()}, data);
}

std::shared_ptr<Call> argument(int dtype, bool largest, const py::array& input,
                               const py::array& places) {
    const View view = view_of(input, dtype_code(dtype));
    const std::vector<int64_t> shape = shape_of(input);
    require(!shape.empty() && shape.back() > 0 && is_dense(places) &&
                shape_of(places) == std::vector<int64_t>(shape.begin(), shape.end() - 1) &&
                (places.itemsize() == 4 || places.itemsize() == 8),
            "each line has a place");
    return bound(ArgumentCall{largest, static_cast<int>(places.ndim()), view,
                              places.itemsize() == 4 ? DType::int32 : DType::int64},
                 {input.data(), places.data()});
}

// Pairs of ThreeFry's words are neighbours along the dimension `axis` of the bits.
std::shared_ptr<Call> generate_bits(bool threefry, bool reads_state, int axis, const py::array& state,
                                    const py::array& new_state, const py::array& bits) {
    const std::vector<int64_t> words = shape_of(state);
    require(words.size() == 1 && words == shape_of(new_state) &&
                (words[0] == 2 || (words[0] == 3 && !threefry)) && state.itemsize() == 8 &&
                new_state.itemsize() == 8 && is_dense(state) && is_dense(new_state) && is_dense(bits),
            "a state is two words of 64 bits, of Philox perhaps three");
    const int size = static_cast<int>(bits.itemsize()), rank = static_cast<int>(bits.ndim());
    require((size == 1 || size == 2 || size == 4 || size == 8) && axis >= 0 && axis < std::max(rank, 1),
            "bits are elements of 8 to 64 bits, their pairs along one of the dimensions");
    BitGeneratorCall call{threefry, reads_state, static_cast<int>(words[0]), size, 1, 1, 1};
    for (int d = 0; d < rank; ++d)
        (d < axis ? call.outer : d == axis ? call.length : call.inner) *= bits.shape(d);
    return bound(call, {state.data(), new_state.data(), bits.data()});
}

// On the arrays that it was bound to. `records` receives what it met, a row for each record, or is
// None.
void run_alone(const Call& call, uint64_t seed, const std::optional<std::vector<uint64_t>>& ids,
               const py::object& records) {
    require(!call.is_placed(), "a step of an executable runs in it");
    require((ids ? ids->size() : 0) >= call.draw_count(),
            "stochastic rounding needs an id for each rounding");
    Observed* const observed = records_in(records, call.record_count());
    const py::gil_scoped_release released;
    char* nothing = nullptr;
    call.run({&nothing, nullptr, observed, {seed, ids ? ids->data() : nullptr}});
}

}  // namespace

void add_steps(py::module_& m) {
    py::class_<Call, std::shared_ptr<Call>>(m, "Call")
        .def("run", &run_alone, py::arg("seed") = 0, py::arg("ids") = py::none(),
             py::arg("records") = py::none())
        .def_property_readonly("record_count", &Call::record_count)
        .def_property_readonly("is_few", &Call::is_few)
        .def_property_readonly("draw_count", &Call::draw_count)
        .def("set_first_record", &Call::set_first_record, py::arg("first"));
    const py::arg computation("computation"), dtype("dtype"), window("window"), operand("operand"),
        inputs("inputs"), initial("initial"), outputs("outputs"), input("input"), places("places"),
        indices("indices"), dimensions("dimensions"), components("components");
    m.def("gather", &gather, operand, indices, dtype, dimensions, components, py::arg("shape"),
          py::arg("strides"), py::arg("result_strides"), py::arg("result"), Keeps<1, 2, 9>());
    m.def("scatter_rows", &scatter_rows, computation, indices, dtype, dimensions, components,
          py::arg("row"), py::arg("updates"), py::arg("targets"), Keeps<2, 7, 8>());
    m.def("select_and_scatter", &select_and_scatter, py::arg("select"), computation, window, operand,
          py::arg("source"), py::arg("target"), Keeps<4, 5, 6>());
    m.def("fold", &fold, computation, window, inputs, initial, outputs, Keeps<3, 4, 5>());
    m.def("choose", &choose, computation, py::arg("kept"), inputs, initial, outputs, Keeps<3, 4, 5>());
    m.def("sort_lines", &sort_lines, py::arg("comparator"), py::arg("keys"), py::arg("operands"),
          outputs, Keeps<3, 4>());
    m.def("argsort", &argsort, dtype, input, places, Keeps<2, 3>());
    m.def("top", &top, dtype, py::arg("descends"), input, places, py::arg("values"), Keeps<3, 4, 5>());
    m.def("generate_bits", &generate_bits, py::arg("threefry"), py::arg("reads_state"), py::arg("axis"),
          py::arg("state"), py::arg("new_state"), py::arg("bits"), Keeps<4, 5, 6>());
    m.def("argument", &argument, dtype, py::arg("largest"), input, places, Keeps<3, 4>());
}

}  // namespace neuronsim
