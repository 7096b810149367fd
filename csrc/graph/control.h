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

// Where a part of an array begins in one dimension: clamped to a limit; the stride is the array's.
struct Start {
    Scalar at;
    int64_t limit, stride;
};
using Starts = std::vector<Start>;
// Of dynamic-slice, whose source moves, and of dynamic-update-slice.
std::shared_ptr<Call> dynamic_copy_call(const Copy& copy, const void* source, void* target,
                                        const Starts& starts, bool moves_source);
// Of dynamic-slice without a copy: lets the memory in which `part` lies be where the window of `array`
// is.
std::shared_ptr<Call> window_call(const char* array, const char* part, const Starts& starts);

// `goes_on` is a bool. `trips`, an int64, receives the number of each trip before its condition.
std::shared_ptr<Call> while_call(Schedule condition, const char* goes_on, Schedule body, char* trips);
// An integer of 32 bits that is `start` in a loop's first trip and then grows by `step`.
struct Counter {
    char* data;
    int64_t start, step;
};
std::shared_ptr<Call> count_call(int64_t count, std::vector<Counter> counters, Schedule body,
                                 char* trips);
// The index is a bool or an int32; one that is no branch's takes the last one.
std::shared_ptr<Call> conditional_call(Scalar index, std::vector<Schedule> branches);

}  // namespace neuronsim
