// Moving elements between strided places, bit for bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace neuronsim {

// Every second element, side by side: 16 bytes at a time, which read one element beyond theirs.
template <class T>
inline void take_even(const char* source, int64_t n, char* target) {
    typedef T Some __attribute__((vector_size(16)));
    constexpr int lanes = 16 / sizeof(T);
    int64_t i = 0;
    for (; i + lanes < n; i += lanes) {
        Some low, high;
        __builtin_memcpy(&low, source + 2 * i * sizeof(T), sizeof low);
        __builtin_memcpy(&high, source + 2 * i * sizeof(T) + 16, sizeof high);
        if constexpr (lanes == 4) low = __builtin_shufflevector(low, high, 0, 2, 4, 6);
        else
            low = __builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26,
                                          28, 30);
        __builtin_memcpy(target + i * sizeof(T), &low, sizeof low);
    }
    for (; i < n; ++i) __builtin_memcpy(target + i * sizeof(T), source + 2 * i * sizeof(T), sizeof(T));
}

// From Size to 2 Size bytes by two moves that may overlap: a copy of varying length is a call.
template <size_t Size>
inline void copy_ends(const char* source, char* target, size_t bytes) {
    char first[Size], last[Size];
    __builtin_memcpy(first, source, Size);
    __builtin_memcpy(last, source + bytes - Size, Size);
    __builtin_memcpy(target, first, Size);
    __builtin_memcpy(target + bytes - Size, last, Size);
}

// What `target` holds in its first bytes, again and again until it is full.
inline void repeat_bytes(char* target, int64_t first, int64_t all) {
    for (int64_t done = first; done < all; done *= 2)
        __builtin_memcpy(target + done, target, std::min(done, all - done));
}

// One dimension of what is copied: how long it is, and its distances in bytes in source and target.
struct CopyAxis {
    int64_t size, source, target;
};

// Elements of `element` bytes. Source and target do not overlap.
struct Copy {
    std::vector<CopyAxis> axes;
    int64_t element;
};

// The same copy with dimensions merged and ordered so that the target is walked in order.
Copy simplified(const Copy& copy);

// The bytes of a simplified copy whose elements lie side by side on both sides; -1 of another.
int64_t row_bytes(const Copy& simplified_copy);

void run_copy(const Copy& simplified_copy, const char* source, char* target);

struct CopyCall {
    Copy simplified_copy;

    // `data`: the source and the target.
    void run(char* const* data) const { run_copy(simplified_copy, data[0], data[1]); }
};

}  // namespace neuronsim
