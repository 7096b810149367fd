// One vector of float32 with a fused multiply-add: the only place that owns intrinsics for arithmetic.
// Included inside each instruction set's namespace.

#if defined(__AVX512F__)

struct Vec {
    static constexpr int lanes = 16;
    __m512 v;
    static Vec zero() { return {_mm512_setzero_ps()}; }
    static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
    static Vec splat(float x) { return {_mm512_set1_ps(x)}; }
    void store(float* p) const { _mm512_storeu_ps(p, v); }
};
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline constexpr int dot_block_rows = 14, dot_block_vectors = 2;

#elif defined(__AVX2__) && defined(__FMA__)

struct Vec {
    static constexpr int lanes = 8;
    __m256 v;
    static Vec zero() { return {_mm256_setzero_ps()}; }
    static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
    static Vec splat(float x) { return {_mm256_set1_ps(x)}; }
    void store(float* p) const { _mm256_storeu_ps(p, v); }
};
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline constexpr int dot_block_rows = 6, dot_block_vectors = 2;

#elif defined(__SSE2__)

struct Vec {
    static constexpr int lanes = 4;
    __m128 v;
    static Vec zero() { return {_mm_setzero_ps()}; }
    static Vec load(const float* p) { return {_mm_loadu_ps(p)}; }
    static Vec splat(float x) { return {_mm_set1_ps(x)}; }
    void store(float* p) const { _mm_storeu_ps(p, v); }
};
inline Vec add(Vec a, Vec b) { return {_mm_add_ps(a.v, b.v)}; }

// a * b + c rounded to odd in float64: the product is exact, TwoSum gives the sum's error, and an
// inexact even sum steps towards it. From there one rounding to float32 is that of the exact value.
inline __m128d fma_to_odd(__m128d a, __m128d b, __m128d c) {
    const __m128d product = _mm_mul_pd(a, b);
    const __m128d sum = _mm_add_pd(product, c);
    const __m128d c_part = _mm_sub_pd(sum, product);
    const __m128d error =
        _mm_add_pd(_mm_sub_pd(product, _mm_sub_pd(sum, c_part)), _mm_sub_pd(c, c_part));
    const __m128d zero = _mm_setzero_pd();
    const __m128i inexact =
        _mm_castpd_si128(_mm_or_pd(_mm_cmplt_pd(error, zero), _mm_cmpgt_pd(error, zero)));
    // +1 to the bits moves away from zero, -1 towards it; all ones is -1.
    const __m128i towards_zero =
        _mm_castpd_si128(_mm_xor_pd(_mm_cmplt_pd(error, zero), _mm_cmplt_pd(sum, zero)));
    const __m128i one = _mm_set1_epi64x(1);
    const __m128i bits = _mm_castpd_si128(sum);
    const __m128i even = _mm_sub_epi64(_mm_and_si128(bits, one), one);
    const __m128i step = _mm_or_si128(towards_zero, one);
    return _mm_castsi128_pd(_mm_add_epi64(bits, _mm_and_si128(step, _mm_and_si128(inexact, even))));
}
inline Vec fma(Vec a, Vec b, Vec c) {
    const __m128d low = fma_to_odd(_mm_cvtps_pd(a.v), _mm_cvtps_pd(b.v), _mm_cvtps_pd(c.v));
    const __m128d high =
        fma_to_odd(_mm_cvtps_pd(_mm_movehl_ps(a.v, a.v)), _mm_cvtps_pd(_mm_movehl_ps(b.v, b.v)),
                   _mm_cvtps_pd(_mm_movehl_ps(c.v, c.v)));
    return {_mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high))};
}
inline constexpr int dot_block_rows = 4, dot_block_vectors = 1;

#else  // aarch64 and others whose compiler turns the builtin into one instruction

struct Vec {
    static constexpr int lanes = 4;
    float v[lanes];
    static Vec zero() { return {{0, 0, 0, 0}}; }
    static Vec load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
    static Vec splat(float x) { return {{x, x, x, x}}; }
    void store(float* p) const {
        for (int i = 0; i < lanes; ++i) p[i] = v[i];
    }
};
inline Vec add(Vec a, Vec b) {
    for (int i = 0; i < Vec::lanes; ++i) a.v[i] += b.v[i];
    return a;
}
inline Vec fma(Vec a, Vec b, Vec c) {
    for (int i = 0; i < Vec::lanes; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
inline constexpr int dot_block_rows = 6, dot_block_vectors = 4;

#endif

// The same lanes in the compiler's own vectors, for arithmetic without fused operations.
typedef float FloatVector __attribute__((vector_size(Vec::lanes * sizeof(float))));
typedef uint32_t BitsVector __attribute__((vector_size(Vec::lanes * sizeof(float))));

// A function of the bits of every lane.
template <class F>
inline Vec map_bits(Vec v, F f) {
    BitsVector x;
    __builtin_memcpy(&x, &v, sizeof x);
    x = f(x);
    __builtin_memcpy(&v, &x, sizeof v);
    return v;
}

// VDPBF16PS: each lane's sum takes the product of the high halves, then that of the low halves, both
// rounded to nearest; subnormal operands and results are zeros.
#if defined(__AVX512BF16__)
inline constexpr bool has_pairs = true;
inline Vec fma_pairs(Vec a, Vec b, Vec acc) {
    return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
}
#else
inline constexpr bool has_pairs = false;
inline Vec fma_pairs(Vec, Vec, Vec acc) { return acc; }
#endif

// Of the first elements: whether one is Inf or NaN, or zero if Zeros; and how many they are.
#if defined(__AVX512DQ__)
template <bool Zeros>
bool find_special(const uint32_t* x, int n, int& done) {
    constexpr int nan_or_inf = 0x01 | 0x80 | 0x08 | 0x10, zero = 0x02 | 0x04;
    __mmask16 found = 0;
    for (done = 0; done + 16 <= n; done += 16)
        found |=
            _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + done), Zeros ? nan_or_inf | zero : nan_or_inf);
    return found != 0;
}
#else
template <bool Zeros>
bool find_special(const uint32_t*, int, int& done) {
    done = 0;
    return false;
}
#endif

// Rounding with the processor's own conversions: each function converts blocks and returns how many
// elements it did. It stops at a block where the instruction's rule is not ours: all change NaN
// otherwise than C5 or E6 say, AVX512-BF16's takes subnormals as zero (C4).
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
        bool any_nan = false;
#if defined(__AVX512F__)
        for (int j = 0; j < native_block; j += 16) {
            const __m512 x = _mm512_loadu_ps(in + i + j);
            any_nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0;
            _mm256_storeu_si256((__m256i*)(out + 2 * (i + j)), _mm512_cvtps_ph(x, nearest_even));
        }
#else
        for (int j = 0; j < native_block; j += 8) {
            const __m256 x = _mm256_loadu_ps((const float*)(in + i + j));
            any_nan |= _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
            _mm_storeu_si128((__m128i*)(out + 2 * (i + j)), _mm256_cvtps_ph(x, nearest_even));
        }
#endif
        if (any_nan) break;
    }
    return i;
}
inline int decode_float16(const char* in, int n, uint32_t* out) {
    int i = 0;
    for (; i + native_block <= n; i += native_block) {
        bool any_nan = false;
#if defined(__AVX512F__)
        for (int j = 0; j < native_block; j += 16) {
            const __m512 x = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(in + 2 * (i + j))));
            any_nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0;
            _mm512_storeu_ps(out + i + j, x);
        }
#else
        for (int j = 0; j < native_block; j += 8) {
            const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(in + 2 * (i + j))));
            any_nan |= _mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0;
            _mm256_storeu_ps((float*)(out + i + j), x);
        }
#endif
        if (any_nan) break;
    }
    return i;
}
#else
inline constexpr bool has_float16_conversion = false;
inline int encode_float16(const uint32_t*, int, char*) { return 0; }
inline int decode_float16(const char*, int, uint32_t*) { return 0; }
#endif
