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
    static __mmask16 some(int n) { return static_cast<__mmask16>((1u << n) - 1); }
    // The first n lanes; the others are those of `rest`.
    static Vec load_some(const float* p, int n, Vec rest) {
        return {_mm512_mask_loadu_ps(rest.v, some(n), p)};
    }
    void store_some(float* p, int n) const { _mm512_mask_storeu_ps(p, some(n), v); }
    // The lanes from `first` to before `end`, and what they load: the others are +0 and not read.
    using Range = __mmask16;
    static Range range(int first, int end) {
        return static_cast<__mmask16>(some(end) & static_cast<__mmask16>(~some(first)));
    }
    static Vec load_range(const float* p, Range r) { return {_mm512_maskz_loadu_ps(r, p)}; }
};
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The same of an element in memory, in one instruction: compilers read what comes twice on its own.
inline Vec fma_element(const char* a, Vec b, Vec c) {
    const auto& element = *reinterpret_cast<const float (*)[1]>(a);
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c.v) : "v"(b.v), "m"(element));
    return c;
}
inline constexpr int block_rows = 14, block_vectors = 2, block_steps = 1;
// 32 floats, of which each lane takes one, by the lowest bits of `place`.
struct Table {
    __m512 low, high;
    explicit Table(const float (&table)[32])
        : low(_mm512_loadu_ps(table)), high(_mm512_loadu_ps(table + 16)) {
        // Compilers would load them again for each use.
        asm("" : "+v"(low), "+v"(high));
    }
    Vec at(Vec place) const {
        return {_mm512_permutex2var_ps(low, _mm512_castps_si512(place.v), high)};
    }
};
inline bool any_nan(Vec v) { return _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q) != 0; }
inline Vec least_of(Vec a, Vec b) {                  // b where one is NaN
    return {_mm512_maskz_min_ps(0xFFFF, a.v, b.v)};  // GCC warns of the plain one
}
// Some lanes, a bit each: those of which it holds, and the choice by them.
inline uint32_t lanes_that_differ(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ); }
inline uint32_t lanes_within(Vec a, float low, float high) {  // or at the lower end
    return _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(low), _CMP_GE_OQ) &
           _mm512_cmp_ps_mask(a.v, _mm512_set1_ps(high), _CMP_LT_OQ);
}
inline Vec chosen(uint32_t lanes, Vec a, Vec b) {
    return {_mm512_mask_mov_ps(b.v, static_cast<__mmask16>(lanes), a.v)};
}

#elif defined(__AVX2__) && defined(__FMA__)

struct Vec {
    static constexpr int lanes = 8;
    __m256 v;
    static Vec zero() { return {_mm256_setzero_ps()}; }
    static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
    static Vec splat(float x) { return {_mm256_set1_ps(x)}; }
    void store(float* p) const { _mm256_storeu_ps(p, v); }
    static __m256i some(int n) {
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static Vec load_some(const float* p, int n, Vec rest) {
        const __m256i mask = some(n);
        return {_mm256_blendv_ps(rest.v, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask))};
    }
    void store_some(float* p, int n) const { _mm256_maskstore_ps(p, some(n), v); }
    using Range = __m256i;
    static Range range(int first, int end) { return _mm256_andnot_si256(some(first), some(end)); }
    static Vec load_range(const float* p, Range r) { return {_mm256_maskload_ps(p, r)}; }
};
inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline bool any_nan(Vec v) { return _mm256_movemask_ps(_mm256_cmp_ps(v.v, v.v, _CMP_UNORD_Q)) != 0; }
// Steps in a row spare the addresses that each would take: what comes between the multiply-adds counts
// where a core issues for two (measured).
inline constexpr int block_rows = 6, block_vectors = 2, block_steps = 4;

#else

struct Vec {
    static constexpr int lanes = 4;
    typedef float Four __attribute__((vector_size(lanes * sizeof(float))));
    Four v;
    static Vec zero() { return {Four{}}; }
    static Vec load(const float* p) { return read<Vec>(p); }
    static Vec splat(float x) { return {Four{x, x, x, x}}; }
    void store(float* p) const { __builtin_memcpy(p, &v, sizeof v); }
    static Vec load_some(const float* p, int n, Vec rest) {
        __builtin_memcpy(&rest, p, n * sizeof(float));
        return rest;
    }
    void store_some(float* p, int n) const { __builtin_memcpy(p, &v, n * sizeof(float)); }
    struct Range {
        int first, end;
    };
    static Range range(int first, int end) { return {first, end}; }
    static Vec load_range(const float* p, Range r) {
        float x[lanes] = {};
        for (int i = r.first; i < r.end; ++i) x[i] = p[i];
        return load(x);
    }
};
inline Vec add(Vec a, Vec b) { return {a.v + b.v}; }
inline bool any_nan(Vec v) {
    bool any = false;
    for (int i = 0; i < Vec::lanes; ++i) any |= v.v[i] != v.v[i];
    return any;
}

#if defined(__SSE2__)

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
inline constexpr int block_rows = 4, block_vectors = 1, block_steps = 1;

#else  // aarch64 and others whose compiler turns the builtin into one instruction

inline Vec fma(Vec a, Vec b, Vec c) {
    for (int i = 0; i < Vec::lanes; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return c;
}
inline constexpr int block_rows = 6, block_vectors = 4, block_steps = 1;

#endif
#endif

#if !defined(__AVX512F__)
inline Vec fma_element(const char* a, Vec b, Vec c) { return fma(Vec::splat(read<float>(a)), b, c); }
#endif

// The same lanes in the compiler's own vectors, for arithmetic without fused operations.
typedef float FloatVector __attribute__((vector_size(Vec::lanes * sizeof(float))));
typedef uint32_t BitsVector __attribute__((vector_size(Vec::lanes * sizeof(float))));

inline Vec vec_of(FloatVector x) { return bits_as<Vec>(x); }
inline FloatVector floats_of(Vec v) { return bits_as<FloatVector>(v); }

// Calls f<N>(at, load, store) for the pieces of n floats, N vectors each: the most at a time, then a
// few, then one, of which the last loads and stores only the lanes that are left.
template <int Most, class F>
[[gnu::always_inline]] inline void in_pieces(int n, const F& f) {
    constexpr int few = 4;
    const auto load = [](const float* p) { return Vec::load(p); };
    const auto store = [](Vec v, float* p) { v.store(p); };
    int at = 0;
    for (; at + Most * Vec::lanes <= n; at += Most * Vec::lanes)
        f.template operator()<Most>(at, load, store);
    for (; at + few * Vec::lanes <= n; at += few * Vec::lanes)
        f.template operator()<few>(at, load, store);
    for (; at + Vec::lanes <= n; at += Vec::lanes) f.template operator()<1>(at, load, store);
    const int rest = n - at;
    if (rest == 0) return;
    f.template operator()<1>(
        at, [&](const float* p) { return Vec::load_some(p, rest, Vec::zero()); },
        [&](Vec v, float* p) { v.store_some(p, rest); });
}

// What was measured on a processor with AVX2 alone (Zen 3) and might cost elsewhere is done for it
// only.
inline constexpr bool has_avx2_alone = Vec::lanes == 8;

// Every second lane of two vectors that follow each other, from the first or the second one on.
template <int First>
inline Vec every_second(Vec low, Vec high) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    // Two instructions, of which compilers make five.
    const __m256 halves = _mm256_shuffle_ps(low.v, high.v, First == 0 ? 0x88 : 0xDD);
    return {_mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(halves), 0xD8))};
#else
    return [&]<int... I>(std::integer_sequence<int, I...>) {
        return vec_of(__builtin_shufflevector(floats_of(low), floats_of(high), (2 * I + First)...));
    }(std::make_integer_sequence<int, Vec::lanes>());
#endif
}

// Every second of the 2n - 1 floats from there on, at most a vector of them, and `rest` behind them;
// nothing else is read.
inline Vec load_every_second(const float* from, int64_t n, Vec rest) {
    constexpr int lanes = Vec::lanes;
    if (n > lanes) return every_second<0>(Vec::load(from), Vec::load(from + lanes));
    const int reach = static_cast<int>(2 * n) - 1, first = reach < lanes ? reach : lanes;
    return every_second<0>(Vec::load_some(from, first, rest),
                           Vec::load_some(from + lanes, reach - first, rest));
}

// A function of the bits of every lane.
template <class F>
inline Vec map_bits(Vec v, F f) {
    return bits_as<Vec>(f(bits_as<BitsVector>(v)));
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

// The lanes as values of two bytes, to nearest; NaN and, of bfloat16, subnormal lanes as the
// instructions have them, which C4 and C5 do not: which bfloat16 are such the result says.
#if defined(__AVX512BF16__)
inline uint32_t store_bfloat16(Vec v, uint16_t* p) {
    constexpr int nan_or_subnormal = 0x01 | 0x20 | 0x80;
    _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(v.v));
    return _mm512_fpclass_ps_mask(v.v, nan_or_subnormal);
}
#endif
#if defined(__AVX512F__)
inline void store_float16(Vec v, uint16_t* p) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec load_float16(const void* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
#elif defined(__F16C__)
inline void store_float16(Vec v, uint16_t* p) {
    _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec load_float16(const void* p) { return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p))}; }
#else
inline Vec load_float16(const void*) { return Vec::zero(); }  // without has_float16_conversion
#endif
inline Vec load_bfloat16(const void* p) {
#if defined(__AVX512F__)
    // One instruction, of which GCC makes five.
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))};
#else
    typedef uint16_t Words __attribute__((vector_size(Vec::lanes * sizeof(uint16_t))));
    return vec_of((FloatVector)(__builtin_convertvector(read<Words>(p), BitsVector) << 16));
#endif
}
// Of numbers: the bits that tfloat32 lacks rounded away, to nearest even.
inline Vec rounded_to_tfloat32(Vec v) {
    return map_bits(v, [](BitsVector x) { return (x + 0xFFF + (x >> 13 & 1)) & ~0x1FFFu; });
}

// Sums of int32 modulo 2^32 (-fwrapv).
typedef int32_t IntVector __attribute__((vector_size(Vec::lanes * sizeof(int32_t))));

// Each lane's sum takes the products of two int16. Where both are the least pair there is, the
// instruction's sum of them is 2^31 modulo 2^32 too.
inline IntVector add_short_products(IntVector a, IntVector b, IntVector acc) {
#if defined(__AVX512BW__)
    return acc + (IntVector)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return acc + (IntVector)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return acc + (IntVector)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return acc + (a >> 16) * (b >> 16) + (a << 16 >> 16) * (b << 16 >> 16);
#endif
}

// VPDPBUSD, which does not saturate: each lane's sum takes four products of a byte of `bytes`,
// unsigned, and one of `signed_bytes`. Its name is given to the assembler, so that the object of an
// instruction set without it can hold it for the processors that have it.
#if defined(__AVX512F__)
inline constexpr bool has_quads = true;
inline IntVector add_byte_products(IntVector bytes, IntVector signed_bytes, IntVector acc) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(bytes), "v"(signed_bytes));
    return acc;
}
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr bool has_quads = true;
inline IntVector add_byte_products(IntVector bytes, IntVector signed_bytes, IntVector acc) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(bytes), "x"(signed_bytes));
    return acc;
}
#else
inline constexpr bool has_quads = false;
inline IntVector add_byte_products(IntVector, IntVector, IntVector acc) { return acc; }
#endif

// AMX's tiles: up to sixteen rows of 64 bytes each. Their instructions, too, are named to the
// assembler.
#if defined(__AVX512BW__)
struct alignas(64) TileShapes {  // of the eight tiles, as LDTILECFG reads them
    uint8_t palette = 1, first_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);
inline void shape_tiles(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(shapes)); }
inline void release_tiles() { __asm__ volatile("tilerelease"); }
template <int T>
inline void zero_tile() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(T));
}
template <int T>
inline void load_tile(const void* from, ptrdiff_t row) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(T), "r"(from), "r"(row) : "memory");
}
template <int T>
inline void store_tile(void* to, ptrdiff_t row) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(T), "r"(to), "r"(row) : "memory");
}
// Each of the sums takes the products of a's row and b's column of words, of four bytes each, those of
// one side unsigned: of b where they are turned.
template <bool Turned, int Sums, int A, int B>
inline void add_tile_products() {
    if constexpr (Turned)
        __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
    else __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(A), "i"(B));
}
// The words of some lanes, that of lane 0 at `p`; the others are zero and not read.
inline IntVector load_words(const char* p, uint16_t lanes) {
    return (IntVector)_mm512_maskz_loadu_epi32(lanes, p);
}
#endif

// Sixteen words of four neighbouring bytes each, `Stride` bytes apart. Bytes beside the range are those
// of `rest` and not read.
#if defined(__AVX512BW__)
using ByteRange = __mmask64;
inline ByteRange byte_range(int first, int end) {
    const auto below = [](int n) { return n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0}; };
    return below(end) & ~below(first);
}
template <int Stride>
inline IntVector load_byte_words(const char* p, ByteRange range, IntVector rest) {
    static_assert(Stride == 1 || Stride == 2);
    const __m512i bytes = _mm512_mask_loadu_epi8((__m512i)rest, range, p);
    // Each quarter takes the bytes of its four words, and these pick theirs.
    const __m512i near = Stride == 1
                             ? _mm512_setr_epi32(0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4)
                             : _mm512_setr_epi32(0, 1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 6, 6, 7, 8, 8);
    const __m128i picks = Stride == 1 ? _mm_setr_epi8(0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3, 4, 5, 6)
                                      : _mm_setr_epi8(0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 8, 9);
    return (IntVector)_mm512_shuffle_epi8(_mm512_permutexvar_epi32(near, bytes),
                                          _mm512_broadcast_i32x4(picks));
}
#endif
