// Places in an array that vectors of indices name: what gather and scatter walk.
#pragma once

#include <cstdint>
#include <vector>

#include "movement/copy.h"
#include "movement/view.h"

namespace neuronsim {

// Index vectors in row-major order. `offset` is where a component lies in its vector, in bytes, and
// `limit` the last place where what it names may begin along its dimension; `stride` is that
// dimension's, in the unit in which places are wanted.
struct Indexed {
    struct Dimension {
        int64_t size, indices, array;  // from one index vector to the next, and of the array
        int64_t result;                // and of what is gathered, in bytes
    };
    struct Component {
        int64_t offset, limit, stride;
    };
    std::vector<Dimension> dimensions;
    std::vector<Component> components;
    DType dtype;

    int64_t count() const;
    // The places of n vectors from number `first` on. A component outside of [0, limit] is moved to its
    // end if `clamps`; else there is no place.
    void places(const char* indices, int64_t first, int n, bool clamps, int64_t* found) const;
};

// Slices of an array at the places that index vectors name (R5), each to its own place in the result.
struct GatherCall {
    Indexed indexed;  // places in bytes
    Copy slice;       // simplified

    // `data`: the array, the indices, the result.
    void run(char* const* data) const;
};

}  // namespace neuronsim
