// The types in which elements are held while they are computed with.
#pragma once

#include "formats/formats.h"

namespace neuronsim {

// Device floats are held as float32 (E1), integers widened to 64 bits, bool as 0 or 1 unsigned.
enum class Domain : uint8_t { float32, float64, signed_integer, unsigned_integer };
inline constexpr int domain_count = 4;

constexpr Domain domain_of(DType t) {
    if (is_device_float(t)) return Domain::float32;
    if (t == DType::float64) return Domain::float64;
    return is_signed_integer(t) ? Domain::signed_integer : Domain::unsigned_integer;
}

// Whether an element's storage is its domain's form, so that kernels can work in memory.
constexpr bool is_stored_as_computed(DType t) {
    return is_device_float(t) ? storage_bytes(t) == 4 : storage_bytes(t) == 8;
}
constexpr int computed_bytes(DType t) { return domain_of(t) == Domain::float32 ? 4 : 8; }

// How a 64-bit source reaches float32 (C1): the value wanted, or the round-to-odd stepping stone
// from which a second rounding to a narrower format is still the rounding of the exact value.
enum class Narrowing : uint8_t { nearest, odd };

}  // namespace neuronsim
