#include "movement/axes.h"

namespace neuronsim {

int64_t axes_size(const Axes& axes) {
    int64_t n = 1;
    for (const Axis& a : axes) n *= a.size;
    return n;
}

int64_t axes_offset(const Axes& axes, int64_t index) {
    int64_t offset = 0;
    for (size_t d = axes.size(); d-- > 0;) {
        offset += index % axes[d].size * axes[d].stride;
        index /= axes[d].size;
    }
    return offset;
}

Axes collapsed(const Axes& axes, int64_t element) {
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

}  // namespace neuronsim
