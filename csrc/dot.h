// The matrix product by rules M1-M4 and M7: packing, blocking and the split over threads.
#pragma once

#include <cstdint>

#include "rounding.h"
#include "view.h"

namespace neuronsim {

struct DotShape {
    int64_t batch, rows, depth, columns;
};

// a is [batch, rows, depth], b is [batch, depth, columns], output is dense [batch, rows, columns] of
// type `result`. Both operands are float types and so is the result (M2, M4), or all are integers or
// bool and the sum wraps in the result's type (M7).
void dot(const DotShape& shape, const View& a, const View& b, DType result, int64_t tile,
         const Numerics& numerics, Draw draw, char* output);

}  // namespace neuronsim
