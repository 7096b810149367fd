// The Python module neuronsim._core: a handful of functions on ndarrays of storage bits.
#include <pybind11/stl.h>

#include <string>

#include "bindings/bindings.h"
#include "bindings/memory.h"
#include "bindings/views.h"
#include "elementwise/chain.h"

namespace py = pybind11;
using namespace neuronsim;

namespace {

py::list format_rows() {
    py::list rows;
    for (const Format& f : formats)
        rows.append(py::make_tuple(f.name, f.exponent_bits, f.mantissa_bits, f.bias, f.has_inf,
                                   f.nan_bits, f.storage_bytes));
    return rows;
}

py::dict documented_input_ranges() {
    py::dict ranges;
    for (const InputRange& r : documented_ranges)
        ranges[op_rows[r.op].name] = py::make_tuple(r.least, r.greatest);
    return ranges;
}

py::list op_table() {
    py::list rows;
    for (const OpRow& row : op_rows.entries)
        rows.append(py::make_tuple(row.name, row.arity, kind_names[static_cast<int>(row.kind)]));
    return rows;
}

}  // namespace

PYBIND11_MODULE(_core, m) {
    m.doc() = "Kernels of neuronsim on ndarrays of storage bits.";
    // Here, since the first look imports a module, which a slot of Array with an error set cannot.
    py::detail::npy_api::get();
    m.attr("FORMATS") = format_rows();
    m.attr("DTYPES") = std::vector<std::string>(dtype_names.entries, dtype_names.entries + dtype_count);
    m.attr("OPS") = op_table();
    m.attr("OBSERVED") = std::vector<std::string>(observed_names, observed_names + observed_count);
    m.attr("CONVERT") = convert_op;
    m.attr("CONVERT_NEAREST") = convert_nearest_op;
    m.attr("REDUCE_PRECISION") = reduce_precision_op;
    m.attr("RESTRICT") = restrict_op;
    m.attr("CONSTANT") = constant_op;
    m.attr("BITCAST") = bitcast_op;
    m.attr("TRUNCATED") = truncated_op;
    m.attr("INPUT_RANGES") = documented_input_ranges();
    py::class_<Numerics>(m, "Numerics")
        .def(py::init([](bool integers_via_float32, const std::string& fp8_overflow,
                         bool flush_subnormals, bool stochastic) {
                 constexpr const char* names[] = {"inf", "nan", "saturate"};  // as Fp8Overflow has them
                 const auto overflow = named<Fp8Overflow>(names, fp8_overflow, "overflow");
                 return Numerics{integers_via_float32, overflow, flush_subnormals, stochastic};
             }),
             py::arg("integers_via_float32"), py::arg("fp8_overflow"), py::arg("flush_subnormals"),
             py::arg("stochastic"));
    m.def(
        "empty",
        [](int dtype, const std::vector<Py_intptr_t>& shape) {
            for (const Py_intptr_t n : shape) require(n >= 0, "a shape has no negative lengths");
            return empty_array(dtype_code(dtype), static_cast<int>(shape.size()), shape.data());
        },
        py::arg("dtype"), py::arg("shape"));
    add_chains(m);
    add_array_types(m);
    add_eager(m);
    add_doors(m);
    add_elementwise(m);
    add_dlpack(m);
    add_steps(m);
    add_products(m);
    add_reductions(m);
    add_executable(m);
    add_machine(m);
}
