// Moving elements between strided places, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

namespace neuronsim {

// Elements of `size` bytes; strides in bytes. Source and target do not overlap.
struct Copy {
    std::vector<int64_t> shape, source_strides, target_strides;
    int64_t size;
};

// The same copy with dimensions merged and ordered so that the target is walked in order.
Copy simplified(const Copy& copy);

// The bytes of a simplified copy whose elements lie side by side on both sides; -1 of another.
int64_t row_bytes(const Copy& simplified_copy);

void run_copy(const Copy& simplified_copy, const char* source, char* target);

// A simplified copy with its operands.
struct CopyCall {
    Copy copy;
    const char* source;
    char* target;

    void run(char* const* data) const { run_copy(copy, data[0], data[1]); }
};

}  // namespace neuronsim
