// A strided view of N-dimensional storage, and reading runs of its elements into a tile.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/formats.h"
#include "machine/kernels.h"
#include "machine/sizes.h"
#include "movement/axes.h"
#include "movement/copy.h"

namespace neuronsim {

struct View {
    const char* data;
    DType dtype;
    Axes axes;
};

inline int64_t element_count(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
}

// The strides of elements that lie side by side, row-major.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape, int64_t element);

// The copy of elements at such axes to where they lie so.
Copy dense_copy(const Axes& axes, int64_t element);

// Loads the elements [begin, begin + n) of a view of `data`, whose axes are collapsed, in row-major
// order, as many as a tile holds at the most.
void load_run(const Kernels& k, const View& view, const char* data, int64_t begin, int n, void* out);

}  // namespace neuronsim
