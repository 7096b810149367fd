#include "reductions/sort.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "reductions/order.h"

namespace neuronsim {
namespace {

// By the digits of the upper half, from the last one on; in the end the words are in `words`.
void sort_by_digits(uint64_t* words, uint64_t* other, int64_t n) {
    constexpr int digits = 3, bits = 11, buckets = 1 << bits;
    using Counts = int64_t[buckets];
    auto* const counts = per_thread<Workspace>([] {}).get<Counts>(digits);
    std::memset(counts, 0, digits * sizeof(Counts));
    for (int64_t i = 0; i < n; ++i)
        for (int d = 0; d < digits; ++d) ++counts[d][words[i] >> (32 + d * bits) & (buckets - 1)];
    uint64_t *from = words, *to = other;
    for (int d = 0; d < digits; ++d) {
        const int shift = 32 + d * bits;
        if (counts[d][from[0] >> shift & (buckets - 1)] == n) continue;  // one digit
        int64_t begin = 0;
        for (int64_t& count : counts[d]) begin += std::exchange(count, begin);
        note_work(4 * n);
        for (int64_t i = 0; i < n; ++i) to[counts[d][from[i] >> shift & (buckets - 1)]++] = from[i];
        std::swap(from, to);
    }
    if (from != words) std::memcpy(words, from, n * sizeof *words);
}

template <class Word>
void sort_words(Word* words, Word* other, int64_t n) {
    constexpr int64_t few = 1 << 8;
    if constexpr (sizeof(Word) == 8)
        if (n > few) return sort_by_digits(words, other, n);
    note_work(8 * n);
    std::sort(words, words + n);
}

int64_t line_length(const SortCall& c) { return c.operands[0].axes.back().size; }

// The keys of all elements, line after line.
struct Keys {
    DType type;
    bool descends;
    const char* data;
};

// Orders the places of a line's elements by their keys; equal ones stay as they are, or, of the first
// keys that order them, come in their order.
template <class Word>
void order_places(const Keys& keys, int64_t line, int64_t n, bool is_first, uint32_t* places) {
    const int size = storage_bytes(keys.type);
    const char* const own = keys.data + line * n * size;
    auto* const words = per_thread<Workspace>([] {}).template get<Word>(2 * n);
    if (is_first) {
        make_words(keys.type, own, size, n, keys.descends, itself, words);
        sort_words(words, words + n, n);
        for (int64_t i = 0; i < n; ++i) places[i] = static_cast<uint32_t>(number_of(words[i]));
        return;
    }
    make_words(keys.type, own, size, n, keys.descends, [&](int64_t i) { return places[i]; }, words);
    sort_words(words, words + n, n);
    auto* const before = per_thread<Workspace>([] {}).template get<uint32_t>(n);
    std::copy_n(places, n, before);
    for (int64_t i = 0; i < n; ++i) places[i] = before[number_of(words[i])];
}

// The elements of a line of every operand that `place` names, to the outputs.
template <class Place>
void move_operands(const SortCall& c, int64_t line, const Place& place, char* const* data) {
    for (size_t i = 0; i < c.operands.size(); ++i) {
        const View &from = c.operands[i], &to = c.outputs[i];
        move_line(from.dtype, data[i] + line_offset(from, line), from.axes.back().stride, place,
                  line_length(c), data[c.operands.size() + i] + line_offset(to, line),
                  to.axes.back().stride);
    }
}

// By several keys: by the last one first, since equal ones stay in their order.
void sort_lines(const SortCall& c, const std::vector<Keys>& keys, char* const* data) {
    const int64_t n = line_length(c), lines = axes_size(c.operands[0].axes) / n;
    const auto body = [&](int64_t begin, int64_t end) {
        auto* const places = per_thread<Workspace>([] {}).get<uint32_t>(n);
        for (int64_t line = begin; line < end; ++line) {
            for (size_t i = keys.size(); i-- > 0;) {
                const bool is_first = i + 1 == keys.size();
                if (storage_bytes(keys[i].type) == 8)
                    order_places<Wide>(keys[i], line, n, is_first, places);
                else order_places<uint64_t>(keys[i], line, n, is_first, places);
            }
            note_work(n * static_cast<int64_t>(1 + c.operands.size()));
            const auto place = [&](int64_t at) { return static_cast<int64_t>(places[at]); };
            if (c.gives_places) {
                char* const to = data[1] + line_offset(c.outputs[0], line);
                put_places(place, n, DType::int64, to, c.outputs[0].axes.back().stride);
            } else {
                move_operands(c, line, place, data);
            }
        }
    };
    constexpr int64_t elements_per_grain = 1 << 12;
    parallel_for(lines, std::max<int64_t>(1, elements_per_grain / n), body);
}

// By merges, whatever the comparator.
void merge_lines(const SortCall& c, const std::vector<View>& operands, char* const* data) {
    const int64_t n = line_length(c), lines = axes_size(c.operands[0].axes) / n;
    std::vector<int64_t> order(static_cast<size_t>(lines * n));
    merge_sort(operands, *c.comparator, order.data());
    for (int64_t line = 0; line < lines; ++line) {
        note_work(n * static_cast<int64_t>(operands.size()));
        move_operands(c, line, [&](int64_t at) { return order[line * n + at]; }, data);
    }
}

// Of floats that are compared as numbers: whether one is NaN. The keys get the order's integers.
bool has_nan(DType t, char* keys, int64_t n) {
    order_keys(t, keys, n, keys);
    return with_bits(t, [&](auto zero) {
        using Bits = decltype(zero);
        constexpr Bits largest = std::numeric_limits<Bits>::max() >> 1;
        bool found = false;
        for (int64_t i = 0; i < n; ++i)
            found |= read_as<Bits>(keys + i * static_cast<int64_t>(sizeof(Bits))) == largest;
        return found;
    });
}

}  // namespace

void SortCall::run(char* const* data) const {
    const int64_t count = axes_size(operands[0].axes);
    if (count == 0) return;
    std::vector<View> views = operands;
    for (size_t i = 0; i < views.size(); ++i) views[i].data = data[i];
    const bool is_of_arrays = comparator == nullptr;
    const bool is_short = line_length(*this) < most_places;
    if (is_of_arrays && !is_short) throw std::invalid_argument("a line of 2^32 elements");
    if (!is_of_arrays && (keys.empty() || !is_short)) return merge_lines(*this, views, data);
    const auto type_of = [&](size_t i) {
        return is_of_arrays ? views[0].dtype : keys[i].key->output_dtype(0);
    };
    const size_t key_count = is_of_arrays ? 1 : keys.size();
    int64_t widest = 0;
    for (size_t i = 0; i < key_count; ++i)
        widest = std::max<int64_t>(widest, storage_bytes(type_of(i)));
    auto* place = per_thread<Workspace>([] {}).get<char>(
        checked_product({count, widest, static_cast<int64_t>(key_count)}));
    std::vector<Keys> found;
    for (size_t i = 0; i < key_count; ++i, place += count * widest) {
        DType type = type_of(i);
        if (is_of_arrays) {
            run_copy(simplified(dense_copy(views[0].axes, storage_bytes(views[0].dtype))), data[0],
                     place);
            if (is_float(type)) {
                order_keys(type, place, count, place);
                type = integer_of(type);
            }
        } else {
            keys[i].key->run_laid_out(Layout(count, views), data, &place);
            if (is_device_float(type) && !keys[i].total) {
                if (has_nan(type, place, count)) return merge_lines(*this, views, data);
                type = integer_of(type);
            }
        }
        found.push_back({type, !is_of_arrays && keys[i].descends, place});
    }
    sort_lines(*this, found, data);
}

}  // namespace neuronsim
