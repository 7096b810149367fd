// erf, the normal distribution and what is made of them, in float64 lanes (E3).

// Where a lookup loads single lanes more multiply-adds take less than one for each coefficient.
inline Doubles erf(Doubles x) {
    const Doubles y = clamp(x, -erf_end, erf_end);  // from 3.92 on the result rounds to 1
    if constexpr (looks_up_in_registers) {
        const Doubles a = magnitude(y);
        const Doubles shifted = multiply_add(a, splat(4.0), splat(-0.5)) + round_to_integer;
        const Doubles t = a - multiply_add(shifted - round_to_integer, splat(0.25), splat(0.125));
        return y * piecewise<erf_coefficients>(bits_of(shifted), t);
    } else {
        const Doubles v = multiply_add(y * y, splat(erf_scale), splat(-1.0));
        return y * polynomial_in_quads(erf_whole_coefficients, v);
    }
}
#if defined(__AVX512F__)
// Vectors that are computed side by side: where one waits for a step of its own the others go on, and
// they share what is looked up (measured: one after another they take a third longer).
struct VectorGroup {
    static constexpr int size = 4, elements = size * Vec::lanes;
    FloatVector v[size];
};
template <class F>
inline VectorGroup group_of(const F& f) {
    VectorGroup r;
    for (int i = 0; i < VectorGroup::size; ++i) r.v[i] = f(i);
    return r;
}
inline VectorGroup operator+(const VectorGroup& a, const VectorGroup& b) {
    return group_of([&](int i) { return a.v[i] + b.v[i]; });
}
inline VectorGroup operator-(const VectorGroup& a, const VectorGroup& b) {
    return group_of([&](int i) { return a.v[i] - b.v[i]; });
}
inline VectorGroup operator*(const VectorGroup& a, const VectorGroup& b) {
    return group_of([&](int i) { return a.v[i] * b.v[i]; });
}
inline VectorGroup operator-(const VectorGroup& a) {
    return group_of([&](int i) { return -a.v[i]; });
}
inline VectorGroup fused(const VectorGroup& a, const VectorGroup& b, const VectorGroup& c) {
    return group_of(
        [&](int i) { return floats_of(fma(vec_of(a.v[i]), vec_of(b.v[i]), vec_of(c.v[i]))); });
}
inline VectorGroup splat_group(float x) {
    return group_of([v = floats_of(Vec::splat(x))](int) { return v; });
}

// erf of a group, x (c0 + t (c1 + t ...)), in float32 of which those that count are sums of two. An
// element that may be rounded to another number than the exact value stays x, and gets a bit of the
// result: NaN, what would lose its second part below float32's range, and half a percent of all others.
// `bound` is the error's, relative to the value, which was found to be 2^-32.7 at most
// (docs/validation.md).
[[gnu::noinline]] static uint64_t erf_in_pairs(const float* in, float* out) {
    constexpr float bound = 0x1p-32f, least = 0x1p-149f, tiny = 0x1p-90f;
    const VectorGroup round_to_eighth = splat_group(0x1.8p23f);
    const Vec end = Vec::splat(static_cast<float>(erf_end));
    const VectorGroup x = group_of([&](int i) { return floats_of(Vec::load(in + i * Vec::lanes)); });
    const VectorGroup a = group_of([&](int i) {
        const Vec m = map_bits(vec_of(x.v[i]), [](BitsVector v) { return v & ~sign_bit; });
        return floats_of(least_of(end, m));
    });
    const VectorGroup shifted = fused(a, splat_group(8.0f), splat_group(-0.5f)) + round_to_eighth;
    const VectorGroup t =
        a - fused(shifted - round_to_eighth, splat_group(0.125f), splat_group(0.0625f));
    const auto coefficient = [&](int c) {
        const Table table(erf_pairs[c]);
        return group_of([&](int i) { return floats_of(table.at(vec_of(shifted.v[i]))); });
    };
    VectorGroup y = coefficient(7);
    for (int c = 6; c >= 4; --c) y = fused(y, t, coefficient(c));
    const VectorGroup first = coefficient(2), slope = fused(y, t, first);
    const VectorGroup slope_rest = fused(y, t, first - slope) + coefficient(3);
    const VectorGroup rise = t * slope;
    const VectorGroup rise_rest = fused(t, slope_rest, fused(t, slope, -rise));
    const VectorGroup base = coefficient(0), ratio = base + rise;
    const VectorGroup ratio_rest = ((base - ratio) + rise) + (rise_rest + coefficient(1));
    const VectorGroup high = a * ratio;
    const VectorGroup low = fused(a, ratio_rest, fused(a, ratio, -high));
    const VectorGroup above = high + fused(high, splat_group(bound), low),
                      below = high + fused(high, splat_group(-bound), low);
    uint64_t doubtful = 0;
    for (int i = 0; i < VectorGroup::size; ++i) {
        const Vec y = vec_of((FloatVector)((BitsVector)above.v[i] | ((BitsVector)x.v[i] & sign_bit)));
        const uint32_t lanes = lanes_that_differ(vec_of(above.v[i]), vec_of(below.v[i])) |
                               lanes_within(vec_of(a.v[i]), least, tiny);
        chosen(lanes, vec_of(x.v[i]), y).store(out + i * Vec::lanes);
        doubtful |= uint64_t{lanes} << i * Vec::lanes;
    }
    return doubtful;
}
#endif
inline Doubles erf_dx(Doubles x) { return two_by_sqrt_pi * exp_of_minus(x * x); }

// e^(a^2/2) Phi(-a) for a from 0 to 15: the intervals are four to an octave of a + 1.
inline Doubles scaled_tail(Doubles a) {
    if constexpr (looks_up_in_registers) {
        const Integers j = logical_shift_right(bits_of(a + 1.0), 50) - tail_first;
        return piecewise<tail_coefficients>(j, a - lookup(tail_centres, j));
    } else {
        const Doubles inverse = 1.0 / (a + tail_middle);
        const Doubles t = multiply_add(inverse, splat(-2.0 * tail_middle), splat(1.0));
        return polynomial_in_quads(tail_whole_coefficients, t) * inverse;
    }
}
// Beyond 15 the tail is below float32's range.
inline constexpr double longest_tail = 14.999;
inline Doubles erfc(Doubles x) {
    const Doubles a = least(splat(longest_tail), magnitude(x) * sqrt_2);
    const Doubles tail = 2.0 * scaled_tail(a) * exp_of_minus(x * x);
    return x < 0.0 ? 2.0 - tail : tail;
}
// x Phi(x)
inline Doubles gelu(Doubles x) {
    const Doubles a = least(splat(longest_tail), magnitude(x));
    const Doubles tail = scaled_tail(a) * exp_of_minus(0.5 * (x * x));
    return x * (x > 0.0 ? 1.0 - tail : tail);
}
// Phi(x) + x phi(x), which is phi(a) (R(a) - a) left of zero and 1 less that right of it, with
// R = Phi(-a) / phi(a).
inline Doubles gelu_dx(Doubles x) {
    const Doubles a = least(splat(longest_tail), magnitude(x));
    const Doubles below = exp_of_minus(0.5 * (x * x)) * (scaled_tail(a) - a * inverse_sqrt_2pi);
    return x > 0.0 ? 1.0 - below : unless_near(x - gelu_dx_root, below);
}
