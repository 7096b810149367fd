// Sums of products along lines (M2).
// Included inside each instruction set's namespace.

// a * b + c, rounded once, of single numbers.
inline float fused(float a, float b, float c) {
#if defined(__FMA__)
    return __builtin_fmaf(a, b, c);
#else
    float lanes[Vec::lanes];
    fma(Vec::splat(a), Vec::splat(b), Vec::splat(c)).store(lanes);
    return lanes[0];
#endif
}

// The sums of so many runs of products each, from +0. A few steps of one after a few of another, so
// that they do not wait for each other.
inline void line_sums(const float* const* a, const float* const* b, int count, int64_t steps,
                      float* sums) {
    constexpr int64_t together = 16;
    for (int i = 0; i < count; ++i) sums[i] = 0.0f;
    const auto take = [&](int64_t k, auto n) {
        for (int i = 0; i < count; ++i) {
            const float *const x = a[i] + k, *const y = b[i] + k;
            float sum = sums[i];
            for (int64_t j = 0; j < n; ++j) sum = fused(x[j], y[j], sum);
            sums[i] = sum;
        }
    };
    int64_t k = 0;
    for (; k + together <= steps; k += together) take(k, std::integral_constant<int64_t, together>());
    take(k, steps - k);
}
