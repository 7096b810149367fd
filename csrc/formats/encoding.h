// The encodings of every format: from float32 with one rounding, and back (rules C).
// Included inside each instruction set's namespace.

template <class To, class From>
inline To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}

// A number or a vector that may lie anywhere.
template <class S>
inline S read(const void* p) {
    S x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
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
