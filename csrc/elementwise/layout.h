// How the elements of several arrays of one shape lie in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "movement/view.h"

namespace neuronsim {

// How the elements of a run lie, found out once: each view with its axes collapsed, and whether it is
// dense.
struct Layout {
    Layout(int64_t elements, std::vector<View> inputs);

    int64_t count;
    std::vector<View> views;
    std::vector<char> is_dense;
    // Where all views lie in rows of so many elements, side by side or one for all of a row; else 0.
    int64_t columns;
    struct Rows {
        int64_t stride;  // in bytes, from one to the next
        bool along;
    };
    std::vector<Rows> rows;  // of the views

private:
    int64_t find_rows();
};

}  // namespace neuronsim
