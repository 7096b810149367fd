// Encoding and decoding of every format, and conversion between the domains of a tile (rules C).
// Included inside each instruction set's namespace.

template <class To, class From>
inline To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

inline constexpr uint32_t sign_bit = 0x80000000u;
inline constexpr uint32_t inf_bits = 0x7F800000u;
inline constexpr uint32_t canonical_nan = 0x7FC00000u;

// A power of two as float32 bits, within the normal range.
constexpr uint32_t power_of_two_bits(int e) { return static_cast<uint32_t>(e + 127) << 23; }

// float32 bits to the format's storage bits: one rounding, to nearest even (C2). A NaN keeps its sign
// and the top of its payload, so that a value of the format moves as it is (E6).
template <int I>
inline uint32_t encode(uint32_t x) {
    constexpr Format f = formats[I];
    constexpr int drop = 23 - f.mantissa_bits;
    constexpr int to_storage = storage_shift(f);
    const uint32_t magnitude = x & ~sign_bit;
    const uint32_t sign = (x & sign_bit) >> (32 - 8 * f.storage_bytes);
    uint32_t r;
    if constexpr (drop == 0) {
        r = magnitude;
    } else {
        // Adding half a unit less one, plus the parity, carries exactly where RNE rounds up.
        const uint32_t rounded = magnitude + ((1u << (drop - 1)) - 1) + ((magnitude >> drop) & 1);
        if constexpr (f.exponent_bits == 8) {
            r = rounded >> drop;  // overflow carries into Inf by itself (C3), subnormals stay (C4)
        } else {
            constexpr int smallest_exponent = 1 - f.bias;
            constexpr uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
            const uint32_t normal = (rounded - rebias) >> drop;
            // A float32 whose unit is the format's subnormal step does the rounding by an addition.
            constexpr uint32_t magic = power_of_two_bits(smallest_exponent + drop);
            const uint32_t subnormal =
                bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(magic)) - magic;
            constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
            constexpr uint32_t overflow = f.has_inf ? all_ones : f.nan_bits;
            r = magnitude < power_of_two_bits(smallest_exponent) ? subnormal : normal;
            r = r > overflow || magnitude >= inf_bits ? overflow : r;  // C3
        }
        r <<= to_storage;
    }
    if constexpr (f.has_inf) {
        constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
        const uint32_t payload = (magnitude & ~inf_bits) >> drop;
        const uint32_t nan = (all_ones | payload) << to_storage;
        return sign | (magnitude <= inf_bits ? r : payload != 0 ? nan : f.nan_bits);
    }
    return sign | (magnitude > inf_bits ? f.nan_bits : r);
}

// Storage bits to float32 bits: exact, a NaN with its sign and payload (E6).
template <int I>
inline uint32_t decode(uint32_t x) {
    constexpr Format f = formats[I];
    constexpr int up = 23 - f.mantissa_bits;
    constexpr uint32_t encoding_sign = 1u << (8 * f.storage_bytes - 1);
    const uint32_t sign = (x & encoding_sign) << (32 - 8 * f.storage_bytes);
    const uint32_t field = ((x & ~encoding_sign) >> storage_shift(f)) << up;
    if constexpr (f.exponent_bits == 8) {
        return sign | field;
    } else {
        // Multiplying rebiases the exponent and normalises subnormals in one exact step.
        const uint32_t finite =
            bits_as<uint32_t>(bits_as<float>(field) * bits_as<float>(power_of_two_bits(127 - f.bias)));
        if constexpr (f.has_inf) {
            constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << 23;
            return sign | (field >= all_ones ? inf_bits | field : finite);
        } else {
            constexpr uint32_t nan_field = (f.nan_bits >> storage_shift(f)) << up;
            return sign | (field == nan_field ? canonical_nan : finite);
        }
    }
}

template <int Bytes>
struct Storage;
template <>
struct Storage<1> {
    using type = uint8_t;
};
template <>
struct Storage<2> {
    using type = uint16_t;
};
template <>
struct Storage<4> {
    using type = uint32_t;
};
template <>
struct Storage<8> {
    using type = uint64_t;
};

template <class S>
inline S read(const char* p) {
    S x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}

// One storage word as the tile's element; integers are widened with their sign.
template <DType T>
inline auto widen(typename Storage<storage_bytes(T)>::type x) {
    if constexpr (is_device_float(T)) {
        if constexpr (T == DType::float32 || T == DType::tfloat32) return x;
        else return decode<static_cast<int>(T)>(x);
    } else if constexpr (T == DType::float64) {
        return bits_as<double>(x);
    } else if constexpr (T == DType::int8) {
        return static_cast<int64_t>(static_cast<int8_t>(x));
    } else if constexpr (T == DType::int16) {
        return static_cast<int64_t>(static_cast<int16_t>(x));
    } else if constexpr (T == DType::int32) {
        return static_cast<int64_t>(static_cast<int32_t>(x));
    } else if constexpr (T == DType::int64) {
        return static_cast<int64_t>(x);
    } else if constexpr (T == DType::boolean) {
        return static_cast<uint64_t>(x != 0);
    } else {
        return static_cast<uint64_t>(x);
    }
}

template <DType T>
using Element = decltype(widen<T>({}));

template <DType T>
void load(const char* source, ptrdiff_t stride, int n, void* out) {
    using S = typename Storage<storage_bytes(T)>::type;
    auto* target = static_cast<Element<T>*>(out);
    if (stride == static_cast<ptrdiff_t>(sizeof(S))) {
        for (int i = 0; i < n; ++i)
            target[i] = widen<T>(read<S>(source + i * static_cast<ptrdiff_t>(sizeof(S))));
    } else if (stride == 0) {
        const auto x = widen<T>(read<S>(source));
        for (int i = 0; i < n; ++i) target[i] = x;
    } else {
        for (int i = 0; i < n; ++i) target[i] = widen<T>(read<S>(source + i * stride));
    }
}

template <DType T>
void store(const Tile& in, char* target, int n) {
    using S = typename Storage<storage_bytes(T)>::type;
    const auto* source = reinterpret_cast<const Element<T>*>(&in);
    for (int i = 0; i < n; ++i) {
        S x;
        if constexpr (T == DType::float32 || T == DType::tfloat32) x = source[i];
        else if constexpr (is_device_float(T))
            x = static_cast<S>(encode<static_cast<int>(T)>(source[i]));
        else if constexpr (T == DType::float64) x = bits_as<S>(source[i]);
        else x = static_cast<S>(source[i]);
        __builtin_memcpy(target + i * static_cast<ptrdiff_t>(sizeof(S)), &x, sizeof x);
    }
}

// Makes a tile's elements values of the type: rounds floats (C2-C5), wraps integers (E8).
template <DType T>
void round_to(Tile& t, int n) {
    if constexpr (is_device_float(T)) {
        if constexpr (T != DType::float32) {
            constexpr int I = static_cast<int>(T);
            for (int i = 0; i < n; ++i) t.f32_bits[i] = decode<I>(encode<I>(t.f32_bits[i]));
        }
    } else if constexpr (is_signed_integer(T)) {
        constexpr int shift = 64 - 8 * storage_bytes(T);
        for (int i = 0; i < n; ++i) t.i64[i] = static_cast<int64_t>(t.u64[i] << shift) >> shift;
    } else if constexpr (T == DType::boolean) {
        for (int i = 0; i < n; ++i) t.u64[i] &= 1;
    } else if constexpr (is_unsigned_integer(T)) {
        constexpr int shift = 64 - 8 * storage_bytes(T);
        for (int i = 0; i < n; ++i) t.u64[i] = t.u64[i] << shift >> shift;
    }
}

// Makes every NaN quiet and without payload, its sign kept (C5).
inline void canonicalize(Tile& t, int n) {
    for (int i = 0; i < n; ++i) {
        const uint32_t x = t.f32_bits[i];
        t.f32_bits[i] = (x & ~sign_bit) > inf_bits ? (x & sign_bit) | canonical_nan : x;
    }
}

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
void to_float32(Tile& out, const Tile& in, int n, Narrowing narrowing) {
    for (int i = 0; i < n; ++i) {
        double x;
        if constexpr (D == Domain::float64) {
            x = in.f64[i];
        } else if constexpr (D == Domain::signed_integer) {
            const bool negative = in.i64[i] < 0;
            const double m = to_odd_float64(negative ? 0 - in.u64[i] : in.u64[i]);
            x = negative ? -m : m;
        } else {
            x = to_odd_float64(in.u64[i]);
        }
        const uint32_t bits =
            narrowing == Narrowing::odd ? to_odd_float32(x) : bits_as<uint32_t>(static_cast<float>(x));
        const uint32_t sign = bits & sign_bit;
        out.f32_bits[i] = x == x ? bits : sign | canonical_nan;  // C5
    }
}

// float32 to float64: exact, NaN made quiet with its sign (C5).
inline double widen_float(uint32_t bits) {
    const double x = bits_as<float>(bits);
    constexpr uint64_t quiet = 0x7FF8000000000000u;
    return x == x ? x : bits_as<double>(quiet | static_cast<uint64_t>(bits & sign_bit) << 32);
}

template <Domain D>
void to_float64(Tile& out, const Tile& in, int n) {
    for (int i = 0; i < n; ++i) {
        double x;
        if constexpr (D == Domain::float32) x = widen_float(in.f32_bits[i]);
        else if constexpr (D == Domain::signed_integer) x = static_cast<double>(in.i64[i]);
        else x = static_cast<double>(in.u64[i]);
        out.f64[i] = x;
    }
}

// Truncates toward zero and saturates, NaN to 0 (C6); integers wrap.
template <Domain D, DType T>
void to_integer(Tile& out, const Tile& in, int n) {
    constexpr bool is_signed = is_signed_integer(T);
    constexpr int bits = 8 * storage_bytes(T);
    if constexpr (D == Domain::float32 || D == Domain::float64) {
        // 2^bits or 2^(bits-1) is a float64; the largest integer below it may not be one.
        constexpr double limit = is_signed ? static_cast<double>(uint64_t{1} << (bits - 1))
                                           : 2.0 * static_cast<double>(uint64_t{1} << (bits - 1));
        constexpr uint64_t top = ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
        for (int i = 0; i < n; ++i) {
            double x;
            if constexpr (D == Domain::float32) x = in.f32[i];
            else x = in.f64[i];
            uint64_t r;
            if (!(x == x)) r = 0;
            else if (x >= limit) r = top;
            else if constexpr (is_signed)
                r = x <= -limit ? ~top : static_cast<uint64_t>(static_cast<int64_t>(x));
            else r = x <= 0 ? 0 : static_cast<uint64_t>(x);
            out.u64[i] = r;
        }
    } else {
        for (int i = 0; i < n; ++i) out.u64[i] = in.u64[i];
        round_to<T>(out, n);
    }
}

template <Domain D>
void to_bool(Tile& out, const Tile& in, int n) {
    for (int i = 0; i < n; ++i) {
        if constexpr (D == Domain::float32) out.u64[i] = (in.f32_bits[i] & ~sign_bit) != 0;
        else if constexpr (D == Domain::float64) out.u64[i] = in.f64[i] != 0;
        else out.u64[i] = in.u64[i] != 0;
    }
}
