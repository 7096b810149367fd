// DLPack's capsules: arrays that other libraries read in place, and theirs that we read.
#include <pybind11/numpy.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "bindings/bindings.h"

namespace py = pybind11;

namespace neuronsim {

namespace {

// The layout of DLPack 1.0 (dmlc/dlpack, include/dlpack/dlpack.h).
constexpr int32_t on_cpu = 1;
constexpr uint64_t read_only = 1, is_copied = 2;

struct Device {
    int32_t type, id;
};

struct ElementType {
    uint8_t code, bits;
    uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    int32_t ndim;
    ElementType type;
    int64_t* shape;
    int64_t* strides;  // in elements; null: row-major
    uint64_t byte_offset;
};

struct Unversioned {
    static constexpr const char *name = "dltensor", *used = "used_dltensor";
    Tensor tensor;
    void* owner;
    void (*deleter)(Unversioned*);
};

struct Versioned {
    static constexpr const char *name = "dltensor_versioned", *used = "used_dltensor_versioned";
    uint32_t major, minor;
    void* owner;
    void (*deleter)(Versioned*);
    uint64_t flags;
    Tensor tensor;
};

template <class Managed>
struct Exported {
    Managed managed{};
    py::array array;
    std::vector<int64_t> shape, strides;
};

template <class Managed>
void release(Managed* managed) {
    if (!Py_IsInitialized()) return;  // a consumer that outlives the interpreter
    const py::gil_scoped_acquire held;
    delete static_cast<Exported<Managed>*>(managed->owner);
}

// Of a capsule that nobody took.
template <class Managed>
void drop(PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, Managed::name)) return;
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::name));
    if (managed->deleter != nullptr) managed->deleter(managed);
}

template <class Managed>
py::object exported(const py::array& array, int code, int bits) {
    auto kept = std::make_unique<Exported<Managed>>();
    kept->array = array;
    for (py::ssize_t d = 0; d < array.ndim(); ++d) {
        if (array.strides(d) % array.itemsize() != 0)
            throw py::buffer_error("DLPack has no strides of parts of elements: copy the array first");
        kept->shape.push_back(array.shape(d));
        kept->strides.push_back(array.strides(d) / array.itemsize());
    }
    Managed& managed = kept->managed;
    managed.owner = kept.get();
    managed.deleter = &release<Managed>;
    managed.tensor = {.data = const_cast<void*>(array.data()),
                      .device = {on_cpu, 0},
                      .ndim = static_cast<int32_t>(array.ndim()),
                      .type = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1},
                      .shape = kept->shape.data(),
                      .strides = kept->strides.data(),
                      .byte_offset = 0};
    PyObject* const capsule = PyCapsule_New(&managed, Managed::name, &drop<Managed>);
    if (capsule == nullptr) throw py::error_already_set();
    kept.release();
    return py::reinterpret_steal<py::object>(capsule);
}

py::object dlpack_capsule(const py::array& array, int code, int bits, bool versioned, bool copied) {
    if (!versioned) return exported<Unversioned>(array, code, bits);
    py::object capsule = exported<Versioned>(array, code, bits);
    auto* managed = static_cast<Versioned*>(PyCapsule_GetPointer(capsule.ptr(), Versioned::name));
    managed->major = 1;
    managed->minor = 0;
    managed->flags = (array.writeable() ? 0 : read_only) | (copied ? is_copied : 0);
    return capsule;
}

// The elements as NumPy's void type, their code and their bits.
template <class Managed>
py::tuple imported(const py::object& capsule) {
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), Managed::name));
    if (managed == nullptr) throw py::error_already_set();
    bool is_writable = false;  // nothing says that the memory of an unversioned one may be written
    if constexpr (std::is_same_v<Managed, Versioned>) {
        if (managed->major != 1)
            throw py::buffer_error("a DLPack capsule of version " + std::to_string(managed->major) +
                                   ": version 1 is known");
        is_writable = (managed->flags & read_only) == 0;
    }
    const Tensor& tensor = managed->tensor;
    if (tensor.device.type != on_cpu)
        throw py::buffer_error("a DLPack capsule of the device type " +
                               std::to_string(tensor.device.type) + ": only memory of the CPU is read");
    constexpr int32_t most_axes = 64;  // NumPy's
    if (tensor.type.lanes != 1 || tensor.type.bits == 0 || tensor.type.bits % 8 != 0 ||
        tensor.ndim < 0 || tensor.ndim > most_axes)
        throw py::buffer_error("a DLPack capsule of elements of " + std::to_string(tensor.type.bits) +
                               " bits in " + std::to_string(tensor.type.lanes) + " lanes and " +
                               std::to_string(tensor.ndim) + " axes: one lane of whole bytes is read");
    const py::ssize_t bytes = tensor.type.bits / 8;
    std::vector<py::ssize_t> shape(static_cast<size_t>(tensor.ndim)), strides(shape.size());
    py::ssize_t dense = bytes;
    for (size_t d = shape.size(); d-- > 0;) {
        shape[d] = tensor.shape[d];
        if (shape[d] < 0) throw py::buffer_error("a DLPack capsule with a negative length");
        strides[d] = tensor.strides == nullptr ? dense : tensor.strides[d] * bytes;
        dense *= shape[d];
    }
    // From here on the memory is ours, and the producer's capsule does not free it.
    const py::capsule owner(managed, [](void* taken) {
        auto* of_producer = static_cast<Managed*>(taken);
        if (of_producer->deleter != nullptr) of_producer->deleter(of_producer);
    });
    if (PyCapsule_SetName(capsule.ptr(), Managed::used) != 0) throw py::error_already_set();
    py::array array(py::dtype("V" + std::to_string(bytes)), shape, strides,
                    static_cast<char*>(tensor.data) + tensor.byte_offset, owner);
    if (!is_writable) array.attr("setflags")(py::arg("write") = false);
    return py::make_tuple(array, tensor.type.code, tensor.type.bits);
}

py::tuple dlpack_array(const py::object& capsule) {
    if (PyCapsule_IsValid(capsule.ptr(), Versioned::name)) return imported<Versioned>(capsule);
    if (PyCapsule_IsValid(capsule.ptr(), Unversioned::name)) return imported<Unversioned>(capsule);
    throw py::buffer_error("__dlpack__ gave no DLPack capsule, or one that is used already");
}

}  // namespace

void add_dlpack(py::module_& m) {
    m.def("dlpack_capsule", &dlpack_capsule, py::arg("array"), py::arg("code"), py::arg("bits"),
          py::arg("versioned"), py::arg("copied"));
    m.def("dlpack_array", &dlpack_array, py::arg("capsule"));
}

}  // namespace neuronsim
