// Roots in float64 lanes (E3).

// One step of Newton's iteration from float32's own square root and quotient: an error of 1.5 units of
// 2^-24 becomes 1.5 times its square, 2^-46.
inline Doubles rsqrt(Doubles x) {
    const Doubles y = widened(1.0f / square_root(narrowed(x)));
    return y * multiply_add(x * y, y * -0.5, splat(1.5));
}

// Halley's iteration, which triples the right digits, from a third of the exponent.
inline Doubles cbrt(Doubles x) {
    const Doubles a = magnitude(x);
    constexpr int64_t two_to_52 = __builtin_bit_cast(int64_t, 0x1p52);
    const Doubles high = doubles_of(logical_shift_right(bits_of(a), 32) | two_to_52) - 0x1p52;
    // Two thirds of the bits of 1, less what makes the error of both signs equal.
    constexpr double bias = 0x2A9F7893;
    const Doubles third = multiply_add(high, splat(1.0 / 3), splat(bias)) + round_to_integer;
    Doubles y = doubles_of(bits_of(third) << 32);
    for (int i = 0; i < 3; ++i) {
        const Doubles cube = y * y * y;
        y = y * (multiply_add(a, splat(2.0), cube) / multiply_add(cube, splat(2.0), a));
    }
    return with_sign_of(a == 0.0 ? a : y, x);
}

// The squares of float32 are exact.
inline Doubles hypot(Doubles x, Doubles y) { return square_root(x * x + y * y); }
