#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/bindings.h"
#include "bindings/views.h"
#include "graph/kernel_calls.h"

namespace py = pybind11;

namespace neuronsim {
namespace {

using ChainPointer = std::shared_ptr<Chain>;
using ColumnsPointer = std::shared_ptr<PackedColumns>;

// What a product may have beside its operands.
struct Extras {
    ColumnsPointer packed;
    ChainPointer epilogue;
    std::vector<py::array> terms;
};

// A call and what it reads.
template <class Call>
struct Bound {
    Call call;
    Kept kept;
};

// An operand of a product: its axes are those of the batch, of its vectors and of the contraction.
ProductOperand product_operand(const py::array& array, DType dtype, int batch, int vectors,
                               const Chain* prologue) {
    check_itemsize(array, dtype);
    if (batch < 0 || vectors < 0 || batch + vectors > array.ndim())
        throw std::invalid_argument("the operand has fewer dimensions");
    if (prologue != nullptr && (prologue->inputs() != std::vector<DType>{dtype} ||
                                prologue->output_count() != 1 || prologue->draws()))
        throw std::invalid_argument("the program does not take the operand's elements");
    return {static_cast<const char*>(array.data()),
            dtype,
            axes_of(array, 0, batch),
            axes_of(array, batch, batch + vectors),
            axes_of(array, batch + vectors, array.ndim()),
            prologue};
}

bool same_sizes(const Axes& a, const Axes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Axis& x, const Axis& y) { return x.size == y.size; });
}

Accumulation accumulation_of(const std::string& model, int type, int64_t tile) {
    Accumulation how{Accumulate::fma, dtype_code(type), tile};
    if (model == "exact") how.model = Accumulate::exact;
    else if (model == "product_bf16") how.model = Accumulate::product_bfloat16;
    else if (model == "pairs") how.model = Accumulate::pairs;
    else if (model != "fma") throw std::invalid_argument("unknown model of accumulation");
    if (how.type != DType::float32 &&
        (how.model != Accumulate::fma || (how.type != DType::bfloat16 && how.type != DType::float16)))
        throw std::invalid_argument("sums are float32, or by fma bfloat16 or float16");
    return how;
}

void check_types(const ProductOperand& a, const ProductOperand& b, DType result, const Extras& extras) {
    for (const DType t : {a.type(), b.type()})
        if (is_device_float(t) != is_device_float(result) || t == DType::float64)
            throw std::invalid_argument("the types do not go together");
    const bool any = a.prologue != nullptr || b.prologue != nullptr || extras.packed != nullptr ||
                     extras.epilogue != nullptr;
    if (any && !is_device_float(result) && !is_modulo_2_32(result))
        throw std::invalid_argument("programs and packed operands are not those of 64 bits or bool");
}

// The epilogue's terms lie over the output's axes: the batch to `rows`, the rows to `columns`.
void add_epilogue(ProductResult& result, const Extras& extras, const py::array& output, int rows,
                  int columns) {
    const Chain* const epilogue = extras.epilogue.get();
    const std::vector<py::array>& terms = extras.terms;
    if (epilogue == nullptr) return;
    if (epilogue->output_count() != 1 || epilogue->draws() ||
        epilogue->inputs().size() != terms.size() + 1 || epilogue->inputs()[0] != result.dtype)
        throw std::invalid_argument("the epilogue does not take the product");
    result.epilogue = epilogue;
    for (size_t i = 0; i < terms.size(); ++i) {
        if (shape_of(terms[i]) != shape_of(output)) throw std::invalid_argument("the shapes differ");
        const DType t = epilogue->inputs()[i + 1];
        check_itemsize(terms[i], t);
        result.terms.push_back({static_cast<const char*>(terms[i].data()), t,
                                axes_of(terms[i], 0, rows), axes_of(terms[i], rows, columns),
                                axes_of(terms[i], columns, output.ndim())});
    }
}

Bound<ProductCall> make_product(const Extras& extras, const py::array& a, int a_dtype, int a_vectors,
                                const ChainPointer& a_program, const py::array& b, int b_dtype,
                                int b_vectors, const ChainPointer& b_program, int batch,
                                py::array output, int result_dtype, const std::string& accumulate,
                                int accumulate_dtype, int64_t tile, const Numerics& numerics) {
    const ProductOperand left =
        product_operand(a, dtype_code(a_dtype), batch, a_vectors, a_program.get());
    const ProductOperand right =
        product_operand(b, dtype_code(b_dtype), batch, b_vectors, b_program.get());
    const DType result_type = dtype_code(result_dtype);
    check_types(left, right, result_type, extras);
    if (output.ndim() != batch + a_vectors + b_vectors)
        throw std::invalid_argument("the output has other dimensions");
    ProductResult result{nullptr, result_type, axes_of(output, 0, batch),
                         axes_of(output, batch, batch + a_vectors),
                         axes_of(output, batch + a_vectors, output.ndim())};
    if (!same_sizes(left.batch, right.batch) || !same_sizes(left.depth, right.depth) ||
        !same_sizes(left.batch, result.batch) || !same_sizes(left.vectors, result.rows) ||
        !same_sizes(right.vectors, result.columns))
        throw std::invalid_argument("the shapes do not contract");
    add_epilogue(result, extras, output, batch, batch + a_vectors);
    check_itemsize(output, result.stored());
    result.data = static_cast<char*>(output.mutable_data());
    const Accumulation how = accumulation_of(accumulate, accumulate_dtype, tile);
    return {{left, right, extras.packed.get(), result, how, numerics},
            {a_program, b_program, extras.packed, extras.epilogue}};
}

// Arrays come with their axes in the order of Convolution; a row of the window is (size, stride,
// padding below, base dilation, window dilation, reversal).
using ConvolutionWindow = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool>>;

Convolution shape_of_convolution(const py::array& x, const py::array& w, const py::array& output,
                                 const ConvolutionWindow& window, int64_t feature_groups,
                                 int64_t batch_groups) {
    const int rank = static_cast<int>(window.size());
    const int64_t groups = feature_groups * batch_groups, features = w.shape(rank + 1);
    Convolution shape{{},
                      feature_groups,
                      batch_groups,
                      x.shape(0) / batch_groups,
                      x.shape(rank + 1) / feature_groups,
                      features / groups};
    for (int d = 0; d < rank; ++d) {
        const auto& [size, stride, padding, base, dilation, reversed] = window[static_cast<size_t>(d)];
        if (size < 1 || stride < 1 || base < 1 || dilation < 1 || size != w.shape(d))
            throw std::invalid_argument("the window is not the kernel's");
        shape.spatial.push_back(
            {x.shape(d + 1), output.shape(d + 1), size, stride, padding, base, dilation, reversed});
    }
    if (shape.batch * batch_groups != x.shape(0) || shape.batch != output.shape(0) ||
        shape.input_features * feature_groups != x.shape(rank + 1) ||
        shape.input_features != w.shape(rank) || shape.output_features * groups != features ||
        output.shape(rank + 1) != features)
        throw std::invalid_argument("the features or samples do not fit");
    return shape;
}

Bound<ConvolutionCall> make_convolution(const Extras& extras, const py::array& x, int x_dtype,
                                        const ChainPointer& x_program, const py::array& w, int w_dtype,
                                        const ChainPointer& w_program, const ConvolutionWindow& window,
                                        int64_t feature_groups, int64_t batch_groups, py::array output,
                                        int result_dtype, const std::string& accumulate,
                                        int accumulate_dtype, int64_t tile, const Numerics& numerics) {
    const int rank = static_cast<int>(window.size());
    if (x.ndim() != rank + 2 || w.ndim() != rank + 2 || output.ndim() != rank + 2)
        throw std::invalid_argument("the arrays have other dimensions than the window");
    ProductOperand input = product_operand(x, dtype_code(x_dtype), 0, rank + 1, x_program.get());
    ProductOperand kernel = product_operand(w, dtype_code(w_dtype), 0, 0, w_program.get());
    const DType result_type = dtype_code(result_dtype);
    check_types(input, kernel, result_type, extras);
    if (feature_groups < 1 || batch_groups < 1 || (feature_groups > 1 && batch_groups > 1))
        throw std::invalid_argument("one kind of groups at a time");
    const int64_t groups = feature_groups * batch_groups;
    const Axis features = kernel.depth.back();
    kernel.depth.pop_back();
    const Convolution shape = shape_of_convolution(x, w, output, window, feature_groups, batch_groups);
    kernel.batch = {{groups, shape.output_features * features.stride}};
    kernel.vectors = {{shape.output_features, features.stride}};
    Axes rows = axes_of(output, 0, rank + 1);
    const int64_t column = output.strides(rank + 1);
    ProductResult result{static_cast<char*>(output.mutable_data()),
                         result_type,
                         {{groups, shape.output_features * column}},
                         rows,
                         {{shape.output_features, column}}};
    add_epilogue(result, extras, output, 0, rank + 1);
    for (ProductTerm& t : result.terms) {  // a group's features are its columns
        const int64_t stride = t.columns[0].stride;
        t.batch = {{groups, shape.output_features * stride}};
        t.columns = {{shape.output_features, stride}};
    }
    check_itemsize(output, result.stored());
    const Accumulation how = accumulation_of(accumulate, accumulate_dtype, tile);
    return {{{input, kernel, extras.packed.get(), result, how, numerics}, shape},
            {x_program, w_program, extras.packed, extras.epilogue}};
}

ColumnsPointer make_columns(int a_dtype, const py::array& b, int b_dtype, int b_vectors, int batch,
                            const Chain* b_program, const std::string& accumulate, int accumulate_dtype,
                            int64_t tile, const Numerics& numerics, int64_t rows) {
    const ProductOperand operand = product_operand(b, dtype_code(b_dtype), batch, b_vectors, b_program);
    const Accumulation how = accumulation_of(accumulate, accumulate_dtype, tile);
    const DType a = dtype_code(a_dtype);
    const py::gil_scoped_release released;
    return std::make_shared<PackedColumns>(a, operand, how, numerics, rows);
}

// Adds a function that runs the call that `make` makes, and one that records it. `names` are those of
// make's operands.
template <class Call, class... Operands, class... Names>
void add_calls(py::module_& m, const char* name, const char* record,
               Bound<Call> (*make)(const Extras&, Operands...), const Names&... names) {
    m.def(
        name,
        [make](Operands... operands, uint64_t seed, uint64_t id, const ColumnsPointer& packed,
               const ChainPointer& epilogue, const std::vector<py::array>& terms) {
            const Bound<Call> bound = make({packed, epilogue, terms}, operands...);
            const py::gil_scoped_release released;
            bound.call.run({seed, id});
        },
        names..., py::arg("seed"), py::arg("id"), py::arg("packed") = nullptr,
        py::arg("epilogue") = nullptr, py::arg("terms") = std::vector<py::array>());
    m.def(
        record,
        [make](Operands... operands, const ColumnsPointer& packed, const ChainPointer& epilogue,
               const std::vector<py::array>& terms) {
            const Bound<Call> bound = make({packed, epilogue, terms}, operands...);
            return placed(bound.call, bound.kept);
        },
        names..., py::arg("packed"), py::arg("epilogue"), py::arg("terms"));
}

}  // namespace

void add_products(py::module_& m) {
    py::class_<PackedColumns, ColumnsPointer>(m, "PackedColumns")
        .def_property_readonly("nbytes", &PackedColumns::bytes)
        .def(py::init(&make_columns), py::arg("a_dtype"), py::arg("b"), py::arg("b_dtype"),
             py::arg("b_vectors"), py::arg("batch"), py::arg("b_program"), py::arg("accumulate"),
             py::arg("accumulate_dtype"), py::arg("tile"), py::arg("numerics"), py::arg("rows"));
    add_calls(m, "dot", "record_dot", &make_product, py::arg("a"), py::arg("a_dtype"),
              py::arg("a_vectors"), py::arg("a_program"), py::arg("b"), py::arg("b_dtype"),
              py::arg("b_vectors"), py::arg("b_program"), py::arg("batch"), py::arg("output"),
              py::arg("result_dtype"), py::arg("accumulate"), py::arg("accumulate_dtype"),
              py::arg("tile"), py::arg("numerics"));
    add_calls(m, "convolution", "record_convolution", &make_convolution, py::arg("x"),
              py::arg("x_dtype"), py::arg("x_program"), py::arg("w"), py::arg("w_dtype"),
              py::arg("w_program"), py::arg("window"), py::arg("feature_groups"),
              py::arg("batch_groups"), py::arg("output"), py::arg("result_dtype"),
              py::arg("accumulate"), py::arg("accumulate_dtype"), py::arg("tile"), py::arg("numerics"));
}

}  // namespace neuronsim
