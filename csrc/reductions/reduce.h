// Reductions and cumulative functions by rules R1-R4.
#pragma once

#include <cstdint>
#include <vector>

#include "elementwise/rounding.h"
#include "machine/kernels.h"
#include "movement/axes.h"
#include "movement/view.h"

namespace neuronsim {

struct Reduction {
    Op op;
    DType dtype;       // of the elements, the initial value and the result
    DType accumulate;  // float32, or the type to which every step is rounded (R1)
    int64_t tile;      // Profile.reduce_tile
    bool round_tiles;  // Profile.mixed_precision_accumulation off (R3)
    Numerics numerics;

    // How many ids it draws by: that of the last rounding, and those of so many tiles.
    size_t draw_count(int64_t tiles) const {
        return !numerics.stochastic ? 0 : round_tiles ? static_cast<size_t>(1 + tiles) : 1;
    }
};

// A reduction of an array.
struct ReduceCall {
    Reduction reduction;
    Axes outputs, reduced;  // collapsed
    // Cumulative (R4) if above 0: one dimension is reduced, and in the output it lies before so many
    // last elements; element j along it is the reduction of the elements 0 to j, or `backwards` of the
    // last element to j.
    int64_t cumulative_inner;
    bool backwards;

    // The dimensions are the outputs' (`kept` of them) and then the reduced ones in ascending axis
    // order, the strides in bytes.
    ReduceCall(const Reduction& reduction, const std::vector<int64_t>& shape, int kept,
               const std::vector<int64_t>& strides, int64_t cumulative_inner = 0,
               bool backwards = false);
    // `data`: the input, the initial value, which is one element of storage, and the output, dense
    // row-major.
    void run(char* const* data, const Draws& draws) const;
    size_t draw_count() const {
        return reduction.draw_count(blocks(axes_size(reduced), reduction.tile));
    }
};

}  // namespace neuronsim
