#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/memory.h"
#include "bindings/views.h"
#include "graph/kernel_calls.h"
#include "machine/interrupt.h"
#include "reductions/composite.h"
#include "reductions/scatter.h"
#include "reductions/sort.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

Reduction make_reduction(int op, int dtype, int accumulate, int64_t tile, bool round_tiles,
                         const Numerics& numerics, uint64_t seed, std::vector<uint64_t> ids) {
    if (op < 0 || op >= op_count) throw std::invalid_argument("unknown operation");
    const DType type = dtype_code(dtype), accumulated = dtype_code(accumulate);
    if (!is_device_float(accumulated)) throw std::invalid_argument("sums accumulate in a float type");
    return {static_cast<Op>(op), type, accumulated, tile, round_tiles, numerics, seed, std::move(ids)};
}

ReduceCall make_reduce(const Reduction& reduction, const py::array& input, int kept,
                       const py::array& initial, py::array output, int64_t cumulative_inner) {
    const bool cumulative = cumulative_inner > 0;
    const View view = view_of(input, reduction.dtype);
    const std::vector<int64_t> shape = shape_of(input);
    const bool fits = kept >= 0 && kept <= input.ndim() && initial.size() == 1;
    const std::vector<int64_t> outputs(shape.begin(), shape.begin() + (fits ? kept : 0));
    // A cumulative function's output has the reduced dimension before its last `cumulative_inner`
    // elements.
    bool goes = !cumulative && shape_of(output) == outputs;
    for (ptrdiff_t at = 0; cumulative && fits && kept == input.ndim() - 1 && at <= kept; ++at) {
        std::vector<int64_t> whole = outputs;
        whole.insert(whole.begin() + at, shape.back());
        goes = goes || (shape_of(output) == whole &&
                        element_count({outputs.begin() + at, outputs.end()}) == cumulative_inner);
    }
    if (!fits || !goes)
        throw std::invalid_argument("the output's shape is not that of the kept dimensions");
    const View start = view_of(initial, reduction.dtype);
    return ReduceCall{
        reduction,       shape, kept, view, start.data, output_data(output, reduction.dtype),
        cumulative_inner}
        .planned();
}

WindowsCall make_reduce_windows(const Reduction& reduction, const WindowRows& rows,
                                const py::array& input, const py::array& initial, py::array output) {
    const Windows windows = make_windows(input, output, rows);
    const View view = view_of(input, reduction.dtype), start = view_of(initial, reduction.dtype);
    if (initial.size() != 1) throw std::invalid_argument("the initial value is one element");
    return {windows, reduction, view, start.data, output_data(output, reduction.dtype)};
}

Composite composite_named(const std::string& name) {
    for (size_t i = 0; i < std::size(composite_names); ++i)
        if (name == composite_names[i]) return static_cast<Composite>(i);
    throw std::invalid_argument("unknown composite");
}

// Weight and bias are dense float32, as long as a row.
const float* affine_of(const std::optional<py::array>& array, int64_t length) {
    if (!array) return nullptr;
    check_itemsize(*array, DType::float32);
    if (array->size() != length || !is_dense(*array))
        throw std::invalid_argument("a weight or bias is as long as a row, and dense");
    return static_cast<const float*>(array->data());
}

void run_compose(const std::string& name, int dtype, int64_t tile, const py::array& input, int kept,
                 py::array output, double epsilon, double divisor,
                 const std::optional<py::array>& weight, const std::optional<py::array>& bias) {
    const Composite composite = composite_named(name);
    const DType type = dtype_code(dtype);
    const View view = view_of(input, type);
    const std::vector<int64_t> shape = shape_of(input);
    if (kept < 0 || kept > input.ndim() ||
        shape_of(output) !=
            (keeps_rows(composite) ? shape : std::vector<int64_t>(shape.begin(), shape.begin() + kept)))
        throw std::invalid_argument("the output's shape is not that of the composite");
    const int64_t length = element_count({shape.begin() + kept, shape.end()});
    const RowFunction function{
        composite, type, tile, epsilon, divisor, affine_of(weight, length), affine_of(bias, length)};
    char* target = output_data(output, type);
    const py::gil_scoped_release released;
    compose(function, shape, kept, view, target);
}

void run_fold_windows(const Chain& computation, const WindowRows& rows,
                      const std::vector<py::array>& inputs, const std::vector<py::array>& initial,
                      std::vector<py::array> outputs) {
    const size_t count = outputs.size();
    if (count == 0 || inputs.size() != count || initial.size() != count ||
        computation.inputs().size() != 2 * count || computation.output_count() != count)
        throw std::invalid_argument(
            "the computation takes accumulators and elements, and gives results");
    const Windows windows = make_windows(inputs[0], outputs[0], rows);
    std::vector<DType> types;
    for (size_t i = count; i < 2 * count; ++i) types.push_back(computation.inputs()[i]);
    const std::vector<View> views = views_of(inputs, types, windows.input_shape);
    std::vector<const char*> starts;
    std::vector<char*> targets;
    for (size_t i = 0; i < count; ++i) {
        if (initial[i].size() != 1) throw std::invalid_argument("an initial value is one element");
        if (shape_of(outputs[i]) != windows.output_shape)
            throw std::invalid_argument("the shapes differ");
        starts.push_back(view_of(initial[i], computation.output_dtype(i)).data);
        targets.push_back(output_data(outputs[i], computation.output_dtype(i)));
    }
    const py::gil_scoped_release released;
    fold_windows(windows, computation, views, starts, targets);
}

void run_select_windows(const Chain& select, const WindowRows& rows, const py::array& input,
                        py::array places) {
    const Windows windows = make_windows(input, places, rows);
    if (select.inputs().empty()) throw std::invalid_argument("a selection takes two elements");
    const View view = view_of(input, select.inputs()[0]);
    auto* target = reinterpret_cast<int64_t*>(output_data(places, DType::int64));
    const py::gil_scoped_release released;
    select_windows(windows, select, view, target);
}

void run_scatter(const Chain& computation, const py::array& places,
                 const std::vector<py::array>& updates, std::vector<py::array> targets) {
    const size_t n = targets.size();
    if (n == 0 || updates.size() != n || computation.inputs().size() != 2 * n ||
        computation.output_count() != n)
        throw std::invalid_argument("the computation takes elements and updates, and gives elements");
    const View where = view_of(places, DType::int64);
    std::vector<const char*> sources;
    std::vector<char*> outputs;
    for (size_t i = 0; i < n; ++i) {
        const DType type = computation.inputs()[i];
        if (type != computation.output_dtype(i) || shape_of(targets[i]) != shape_of(targets[0]))
            throw std::invalid_argument("the targets are not what the computation gives");
        if (updates[i].size() != places.size() || !is_dense(updates[i]) || !is_dense(places))
            throw std::invalid_argument("places and updates are as many, and dense");
        sources.push_back(view_of(updates[i], computation.inputs()[n + i]).data);
        outputs.push_back(output_data(targets[i], type));
    }
    const auto* first = reinterpret_cast<const int64_t*>(where.data);
    const py::gil_scoped_release released;
    Notes notes;
    for (int64_t i = 0; i < places.size(); ++i) {
        notes.add(1);
        if (first[i] >= targets[0].size())
            throw std::invalid_argument("a place lies behind the target");
    }
    scatter(computation, places.size(), first, sources, outputs);
}

py::array keys_in_order(const py::array& array, int code) {
    const DType dtype = dtype_code(code);
    if (!is_device_float(dtype) && dtype != DType::float64)
        throw std::invalid_argument("keys are made of floats");
    check_itemsize(array, dtype);
    if (!is_dense(array)) throw std::invalid_argument("the array is not dense");
    constexpr DType integers[] = {DType::int8, DType::int16, DType::int32, DType::int64};
    const int log = __builtin_ctz(static_cast<unsigned>(storage_bytes(dtype)));
    py::array keys = empty_array(integers[log], static_cast<int>(array.ndim()), array.shape());
    auto* const output = static_cast<char*>(keys.mutable_data());
    const auto* const input = static_cast<const char*>(array.data());
    const int64_t n = array.size();
    const py::gil_scoped_release released;
    order_keys(dtype, input, n, output);
    return keys;
}

py::array run_sort(const Chain& comparator, const std::vector<py::array>& operands) {
    if (operands.empty()) throw std::invalid_argument("sort takes at least one operand");
    const std::vector<int64_t> shape = shape_of(operands[0]);
    std::vector<DType> types;
    for (size_t i = 0; i < comparator.inputs().size(); i += 2) types.push_back(comparator.inputs()[i]);
    const std::vector<View> views = views_of(operands, types, shape);
    py::array order =
        empty_array(DType::int64, static_cast<int>(operands[0].ndim()), operands[0].shape());
    auto* target = static_cast<int64_t*>(order.mutable_data());
    {
        const py::gil_scoped_release released;
        sort(shape, views, comparator, target);
    }
    return order;
}

// Adds a function that runs the call that `make` makes, and one that records it.
template <class Call, class... Operands, class... Names>
void add_calls(py::module_& m, const char* name, const char* record, Call (*make)(Operands...),
               const Names&... names) {
    m.def(
        name,
        [make](Operands... operands) {
            const Call call = make(operands...);
            const py::gil_scoped_release released;
            call.run();
        },
        names...);
    m.def(record, [make](Operands... operands) { return placed(make(operands...)); }, names...);
}

}  // namespace

void add_reductions(py::module_& m) {
    py::class_<Reduction>(m, "Reduction")
        .def(py::init(&make_reduction), py::arg("op"), py::arg("dtype"), py::arg("accumulate"),
             py::arg("tile"), py::arg("round_tiles"), py::arg("numerics"), py::arg("seed"),
             py::arg("ids"));
    add_calls(m, "reduce", "record_reduce", &make_reduce, py::arg("reduction"), py::arg("input"),
              py::arg("kept"), py::arg("initial"), py::arg("output"), py::arg("cumulative_inner") = 0);
    add_calls(m, "reduce_windows", "record_reduce_windows", &make_reduce_windows, py::arg("reduction"),
              py::arg("window"), py::arg("input"), py::arg("initial"), py::arg("output"));
    m.def("compose", &run_compose, py::arg("composite"), py::arg("dtype"), py::arg("tile"),
          py::arg("input"), py::arg("kept"), py::arg("output"), py::arg("epsilon") = 0.0,
          py::arg("divisor") = 0.0, py::arg("weight") = py::none(), py::arg("bias") = py::none());
    m.def("fold_windows", &run_fold_windows, py::arg("computation"), py::arg("window"),
          py::arg("inputs"), py::arg("initial"), py::arg("outputs"));
    m.def("select_windows", &run_select_windows, py::arg("select"), py::arg("window"), py::arg("input"),
          py::arg("places"));
    m.def("scatter", &run_scatter, py::arg("computation"), py::arg("places"), py::arg("updates"),
          py::arg("targets"));
    m.def("order_keys", &keys_in_order, py::arg("array"), py::arg("dtype"));
    m.def("sort", &run_sort, py::arg("comparator"), py::arg("operands"));
}

}  // namespace neuronsim
