// The axes of an array that a product or a convolution walks: lengths and distances in any order.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include "view.h"

namespace neuronsim {

// One dimension of an array: how long it is and how far apart its elements lie, in bytes.
struct Axis {
    int64_t size, stride;
};
using Axes = std::vector<Axis>;  // row-major: the last one is walked fastest

int64_t axes_size(const Axes& axes);
int64_t axes_offset(const Axes& axes, int64_t index);

// Axes that are walked as one are one; those of length 1 are none. There is always one.
Axes collapsed(const Axes& axes, int64_t element);

// How many elements from `index` on, of those wanted, lie a constant distance apart.
inline int64_t run_length(const Axes& axes, int64_t index, int64_t wanted) {
    const int64_t inner = axes.back().size;
    return std::min(wanted, inner - index % inner);
}

// Memory of one thread that is kept from product to product, since fresh memory is slow.
class Workspace {
public:
    Workspace() = default;
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    ~Workspace() { std::free(data_); }

    // Place for `count` elements, undefined; throws std::bad_alloc.
    template <class T>
    T* get(int64_t count) {
        const size_t bytes = checked_product({count, static_cast<int64_t>(sizeof(T))});
        if (bytes > bytes_) {
            std::free(data_);
            bytes_ = 0;
            constexpr size_t page = 4096, huge_page = size_t{2} << 20;
            const size_t unit = bytes < huge_page / 2 ? page : huge_page;
            data_ = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
            if (data_ == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
            if (unit == huge_page) madvise(data_, (bytes + unit - 1) / unit * unit, MADV_HUGEPAGE);
#endif
            bytes_ = bytes;
        }
        return static_cast<T*>(data_);
    }

private:
    void* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace neuronsim
