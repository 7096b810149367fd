// The Python module neuronsim._core: a handful of functions on ndarrays of storage bits.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/dlpack.h"
#include "bindings/eager.h"
#include "bindings/memory.h"
#include "graph/executable.h"
#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/composite.h"
#include "reductions/scatter.h"
#include "reductions/sort.h"

namespace py = pybind11;
using namespace neuronsim;

namespace {

void run_program(const Chain& program, const std::vector<py::array>& inputs,
                 std::vector<py::array> outputs, uint64_t seed, const std::vector<uint64_t>& ids,
                 const py::object& records) {
    if (inputs.size() != program.inputs().size() || outputs.size() != program.output_count() ||
        outputs.empty())
        throw std::invalid_argument("the program has another number of inputs or outputs");
    const std::vector<int64_t> shape = shape_of(outputs[0]);
    const std::vector<View> views = views_of(inputs, codes_of(program.inputs()), shape);
    std::vector<char*> targets;
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (shape_of(outputs[i]) != shape) throw std::invalid_argument("the shapes differ");
        targets.push_back(output_data(outputs[i], program.output_dtype(i)));
    }
    Observed* const observed = records_in(records, program.link_count());
    const py::gil_scoped_release released;
    program.run(shape, views, targets, seed, ids, observed);
}

Reduction make_reduction(int op, int dtype, int accumulate, int64_t tile, bool round_tiles,
                         const Numerics& numerics, uint64_t seed, std::vector<uint64_t> ids) {
    if (op < 0 || op >= op_count) throw std::invalid_argument("unknown operation");
    const DType type = dtype_code(dtype), accumulated = dtype_code(accumulate);
    if (!is_device_float(accumulated)) throw std::invalid_argument("sums accumulate in a float type");
    return {static_cast<Op>(op), type, accumulated, tile, round_tiles, numerics, seed, std::move(ids)};
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
    if (array->size() != length || (array->flags() & py::array::c_style) == 0)
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
    const auto is_dense = [](const py::array& a) { return (a.flags() & py::array::c_style) != 0; };
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
    if ((array.flags() & py::array::c_style) == 0)
        throw std::invalid_argument("the array is not dense");
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
        ranges[op_rows[static_cast<int>(r.op)].name] = py::make_tuple(r.least, r.greatest);
    return ranges;
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
    m.attr("OBSERVED") = std::vector<std::string>(observed_names, observed_names + observed_count);
    m.attr("CONVERT") = convert_op;
    m.attr("CONVERT_NEAREST") = convert_nearest_op;
    m.attr("REDUCE_PRECISION") = reduce_precision_op;
    m.attr("RESTRICT") = restrict_op;
    m.attr("CONSTANT") = constant_op;
    m.attr("INPUT_RANGES") = documented_input_ranges();
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
    py::class_<Chain>(m, "TileProgram")
        .def(py::init([](const std::vector<int>& inputs,
                         const std::vector<std::tuple<int, int, std::vector<int64_t>>>& steps,
                         std::vector<int> outputs, const Numerics& numerics) {
                 std::vector<DType> input_types;
                 for (const int code : inputs) input_types.push_back(dtype_code(code));
                 std::vector<Link> list;
                 for (const auto& [op, result, operands] : steps) {
                     const bool is_constant = op == constant_op && operands.size() == 1;
                     Link step{op, dtype_code(result), {}};
                     if (is_constant) step.constant = static_cast<uint64_t>(operands[0]);
                     else step.operands.assign(operands.begin(), operands.end());
                     list.push_back(std::move(step));
                 }
                 return Chain(std::move(input_types), std::move(list), std::move(outputs), numerics);
             }),
             py::arg("inputs"), py::arg("steps"), py::arg("outputs"), py::arg("numerics"))
        .def("draws", &Chain::draws)
        .def_property_readonly("step_count", &Chain::link_count)
        .def("run", &run_program, py::arg("inputs"), py::arg("outputs"), py::arg("seed") = 0,
             py::arg("ids") = std::vector<uint64_t>(), py::arg("records") = py::none());
    add_dlpack(m);
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
    m.def(
        "reduce",
        [](const Reduction& reduction, const py::array& input, int kept, const py::array& initial,
           const py::array& output, int64_t cumulative_inner) {
            const ReduceCall call =
                make_reduce(reduction, input, kept, initial, output, cumulative_inner);
            const py::gil_scoped_release released;
            call.run();
        },
        py::arg("reduction"), py::arg("input"), py::arg("kept"), py::arg("initial"), py::arg("output"),
        py::arg("cumulative_inner") = 0);
    m.def("compose", &run_compose, py::arg("composite"), py::arg("dtype"), py::arg("tile"),
          py::arg("input"), py::arg("kept"), py::arg("output"), py::arg("epsilon") = 0.0,
          py::arg("divisor") = 0.0, py::arg("weight") = py::none(), py::arg("bias") = py::none());
    m.def(
        "reduce_windows",
        [](const Reduction& reduction, const WindowRows& window, const py::array& input,
           const py::array& initial, const py::array& output) {
            const WindowsCall call = make_reduce_windows(reduction, window, input, initial, output);
            const py::gil_scoped_release released;
            call.run();
        },
        py::arg("reduction"), py::arg("window"), py::arg("input"), py::arg("initial"),
        py::arg("output"));
    m.def("fold_windows", &run_fold_windows, py::arg("computation"), py::arg("window"),
          py::arg("inputs"), py::arg("initial"), py::arg("outputs"));
    m.def("select_windows", &run_select_windows, py::arg("select"), py::arg("window"), py::arg("input"),
          py::arg("places"));
    m.def("scatter", &run_scatter, py::arg("computation"), py::arg("places"), py::arg("updates"),
          py::arg("targets"));
    m.def("order_keys", &keys_in_order, py::arg("array"), py::arg("dtype"));
    m.def("sort", &run_sort, py::arg("comparator"), py::arg("operands"));
    py::class_<PackedColumns>(m, "PackedColumns")
        .def_property_readonly("nbytes", &PackedColumns::bytes)
        .def(py::init([](int a_dtype, const py::array& b, int b_dtype, int b_vectors, int batch,
                         const Chain* b_program, const std::string& accumulate, int accumulate_dtype,
                         int64_t tile, const Numerics& numerics, int64_t rows) {
                 const ProductOperand operand =
                     product_operand(b, dtype_code(b_dtype), batch, b_vectors, b_program);
                 const Accumulation how = accumulation_of(accumulate, accumulate_dtype, tile);
                 const DType a = dtype_code(a_dtype);
                 const py::gil_scoped_release released;
                 return PackedColumns(a, operand, how, numerics, rows);
             }),
             py::arg("a_dtype"), py::arg("b"), py::arg("b_dtype"), py::arg("b_vectors"),
             py::arg("batch"), py::arg("b_program"), py::arg("accumulate"), py::arg("accumulate_dtype"),
             py::arg("tile"), py::arg("numerics"), py::arg("rows"));
    m.def(
        "dot",
        [](const py::array& a, int a_dtype, int a_vectors, const Chain* a_program, const py::array& b,
           int b_dtype, int b_vectors, const Chain* b_program, int batch, const py::array& output,
           int result_dtype, const std::string& accumulate, int accumulate_dtype, int64_t tile,
           const Numerics& numerics, uint64_t seed, uint64_t id, const PackedColumns* packed,
           const Chain* epilogue, const std::vector<py::array>& terms) {
            const ProductCall call = make_product(
                a, a_dtype, a_vectors, a_program, b, b_dtype, b_vectors, b_program, batch, output,
                result_dtype, accumulate, accumulate_dtype, tile, numerics, packed, epilogue, terms);
            const py::gil_scoped_release released;
            call.run({seed, id});
        },
        py::arg("a"), py::arg("a_dtype"), py::arg("a_vectors"), py::arg("a_program"), py::arg("b"),
        py::arg("b_dtype"), py::arg("b_vectors"), py::arg("b_program"), py::arg("batch"),
        py::arg("output"), py::arg("result_dtype"), py::arg("accumulate"), py::arg("accumulate_dtype"),
        py::arg("tile"), py::arg("numerics"), py::arg("seed"), py::arg("id"),
        py::arg("packed") = nullptr, py::arg("epilogue") = nullptr,
        py::arg("terms") = std::vector<py::array>());
    m.def(
        "convolution",
        [](const py::array& x, int x_dtype, const Chain* x_program, const py::array& w, int w_dtype,
           const Chain* w_program, const ConvolutionWindow& window, int64_t feature_groups,
           int64_t batch_groups, const py::array& output, int result_dtype,
           const std::string& accumulate, int accumulate_dtype, int64_t tile, const Numerics& numerics,
           uint64_t seed, uint64_t id, const PackedColumns* packed, const Chain* epilogue,
           const std::vector<py::array>& terms) {
            const ConvolutionCall call =
                make_convolution(x, x_dtype, x_program, w, w_dtype, w_program, window, feature_groups,
                                 batch_groups, output, result_dtype, accumulate, accumulate_dtype, tile,
                                 numerics, packed, epilogue, terms);
            const py::gil_scoped_release released;
            call.run({seed, id});
        },
        py::arg("x"), py::arg("x_dtype"), py::arg("x_program"), py::arg("w"), py::arg("w_dtype"),
        py::arg("w_program"), py::arg("window"), py::arg("feature_groups"), py::arg("batch_groups"),
        py::arg("output"), py::arg("result_dtype"), py::arg("accumulate"), py::arg("accumulate_dtype"),
        py::arg("tile"), py::arg("numerics"), py::arg("seed"), py::arg("id"),
        py::arg("packed") = nullptr, py::arg("epilogue") = nullptr,
        py::arg("terms") = std::vector<py::array>());
    add_executable(m);
    m.def(
        "random_words",
        [](uint64_t seed, uint64_t id, int64_t first, int64_t n) {
            py::array_t<uint32_t> words(n);
            uint32_t* const target = words.mutable_data();
            {
                const py::gil_scoped_release released;
                for (int64_t at = 0; at < n; at += tile_elements) {
                    note_work(tile_elements);
                    random_words({seed, id}, first + at,
                                 static_cast<int>(std::min<int64_t>(n - at, tile_elements)),
                                 target + at);
                }
            }
            return words;
        },
        py::arg("seed"), py::arg("id"), py::arg("first"), py::arg("n"));
    m.def(
        "run_fma_chains",
        [](int64_t n) {
            [[maybe_unused]] const volatile float used = kernels().fma_chains(n);
            return 2 * n * kernels().chain_count;
        },
        py::arg("n"));
    m.def(
        "run_pair_chains",
        [](int64_t n) {
            const auto chains = kernels().pair_chains;
            if (chains == nullptr) return int64_t{0};
            [[maybe_unused]] const volatile float used = chains(n);
            return 4 * n * kernels().chain_count;
        },
        py::arg("n"));
    m.def("pairs_are_proved", &pairs_are_proved);
    m.def(
        "multiplies_pairs",
        [](int64_t rows) {
            const Accumulation how{Accumulate::fma, DType::float32, 2};
            return product_form(kernels(), DType::bfloat16, DType::bfloat16, how, {}, rows) ==
                   ProductForm::pairs;
        },
        py::arg("rows"));
    m.def(
        "select_bfloat16_products",
        [](const std::string& name) {
            if (name == "pairs") select_bfloat16_products(Bfloat16Products::pairs);
            else if (name == "fma") select_bfloat16_products(Bfloat16Products::fma);
            else if (name == "auto") select_bfloat16_products(Bfloat16Products::automatic);
            else throw std::invalid_argument("unknown form of products");
        },
        py::arg("name"));
    m.def("isa", [] { return std::string(kernels().isa); });
    m.def("available_isas", &available_isas);
    m.def("select_isa", &select_isa, py::arg("name"));
    m.def("thread_count", &thread_count);
    m.def("set_thread_count", [](int n) {
        if (n < 1) throw std::invalid_argument("at least one thread");
        set_thread_count(n);
    });
}
