// A tile: the block of elements on which every kernel works, small enough to stay in the L1 cache.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neuronsim {

inline constexpr int tile_elements = 512;

// The type in which a tile's elements are held while they are computed with: device floats as
// float32 (E1), integers widened to 64 bits, bool as 0 or 1 unsigned.
enum class Domain : uint8_t { float32, float64, signed_integer, unsigned_integer };
inline constexpr int domain_count = 4;

union alignas(64) Tile {
    float f32[tile_elements];
    uint32_t f32_bits[tile_elements];
    double f64[tile_elements];
    int64_t i64[tile_elements];
    uint64_t u64[tile_elements];
};

}  // namespace neuronsim
