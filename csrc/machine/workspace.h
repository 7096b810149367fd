// Scratch memory of a thread.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <new>

namespace neuronsim {

// A product of sizes that stops at the largest number.
inline int64_t saturated_product(std::initializer_list<int64_t> factors) {
    int64_t n = 1;
    for (const int64_t f : factors)
        if (__builtin_mul_overflow(n, f, &n)) return INT64_MAX;
    return n;
}

// The product of sizes to allocate; throws std::bad_alloc where it does not fit in 63 bits.
inline size_t checked_product(std::initializer_list<int64_t> factors) {
    int64_t n = 1;
    for (const int64_t f : factors)
        if (__builtin_mul_overflow(n, f, &n)) throw std::bad_alloc();
    return static_cast<size_t>(n);
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
