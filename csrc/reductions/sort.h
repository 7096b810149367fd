// Sorting (E10): by keys, or by stable merges with any comparator; and the places of the first elements
// of lines.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "elementwise/chain.h"
#include "movement/view.h"

namespace neuronsim {

// Sorts the lines along the last dimension of operands of one shape together. The comparator takes
// a left and a right element of each operand in turn and gives a bool: whether the left one comes
// first. `order` receives, in the operands' shape, the index in its line of the element that comes
// there. A merge takes the right element iff comparator(right, left).
void merge_sort(const std::vector<View>& operands, const Chain& comparator, int64_t* order);

// A program of one element of each operand. The left element comes first if its key is below the right
// one's, or `descends`: above. Floats are compared in TOTALORDER if `total`.
struct SortKey {
    std::shared_ptr<const Chain> key;
    bool descends, total;
};

// Operands of one shape sorted together along the last dimension, and moved to the outputs.
struct SortCall {
    // As `merge_sort` takes it; without one the first operand is sorted in the order of arrays: NaN
    // last, -0 equal to +0.
    std::shared_ptr<const Chain> comparator;
    // What the comparator asks: of equal keys it asks for the next ones. Without any, or where a key
    // that is not of TOTALORDER is NaN, it is merged by.
    std::vector<SortKey> keys;
    std::vector<View> operands, outputs;
    bool gives_places = false;  // the sole output has the elements' places in their lines, int64

    // `data`: the operands, then the outputs.
    void run(char* const* data) const;
};

// The first place of the largest element of each line in the order of arrays, or of the smallest; a NaN
// comes before both. The dimensions behind the `kept` ones are a line's.
struct ArgumentCall {
    bool largest;
    int kept;
    View input;
    DType places;  // int32 or int64

    // `data`: the input, and a place for each line.
    void run(char* const* data) const;
};

// The first `count` elements of lines in TOTALORDER, or the last ones from the last if `descends`,
// equal ones by place.
struct TopCall {
    bool descends;
    View input;
    int64_t count;
    DType places;         // int32 or int64
    bool gives_elements;  // beside their places

    // `data`: the input, the places, the elements; the last two are dense.
    void run(char* const* data) const;
};

}  // namespace neuronsim
