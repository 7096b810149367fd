// One vector of float64, half as many lanes as Vec, in which the functions of E3 are computed.
// Included inside each instruction set's namespace; owns intrinsics, as simd.h does.

inline constexpr int double_lanes = Vec::lanes / 2;
typedef double Doubles __attribute__((vector_size(double_lanes * 8)));
typedef int64_t Integers __attribute__((vector_size(double_lanes * 8)));
typedef float Floats __attribute__((vector_size(double_lanes * 4)));

inline Doubles splat(double x) { return x - Doubles{}; }  // -0 too
inline Integers bits_of(Doubles x) { return (Integers)x; }
inline Doubles doubles_of(Integers x) { return (Doubles)x; }
inline void store_floats(float* p, Floats x) { __builtin_memcpy(p, &x, sizeof x); }
inline Floats narrowed(Doubles x) { return __builtin_convertvector(x, Floats); }
inline Integers logical_shift_right(Integers x, int n) {
    typedef uint64_t Unsigned __attribute__((vector_size(sizeof(Integers))));
    return (Integers)((Unsigned)x >> n);
}

// a b + c, in one rounding where the processor has it and in two elsewhere: the functions' error bounds
// hold for both. `lookup` reads a table by the lowest bits of each lane. `least` and `greatest`
// give the second operand where one is NaN. `scaled` multiplies by 2^floor(k), k being the multiple of
// 1/octave_parts that `shifted` holds too; exponents stay in float64's range.
#if defined(__AVX512F__)

inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
inline Doubles square_root(Doubles x) { return _mm512_sqrt_pd(x); }
inline Floats square_root(Floats x) { return _mm256_sqrt_ps(x); }
inline Doubles widened(Floats x) { return _mm512_cvtps_pd(x); }
inline Doubles least(Doubles a, Doubles b) { return _mm512_min_pd(a, b); }
inline Doubles greatest(Doubles a, Doubles b) { return _mm512_max_pd(a, b); }
inline bool any(Integers mask) { return _mm512_movepi64_mask((__m512i)mask) != 0; }
inline constexpr bool looks_up_in_registers = true;
inline constexpr int octave_parts = 16;
inline Doubles lookup(const double (&table)[16], Integers i) {
    return _mm512_permutex2var_pd(_mm512_loadu_pd(table), (__m512i)i, _mm512_loadu_pd(table + 8));
}
inline Doubles scaled(Doubles x, Doubles, Doubles k) { return _mm512_scalef_pd(x, k); }
inline bool any_without(Integers a, Integers b, int64_t bits) {
    const __m512i mask = _mm512_set1_epi64(bits);
    return (_mm512_testn_epi64_mask((__m512i)a, mask) | _mm512_testn_epi64_mask((__m512i)b, mask)) != 0;
}
inline bool any_subnormal_or_nan(Floats a, Floats b) {
    constexpr int subnormal = 0x20, nan = 0x01 | 0x80;
    return (_mm256_fpclass_ps_mask(a, subnormal | nan) | _mm256_fpclass_ps_mask(b, subnormal | nan)) !=
           0;
}
inline bool any_subnormal_or_unbounded(Floats a, Floats b) {
    constexpr int found = 0x20 | 0x01 | 0x80 | 0x08 | 0x10;  // subnormal, NaN, infinite
    return (_mm256_fpclass_ps_mask(a, found) | _mm256_fpclass_ps_mask(b, found)) != 0;
}

#elif defined(__AVX2__) && defined(__FMA__)

inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
inline Doubles square_root(Doubles x) { return _mm256_sqrt_pd(x); }
inline Floats square_root(Floats x) { return _mm_sqrt_ps(x); }
inline Doubles widened(Floats x) { return _mm256_cvtps_pd(x); }
inline Doubles least(Doubles a, Doubles b) { return _mm256_min_pd(a, b); }
inline Doubles greatest(Doubles a, Doubles b) { return _mm256_max_pd(a, b); }
inline bool any(Integers mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
inline constexpr int octave_parts = 4;
inline Doubles lookup(const double (&table)[4], Integers i) {
    // By words: the index doubled, and what follows that.
    const __m256i first = (__m256i)_mm256_moveldup_ps((__m256)(i + i));
    const __m256i words = _mm256_or_si256(first, _mm256_set1_epi64x(int64_t{1} << 32));
    return (Doubles)_mm256_permutevar8x32_ps((__m256)_mm256_loadu_pd(table), words);
}
// Loads of single elements are quicker than a gather (measured).
inline Doubles lookup(const double (&table)[16], Integers i) {
    const Integers at = i & 15;
    return Doubles{table[at[0]], table[at[1]], table[at[2]], table[at[3]]};
}
inline bool any(BitsVector mask) { return _mm256_movemask_ps((__m256)mask) != 0; }

#else

inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
#if defined(__FP_FAST_FMA)
    for (int i = 0; i < double_lanes; ++i) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}
inline Doubles square_root(Doubles x) {
    for (int i = 0; i < double_lanes; ++i) x[i] = __builtin_sqrt(x[i]);
    return x;
}
inline Floats square_root(Floats x) {
    for (int i = 0; i < double_lanes; ++i) x[i] = __builtin_sqrtf(x[i]);
    return x;
}
inline Doubles widened(Floats x) { return __builtin_convertvector(x, Doubles); }
inline Doubles least(Doubles a, Doubles b) { return a < b ? a : b; }
inline Doubles greatest(Doubles a, Doubles b) { return a > b ? a : b; }
inline bool any(Integers mask) {
    int64_t joined = 0;
    for (int i = 0; i < double_lanes; ++i) joined |= mask[i];
    return joined != 0;
}
inline constexpr int octave_parts = 16;
inline Doubles lookup(const double (&table)[16], Integers i) {
    Doubles x;
    for (int lane = 0; lane < double_lanes; ++lane) x[lane] = table[i[lane] & 15];
    return x;
}
inline bool any(BitsVector mask) {
    uint32_t joined = 0;
    for (int i = 0; i < Vec::lanes; ++i) joined |= mask[i];
    return joined != 0;
}

#endif

#if !defined(__AVX512F__)
inline constexpr bool looks_up_in_registers = false;
inline Doubles scaled(Doubles x, Doubles shifted, Doubles) {
    constexpr int shift = 52 - __builtin_ctz(octave_parts);
    return doubles_of(bits_of(x) + ((bits_of(shifted) & -int64_t{octave_parts}) << shift));
}
inline bool any_without(Integers a, Integers b, int64_t bits) {
    return any(((a & bits) == 0) | ((b & bits) == 0));
}
inline BitsVector joined_magnitudes(Floats a, Floats b) {
#if defined(__AVX2__)
    const auto x = (BitsVector)_mm256_set_m128(b, a);
#else
    const Floats halves[2] = {a, b};
    BitsVector x;
    __builtin_memcpy(&x, halves, sizeof x);
#endif
    return x & 0x7FFFFFFF;
}
inline bool any_subnormal_or_nan(Floats a, Floats b) {
    const BitsVector x = joined_magnitudes(a, b);
    return any((BitsVector)(x - 1 < 0x7FFFFF) | (BitsVector)(x > inf_bits));
}
inline bool any_subnormal_or_unbounded(Floats a, Floats b) {
    const BitsVector x = joined_magnitudes(a, b);
    return any((BitsVector)(x - 1 < 0x7FFFFF) | (BitsVector)(x >= inf_bits));
}
#endif

inline constexpr int64_t double_sign = INT64_MIN;
inline Doubles magnitude(Doubles x) { return doubles_of(bits_of(x) & ~double_sign); }
inline Doubles with_sign_of(Doubles y, Doubles x) {
    return doubles_of((bits_of(y) & ~double_sign) | (bits_of(x) & double_sign));
}
// NaN stays.
inline Doubles clamp(Doubles x, double low, double high) {
    return least(splat(high), greatest(splat(low), x));
}

// Added to a number below 2^51, it leaves the nearest integer in the low bits.
inline constexpr double round_to_integer = 0x1.8p52;

// Coefficients of ascending powers.
template <int N>
inline Doubles polynomial(const double (&coefficients)[N], Doubles x) {
    Doubles y = splat(coefficients[N - 1]);
    for (int i = N - 2; i >= 0; --i) y = multiply_add(y, x, splat(coefficients[i]));
    return y;
}
// The same by powers of x^4, whose chain is a quarter as long.
template <int N>
inline Doubles polynomial_in_quads(const double (&coefficients)[N], Doubles x) {
    static_assert(N % 4 == 0);
    const Doubles square = x * x;
    Doubles y{};
    for (int i = N - 4; i >= 0; i -= 4) {
        const double* const c = coefficients + i;
        const Doubles low = multiply_add(x, splat(c[1]), splat(c[0])),
                      high = multiply_add(x, splat(c[3]), splat(c[2]));
        const Doubles quad = multiply_add(high, square, low);
        y = i == N - 4 ? quad : multiply_add(y, square * square, quad);
    }
    return y;
}
// A polynomial with the coefficients of one of 16 intervals in each lane, in pairs of powers: half of
// the chain of multiply-adds.
template <const auto& coefficients>
inline Doubles piecewise(Integers interval, Doubles x) {
    constexpr int count = sizeof coefficients / sizeof coefficients[0];
    static_assert(count % 2 == 1);
    const auto coefficient = [&](int i) { return lookup(coefficients[i], interval); };
    const Doubles square = x * x;
    Doubles y = coefficient(count - 1);
    for (int i = count - 3; i >= 0; i -= 2)
        y = multiply_add(y, square, multiply_add(x, coefficient(i + 1), coefficient(i)));
    return y;
}
