#include "bindings/array_types.h"

#include <structmember.h>

#include <algorithm>
#include <cstring>

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
            operands[i] = py::reinterpret_borrow<py::object>(args[i]);
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

// The storage of an array of few integers or bools, which are indices; null of others.
py::object index_array(PyObject* key) {
    static PyObject* const bits_name = PyUnicode_InternFromString("exponent_bits");
    constexpr int64_t few = 1 << 16;
    py::array data = storage_of(key);
    if (!data || data.size() > few) return {};
    const char kind = data.dtype().kind();  // an integer's storage may hold a narrow float
    if (kind == 'c' || kind == 'f') return {};
    const auto exponent_bits = py::reinterpret_steal<py::object>(
        PyObject_GetAttr(reinterpret_cast<ArrayObject*>(key)->dtype, bits_name));
    if (!exponent_bits || PyLong_AsLong(exponent_bits.ptr()) != 0) return PyErr_Clear(), py::object();
    return data;
}

// An element at integers that are as many as the axes; null where the ordinary way must look.
py::object element_at(const py::array& whole, PyObject* const* keys, Py_ssize_t count) {
    auto& api = py::detail::npy_api::get();
    if (count != whole.ndim()) return {};
    const auto* place = static_cast<const char*>(whole.data());
    for (Py_ssize_t d = 0; d < count; ++d) {
        int overflow = 0;
        if (!PyLong_CheckExact(keys[d])) return {};
        const long given = PyLong_AsLongAndOverflow(keys[d], &overflow), n = whole.shape(d);
        if (overflow != 0 || given < -n || given >= n) return {};
        place += (given < 0 ? given + n : given) * whole.strides(d);
    }
    auto made = py::reinterpret_steal<py::object>(api.PyArray_NewFromDescr_(
        api.PyArray_Type_, whole.dtype().release().ptr(), 0, nullptr, nullptr, nullptr, 0, nullptr));
    if (made) std::memcpy(py::detail::array_proxy(made.ptr())->data, place, whole.itemsize());
    return made;
}

// x[key]; `_at` is the method for what NumPy does not take as it is, and says what is wrong with it.
PyObject* subscript(PyObject* self, PyObject* key) {
    static PyObject* const at = PyUnicode_InternFromString("_at");
    PyObject* const operands[] = {self, key};
    const auto ordinary = [&] {
        return reported(PyObject_CallMethodOneArg(self, at, key), at, operands, 2);
    };
    const auto* array = reinterpret_cast<ArrayObject*>(self);
    const auto& api = py::detail::npy_api::get();
    if (array->data == nullptr || !api.PyArray_Check_(array->data)) return ordinary();
    // Owned, since an index may run Python's code.
    const auto whole = py::reinterpret_borrow<py::array>(array->data);
    const bool is_tuple = PyTuple_CheckExact(key);
    PyObject* const* const keys = is_tuple ? &PyTuple_GET_ITEM(key, 0) : &key;
    const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(key) : 1;
    py::object data = element_at(whole, keys, count);
    if (!data) {
        auto index = py::reinterpret_borrow<py::object>(key);
        if (!std::all_of(keys, keys + count, is_basic_index)) index = index_array(key);
        if (!index) return ordinary();
        data = py::reinterpret_steal<py::object>(PyObject_GetItem(whole.ptr(), index.ptr()));
    }
    if (data && !api.PyArray_Check_(data.ptr()))  // a scalar
        data = py::reinterpret_steal<py::object>(
            api.PyArray_FromAny_(data.ptr(), nullptr, 0, 0, 0, nullptr));
    if (!data) return PyErr_Clear(), ordinary();
    return make_array(Py_TYPE(self), data.ptr(), array->dtype);
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

PyObject* give_data(PyObject* self, void*) {
    PyObject* const data = reinterpret_cast<ArrayObject*>(self)->data;
    if (data == nullptr) {
        PyErr_SetString(PyExc_AttributeError, "_data");
        return nullptr;
    }
    forget_columns(data);
    return Py_NewRef(data);
}
int take_data(PyObject* self, PyObject* data, void*) {
    Py_XSETREF(reinterpret_cast<ArrayObject*>(self)->data, Py_XNewRef(data));
    return 0;
}

PyGetSetDef array_properties[] = {
    {"_data", &give_data, &take_data, "the storage bits", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMemberDef array_members[] = {
    {"_layout", T_OBJECT_EX, offsetof(ArrayObject, data), READONLY, "them, for their shape alone"},
    {"_dtype", T_OBJECT_EX, offsetof(ArrayObject, dtype), 0, "the type that they encode"},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot array_slots[] = {
    {Py_tp_init, reinterpret_cast<void*>(&initialise_array)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_tp_members, array_members},
    {Py_tp_getset, array_properties},
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
