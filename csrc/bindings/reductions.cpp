#include <algorithm>
#include <functional>
#include <optional>
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
    require(op >= 0 && op < op_count, "unknown operation");
    const DType type = dtype_code(dtype), accumulated = dtype_code(accumulate);
    require(is_device_float(accumulated), "sums accumulate in a float type");
    require(tile >= 1, "a tile has at least one element");
    return {static_cast<Op>(op), type, accumulated, tile, round_tiles, numerics};
}

// The places of a reduction's input, initial value and output.
std::vector<const void*> reduced(const Reduction& r, const py::array& input, const py::array& initial,
                                 const py::array& output) {
    require(initial.size() == 1, "the initial value is one element");
    return {view_of(input, r.dtype).data, view_of(initial, r.dtype).data, output_data(output, r.dtype)};
}

std::shared_ptr<Call> reduction_on(const Reduction& reduction, const py::array& input, int kept,
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
    require(fits && goes, "the output's shape is not that of the kept dimensions");
    const std::vector<const void*> data = reduced(reduction, input, initial, output);
    const Axes axes = axes_of(input, 0, input.ndim());
    return bound(ReduceCall(reduction, axes, kept, cumulative_inner), data);
}

std::shared_ptr<Call> reduction_over(const Reduction& reduction, const WindowRows& rows,
                                     const py::array& input, const py::array& initial,
                                     const py::array& output) {
    const std::vector<const void*> data = reduced(reduction, input, initial, output);
    return bound(
        WindowsCall{make_windows(input, output, rows), reduction, view_of(input, reduction.dtype)},
        data);
}

// Weight and bias are dense float32, as long as a row.
const void* affine_of(const py::array& array, int64_t length) {
    check_itemsize(array, DType::float32);
    require(array.size() == length && is_dense(array),
            "a weight or bias is as long as a row, and dense");
    return array.data();
}

// A composite but for its arrays.
struct Composing {
    Composite composite;
    DType dtype;
    int64_t tile;
};

Composing make_composite(const std::string& name, int dtype, int64_t tile) {
    const Composing made{named<Composite>(composite_names, name, "composite"), dtype_code(dtype), tile};
    require(is_device_float(made.dtype) && tile >= 1, "not a composite of floats");
    return made;
}

std::shared_ptr<Call> composite_on(const Composing& c, const py::array& input, int kept,
                                   const py::array& output, double epsilon, double divisor,
                                   const std::optional<py::array>& weight,
                                   const std::optional<py::array>& bias) {
    const View view = view_of(input, c.dtype);
    const std::vector<int64_t> shape = shape_of(input);
    require(kept >= 0 && kept <= input.ndim() &&
                shape_of(output) == (keeps_rows(c.composite)
                                         ? shape
                                         : std::vector<int64_t>(shape.begin(), shape.begin() + kept)),
            "the output's shape is not that of the composite");
    const int64_t length = axes_size(view.axes.part(kept, shape.size()));
    std::vector<const void*> data{view.data, output_data(output, c.dtype)};
    for (const auto& term : {weight, bias})
        if (term) data.push_back(affine_of(*term, length));
    return bound(ComposeCall{c.composite, c.tile, kept, view, epsilon, divisor, weight.has_value(),
                             bias.has_value()},
                 data);
}

py::array keys_in_order(const py::array& array, int code) {
    const DType dtype = dtype_code(code);
    require(is_float(dtype), "keys are made of floats");
    check_itemsize(array, dtype);
    require(is_dense(array), "the array is not dense");
    py::array keys = empty_array(integer_of(dtype), static_cast<int>(array.ndim()), array.shape());
    auto* const output = static_cast<char*>(keys.mutable_data());
    const auto* const input = static_cast<const char*>(array.data());
    const int64_t n = array.size();
    const py::gil_scoped_release released;
    order_keys(dtype, input, n, output);
    return keys;
}

// The lines of an array along one axis or, where that is its rank, its only line of all elements.
struct Lines {
    Lines(const py::array& x, int axis, DType dtype)
        : kept(axis == x.ndim() ? 0 : static_cast<int>(x.ndim()) - 1),
          view{static_cast<const char*>(x.data()), dtype, axes_of(x, 0, x.ndim())} {
        Axis* const along = view.axes.begin() + axis;
        if (kept > 0) std::rotate(along, along + 1, view.axes.end());
    }
    int kept;   // the axes before those of a line
    View view;  // by lines
};

// The axis that `args` have behind the array: that of None is the rank, as that of an absent one may
// be. False where the ordinary way must see it.
bool read_axis(PyObject* const* args, Py_ssize_t count, int rank, int absent, int& axis) {
    if (count > 2) return false;
    axis = count == 1 ? absent : rank;
    if (count == 1 || args[1] == Py_None) return true;
    if (!PyLong_CheckExact(args[1])) return false;
    int overflow = 0;
    const long given = PyLong_AsLongAndOverflow(args[1], &overflow);
    axis = static_cast<int>(given < 0 ? given + rank : given);
    return overflow == 0 && -rank <= given && given < rank;
}

// What an operation does to the lines of one array, those along one axis or all elements. It gives an
// element for each line or, if it `keeps` them, lines along the last axis unless it is said.
class EagerLines : public EagerCall {
public:
    // `data`: the array and the output.
    using Run = std::function<void(Lines&& lines, const Lines& output, char* const* data)>;

    EagerLines(const py::object& dtype, const py::object& result, bool keeps, Run run,
               int64_t most = INT64_MAX)
        : type_(dtype), result_(result), keeps_(keeps), run_(std::move(run)), most_(most) {}
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        const py::array x = type_.bits(args[0]);
        if (!x || x.size() == 0 || x.size() > most_) return nullptr;
        const int rank = static_cast<int>(x.ndim());
        int axis;
        if (!read_axis(args, count, rank, keeps_ ? rank - 1 : rank, axis)) return nullptr;
        if (keeps_ && (rank == 0 || axis == rank)) return nullptr;
        Lines lines(x, axis, type_.code);
        std::vector<int64_t> shape = shape_of(x);
        if (!keeps_ && axis == rank) shape.clear();
        else if (!keeps_) shape.erase(shape.begin() + axis);
        py::array output = result_.empty(shape);
        const Lines target(output, keeps_ ? axis : static_cast<int>(output.ndim()), result_.code);
        char* const data[] = {bytes_of(x), static_cast<char*>(output.mutable_data())};
        run_eagerly(x.size(), [&] { run_(std::move(lines), target, data); });
        return result_.array(output);
    }

private:
    const ArrayDType type_, result_;
    const bool keeps_;
    const Run run_;
    const int64_t most_;
};

EagerLines eager_reduction(const py::object& dtype, const Reduction& reduction,
                           const py::array& initial) {
    check_itemsize(initial, reduction.dtype);
    require(initial.size() == 1, "the initial value is one element");
    const auto run = [=](Lines&& x, const Lines&, char* const* data) {
        char* const places[] = {data[0], bytes_of(initial), data[1]};
        ReduceCall(reduction, x.view.axes, x.kept).run(places, {});
    };
    return {dtype, dtype, false, run};
}

EagerLines eager_statistic(const py::object& dtype, const Composing& c, int64_t longest,
                           double correction) {
    const auto run = [=](Lines&& x, const Lines&, char* const* data) {
        const Axes& axes = x.view.axes;
        const int64_t n = axes_size(axes.part(x.kept, axes.size()));
        const double divisor = std::max(static_cast<double>(n) - correction, 0.0);
        ComposeCall{c.composite, c.tile, x.kept, std::move(x.view), 0, divisor}.run(data);
    };
    return {dtype, dtype, false, run, longest};
}

EagerLines eager_argument(const py::object& dtype, const py::object& places, bool largest) {
    const auto run = [=](Lines&& x, const Lines&, char* const* data) {
        ArgumentCall{largest, x.kept, std::move(x.view), DType::int64}.run(data);
    };
    // NumPy finds many integers' quicker.
    constexpr int64_t few = 1 << 14;
    return {dtype, places, false, run, dtype.attr("exponent_bits").cast<int>() == 0 ? few : INT64_MAX};
}

EagerLines eager_sort(const py::object& dtype) {
    const auto run = [](Lines&& x, const Lines& output, char* const* data) {
        SortCall{nullptr, {}, {x.view}, {output.view}}.run(data);
    };
    return {dtype, dtype, true, run};
}

}  // namespace

void add_reductions(py::module_& m) {
    const py::arg input("input"), kept("kept"), initial("initial"), output("output");
    py::class_<Reduction>(m, "Reduction")
        .def(py::init(&make_reduction), py::arg("op"), py::arg("dtype"), py::arg("accumulate"),
             py::arg("tile"), py::arg("round_tiles"), py::arg("numerics"))
        .def("over", &reduction_over, py::arg("window"), input, initial, output, Keeps<3, 4, 5>())
        .def("on", &reduction_on, input, kept, initial, output, py::arg("cumulative_inner") = 0,
             Keeps<2, 4, 5>());
    py::class_<Composing>(m, "Composite")
        .def(py::init(&make_composite), py::arg("name"), py::arg("dtype"), py::arg("tile"))
        .def("on", &composite_on, input, kept, output, py::arg("epsilon") = 0.0,
             py::arg("divisor") = 0.0, py::arg("weight") = py::none(), py::arg("bias") = py::none(),
             Keeps<2, 4, 7, 8>());
    const py::arg dtype("dtype");
    EagerClass<EagerLines>(m, "EagerLines");
    m.def("eager_reduction", &eager_reduction, dtype, py::arg("reduction"), initial);
    m.def("eager_statistic", &eager_statistic, dtype, py::arg("composite"), py::arg("longest"),
          py::arg("correction"));
    m.def("eager_argument", &eager_argument, dtype, py::arg("places"), py::arg("largest"));
    m.def("eager_sort", &eager_sort, dtype);
    m.def("order_keys", &keys_in_order, py::arg("array"), py::arg("dtype"));
}

}  // namespace neuronsim
