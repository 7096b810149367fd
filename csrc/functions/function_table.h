// The functions of rule E3 on types of 16 bits or fewer (E5): the results at all encodings.
#pragma once

#include "machine/kernels.h"

namespace neuronsim {

// Looking results up is faster than computing them for each of these types, rsqrt's too
// (bench/functions.py has both: its float32 rows are the computation).
inline bool has_function_table(int op, DType type) {
    return op < op_count && op_rows[op].kind == Kind::function && is_device_float(type) &&
           storage_bytes(type) <= 2;
}

// Stores the function of n elements in storage form, each rounded to nearest into the same type. The
// first call for an operation and a type builds its table.
void look_up(int op, DType type, const char* in, int64_t n, char* out);

}  // namespace neuronsim
