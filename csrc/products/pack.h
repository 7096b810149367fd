// How the operands of the matrix product are laid out for it.
// Included inside each instruction set's namespace.

inline uint32_t pack_across(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                            void* panel) {
    auto* out = static_cast<float*>(panel);
    if (n == width && width == 2 * Vec::lanes) {
        for (int64_t k = 0; k < depth; ++k, source += stride, out += 2 * Vec::lanes) {
            const auto* p = reinterpret_cast<const float*>(source);
            for (int line = 0; line < 2 * Vec::lanes; line += 16)
                __builtin_prefetch(p + line + 16 * stride / static_cast<ptrdiff_t>(sizeof(float)));
            const Vec low = Vec::load(p), high = Vec::load(p + Vec::lanes);
            low.store(out);
            high.store(out + Vec::lanes);
        }
        return 0;
    }
    int64_t first = 0;
    if (width == Vec::lanes && stride >= static_cast<ptrdiff_t>(sizeof(float)) * (width - n))
        // Whole vectors, but of the last step's: what they hold beyond the n is of the next one.
        for (; first + 1 < depth; ++first, source += stride, out += width)
            Vec::load(reinterpret_cast<const float*>(source)).store(out);
    for (int64_t k = first; k < depth; ++k, source += stride, out += width) {
        const auto* p = reinterpret_cast<const float*>(source);
        for (int j = 0; j < width; j += Vec::lanes) {
            const int left = n - j, room = width - j;
            const Vec x = left >= Vec::lanes ? Vec::load(p + j)
                          : left > 0         ? Vec::load_some(p + j, left, Vec::zero())
                                             : Vec::zero();
            if (room >= Vec::lanes) x.store(out + j);
            else x.store_some(out + j, room);
        }
    }
    return 0;
}

// Blocks of a vector's width, transposed: block i of vector j comes from its own place. The vectors
// that follow are fetched, which the processor does not foresee: each of these is short.
inline void load_block(const char* source, ptrdiff_t stride, int n, FloatVector* rows) {
    for (int j = 0; j < block; ++j) {
        rows[j] = FloatVector{};
        if (j >= n) continue;
        rows[j] = read<FloatVector>(source + j * stride);
        if constexpr (has_avx2_alone)
            __builtin_prefetch(source + (j + (n < block ? n : block)) * stride);
    }
}

inline uint32_t pack_along(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                           void* panel) {
    constexpr ptrdiff_t size = sizeof(float);
    auto* out = static_cast<float*>(panel);
    for (int first = 0; first < width; first += block) {
        const char* from = source + first * stride;
        const int left = n - first;
        const auto pack_some = [&](int64_t k, int64_t some) {
            FloatVector rows[block];
            for (int j = 0; j < block; ++j) {
                rows[j] = FloatVector{};
                if (j >= left) continue;
                const auto* p = reinterpret_cast<const float*>(from + j * stride) + k;
                rows[j] = floats_of(Vec::load_some(p, static_cast<int>(some), Vec::zero()));
            }
            transpose<1>(rows);
            for (int i = 0; i < some; ++i)
                __builtin_memcpy(out + (k + i) * width + first, &rows[i], sizeof(FloatVector));
        };
        // Vectors that lie on two lines would read each of them twice.
        int64_t k = reinterpret_cast<uintptr_t>(from) / size % block;
        k = k == 0 ? 0 : depth < block - k ? depth : block - k;
        if (k > 0) pack_some(0, k);
        for (; k + block <= depth; k += block) {
            FloatVector rows[block];
            load_block(from + k * size, stride, left, rows);
            transpose<1>(rows);
            for (int i = 0; i < block; ++i)
                __builtin_memcpy(out + (k + i) * width + first, &rows[i], sizeof(FloatVector));
        }
        if (k < depth) pack_some(k, depth - k);
    }
    return 0;
}

// The same of vectors whose elements lie in [inner][outer] order while the contraction takes them in
// [outer][inner] order: each row of a transposed block goes to its own place.
inline void pack_interleaved(const char* source, ptrdiff_t stride, int64_t outer, int64_t inner, int n,
                             int width, void* panel) {
    auto* out = static_cast<float*>(panel);
    const int64_t depth = outer * inner;
    for (int first = 0; first < width; first += block) {
        const char* from = source + first * stride;
        const int left = n - first;
        int64_t at = 0, i = 0, o = 0;  // the element's place, and its two indices
        const auto place = [&] {
            float* to = out + (o * inner + i) * width + first;
            if (++o == outer) o = 0, ++i;
            return to;
        };
        for (; at + block <= depth; at += block) {
            FloatVector rows[block];
            load_block(from + at * 4, stride, left, rows);
            transpose<1>(rows);
            for (const FloatVector& row : rows) __builtin_memcpy(place(), &row, sizeof row);
        }
        for (; at < depth; ++at) {
            float* to = place();
            for (int j = 0; j < block; ++j)
                to[j] = j < left ? read<float>(from + j * stride + at * 4) : 0.0f;
        }
    }
}

// Pairs of bfloat16: as many in a vector as it has lanes.
typedef uint16_t HalvesVector __attribute__((vector_size(Vec::lanes * sizeof(float))));
inline constexpr int halves = 2 * Vec::lanes;

struct LeastMagnitude {
    HalvesVector least = ~HalvesVector{};
    void see(HalvesVector x) {
        const HalvesVector y = (x & 0x7FFF) - 1;  // zero becomes the largest
        least = y < least ? y : least;
    }
    uint32_t result() const {
        HalvesVector x = least;
        const auto fold = [&]<int N, int... I>(Lanes<I...>) {
            const HalvesVector y = __builtin_shufflevector(x, x, ((I + N) % halves)...);
            x = y < x ? y : x;
        };
        const auto fold_all = [&]<int... K>(Lanes<K...>) {
            (fold.template operator()<(1 << K)>(MakeLanes<halves>()), ...);
        };
        fold_all(MakeLanes<std::countr_zero(static_cast<unsigned>(halves))>());
        return x[0];
    }
};

inline HalvesVector load_halves(const char* p, int n) {
    HalvesVector x{};
    if (n >= halves) __builtin_memcpy(&x, p, sizeof x);
    else __builtin_memcpy(&x, p, n * sizeof(uint16_t));
    return x;
}

template <int... I>
inline void store_interleaved(HalvesVector even, HalvesVector odd, uint32_t* out, int n, Lanes<I...>) {
    constexpr int half = Vec::lanes;
    const HalvesVector low = __builtin_shufflevector(even, odd, (I / 2 + (I % 2) * halves)...);
    const HalvesVector high = __builtin_shufflevector(even, odd, (half + I / 2 + (I % 2) * halves)...);
    const int first = n < half ? n : half, second = n < half ? 0 : n - half;
    __builtin_memcpy(out, &low, first * sizeof(uint32_t));
    __builtin_memcpy(out + half, &high, second * sizeof(uint32_t));
}

inline uint32_t pack_pairs_across(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                                  void* panel) {
    auto* out = static_cast<uint32_t*>(panel);
    LeastMagnitude least;
    const auto lanes = MakeLanes<halves>();
    for (int first = 0; first < width; first += halves) {
        const char* p = source + first * static_cast<ptrdiff_t>(sizeof(uint16_t));
        uint32_t* to = out + first;
        const int count = n - first < 0 ? 0 : n - first < halves ? n - first : halves;
        const int room = width - first < halves ? width - first : halves;
        const auto pack = [&](auto of_row, auto of_panel) [[gnu::always_inline]] {
            for (int64_t k = 0; k + 2 <= depth; k += 2, p += 2 * stride, to += width) {
                // Each row is a page of its own: the processor does not see what comes.
                __builtin_prefetch(p + 16 * stride);
                __builtin_prefetch(p + 17 * stride);
                const HalvesVector a = load_halves(p, of_row), b = load_halves(p + stride, of_row);
                least.see(a);
                least.see(b);
                store_interleaved(b, a, to, of_panel, lanes);
            }
        };
        constexpr std::integral_constant<int, halves> whole{};
        if (count == halves && room == halves) pack(whole, whole);
        else pack(count, room);
        if (depth % 2 == 0) continue;
        const HalvesVector a = load_halves(p, count);
        least.see(a);
        store_interleaved(HalvesVector{}, a, to, room, lanes);
    }
    return least.result();
}

inline BitsVector swapped(BitsVector x) { return x << 16 | x >> 16; }

inline uint32_t pack_pairs_along(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                                 void* panel) {
    auto* out = static_cast<uint32_t*>(panel);
    LeastMagnitude least;
    const int64_t pairs = (depth + 1) / 2;
    for (int first = 0; first < width; first += block) {
        const char* from = source + first * stride;
        const int left = n - first;
        for (int64_t k = 0; k < pairs; k += block) {
            FloatVector rows[block];
            const int64_t bytes = 2 * (depth - 2 * k);
            if (bytes >= static_cast<int64_t>(sizeof(FloatVector))) {
                load_block(from + 4 * k, stride, left, rows);
            } else {
                for (int j = 0; j < block; ++j) {
                    rows[j] = FloatVector{};
                    if (j < left) __builtin_memcpy(&rows[j], from + j * stride + 4 * k, bytes);
                }
            }
            for (const FloatVector& row : rows) least.see((HalvesVector)row);
            transpose<1>(rows);
            for (int i = 0; i < block && k + i < pairs; ++i) {
                const BitsVector x = swapped((BitsVector)rows[i]);
                __builtin_memcpy(out + (k + i) * width + first, &x, sizeof x);
            }
        }
    }
    return least.result();
}

inline uint32_t pack_pairs_rows(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                                void* panel) {
    auto* out = static_cast<uint32_t*>(panel);
    LeastMagnitude least;
    // Rows that touch here and there are one.
    if (stride == 2 * depth && 2 * width == depth) depth *= n, n = 1;
    for (int j = 0; j < n; ++j, source += stride, out += width) {
        int64_t k = 0;
        for (; k + halves <= depth; k += halves) {
            const auto x = read<HalvesVector>(source + 2 * k);
            least.see(x);
            const BitsVector y = swapped((BitsVector)x);
            __builtin_memcpy(out + k / 2, &y, sizeof y);
        }
        if (k == depth) continue;
        const HalvesVector x = load_halves(source + 2 * k, static_cast<int>(depth - k));
        least.see(x);
        const BitsVector y = swapped((BitsVector)x);
        __builtin_memcpy(out + k / 2, &y, (depth - k + 1) / 2 * sizeof(uint32_t));
    }
    return least.result();
}

// The least magnitude of `rows` of so many pairs in memory.
inline uint32_t least_of_pairs(const char* source, ptrdiff_t stride, int64_t pairs, int rows) {
    LeastMagnitude least;
    for (int j = 0; j < rows; ++j, source += stride)
        for (int64_t k = 0; k < 2 * pairs; k += halves)
            least.see(load_halves(source + 2 * k,
                                  2 * pairs - k < halves ? static_cast<int>(2 * pairs - k) : halves));
    return least.result();
}

// A float8's bits without its sign as a bfloat16's, exactly: every float8 is a normal bfloat16, an Inf,
// a NaN or zero.
template <int I>
constexpr uint16_t widened_magnitude(uint16_t m) {
    constexpr Format f = formats[I];
    constexpr int up = 7 - f.mantissa_bits;
    constexpr int rebias = 127 - f.bias;
    constexpr uint16_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    // By masks: GCC makes branches of some of these choices, and then no vectors.
    const auto choose = [](bool first, int x, int y) {
        const auto mask = static_cast<uint16_t>(-static_cast<int>(first));
        return static_cast<uint16_t>((x & mask) | (y & ~mask));
    };
    uint16_t y = static_cast<uint16_t>((m << up) + (rebias << 7));
    // A subnormal's leading bit says its exponent.
    uint16_t small = 0;
    for (int bit = 0; bit < f.mantissa_bits; ++bit) {
        const int exponent = rebias + 1 - f.mantissa_bits + bit;
        small = choose(m >= (1 << bit), exponent << 7 | ((m << (7 - bit)) & 0x7F), small);
    }
    y = choose(m < (1 << f.mantissa_bits), small, y);
    if constexpr (f.has_inf) return choose(m >= all_ones, 0x7F80 | (m << up & 0x7F), y);
    else return choose(m == f.nan_bits, 0x7FC0, y);
}

template <int I>
void widen_float8(const void* source, int n, char* target) {
    const auto* in = static_cast<const uint8_t*>(source);
    auto* out = reinterpret_cast<uint16_t*>(target);
#if defined(__AVX512BW__)
    // Two instructions look 32 of them up, in 64 magnitudes each.
    typedef uint8_t Bytes __attribute__((vector_size(halves)));
    alignas(64) static constexpr auto table = [] {
        std::array<uint16_t, 128> widened{};
        for (uint16_t m = 0; m < 128; ++m) widened[m] = widened_magnitude<I>(m);
        return widened;
    }();
    HalvesVector quarters[4];
    __builtin_memcpy(quarters, table.data(), sizeof quarters);
    for (; n >= halves; n -= halves, in += halves, out += halves) {
        const HalvesVector x = __builtin_convertvector(read<Bytes>(in), HalvesVector);
        const HalvesVector low = __builtin_shuffle(quarters[0], quarters[1], x);
        const HalvesVector high = __builtin_shuffle(quarters[2], quarters[3], x);
        const HalvesVector y = ((x & 0x40) != 0 ? high : low) | (x & 0x80) << 8;
        __builtin_memcpy(out, &y, sizeof y);
    }
#endif
    FOR_ELEMENTS {
        const uint16_t x = in[i];
        out[i] = static_cast<uint16_t>((x & 0x80) << 8 | widened_magnitude<I>(x & 0x7F));
    }
}

inline void turn(const float* in, ptrdiff_t in_stride, int rows, int columns, float* out,
                 ptrdiff_t out_stride) {
    int i = 0;
    for (; i + block <= rows; i += block)
        for (int j = 0; j < columns; j += block) {
            const int some = columns - j < block ? columns - j : block;
            // Whole vectors may be read where what follows a row's end is still the array's.
            const bool readable =
                (i + block - 1) * in_stride + j + block <= (rows - 1) * in_stride + columns;
            FloatVector x[block];
            for (int r = 0; r < block; ++r) {
                const float* from = in + (i + r) * in_stride + j;
                if (readable) {
                    x[r] = read<FloatVector>(from);
                } else {
                    x[r] = FloatVector{};
                    __builtin_memcpy(&x[r], from, some * sizeof(float));
                }
            }
            transpose<1>(x);
            for (int r = 0; r < some; ++r)
                __builtin_memcpy(out + (j + r) * out_stride + i, &x[r], sizeof x[r]);
        }
    for (; i < rows; ++i)
        for (int j = 0; j < columns; ++j) out[j * out_stride + i] = in[i * in_stride + j];
}
