#include "elementwise/bit_generator.h"

#include <algorithm>

#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/sizes.h"

namespace neuronsim {
namespace {

constexpr int word = 4, long_word = 8, words_of_block = 4;

struct Pair {
    uint32_t first, second;
};

// ThreeFry2x32-20.
Pair threefry(uint64_t counter, uint64_t key) {
    constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    const uint32_t keys[3] = {k0, k1, k0 ^ k1 ^ 0x1BD11BDA};
    uint32_t x = static_cast<uint32_t>(counter) + k0, y = static_cast<uint32_t>(counter >> 32) + k1;
    for (uint32_t n = 0; n < 5; ++n) {
        for (const int r : rotations[n % 2]) {
            x += y;
            y = (y << r | y >> (32 - r)) ^ x;
        }
        x += keys[(n + 1) % 3];
        y += keys[(n + 2) % 3] + n + 1;
    }
    return {x, y};
}

}  // namespace

void BitGeneratorCall::run(char* const* data) const {
    uint64_t state[3] = {};
    if (reads_state) __builtin_memcpy(state, data[0], long_word * state_words);
    const uint64_t key = state[0], low = state[1], high = state_words == 3 ? state[2] : key;
    const int64_t n = outer * length * inner, half = (length + 1) / 2;
    char* const bits = data[2];
    const auto put = [&](int64_t element, const void* from, int64_t bytes) {
        __builtin_memcpy(bits + element * size, from, bytes);
    };
    const auto put_block = [&](int64_t at) {
        const uint64_t counter = low + static_cast<uint64_t>(at);
        const PhiloxBlock block = philox(counter, high + (counter < low), key);
        if (size >= word) {
            const int64_t first = at * words_of_block * word / size;
            return put(first, &block, std::min<int64_t>(sizeof block, (n - first) * size));
        }
        for (int64_t j = 0; j < words_of_block && at * words_of_block + j < n; ++j)
            put(at * words_of_block + j, &block.word[j], size);
    };
    const auto put_pair = [&](int64_t at) {
        const Pair pair = threefry(low + static_cast<uint64_t>(at), key);
        if (size == long_word) return put(at, &pair, size);
        const int64_t line = at / inner, along = 2 * (line % half);
        const int64_t first = (line / half * length + along) * inner + at % inner;
        put(first, &pair.first, size);
        if (along + 1 < length) put(first + inner, &pair.second, size);
    };
    const int64_t words = size == long_word ? 2 * n : n;
    const int64_t steps = !is_threefry        ? ceil_divide(words, words_of_block)
                          : size == long_word ? n
                                              : outer * half * inner;
    constexpr int64_t grain = 1 << 10, work_of_step = 32;
    parallel_for(steps, grain, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
            if (at % grain == 0) note_work(grain * work_of_step);
            if (is_threefry) put_pair(at);
            else put_block(at);
        }
    });
    const uint64_t counter = low + static_cast<uint64_t>(steps);
    const uint64_t after[3] = {key, counter, high + (counter < low)};
    __builtin_memcpy(data[1], after, long_word * state_words);
}

}  // namespace neuronsim
