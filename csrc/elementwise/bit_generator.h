// Random words by counter and key (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1,
// 2, 3", SC11), and XLA's RngBitGenerator made of them.
#pragma once

#include <cstdint>

namespace neuronsim {

struct PhiloxBlock {
    uint32_t word[4];
};

// Philox4x32-10.
inline PhiloxBlock philox(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
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

// Bits from a state of 64-bit words: the key, the counter and, of Philox, perhaps the counter's high
// half, which else is the key.
struct BitGeneratorCall {
    bool is_threefry;
    bool reads_state;  // else the state counts as zeros
    int state_words;
    int size;  // bytes of an element, which takes the low ones of a word of 32 bits if they are fewer
    // The bits' dimensions before the one along which the words of ThreeFry's pairs are neighbours,
    // that one, and those behind it.
    int64_t outer, length, inner;

    // `data`: the state, the new one, and the bits.
    void run(char* const* data) const;
};

}  // namespace neuronsim
