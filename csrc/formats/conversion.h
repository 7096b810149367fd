// Conversion between the domains of a tile (C1, C5, C6).
// Included inside each instruction set's namespace.

// float64 to float32 by round-to-odd: an inexact result with an even last bit steps to the odd
// neighbour, so that a later rounding to at most 22 bits is the rounding of the exact value (C1).
inline uint32_t to_odd_float32(double x) {
    const float nearest = static_cast<float>(x);
    const double back = nearest;
    const uint32_t bits = bits_as<uint32_t>(nearest);
    const double magnitude = x < 0 ? -x : x;
    const double back_magnitude = back < 0 ? -back : back;
    const uint32_t towards = back_magnitude > magnitude ? bits - 1 : bits + 1;
    return back != x && (bits & 1) == 0 && x == x ? towards : bits;
}

// A 64-bit magnitude as a float64 by round-to-odd: its low 11 bits become one sticky bit.
inline double to_odd_float64(uint64_t magnitude) {
    const uint64_t high = magnitude >> 11 << 11;
    const uint64_t odd = high | (magnitude != high ? 1u << 11 : 0u);
    return static_cast<double>(magnitude >> 53 == 0 ? magnitude : odd);
}

template <Domain D>
void to_float32(void* out, const void* in, int n, Narrowing narrowing) {
    const auto* source = static_cast<const DomainElement<D>*>(in);
    auto* target = static_cast<uint32_t*>(out);
    constexpr bool is_narrow = std::is_integral_v<DomainElement<D>> && sizeof(DomainElement<D>) <= 4;
    if constexpr (is_narrow) {
        if (narrowing == Narrowing::nearest) {
            FOR_ELEMENTS target[i] = bits_as<uint32_t>(static_cast<float>(source[i]));
            return;
        }
    }
    FOR_ELEMENTS {
        double x;
        if constexpr (D == Domain::float64) {
            x = source[i];
        } else if constexpr (is_narrow) {
            x = static_cast<double>(source[i]);
        } else if constexpr (D == Domain::int64) {
            const bool negative = source[i] < 0;
            const double m =
                to_odd_float64(static_cast<uint64_t>(negative ? 0 - source[i] : source[i]));
            x = negative ? -m : m;
        } else {
            x = to_odd_float64(source[i]);
        }
        const uint32_t bits =
            narrowing == Narrowing::odd ? to_odd_float32(x) : bits_as<uint32_t>(static_cast<float>(x));
        target[i] = x == x ? bits : (bits & sign_bit) | canonical_nan;  // C5
    }
}

// float32 to float64: exact, NaN made quiet with its sign (C5).
inline double widen_float(uint32_t bits) {
    const double x = bits_as<float>(bits);
    constexpr uint64_t quiet = 0x7FF8000000000000u;
    return x == x ? x : bits_as<double>(quiet | static_cast<uint64_t>(bits & sign_bit) << 32);
}

template <Domain D>
void to_float64(void* out, const void* in, int n) {
    const auto* source = static_cast<const DomainElement<D>*>(in);
    auto* target = static_cast<double*>(out);
    FOR_ELEMENTS {
        if constexpr (D == Domain::float32) target[i] = widen_float(bits_as<uint32_t>(source[i]));
        else target[i] = static_cast<double>(source[i]);
    }
}

// The nearest integer, ties to even: from 2^23 or 2^52 on every float is one.
template <std::floating_point Float>
inline Float nearest_integer(Float x) {
    constexpr Float limit = sizeof(Float) == 4 ? Float{0x1p23} : Float{0x1p52};
    const Float magnitude = x < 0 ? -x : x;
    const Float rounded = (magnitude + limit) - limit;
    return magnitude < limit ? (x < 0 ? -rounded : rounded) : x;
}

// Truncates toward zero or rounds to nearest, saturates, NaN to 0 (C6); integers wrap.
template <Domain D, DType T>
void to_integer(void* out, const void* in, int n, FloatToInt rounding) {
    constexpr bool is_signed = is_signed_integer(T);
    constexpr int bits = 8 * storage_bytes(T);
    const auto* source = static_cast<const DomainElement<D>*>(in);
    using E = Element<T>;
    auto* target = static_cast<E*>(out);
    if constexpr (D == Domain::float32 || D == Domain::float64) {
        // 2^bits or 2^(bits-1) is a float; the largest integer below it may not be one.
        using Float = std::conditional_t<D == Domain::float32, float, double>;
        constexpr Float half = static_cast<Float>(uint64_t{1} << (bits - 1));
        constexpr Float limit = is_signed ? half : 2 * half;
        constexpr E top = static_cast<E>(~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0)));
        FOR_ELEMENTS {
            Float x = source[i];
            if (rounding == FloatToInt::nearest) x = nearest_integer(x);
            E r;
            if (!(x == x)) r = 0;
            else if (x >= limit) r = top;
            else if constexpr (is_signed) r = x <= -limit ? ~top : static_cast<E>(x);
            else r = x <= 0 ? 0 : static_cast<E>(x);
            target[i] = r;
        }
    } else {
        FOR_ELEMENTS target[i] = static_cast<E>(source[i]);
        round_to<T>(target, n);
    }
}

template <Domain D>
void to_bool(void* out, const void* in, int n) {
    const auto* source = static_cast<const DomainElement<D>*>(in);
    auto* target = static_cast<Element<DType::boolean>*>(out);
    FOR_ELEMENTS target[i] = source[i] != 0;
}
