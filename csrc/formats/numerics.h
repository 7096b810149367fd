// The choices of Profile that kernels make, in the form in which they make them.
#pragma once

#include <cstdint>

namespace neuronsim {

enum class Fp8Overflow : uint8_t { inf, nan, saturate };  // C3
enum class FloatToInt : uint8_t { truncate, nearest };    // C6

struct Numerics {
    bool integers_via_float32 = true;             // Profile.int_to_float (C1)
    Fp8Overflow fp8_overflow = Fp8Overflow::inf;  // C3
    bool flush_subnormals = false;                // Profile.subnormals (C4)
    bool stochastic = false;                      // Profile.rounding (S)

    // Whether every rounding is to nearest, with subnormals, to Inf.
    bool plain() const { return fp8_overflow == Fp8Overflow::inf && !flush_subnormals && !stochastic; }
};

}  // namespace neuronsim
