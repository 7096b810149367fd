// Updates of single elements, one after the other (R5).
#pragma once

#include <cstdint>
#include <vector>

#include "elementwise/chain.h"

namespace neuronsim {

// Update i of each of N arrays goes to element places[i] of the target of the same number, for i
// ascending; a negative place is skipped. The computation takes the N elements and the N updates and
// gives the N new elements, each rounded as it is typed. `updates` and `targets` are dense.
void scatter(const Chain& computation, int64_t count, const int64_t* places,
             const std::vector<const char*>& updates, const std::vector<char*>& targets);

}  // namespace neuronsim
