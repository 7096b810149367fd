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

// What happens to the payload of a NaN: moved bits keep it (E6), a conversion drops it (C5), and the
// results of arithmetic have none, so that rounding a mantissa cannot carry a NaN away.
enum class Payload { keep, drop, none };

// float32 bits to the format's storage bits: one rounding, to nearest even (C2). A NaN keeps its sign
// and, with Payload::keep, the top of its payload, so that a value of the format moves as it is.
template <int I, Payload P>
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
        constexpr uint32_t half = (1u << (drop - 1)) - 1;
        if constexpr (f.exponent_bits == 8) {
            // Adding half a unit less one, plus the parity, carries exactly where RNE rounds up, and
            // carries into Inf by itself (C3); subnormals stay (C4).
            r = (magnitude + half + ((magnitude >> drop) & 1)) >> drop;
        } else {
            constexpr int smallest_exponent = 1 - f.bias;
            constexpr uint32_t rebias = static_cast<uint32_t>(127 - f.bias) << 23;
            // C3: what is beyond encodes like the first number beyond, which is Inf or NaN.
            constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
            constexpr uint32_t beyond = ((f.has_inf ? all_ones : f.nan_bits) << drop) + rebias;
            const uint32_t m = magnitude < beyond ? magnitude : beyond;
            const uint32_t normal = (m + (half - rebias) + ((m >> drop) & 1)) >> drop;
            // A float32 whose unit is the format's subnormal step does the rounding by an addition.
            constexpr uint32_t magic = power_of_two_bits(smallest_exponent + drop);
            const uint32_t subnormal =
                bits_as<uint32_t>(bits_as<float>(m) + bits_as<float>(magic)) - magic;
            r = m < power_of_two_bits(smallest_exponent) ? subnormal : normal;
        }
        r <<= to_storage;
    }
    if constexpr (f.has_inf && P == Payload::keep) {
        constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
        const uint32_t payload = (magnitude & ~inf_bits) >> drop;
        const uint32_t nan = (all_ones | payload) << to_storage;
        return sign | (magnitude <= inf_bits ? r : payload != 0 ? nan : f.nan_bits);
    }
    if constexpr (P == Payload::none && f.exponent_bits == 8) return sign | r;
    return sign | (magnitude > inf_bits ? f.nan_bits : r);
}

inline uint32_t quiet(uint32_t x) {
    return (x & ~sign_bit) > inf_bits ? (x & sign_bit) | canonical_nan : x;
}

// C4: what is below 2^-126 is zero with its sign.
inline uint32_t flushed(uint32_t x) { return (x & inf_bits) == 0 ? x & sign_bit : x; }

// S1: the magnitude in units of the format's grid, with 32 bits of fraction, plus the word; the
// fraction is what is cut off. Overflow is Inf or NaN as under C3.
template <int I>
inline uint32_t encode_stochastic(uint32_t x, uint32_t word) {
    constexpr Format f = formats[I];
    const uint32_t magnitude = x & ~sign_bit;
    if (magnitude >= inf_bits) return encode<I, Payload::drop>(x);
    constexpr int drop = 23 - f.mantissa_bits;
    const int field = static_cast<int>(magnitude >> 23);
    const int exponent = field == 0 ? -126 : field - 127;
    constexpr int smallest = 1 - f.bias;
    const uint64_t significand = (magnitude & 0x7FFFFFu) | (field == 0 ? 0u : 0x800000u);
    const int shift = drop + (exponent < smallest ? smallest - exponent : 0);
    const uint64_t units = shift < 64 ? significand << 32 >> shift : 0;
    const uint64_t steps = (units + word) >> 32;
    // Counting units past the binade's start, which a carry into the next one does too.
    const int binade = exponent < smallest ? 0 : exponent - smallest;
    const uint64_t encoding = steps + (static_cast<uint64_t>(binade) << f.mantissa_bits);
    constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    constexpr uint32_t overflow = f.has_inf ? all_ones : f.nan_bits;
    const uint32_t y = encoding > overflow ? overflow : static_cast<uint32_t>(encoding);
    return (x & sign_bit) >> (32 - 8 * f.storage_bytes) | y << storage_shift(f);
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
        // A subnormal is its mantissa times the format's smallest step. (Multiplying the field by a
        // power of two would do for both, but processors are slow on subnormal float32.)
        constexpr float smallest_step =
            __builtin_bit_cast(float, power_of_two_bits(1 - f.bias - f.mantissa_bits));
        const float subnormal = static_cast<float>(static_cast<int32_t>(field >> up)) * smallest_step;
        const uint32_t normal = field + (static_cast<uint32_t>(127 - f.bias) << 23);
        const uint32_t finite = field < (1u << 23) ? bits_as<uint32_t>(subnormal) : normal;
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

template <Domain D>
struct ElementOf;
template <>
struct ElementOf<Domain::float32> {
    using type = float;
};
template <>
struct ElementOf<Domain::float64> {
    using type = double;
};
template <>
struct ElementOf<Domain::signed_integer> {
    using type = int64_t;
};
template <>
struct ElementOf<Domain::unsigned_integer> {
    using type = uint64_t;
};
template <Domain D>
using DomainElement = typename ElementOf<D>::type;

// Elements that are computed in place, one after the other: the compiler may take them together.
#define FOR_ELEMENTS _Pragma("GCC ivdep") for (int i = 0; i < n; ++i)

template <DType T>
void load(const char* source, ptrdiff_t stride, int n, void* out) {
    using S = typename Storage<storage_bytes(T)>::type;
    constexpr ptrdiff_t size = sizeof(S);
    auto* target = static_cast<Element<T>*>(out);
    if (stride == size && T == DType::float16 && has_float16_conversion) {
        if constexpr (T == DType::float16) {
            for (int i = 0; i < n;) {
                i += decode_float16(source + i * size, n - i, target + i);
                const int end = i + native_block < n ? i + native_block : n;
                for (; i < end; ++i) target[i] = widen<T>(read<S>(source + i * size));
            }
        }
    } else if (stride == size) {
        FOR_ELEMENTS target[i] = widen<T>(read<S>(source + i * size));
    } else if (stride == 0) {
        const auto x = widen<T>(read<S>(source));
        FOR_ELEMENTS target[i] = x;
    } else {
        FOR_ELEMENTS target[i] = widen<T>(read<S>(source + i * stride));
    }
}

template <DType T, Payload P>
inline void store_range(const Element<T>* source, int begin, int end, char* target) {
    using S = typename Storage<storage_bytes(T)>::type;
    _Pragma("GCC ivdep") for (int i = begin; i < end; ++i) {
        S x;
        if constexpr (is_device_float(T) && sizeof(S) < sizeof(float))
            x = static_cast<S>(encode<static_cast<int>(T), P>(source[i]));
        else if constexpr (is_device_float(T)) x = P == Payload::drop ? quiet(source[i]) : source[i];
        else if constexpr (T == DType::float64) x = bits_as<S>(source[i]);
        else x = static_cast<S>(source[i]);
        __builtin_memcpy(target + i * static_cast<ptrdiff_t>(sizeof(S)), &x, sizeof x);
    }
}

template <DType T, Payload P>
void store(const void* in, int n, char* target) {
    const auto* source = static_cast<const Element<T>*>(in);
    constexpr bool native = (T == DType::bfloat16 && has_bfloat16_conversion) ||
                            (T == DType::float16 && has_float16_conversion);
    if constexpr (native) {
        for (int i = 0; i < n;) {
            if constexpr (T == DType::bfloat16) i += encode_bfloat16(source + i, n - i, target + 2 * i);
            else i += encode_float16(source + i, n - i, target + 2 * i);
            const int end = i + native_block < n ? i + native_block : n;
            store_range<T, P>(source, i, end, target);
            i = end;
        }
    } else {
        store_range<T, P>(source, 0, n, target);
    }
}

// Makes elements values of the type: rounds floats (C2-C5), wraps integers (E8).
template <DType T>
void round_to(void* values, int n) {
    if constexpr (is_device_float(T)) {
        constexpr int I = static_cast<int>(T);
        auto* x = static_cast<uint32_t*>(values);
        if constexpr (T != DType::float32)
            FOR_ELEMENTS x[i] = decode<I>(encode<I, Payload::none>(x[i]));
    } else if constexpr (is_signed_integer(T)) {
        constexpr int shift = 64 - 8 * storage_bytes(T);
        auto* x = static_cast<uint64_t*>(values);
        FOR_ELEMENTS x[i] = static_cast<uint64_t>(static_cast<int64_t>(x[i] << shift) >> shift);
    } else if constexpr (T != DType::float64) {
        constexpr uint64_t mask = T == DType::boolean ? 1 : ~uint64_t{0} >> (64 - 8 * storage_bytes(T));
        auto* x = static_cast<uint64_t*>(values);
        FOR_ELEMENTS x[i] &= mask;
    }
}

// float32 to the format as the profile says: C3's field, C4's, and stochastic with a 32-bit word for
// each element (S1), or to nearest without words.
template <DType T>
void round_by(void* values, int n, const Numerics& numerics, const uint32_t* words) {
    constexpr int I = static_cast<int>(T);
    constexpr Format f = formats[I];
    constexpr bool is_fp8 = f.storage_bytes == 1 && f.has_inf;
    auto* out = static_cast<uint32_t*>(values);
    FOR_ELEMENTS {
        const uint32_t x = out[i];
        uint32_t y = encode<I, Payload::drop>(x);
        if (words != nullptr && T != DType::float32) y = encode_stochastic<I>(x, words[i]);
        if constexpr (is_fp8) {
            constexpr uint32_t inf = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
            if ((y & 0x7F) == inf) {
                if (numerics.fp8_overflow == Fp8Overflow::nan) y = (y & 0x80) | f.nan_bits;
                if (numerics.fp8_overflow == Fp8Overflow::saturate && (x & ~sign_bit) < inf_bits)
                    y -= 1;
            }
        }
        y = decode<I>(y);
        if (f.exponent_bits == 8 && numerics.flush_subnormals) y = flushed(y);
        out[i] = y;
    }
}

// C9 in the operand's own encoding: nearest even at `mantissa_bits`, then Inf above the range of
// `exponent_bits` and zero below it.
template <DType T>
void reduce_precision(void* out, const void* in, int n, int exponent_bits, int mantissa_bits) {
    constexpr int I = static_cast<int>(T);
    constexpr Format f = formats[I];
    constexpr uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);
    constexpr uint32_t all_ones = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const auto* x = static_cast<const uint32_t*>(in);
    auto* y = static_cast<uint32_t*>(out);
    const int drop = mantissa_bits < f.mantissa_bits ? f.mantissa_bits - mantissa_bits : 0;
    const bool narrows = exponent_bits < f.exponent_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const uint32_t smallest = narrows ? static_cast<uint32_t>(f.bias - bias + 1) << f.mantissa_bits : 0;
    const uint32_t overflow =
        narrows ? static_cast<uint32_t>(f.bias + bias + 1) << f.mantissa_bits : all_ones;
    FOR_ELEMENTS {
        const uint32_t encoding = encode<I, Payload::drop>(x[i]) >> storage_shift(f);
        const uint32_t magnitude = encoding & (sign - 1);
        const uint32_t half = drop == 0 ? 0 : (1u << (drop - 1)) - 1 + (magnitude >> drop & 1);
        uint32_t r = (magnitude + half) >> drop << drop;
        r = r < smallest ? 0 : r >= overflow ? all_ones : r;
        r = magnitude > all_ones ? magnitude : r;
        y[i] = decode<I>(((encoding & sign) | r) << storage_shift(f));
    }
}

// Makes every NaN quiet and without payload, its sign kept (C5).
inline void canonicalize(void* out, const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    auto* y = static_cast<uint32_t*>(out);
    FOR_ELEMENTS y[i] = quiet(x[i]);
}

inline void flush(void* out, const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    auto* y = static_cast<uint32_t*>(out);
    FOR_ELEMENTS y[i] = flushed(x[i]);
}

inline void restrict_magnitude(void* out, const void* in, int n, float least, float greatest) {
    auto* y = static_cast<uint32_t*>(out);
    const auto* x = static_cast<const uint32_t*>(in);
    const uint32_t low = bits_as<uint32_t>(least), high = bits_as<uint32_t>(greatest);
    FOR_ELEMENTS {
        const uint32_t magnitude = x[i] & ~sign_bit;
        y[i] = magnitude >= low && magnitude <= high ? x[i] : canonical_nan;
    }
}

// Whether a magnitude is below `least`, but for zero if that is `allowed`, or above `greatest`.
inline bool leaves_range(const void* in, int n, float least, float greatest, bool allowed) {
    const auto* x = static_cast<const uint32_t*>(in);
    const uint32_t step = allowed ? 1 : 0;
    uint32_t fewest = ~0u, most = 0;
    FOR_ELEMENTS {
        const uint32_t magnitude = x[i] & ~sign_bit;
        const uint32_t below = magnitude - step;  // an allowed zero is the greatest
        fewest = below < fewest ? below : fewest;
        most = magnitude > most ? magnitude : most;
    }
    return fewest < bits_as<uint32_t>(least) - step || most > bits_as<uint32_t>(greatest);
}

// Whether an element is Inf or NaN, or zero if Zeros. Below zero is above all: one comparison finds
// both.
template <bool Zeros>
bool special(const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    int done;
    if (find_special<Zeros>(x, n, done)) return true;
    constexpr uint32_t step = Zeros ? 1 : 0;
    x += done;
    n -= done;
    uint32_t most = 0;
    FOR_ELEMENTS {
        const uint32_t magnitude = (x[i] & ~sign_bit) - step;
        most = magnitude > most ? magnitude : most;
    }
    return most >= 0x7F800000u - step;
}

// Whether a result is Inf or NaN, or zero where the operand is not.
inline bool exceptional(const void* out, const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    const auto* y = static_cast<const uint32_t*>(out);
    constexpr uint32_t exponent = 0x7F800000u;
    if (!special<true>(out, n)) return false;
    uint32_t found = 0;
    FOR_ELEMENTS {
        const uint32_t magnitude = y[i] & ~sign_bit;
        const uint32_t vanished = magnitude == 0 ? x[i] & ~sign_bit : 0;
        found |= magnitude >= exponent ? magnitude : vanished;
    }
    return found != 0;
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
void to_float32(void* out, const void* in, int n, Narrowing narrowing) {
    const auto* source = static_cast<const DomainElement<D>*>(in);
    auto* target = static_cast<uint32_t*>(out);
    FOR_ELEMENTS {
        double x;
        if constexpr (D == Domain::float64) {
            x = source[i];
        } else if constexpr (D == Domain::signed_integer) {
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

// The nearest integer, ties to even: from 2^52 on every float64 is one.
inline double rint(double x) {
    constexpr double limit = 0x1p52;
    const double magnitude = x < 0 ? -x : x;
    const double rounded = (magnitude + limit) - limit;
    return magnitude < limit ? (x < 0 ? -rounded : rounded) : x;
}

// Truncates toward zero or rounds to nearest, saturates, NaN to 0 (C6); integers wrap.
template <Domain D, DType T>
void to_integer(void* out, const void* in, int n, FloatToInt rounding) {
    constexpr bool is_signed = is_signed_integer(T);
    constexpr int bits = 8 * storage_bytes(T);
    const auto* source = static_cast<const DomainElement<D>*>(in);
    auto* target = static_cast<uint64_t*>(out);
    if constexpr (D == Domain::float32 || D == Domain::float64) {
        // 2^bits or 2^(bits-1) is a float64; the largest integer below it may not be one.
        constexpr double limit = is_signed ? static_cast<double>(uint64_t{1} << (bits - 1))
                                           : 2.0 * static_cast<double>(uint64_t{1} << (bits - 1));
        constexpr uint64_t top = ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
        FOR_ELEMENTS {
            double x = source[i];
            if (rounding == FloatToInt::nearest) x = rint(x);
            uint64_t r;
            if (!(x == x)) r = 0;
            else if (x >= limit) r = top;
            else if constexpr (is_signed)
                r = x <= -limit ? ~top : static_cast<uint64_t>(static_cast<int64_t>(x));
            else r = x <= 0 ? 0 : static_cast<uint64_t>(x);
            target[i] = r;
        }
    } else {
        FOR_ELEMENTS target[i] = static_cast<uint64_t>(source[i]);
        round_to<T>(target, n);
    }
}

template <Domain D>
void to_bool(void* out, const void* in, int n) {
    const auto* source = static_cast<const DomainElement<D>*>(in);
    auto* target = static_cast<uint64_t*>(out);
    FOR_ELEMENTS target[i] = source[i] != 0;
}
