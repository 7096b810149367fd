// Reductions and cumulative functions by rules R1-R4.
#pragma once

#include <cstdint>
#include <vector>

#include "elementwise/rounding.h"
#include "machine/kernels.h"
#include "movement/view.h"

namespace neuronsim {

struct Reduction {
    Op op;
    DType dtype;       // of the elements, the initial value and the result
    DType accumulate;  // float32, or the type to which every step is rounded (R1)
    int64_t tile;      // Profile.reduce_tile
    bool round_tiles;  // Profile.mixed_precision_accumulation off (R3)
    Numerics numerics;
    uint64_t seed;              // of stochastic rounding, with the ids of
    std::vector<uint64_t> ids;  // the last rounding and of each tile's
};

// The view's dimensions are the outputs' (`kept` of them) and then the reduced ones in ascending axis
// order. `initial` points to one element of storage; `output` is dense row-major. Cumulative (R4): one
// dimension is reduced, the last one of the view, and in the output it lies before the last `inner`
// elements; element j along it is the reduction of the elements 0 to j, or `backwards` of the last
// element to j.
void reduce(const Reduction& reduction, const std::vector<int64_t>& shape, int kept, const View& input,
            const char* initial, char* output);
void reduce_cumulative(const Reduction& reduction, const std::vector<int64_t>& shape, const View& input,
                       const char* initial, int64_t inner, bool backwards, char* output);

// A reduction with its operands.
struct ReduceCall {
    Reduction reduction;
    std::vector<int64_t> shape;
    int kept;
    View input;
    const char* initial;
    char* output;
    int64_t cumulative_inner;  // 0: no cumulative function

    void run() const {
        if (cumulative_inner > 0)
            reduce_cumulative(reduction, shape, input, initial, cumulative_inner, false, output);
        else reduce(reduction, shape, kept, input, initial, output);
    }
};

}  // namespace neuronsim
