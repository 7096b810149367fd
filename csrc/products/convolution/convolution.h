// Convolution by rule M5: the matrix product on an image that is padded and laid out for it, without
// the matrix of all windows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "products/product.h"

namespace neuronsim {

struct ConvolutionAxis {  // one spatial dimension
    int64_t input, output, window;
    int64_t stride, padding_low, base_dilation, window_dilation;
    bool reversed;

    // How many places the windows of so many outputs reach over.
    int64_t reach(int64_t outputs) const {
        return (outputs - 1) * stride + (window - 1) * window_dilation + 1;
    }
    // The input's element at a place, counted from its first one on with holes; -1 in padding and
    // holes.
    int64_t element_at(int64_t place) const {
        const bool is_there = place >= 0 && place % base_dilation == 0 && place / base_dilation < input;
        return is_there ? place / base_dilation : -1;
    }
    // The input's elements [first, end) on so many places, where its first one lies at `start`.
    std::pair<int64_t, int64_t> elements_on(int64_t places, int64_t start) const {
        return {start < 0 ? ceil_divide(-start, base_dilation) : 0,
                places <= start ? 0 : std::min(input, ceil_divide(places - start, base_dilation))};
    }
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
