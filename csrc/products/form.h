// The form in which a product accumulates, from the profile's model and the operands' types.
#pragma once

#include "machine/kernels.h"
#include "machine/sizes.h"

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

// The form in which integers are multiplied, modulo 2^32, which is enough where the result is that
// modulo no more (M7).
ProductForm integer_form(DType a, DType b);
constexpr bool is_modulo_2_32(DType result) { return is_integer(result) && storage_bytes(result) <= 4; }

inline bool is_integer_form(ProductForm f) { return f >= ProductForm::quads; }
inline bool is_quad_form(ProductForm f) {
    return f == ProductForm::quads || f == ProductForm::quads_turned;
}
inline bool is_pair_form(ProductForm f) {
    return f == ProductForm::pairs || f == ProductForm::pairs_by_fma;
}
// Words of a step of one vector.
inline int step_words(ProductForm f) {
    return f == ProductForm::odd_even || f == ProductForm::odd_even_flushed ? 2 : 1;
}
// Elements of the contraction in a step.
inline int step_elements(ProductForm f) {
    if (is_quad_form(f)) return 4;
    return is_pair_form(f) || f == ProductForm::shorts || step_words(f) == 2 ? 2 : 1;
}
inline int64_t steps_of(ProductForm f, int64_t depth) { return ceil_divide(depth, step_elements(f)); }

// The most rows of these register blocks.
inline int most_rows(const BlockKernel (&kernels)[max_block_vectors][max_block_rows]) {
    int rows = 0;
    while (rows < max_block_rows && kernels[0][rows] != nullptr) ++rows;
    return rows;
}

// VPDPBUSD takes bytes of the other signedness from a than from b: what a's must be moved by where
// they have the same, that is by a flip of their first bit.
inline int32_t quad_offset(ProductForm f, DType a) {
    if (f == ProductForm::quads && is_signed_integer(a)) return 128;
    if (f == ProductForm::quads_turned && !is_signed_integer(a)) return -128;
    return 0;
}

}  // namespace neuronsim
