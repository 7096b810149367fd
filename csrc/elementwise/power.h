// Powers whose exponent is the same number everywhere, as models have them: the bits are those of the
// kernels of any exponents (E4, E8), which take several times as long.
// Included inside each instruction set's namespace.

// In float64 the square is exact and the cube off by 2^-53 of itself.
inline Doubles cube(Doubles x, Doubles) { return x * x * x; }
// A root is off by as much, and its reciprocal by twice that. -0 has +0's.
inline Doubles reciprocal_root(Doubles x, Doubles) { return 1.0 / square_root(x + 0.0); }

static void power_float32(void* result, const void* const* operands, int n, int bits) {
    constexpr int near = 50;
    const auto* exponents = static_cast<const uint32_t*>(operands[1]);
    const void* const twice[] = {operands[0], operands[0], operands[0]};
    const float exponent = is_one_number(exponents, n) ? bits_as<float>(exponents[0]) : 0.0f;
    if (exponent == 2.0f) return kernel::multiply_float32(result, twice, n, bits);
    if (exponent == -1.0f) return kernel::reciprocal_float32(result, twice, n, bits);
    if (exponent == 3.0f) return rounded_pair<cube, accurate::power, near>(result, operands, n, bits);
    if (exponent == -0.5f)
        return rounded_pair<reciprocal_root, accurate::power, near>(result, operands, n, bits);
    if (exponent != 0.5f)
        return rounded_pair<math::power, accurate::power, 34>(result, operands, n, bits);
    // sqrt but for -0 and -Inf.
    auto* out = static_cast<uint32_t*>(result);
    const auto* a = static_cast<const float*>(operands[0]);
    FOR_ELEMENTS {
        const float x = a[i] == -bits_as<float>(inf_bits) ? -a[i] : a[i] + 0.0f;
        out[i] = canonical(__builtin_sqrtf(x));
    }
}

// By squares, all elements side by side.
template <class T, void (*Any)(void*, const void* const*, int, int)>
void power_integers(void* result, const void* const* operands, int n, int bits) {
    auto* out = static_cast<T*>(result);
    const auto *a = static_cast<const T*>(operands[0]), *b = static_cast<const T*>(operands[1]);
    for (; n > tile_elements; n -= tile_elements) {
        const void* const some[] = {a, b, b};
        power_integers<T, Any>(out, some, tile_elements, bits);
        out += tile_elements, a += tile_elements, b += tile_elements;
    }
    const void* const rest[] = {a, b, b};
    if (!is_one_number(b, n) || b[0] < 0) return Any(out, rest, n, bits);
    T base[tile_elements];
    const auto square = [&] { FOR_ELEMENTS base[i] *= base[i]; };
    T exponent = b[0];
    if (exponent == 0) {
        FOR_ELEMENTS out[i] = 1;
        return;
    }
    FOR_ELEMENTS base[i] = a[i];
    for (; exponent % 2 == 0; exponent /= 2) square();
    FOR_ELEMENTS out[i] = base[i];
    while ((exponent /= 2) != 0) {
        square();
        if (exponent % 2 != 0) FOR_ELEMENTS out[i] *= base[i];
    }
}
