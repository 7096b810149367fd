// tanh, correctly rounded in float32 (E3): E / (E + 2) with E = e^2|x| - 1.
// Proved by exhaustion over all 2^32 inputs: docs/validation.md.

inline float tanh(float x) {
    const uint32_t bits = bits_as<uint32_t>(x);
    const float magnitude = bits_as<float>(bits & ~sign_bit);
    // tanh(10) rounds to 1.
    double y = magnitude;
    y = y > 10.0 ? 20.0 : 2.0 * y;
    const ReducedExp e = reduce_exp(y);
    // high - 1 is exact for small results, where the relative error matters.
    const double minus_one = (e.high - 1.0) + (e.low + e.high * e.p);
    const float result = static_cast<float>(minus_one / (minus_one + 2.0));
    return bits_as<float>((bits_as<uint32_t>(result) & ~sign_bit) | (bits & sign_bit));
}
