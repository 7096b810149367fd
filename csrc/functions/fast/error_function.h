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
// erf of a vector, x (c0 + t (c1 + t ...)), in float32 of which those that count are sums of two; false
// where one of them may be rounded to another number than the exact value: NaN, what would lose its
// second part below float32's range, and a tenth of all vectors. `bound` is the error's, relative to
// the value, which was found to be 2^-32.7 at most (docs/validation.md).
inline bool erf_in_pairs(Vec x, float* out) {
    constexpr float bound = 0x1p-32f, least = 0x1p-149f, tiny = 0x1p-90f;
    constexpr float round_to_eighth = 0x1.8p23f;
    const auto fused = [](FloatVector a, FloatVector b, FloatVector c) {
        return floats_of(fma(vec_of(a), vec_of(b), vec_of(c)));
    };
    const auto splat = [](float y) { return floats_of(Vec::splat(y)); };
    const FloatVector end = splat(static_cast<float>(erf_end));
    FloatVector a = floats_of(map_bits(x, [](BitsVector v) { return v & ~sign_bit; }));
    a = a > end ? end : a;
    const FloatVector shifted = fused(a, splat(8.0f), splat(-0.5f)) + round_to_eighth;
    const FloatVector t = a - fused(shifted - round_to_eighth, splat(0.125f), splat(0.0625f));
    const auto coefficient = [&](int i) { return floats_of(lookup(erf_pairs[i], vec_of(shifted))); };
    FloatVector y = coefficient(7);
    for (int i = 6; i >= 4; --i) y = fused(y, t, coefficient(i));
    const FloatVector first = coefficient(2), slope = fused(y, t, first);
    const FloatVector slope_rest = fused(y, t, first - slope) + coefficient(3);
    const FloatVector rise = t * slope;
    const FloatVector rise_rest = fused(t, slope_rest, fused(t, slope, -rise));
    const FloatVector base = coefficient(0), ratio = base + rise;
    const FloatVector ratio_rest = ((base - ratio) + rise) + (rise_rest + coefficient(1));
    const FloatVector high = a * ratio;
    const FloatVector low = fused(a, ratio_rest, fused(a, ratio, -high));
    const FloatVector above = high + fused(high, splat(bound), low),
                      below = high + fused(high, splat(-bound), low);
    if (any_differs(vec_of(above), vec_of(below)) | any_within(vec_of(a), least, tiny)) return false;
    const BitsVector sign = (BitsVector)floats_of(x) & sign_bit;
    vec_of((FloatVector)((BitsVector)above | sign)).store(out);
    return true;
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
