// Reductions and cumulative functions by rules R1-R4.
#pragma once

#include <cstdint>
#include <memory>
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

struct ReducePlan;

// A reduction with its operands. The view's dimensions are the outputs' (`kept` of them) and then the
// reduced ones in ascending axis order.
struct ReduceCall {
    Reduction reduction;
    std::vector<int64_t> shape;
    int kept;
    View input;
    const char* initial;  // one element of storage
    char* output;         // dense row-major
    // Cumulative (R4) if above 0: one dimension is reduced, the last one of the view, and in the output
    // it lies before so many last elements; element j along it is the reduction of the elements 0 to j,
    // or `backwards` of the last element to j.
    int64_t cumulative_inner = 0;
    bool backwards = false;
    std::shared_ptr<const ReducePlan> plan = nullptr;  // how the elements are walked, once it is known

    ReduceCall planned() const;
    void run() const;
};

}  // namespace neuronsim
