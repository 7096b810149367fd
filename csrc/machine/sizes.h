// Sizes: quotients that are rounded up, and products that would not fit in 63 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>

namespace neuronsim {

constexpr int64_t ceil_divide(int64_t n, int64_t size) { return (n + size - 1) / size; }

// A product of sizes that stops at the largest number.
inline int64_t saturated_product(std::initializer_list<int64_t> factors) {
    int64_t n = 1;
    for (const int64_t f : factors)
        if (__builtin_mul_overflow(n, f, &n)) return INT64_MAX;
    return n;
}

// The product of sizes to allocate; throws std::bad_alloc where there cannot be so much memory.
inline size_t checked_product(std::initializer_list<int64_t> factors) {
    const int64_t n = saturated_product(factors);
    if (n == INT64_MAX) throw std::bad_alloc();
    return static_cast<size_t>(n);
}

}  // namespace neuronsim
