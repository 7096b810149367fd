#include "bindings/eager.h"

#include <algorithm>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/memory.h"
#include "bindings/views.h"

namespace py = pybind11;

namespace neuronsim {

using py::detail::npy_api;

EagerPointer EagerCache::find(PyObject* operation, PyObject* const* args, Py_ssize_t count) const {
    const ArrayObject* like = nullptr;
    for (Py_ssize_t i = 0; i < count; ++i)
        if (PyObject_TypeCheck(args[i], array_base)) like = reinterpret_cast<ArrayObject*>(args[i]);
    // An object that was never initialised holds nothing: the ordinary way reports it.
    if (like == nullptr || like->dtype == nullptr) return nullptr;
    PyObject* const last = args[count - 1];
    const auto found =
        calls_.find({operation, like->dtype, Py_TYPE(last) == Py_TYPE(like->dtype) ? last : nullptr});
    return found == calls_.end() ? nullptr : found->second;
}

EagerCache::Key EagerCache::key_of(const Names& names) {
    const auto& [operation, dtype, target] = names;
    PyObject* name = operation.inc_ref().ptr();
    PyUnicode_InternInPlace(&name);
    Py_DECREF(name);
    return {name, dtype.ptr(), target.is_none() ? nullptr : target.ptr()};
}

void EagerCache::keep(const Names& names, EagerPointer call) {
    const Key key = key_of(names);
    for (PyObject* const part : key) Py_XINCREF(part);  // names and types live for ever
    calls_[key] = std::move(call);
}

ArrayDType::ArrayDType(const py::object& dtype)
    : dtype(dtype), code(dtype_code(dtype.attr("code").cast<int>())) {}

py::array ArrayDType::bits(PyObject* x) const {
    py::array found = storage_of(x);
    const bool fits = found && reinterpret_cast<ArrayObject*>(x)->dtype == dtype.ptr() &&
                      found.itemsize() == storage_bytes(code);
    return fits ? found : py::reinterpret_borrow<py::array>(nullptr);
}

PyObject* ArrayDType::array(const py::array& data) const {
    return make_array(array_class, data.ptr(), dtype.ptr());
}

py::array ArrayDType::empty(const std::vector<int64_t>& shape) const {
    const std::vector<Py_intptr_t> lengths(shape.begin(), shape.end());
    return empty_array(code, static_cast<int>(lengths.size()), lengths.data());
}

namespace {

// NumPy's function that moves the storage bits of arrays of one type, whatever the profile is: of an
// array or a sequence of them, integers and tuples of integers, which it takes as the function of
// arrays does.
class EagerMove : public EagerCall {
public:
    explicit EagerMove(py::object function) : function_(std::move(function)) {}
    PyObject* run(PyObject* const* args, Py_ssize_t count) const override {
        if (count > most) return nullptr;
        PyObject* dtype = nullptr;
        py::object taken[most];
        PyObject* given[most];
        for (Py_ssize_t i = 0; i < count; ++i) {
            taken[i] = moved(args[i], dtype);
            given[i] = taken[i].ptr();
            if (given[i] == nullptr) return nullptr;
        }
        if (dtype == nullptr) return nullptr;
        py::object data = py::reinterpret_steal<py::object>(
            PyObject_Vectorcall(function_.ptr(), given, static_cast<size_t>(count), nullptr));
        // The ordinary way says what is wrong.
        if (!data || !npy_api::get().PyArray_Check_(data.ptr())) return PyErr_Clear(), nullptr;
        return make_array(array_class, data.ptr(), dtype);
    }

private:
    static constexpr Py_ssize_t most = 3;

    // An argument as NumPy takes it; null of others.
    static py::object moved(PyObject* x, PyObject*& dtype) {
        if (PyLong_CheckExact(x)) return py::reinterpret_borrow<py::object>(x);
        if (!PyTuple_CheckExact(x) && !PyList_CheckExact(x)) return bits(x, dtype);
        const Py_ssize_t n = PySequence_Fast_GET_SIZE(x);
        PyObject** const items = PySequence_Fast_ITEMS(x);
        if (std::all_of(items, items + n, [](PyObject* p) { return PyLong_CheckExact(p); }))
            return py::reinterpret_borrow<py::object>(x);
        py::tuple parts(n);
        for (Py_ssize_t i = 0; i < n; ++i) {
            py::object part = bits(items[i], dtype);
            if (!part) return {};
            PyTuple_SET_ITEM(parts.ptr(), i, part.release().ptr());
        }
        return parts;
    }
    static py::object bits(PyObject* x, PyObject*& dtype) {
        py::array found = storage_of(x);
        if (!found) return {};
        PyObject* const own = reinterpret_cast<ArrayObject*>(x)->dtype;
        if (dtype == nullptr) dtype = own;
        if (dtype != own) return {};
        return found;
    }

    const py::object function_;
};

}  // namespace

void add_eager(py::module_& m) {
    py::class_<EagerCall, std::shared_ptr<EagerCall>>(m, "EagerCall");
    EagerClass<EagerMove>(m, "EagerMove").def(py::init<py::object>(), py::arg("function"));
    py::class_<EagerCache>(m, "EagerCache")
        .def(py::init<>())
        .def("keep", &EagerCache::keep, py::arg("names"), py::arg("call"))
        .def("__contains__", &EagerCache::has, py::arg("names"))
        .def("clear", &EagerCache::clear);
}

}  // namespace neuronsim
