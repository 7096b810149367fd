// ndarrays of storage bits as the core's operands: views, axes, and whole calls of its functions.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "elementwise/chain.h"
#include "products/convolution/convolution.h"
#include "products/product.h"
#include "reductions/reduce.h"
#include "reductions/window.h"

namespace neuronsim {

// Each throws std::invalid_argument where the arrays do not fit together.
DType dtype_code(int code);
void check_itemsize(const pybind11::array& array, DType dtype);
std::vector<int64_t> shape_of(const pybind11::array& array);
View view_of(const pybind11::array& array, DType dtype);
char* output_data(pybind11::array& array, DType dtype);  // of a dense array
std::vector<View> views_of(const std::vector<pybind11::array>& arrays, const std::vector<int>& types,
                           const std::vector<int64_t>& shape);
std::vector<int> codes_of(const std::vector<DType>& types);
// The rows of an int64 array, one for each of `count` records; null of None.
Observed* records_in(const pybind11::object& array, size_t count);

// (size, stride, padding below, base dilation, window dilation) of each dimension.
using WindowRows = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>;
Windows make_windows(const pybind11::array& input, const pybind11::array& output,
                     const WindowRows& rows);

// An operand of a product: its axes are those of the batch, of its vectors and of the contraction.
ProductOperand product_operand(const pybind11::array& array, DType dtype, int batch, int vectors,
                               const Chain* program);
Accumulation accumulation_of(const std::string& model, int type, int64_t tile);

struct ProductCall {
    ProductOperand a, b;
    const PackedColumns* packed;
    ProductResult result;
    Accumulation how;
    Numerics numerics;

    void run(Draw draw) const { product(a, b, packed, result, how, numerics, draw); }
};
ProductCall make_product(const pybind11::array& a, int a_dtype, int a_vectors, const Chain* a_program,
                         const pybind11::array& b, int b_dtype, int b_vectors, const Chain* b_program,
                         int batch, pybind11::array output, int result_dtype,
                         const std::string& accumulate, int accumulate_dtype, int64_t tile,
                         const Numerics& numerics, const PackedColumns* packed, const Chain* epilogue,
                         const std::vector<pybind11::array>& terms);

struct ConvolutionCall {
    Convolution shape;
    ProductCall operands;

    void run(Draw draw) const {
        convolution(shape, operands.a, operands.b, operands.packed, operands.result, operands.how,
                    operands.numerics, draw);
    }
};
// Arrays come with their axes in the order of Convolution; a row of the window is (size, stride,
// padding below, base dilation, window dilation, reversal).
using ConvolutionWindow = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool>>;
ConvolutionCall make_convolution(const pybind11::array& x, int x_dtype, const Chain* x_program,
                                 const pybind11::array& w, int w_dtype, const Chain* w_program,
                                 const ConvolutionWindow& window, int64_t feature_groups,
                                 int64_t batch_groups, pybind11::array output, int result_dtype,
                                 const std::string& accumulate, int accumulate_dtype, int64_t tile,
                                 const Numerics& numerics, const PackedColumns* packed,
                                 const Chain* epilogue, const std::vector<pybind11::array>& terms);

struct ReduceCall {
    Reduction reduction;
    std::vector<int64_t> shape;
    int kept;
    View input;
    const char* initial;
    char* output;
    int64_t cumulative_inner;  // 0: no cumulative function

    void run() const {
        if (cumulative_inner > 0)
            reduce_cumulative(reduction, shape, input, initial, cumulative_inner, false, output);
        else reduce(reduction, shape, kept, input, initial, output);
    }
};
ReduceCall make_reduce(const Reduction& reduction, const pybind11::array& input, int kept,
                       const pybind11::array& initial, pybind11::array output,
                       int64_t cumulative_inner);

struct WindowsCall {
    Windows windows;
    Reduction reduction;
    View input;
    const char* initial;
    char* output;

    void run() const { reduce_windows(windows, reduction, input, initial, output); }
};
WindowsCall make_reduce_windows(const Reduction& reduction, const WindowRows& rows,
                                const pybind11::array& input, const pybind11::array& initial,
                                pybind11::array output);

}  // namespace neuronsim
