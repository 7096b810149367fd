// The types in which elements are held while they are computed with.
#pragma once

#include "formats/formats.h"

namespace neuronsim {

// Device floats are held as float32 (E1), integers widened to 32 bits or 64, bool as 0 or 1 unsigned.
enum class Domain : uint8_t { float32, float64, int32, uint32, int64, uint64 };
inline constexpr int domain_count = 6;
template <class T>
using ByDomain = By<Domain, domain_count, T>;

constexpr Domain domain_of(DType t) {
    if (is_device_float(t)) return Domain::float32;
    if (t == DType::float64) return Domain::float64;
    const bool wide = storage_bytes(t) == 8;
    if (is_signed_integer(t)) return wide ? Domain::int64 : Domain::int32;
    return wide ? Domain::uint64 : Domain::uint32;
}
constexpr int computed_bytes(DType t) {
    const Domain d = domain_of(t);
    return d == Domain::float64 || d == Domain::int64 || d == Domain::uint64 ? 8 : 4;
}

// Whether an element's storage is its domain's form, so that kernels can work in memory.
constexpr bool is_stored_as_computed(DType t) { return storage_bytes(t) == computed_bytes(t); }

// How a 64-bit source reaches float32 (C1): the value wanted, or the round-to-odd stepping stone
// from which a second rounding to a narrower format is still the rounding of the exact value.
enum class Narrowing : uint8_t { nearest, odd };

}  // namespace neuronsim
