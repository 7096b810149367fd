#include "bindings/memory.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace py = pybind11;

namespace neuronsim {
namespace {

constexpr size_t line = 64, page = 4096, huge_page = size_t{2} << 20;
// Below it NumPy's own memory is as quick.
constexpr size_t least_block = size_t{32} << 10;
constexpr size_t kept_bytes_limit = size_t{256} << 20, kept_count_limit = 128;

struct Block {
    void* data;
    size_t bytes;
};

// Blocks that no array uses, the longest unused first. The interpreter's lock guards it: arrays are
// made and freed under it. Never destroyed, since arrays may outlive static destructors.
std::vector<Block>& kept() {
    static auto* const blocks = new std::vector<Block>;
    return *blocks;
}
size_t kept_total = 0;

void release(Block block) {
    if (block.bytes > kept_bytes_limit) return std::free(block.data);
    kept().push_back(block);
    kept_total += block.bytes;
    while (kept_total > kept_bytes_limit || kept().size() > kept_count_limit) {
        kept_total -= kept().front().bytes;
        std::free(kept().front().data);
        kept().erase(kept().begin());
    }
}

void free_kept() {
    for (const Block& block : kept()) std::free(block.data);
    kept().clear();
    kept_total = 0;
}

Block take(size_t bytes) {
    for (size_t i = kept().size(); i-- > 0;) {
        const Block block = kept()[i];
        if (block.bytes != bytes) continue;
        kept().erase(kept().begin() + static_cast<ptrdiff_t>(i));
        kept_total -= bytes;
        return block;
    }
    const size_t alignment = bytes < huge_page ? line : huge_page;
    void* data = std::aligned_alloc(alignment, bytes);
    if (data == nullptr) {
        free_kept();
        data = std::aligned_alloc(alignment, bytes);
    }
    if (data == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (alignment == huge_page) madvise(data, bytes, MADV_HUGEPAGE);
#endif
    return {data, bytes};
}

// Keeps the block until the last array on it is gone; its context is the block's size.
py::capsule owner_of(Block block) {
    const auto free_it = [](PyObject* owner) {
        void* const data = PyCapsule_GetPointer(owner, nullptr);
        release({data, reinterpret_cast<uintptr_t>(PyCapsule_GetContext(owner))});
    };
    PyObject* const owner = PyCapsule_New(block.data, nullptr, free_it);
    if (owner == nullptr) {
        release(block);
        throw py::error_already_set();
    }
    PyCapsule_SetContext(owner, reinterpret_cast<void*>(block.bytes));
    return py::reinterpret_steal<py::capsule>(owner);
}

// NumPy's type of the storage of a DType.
PyObject* descriptor_of(DType dtype) {
    const auto of = []<class... T>() { return std::array{py::dtype::of<T>().release().ptr()...}; };
    static const auto descriptors =
        of.operator()<float, float, uint16_t, uint16_t, uint8_t, uint8_t, uint8_t, uint8_t, double,
                      int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, bool>();
    static_assert(std::tuple_size_v<decltype(descriptors)> == dtype_count);
    return descriptors[static_cast<size_t>(dtype)];
}

}  // namespace

py::array empty_array(DType dtype, int ndim, const Py_intptr_t* shape) {
    size_t bytes = static_cast<size_t>(storage_bytes(dtype));
    for (int d = 0; d < ndim; ++d)
        if (__builtin_mul_overflow(bytes, static_cast<size_t>(shape[d]), &bytes))
            throw std::bad_alloc();
    py::capsule owner;
    if (bytes >= least_block) {
        if (bytes > SIZE_MAX - huge_page) throw std::bad_alloc();
        const size_t unit = bytes < huge_page ? page : huge_page;
        owner = owner_of(take((bytes + unit - 1) / unit * unit));
    }
    PyObject* const descriptor = descriptor_of(dtype);
    Py_INCREF(descriptor);  // which the new array takes
    auto& api = py::detail::npy_api::get();
    void* const data = owner ? owner.get_pointer() : nullptr;
    const int flags = owner ? py::detail::npy_api::NPY_ARRAY_WRITEABLE_ : 0;
    PyObject* const array = api.PyArray_NewFromDescr_(api.PyArray_Type_, descriptor, ndim, shape,
                                                      nullptr, data, flags, nullptr);
    if (array == nullptr) throw py::error_already_set();
    if (owner) api.PyArray_SetBaseObject_(array, owner.release().ptr());
    return py::reinterpret_steal<py::array>(array);
}

}  // namespace neuronsim
