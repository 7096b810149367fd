#include "products/form.h"

#include "products/instructions.h"

namespace neuronsim {

bool may_pair(const Kernels& k, DType a, DType b, const Accumulation& how, const Numerics& numerics) {
    // Every float8 is a bfloat16.
    const auto is_bfloat16 = [](DType t) { return t == DType::bfloat16 || storage_bytes(t) == 1; };
    return how.type == DType::float32 && how.model == Accumulate::fma && !numerics.flush_subnormals &&
           how.tile % 2 == 0 && k.pair_chains != nullptr && pairs_are_proved() && is_bfloat16(a) &&
           is_bfloat16(b);
}

ProductForm product_form(const Kernels& k, DType a, DType b, const Accumulation& how,
                         const Numerics& numerics, int64_t rows) {
    if (!is_device_float(a)) return integer_form(a, b);
    const auto flushed_if = [&](ProductForm f) {
        return numerics.flush_subnormals ? static_cast<ProductForm>(static_cast<int>(f) + 1) : f;
    };
    if (how.type == DType::bfloat16) return flushed_if(ProductForm::to_bfloat16);
    if (how.type == DType::float16) return flushed_if(ProductForm::to_float16);
    if (how.model == Accumulate::product_bfloat16) return flushed_if(ProductForm::product_bfloat16);
    if (how.model == Accumulate::pairs) return flushed_if(ProductForm::odd_even);
    if (numerics.flush_subnormals) return ProductForm::flushed;
    return may_pair(k, a, b, how, numerics) && prefers_pairs(rows) ? ProductForm::pairs
                                                                   : ProductForm::fma;
}

ProductForm integer_form(DType a, DType b) {
    const auto is_short = [](DType t) { return storage_bytes(t) == 1 || t == DType::int16; };
    if (storage_bytes(a) == 1 && storage_bytes(b) == 1 && byte_products() != ByteProducts::widened)
        return is_signed_integer(b) ? ProductForm::quads : ProductForm::quads_turned;
    return is_short(a) && is_short(b) ? ProductForm::shorts : ProductForm::words;
}

}  // namespace neuronsim
