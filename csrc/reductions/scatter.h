// Updates of single elements, one after the other (R5).
#pragma once

#include <cstdint>
#include <memory>

#include "elementwise/chain.h"
#include "movement/indexed.h"
#include "reductions/window.h"

namespace neuronsim {

// Rows of updates at the places that index vectors name, all of a row or nothing of it: the updates,
// which are dense, are rows in the order of the index vectors, and those of a row go to neighbours. The
// computation takes the N elements and the N updates and gives the N new elements, each rounded as it
// is typed.
struct ScatterCall {
    std::shared_ptr<const Chain> computation;
    Indexed indexed;  // places in elements
    int64_t row;

    // `data`: the indices, then the updates and the targets, as many as the computation gives.
    void run(char* const* data) const;

private:
    bool is_one_word() const;
};

// The source's elements to the targets' elements that `select` keeps in the windows (R4).
struct SelectAndScatterCall {
    std::shared_ptr<const Chain> select, computation;
    Windows windows;
    View input;

    // `data`: the operand, the source, which is dense, and the target.
    void run(char* const* data) const;
};

}  // namespace neuronsim
