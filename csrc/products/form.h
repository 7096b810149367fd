// The form in which a product accumulates, from the profile's model and the operands' types.
#pragma once

#include "machine/kernels.h"

namespace neuronsim {

// Profile.accumulate and the plan's accumulate type (M6).
enum class Accumulate : uint8_t { fma, exact, product_bfloat16, pairs };
struct Accumulation {
    Accumulate model;
    DType type;    // to which every sum is rounded: float32, bfloat16 or float16
    int64_t tile;  // of the contraction (M2)
};

// The form in which a product of these types and so many rows accumulates.
ProductForm product_form(const Kernels& k, DType a, DType b, const Accumulation& how,
                         const Numerics& numerics, int64_t rows);

// Whether VDPBF16PS gives these products' bits: they may be multiplied in pairs, or by fma.
bool may_pair(const Kernels& k, DType a, DType b, const Accumulation& how, const Numerics& numerics);

inline bool is_pair_form(ProductForm f) {
    return f == ProductForm::pairs || f == ProductForm::pairs_by_fma;
}
inline bool takes_two(ProductForm f) {
    return is_pair_form(f) || f == ProductForm::odd_even || f == ProductForm::odd_even_flushed;
}
// Words of a step of one vector.
inline int step_words(ProductForm f) { return takes_two(f) && !is_pair_form(f) ? 2 : 1; }
inline int64_t steps_of(ProductForm f, int64_t depth) { return takes_two(f) ? (depth + 1) / 2 : depth; }

}  // namespace neuronsim
