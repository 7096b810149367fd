#include "elementwise/rounding.h"

#include "elementwise/bit_generator.h"

namespace neuronsim {

void random_words(Draw draw, int64_t first, int n, uint32_t* words) {
    if (draw.stride != 1) {
        for (int i = 0; i < n; ++i) {
            const int64_t at = first + i * draw.stride;
            const PhiloxBlock block = philox(static_cast<uint64_t>(at >> 2), draw.id, draw.seed);
            words[i] = block.word[at & 3];
        }
        return;
    }
    for (int i = 0; i < n;) {
        const int64_t at = first + i;
        const PhiloxBlock block = philox(static_cast<uint64_t>(at >> 2), draw.id, draw.seed);
        for (int j = static_cast<int>(at & 3); j < 4 && i < n; ++j, ++i) words[i] = block.word[j];
    }
}

void round_values(const Kernels& k, DType type, const Numerics& numerics, Draw draw, int64_t first,
                  void* values, int n, bool from_float32) {
    if (numerics.plain() || !is_device_float(type)) return k.round[type](values, n);
    uint32_t words[tile_elements];
    const bool draws = numerics.stochastic && from_float32 && type != DType::float32;
    if (draws) random_words(draw, first, n, words);
    k.round_by[type](values, n, numerics, draws ? words : nullptr);
}

bool saturates(DType type, const Numerics& numerics) {
    return numerics.fp8_overflow == Fp8Overflow::saturate && is_device_float(type) &&
           storage_bytes(type) == 1 && formats[static_cast<int>(type)].has_inf;
}

int64_t count_overflowing(const Kernels& k, DType type, const float* values, int n) {
    Tile rounded;
    __builtin_memcpy(&rounded, values, static_cast<size_t>(n) * sizeof(float));
    k.round[type](&rounded, n);
    int64_t count = 0;
    for (int i = 0; i < n; ++i)
        count += values[i] - values[i] == 0 && rounded.f32[i] - rounded.f32[i] != 0;
    return count;
}

}  // namespace neuronsim
