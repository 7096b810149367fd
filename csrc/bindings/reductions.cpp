#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/eager.h"
#include "bindings/kernels.h"
#include "bindings/memory.h"
#include "reductions/composite.h"
#include "reductions/order.h"
#include "reductions/sort.h"
#include "reductions/window.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

Reduction make_reduction(int op, int dtype, int accumulate, int64_t tile, bool round_tiles,
                         const Numerics& numerics) {
    if (op < 0 || op >= op_count) throw std::invalid_argument("unknown operation");
    const DType type = dtype_code(dtype), accumulated = dtype_code(accumulate);
    if (!is_device_float(accumulated)) throw std::invalid_argument("sums accumulate in a float type");
    if (tile < 1) throw std::invalid_argument("a tile has at least one element");
    return {static_cast<Op>(op), type, accumulated, tile, round_tiles, numerics};
}

// The places of a reduction's input, initial value and output.
std::vector<const void*> reduced(const Reduction& r, const py::array& input, const py::array& initial,
                                 const py::array& output) {
    if (initial.size() != 1) throw std::invalid_argument("the initial value is one element");
    return {view_of(input, r.dtype).data, view_of(initial, r.dtype).data, output_data(output, r.dtype)};
}

Bound<ReduceCall> reduction_on(const Reduction& reduction, const py::array& input, int kept,
                               const py::array& initial, const py::array& output,
                               int64_t cumulative_inner) {
    const bool cumulative = cumulative_inner > 0;
    const std::vector<int64_t> shape = shape_of(input);
    const bool fits = kept >= 0 && kept <= input.ndim();
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
    const std::vector<const void*> data = reduced(reduction, input, initial, output);
    const View view = view_of(input, reduction.dtype);
    return {ReduceCall{reduction, shape, kept, view, cumulative_inner}.planned(), data};
}

std::shared_ptr<Call> reduction_over(const Reduction& reduction, const WindowRows& rows,
                                     const py::array& input, const py::array& initial,
                                     const py::array& output) {
    const std::vector<const void*> data = reduced(reduction, input, initial, output);
    return bound(
        WindowsCall{make_windows(input, output, rows), reduction, view_of(input, reduction.dtype)},
        data);
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

// A composite but for its arrays.
struct Composing {
    Composite composite;
    DType dtype;
    int64_t tile;
};

Composing make_composite(const std::string& name, int dtype, int64_t tile) {
    const Composing made{composite_named(name), dtype_code(dtype), tile};
    if (!is_device_float(made.dtype) || tile < 1)
        throw std::invalid_argument("not a composite of floats");
    return made;
}

Bound<ComposeCall> composite_on(const Composing& c, const py::array& input, int kept,
                                const py::array& output, double epsilon, double divisor,
                                const std::optional<py::array>& weight,
                                const std::optional<py::array>& bias) {
    const View view = view_of(input, c.dtype);
    const std::vector<int64_t> shape = shape_of(input);
    if (kept < 0 || kept > input.ndim() ||
        shape_of(output) != (keeps_rows(c.composite)
                                 ? shape
                                 : std::vector<int64_t>(shape.begin(), shape.begin() + kept)))
        throw std::invalid_argument("the output's shape is not that of the composite");
    const int64_t length = element_count({shape.begin() + kept, shape.end()});
    const RowFunction function{c.composite,
                               c.dtype,
                               c.tile,
                               epsilon,
                               divisor,
                               affine_of(weight, length),
                               affine_of(bias, length)};
    std::vector<const void*> data{view.data, output_data(output, c.dtype)};
    for (const float* term : {function.weight, function.bias})
        if (term != nullptr) data.push_back(term);
    return {{function, shape, kept, view}, data};
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

// A reduction of all elements, or along one axis.
class EagerReduction : public EagerCall {
public:
    EagerReduction(const py::object& dtype, const Reduction& reduction, const py::array& initial)
        : type_(dtype), reduction_(reduction), initial_(initial) {
        if (initial.size() != 1) throw std::invalid_argument("the initial value is one element");
        check_itemsize(initial, reduction.dtype);
    }
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        const py::array x = type_.bits(args[0]);
        int axis;
        const int rank = x ? static_cast<int>(x.ndim()) : 0;
        if (!x || x.size() == 0 || !read_axis(args, count, rank, rank, axis)) return nullptr;
        Lines lines(x, axis, reduction_.dtype);
        py::array output = type_.empty({lines.shape.begin(), lines.shape.begin() + lines.kept});
        const ReduceCall call{reduction_, std::move(lines.shape), lines.kept, std::move(lines.view)};
        char* const data[] = {const_cast<char*>(call.input.data),
                              static_cast<char*>(const_cast<void*>(initial_.data())),
                              static_cast<char*>(output.mutable_data())};
        run_eagerly(x.size(), [&] { call.run(data, {}); });
        return type_.array(output);
    }

private:
    const ArrayDType type_;
    const Reduction reduction_;
    const py::array initial_;
};

// A statistic of all elements of an array of few.
class EagerStatistic : public EagerCall {
public:
    EagerStatistic(const py::object& dtype, const Composing& composite, int64_t longest)
        : type_(dtype), composite_(composite), longest_(longest) {}
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        const py::array x = type_.bits(args[0]);
        if (!x || x.size() == 0 || x.size() > longest_ || count > 2 || (count == 2 && args[1] != Py_None))
            return nullptr;
        py::array output = type_.empty({});
        run_at_once(composite_on(composite_, x, 0, output, 0, static_cast<double>(x.size()), {}, {}));
        return type_.array(output);
    }

private:
    const ArrayDType type_;
    const Composing composite_;
    const int64_t longest_;
};

// The place of the largest or smallest of all elements, or along one axis (E10).
class EagerArgument : public EagerCall {
public:
    EagerArgument(const py::object& dtype, const py::object& places, bool largest)
        : type_(dtype), places_(places), largest_(largest) {}
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        const py::array x = type_.bits(args[0]);
        int axis;
        const int rank = x ? static_cast<int>(x.ndim()) : 0;
        if (!x || x.size() == 0 || !read_axis(args, count, rank, rank, axis)) return nullptr;
        Lines lines(x, axis, type_.code);
        py::array output = places_.empty({lines.shape.begin(), lines.shape.begin() + lines.kept});
        const ArgumentCall call{largest_, std::move(lines.shape), lines.kept, std::move(lines.view)};
        char* const data[] = {const_cast<char*>(call.input.data), static_cast<char*>(output.mutable_data())};
        run_eagerly(x.size(), [&] { call.run(data); });
        return places_.array(output);
    }

private:
    const ArrayDType type_, places_;
    const bool largest_;
};

// The elements in order along one axis, the last one unless it is said (E10).
class EagerSort : public EagerCall {
public:
    explicit EagerSort(const py::object& dtype) : type_(dtype) {}
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        const py::array x = type_.bits(args[0]);
        const int rank = x ? static_cast<int>(x.ndim()) : 0;
        int axis;
        if (rank == 0 || !read_axis(args, count, rank, rank - 1, axis) || axis == rank) return nullptr;
        py::array output = type_.empty(shape_of(x));
        Lines from(x, axis, type_.code), to(output, axis, type_.code);
        char* const data[] = {const_cast<char*>(from.view.data), static_cast<char*>(output.mutable_data())};
        const SortCall call{nullptr, nullptr, false, false, std::move(from.shape), {from.view}, {to.view}};
        run_eagerly(x.size(), [&] { call.run(data); });
        return type_.array(output);
    }

private:
    const ArrayDType type_;
};

}  // namespace

void add_reductions(py::module_& m) {
    const py::arg input("input"), kept("kept"), initial("initial"), output("output");
    py::class_<Reduction> reduction(m, "Reduction");
    reduction
        .def(py::init(&make_reduction), py::arg("op"), py::arg("dtype"), py::arg("accumulate"),
             py::arg("tile"), py::arg("round_tiles"), py::arg("numerics"))
        .def("over", &reduction_over, py::arg("window"), input, initial, output, Keeps<3, 4, 5>());
    add_kernel(reduction, &reduction_on, Keeps<2, 4, 5>(), input, kept, initial, output,
               py::arg("cumulative_inner") = 0);
    py::class_<Composing> composite(m, "Composite");
    composite.def(py::init(&make_composite), py::arg("name"), py::arg("dtype"), py::arg("tile"));
    add_kernel(composite, &composite_on, Keeps<2, 4, 7, 8>(), input, kept, output,
               py::arg("epsilon") = 0.0, py::arg("divisor") = 0.0, py::arg("weight") = py::none(),
               py::arg("bias") = py::none());
    EagerClass<EagerReduction>(m, "EagerReduction")
        .def(py::init<py::object, Reduction, py::array>(), py::arg("dtype"), py::arg("reduction"), initial);
    EagerClass<EagerStatistic>(m, "EagerStatistic")
        .def(py::init<py::object, Composing, int64_t>(), py::arg("dtype"), py::arg("composite"),
             py::arg("longest"));
    EagerClass<EagerArgument>(m, "EagerArgument")
        .def(py::init<py::object, py::object, bool>(), py::arg("dtype"), py::arg("places"),
             py::arg("largest"));
    EagerClass<EagerSort>(m, "EagerSort").def(py::init<py::object>(), py::arg("dtype"));
    m.def("select_windows", &run_select_windows, py::arg("select"), py::arg("window"), py::arg("input"),
          py::arg("places"));
    m.def("sort", &run_sort, py::arg("comparator"), py::arg("operands"));
    m.def("order_keys", &keys_in_order, py::arg("array"), py::arg("dtype"));
}

}  // namespace neuronsim
