// The exact sum of products of float32 values (M6).
#pragma once

#include <cstdint>

namespace neuronsim {

class ExactSum {
public:
    void add_product(float a, float b);
    // The sum rounded to odd in float64, to 33 bits or more: one rounding of that to a device type is
    // the exact sum's. An exact zero is +0; NaN where IEEE 754 has an invalid operation.
    double rounded_to_odd() const;

private:
    // The fixed point: digit i counts units of 2^(32 i - 298), 2^-298 being the least product's.
    static constexpr int digits = 20, least_exponent = -298;
    int64_t digit_[digits] = {};
    uint32_t pending_ = 0;  // products since the digits were last brought below 2^32
    bool nan_ = false, plus_inf_ = false, minus_inf_ = false;

    static void carry(int64_t* digit);
};

}  // namespace neuronsim
