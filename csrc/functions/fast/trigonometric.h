// Trigonometric functions and their inverses in float64 lanes (E3).

// x = h pi + r with |r| <= pi/2; `odd` has its sign bit set where floor(h) is odd.
struct Angle {
    Doubles r;
    Integers odd;
};

// Payne and Hanek's reduction of one float32 from 2^23 on: x / pi modulo 2 from those bits of 1 / pi
// that can matter. Leaves r, negated where floor(h) is odd.
inline double reduce_large(float x, bool halves) {
    const uint32_t bits = bits_as<uint32_t>(x);
    if ((bits & ~sign_bit) >= inf_bits) return __builtin_nan("");
    const int exponent = static_cast<int>(bits >> 23 & 0xFF) - 150;  // 0 to 104
    const uint64_t* word = inverse_pi_bits + exponent / 64;
    const int shift = exponent % 64;
    const auto joined = [&](int i) {
        return shift == 0 ? word[i] : word[i] << shift | word[i + 1] >> (64 - shift);
    };
    using Wide = unsigned __int128;
    const Wide significand = (bits & 0x7FFFFF) | 0x800000;
    // The unit is 2^-127; what is above 2 falls away.
    Wide turns = (static_cast<Wide>(joined(0)) << 64 | joined(1)) * significand;
    constexpr Wide half = static_cast<Wide>(1) << 126;
    if (!halves) turns += half;
    const bool odd = turns >> 127 != 0;
    const __int128 fraction = static_cast<__int128>(turns & ((static_cast<Wide>(1) << 127) - 1)) -
                              static_cast<__int128>(half);
    const double r = static_cast<double>(fraction) * 0x1p-127 * 3.14159265358979323846;
    return odd != (bits >> 31 != 0 && !halves) ? -r : r;
}

// h is an integer, or with `halves` half an odd one.
inline Angle reduce_pi(Doubles x, bool halves) {
    constexpr double exact_below = 0x1p23;
    const double half = halves ? 0.5 : 0.0;
    const Doubles shifted = multiply_add(x, splat(inverse_pi), splat(-half)) + round_to_integer;
    const Doubles h = (shifted - round_to_integer) + half;
    Doubles r = multiply_add(h, splat(-pi_parts[0]), x);
    r = multiply_add(h, splat(-pi_parts[1]), r);
    r = multiply_add(h, splat(-pi_parts[2]), r);
    Integers odd = bits_of(shifted) << 63;
    const Integers large = magnitude(x) >= exact_below;
    if (any(large)) [[unlikely]]
        for (int i = 0; i < double_lanes; ++i) {
            if (!large[i]) continue;
            r[i] = reduce_large(static_cast<float>(x[i]), halves);
            odd[i] = 0;
        }
    return {r, odd};
}
inline Doubles sine_of(Angle a) {
    const Doubles z = a.r * a.r;
    const Doubles y = a.r * multiply_add(polynomial(sin_coefficients, z), z, splat(1.0));
    return doubles_of(bits_of(y) ^ a.odd);
}
inline Doubles sin(Doubles x) { return sine_of(reduce_pi(x, false)); }
// cos((n + 1/2) pi + r) = -(-1)^n sin r
inline Doubles cos(Doubles x) { return -sine_of(reduce_pi(x, true)); }
inline Doubles tan(Doubles x) { return sin(x) / cos(x); }

// atan(y / x) for y and x not below zero: atan q = atan(j / 8) + atan((q - j/8) / (1 + q j/8)).
inline Doubles arctangent(Doubles y, Doubles x) {
    const Integers steep = y > x;
    const Doubles q = (steep ? x : y) / (steep ? y : x);
    const Doubles shifted = multiply_add(q, splat(8.0), splat(round_to_integer));
    const Doubles c = (shifted - round_to_integer) * 0.125;
    const Doubles t = (q - c) / multiply_add(q, c, splat(1.0));
    const Doubles z = t * t;
    const Doubles p = t * multiply_add(polynomial(atan_coefficients, z), z, splat(1.0));
    const Doubles angle = lookup(atan_values, bits_of(shifted)) + p;
    return steep ? (half_pi_parts[0] - angle) + half_pi_parts[1] : angle;
}
inline Doubles atan(Doubles x) { return with_sign_of(arctangent(magnitude(x), splat(1.0)), x); }
// pi less an angle.
inline Doubles supplement(Doubles angle) {
    return (2 * half_pi_parts[0] - angle) + 2 * half_pi_parts[1];
}
// The other side of the triangle whose longest is 1.
inline Doubles leg(Doubles a) { return square_root((1.0 - a) * (1.0 + a)); }
inline Doubles asin(Doubles x) {
    const Doubles a = magnitude(x);
    return with_sign_of(arctangent(a, leg(a)), x);
}
inline Doubles acos(Doubles x) {
    const Doubles a = magnitude(x), angle = arctangent(leg(a), a);
    return x < 0.0 ? supplement(angle) : angle;
}
// What stands on no direction, both sides 0 or both infinite, is left to the accurate step.
inline Doubles atan2(Doubles y, Doubles x) {
    const Doubles angle = arctangent(magnitude(y), magnitude(x));
    return with_sign_of(x < 0.0 ? supplement(angle) : angle, y);
}
