// The axes of an array that a product or a convolution walks: lengths and distances in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace neuronsim {

// One dimension of an array: how long it is and how far apart its elements lie, in bytes.
struct Axis {
    int64_t size, stride;
};
using Axes = std::vector<Axis>;  // row-major: the last one is walked fastest

int64_t axes_size(const Axes& axes);
int64_t axes_offset(const Axes& axes, int64_t index);

// Axes that are walked as one are one; those of length 1 are none. There is always one.
Axes collapsed(const Axes& axes, int64_t element);

// How many elements from `index` on, of those wanted, lie a constant distance apart.
inline int64_t run_length(const Axes& axes, int64_t index, int64_t wanted) {
    const int64_t inner = axes.back().size;
    return std::min(wanted, inner - index % inner);
}

}  // namespace neuronsim
