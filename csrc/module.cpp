// The Python module neuronsim._core: a handful of functions on ndarrays of storage bits.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "dot.h"
#include "eager.h"
#include "memory.h"
#include "pool.h"
#include "program.h"
#include "reduce.h"
#include "sort.h"
#include "window.h"

namespace py = pybind11;
using namespace neuronsim;

namespace {

DType dtype_code(int code) {
    if (code < 0 || code >= dtype_count) throw std::invalid_argument("unknown dtype code");
    return static_cast<DType>(code);
}

void check_itemsize(const py::array& array, DType dtype) {
    if (array.itemsize() != storage_bytes(dtype))
        throw std::invalid_argument("the array's items are not " +
                                    std::string(dtype_names[static_cast<int>(dtype)]));
}

View view_of(const py::array& array, DType dtype) {
    check_itemsize(array, dtype);
    return {static_cast<const char*>(array.data()), dtype,
            std::vector<int64_t>(array.strides(), array.strides() + array.ndim())};
}

std::vector<int64_t> shape_of(const py::array& array) {
    return std::vector<int64_t>(array.shape(), array.shape() + array.ndim());
}

char* output_data(py::array& array, DType dtype) {
    check_itemsize(array, dtype);
    if ((array.flags() & py::array::c_style) == 0) throw std::invalid_argument("output not dense");
    return static_cast<char*>(array.mutable_data());
}

std::vector<View> views_of(const std::vector<py::array>& arrays, const std::vector<int>& types,
                           const std::vector<int64_t>& shape) {
    if (arrays.size() != types.size()) throw std::invalid_argument("each array has a type");
    std::vector<View> views;
    for (size_t i = 0; i < arrays.size(); ++i) {
        if (shape_of(arrays[i]) != shape) throw std::invalid_argument("the shapes differ");
        views.push_back(view_of(arrays[i], dtype_code(types[i])));
    }
    return views;
}

void run_program(const TileProgram& program, const std::vector<py::array>& inputs,
                 std::vector<py::array> outputs, uint64_t seed, const std::vector<uint64_t>& ids) {
    if (inputs.size() != program.inputs().size() || outputs.size() != program.output_count() ||
        outputs.empty())
        throw std::invalid_argument("the program has another number of inputs or outputs");
    const std::vector<int64_t> shape = shape_of(outputs[0]);
    std::vector<int> types;
    for (const DType t : program.inputs()) types.push_back(static_cast<int>(t));
    const std::vector<View> views = views_of(inputs, types, shape);
    std::vector<char*> targets;
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (shape_of(outputs[i]) != shape) throw std::invalid_argument("the shapes differ");
        targets.push_back(output_data(outputs[i], program.output_dtype(i)));
    }
    const py::gil_scoped_release released;
    program.run(shape, views, targets, seed, ids);
}

Reduction make_reduction(int op, int dtype, int accumulate, int64_t tile, bool round_tiles,
                         const Numerics& numerics, uint64_t seed, std::vector<uint64_t> ids) {
    if (op < 0 || op >= op_count) throw std::invalid_argument("unknown operation");
    const DType type = dtype_code(dtype), accumulated = dtype_code(accumulate);
    if (!is_device_float(accumulated)) throw std::invalid_argument("sums accumulate in a float type");
    return {static_cast<Op>(op), type, accumulated, tile, round_tiles, numerics, seed, std::move(ids)};
}

void run_reduce(const Reduction& reduction, const py::array& input, int kept, const py::array& initial,
                py::array output, int64_t cumulative_inner) {
    const bool cumulative = cumulative_inner > 0;
    const View view = view_of(input, reduction.dtype);
    const std::vector<int64_t> shape = shape_of(input);
    const bool fits = kept >= 0 && kept <= input.ndim() && initial.size() == 1;
    if (!fits || shape_of(output) !=
                     (cumulative ? shape : std::vector<int64_t>(shape.begin(), shape.begin() + kept)))
        throw std::invalid_argument("the output's shape is not that of the kept dimensions");
    const View start = view_of(initial, reduction.dtype);
    char* target = output_data(output, reduction.dtype);
    const py::gil_scoped_release released;
    if (cumulative)
        reduce_cumulative(reduction, shape, kept, view, start.data, cumulative_inner, target);
    else reduce(reduction, shape, kept, view, start.data, target);
}

Windows make_windows(const py::array& input, const py::array& output,
                     const std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>& rows) {
    Windows windows{shape_of(input), shape_of(output), {}};
    for (const auto& [size, stride, padding_low, base_dilation, window_dilation] : rows)
        windows.dimensions.push_back({size, stride, padding_low, base_dilation, window_dilation});
    return windows;
}
using WindowRows = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>;

void run_reduce_windows(const Reduction& reduction, const WindowRows& rows, const py::array& input,
                        const py::array& initial, py::array output) {
    const Windows windows = make_windows(input, output, rows);
    const View view = view_of(input, reduction.dtype), start = view_of(initial, reduction.dtype);
    if (initial.size() != 1) throw std::invalid_argument("the initial value is one element");
    char* target = output_data(output, reduction.dtype);
    const py::gil_scoped_release released;
    reduce_windows(windows, reduction, view, start.data, target);
}

void run_fold_windows(const TileProgram& computation, const WindowRows& rows,
                      const std::vector<py::array>& inputs, const std::vector<py::array>& initial,
                      std::vector<py::array> outputs) {
    const size_t count = outputs.size();
    if (count == 0 || inputs.size() != count || initial.size() != count ||
        computation.inputs().size() != 2 * count || computation.output_count() != count)
        throw std::invalid_argument(
            "the computation takes accumulators and elements, and gives results");
    const Windows windows = make_windows(inputs[0], outputs[0], rows);
    std::vector<int> types;
    for (size_t i = count; i < 2 * count; ++i)
        types.push_back(static_cast<int>(computation.inputs()[i]));
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

py::array run_sort(const TileProgram& comparator, const std::vector<py::array>& operands) {
    if (operands.empty()) throw std::invalid_argument("sort takes at least one operand");
    const std::vector<int64_t> shape = shape_of(operands[0]);
    std::vector<int> types;
    for (size_t i = 0; i < comparator.inputs().size(); i += 2)
        types.push_back(static_cast<int>(comparator.inputs()[i]));
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

void run_dot(const py::array& a, int a_dtype, const py::array& b, int b_dtype, py::array output,
             int result_dtype, int64_t tile, const Numerics& numerics, uint64_t seed, uint64_t id) {
    if (a.ndim() != 3 || b.ndim() != 3 || output.ndim() != 3 || a.shape(0) != b.shape(0) ||
        a.shape(2) != b.shape(1) || output.shape(0) != a.shape(0) || output.shape(1) != a.shape(1) ||
        output.shape(2) != b.shape(2))
        throw std::invalid_argument("the shapes do not contract");
    const DType types[] = {dtype_code(a_dtype), dtype_code(b_dtype), dtype_code(result_dtype)};
    for (const DType t : types)
        if (is_device_float(t) != is_device_float(types[2]) || t == DType::float64)
            throw std::invalid_argument("the types do not go together");
    const View view_a = view_of(a, types[0]), view_b = view_of(b, types[1]);
    char* target = output_data(output, types[2]);
    const DotShape shape{a.shape(0), a.shape(1), a.shape(2), b.shape(2)};
    const py::gil_scoped_release released;
    dot(shape, view_a, view_b, types[2], tile, numerics, {seed, id}, target);
}

py::list format_rows() {
    py::list rows;
    for (const Format& f : formats)
        rows.append(py::make_tuple(f.name, f.exponent_bits, f.mantissa_bits, f.bias, f.has_inf,
                                   f.nan_bits, f.storage_bytes));
    return rows;
}

py::list op_table() {
    py::list rows;
    for (const OpRow& row : op_rows)
        rows.append(py::make_tuple(row.name, row.arity, kind_names[static_cast<int>(row.kind)]));
    return rows;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
    m.doc() = "Kernels of neuronsim on ndarrays of storage bits.";
    m.attr("FORMATS") = format_rows();
    m.attr("DTYPES") = std::vector<std::string>(dtype_names, dtype_names + dtype_count);
    m.attr("OPS") = op_table();
    m.attr("CONVERT") = convert_op;
    m.attr("CONVERT_NEAREST") = convert_nearest_op;
    m.attr("REDUCE_PRECISION") = reduce_precision_op;
    py::class_<Numerics>(m, "Numerics")
        .def(py::init([](bool integers_via_float32, const std::string& fp8_overflow,
                         bool flush_subnormals, bool stochastic) {
                 Numerics numerics{integers_via_float32, Fp8Overflow::inf, flush_subnormals,
                                   stochastic};
                 if (fp8_overflow == "nan") numerics.fp8_overflow = Fp8Overflow::nan;
                 else if (fp8_overflow == "saturate") numerics.fp8_overflow = Fp8Overflow::saturate;
                 else if (fp8_overflow != "inf") throw std::invalid_argument("unknown overflow");
                 return numerics;
             }),
             py::arg("integers_via_float32"), py::arg("fp8_overflow"), py::arg("flush_subnormals"),
             py::arg("stochastic"));
    py::class_<TileProgram>(m, "TileProgram")
        .def(py::init([](const std::vector<int>& inputs,
                         const std::vector<std::tuple<int, int, std::vector<int>>>& steps,
                         std::vector<int> outputs, const Numerics& numerics) {
                 std::vector<DType> input_types;
                 for (const int code : inputs) input_types.push_back(dtype_code(code));
                 std::vector<Step> list;
                 for (const auto& [op, result, operands] : steps)
                     list.push_back({op, dtype_code(result), operands});
                 return TileProgram(std::move(input_types), std::move(list), std::move(outputs),
                                    numerics);
             }),
             py::arg("inputs"), py::arg("steps"), py::arg("outputs"), py::arg("numerics"))
        .def("draws", &TileProgram::draws)
        .def("run", &run_program, py::arg("inputs"), py::arg("outputs"), py::arg("seed") = 0,
             py::arg("ids") = std::vector<uint64_t>());
    add_eager(m);
    m.def(
        "empty",
        [](int dtype, const std::vector<Py_intptr_t>& shape) {
            for (const Py_intptr_t n : shape)
                if (n < 0) throw std::invalid_argument("a shape has no negative lengths");
            return empty_array(dtype_code(dtype), static_cast<int>(shape.size()), shape.data());
        },
        py::arg("dtype"), py::arg("shape"));
    py::class_<Reduction>(m, "Reduction")
        .def(py::init(&make_reduction), py::arg("op"), py::arg("dtype"), py::arg("accumulate"),
             py::arg("tile"), py::arg("round_tiles"), py::arg("numerics"), py::arg("seed"),
             py::arg("ids"));
    m.def("reduce", &run_reduce, py::arg("reduction"), py::arg("input"), py::arg("kept"),
          py::arg("initial"), py::arg("output"), py::arg("cumulative_inner") = 0);
    m.def("reduce_windows", &run_reduce_windows, py::arg("reduction"), py::arg("window"),
          py::arg("input"), py::arg("initial"), py::arg("output"));
    m.def("fold_windows", &run_fold_windows, py::arg("computation"), py::arg("window"),
          py::arg("inputs"), py::arg("initial"), py::arg("outputs"));
    m.def("sort", &run_sort, py::arg("comparator"), py::arg("operands"));
    m.def("dot", &run_dot, py::arg("a"), py::arg("a_dtype"), py::arg("b"), py::arg("b_dtype"),
          py::arg("output"), py::arg("result_dtype"), py::arg("tile"), py::arg("numerics"),
          py::arg("seed"), py::arg("id"));
    m.def(
        "random_words",
        [](uint64_t seed, uint64_t id, int64_t first, int64_t n) {
            py::array_t<uint32_t> words(n);
            for (int64_t at = 0; at < n; at += tile_elements)
                random_words({seed, id}, first + at,
                             static_cast<int>(n - at < tile_elements ? n - at : tile_elements),
                             words.mutable_data() + at);
            return words;
        },
        py::arg("seed"), py::arg("id"), py::arg("first"), py::arg("n"));
    m.def(
        "run_fma_chains",
        [](int64_t n) {
            [[maybe_unused]] const volatile float used = kernels().fma_chains(n);
            return 2 * n * kernels().fma_chain_count;
        },
        py::arg("n"));
    m.def("isa", [] { return std::string(kernels().isa); });
    m.def("available_isas", &available_isas);
    m.def("select_isa", &select_isa, py::arg("name"));
    m.def("thread_count", &thread_count);
    m.def("set_thread_count", [](int n) {
        if (n < 1) throw std::invalid_argument("at least one thread");
        set_thread_count(n);
    });
}
