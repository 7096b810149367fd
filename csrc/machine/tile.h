// A tile: the block of elements on which every kernel works, small enough to stay in the L1 cache.
#pragma once

#include <cstdint>

namespace neuronsim {

inline constexpr int tile_elements = 512;

union alignas(64) Tile {
    float f32[tile_elements];
    uint32_t f32_bits[tile_elements];
    double f64[tile_elements];
    int64_t i64[tile_elements];
    uint64_t u64[tile_elements];
};

}  // namespace neuronsim
