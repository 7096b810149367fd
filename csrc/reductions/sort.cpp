#include "reductions/sort.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "movement/copy.h"

namespace neuronsim {
namespace {

using Wide = unsigned __int128;
constexpr int64_t most_places = int64_t{1} << 32;

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
    if (is_unsigned_integer(t) || t == DType::boolean) return bits;
    const auto negative = static_cast<Bits>(is_float(t) ? Bits{0} - (bits >> top) : 0);
    return static_cast<Bits>(bits ^ static_cast<Bits>(negative | sign));
}

// A word has a key in its upper half, and the number of its element in the lower one.
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

template <class Word>
void keys_of(DType dtype, const char* floats, int64_t n, char* keys) {
    const bool is_device = is_device_float(dtype);
    const Format& f = formats[is_device ? static_cast<int>(dtype) : 0];
    constexpr int sign = 8 * sizeof(Word) - 1;
    constexpr Word largest = static_cast<Word>(~(uint64_t{1} << sign));
    const auto infinity = static_cast<Word>(is_device ? ((uint64_t{1} << f.exponent_bits) - 1)
                                                            << (f.mantissa_bits + storage_shift(f))
                                                      : uint64_t{0x7FF} << 52);
    const auto nan = static_cast<Word>(f.nan_bits);
    const bool has_inf = !is_device || f.has_inf;
    for (int64_t i = 0; i < n; ++i) {
        Word word;
        std::memcpy(&word, floats + i * static_cast<int64_t>(sizeof word), sizeof word);
        const auto magnitude = static_cast<Word>(word & largest);
        const bool is_nan = has_inf ? magnitude > infinity : magnitude == nan;
        Word key = word < 0 ? static_cast<Word>(word ^ largest) : word;
        if (magnitude == 0) key = 0;
        if (is_nan) key = largest;
        std::memcpy(keys + i * static_cast<int64_t>(sizeof key), &key, sizeof key);
    }
}

}  // namespace

DType integer_of(DType t) {
    constexpr DType integers[] = {DType::int8, DType::int16, DType::int32, DType::int64};
    return integers[__builtin_ctz(static_cast<unsigned>(storage_bytes(t)))];
}

void order_keys(DType dtype, const char* floats, int64_t n, char* keys) {
    constexpr int64_t together = 1 << 16;
    const int64_t size = storage_bytes(dtype);
    with_bits(dtype, [&](auto zero) {
        using Word = std::make_signed_t<decltype(zero)>;
        parallel_for(n, together, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += together) {
                const int64_t count = std::min(together, end - at);
                note_work(count);
                keys_of<Word>(dtype, floats + at * size, count, keys + at * size);
            }
        });
    });
}

namespace {

int64_t itself(int64_t i) { return i; }

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

// The byte offset of a line of the dimensions before the last one.
int64_t line_offset(const std::vector<int64_t>& shape, const View& view, int64_t line) {
    return offset_of(shape, view.strides, line, shape.size() - 1);
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

// By several keys: by the last one first, since equal ones stay in their order.
void sort_lines(const SortCall& c, const std::vector<Keys>& keys, char* const* data) {
    const int64_t n = c.shape.back(), lines = element_count(c.shape) / n;
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
                char* const to = data[1] + line_offset(c.shape, c.outputs[0], line);
                put_places(place, n, DType::int64, to, c.outputs[0].strides.back());
                continue;
            }
            for (size_t i = 0; i < c.operands.size(); ++i) {
                const View &from = c.operands[i], &to = c.outputs[i];
                move_line(from.dtype, data[i] + line_offset(c.shape, from, line), from.strides.back(),
                          place, n, data[c.operands.size() + i] + line_offset(c.shape, to, line),
                          to.strides.back());
            }
        }
    };
    constexpr int64_t elements_per_grain = 1 << 12;
    parallel_for(lines, std::max<int64_t>(1, elements_per_grain / n), body);
}

// By merges, whatever the comparator.
void merge_lines(const SortCall& c, const std::vector<View>& operands, char* const* data) {
    const int64_t n = c.shape.back(), lines = element_count(c.shape) / n;
    std::vector<int64_t> order(static_cast<size_t>(lines * n));
    merge_sort(c.shape, operands, *c.comparator, order.data());
    for (int64_t line = 0; line < lines; ++line) {
        note_work(n * static_cast<int64_t>(operands.size()));
        for (size_t i = 0; i < operands.size(); ++i)
            move_line(
                operands[i].dtype, operands[i].data + line_offset(c.shape, operands[i], line),
                operands[i].strides.back(), [&](int64_t at) { return order[line * n + at]; }, n,
                data[operands.size() + i] + line_offset(c.shape, c.outputs[i], line),
                c.outputs[i].strides.back());
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

// What a line's keys have shown so far.
template <class Key>
struct Extreme {
    Key best{};
    int64_t place = -1;

    // `nan` is the key of a NaN, if there may be any and the smallest is looked for.
    void add(const Key* keys, int64_t n, int64_t first, bool largest, const Key* nan) {
        Key least = keys[0], most = keys[0];
        for (int64_t i = 1; i < n; ++i) {
            least = keys[i] < least ? keys[i] : least;
            most = keys[i] > most ? keys[i] : most;
        }
        if (place >= 0 && nan != nullptr && best == *nan) return;
        const bool has_nan = nan != nullptr && most == *nan;
        const Key found = largest || has_nan ? most : least;
        if (place >= 0 && !has_nan && (largest ? found <= best : found >= best)) return;
        best = found;
        place = first + (std::find(keys, keys + n, found) - keys);
    }
};

// Of lines side by side.
template <class Key>
void find_arguments(const ArgumentCall& c, const char* from, char* places) {
    constexpr int64_t block = 2048, size = sizeof(Key);
    constexpr Key nan = std::numeric_limits<Key>::max();
    const bool orders = is_float(c.input.dtype);
    const auto place_size = static_cast<size_t>(storage_bytes(c.places));
    const int64_t all = element_count(c.shape);
    const int64_t length = element_count({c.shape.begin() + c.kept, c.shape.end()});
    Key keys[block];
    Extreme<Key> seen;
    for (int64_t at = 0, n; at < all; at += n) {
        // Several lines, or a part of one.
        n = length <= block ? block / length * length : std::min(block, length - at % length);
        n = std::min(n, all - at);
        note_work(n);
        auto* const bytes = reinterpret_cast<char*>(keys);
        std::memcpy(bytes, from + at * size, n * size);
        if (orders) order_keys(c.input.dtype, bytes, n, bytes);
        for (int64_t i = 0; i < n; i += length) {
            seen.add(keys + i, std::min(n, length), (at + i) % length, c.largest,
                     orders && !c.largest ? &nan : nullptr);
            if ((at + i + std::min(n, length)) % length != 0) continue;
            std::memcpy(places, &seen.place, place_size);  // little-endian
            places += place_size;
            seen = {};
        }
    }
}

}  // namespace

void ArgumentCall::run(char* const* data) const {
    const std::vector<int64_t> dense = dense_strides(shape, storage_bytes(input.dtype));
    const char* elements = data[0];
    if (input.strides != dense) {
        const int64_t size = storage_bytes(input.dtype);
        auto* const copy = per_thread<Workspace>([] {}).get<char>(element_count(shape) * size);
        run_copy(simplified({shape, input.strides, dense, size}), data[0], copy);
        elements = copy;
    }
    const bool is_unsigned = is_unsigned_integer(input.dtype) || input.dtype == DType::boolean;
    with_bits(input.dtype, [&](auto zero) {
        using Bits = decltype(zero);
        if (is_unsigned) find_arguments<Bits>(*this, elements, data[1]);
        else find_arguments<std::make_signed_t<Bits>>(*this, elements, data[1]);
    });
}

void SortCall::run(char* const* data) const {
    const int64_t count = element_count(shape);
    if (count == 0) return;
    std::vector<View> views = operands;
    for (size_t i = 0; i < views.size(); ++i) views[i].data = data[i];
    const bool is_of_arrays = comparator == nullptr;
    if (is_of_arrays && shape.back() >= most_places)
        throw std::invalid_argument("a line of 2^32 elements");
    if (!is_of_arrays && (keys.empty() || shape.back() >= most_places))
        return merge_lines(*this, views, data);
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
            const int64_t size = storage_bytes(type);
            const Copy copy{shape, views[0].strides, dense_strides(shape, size), size};
            run_copy(simplified(copy), data[0], place);
            if (is_float(type)) {
                order_keys(type, place, count, place);
                type = integer_of(type);
            }
        } else {
            keys[i].key->run_laid_out(Layout(shape, views), data, &place);
            if (is_device_float(type) && !keys[i].total) {
                if (has_nan(type, place, count)) return merge_lines(*this, views, data);
                type = integer_of(type);
            }
        }
        found.push_back({type, !is_of_arrays && keys[i].descends, place});
    }
    sort_lines(*this, found, data);
}

namespace {

// Few of a short line: the least that is left, one after the other, without a branch that depends on
// what lies there.
constexpr int64_t short_line = 64, most_passes = 8;
template <class Word>
void few_least_words(const TopCall& c, const char* line, std::vector<Word>& kept) {
    const int64_t n = c.shape.back();
    Word words[short_line];
    make_words(c.input.dtype, line, c.input.strides.back(), n, c.descends, itself, words);
    note_work(n * (1 + c.count));
    kept.resize(static_cast<size_t>(c.count));
    for (Word& word : kept) {
        word = ~Word{0};
        for (int64_t i = 0; i < n; ++i) word = words[i] < word ? words[i] : word;
        words[number_of(word)] = ~Word{0};
    }
}

// The least `count` words of a line, in order.
template <class Word>
void least_words(const TopCall& c, const char* line, std::vector<Word>& kept) {
    const DType t = c.input.dtype;
    const int64_t n = c.shape.back(), stride = c.input.strides.back();
    const auto count = static_cast<size_t>(c.count);
    Word limit = ~Word{0};
    const auto cut = [&] {
        std::nth_element(kept.begin(), kept.begin() + (c.count - 1), kept.end());
        kept.resize(count);
        limit = kept.back();
    };
    kept.clear();
    with_bits(t, [&](auto zero) {
        using Bits = decltype(zero);
        constexpr Bits largest = std::numeric_limits<Bits>::max();
        constexpr int64_t block = 64;
        const Bits flips = c.descends ? largest : 0;
        const size_t room = 2 * count + 8 * block;
        Bits keys[block];
        for (int64_t at = 0; at < n; at += block) {
            const int64_t some = std::min(block, n - at);
            note_work(some);
            Bits least = largest;
            const auto order = [&](auto step) {
                for (int64_t i = 0; i < some; ++i) {
                    keys[i] = ordered(t, read_as<Bits>(line + at * stride + i * step)) ^ flips;
                    least = std::min(least, keys[i]);
                }
            };
            if (stride == sizeof(Bits)) order(std::integral_constant<int64_t, sizeof(Bits)>());
            else order(stride);
            // Few blocks of a long line have any that is among the least.
            if (least > static_cast<Bits>(limit >> half<Word>)) continue;
            for (int64_t i = 0; i < some; ++i) {
                const Word word = word_of<Word>(keys[i], at + i);
                if (word <= limit) kept.push_back(word);
            }
            if (kept.size() + block > room) cut();
        }
    });
    if (kept.size() > count) cut();
    std::sort(kept.begin(), kept.end());
}

template <class Word>
void take_top(const TopCall& c, char* const* data) {
    const int64_t n = c.shape.back(), lines = element_count(c.shape) / std::max<int64_t>(n, 1);
    const int64_t size = storage_bytes(c.input.dtype), place_size = storage_bytes(c.places);
    const auto body = [&](int64_t begin, int64_t end) {
        auto& kept = per_thread<std::vector<Word>>([] {});
        for (int64_t line = begin; line < end; ++line) {
            const char* const from = data[0] + line_offset(c.shape, c.input, line);
            if (n <= short_line && c.count <= most_passes) few_least_words(c, from, kept);
            else least_words(c, from, kept);
            const auto place = [&](int64_t i) { return number_of(kept[i]); };
            put_places(place, c.count, c.places, data[1] + line * c.count * place_size, place_size);
            if (!c.gives_elements) continue;
            move_line(c.input.dtype, from, c.input.strides.back(), place, c.count,
                      data[2] + line * c.count * size, size);
        }
    };
    constexpr int64_t elements_per_grain = 1 << 13;
    parallel_for(lines, std::max<int64_t>(1, elements_per_grain / n), body);
}

}  // namespace

void TopCall::run(char* const* data) const {
    if (count == 0 || element_count(shape) == 0) return;
    if (shape.back() >= most_places) throw std::invalid_argument("a line of 2^32 elements");
    if (storage_bytes(input.dtype) == 8) take_top<Wide>(*this, data);
    else take_top<uint64_t>(*this, data);
}

}  // namespace neuronsim
