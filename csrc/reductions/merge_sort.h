// Rule E10: the stable bottom-up merge sort with any comparator.
#pragma once

#include <cstdint>
#include <vector>

#include "elementwise/chain.h"
#include "movement/view.h"

namespace neuronsim {

// Sorts the slices along the last dimension of operands of one shape together. The comparator takes
// a left and a right element of each operand in turn and gives a bool: whether the left one comes
// first. `order` receives, in the operands' shape, the index in its slice of the element that comes
// there. A merge takes the right element iff comparator(right, left).
void merge_sort(const std::vector<int64_t>& shape, const std::vector<View>& operands,
                const Chain& comparator, int64_t* order);

}  // namespace neuronsim
