// What the links of a chain meet: IEEE 754's exceptions, and conversions that saturate.
#pragma once

#include <cstdint>

#include "machine/kernels.h"

namespace neuronsim {

// Elements of one link's results, by what happened to them.
struct Observed {
    int64_t int64_truncated;   // 64-bit integers that are others in 32 bits (C7)
    int64_t outside_range;     // NaN for a number outside the documented input range (E3)
    int64_t overflow;          // Inf from finite operands
    int64_t underflow;         // zero where the exact value is not
    int64_t division_by_zero;  // Inf from finite operands at a pole of the function
    int64_t nan_origin;        // NaN from operands that are none
    int64_t saturated;         // the type's last value in place of one beyond it, or 0 of NaN
};
inline constexpr int observed_count = sizeof(Observed) / sizeof(int64_t);
inline constexpr const char* observed_names[observed_count] = {
    "int64_truncated",  "outside_range", "overflow",  "underflow",
    "division_by_zero", "nan_origin",    "saturated",
};

// Adds what n elements of an operation's rounded results met. `op` is a link's (chain.h), `source`
// the type of its last operand, `flushes` Numerics::flush_subnormals; operands and results are in the
// form of their domains.
void observe(const Kernels& k, int op, DType source, DType result, bool flushes, const void* out,
             const void* const* operands, int n, Observed& seen);

// Whether dense elements of a float type have Inf, NaN or, where asked for, zeros.
bool has_special(DType dtype, const char* data, int64_t count, bool zeros);

// Adds `count` records to those that other threads add to.
void add_observed(const Observed* seen, int64_t count, Observed* total);

}  // namespace neuronsim
