// Calls that read integers of the run: loops, branches, and copies whose place is known only then.
#pragma once

#include "formats/formats.h"
#include "graph/call.h"
#include "movement/copy.h"

namespace neuronsim {

// An integer in memory.
struct Scalar {
    const char* data;
    DType dtype;
};

// Of dynamic-slice, whose source moves, and of dynamic-update-slice: the window begins at `starts`,
// each clamped to its limit; `strides` are those of the array in which it moves.
struct DynamicCopy {
    CopyCall copy;
    std::vector<Scalar> starts;
    std::vector<int64_t> limits, strides;
    bool moves_source;
};
// Throws std::invalid_argument where a start is no integer.
std::shared_ptr<Call> dynamic_copy_call(DynamicCopy copy);

// `goes_on` and `index` are a bool or an int32. `trips`, an int64, receives the number of each trip
// before its condition.
std::shared_ptr<Call> while_call(Schedule condition, Scalar goes_on, Schedule body, char* trips);
// An index that is no branch's takes the last one.
std::shared_ptr<Call> conditional_call(Scalar index, std::vector<Schedule> branches);

}  // namespace neuronsim
