// Rule E10: keys of the order of arrays, and the stable bottom-up merge sort with any comparator.
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
void sort(const std::vector<int64_t>& shape, const std::vector<View>& operands, const Chain& comparator,
          int64_t* order);

// Integers in the order of n floats, as wide as these: -0 equals +0, and every NaN is the same and the
// largest.
void order_keys(DType dtype, const char* floats, int64_t n, char* keys);

}  // namespace neuronsim
