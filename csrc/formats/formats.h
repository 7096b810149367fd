// The number formats of the device, one row each (rule F), and the element types of storage.
#pragma once

#include <cstdint>

namespace neuronsim {

struct Format {
    const char* name;
    int exponent_bits;
    int mantissa_bits;
    int bias;
    bool has_inf;
    uint32_t nan_bits;  // the quiet NaN that arithmetic and conversions produce (C5, E6)
    int storage_bytes;
};

// Rows in the order of DType below.
inline constexpr Format formats[] = {
    {"float32", 8, 23, 127, true, 0x7FC00000u, 4}, {"tfloat32", 8, 10, 127, true, 0x7FC00000u, 4},
    {"bfloat16", 8, 7, 127, true, 0x7FC0u, 2},     {"float16", 5, 10, 15, true, 0x7E00u, 2},
    {"float8_e5m2", 5, 2, 15, true, 0x7Eu, 1},     {"float8_e4m3", 4, 3, 7, true, 0x7Cu, 1},
    {"float8_e3m4", 3, 4, 3, true, 0x78u, 1},      {"float8_e4m3fn", 4, 3, 7, false, 0x7Fu, 1},
};
inline constexpr int format_count = sizeof(formats) / sizeof(formats[0]);

// Element types by storage. The first format_count are the rows above; float64 is a host type.
enum class DType : uint8_t {
    float32,
    tfloat32,
    bfloat16,
    float16,
    float8_e5m2,
    float8_e4m3,
    float8_e3m4,
    float8_e4m3fn,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
    boolean,
};
inline constexpr int dtype_count = static_cast<int>(DType::boolean) + 1;

// A table with an entry for each value of an enumeration, by the value or its number.
template <class E, int N, class T>
struct By {
    T entries[N];
    constexpr T& operator[](E e) { return entries[static_cast<int>(e)]; }
    constexpr const T& operator[](E e) const { return entries[static_cast<int>(e)]; }
    constexpr T& operator[](int i) { return entries[i]; }
    constexpr const T& operator[](int i) const { return entries[i]; }
};
template <class T>
using ByDType = By<DType, dtype_count, T>;
template <class T>
using ByFormat = By<DType, format_count, T>;

inline constexpr ByDType<const char*> dtype_names = {
    "float32",     "tfloat32",      "bfloat16", "float16", "float8_e5m2", "float8_e4m3",
    "float8_e3m4", "float8_e4m3fn", "float64",  "int8",    "int16",       "int32",
    "int64",       "uint8",         "uint16",   "uint32",  "uint64",      "bool",
};

constexpr bool is_device_float(DType t) { return static_cast<int>(t) < format_count; }
constexpr bool is_float(DType t) { return is_device_float(t) || t == DType::float64; }
constexpr bool is_signed_integer(DType t) { return t >= DType::int8 && t <= DType::int64; }
constexpr bool is_unsigned_integer(DType t) { return t >= DType::uint8 && t <= DType::uint64; }
constexpr bool is_integer(DType t) { return is_signed_integer(t) || is_unsigned_integer(t); }

constexpr int storage_bytes(DType t) {
    if (is_device_float(t)) return formats[static_cast<int>(t)].storage_bytes;
    if (t == DType::float64) return 8;
    if (t == DType::boolean) return 1;
    return 1 << ((static_cast<int>(t) - static_cast<int>(DType::int8)) % 4);
}

// Bits below the encoding in its storage: only tfloat32 is stored wider than it is (in a float32).
constexpr int storage_shift(const Format& f) {
    return 8 * f.storage_bytes - (1 + f.exponent_bits + f.mantissa_bits);
}

constexpr bool valid(const Format& f) {
    const uint32_t exponent = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const uint32_t quiet = f.has_inf ? 1u << (f.mantissa_bits - 1) : (1u << f.mantissa_bits) - 1;
    return f.bias == (1 << (f.exponent_bits - 1)) - 1 &&
           f.nan_bits == (exponent | quiet) << storage_shift(f) && storage_shift(f) >= 0;
}
constexpr bool all_valid() {
    for (const Format& f : formats)
        if (!valid(f)) return false;
    return true;
}
static_assert(all_valid(), "a format row contradicts itself");
static_assert(storage_shift(formats[1]) == 13, "tfloat32 leaves the low 13 bits of a float32 zero");
static_assert(storage_bytes(DType::int32) == 4 && storage_bytes(DType::uint64) == 8);

}  // namespace neuronsim
