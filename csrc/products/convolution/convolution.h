// Convolution by rule M5: the matrix product on an image that is padded and laid out for it, without
// the matrix of all windows.
#pragma once

#include <cstdint>
#include <vector>

#include "products/product.h"

namespace neuronsim {

struct ConvolutionAxis {  // one spatial dimension
    int64_t input, output, window;
    int64_t stride, padding_low, base_dilation, window_dilation;
    bool reversed;
};

// The arrays' axes in the order (batch, spatial ..., features); the kernel's (spatial ..., input
// features, output features). `features` are those of a group.
struct Convolution {
    std::vector<ConvolutionAxis> spatial;
    int64_t feature_groups, batch_groups;            // at least one of them is 1
    int64_t batch, input_features, output_features;  // of a group
    int32_t padding;  // what stands for padding and holes: of bytes any value, else 0

    // The places of a window.
    int64_t window() const {
        int64_t count = 1;
        for (const ConvolutionAxis& s : spatial) count *= s.window;
        return count;
    }
};

// A convolution with its operands, the input and the kernel.
struct ConvolutionCall : ProductCall {
    Convolution shape;

    void run(char* const* data, const Draws& draws, Observed* observed) const;
};

}  // namespace neuronsim
