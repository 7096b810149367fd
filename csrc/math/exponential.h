// e^x and what is made of it, in float64 lanes (E3).

// Beyond these bounds every function here has reached its limit in float32, while squares of e^x are
// still in float64's range.
inline Doubles bounded(Doubles x) { return clamp(x, -300.0, 300.0); }

// x = k ln2 + r with k a multiple of 1/16: 2^k and e^r - 1.
struct ReducedExp {
    Doubles shifted, k, power, r;
    Doubles minus_one_by_r;
};
inline constexpr double round_to_sixteenth = 0x1.8p48;

inline ReducedExp reduced(Doubles shifted, Doubles k, Doubles r) {
    const Doubles p = polynomial(exp_coefficients, r);
    return {shifted, k, lookup(powers_of_two, bits_of(shifted)), r, multiply_add(p, r, splat(1.0))};
}
// The error of float64's ln 2, times a k of up to 450, is 2^-46.
inline ReducedExp reduce_exp(Doubles x) {
    const Doubles shifted = multiply_add(x, splat(log2_e), splat(round_to_sixteenth));
    const Doubles k = shifted - round_to_sixteenth;
    return reduced(shifted, k, multiply_add(k, splat(-ln2), x));
}
inline Doubles value(ReducedExp e) {
    return scaled(multiply_add(e.power * e.r, e.minus_one_by_r, e.power), e.shifted, e.k);
}
inline Doubles exp(Doubles x) { return value(reduce_exp(bounded(x))); }
// From 40 on, where e^x is all, the bits of 1 may be lost.
inline Doubles expm1_of(Doubles x) {
    const ReducedExp e = reduce_exp(clamp(x, -60.0, 300.0));
    const Doubles power = scaled(e.power, e.shifted, e.k);
    return multiply_add(power * e.r, e.minus_one_by_r, power - 1.0);
}

inline Doubles exp2(Doubles x) {
    const Doubles y = bounded(x);
    const Doubles shifted = y + round_to_sixteenth, k = shifted - round_to_sixteenth;
    return value(reduced(shifted, k, (y - k) * ln2));
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

// x, so that -Inf times what vanishes there vanishes.
inline Doubles finite_below(Doubles x) { return greatest(splat(-0x1p128), x); }

inline Doubles sigmoid(Doubles x) { return 1.0 / (1.0 + exp(-x)); }
inline Doubles silu(Doubles x) { return finite_below(x) / (1.0 + exp(-x)); }
inline Doubles gelu_tanh(Doubles x) {
    const Doubles slope = multiply_add(x * x, splat(gelu_tanh_cubic), splat(gelu_tanh_linear));
    return finite_below(x) / (1.0 + exp(-x * slope));
}
inline Doubles by_1_702(Doubles x) {
    return multiply_add(x, splat(gelu_sigmoid_parts[1]), x * gelu_sigmoid_parts[0]);
}
inline Doubles gelu_sigmoid(Doubles x) { return finite_below(x) / (1.0 + exp(-by_1_702(x))); }
// tanh(ln(1 + e)) = n / (n + 2) with n = e (e + 2).
inline Doubles mish(Doubles x) {
    const Doubles e = exp(x), n = e * (e + 2.0);
    return finite_below(x) * (n / (n + 2.0));
}

// Where a derivative is near its zero at `root`, cancellation is left to the accurate step.
inline Doubles unless_near(Doubles distance, Doubles y) {
    return magnitude(distance) < 0x1p-9 ? splat(__builtin_nan("")) : y;
}
// (1 + e + x e) / (1 + e)^2 with e = e^-x.
inline Doubles silu_dx(Doubles x) {
    const Doubles e = exp(-x), sum = 1.0 + e;
    return unless_near(x - silu_dx_root, multiply_add(bounded(x), e, sum) / (sum * sum));
}
inline Doubles gelu_sigmoid_dx(Doubles x) { return silu_dx(by_1_702(x)); }
