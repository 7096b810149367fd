// exp, correctly rounded in float32 (E3), and the reduction that tanh shares.
// Proved by exhaustion over all 2^32 inputs: docs/validation.md.

// x = k·ln2/16 + r with |r| <= ln2/32: e^x = 2^(k/16)·(1 + p), p = e^r - 1.
struct ReducedExp {
    double high;  // 2^(k/16) = high + low
    double low;
    double p;
};

inline ReducedExp reduce_exp(double x) {
    constexpr double round_to_integer = 0x1.8p52;
    const double shifted = x * steps_per_unit + round_to_integer;
    const double k = shifted - round_to_integer;
    const int64_t index = bits_as<int64_t>(shifted) - bits_as<int64_t>(round_to_integer);
    // k·step_high and the difference are exact: step_high has 38 bits, k at most 12.
    const double r = (x - k * step_high) - k * step_low;
    // The Taylor series to r^8: the first term left out is below 2^-62 of r.
    double p = 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r;
    const uint64_t exponent = static_cast<uint64_t>(index >> 4) << 52;
    const int64_t j = index & 15;
    return {bits_as<double>(bits_as<uint64_t>(power_high[j]) + exponent),
            power_low[j] * bits_as<double>(bits_as<uint64_t>(1.0) + exponent), p};
}

inline float exp(float x) {
    // Beyond these bounds the result is Inf or below half of the smallest subnormal.
    double y = x;
    y = y > 89.0 ? 89.0 : y;
    y = y < -105.0 ? -105.0 : y;
    const ReducedExp e = reduce_exp(y);
    return static_cast<float>(e.high + (e.low + e.high * e.p));
}
