// Folds over windows of arrays (R4), and with any computation (R2): acc = computation(acc, element).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "elementwise/chain.h"
#include "reductions/reduce.h"

namespace neuronsim {

// One dimension of a window, as HLO describes it. Padding and dilation holes are not elements.
struct WindowDimension {
    int64_t size, stride, padding_low, base_dilation, window_dilation;
};

struct Windows {
    std::vector<int64_t> input_shape, output_shape;
    std::vector<WindowDimension> dimensions;
};

// A simple reduction of every window, by R2 on its elements in row-major order.
struct WindowsCall {
    Windows windows;
    Reduction reduction;
    View input;

    // `data`: the input, the initial value and the output.
    void run(char* const* data, const Draws& draws) const;
    size_t draw_count() const;
};

// A computation of 2N inputs, the accumulators and the elements, and N outputs, folded over the
// elements in row-major order from the N initial values, each step rounded as it is typed.
struct FoldCall {
    std::shared_ptr<const Chain> computation;
    Windows windows;
    std::vector<View> inputs;

    // `data`: the inputs, the initial values and the outputs.
    void run(char* const* data) const;
};

// Where the element of every window lies that `select` keeps: the elements are scanned in row-major
// order, and the current one stays while select(current, next) holds (R4). `places` receives its
// number in the operand's row-major order, `nowhere` for a window without elements.
void select_windows(const Windows& windows, const Chain& select, const View& input, int64_t* places);

}  // namespace neuronsim
