// Conversions by the processor's own instructions: each function converts blocks and returns how many
// elements it did. It stops at a block where the instruction's rule is not ours: all change NaN
// otherwise than C5 or E6 say, AVX512-BF16's takes subnormals as zero (C4).
// Included inside each instruction set's namespace.

inline constexpr int native_block = 32;
#if defined(__AVX512BF16__)
inline constexpr bool has_bfloat16_conversion = true;
inline int encode_bfloat16(const uint32_t* in, int n, char* out) {
    constexpr int nan_or_subnormal = 0x01 | 0x20 | 0x80;
    int i = 0;
    for (; i + native_block <= n; i += native_block) {
        const __m512 low = _mm512_loadu_ps(in + i), high = _mm512_loadu_ps(in + i + 16);
        if (_mm512_fpclass_ps_mask(low, nan_or_subnormal) |
            _mm512_fpclass_ps_mask(high, nan_or_subnormal))
            break;
        _mm512_storeu_si512(out + 2 * i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    return i;
}
#else
inline constexpr bool has_bfloat16_conversion = false;
inline int encode_bfloat16(const uint32_t*, int, char*) { return 0; }
#endif

#if defined(__F16C__)
inline constexpr bool has_float16_conversion = true;
inline int encode_float16(const uint32_t* in, int n, char* out) {
    int i = 0;
    for (; i + native_block <= n; i += native_block) {
        bool found = false;
        for (int j = i; j < i + native_block; j += Vec::lanes) {
            const Vec x = Vec::load(reinterpret_cast<const float*>(in + j));
            found |= any_nan(x);
            store_float16(x, reinterpret_cast<uint16_t*>(out + 2 * j));
        }
        if (found) break;
    }
    return i;
}
inline int decode_float16(const char* in, int n, uint32_t* out) {
    int i = 0;
    for (; i + native_block <= n; i += native_block) {
        bool found = false;
        for (int j = i; j < i + native_block; j += Vec::lanes) {
            const Vec x = load_float16(in + 2 * j);
            found |= any_nan(x);
            x.store(reinterpret_cast<float*>(out + j));
        }
        if (found) break;
    }
    return i;
}
#else
inline constexpr bool has_float16_conversion = false;
inline int encode_float16(const uint32_t*, int, char*) { return 0; }
inline int decode_float16(const char*, int, uint32_t*) { return 0; }
#endif
