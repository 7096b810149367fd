// Logarithms in float64 lanes, and what is made of them (E3).

// x = 2^k m.
struct Logarithm {
    Doubles k;
    Doubles mantissa;  // ln m
};

// ln m for m from log_offset to twice that; t is what its bits exceed those of log_offset by.
inline Doubles ln_of_mantissa(Doubles m, Integers t) {
    const Integers j = logical_shift_right(t, 48);
    const Doubles r = multiply_add(m, lookup(log_inverses, j), splat(-1.0));
    const Doubles p = polynomial(log_coefficients, r);
    return multiply_add(r, multiply_add(p, r, splat(1.0)), lookup(log_values, j));
}
inline constexpr int64_t log_offset_bits = __builtin_bit_cast(int64_t, log_offset);
inline Logarithm reduce_log(Doubles x) {
    constexpr int64_t exponent = int64_t{0xFFF} << 52;
    const Integers t = bits_of(x) - log_offset_bits;
    const Doubles m = doubles_of(bits_of(x) - (t & exponent));
    // The exponent as an integer above 0 in the low bits of 2^52.
    constexpr int64_t up = 1024;
    constexpr int64_t two_to_52 = __builtin_bit_cast(int64_t, 0x1p52);
    const Integers k = logical_shift_right(t + (up << 52), 52) | two_to_52;
    return {doubles_of(k) - (0x1p52 + up), ln_of_mantissa(m, t)};
}

// What is not above zero and finite is left to the accurate step.
inline Doubles if_positive(Doubles x, Doubles y) {
    return ((x > 0.0) & (x < __builtin_inf())) ? y : splat(__builtin_nan(""));
}
inline Doubles ln_of(Doubles x) {
    const Logarithm l = reduce_log(x);
    return multiply_add(l.k, splat(ln2), l.mantissa);
}
inline Doubles log(Doubles x) { return if_positive(x, ln_of(x)); }
inline Doubles log2(Doubles x) {
    const Logarithm l = reduce_log(x);
    return if_positive(x, multiply_add(l.mantissa, splat(log2_e), l.k));
}
inline Doubles log10(Doubles x) {
    const Logarithm l = reduce_log(x);
    return if_positive(x, multiply_add(l.k, splat(log10_2), l.mantissa * log10_e));
}

// ln(1 + x), x a float32: what 1 + x rounds off is all of a tiny x, and matters only there. (From 2^53
// on the difference below is not what was rounded off.)
inline Doubles log1p(Doubles x) {
    const Doubles sum = 1.0 + x;
    const Doubles rest = x < 1.0 ? x - (sum - 1.0) : splat(0.0);
    return with_sign_of(if_positive(sum, ln_of(sum) + rest), x);
}

// max(x, 0) + ln(1 + u) with u = e^-|x| up to 1.
inline Doubles softplus(Doubles x) {
    const Doubles u = exp_of_minus(magnitude(x)), sum = 1.0 + u;
    const Integers upper = sum >= 2 * log_offset;
    const Doubles m = upper ? 0.5 * sum : sum;
    const Doubles mantissa = ln_of_mantissa(m, bits_of(m) - log_offset_bits);
    const Doubles y = (upper ? mantissa + ln2 : mantissa) + (u - (sum - 1.0));
    return y + (x < 0.0 ? splat(0.0) : x);
}

// The same for any float64 above -1.
inline Doubles ln_of_one_plus(Doubles u) {
    const Doubles sum = 1.0 + u, part = sum - 1.0;
    const Doubles rest = (u - part) + (1.0 - (sum - part));
    return if_positive(sum, ln_of(sum) + (magnitude(u) < 0.5 ? rest : splat(0.0)));
}
inline Doubles asinh(Doubles x) {
    const Doubles a = magnitude(x), square = a * a;
    return with_sign_of(ln_of_one_plus(a + square / (1.0 + square_root(1.0 + square))), x);
}
inline Doubles acosh(Doubles x) {
    const Doubles t = x - 1.0;
    const Doubles y = ln_of_one_plus(t + square_root(t * (t + 2.0)));
    return x < 1.0 ? splat(__builtin_nan("")) : y;
}
inline Doubles atanh(Doubles x) {
    const Doubles a = magnitude(x);
    return with_sign_of(0.5 * ln_of_one_plus((a + a) / (1.0 - a)), x);
}

// x^y. The logarithm's error, 2^-42 of it, comes to 2^-35 of the result, whose exponent is at most 150
// where it is no limit. From 2^24 on every float32 is even.
inline Doubles power(Doubles x, Doubles y) {
    const auto is_integer = [](Doubles v) { return v + round_to_integer - round_to_integer == v; };
    const Doubles a = magnitude(x);
    const Doubles z = exp2(y * (a == 0.0 ? splat(-__builtin_inf()) : log2(a)));
    const Doubles of_negative = is_integer(0.5 * y) ? z : is_integer(y) ? -z : splat(__builtin_nan(""));
    return bits_of(x) < 0 ? of_negative : z;
}
