#include "bindings/array_types.h"

#include <structmember.h>

#include <algorithm>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace neuronsim {

PyTypeObject* array_base = nullptr;

PyObject* reported(PyObject* found, PyObject* function, PyObject* const* args, Py_ssize_t count) {
    if (found != nullptr || PyErr_Occurred() == nullptr || !PyErr_ExceptionMatches(PyExc_MemoryError))
        return found;
    py::error_already_set error;
    return translated([&]() -> PyObject* {
        py::tuple operands(static_cast<size_t>(count));
        for (Py_ssize_t i = 0; i < count; ++i)
            operands[static_cast<size_t>(i)] = py::reinterpret_borrow<py::object>(args[i]);
        const py::object ours =
            py::module_::import("neuronsim.errors")
                .attr("out_of_memory")(py::handle(function), operands, error.value());
        if (ours.is(error.value())) error.restore();
        else PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(ours.ptr())), ours.ptr());
        return nullptr;
    });
}

PyTypeObject* add_type(py::module_& m, const char* name, PyType_Spec spec, PyTypeObject* base) {
    PyObject* const type = PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(base));
    if (type == nullptr) throw py::error_already_set();
    m.attr(name) = py::reinterpret_borrow<py::object>(type);
    return reinterpret_cast<PyTypeObject*>(type);
}

namespace {

PyTypeObject* bits_base = nullptr;

void deallocate(PyObject* self) {
    auto* array = reinterpret_cast<ArrayObject*>(self);
    PyTypeObject* const type = Py_TYPE(self);
    Py_XDECREF(array->data);
    Py_XDECREF(array->dtype);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* new_bits(PyTypeObject* type, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"data", "dtype", nullptr};
    PyObject *data, *dtype;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO", const_cast<char**>(names), &data, &dtype))
        return nullptr;
    return make_array(type, data, dtype);
}

int initialise_array(PyObject* self, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"bits", nullptr};
    PyObject* given;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!", const_cast<char**>(names), bits_base,
                                     &given))
        return -1;
    auto* array = reinterpret_cast<ArrayObject*>(self);
    const auto* bits = reinterpret_cast<ArrayObject*>(given);
    Py_XSETREF(array->data, Py_NewRef(bits->data));
    Py_XSETREF(array->dtype, Py_NewRef(bits->dtype));
    return 0;
}

// Integers, slices, ... and newaxis, which only move through the array.
bool is_basic_index(PyObject* key) {
    return PyLong_CheckExact(key) || PySlice_Check(key) || key == Py_Ellipsis || key == Py_None;
}

// x[key]; `_at` is the method for what NumPy does not take as it is, and says what is wrong with it.
PyObject* subscript(PyObject* self, PyObject* key) {
    static PyObject* const at = PyUnicode_InternFromString("_at");
    PyObject* const operands[] = {self, key};
    const auto ordinary = [&] {
        return reported(PyObject_CallMethodOneArg(self, at, key), at, operands, 2);
    };
    const auto* array = reinterpret_cast<ArrayObject*>(self);
    bool is_basic = is_basic_index(key);
    if (PyTuple_CheckExact(key)) {
        PyObject** const items = &PyTuple_GET_ITEM(key, 0);
        is_basic = std::all_of(items, items + PyTuple_GET_SIZE(key), is_basic_index);
    }
    if (!is_basic || array->data == nullptr) return ordinary();
    // Owned, since an index may run Python's code.
    const auto whole = py::reinterpret_borrow<py::object>(array->data);
    PyObject* data = PyObject_GetItem(whole.ptr(), key);
    const auto& api = py::detail::npy_api::get();
    if (data != nullptr && !api.PyArray_Check_(data))  // a scalar
        Py_SETREF(data, api.PyArray_FromAny_(data, nullptr, 0, 0, 0, nullptr));
    if (data == nullptr) {
        PyErr_Clear();
        return ordinary();
    }
    PyObject* const found = make_array(Py_TYPE(self), data, array->dtype);
    Py_DECREF(data);
    return found;
}

// The buffer protocol, which Python has before 3.12 only in C.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    PyObject* const memory = PyObject_CallMethod(self, "__buffer__", "i", flags);
    if (memory == nullptr) {
        view->obj = nullptr;
        return -1;
    }
    const int failed = PyObject_GetBuffer(memory, view, flags);
    Py_DECREF(memory);
    return failed;
}

PyMemberDef bits_members[] = {
    {"data", T_OBJECT_EX, offsetof(ArrayObject, data), READONLY, "the storage bits"},
    {"dtype", T_OBJECT_EX, offsetof(ArrayObject, dtype), READONLY, "the type that they encode"},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot bits_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(&new_bits)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_tp_members, bits_members},
    {0, nullptr},
};

PyMemberDef array_members[] = {
    {"_data", T_OBJECT_EX, offsetof(ArrayObject, data), 0, "the storage bits"},
    {"_dtype", T_OBJECT_EX, offsetof(ArrayObject, dtype), 0, "the type that they encode"},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot array_slots[] = {
    {Py_tp_init, reinterpret_cast<void*>(&initialise_array)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_tp_members, array_members},
    {Py_mp_subscript, reinterpret_cast<void*>(&subscript)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
    {0, nullptr},
};

}  // namespace

void add_array_types(py::module_& m) {
    bits_base = add_type(m, "BitsBase",
                         {"neuronsim._core.BitsBase", sizeof(ArrayObject), 0, plain_flags, bits_slots});
    array_base =
        add_type(m, "ArrayBase",
                 {"neuronsim._core.ArrayBase", sizeof(ArrayObject), 0, plain_flags, array_slots});
}

}  // namespace neuronsim
