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

inline int64_t axes_size(const Axes& axes) {
    int64_t n = 1;
    for (const Axis& a : axes) n *= a.size;
    return n;
}

inline int64_t axes_offset(const Axes& axes, int64_t index) {
    int64_t offset = 0;
    for (size_t d = axes.size(); d-- > 0;) {
        offset += index % axes[d].size * axes[d].stride;
        index /= axes[d].size;
    }
    return offset;
}

// Axes that are walked as one are one; those of length 1 are none. There is always one.
inline Axes collapsed(const Axes& axes, int64_t element) {
    Axes out;
    for (const Axis& a : axes) {
        if (a.size == 1) continue;
        if (!out.empty() && out.back().stride == a.stride * a.size)
            out.back() = {out.back().size * a.size, a.stride};
        else out.push_back(a);
    }
    if (out.empty()) out.push_back({1, element});
    return out;
}

// How many elements from `index` on, of those wanted, lie a constant distance apart.
inline int64_t run_length(const Axes& axes, int64_t index, int64_t wanted) {
    const int64_t inner = axes.back().size;
    return std::min(wanted, inner - index % inner);
}

}  // namespace neuronsim
