// Calls of eager arrays: what an operation runs on arrays of its types, and the cache of those that a
// profile remembers, which C++ and Python share.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "bindings/array_types.h"
#include "formats/formats.h"

namespace neuronsim {

class EagerCall {
public:
    virtual ~EagerCall() = default;
    // What the operation gives of these arguments, a new reference; nullptr where the ordinary way must
    // see them.
    virtual PyObject* run(PyObject* const* args, Py_ssize_t count) const = 0;
};
using EagerPointer = std::shared_ptr<const EagerCall>;

// The calls that a profile remembers, by operation, the type of the last array among the arguments, and
// the type that the last argument is or nothing. Each call asks for the layouts that it takes.
class EagerCache {
public:
    // An operation is an interned string.
    EagerPointer find(PyObject* operation, PyObject* const* args, Py_ssize_t count) const;
    // In Python's form: the operation, the arrays' type, the type asked for or None.
    using Names = std::tuple<pybind11::str, pybind11::object, pybind11::object>;
    void keep(const Names& names, EagerPointer call);
    bool has(const Names& names) const { return calls_.contains(key_of(names)); }
    void clear() { calls_.clear(); }

private:
    using Key = std::array<PyObject*, 3>;
    static Key key_of(const Names& names);
    std::map<Key, EagerPointer> calls_;
};

// A type of arrays, a DType of Python's, and the core's number of it.
struct ArrayDType {
    explicit ArrayDType(const pybind11::object& dtype);

    pybind11::object dtype;
    DType code;

    // The storage of an array of exactly this type; null of anything else.
    pybind11::array bits(PyObject* x) const;
    PyObject* array(const pybind11::array& data) const;
    // A new array of these lengths, its elements undefined.
    pybind11::array empty(const std::vector<int64_t>& shape) const;
};

// Runs a kernel; one of many elements without the interpreter's lock.
template <class Run>
void run_eagerly(int64_t elements, const Run& run) {
    constexpr int64_t few = 1 << 14;  // which take less time than handing over the interpreter
    if (elements <= few) return run();
    const pybind11::gil_scoped_release released;
    run();
}

// A class of eager calls in Python. Its instances are made by their constructor's arguments.
template <class Class>
using EagerClass = pybind11::class_<Class, EagerCall, std::shared_ptr<Class>>;

}  // namespace neuronsim
