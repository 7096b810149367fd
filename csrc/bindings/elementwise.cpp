// Functions of arrays as Python calls them: what a profile remembers of a call saves a small array the
// way through Python.

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <structmember.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "bindings/array_types.h"
#include "bindings/bindings.h"
#include "bindings/memory.h"
#include "elementwise/chain.h"
#include "machine/fpenv.h"

namespace py = pybind11;

namespace neuronsim {

namespace {

using ArrayProxy = py::detail::PyArray_Proxy;

int64_t item_size(PyObject* array) { return py::reinterpret_borrow<py::array>(array).itemsize(); }

// What a Python object of the core's class holds, or nullptr of others.
template <class T>
const T* held_by(PyObject* object) {
    static PyTypeObject* const type =
        reinterpret_cast<PyTypeObject*>(py::type::of<T>().release().ptr());
    if (object == nullptr || Py_TYPE(object) != type) return nullptr;
    return reinterpret_cast<py::detail::instance*>(object)->get_value_and_holder().value_ptr<T>();
}

// A new array of a program's output, which `run(elements, data)` fills.
template <class Run>
PyObject* filled(const Chain& program, int rank, const Py_intptr_t* shape, const Run& run) {
    constexpr int64_t few_elements = 1 << 14;  // which take less time than handing over the interpreter
    py::array result = empty_array(program.output_dtype(0), rank, shape);
    char* const output = static_cast<char*>(result.mutable_data());
    const int64_t n = result.size();
    if (n <= few_elements) {
        run(n, output);
    } else {
        const py::gil_scoped_release released;
        run(n, output);
    }
    return result.release().ptr();
}

// The shortest way from Python: a program of one output on dense arrays of one shape. Gives None for
// other arrays, which Chain.run takes. A plain C function, since small arrays feel the binding.
PyObject* run_dense(PyObject*, PyObject* const* args, Py_ssize_t count) {
    constexpr Py_ssize_t most = 4;
    auto& api = py::detail::npy_api::get();
    const Chain* const found = count < 2 || count > most ? nullptr : held_by<Chain>(args[0]);
    if (found == nullptr) Py_RETURN_NONE;
    const Chain& program = *found;
    if (program.inputs().size() != static_cast<size_t>(count - 1) || program.output_count() != 1 ||
        program.draws())
        Py_RETURN_NONE;
    const char* inputs[most];
    const auto* first = py::detail::array_proxy(args[1]);
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
    return translated([&] {
        return filled(program, first->nd, first->dimensions, [&](int64_t n, char* output) {
            program.run_dense(n, inputs, &output, 0, nullptr);
        });
    });
}

// A function of arrays: `name` is that of its programs, `profile` the context variable of the profile
// whose they are, `otherwise` what is called where they do not apply.
struct ElementwiseObject {
    PyObject_HEAD vectorcallfunc call;
    PyObject* name;
    PyObject* profile;
    PyObject* otherwise;
    PyObject* attributes;
};

constexpr Py_ssize_t most_operands = 3;

// What `derived[name]` of a profile remembers for operands of one type: the class and the type of the
// result, the operation's chain, and those that round Python's numbers to an operand, or null.
struct ElementwiseKernel {
    py::object array, result;
    std::shared_ptr<Chain> chain;
    std::vector<py::object> types;
    std::shared_ptr<Chain> of_float, of_integer;
};

py::object owned_item(PyObject* dict, PyObject* key) {
    if (dict == nullptr || !PyDict_CheckExact(dict)) return {};
    PyObject* const found = PyDict_GetItemWithError(dict, key);
    if (found == nullptr && PyErr_Occurred()) throw py::error_already_set();
    // Owned, since another thread may replace it while this one computes.
    return py::reinterpret_borrow<py::object>(found);
}

// Owned, since another thread may forget it while this one computes.
py::object recall(const ElementwiseObject& self, PyObject* dtype) {
    static PyObject* const derived_name = PyUnicode_InternFromString("derived");
    PyObject* profile = nullptr;
    if (PyContextVar_Get(self.profile, nullptr, &profile) < 0) throw py::error_already_set();
    const auto owned = py::reinterpret_steal<py::object>(profile);
    if (!owned) return {};
    const auto derived = py::reinterpret_steal<py::object>(PyObject_GetAttr(profile, derived_name));
    if (!derived) throw py::error_already_set();
    const py::object programs = owned_item(derived.ptr(), self.name);
    return owned_item(programs.ptr(), dtype);
}

// A Python number as an element of the program's type, rounded once (C1, C8); false where the ordinary
// way must see it.
bool read_number(PyObject* x, const ElementwiseKernel& known, DType type, uint64_t* element) {
    const auto convert = [&](const std::shared_ptr<Chain>& program, const void* number) {
        if (program == nullptr) return false;
        const auto* const input = static_cast<const char*>(number);
        auto* const output = reinterpret_cast<char*>(element);
        program->run_dense(1, &input, &output, 0, nullptr);
        return true;
    };
    if (PyFloat_CheckExact(x)) {
        const double number = PyFloat_AS_DOUBLE(x);
        return convert(known.of_float, &number);
    }
    if (!PyLong_CheckExact(x) && !PyBool_Check(x)) return false;
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow != 0) return false;
    constexpr int64_t exact = int64_t{1} << 53;
    if (is_device_float(type) && (number > exact || number < -exact)) return false;
    const int spare = 64 - 8 * storage_bytes(type);
    if (is_signed_integer(type) && (number << spare) >> spare != number) return false;
    const auto word = static_cast<uint64_t>(number);
    if (is_unsigned_integer(type) && (number < 0 || (word << spare) >> spare != word)) return false;
    return convert(known.of_integer, &number);
}

// The operands of a program. Owned, since another thread may replace them while this one computes.
struct Operands {
    py::object arrays[most_operands];
    uint64_t numbers[most_operands];
    Py_ssize_t count = 0;
    const ArrayProxy* first = nullptr;
    bool is_dense = true;  // all arrays, and of one shape

    const ArrayProxy* array(Py_ssize_t i) const {
        return arrays[i] ? py::detail::array_proxy(arrays[i].ptr()) : nullptr;
    }
    void add(PyObject* data) {
        arrays[count++] = py::reinterpret_borrow<py::object>(data);
        const auto* a = py::detail::array_proxy(data);
        if (first == nullptr) first = a;
        is_dense = is_dense && (a->flags & py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_) != 0 &&
                   std::equal(first->dimensions, first->dimensions + first->nd, a->dimensions,
                              a->dimensions + a->nd);
    }
};

// Room for so many copies of a number: the few elements of a small array are read as they lie.
constexpr int64_t few_copies = 64;

// The common shape of the arrays; false where they do not broadcast.
bool broadcast_shape(const Operands& operands, std::vector<int64_t>& shape) {
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        const auto* a = operands.array(i);
        if (a == nullptr) continue;
        const auto rank = static_cast<size_t>(a->nd);
        if (rank > shape.size()) shape.insert(shape.begin(), rank - shape.size(), 1);
        int64_t* const last = shape.data() + (shape.size() - rank);
        for (size_t d = 0; d < rank; ++d) {
            if (last[d] == 1) last[d] = a->dimensions[d];
            if (a->dimensions[d] != 1 && a->dimensions[d] != last[d]) return false;
        }
    }
    int64_t n = 1;
    for (const int64_t length : shape)
        if (__builtin_mul_overflow(n, length, &n)) return false;
    return true;
}

std::vector<View> broadcast_views(const Chain& program, const Operands& operands,
                                  const std::vector<int64_t>& shape) {
    std::vector<View> views;
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        const DType type = program.inputs()[static_cast<size_t>(i)];
        const auto* a = operands.array(i);
        const char* const data = a ? a->data : reinterpret_cast<const char*>(&operands.numbers[i]);
        views.push_back({data, type, std::vector<int64_t>(shape.size(), 0)});
        for (int d = 0; a != nullptr && d < a->nd; ++d)
            if (a->dimensions[d] != 1)
                views.back().strides[shape.size() - static_cast<size_t>(a->nd - d)] = a->strides[d];
    }
    return views;
}

// The output of a program, or nullptr where the operands do not broadcast.
PyObject* run_broadcast(const Chain& program, const Operands& operands) {
    std::vector<int64_t> shape;
    if (!broadcast_shape(operands, shape)) return nullptr;
    const std::vector<View> views = broadcast_views(program, operands, shape);
    const std::vector<Py_intptr_t> dimensions(shape.begin(), shape.end());
    const char* inputs[most_operands];
    for (size_t i = 0; i < views.size(); ++i) inputs[i] = views[i].data;
    const Layout layout(shape, views);
    return filled(
        program, static_cast<int>(dimensions.size()), dimensions.data(),
        [&](int64_t, char* output) { program.run_laid_out(layout, inputs, &output, 0, nullptr); });
}

PyObject* run_operands(const Chain& program, const Operands& operands) {
    const auto* first = operands.first;
    int64_t n = 1;
    for (int d = 0; d < first->nd; ++d) n *= first->dimensions[d];
    const bool has_numbers =
        std::any_of(operands.arrays, operands.arrays + operands.count, [](auto& x) { return !x; });
    if (!operands.is_dense || (has_numbers && n > few_copies)) return run_broadcast(program, operands);
    uint64_t copies[most_operands][few_copies];
    const char* inputs[most_operands];
    for (Py_ssize_t i = 0; i < operands.count; ++i) {
        const auto* a = operands.array(i);
        inputs[i] = a ? a->data : reinterpret_cast<const char*>(copies[i]);
        if (a != nullptr) continue;
        const int size = storage_bytes(program.inputs()[static_cast<size_t>(i)]);
        for (int64_t k = 0; k < n; ++k)
            std::memcpy(reinterpret_cast<char*>(copies[i]) + k * size, &operands.numbers[i],
                        static_cast<size_t>(size));
    }
    return filled(program, first->nd, first->dimensions, [&](int64_t count, char* output) {
        program.run_dense(count, inputs, &output, 0, nullptr);
    });
}

// The result, or nullptr where what is remembered does not apply to the operands.
PyObject* run_remembered(const ElementwiseObject& self, PyObject* const* args, Py_ssize_t count) {
    if (self.name == Py_None || count < 1 || count > most_operands) return nullptr;
    const ArrayObject* like = nullptr;  // the last array: what is remembered is found by its type
    for (Py_ssize_t i = 0; i < count; ++i)
        if (PyObject_TypeCheck(args[i], array_base)) like = reinterpret_cast<ArrayObject*>(args[i]);
    // An object that was never initialised holds nothing: the ordinary way reports it.
    if (like == nullptr || like->dtype == nullptr) return nullptr;
    const py::object remembered = recall(self, like->dtype);
    const auto* const known = held_by<ElementwiseKernel>(remembered.ptr());
    if (known == nullptr || static_cast<Py_ssize_t>(known->types.size()) != count) return nullptr;
    const Chain& program = *known->chain;
    auto& api = py::detail::npy_api::get();
    Operands operands;
    for (Py_ssize_t i = 0; i < count; ++i) {
        const DType type = program.inputs()[static_cast<size_t>(i)];
        if (reinterpret_cast<PyObject*>(Py_TYPE(args[i])) == known->array.ptr()) {
            const auto* x = reinterpret_cast<ArrayObject*>(args[i]);
            if (x->dtype != known->types[static_cast<size_t>(i)].ptr() || x->data == nullptr ||
                !api.PyArray_Check_(x->data) || item_size(x->data) != storage_bytes(type))
                return nullptr;
            operands.add(x->data);
        } else if (!read_number(args[i], *known, type, &operands.numbers[operands.count++])) {
            return nullptr;
        }
    }
    const auto data = py::reinterpret_steal<py::object>(run_operands(program, operands));
    auto* const array = reinterpret_cast<PyTypeObject*>(known->array.ptr());
    return data ? make_array(array, data.ptr(), known->result.ptr()) : nullptr;
}

PyObject* call_elementwise(PyObject* object, PyObject* const* args, size_t flags, PyObject* keywords) {
    const auto* self = reinterpret_cast<ElementwiseObject*>(object);
    PyObject* const function = self->name == Py_None ? self->otherwise : self->name;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (keywords == nullptr || PyTuple_GET_SIZE(keywords) == 0) {
        PyObject* const found = translated([&] { return run_remembered(*self, args, count); });
        if (found != nullptr || PyErr_Occurred()) return reported(found, function, args, count);
    }
    const PinnedEnvironment pinned;  // the ordinary way may compute with NumPy (H1)
    PyObject* const found = PyObject_Vectorcall(self->otherwise, args, flags, keywords);
    return reported(found, function, args, count);
}

// function(*args, **keywords) in the pinned environment: `args` are the function, a tuple, a dict.
PyObject* call_pinned(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "call_pinned takes a function, a tuple and a dict");
        return nullptr;
    }
    const PinnedEnvironment pinned;
    PyObject* const found = PyObject_Call(args[0], args[1], args[2]);
    return reported(found, args[0], PySequence_Fast_ITEMS(args[1]), PyTuple_GET_SIZE(args[1]));
}

int initialise_elementwise(PyObject* object, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"name", "profile", "otherwise", nullptr};
    PyObject *name, *profile, *otherwise;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO!O", const_cast<char**>(names), &name,
                                     &PyContextVar_Type, &profile, &otherwise))
        return -1;
    auto* self = reinterpret_cast<ElementwiseObject*>(object);
    self->call = &call_elementwise;
    Py_XSETREF(self->name, Py_NewRef(name));
    Py_XSETREF(self->profile, Py_NewRef(profile));
    Py_XSETREF(self->otherwise, Py_NewRef(otherwise));
    return 0;
}

int traverse_elementwise(PyObject* object, visitproc visit, void* arg) {
    const auto* self = reinterpret_cast<ElementwiseObject*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->name);
    Py_VISIT(self->profile);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->attributes);
    return 0;
}

int clear_elementwise(PyObject* object) {
    auto* self = reinterpret_cast<ElementwiseObject*>(object);
    Py_CLEAR(self->name);
    Py_CLEAR(self->profile);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->attributes);
    return 0;
}

void deallocate_elementwise(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear_elementwise(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* bind(PyObject* method, PyObject* object, PyObject*) {
    return object == nullptr ? Py_NewRef(method) : PyMethod_New(method, object);
}

template <PyObject* (*Function)(PyObject*, PyObject* const*, Py_ssize_t)>
void add_function(py::module_& m, const char* name, const char* doc) {
    static PyMethodDef method = {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(Function)),
                                 METH_FASTCALL, doc};
    m.attr(name) = py::reinterpret_steal<py::object>(PyCFunction_New(&method, nullptr));
}

PyMemberDef elementwise_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ElementwiseObject, call), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(ElementwiseObject, attributes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyGetSetDef elementwise_properties[] = {
    {"__dict__", &PyObject_GenericGetDict, &PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot elementwise_slots[] = {
    {Py_tp_init, reinterpret_cast<void*>(&initialise_elementwise)},
    {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_elementwise)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear_elementwise)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate_elementwise)},
    {Py_tp_members, elementwise_members},
    {Py_tp_getset, elementwise_properties},
    {0, nullptr},
};
PyType_Slot method_slots[] = {
    {Py_tp_descr_get, reinterpret_cast<void*>(&bind)},
    {0, nullptr},
};

constexpr unsigned call_flags = plain_flags | Py_TPFLAGS_HAVE_VECTORCALL;

}  // namespace

void add_elementwise(py::module_& m) {
    const auto make = [](const py::type& array, const py::object& result,
                         const std::shared_ptr<Chain>& chain, const std::vector<py::object>& types,
                         const std::shared_ptr<Chain>& of_float,
                         const std::shared_ptr<Chain>& of_integer) {
        if (chain->inputs().size() != types.size() || chain->output_count() != 1)
            throw std::invalid_argument("an operation's chain takes its operands");
        return ElementwiseKernel{array, result, chain, types, of_float, of_integer};
    };
    py::class_<ElementwiseKernel>(m, "ElementwiseKernel")
        .def(py::init(make), py::arg("array"), py::arg("result"), py::arg("chain").none(false),
             py::arg("types"), py::arg("of_float"), py::arg("of_integer"));
    PyTypeObject* const elementwise =
        add_type(m, "Elementwise",
                 {"neuronsim._core.Elementwise", sizeof(ElementwiseObject), 0,
                  call_flags | Py_TPFLAGS_HAVE_GC, elementwise_slots});
    add_type(m, "ElementwiseMethod",
             {"neuronsim._core.ElementwiseMethod", sizeof(ElementwiseObject), 0,
              call_flags | Py_TPFLAGS_METHOD_DESCRIPTOR, method_slots},
             elementwise);
    add_function<&run_dense>(m, "run_dense", "the output of a program on dense arrays, or None");
    add_function<&call_pinned>(m, "call_pinned",
                               "a call in the pinned floating-point environment (D1)");
}

}  // namespace neuronsim
