// ndarrays of storage bits as the core's operands.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "elementwise/observe.h"
#include "movement/axes.h"
#include "movement/view.h"
#include "reductions/window.h"

namespace neuronsim {

// Throws std::invalid_argument with these words unless it holds.
inline void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// The value of an enumeration that stands where `name` does among the names of all.
template <class E, size_t N>
E named(const char* const (&names)[N], const std::string& name, const std::string& what) {
    for (size_t i = 0; i < N; ++i)
        if (name == names[i]) return static_cast<E>(i);
    throw std::invalid_argument("unknown " + what);
}

// Each throws std::invalid_argument where the arrays do not fit together.
DType dtype_code(int code);
void check_itemsize(const pybind11::array& array, DType dtype);
std::vector<int64_t> shape_of(const pybind11::array& array);
std::vector<int64_t> strides_of(const pybind11::array& array);
bool is_dense(const pybind11::array& array);
// The axes [begin, end).
Axes axes_of(const pybind11::array& array, pybind11::ssize_t begin, pybind11::ssize_t end);
View view_of(const pybind11::array& array, DType dtype);
// The first of its bytes, which a call may write.
char* bytes_of(const pybind11::array& array);
char* output_data(const pybind11::array& array, DType dtype);  // of a dense array
std::vector<View> views_of(const std::vector<pybind11::array>& arrays, const std::vector<DType>& types,
                           const std::vector<int64_t>& shape);
// (size, stride, padding below, base dilation, window dilation) of each dimension.
using WindowRows = std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>>;
Windows make_windows(const pybind11::array& input, const pybind11::array& output,
                     const WindowRows& rows);
// The rows of an int64 array, one for each of `count` records; null of None.
Observed* records_in(const pybind11::object& array, size_t count);
}  // namespace neuronsim
