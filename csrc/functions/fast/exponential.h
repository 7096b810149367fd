// e^x and what is made of it, in float64 lanes (E3).

// Beyond these bounds every function here has reached its limit in float32, while squares of e^x are
// still in float64's range.
inline Doubles bounded(Doubles x) { return clamp(x, -300.0, 300.0); }

// Sixteenths of an octave, or quarters, which AVX2 looks up in a register.
template <const auto& by_sixteenths, const auto& by_quarters>
inline constexpr const auto& by_parts = []() -> const auto& {
    if constexpr (octave_parts == 16) return by_sixteenths;
    else return by_quarters;
}();
inline constexpr const auto& powers = by_parts<powers_of_two, powers_of_two_by_quarters>;
inline constexpr const auto& exp_polynomial = by_parts<exp_coefficients, exp_coefficients_by_quarters>;
inline constexpr const auto& expm1_polynomial =
    by_parts<expm1_coefficients, expm1_coefficients_by_quarters>;
inline constexpr double round_to_part = 0x1.8p52 / octave_parts;

// x = k ln2 + r with k a multiple of such a part, which `shifted` has in its low bits.
struct ReducedExp {
    Doubles shifted, k, r;
};
// The error of float64's ln 2, times a k of up to 450, is 2^-46.
inline ReducedExp reduce_exp(Doubles x) {
    const Doubles shifted = multiply_add(x, splat(log2_e), splat(round_to_part));
    const Doubles k = shifted - round_to_part;
    return {shifted, k, multiply_add(k, splat(-ln2), x)};
}
// e^r = 1 + r (1 + r p(r))
template <int N>
inline Doubles value(ReducedExp e, const double (&coefficients)[N]) {
    const Doubles power = lookup(powers, bits_of(e.shifted));
    const Doubles slope = multiply_add(polynomial(coefficients, e.r), e.r, splat(1.0));
    return scaled(multiply_add(power * e.r, slope, power), e.shifted, e.k);
}
inline Doubles exp(Doubles x) { return value(reduce_exp(bounded(x)), exp_polynomial); }
inline Doubles exp_of_minus(Doubles x) { return value(reduce_exp(-bounded(x)), exp_polynomial); }
inline Doubles exp2(Doubles x) {
    const Doubles y = bounded(x), shifted = y + round_to_part, k = shifted - round_to_part;
    return value({shifted, k, (y - k) * ln2}, exp_polynomial);
}
// From 40 on, where e^x is all, the bits of 1 may be lost.
inline Doubles expm1_of(Doubles x) {
    const ReducedExp e = reduce_exp(clamp(x, -60.0, 300.0));
    const Doubles power = scaled(lookup(powers, bits_of(e.shifted)), e.shifted, e.k);
    const Doubles slope = multiply_add(polynomial(expm1_polynomial, e.r), e.r, splat(1.0));
    return multiply_add(power * e.r, slope, power - 1.0);
}
inline Doubles expm1(Doubles x) { return with_sign_of(expm1_of(x), x); }

inline Doubles sinh(Doubles x) {
    const Doubles e = expm1_of(magnitude(x));
    return with_sign_of(0.5 * (e + e / (e + 1.0)), x);
}
inline Doubles cosh(Doubles x) {
    const Doubles e = exp(magnitude(x));
    return 0.5 * (e + 1.0 / e);
}
// E / (E + 2) with E = e^2x - 1.
inline Doubles tanh(Doubles x) {
    const Doubles e = expm1_of(x + x);
    return with_sign_of(e / (e + 2.0), x);
}

inline Doubles sigmoid(Doubles x) { return 1.0 / (1.0 + exp_of_minus(x)); }
inline Doubles silu(Doubles x) { return x / (1.0 + exp_of_minus(x)); }
inline Doubles gelu_tanh(Doubles x) {
    const Doubles slope = multiply_add(x * x, splat(gelu_tanh_cubic), splat(gelu_tanh_linear));
    return x / (1.0 + exp_of_minus(x * slope));
}
inline Doubles by_1_702(Doubles x) {
    return multiply_add(x, splat(gelu_sigmoid_parts[1]), x * gelu_sigmoid_parts[0]);
}
inline Doubles gelu_sigmoid(Doubles x) { return x / (1.0 + exp_of_minus(by_1_702(x))); }
// tanh(ln(1 + e)) = n / (n + 2) with n = e (e + 2).
inline Doubles mish(Doubles x) {
    const Doubles e = exp(x), n = e * (e + 2.0);
    return greatest(splat(-0x1p128), x) * (n / (n + 2.0));  // -Inf times what vanishes there vanishes
}

// Near the zero of a derivative cancellation is left to the accurate step.
inline Doubles unless_near(Doubles distance, Doubles y) {
    return magnitude(distance) < 0x1p-9 ? splat(__builtin_nan("")) : y;
}
// (1 + e + x e) / (1 + e)^2 with e = e^-x, whose error cancellation makes 2^9 times larger.
inline Doubles silu_dx(Doubles x) {
    const Doubles e = value(reduce_exp(-bounded(x)), expm1_polynomial), sum = 1.0 + e;
    return unless_near(x - silu_dx_root, multiply_add(bounded(x), e, sum) / (sum * sum));
}
inline Doubles gelu_sigmoid_dx(Doubles x) { return silu_dx(by_1_702(x)); }
