// What Python objects of arrays hold, and how plain C functions report errors.
#pragma once

#include <pybind11/numpy.h>

#include <exception>
#include <new>

namespace neuronsim {

// What Bits and an Array hold: an ndarray of storage bits, and the type that they encode.
struct ArrayObject {
    PyObject_HEAD PyObject* data;
    PyObject* dtype;
};
extern PyTypeObject* array_base;   // of _core.ArrayBase
extern PyTypeObject* array_class;  // of neuronsim.Array, once it is made

// Whoever is given the storage of a matrix, or of a view of it, may write into it from then on: what
// products keep of its values is forgotten.
void forget_columns(PyObject* data);

// The storage of an array; null of anything else, and of one that records what is done to it. Owned,
// since another thread may give the array another one meanwhile.
inline pybind11::array storage_of(PyObject* x) {
    PyObject* const data =
        Py_TYPE(x) == array_class ? reinterpret_cast<ArrayObject*>(x)->data : nullptr;
    const bool is_known = data != nullptr && pybind11::detail::npy_api::get().PyArray_Check_(data);
    return pybind11::reinterpret_borrow<pybind11::array>(is_known ? data : nullptr);
}

// A new object of either kind, which refers to what it holds. Inline: small arrays feel the call.
inline PyObject* make_array(PyTypeObject* type, PyObject* data, PyObject* dtype) {
    auto* made = reinterpret_cast<ArrayObject*>(type->tp_alloc(type, 0));
    if (made == nullptr) return nullptr;
    made->data = Py_NewRef(data);
    made->dtype = Py_NewRef(dtype);
    return reinterpret_cast<PyObject*>(made);
}

constexpr unsigned plain_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
// Adds a type that lives for ever.
PyTypeObject* add_type(pybind11::module_& m, const char* name, PyType_Spec spec,
                       PyTypeObject* base = nullptr);

// What `function` gives; its exceptions become Python's.
template <class Function>
PyObject* translated(const Function& function) {
    try {
        return function();
    } catch (pybind11::error_already_set& error) {
        error.restore();
    } catch (const std::bad_alloc& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

// What a call of `function` gave; a MemoryError that is not ours becomes OutOfMemory, which names it.
PyObject* reported(PyObject* found, PyObject* function, PyObject* const* args, Py_ssize_t count);

}  // namespace neuronsim
