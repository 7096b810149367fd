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
    constexpr int nearest_even = 0;
    int i = 0;
    for (; i + native_block <= n; i += native_block) {
#if defined(__AVX512F__)
        const __m512 low = _mm512_loadu_ps(in + i), high = _mm512_loadu_ps(in + i + 16);
        _mm256_storeu_si256((__m256i*)(out + 2 * i), _mm512_cvtps_ph(low, nearest_even));
        _mm256_storeu_si256((__m256i*)(out + 2 * i + 32), _mm512_cvtps_ph(high, nearest_even));
        if (_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) != 0) break;
#else
        __m256 nan = _mm256_setzero_ps();
        for (int j = 0; j < native_block; j += 8) {
            const __m256 x = _mm256_loadu_ps((const float*)(in + i + j));
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            _mm_storeu_si128((__m128i*)(out + 2 * (i + j)), _mm256_cvtps_ph(x, nearest_even));
        }
        if (_mm256_movemask_ps(nan) != 0) break;
#endif
    }
    return i;
}
inline int decode_float16(const char* in, int n, uint32_t* out) {
    int i = 0;
    for (; i + native_block <= n; i += native_block) {
#if defined(__AVX512F__)
        const __m512 low = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(in + 2 * i)));
        const __m512 high = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(in + 2 * i + 32)));
        _mm512_storeu_ps(out + i, low);
        _mm512_storeu_ps(out + i + 16, high);
        if (_mm512_cmp_ps_mask(low, high, _CMP_UNORD_Q) != 0) break;
#else
        __m256 nan = _mm256_setzero_ps();
        for (int j = 0; j < native_block; j += 8) {
            const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(in + 2 * (i + j))));
            nan = _mm256_or_ps(nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
            _mm256_storeu_ps((float*)(out + i + j), x);
        }
        if (_mm256_movemask_ps(nan) != 0) break;
#endif
    }
    return i;
}
// A block of results of arithmetic to float16's values. Their NaN is the canonical one or its negative
// (E6, C5), which the conversions keep.
inline void round_to_float16(uint32_t* x) {
#if defined(__AVX512F__)
    for (int i = 0; i < native_block; i += 16)
        _mm512_storeu_ps(x + i, _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_loadu_ps(x + i), 0)));
#else
    for (int i = 0; i < native_block; i += 8) {
        const __m256 y = _mm256_loadu_ps((const float*)(x + i));
        _mm256_storeu_ps((float*)(x + i), _mm256_cvtph_ps(_mm256_cvtps_ph(y, 0)));
    }
#endif
}
#else
inline constexpr bool has_float16_conversion = false;
inline int encode_float16(const uint32_t*, int, char*) { return 0; }
inline int decode_float16(const char*, int, uint32_t*) { return 0; }
inline void round_to_float16(uint32_t*) {}
#endif
