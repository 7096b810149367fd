// 1/sqrt(x), correctly rounded in float32 (E3); at -0 it is -Inf.
// Proved by exhaustion over all 2^32 inputs: docs/validation.md.

inline float rsqrt(float x) {
    const double root = __builtin_sqrt(static_cast<double>(x));  // keeps the sign of zero
    return static_cast<float>(1.0 / root);
}
