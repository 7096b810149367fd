// Composites over rows by rule R7: float32 steps, every sum by R2, one rounding at the end.
#pragma once

#include <cstdint>

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

// The input's axes are those of the rows (`kept` of them) and then a row's own, in ascending order.
// Rounds to nearest and keeps subnormals.
struct ComposeCall {
    Composite composite;
    int64_t tile;  // Profile.reduce_tile
    int kept;
    View input;                                 // of the output's type
    double epsilon = 0;                         // of layer_norm and rms_norm
    double divisor = 0;                         // of var and std: what the sum of squares is divided by
    bool has_weight = false, has_bias = false;  // of layer_norm and rms_norm

    // `data`: the input, the output, dense row-major with a row or an element for each row, and the
    // weight and the bias, float32 as long as a row, where it has them. Throws std::bad_alloc.
    void run(char* const* data) const;
};

}  // namespace neuronsim
