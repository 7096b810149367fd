#include "bindings/arrays.h"

#include <stdexcept>
#include <string>

namespace py = pybind11;

namespace neuronsim {

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

Windows make_windows(const py::array& input, const py::array& output, const WindowRows& rows) {
    Windows windows{shape_of(input), shape_of(output), {}};
    for (const auto& [size, stride, padding_low, base_dilation, window_dilation] : rows)
        windows.dimensions.push_back({size, stride, padding_low, base_dilation, window_dilation});
    return windows;
}

static Axes axes_of(const py::array& array, py::ssize_t begin, py::ssize_t end) {
    Axes axes;
    for (py::ssize_t d = begin; d < end; ++d) axes.push_back({array.shape(d), array.strides(d)});
    return axes;
}

std::vector<int> codes_of(const std::vector<DType>& types) {
    std::vector<int> codes;
    for (const DType t : types) codes.push_back(static_cast<int>(t));
    return codes;
}

Observed* records_in(const py::object& object, size_t count) {
    if (object.is_none()) return nullptr;
    py::array array = object.cast<py::array>();
    if (array.dtype().kind() != 'i' ||
        shape_of(array) != std::vector<int64_t>{static_cast<int64_t>(count), observed_count})
        throw std::invalid_argument("a record is a row of int64 counts");
    return reinterpret_cast<Observed*>(output_data(array, DType::int64));
}

ProductOperand product_operand(const py::array& array, DType dtype, int batch, int vectors,
                               const Chain* program) {
    check_itemsize(array, dtype);
    if (batch < 0 || vectors < 0 || batch + vectors > array.ndim())
        throw std::invalid_argument("the operand has fewer dimensions");
    if (program != nullptr && (program->inputs() != std::vector<DType>{dtype} ||
                               program->output_count() != 1 || program->draws()))
        throw std::invalid_argument("the program does not take the operand's elements");
    return {static_cast<const char*>(array.data()),
            dtype,
            axes_of(array, 0, batch),
            axes_of(array, batch, batch + vectors),
            axes_of(array, batch + vectors, array.ndim()),
            program};
}

static bool same_sizes(const Axes& a, const Axes& b) {
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

static void check_float_extras(DType result, const Chain* a_program, const Chain* b_program,
                               const PackedColumns* packed, const Chain* epilogue) {
    const bool any =
        a_program != nullptr || b_program != nullptr || packed != nullptr || epilogue != nullptr;
    if (any && !is_device_float(result))
        throw std::invalid_argument("programs and packed operands are those of floats");
}

// The epilogue's terms lie over the output's axes: the batch to `rows`, the rows to `columns`.
static void add_epilogue(ProductResult& result, const Chain* epilogue,
                         const std::vector<py::array>& terms, const py::array& output, int rows,
                         int columns) {
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

ProductCall make_product(const py::array& a, int a_dtype, int a_vectors, const Chain* a_program,
                         const py::array& b, int b_dtype, int b_vectors, const Chain* b_program,
                         int batch, py::array output, int result_dtype, const std::string& accumulate,
                         int accumulate_dtype, int64_t tile, const Numerics& numerics,
                         const PackedColumns* packed, const Chain* epilogue,
                         const std::vector<py::array>& terms) {
    const ProductOperand left = product_operand(a, dtype_code(a_dtype), batch, a_vectors, a_program);
    const ProductOperand right = product_operand(b, dtype_code(b_dtype), batch, b_vectors, b_program);
    const DType result_type = dtype_code(result_dtype);
    const DType types[] = {left.type(), right.type()};
    for (const DType t : types)
        if (is_device_float(t) != is_device_float(result_type) || t == DType::float64)
            throw std::invalid_argument("the types do not go together");
    if (!is_device_float(result_type) &&
        (a_program != nullptr || b_program != nullptr || packed != nullptr || epilogue != nullptr))
        throw std::invalid_argument("programs and packed operands are those of floats");
    if (output.ndim() != batch + a_vectors + b_vectors)
        throw std::invalid_argument("the output has other dimensions");
    ProductResult result{nullptr, result_type, axes_of(output, 0, batch),
                         axes_of(output, batch, batch + a_vectors),
                         axes_of(output, batch + a_vectors, output.ndim())};
    if (!same_sizes(left.batch, right.batch) || !same_sizes(left.depth, right.depth) ||
        !same_sizes(left.batch, result.batch) || !same_sizes(left.vectors, result.rows) ||
        !same_sizes(right.vectors, result.columns))
        throw std::invalid_argument("the shapes do not contract");
    add_epilogue(result, epilogue, terms, output, batch, batch + a_vectors);
    check_itemsize(output, result.stored());
    result.data = static_cast<char*>(output.mutable_data());
    const Accumulation how = accumulation_of(accumulate, accumulate_dtype, tile);
    return {left, right, packed, result, how, numerics};
}

ConvolutionCall make_convolution(const py::array& x, int x_dtype, const Chain* x_program,
                                 const py::array& w, int w_dtype, const Chain* w_program,
                                 const ConvolutionWindow& window, int64_t feature_groups,
                                 int64_t batch_groups, py::array output, int result_dtype,
                                 const std::string& accumulate, int accumulate_dtype, int64_t tile,
                                 const Numerics& numerics, const PackedColumns* packed,
                                 const Chain* epilogue, const std::vector<py::array>& terms) {
    const int rank = static_cast<int>(window.size());
    if (x.ndim() != rank + 2 || w.ndim() != rank + 2 || output.ndim() != rank + 2)
        throw std::invalid_argument("the arrays have other dimensions than the window");
    ProductOperand input = product_operand(x, dtype_code(x_dtype), 0, rank + 1, x_program);
    ProductOperand kernel = product_operand(w, dtype_code(w_dtype), 0, 0, w_program);
    const DType result_type = dtype_code(result_dtype);
    check_float_extras(result_type, x_program, w_program, packed, epilogue);
    if (feature_groups < 1 || batch_groups < 1 || (feature_groups > 1 && batch_groups > 1))
        throw std::invalid_argument("one kind of groups at a time");
    const int64_t groups = feature_groups * batch_groups;
    const Axis features = kernel.depth.back();
    kernel.depth.pop_back();
    Convolution shape{{},
                      feature_groups,
                      batch_groups,
                      x.shape(0) / batch_groups,
                      x.shape(rank + 1) / feature_groups,
                      features.size / groups};
    for (int d = 0; d < rank; ++d) {
        const auto& [size, stride, padding, base, dilation, reversed] = window[static_cast<size_t>(d)];
        if (size < 1 || stride < 1 || base < 1 || dilation < 1 || size != w.shape(d))
            throw std::invalid_argument("the window is not the kernel's");
        shape.spatial.push_back(
            {x.shape(d + 1), output.shape(d + 1), size, stride, padding, base, dilation, reversed});
    }
    if (shape.batch * batch_groups != x.shape(0) || shape.batch != output.shape(0) ||
        shape.input_features * feature_groups != x.shape(rank + 1) ||
        shape.input_features != w.shape(rank) || shape.output_features * groups != features.size ||
        output.shape(rank + 1) != features.size)
        throw std::invalid_argument("the features or samples do not fit");
    kernel.batch = {{groups, shape.output_features * features.stride}};
    kernel.vectors = {{shape.output_features, features.stride}};
    Axes rows = axes_of(output, 0, rank + 1);
    const int64_t column = output.strides(rank + 1);
    ProductResult result{static_cast<char*>(output.mutable_data()),
                         result_type,
                         {{groups, shape.output_features * column}},
                         rows,
                         {{shape.output_features, column}}};
    add_epilogue(result, epilogue, terms, output, 0, rank + 1);
    for (ProductTerm& t : result.terms) {  // a group's features are its columns
        const int64_t stride = t.columns[0].stride;
        t.batch = {{groups, shape.output_features * stride}};
        t.columns = {{shape.output_features, stride}};
    }
    check_itemsize(output, result.stored());
    const DType types[] = {input.type(), kernel.type()};
    for (const DType t : types)
        if (is_device_float(t) != is_device_float(result_type) || t == DType::float64)
            throw std::invalid_argument("the types do not go together");
    const Accumulation how = accumulation_of(accumulate, accumulate_dtype, tile);
    return {shape, {input, kernel, packed, result, how, numerics}};
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
    return {reduction,       shape, kept, view, start.data, output_data(output, reduction.dtype),
            cumulative_inner};
}

WindowsCall make_reduce_windows(const Reduction& reduction, const WindowRows& rows,
                                const py::array& input, const py::array& initial, py::array output) {
    const Windows windows = make_windows(input, output, rows);
    const View view = view_of(input, reduction.dtype), start = view_of(initial, reduction.dtype);
    if (initial.size() != 1) throw std::invalid_argument("the initial value is one element");
    return {windows, reduction, view, start.data, output_data(output, reduction.dtype)};
}

}  // namespace neuronsim
