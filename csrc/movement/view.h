// A strided view of N-dimensional storage, and reading runs of its elements into a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/formats.h"
#include "machine/kernels.h"
#include "machine/sizes.h"

namespace neuronsim {

struct View {
    const char* data;
    DType dtype;
    std::vector<int64_t> strides;  // in bytes, one per dimension of the shape it is used with
};

inline int64_t element_count(const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    return n;
}

// The byte offset of a flat index over the dimensions [first, end), which are walked row-major.
inline int64_t offset_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                         int64_t index, size_t end, size_t first = 0) {
    if (end <= first) return 0;
    int64_t offset = 0;
    for (size_t d = end; --d > first; index /= shape[d]) offset += index % shape[d] * strides[d];
    return offset + index * strides[first];  // no division: one dimension is the most
}

// The strides of elements that lie side by side, row-major.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape, int64_t element);

// Merges neighbouring dimensions that are walked as one, and drops those of length 1.
void collapse(std::vector<int64_t>& shape, std::vector<int64_t>& strides);

// Loads the elements [begin, begin + n) of a view of `data` in row-major order, as many as a
// tile holds at the most.
void load_run(const Kernels& k, const std::vector<int64_t>& shape, const View& view, const char* data,
              int64_t begin, int n, void* out);

}  // namespace neuronsim
