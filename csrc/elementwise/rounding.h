// The rounding of float32 values to a type as Profile says: to nearest, or stochastic (rules C, S).
#pragma once

#include <cstdint>

#include "machine/kernels.h"

namespace neuronsim {

// Where a rounding draws its words from (S2).
struct Draw {
    uint64_t seed = 0;
    uint64_t id = 0;
    int64_t stride = 1;  // from one element's index to the next one's
    int64_t first = 0;   // the index of the first element, where only a part of an array is rounded
};

// What the roundings of a call draw from: a seed, and an id for each of them (S2).
struct Draws {
    uint64_t seed = 0;
    const uint64_t* ids = nullptr;
};

// The words of the n elements from index `first` on by Philox4x32-10 (S2); n <= tile_elements.
void random_words(Draw draw, int64_t first, int n, uint32_t* words);

// Rounds the n elements of an array from index `first` on. `from_float32` is false where the values are
// a stepping stone from a wider type, which are always rounded to nearest (S1).
void round_values(const Kernels& k, DType type, const Numerics& numerics, Draw draw, int64_t first,
                  void* values, int n, bool from_float32 = true);

// C3: whether what is finite beyond the type becomes its last value; and how many of n float32 values
// would overflow otherwise, at most a tile of them.
bool saturates(DType type, const Numerics& numerics);
int64_t count_overflowing(const Kernels& k, DType type, const float* values, int n);

}  // namespace neuronsim
