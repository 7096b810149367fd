#include "eager.h"

#include <structmember.h>

#include "memory.h"
#include "program.h"

namespace py = pybind11;

namespace neuronsim {

namespace {

int64_t item_size(PyObject* array) { return py::reinterpret_borrow<py::array>(array).itemsize(); }

// The program in its Python object, or nullptr.
const TileProgram* program_of(PyObject* object) {
    static PyTypeObject* const type =
        reinterpret_cast<PyTypeObject*>(py::type::of<TileProgram>().release().ptr());
    if (Py_TYPE(object) != type) return nullptr;
    return reinterpret_cast<py::detail::instance*>(object)
        ->get_value_and_holder()
        .value_ptr<TileProgram>();
}

// The shortest way from Python: a program of one output on dense arrays of one shape. Gives None for
// other arrays, which TileProgram.run takes. A plain C function, since small arrays feel the binding.
PyObject* run_dense(PyObject*, PyObject* const* args, Py_ssize_t count) {
    constexpr Py_ssize_t most = 4;
    constexpr int64_t few_elements = 1 << 14;  // which take less time than handing over the interpreter
    auto& api = py::detail::npy_api::get();
    const TileProgram* const found = count < 2 || count > most ? nullptr : program_of(args[0]);
    if (found == nullptr) Py_RETURN_NONE;
    const TileProgram& program = *found;
    if (program.inputs().size() != static_cast<size_t>(count - 1) || program.output_count() != 1 ||
        program.draws())
        Py_RETURN_NONE;
    const char* inputs[most];
    const auto* first = py::detail::array_proxy(args[1]);
    int64_t n = 1;
    for (Py_ssize_t i = 1; i < count; ++i) {
        if (!api.PyArray_Check_(args[i])) Py_RETURN_NONE;
        const auto* a = py::detail::array_proxy(args[i]);
        if ((a->flags & py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_) == 0 || a->nd != first->nd)
            Py_RETURN_NONE;
        for (int d = 0; d < a->nd; ++d)
            if (a->dimensions[d] != first->dimensions[d]) Py_RETURN_NONE;
        if (item_size(args[i]) != storage_bytes(program.inputs()[static_cast<size_t>(i - 1)]))
            Py_RETURN_NONE;
        inputs[i - 1] = a->data;
    }
    for (int d = 0; d < first->nd; ++d) n *= first->dimensions[d];
    try {
        py::array result = empty_array(program.output_dtype(0), first->nd, first->dimensions);
        char* const output = static_cast<char*>(result.mutable_data());
        if (n <= few_elements) {
            program.run_dense(n, inputs, &output, 0, nullptr);
        } else {
            const py::gil_scoped_release released;
            program.run_dense(n, inputs, &output, 0, nullptr);
        }
        return result.release().ptr();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const std::bad_alloc& error) {
        PyErr_SetString(PyExc_MemoryError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

// What an Array holds: an ndarray of storage bits, and the type that they encode.
struct ArrayObject {
    PyObject_HEAD PyObject* data;
    PyObject* dtype;
};

PyTypeObject* array_base = nullptr;

void deallocate(PyObject* self) {
    auto* array = reinterpret_cast<ArrayObject*>(self);
    PyTypeObject* const type = Py_TYPE(self);
    Py_XDECREF(array->data);
    Py_XDECREF(array->dtype);
    type->tp_free(self);
    Py_DECREF(type);
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

// run_binary(programs, x, y): programs[x's dtype] is a program and its result's dtype; gives an array
// of x's class, or None if y is of another class, type or shape, or there is no program yet.
PyObject* run_binary(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !PyDict_CheckExact(args[0]) || Py_TYPE(args[1]) != Py_TYPE(args[2]) ||
        !PyObject_TypeCheck(args[1], array_base))
        Py_RETURN_NONE;
    const auto* x = reinterpret_cast<ArrayObject*>(args[1]);
    const auto* y = reinterpret_cast<ArrayObject*>(args[2]);
    // An object that was never initialised has neither: the ordinary way reports it.
    if (x->dtype != y->dtype || x->dtype == nullptr || x->data == nullptr || y->data == nullptr)
        Py_RETURN_NONE;
    PyObject* const found = PyDict_GetItemWithError(args[0], x->dtype);
    if (found == nullptr && PyErr_Occurred()) return nullptr;
    if (found == nullptr || !PyTuple_CheckExact(found) || PyTuple_GET_SIZE(found) != 2) Py_RETURN_NONE;
    // Owned here, since another thread may replace them while this one computes.
    const auto entry = py::reinterpret_borrow<py::object>(found);
    const auto left = py::reinterpret_borrow<py::object>(x->data);
    const auto right = py::reinterpret_borrow<py::object>(y->data);
    PyObject* const operands[] = {PyTuple_GET_ITEM(found, 0), left.ptr(), right.ptr()};
    PyObject* const data = run_dense(nullptr, operands, 3);
    if (data == nullptr || data == Py_None) return data;
    PyTypeObject* const type = Py_TYPE(args[1]);
    auto* result = reinterpret_cast<ArrayObject*>(type->tp_alloc(type, 0));
    if (result == nullptr) {
        Py_DECREF(data);
        return nullptr;
    }
    result->data = data;
    result->dtype = PyTuple_GET_ITEM(found, 1);
    Py_INCREF(result->dtype);
    return reinterpret_cast<PyObject*>(result);
}

template <PyObject* (*Function)(PyObject*, PyObject* const*, Py_ssize_t)>
void add_function(py::module_& m, const char* name, const char* doc) {
    static PyMethodDef method = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(Function)),
                                 METH_FASTCALL, doc};
    m.attr(name) = py::reinterpret_steal<py::object>(PyCFunction_New(&method, nullptr));
}

PyMemberDef members[] = {
    {"_data", T_OBJECT_EX, offsetof(ArrayObject, data), 0, "the storage bits"},
    {"_dtype", T_OBJECT_EX, offsetof(ArrayObject, dtype), 0, "the type that they encode"},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_tp_members, members},
    {Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
    {0, nullptr},
};
PyType_Spec spec = {"neuronsim._core.ArrayBase", sizeof(ArrayObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

void add_eager(py::module_& m) {
    array_base = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));  // which lives for ever
    if (array_base == nullptr) throw py::error_already_set();
    m.attr("ArrayBase") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(array_base));
    add_function<&run_dense>(m, "run_dense", "the output of a program on dense arrays, or None");
    add_function<&run_binary>(m, "run_binary", "an operation on two arrays of one type, or None");
}

}  // namespace neuronsim
