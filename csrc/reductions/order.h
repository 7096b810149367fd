// The order of elements (E10): keys, words of a key and a place, and moving what these name.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "movement/view.h"

namespace neuronsim {

// Signed integers as wide as a type.
DType integer_of(DType t);
// Those in the order of n floats: -0 equals +0, and every NaN is the same and the largest.
void order_keys(DType dtype, const char* floats, int64_t n, char* keys);

// Calls body with an unsigned number as wide as the elements of a type.
template <class Body>
auto with_bits(DType t, const Body& body) {
    switch (storage_bytes(t)) {
        case 1:
            return body(uint8_t{});
        case 2:
            return body(uint16_t{});
        case 4:
            return body(uint32_t{});
        default:
            return body(uint64_t{});
    }
}

template <class T>
T read_as(const char* p) {
    T x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

// The unsigned number in whose order a type's elements are; floats in TOTALORDER.
template <class Bits>
Bits ordered(DType t, Bits bits) {
    constexpr int top = 8 * sizeof(Bits) - 1;
    constexpr Bits sign = static_cast<Bits>(Bits{1} << top);
    if (t == DType::boolean) return bits != 0;
    if (is_unsigned_integer(t)) return bits;
    const auto negative = static_cast<Bits>(is_float(t) ? Bits{0} - (bits >> top) : 0);
    return static_cast<Bits>(bits ^ static_cast<Bits>(negative | sign));
}

// A word has a key in its upper half, and the number of its element in the lower one: no two are equal,
// so that every way of sorting them is stable. Keys of 64 bits need wide ones.
using Wide = unsigned __int128;
inline constexpr int64_t most_places = int64_t{1} << 32;
template <class Word>
constexpr int half = 4 * sizeof(Word);  // its bits
template <class Word>
Word word_of(uint64_t key, int64_t number) {
    return static_cast<Word>(key) << half<Word> | static_cast<Word>(number);
}
template <class Word>
int64_t number_of(Word word) {
    return static_cast<int64_t>(word & ~(~Word{0} << half<Word>));
}

inline int64_t itself(int64_t i) { return i; }

// Words of n keys, the i-th at place(i) of those `stride` bytes apart, and of their numbers; those of
// large keys come first if `descends`.
template <class Word, class Place>
void make_words(DType t, const char* keys, int64_t stride, int64_t n, bool descends, const Place& place,
                Word* words) {
    with_bits(t, [&](auto zero) {
        using Bits = decltype(zero);
        const uint64_t flips = descends ? std::numeric_limits<Bits>::max() : 0;
        for (int64_t i = 0; i < n; ++i) {
            const uint64_t key = ordered(t, read_as<Bits>(keys + place(i) * stride)) ^ flips;
            words[i] = word_of<Word>(key, i);
        }
    });
}

// The byte offset of a line of the dimensions before the last one.
inline int64_t line_offset(const View& view, int64_t line) {
    return axes_offset(view.axes.part(0, view.axes.size() - 1), line);
}

template <class Place>
void move_line(DType t, const char* from, int64_t stride, const Place& place, int64_t n, char* to,
               int64_t to_stride) {
    with_bits(t, [&](auto zero) {
        using Bits = decltype(zero);
        for (int64_t i = 0; i < n; ++i) {
            const Bits x = read_as<Bits>(from + place(i) * stride);
            std::memcpy(to + i * to_stride, &x, sizeof x);
        }
    });
}

template <class Place>
void put_places(const Place& place, int64_t n, DType type, char* to, int64_t stride) {
    for (int64_t i = 0; i < n; ++i) {
        const int64_t x = place(i);  // little-endian: its low half first
        std::memcpy(to + i * stride, &x, storage_bytes(type));
    }
}

}  // namespace neuronsim
