// Functions of arrays as Python calls them: in the pinned floating-point environment (D1), and by what
// a profile remembers of the operation, which saves a small array the way through Python.

#include <pybind11/numpy.h>
#include <structmember.h>

#include <algorithm>
#include <cstring>

#include "bindings/bindings.h"
#include "bindings/eager.h"
#include "machine/fpenv.h"

namespace py = pybind11;

namespace neuronsim {

PyTypeObject* array_class = nullptr;

namespace {

PyObject* profile_variable = nullptr;

// `operation` is the name by which a profile remembers its calls, or an eager call that every profile
// has, `own`, or None. `otherwise` is called where they do not apply; `parameters` are its names.
struct DoorObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject* otherwise;
    PyObject* operation;
    const EagerCall* own;
    PyObject* parameters;
    Py_ssize_t placed_only;  // so many first ones have no keywords
    bool writes;             // the result into the first argument, if it has its type and shape
    PyObject* attributes;
    PyObject* references;
};

EagerPointer recall(PyObject* operation, PyObject* const* args, Py_ssize_t count) {
    static PyObject* const eager = PyUnicode_InternFromString("eager");
    static PyTypeObject* const type =
        reinterpret_cast<PyTypeObject*>(py::type::of<EagerCache>().release().ptr());
    PyObject* profile = nullptr;
    if (profile_variable == nullptr) return nullptr;
    if (PyContextVar_Get(profile_variable, nullptr, &profile) < 0) throw py::error_already_set();
    const auto owned = py::reinterpret_steal<py::object>(profile);
    if (!owned) return nullptr;
    const auto cache = py::reinterpret_steal<py::object>(PyObject_GetAttr(profile, eager));
    if (!cache) throw py::error_already_set();
    if (Py_TYPE(cache.ptr()) != type) return nullptr;
    auto* const instance = reinterpret_cast<py::detail::instance*>(cache.ptr());
    return instance->get_value_and_holder().value_ptr<EagerCache>()->find(operation, args, count);
}

// The target with the result's elements; nullptr where the ordinary way must write them.
PyObject* written(PyObject* target, PyObject* result) {
    const auto found = py::reinterpret_steal<py::object>(result);
    const auto *to = reinterpret_cast<ArrayObject*>(target),
               *from = reinterpret_cast<ArrayObject*>(result);
    if (Py_TYPE(target) != array_class || to->dtype != from->dtype) return nullptr;
    const auto *x = py::detail::array_proxy(to->data), *y = py::detail::array_proxy(from->data);
    constexpr int flags =
        py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ | py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
    if ((x->flags & flags) != flags || x->nd != y->nd ||
        !std::equal(x->dimensions, x->dimensions + x->nd, y->dimensions))
        return nullptr;
    std::memcpy(x->data, y->data, py::reinterpret_borrow<py::array>(from->data).nbytes());
    return Py_NewRef(target);
}

PyObject* run_remembered(const DoorObject& self, PyObject* const* args, Py_ssize_t count) {
    const EagerPointer known = self.own == nullptr ? recall(self.operation, args, count) : nullptr;
    const EagerCall* const call = self.own == nullptr ? known.get() : self.own;
    PyObject* const found = call == nullptr ? nullptr : call->run(args, count);
    return found != nullptr && self.writes ? written(args[0], found) : found;
}

// How many arguments lie as if all were given by place: keywords may name the next parameters in turn.
// 0 where they lie otherwise.
Py_ssize_t count_in_place(const DoorObject& self, Py_ssize_t count, PyObject* keywords) {
    const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
    if (named == 0) return count;
    if (self.parameters == nullptr || count < self.placed_only ||
        count + named > PyTuple_GET_SIZE(self.parameters))
        return 0;
    for (Py_ssize_t i = 0; i < named; ++i)
        if (PyTuple_GET_ITEM(keywords, i) != PyTuple_GET_ITEM(self.parameters, count + i)) return 0;
    return count + named;
}

PyObject* call_door(PyObject* object, PyObject* const* args, size_t flags, PyObject* keywords) {
    const auto* self = reinterpret_cast<DoorObject*>(object);
    PyObject* const function = PyUnicode_Check(self->operation) ? self->operation : self->otherwise;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (self->operation != Py_None) {
        const Py_ssize_t placed = count_in_place(*self, count, keywords);
        PyObject* const found =
            placed == 0 ? nullptr : translated([&] { return run_remembered(*self, args, placed); });
        if (found != nullptr || PyErr_Occurred()) return reported(found, function, args, count);
    }
    if (self->otherwise == nullptr) {  // the collector of garbage has cleared it
        PyErr_SetString(PyExc_RuntimeError, "the function is being freed");
        return nullptr;
    }
    const PinnedEnvironment pinned;  // the ordinary way may compute with NumPy (H1)
    PyObject* const found = PyObject_Vectorcall(self->otherwise, args, flags, keywords);
    return reported(found, function, args, count);
}

int initialise_door(PyObject* object, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"otherwise", "operation", "writes", nullptr};
    PyObject *otherwise, *operation = Py_None;
    int writes = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|Op", const_cast<char**>(names), &otherwise,
                                     &operation, &writes))
        return -1;
    auto* self = reinterpret_cast<DoorObject*>(object);
    const bool is_call = py::isinstance<EagerCall>(operation);
    if (operation != Py_None && !is_call && !PyUnicode_CheckExact(operation)) {
        PyErr_SetString(PyExc_TypeError, "an operation is a name or an EagerCall");
        return -1;
    }
    Py_INCREF(operation);
    if (PyUnicode_CheckExact(operation)) PyUnicode_InternInPlace(&operation);
    self->call = &call_door;
    self->writes = writes != 0;
    self->own = is_call ? py::cast<const EagerCall*>(py::handle(operation)) : nullptr;
    Py_XSETREF(self->operation, operation);
    Py_XSETREF(self->otherwise, Py_NewRef(otherwise));
    if (!PyFunction_Check(otherwise)) return 0;
    auto* const code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(otherwise));
    self->placed_only = code->co_posonlyargcount;
    Py_XSETREF(self->parameters, PyCode_GetVarnames(code));
    return 0;
}

int traverse_door(PyObject* object, visitproc visit, void* arg) {
    const auto* self = reinterpret_cast<DoorObject*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->otherwise);
    Py_VISIT(self->attributes);
    return 0;
}

int clear_door(PyObject* object) {
    auto* self = reinterpret_cast<DoorObject*>(object);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->attributes);
    return 0;
}

void deallocate_door(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    auto* self = reinterpret_cast<DoorObject*>(object);
    PyObject_GC_UnTrack(object);
    if (self->references != nullptr) PyObject_ClearWeakRefs(object);
    clear_door(object);
    Py_CLEAR(self->operation);
    Py_CLEAR(self->parameters);
    type->tp_free(object);
    Py_DECREF(type);
}

// As pickle finds functions: by their names.
PyObject* reduce_door(PyObject* object, PyObject*) {
    return PyObject_GetAttrString(object, "__qualname__");
}

PyObject* show_door(PyObject* object) {
    const py::object name = py::getattr(object, "__qualname__", py::none());
    return PyUnicode_FromFormat("<neuronsim function %R>", name.ptr());
}

PyObject* bind(PyObject* method, PyObject* object, PyObject*) {
    return object == nullptr ? Py_NewRef(method) : PyMethod_New(method, object);
}

PyMemberDef door_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(DoorObject, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(DoorObject, attributes), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(DoorObject, references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyMethodDef door_methods[] = {
    {"__reduce__", &reduce_door, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef door_properties[] = {
    {"__dict__", &PyObject_GenericGetDict, &PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot door_slots[] = {
    {Py_tp_init, reinterpret_cast<void*>(&initialise_door)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_repr, reinterpret_cast<void*>(&show_door)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_door)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_door)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate_door)},
    {Py_tp_members, door_members},
    {Py_tp_methods, door_methods},
    {Py_tp_getset, door_properties},
    {0, nullptr},
};
PyType_Slot method_slots[] = {
    {Py_tp_descr_get, reinterpret_cast<void*>(&bind)},
    {0, nullptr},
};

constexpr unsigned door_flags = plain_flags | Py_TPFLAGS_HAVE_VECTORCALL;

}  // namespace

void add_doors(py::module_& m) {
    PyTypeObject* const door = add_type(
        m, "Door",
        {"neuronsim._core.Door", sizeof(DoorObject), 0, door_flags | Py_TPFLAGS_HAVE_GC, door_slots});
    add_type(m, "DoorMethod",
             {"neuronsim._core.DoorMethod", sizeof(DoorObject), 0,
              door_flags | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots},
             door);
    m.def(
        "use_arrays",
        [](const py::type& array, const py::object& variable) {
            if (!PyContextVar_CheckExact(variable.ptr())) throw py::type_error("a context variable");
            array_class = reinterpret_cast<PyTypeObject*>(array.inc_ref().ptr());
            profile_variable = variable.inc_ref().ptr();
        },
        py::arg("array"), py::arg("profile"));
}

}  // namespace neuronsim
