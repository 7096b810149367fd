// The Python module neuronsim._core: a handful of functions on ndarrays of storage bits.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "dot.h"
#include "pool.h"
#include "program.h"
#include "reduce.h"

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

void run_program(const TileProgram& program, const std::vector<py::array>& inputs,
                 std::vector<py::array> outputs) {
    if (inputs.size() != program.inputs().size() || outputs.size() != program.output_count() ||
        outputs.empty())
        throw std::invalid_argument("the program has another number of inputs or outputs");
    const std::vector<int64_t> shape = shape_of(outputs[0]);
    std::vector<View> views;
    for (size_t i = 0; i < inputs.size(); ++i) {
        if (shape_of(inputs[i]) != shape) throw std::invalid_argument("the shapes differ");
        views.push_back(view_of(inputs[i], program.inputs()[i]));
    }
    std::vector<char*> targets;
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (shape_of(outputs[i]) != shape) throw std::invalid_argument("the shapes differ");
        targets.push_back(output_data(outputs[i], program.output_dtype(i)));
    }
    const py::gil_scoped_release released;
    program.run(shape, views, targets);
}

void run_reduce(int op, int dtype, const py::array& input, int kept, const py::array& initial,
                py::array output, int64_t tile, bool round_tiles) {
    const Reduction reduction{static_cast<Op>(op), dtype_code(dtype), tile, round_tiles};
    if (op < 0 || op >= op_count) throw std::invalid_argument("unknown operation");
    const View view = view_of(input, reduction.dtype);
    const std::vector<int64_t> shape = shape_of(input);
    if (kept < 0 || kept > input.ndim() || initial.size() != 1 ||
        shape_of(output) != std::vector<int64_t>(shape.begin(), shape.begin() + kept))
        throw std::invalid_argument("the output's shape is not that of the kept dimensions");
    const View start = view_of(initial, reduction.dtype);
    char* target = output_data(output, reduction.dtype);
    const py::gil_scoped_release released;
    reduce(reduction, shape, kept, view, start.data, target);
}

void run_dot(const py::array& a, int a_dtype, const py::array& b, int b_dtype, py::array output,
             int result_dtype, int64_t tile) {
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
    dot(shape, view_a, view_b, types[2], tile, target);
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
    for (const OpRow& row : op_rows) rows.append(py::make_tuple(row.name, row.arity, row.kind));
    return rows;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
    m.doc() = "Kernels of neuronsim on ndarrays of storage bits.";
    m.attr("FORMATS") = format_rows();
    m.attr("DTYPES") = std::vector<std::string>(dtype_names, dtype_names + dtype_count);
    m.attr("OPS") = op_table();
    m.attr("CONVERT") = convert_op;
    py::class_<TileProgram>(m, "TileProgram")
        .def(py::init([](const std::vector<int>& inputs,
                         const std::vector<std::tuple<int, int, std::vector<int>>>& steps,
                         std::vector<int> outputs, bool integers_via_float32) {
                 std::vector<DType> input_types;
                 for (const int code : inputs) input_types.push_back(dtype_code(code));
                 std::vector<Step> list;
                 for (const auto& [op, result, operands] : steps)
                     list.push_back({op, dtype_code(result), operands});
                 return TileProgram(std::move(input_types), std::move(list), std::move(outputs),
                                    integers_via_float32);
             }),
             py::arg("inputs"), py::arg("steps"), py::arg("outputs"), py::arg("integers_via_float32"))
        .def("run", &run_program, py::arg("inputs"), py::arg("outputs"));
    m.def("reduce", &run_reduce, py::arg("op"), py::arg("dtype"), py::arg("input"), py::arg("kept"),
          py::arg("initial"), py::arg("output"), py::arg("tile"), py::arg("round_tiles"));
    m.def("dot", &run_dot, py::arg("a"), py::arg("a_dtype"), py::arg("b"), py::arg("b_dtype"),
          py::arg("output"), py::arg("result_dtype"), py::arg("tile"));
    m.def("isa", [] { return std::string(kernels().isa); });
    m.def("available_isas", &available_isas);
    m.def("select_isa", &select_isa, py::arg("name"));
    m.def("thread_count", &thread_count);
    m.def("set_thread_count", [](int n) {
        if (n < 1) throw std::invalid_argument("at least one thread");
        set_thread_count(n);
    });
}
