#include "bindings/views.h"

namespace py = pybind11;

namespace neuronsim {

DType dtype_code(int code) {
    require(code >= 0 && code < dtype_count, "unknown dtype code");
    return static_cast<DType>(code);
}

void check_itemsize(const py::array& array, DType dtype) {
    if (array.itemsize() != storage_bytes(dtype))
        throw std::invalid_argument("the array's items are not " + std::string(dtype_names[dtype]));
}

View view_of(const py::array& array, DType dtype) {
    check_itemsize(array, dtype);
    return {static_cast<const char*>(array.data()), dtype, axes_of(array, 0, array.ndim())};
}

std::vector<int64_t> shape_of(const py::array& array) {
    return std::vector<int64_t>(array.shape(), array.shape() + array.ndim());
}

std::vector<int64_t> strides_of(const py::array& array) {
    return std::vector<int64_t>(array.strides(), array.strides() + array.ndim());
}

bool is_dense(const py::array& array) { return (array.flags() & py::array::c_style) != 0; }

char* bytes_of(const py::array& array) { return static_cast<char*>(const_cast<void*>(array.data())); }

char* output_data(const py::array& array, DType dtype) {
    check_itemsize(array, dtype);
    require(is_dense(array), "output not dense");
    require(array.writeable(), "output not writeable");
    return bytes_of(array);
}

std::vector<View> views_of(const std::vector<py::array>& arrays, const std::vector<DType>& types,
                           const std::vector<int64_t>& shape) {
    require(arrays.size() == types.size(), "each array has a type");
    std::vector<View> views;
    for (size_t i = 0; i < arrays.size(); ++i) {
        require(shape_of(arrays[i]) == shape, "the shapes differ");
        views.push_back(view_of(arrays[i], types[i]));
    }
    return views;
}

Axes axes_of(const py::array& array, py::ssize_t begin, py::ssize_t end) {
    Axes axes;
    for (py::ssize_t d = begin; d < end; ++d) axes.push_back({array.shape(d), array.strides(d)});
    return axes;
}

Windows make_windows(const py::array& input, const py::array& output, const WindowRows& rows) {
    Windows windows{shape_of(input), shape_of(output), {}};
    for (const auto& [size, stride, padding_low, base_dilation, window_dilation] : rows)
        windows.dimensions.push_back({size, stride, padding_low, base_dilation, window_dilation});
    return windows;
}

Observed* records_in(const py::object& object, size_t count) {
    if (object.is_none()) return nullptr;
    py::array array = object.cast<py::array>();
    const std::vector<int64_t> shape{static_cast<int64_t>(count), observed_count};
    require(array.dtype().kind() == 'i' && shape_of(array) == shape,
            "a record is a row of int64 counts");
    return reinterpret_cast<Observed*>(output_data(array, DType::int64));
}
}  // namespace neuronsim
