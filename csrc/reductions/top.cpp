#include <algorithm>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/order.h"
#include "reductions/sort.h"

namespace neuronsim {
namespace {

// Few of a short line: the least that is left, one after the other, without a branch that depends on
// what lies there.
constexpr int64_t short_line = 64, most_passes = 8;
template <class Word>
void few_least_words(const TopCall& c, const char* line, std::vector<Word>& kept) {
    const int64_t n = c.input.axes.back().size;
    Word words[short_line];
    make_words(c.input.dtype, line, c.input.axes.back().stride, n, c.descends, itself, words);
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
    const int64_t n = c.input.axes.back().size, stride = c.input.axes.back().stride;
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
    const int64_t n = c.input.axes.back().size,
                  lines = axes_size(c.input.axes) / std::max<int64_t>(n, 1);
    const int64_t size = storage_bytes(c.input.dtype), place_size = storage_bytes(c.places);
    const auto body = [&](int64_t begin, int64_t end) {
        auto& kept = per_thread<std::vector<Word>>([] {});
        for (int64_t line = begin; line < end; ++line) {
            const char* const from = data[0] + line_offset(c.input, line);
            if (n <= short_line && c.count <= most_passes) few_least_words(c, from, kept);
            else least_words(c, from, kept);
            const auto place = [&](int64_t i) { return number_of(kept[i]); };
            put_places(place, c.count, c.places, data[1] + line * c.count * place_size, place_size);
            if (!c.gives_elements) continue;
            move_line(c.input.dtype, from, c.input.axes.back().stride, place, c.count,
                      data[2] + line * c.count * size, size);
        }
    };
    constexpr int64_t elements_per_grain = 1 << 13;
    parallel_for(lines, std::max<int64_t>(1, elements_per_grain / n), body);
}

}  // namespace

void TopCall::run(char* const* data) const {
    if (count == 0 || axes_size(input.axes) == 0) return;
    if (input.axes.back().size >= most_places) throw std::invalid_argument("a line of 2^32 elements");
    if (storage_bytes(input.dtype) == 8) take_top<Wide>(*this, data);
    else take_top<uint64_t>(*this, data);
}

}  // namespace neuronsim
