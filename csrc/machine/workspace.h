// Scratch memory of a thread.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

#include "machine/sizes.h"

namespace neuronsim {

// Memory of one thread that is kept from call to call, since fresh memory is slow.
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
            const size_t room = (bytes + unit - 1) / unit * unit;
            data_ = std::aligned_alloc(unit, room);
            if (data_ == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
            if (unit == huge_page) madvise(data_, room, MADV_HUGEPAGE);
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
