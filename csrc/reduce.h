// Reductions by rule R2.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "view.h"

namespace neuronsim {

struct Reduction {
    Op op;
    DType dtype;       // of the elements, the initial value and the result
    int64_t tile;      // Profile.reduce_tile
    bool round_tiles;  // Profile.mixed_precision_accumulation off (R3)
};

// The view's dimensions are the outputs' (`kept` of them) and then the reduced ones in ascending axis
// order. `initial` points to one element of storage; `output` is dense row-major.
void reduce(const Reduction& reduction, const std::vector<int64_t>& shape, int kept, const View& input,
            const char* initial, char* output);

}  // namespace neuronsim
