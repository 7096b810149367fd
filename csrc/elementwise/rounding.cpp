#include "elementwise/rounding.h"

namespace neuronsim {
namespace {

struct Block {
    uint32_t word[4];
};

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11).
Block philox(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
    constexpr uint32_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
    constexpr uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;
    uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
    uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{multiplier_0} * c0, p1 = uint64_t{multiplier_1} * c2;
        c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(p1);
        c3 = static_cast<uint32_t>(p0);
        k0 += weyl_0;
        k1 += weyl_1;
    }
    return {{c0, c1, c2, c3}};
}

}  // namespace

void random_words(Draw draw, int64_t first, int n, uint32_t* words) {
    if (draw.stride != 1) {
        for (int i = 0; i < n; ++i) {
            const int64_t at = first + i * draw.stride;
            const Block block = philox(static_cast<uint64_t>(at >> 2), draw.id, draw.seed);
            words[i] = block.word[at & 3];
        }
        return;
    }
    for (int i = 0; i < n;) {
        const int64_t at = first + i;
        const Block block = philox(static_cast<uint64_t>(at >> 2), draw.id, draw.seed);
        for (int j = static_cast<int>(at & 3); j < 4 && i < n; ++j, ++i) words[i] = block.word[j];
    }
}

void round_values(const Kernels& k, DType type, const Numerics& numerics, Draw draw, int64_t first,
                  void* values, int n, bool from_float32) {
    if (numerics.plain() || !is_device_float(type)) return k.round[static_cast<int>(type)](values, n);
    uint32_t words[tile_elements];
    const bool draws = numerics.stochastic && from_float32 && type != DType::float32;
    if (draws) random_words(draw, first, n, words);
    k.round_by[static_cast<int>(type)](values, n, numerics, draws ? words : nullptr);
}

}  // namespace neuronsim
