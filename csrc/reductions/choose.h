// Reductions of pairs that choose: argmax, argmin and whatever else only compares (R2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "elementwise/chain.h"

namespace neuronsim {

// A computation on two pairs (x, i) and (y, j) whose results are one of x and y, and one of i and j, by
// how x compares with y, and i with j: a table says which.
struct Choice {
    // By 3 * (how x compares) + (how i does): 1 for y, 2 for j. x: below, equal, above, x is NaN, y is,
    // both are; i: below, equal, above.
    std::array<uint8_t, 18> takes;

    // None where the computation does more than that.
    static std::optional<Choice> of(const Chain& computation);
};

// The pairs of the last dimensions from `kept` on, folded in row-major order.
struct ChooseCall {
    Choice choice;
    int kept;
    View values, indices;

    // `data`: the values, the indices, their initial values, their outputs, which are dense.
    void run(char* const* data) const;
};

}  // namespace neuronsim
