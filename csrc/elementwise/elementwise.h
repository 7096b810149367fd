// The kernels of ops.def: each row's body over a tile, in each domain that the row has.
// Included inside each instruction set's namespace.

// A result whose NaN is the canonical one already (E6).
struct Canonical {
    float value;
    operator float() const { return value; }
};
inline uint32_t canonical(float x) { return x == x ? bits_as<uint32_t>(x) : canonical_nan; }
inline uint32_t canonical(Canonical x) { return bits_as<uint32_t>(x.value); }

// E7: a NaN operand gives NaN; +0 is above -0. Operands that are neither above nor below each other
// are equal but perhaps for the sign of zero, which the bits decide.
inline Canonical maximum_float(float a, float b) {
    const float x = a > b ? a : b, y = b > a ? b : a;
    const float either = bits_as<float>(bits_as<uint32_t>(x) & bits_as<uint32_t>(y));
    return {__builtin_isunordered(a, b) ? bits_as<float>(canonical_nan) : either};
}
inline Canonical minimum_float(float a, float b) {
    const float x = a < b ? a : b, y = b < a ? b : a;
    const float either = bits_as<float>(bits_as<uint32_t>(x) | bits_as<uint32_t>(y));
    return {__builtin_isunordered(a, b) ? bits_as<float>(canonical_nan) : either};
}
// The same on every lane of vectors.
template <class V>
    requires(sizeof(V) > sizeof(float) && !std::is_class_v<V>)
inline V maximum_float(V a, V b) {
    typedef uint32_t Bits __attribute__((vector_size(sizeof(V))));
    const V equal = (V)((Bits)a & (Bits)b), nan = (V)(Bits{} + canonical_nan);
    return a > b ? a : b > a ? b : a == b ? equal : nan;
}
template <class V>
    requires(sizeof(V) > sizeof(float) && !std::is_class_v<V>)
inline V minimum_float(V a, V b) {
    typedef uint32_t Bits __attribute__((vector_size(sizeof(V))));
    const V equal = (V)((Bits)a | (Bits)b), nan = (V)(Bits{} + canonical_nan);
    return a < b ? a : b < a ? b : a == b ? equal : nan;
}
template <class T>
inline T clamp_integer(T low, T x, T high) {
    const T raised = x > low ? x : low;
    return raised < high ? raised : high;
}

// TOTALORDER (E7): float32 bits as integers in the order of the values, NaN outermost.
inline int32_t total_order(float a) {
    const int32_t bits = bits_as<int32_t>(a);
    return bits ^ static_cast<int32_t>(static_cast<uint32_t>(bits >> 31) >> 1);
}
inline bool has_sign(float a) { return bits_as<uint32_t>(a) >> 31; }
template <std::integral T>
inline bool has_sign(T a) {
    return a < 0;
}
template <std::integral T>
inline T total_order(T a) {
    return a;
}

// E9: from 2^23 on every float32 is an integer; below, adding 2^23 rounds to one, ties to even.
inline float copysign(float magnitude, float sign) {
    return bits_as<float>((bits_as<uint32_t>(magnitude) & ~sign_bit) |
                          (bits_as<uint32_t>(sign) & sign_bit));
}
inline float magnitude_of(float a) { return copysign(a, 0.0f); }
inline float rint(float a) {
    const float m = magnitude_of(a);
    const float rounded = (m + 0x1p23f) - 0x1p23f;
    return copysign(m < 0x1p23f ? rounded : m, a);
}
inline float floor(float a) {
    const float r = rint(a);
    return copysign(r > a ? r - 1.0f : r, a);
}
inline float trunc(float a) { return copysign(floor(magnitude_of(a)), a); }
inline float round_half_away(float a) {
    const float m = magnitude_of(a), t = floor(m);
    return copysign(m - t >= 0.5f ? t + 1.0f : t, a);
}

// The quotient of integers of 32 bits, or 8, in lanes: half is added to the dividend's magnitude, so
// that what is cut off lies 1 / 2b from the integers at least, and float64 is wrong by less than 2^-20
// / b, or float32 by 2^-14 / b. The reciprocal of a divisor that all lanes share is computed once.
template <std::integral T>
inline T quotient(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        return a / b;
    } else {
        using Float = std::conditional_t<sizeof(T) == 1, float, double>;
        const Float half = a < 0 ? Float{-0.5} : Float{0.5};
        return static_cast<T>((static_cast<Float>(a) + half) * (Float{1} / static_cast<Float>(b)));
    }
}

// E8: x/0 is -1 (all ones), INT_MIN/-1 is INT_MIN; narrower types wrap when rounded.
template <std::integral T>
inline T divide_signed(T a, T b) {
    return b == 0 ? -1 : b == -1 ? 0 - a : quotient(a, b);
}
template <std::integral T>
inline T divide_unsigned(T a, T b) {
    return b == 0 ? ~T{0} : quotient(a, b);
}
template <std::integral T>
inline T remainder_signed(T a, T b) {
    return b == 0 ? a : b == -1 ? 0 : a - quotient(a, b) * b;
}
template <std::integral T>
inline T remainder_unsigned(T a, T b) {
    return b == 0 ? a : a - quotient(a, b) * b;
}
// Python's // and %, 0 for a zero divisor.
template <std::integral T>
inline T modulo_signed(T a, T b) {
    if (b == 0 || b == -1) return 0;
    const T r = remainder_signed(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <std::integral T>
inline T floor_divide_signed(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return 0 - a;
    const T q = quotient(a, b);
    return q - (q * b != a && (a < 0) != (b < 0) ? 1 : 0);
}
inline uint64_t power_unsigned(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent != 0; exponent >>= 1, base *= base)
        if (exponent & 1) result *= base;
    return result;
}
inline int64_t power_signed(int64_t base, int64_t exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    return static_cast<int64_t>(
        power_unsigned(static_cast<uint64_t>(base), static_cast<uint64_t>(exponent)));
}
// The type's own bits of a widened integer: shift amounts and bit counts read them as unsigned (E8).
template <class T>
inline constexpr int width = 8 * sizeof(T);
template <std::unsigned_integral T>
inline T low(T a, int bits) {
    return a << (width<T> - bits) >> (width<T> - bits);
}
template <std::unsigned_integral T>
inline T shift_left(T a, T amount) {
    return amount >= width<T> ? 0 : a << amount;
}
template <std::unsigned_integral T>
inline T shift_right_logical(T a, T amount) {
    return amount >= width<T> ? 0 : a >> amount;
}
template <std::unsigned_integral T>
inline T shift_right(T a, T amount, int bits) {
    using Signed = std::make_signed_t<T>;
    const Signed extended = static_cast<Signed>(a << (width<T> - bits)) >> (width<T> - bits);
    return static_cast<T>(extended >> (amount >= width<T> ? width<T> - 1 : amount));
}
inline uint64_t leading_zeros(uint64_t a, int bits) {
    return static_cast<uint64_t>(a == 0 ? bits : __builtin_clzll(a) - (64 - bits));
}

// The exact division of finite float32 magnitudes, 32 bits of the quotient at a time.
struct Division {
    float remainder;  // fmod: the sign of the dividend
    float floor;      // of the exact quotient, rounded once (E9)
};

inline float scaled(double x, int exponent) {  // x * 2^exponent rounded once to float32; x is exact
    if (exponent > 200) return static_cast<float>(x * 0x1p200);
    return static_cast<float>(x * bits_as<double>(static_cast<uint64_t>(1023 + exponent) << 52));
}

inline Division divided(float a, float b) {
    const float ma = magnitude_of(a), mb = magnitude_of(b);
    const bool negative = (bits_as<uint32_t>(a) ^ bits_as<uint32_t>(b)) >> 31;
    if (!(ma < bits_as<float>(inf_bits)) || !(mb < bits_as<float>(inf_bits)) || mb == 0) {
        const bool whole = ma < bits_as<float>(inf_bits) && mb == bits_as<float>(inf_bits);
        return {whole ? a : bits_as<float>(canonical_nan), a / b};
    }
    if (ma < mb) return {a, negative && ma != 0 ? -1.0f : copysign(0.0f, negative ? -1.0f : 1.0f)};
    // a = sa·2^ea and b = sb·2^eb with integers sa, sb below 2^24.
    const auto significand = [](uint32_t m) {
        return (m & 0x7FFFFF) | (m >> 23 != 0 ? 0x800000u : 0u);
    };
    const auto exponent = [](uint32_t m) { return static_cast<int>(m >> 23 != 0 ? m >> 23 : 1) - 150; };
    const uint32_t bits_a = bits_as<uint32_t>(ma), bits_b = bits_as<uint32_t>(mb);
    const uint64_t divisor = significand(bits_b);
    uint64_t r = significand(bits_a);
    int shift = exponent(bits_a) - exponent(bits_b);
    uint64_t quotient = r / divisor;
    r %= divisor;
    // The quotient's top 30 bits or more, 2^dropped times; what is below: all zeros, all ones, or
    // mixed.
    int dropped = 0;
    bool any_one = false, any_zero = false;
    while (shift > 0) {
        const int step = shift < 32 ? shift : 32;
        const uint64_t digit = (r << step) / divisor;
        r = (r << step) % divisor;
        shift -= step;
        if (quotient < (uint64_t{1} << 30)) {
            quotient = quotient << step | digit;
        } else {
            dropped += step;
            any_one |= digit != 0;
            any_zero |= digit != (uint64_t{1} << step) - 1;
        }
    }
    const float remainder = copysign(scaled(static_cast<double>(r), exponent(bits_b)), a);
    if (negative && r != 0) {  // one further from zero
        const bool carries = dropped == 0 || !any_zero;
        quotient += carries ? 1 : 0;
        any_one = !carries;
    }
    // Of a long quotient one bit stands for all that are cut off, so that float64 holds it.
    if (quotient >> 51 != 0) {
        any_one |= (quotient & 0x7FF) != 0;
        quotient = quotient & ~uint64_t{0x7FF};
        quotient |= any_one ? 0x800 : 0;
    } else if (any_one) {
        quotient = quotient << 2 | 1;
        dropped -= 2;
    }
    return {remainder,
            copysign(scaled(static_cast<double>(quotient), dropped), negative ? -1.0f : 1.0f)};
}

// Python's %: the sign of the divisor; the addition is the one rounding.
inline float modulo(float a, float b) {
    const float r = divided(a, b).remainder;
    if (r == 0) return copysign(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

template <class T>
inline bool is_one_number(const T* x, int n) {
    T differs = 0;
    FOR_ELEMENTS differs |= x[i] ^ x[0];
    return differs == 0;
}

// Absent operands repeat the first: their loads are dead and vanish. An operand may be the result.
#define KERNEL(name, suffix, In, Out, count, statement)                           \
    static void name##_##suffix(void* result, const void* const* operands, int n, \
                                [[maybe_unused]] int bits) {                      \
        auto* out = static_cast<Out*>(result);                                    \
        const auto* pa = static_cast<const In*>(operands[0]);                     \
        const auto* pb = static_cast<const In*>(operands[count > 1 ? 1 : 0]);     \
        const auto* pc = static_cast<const In*>(operands[count > 2 ? 2 : 0]);     \
        FOR_ELEMENTS {                                                            \
            [[maybe_unused]] const In a = pa[i];                                  \
            [[maybe_unused]] const In b = pb[i];                                  \
            [[maybe_unused]] const In c = pc[i];                                  \
            out[i] = static_cast<Out>(statement);                                 \
        }                                                                         \
    }
#define DIVISION_KERNEL(name, suffix, T, statement)                                      \
    static void name##_##suffix(void* result, const void* const* operands, int n, int) { \
        auto* out = static_cast<T*>(result);                                             \
        const auto* pa = static_cast<const T*>(operands[0]);                             \
        const auto* pb = static_cast<const T*>(operands[1]);                             \
        const auto divide = [&](const auto& divisor) {                                   \
            FOR_ELEMENTS {                                                               \
                const T a = pa[i], b = divisor(i);                                       \
                out[i] = static_cast<T>(statement);                                      \
            }                                                                            \
        };                                                                               \
        if (is_one_number(pb, n)) divide([b = pb[0]](int) { return b; });                \
        else divide([pb](int i) { return pb[i]; });                                      \
    }
#define SELECT_KERNEL(suffix, T)                                                         \
    static void select_##suffix(void* result, const void* const* operands, int n, int) { \
        auto* out = static_cast<T*>(result);                                             \
        const auto* condition = static_cast<const Bool*>(operands[0]);                   \
        const auto* b = static_cast<const T*>(operands[1]);                              \
        const auto* c = static_cast<const T*>(operands[2]);                              \
        FOR_ELEMENTS { /* read both ways: masked loads would wait for one another */     \
            const T x = b[i], y = c[i];                                                  \
            out[i] = condition[i] ? x : y;                                               \
        }                                                                                \
    }
#define SELECT_BY_KERNEL(name, suffix, In, body)                                                     \
    static void select_by_##name##_##suffix(void* result, const void* const* operands, int n, int) { \
        auto* out = static_cast<uint32_t*>(result);                                                  \
        const auto *pa = static_cast<const In*>(operands[0]),                                        \
                   *pb = static_cast<const In*>(operands[1]);                                        \
        const auto *px = static_cast<const uint32_t*>(operands[2]),                                  \
                   *py = static_cast<const uint32_t*>(operands[3]);                                  \
        FOR_ELEMENTS {                                                                               \
            [[maybe_unused]] const In a = pa[i], b = pb[i];                                          \
            const uint32_t x = px[i], y = py[i];                                                     \
            out[i] = (body) ? x : y;                                                                 \
        }                                                                                            \
    }

// The float32 bodies of arithmetic on floats, and of some on vectors of them, for what joins many
// values with others (fold.h, store.h).
namespace body {

#define REDUCER(name, f, s, u) ARITHMETIC(name, 2, f, s, u)
#define ARITHMETIC(name, arity, f, s, u)                                              \
    struct name {                                                                     \
        template <class T>                                                            \
        static T apply(T a, [[maybe_unused]] T b = T{}, [[maybe_unused]] T c = T{}) { \
            return f;                                                                 \
        }                                                                             \
    };
#include "ops.def"

}  // namespace body

namespace kernel {

using Bool = Element<DType::boolean>;

template <bool CombinesToo>
void rotate(void* result, const void* const* operands, int n, int bits) {
    auto* out = static_cast<uint32_t*>(result);
    const auto *a = static_cast<const uint32_t*>(operands[0]),
               *b = static_cast<const uint32_t*>(operands[1]);
    FOR_ELEMENTS out[i] = (a[i] << bits | a[i] >> (32 - bits)) ^ (CombinesToo ? b[i] : 0);
}

#define INTEGERS(name, arity, s, u)                    \
    KERNEL(name, int8, int8_t, int8_t, arity, s)       \
    KERNEL(name, uint8, uint8_t, uint8_t, arity, u)    \
    KERNEL(name, int32, int32_t, int32_t, arity, s)    \
    KERNEL(name, uint32, uint32_t, uint32_t, arity, u) \
    KERNEL(name, int64, int64_t, int64_t, arity, s)    \
    KERNEL(name, uint64, uint64_t, uint64_t, arity, u)
#define REDUCER(name, f, s, u) ARITHMETIC(name, 2, f, s, u)
#define ARITHMETIC(name, arity, f, s, u) \
    FLOATING(name, arity, f)             \
    INTEGERS(name, arity, s, u)
#define DIVISION(name, f, s, u)                 \
    FLOATING(name, 2, f)                        \
    DIVISION_KERNEL(name, int8, int8_t, s)      \
    DIVISION_KERNEL(name, uint8, uint8_t, u)    \
    DIVISION_KERNEL(name, int32, int32_t, s)    \
    DIVISION_KERNEL(name, uint32, uint32_t, u)  \
    KERNEL(name, int64, int64_t, int64_t, 2, s) \
    KERNEL(name, uint64, uint64_t, uint64_t, 2, u)
#define FLOATING(name, arity, f) KERNEL(name, float32, float, uint32_t, arity, canonical(f))
#define FUNCTION(name)                                                                       \
    static void name##_float32(void* result, const void* const* operands, int n, int bits) { \
        rounded<math::name, accurate::name>(result, operands, n, bits);                      \
    }
#define INTEGRAL(name, arity, u)                       \
    KERNEL(name, uint8, uint8_t, uint8_t, arity, u)    \
    KERNEL(name, uint32, uint32_t, uint32_t, arity, u) \
    KERNEL(name, uint64, uint64_t, uint64_t, arity, u)
#define BITWISE(name, arity, f, s, u) \
    SIGN(name, arity, f)              \
    INTEGERS(name, arity, s, u)
#define SIGN(name, arity, f) KERNEL(name, float32, uint32_t, uint32_t, arity, f)
#define COMPARISON(name, arity, body)                 \
    KERNEL(name, float32, float, Bool, arity, body)   \
    KERNEL(name, int8, int8_t, Bool, arity, body)     \
    KERNEL(name, uint8, uint8_t, Bool, arity, body)   \
    KERNEL(name, int32, int32_t, Bool, arity, body)   \
    KERNEL(name, uint32, uint32_t, Bool, arity, body) \
    SELECT_BY_KERNEL(name, float32, float, body)      \
    SELECT_BY_KERNEL(name, int32, int32_t, body)      \
    SELECT_BY_KERNEL(name, uint32, uint32_t, body)    \
    KERNEL(name, int64, int64_t, Bool, arity, body)   \
    KERNEL(name, uint64, uint64_t, Bool, arity, body)
#define SELECTION(name)             \
    SELECT_KERNEL(uint8, uint8_t)   \
    SELECT_KERNEL(uint32, uint32_t) \
    SELECT_KERNEL(uint64, uint64_t)
#include "ops.def"
#undef INTEGERS

}  // namespace kernel

#undef DIVISION_KERNEL
#undef KERNEL
#undef SELECT_BY_KERNEL
#undef SELECT_KERNEL
