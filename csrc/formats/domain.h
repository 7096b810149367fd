// The types in which elements are held while they are computed with.
#pragma once

#include "formats/formats.h"

namespace neuronsim {

// Device floats are held as float32 (E1), integers of 16 bits widened to 32, bool as a byte of 0 or 1.
enum class Domain : uint8_t { float32, float64, int8, uint8, int32, uint32, int64, uint64 };
inline constexpr int domain_count = 8;
template <class T>
using ByDomain = By<Domain, domain_count, T>;

constexpr Domain domain_of(DType t) {
    if (is_device_float(t)) return Domain::float32;
    if (t == DType::float64) return Domain::float64;
    const bool is_signed = is_signed_integer(t);
    switch (storage_bytes(t)) {
        case 1:
            return is_signed ? Domain::int8 : Domain::uint8;
        case 8:
            return is_signed ? Domain::int64 : Domain::uint64;
        default:
            return is_signed ? Domain::int32 : Domain::uint32;
    }
}
constexpr int computed_bytes(DType t) {
    if (is_device_float(t)) return 4;
    return storage_bytes(t) == 2 ? 4 : storage_bytes(t);
}

// Whether an element has the same form in memory as in a tile, so that kernels can write it there.
constexpr bool is_stored_as_computed(DType t) { return storage_bytes(t) == computed_bytes(t); }
// Whether they can read it there too: a bool's byte may be any but zero.
constexpr bool is_read_in_place(DType t) { return is_stored_as_computed(t) && t != DType::boolean; }

// How a 64-bit source reaches float32 (C1): the value wanted, or the round-to-odd stepping stone
// from which a second rounding to a narrower format is still the rounding of the exact value.
enum class Narrowing : uint8_t { nearest, odd };

}  // namespace neuronsim
