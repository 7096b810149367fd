// Composites over rows by rule R7: float32 steps, every sum by R2, one rounding at the end.
#pragma once

#include <cstdint>
#include <vector>

#include "machine/kernels.h"
#include "movement/view.h"

namespace neuronsim {

enum class Composite : uint8_t {
    softmax,
    log_softmax,
    logsumexp,
    layer_norm,
    rms_norm,
    mean,
    variance,
    standard_deviation,
    vector_norm,  // the Euclidean one
};
inline constexpr const char* composite_names[] = {
    "softmax", "log_softmax", "logsumexp", "layer_norm",  "rms_norm",
    "mean",    "var",         "std",       "vector_norm",
};
constexpr bool keeps_rows(Composite c) {  // gives a row for a row, not one element
    return c == Composite::softmax || c == Composite::log_softmax || c == Composite::layer_norm ||
           c == Composite::rms_norm;
}

struct RowFunction {
    Composite composite;
    DType dtype;          // of the input and the output
    int64_t tile;         // Profile.reduce_tile
    double epsilon;       // of layer_norm and rms_norm
    double divisor;       // of var and std: what the sum of squares is divided by
    const float* weight;  // of layer_norm and rms_norm: as long as a row, or null
    const float* bias;
};

// The view's dimensions are those of the rows (`kept` of them) and then a row's own, in ascending axis
// order. Rounds to nearest and keeps subnormals.
struct ComposeCall {
    RowFunction function;
    std::vector<int64_t> shape;
    int kept;
    View input;

    // `data`: the input, the output, dense row-major with a row or an element for each row, and weight
    // and bias where the function has them. Throws std::bad_alloc.
    void run(char* const* data) const;
};

}  // namespace neuronsim
