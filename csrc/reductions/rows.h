// The inner loops of composites (R7) on rows of float32: sums of a row's elements or their centred
// squares in R2's order, many rows at a time, and what is done to each element between the sums.
// Included inside each instruction set's namespace.

struct Plain {
    static FloatVector of(FloatVector x, FloatVector) { return x; }
};
struct CentredSquare {
    static FloatVector of(FloatVector x, FloatVector centre) {
        const FloatVector c = x - centre;
        return c * c;
    }
};

// Adds the elements [from, to) of the block at `at` of every run to its sum.
template <class Term, int Groups>
inline void fold_block(const float* const* begin, int64_t at, int from, int to,
                       const FloatVector* centre, FloatVector* sum) {
    for (int g = 0; g < Groups; ++g) {
        FloatVector x[block];
        for (int i = 0; i < block; ++i) __builtin_memcpy(&x[i], begin[g * block + i] + at, sizeof x[i]);
        transpose<1>(x);
        for (int i = from; i < to; ++i) sum[g] += Term::of(x[i], centre[g]);
    }
}

// Runs of `count` elements begin `stride` elements apart, and each is folded left to right: sums[i] is
// that of run i, whose centre is centres[i]. A lane is a run; lanes past the last one repeat it.
// Meanwhile `fetched` bytes a block are fetched from `ahead` on, in the order that memory likes.
template <class Term, int Groups>
inline void fold_group(const float* data, ptrdiff_t stride, int64_t count, int runs,
                       const float* centres, float* sums, const char* ahead, ptrdiff_t fetched) {
    constexpr int width = Groups * block;
    const float* begin[width];
    alignas(sizeof(FloatVector)) float lanes[width];
    FloatVector centre[Groups], sum[Groups];
    for (int i = 0; i < width; ++i) {
        const int run = i < runs ? i : runs - 1;
        begin[i] = data + run * stride;
        lanes[i] = centres == nullptr ? 0.0f : centres[run];
    }
    __builtin_memcpy(centre, lanes, sizeof centre);
    for (FloatVector& s : sum) s = -FloatVector{};  // -0 and the first element are that element
    int64_t k = 0;
    if (count >= block) {
        // A vector that lies across two cache lines costs both: where all runs begin alike, a part of a
        // block comes first. The last block may overlap the one before it.
        const bool alike =
            stride % block == 0 && reinterpret_cast<uintptr_t>(data) % sizeof(float) == 0;
        const int apart = static_cast<int>(reinterpret_cast<uintptr_t>(data) / sizeof(float) % block);
        if (alike && apart != 0) {
            k = block - apart;
            fold_block<Term, Groups>(begin, 0, 0, static_cast<int>(k), centre, sum);
        }
        for (; k + block <= count; k += block) {
            for (ptrdiff_t i = 0; i < Groups * fetched; i += cache_line)
                __builtin_prefetch(ahead + i, 0, 2);
            ahead += Groups * fetched;
            fold_block<Term, Groups>(begin, k, 0, block, centre, sum);
        }
        if (k < count)
            fold_block<Term, Groups>(begin, count - block, static_cast<int>(block - (count - k)), block,
                                     centre, sum);
    } else {
        for (; k < count; ++k)
            for (int g = 0; g < Groups; ++g) {
                FloatVector x;
                for (int i = 0; i < block; ++i) x[i] = begin[g * block + i][k];
                sum[g] += Term::of(x, centre[g]);
            }
    }
    __builtin_memcpy(lanes, sum, sizeof sum);
    for (int i = 0; i < width && i < runs; ++i) sums[i] = lanes[i];
}

template <class Term>
void fold_rows(const float* data, ptrdiff_t stride, int64_t count, int64_t runs, const float* centres,
               float* sums, const char* ahead, ptrdiff_t fetched) {
    constexpr int most = 2 * block;  // two groups hide the latency of an addition
    for (int64_t run = 0; run < runs;) {
        const int left = static_cast<int>(runs - run < most ? runs - run : most);
        const auto fold = left > block ? fold_group<Term, 2> : fold_group<Term, 1>;
        fold(data + run * stride, stride, count, left, centres == nullptr ? nullptr : centres + run,
             sums + run, ahead, fetched);
        ahead += fetched * (count / block) * ((left + block - 1) / block);
        run += left;
    }
}

// The largest element but for NaN, which makes what follows NaN by itself, and the sign of zero, which
// no exponential shows.
inline float row_maximum(const float* x, int64_t n) {
    constexpr int sequences = 4;
    FloatVector top[sequences];
    for (FloatVector& t : top) t = FloatVector{} - bits_as<float>(inf_bits);
    int64_t i = 0;
    for (; i + sequences * block <= n; i += sequences * block)
        for (int j = 0; j < sequences; ++j) {
            const auto v = read<FloatVector>(x + i + j * block);
            top[j] = v > top[j] ? v : top[j];
        }
    for (int j = 1; j < sequences; ++j) top[0] = top[j] > top[0] ? top[j] : top[0];
    float found = top[0][0];
    for (int j = 1; j < block; ++j) found = top[0][j] > found ? top[0][j] : found;
    for (; i < n; ++i) found = x[i] > found ? x[i] : found;
    return found;
}

// e^(x - top), top being the largest element.
inline void powers_of_row(const float* x, int n, float top, float* out) {
    round_each<math::exp, accurate::exp>(x, n, out, [=](Floats v) { return v - top; });
}
inline void divide_row(const float* x, int n, float divisor, float* out) {
    FOR_ELEMENTS out[i] = bits_as<float>(canonical(x[i] / divisor));
}
inline void subtract_twice(const float* x, int n, float first, float second, float* out) {
    FOR_ELEMENTS out[i] = bits_as<float>(canonical((x[i] - first) - second));
}

// Null for no weight, no bias.
inline void normalize_row(const float* x, int n, float centre, float scale, const float* weight,
                          const float* bias, float* out) {
    const auto run = [&](auto affine) {
        FOR_ELEMENTS out[i] = bits_as<float>(canonical(affine((x[i] - centre) * scale, i)));
    };
    if (weight != nullptr && bias != nullptr)
        run([=](float y, int i) { return y * weight[i] + bias[i]; });
    else if (weight != nullptr) run([=](float y, int i) { return y * weight[i]; });
    else if (bias != nullptr) run([=](float y, int i) { return y + bias[i]; });
    else run([](float y, int) { return y; });
}
