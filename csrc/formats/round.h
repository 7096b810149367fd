// Rounding the elements of a tile in place: to a type, to fewer bits, to canonical NaN (rules C).
// Included inside each instruction set's namespace.

// Makes elements values of the type: rounds floats (C2-C5), wraps integers (E8).
template <DType T>
void round_to(void* values, int n) {
    if constexpr (is_device_float(T)) {
        constexpr int I = static_cast<int>(T);
        auto* x = static_cast<uint32_t*>(values);
        int done = 0;
        if constexpr (T == DType::float16 && has_float16_conversion)
            for (; done + native_block <= n; done += native_block) round_to_float16(x + done);
        if constexpr (T != DType::float32)
            _Pragma("GCC ivdep") for (int i = done; i < n; ++i) x[i] =
                decode<I>(encode<I, Payload::none>(x[i]));
    } else if constexpr (is_signed_integer(T)) {
        constexpr int shift = 8 * (computed_bytes(T) - storage_bytes(T));
        auto* x = static_cast<Element<T>*>(values);
        FOR_ELEMENTS x[i] = x[i] << shift >> shift;
    } else if constexpr (T != DType::float64) {
        using E = Element<T>;
        constexpr E all = static_cast<E>(~E{0}) >> 8 * (computed_bytes(T) - storage_bytes(T));
        auto* x = static_cast<E*>(values);
        FOR_ELEMENTS x[i] &= T == DType::boolean ? E{1} : all;
    }
}

// float32 to the format as the profile says: C3's field, C4's, and stochastic with a 32-bit word for
// each element (S1), or to nearest without words.
template <DType T>
void round_by(void* values, int n, const Numerics& numerics, const uint32_t* words) {
    constexpr int I = static_cast<int>(T);
    constexpr Format f = formats[I];
    constexpr bool is_fp8 = f.storage_bytes == 1 && f.has_inf;
    auto* out = static_cast<uint32_t*>(values);
    FOR_ELEMENTS {
        const uint32_t x = out[i];
        uint32_t y = encode<I, Payload::drop>(x);
        if (words != nullptr && T != DType::float32) y = encode_stochastic<I>(x, words[i]);
        if constexpr (is_fp8) {
            constexpr uint32_t inf = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
            if ((y & 0x7F) == inf) {
                if (numerics.fp8_overflow == Fp8Overflow::nan) y = (y & 0x80) | f.nan_bits;
                if (numerics.fp8_overflow == Fp8Overflow::saturate && (x & ~sign_bit) < inf_bits)
                    y -= 1;
            }
        }
        y = decode<I>(y);
        if (f.exponent_bits == 8 && numerics.flush_subnormals) y = flushed(y);
        out[i] = y;
    }
}

// C9 in the operand's own encoding: nearest even at `mantissa_bits`, then Inf above the range of
// `exponent_bits` and zero below it.
template <DType T>
void reduce_precision(void* out, const void* in, int n, int exponent_bits, int mantissa_bits) {
    constexpr int I = static_cast<int>(T);
    constexpr Format f = formats[I];
    constexpr uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);
    constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const auto* x = static_cast<const uint32_t*>(in);
    auto* y = static_cast<uint32_t*>(out);
    const int drop = mantissa_bits < f.mantissa_bits ? f.mantissa_bits - mantissa_bits : 0;
    const bool narrows = exponent_bits < f.exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t smallest = narrows ? static_cast<uint32_t>(f.bias - bias + 1) << f.mantissa_bits : 0;
    const uint32_t overflow =
        narrows ? static_cast<uint32_t>(f.bias + bias + 1) << f.mantissa_bits : all_ones;
    FOR_ELEMENTS {
        const uint32_t encoding = encode<I, Payload::drop>(x[i]) >> storage_shift(f);
        const uint32_t magnitude = encoding & (sign - 1);
        const uint32_t half = drop == 0 ? 0 : (1u << (drop - 1)) - 1 + (magnitude >> drop & 1);
        uint32_t r = (magnitude + half) >> drop << drop;
        r = r < smallest ? 0 : r >= overflow ? all_ones : r;
        r = magnitude > all_ones ? magnitude : r;
        y[i] = decode<I>(((encoding & sign) | r) << storage_shift(f));
    }
}

template <uint32_t (*Function)(uint32_t)>
void change_bits(void* out, const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    auto* y = static_cast<uint32_t*>(out);
    FOR_ELEMENTS y[i] = Function(x[i]);
}

inline void restrict_magnitude(void* out, const void* in, int n, float least, float greatest) {
    auto* y = static_cast<uint32_t*>(out);
    const auto* x = static_cast<const uint32_t*>(in);
    const uint32_t low = bits_as<uint32_t>(least), high = bits_as<uint32_t>(greatest);
    FOR_ELEMENTS {
        const uint32_t magnitude = x[i] & ~sign_bit;
        y[i] = magnitude >= low && magnitude <= high ? x[i] : canonical_nan;
    }
}
