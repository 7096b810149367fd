// Calls that read integers of the run: loops, branches, and copies whose place is known only then.
#pragma once

#include "formats/formats.h"
#include "graph/call.h"
#include "movement/copy.h"

namespace neuronsim {

// An integer in memory.
class Scalar {
public:
    Scalar(const char* data, DType dtype) : dtype_(dtype), at_(data) {}
    void place(const std::vector<Standin>& standins) { at_.place(standins); }
    // Clamped to [0, limit]; throws std::invalid_argument where the type is no integer.
    int64_t clamped(char* const* memories, int64_t limit) const;
    // Of a bool or an int32.
    int64_t value(char* const* memories) const;

private:
    DType dtype_;
    Address at_;
};

// Of dynamic-slice, whose source moves, and of dynamic-update-slice: the window begins at `starts`,
// each clamped to its limit; `strides` are those of the array in which it moves.
struct DynamicCopy {
    Copy copy;
    std::vector<Scalar> starts;
    std::vector<int64_t> limits, strides;
    bool moves_source;
};
std::shared_ptr<Call> placed(DynamicCopy copy, const char* source, char* target);

// `trips`, an int64, receives the number of each trip before its condition.
std::shared_ptr<Call> while_call(Schedule condition, Scalar goes_on, Schedule body, char* trips);
// An index that is no branch's takes the last one.
std::shared_ptr<Call> conditional_call(Scalar index, std::vector<Schedule> branches);

}  // namespace neuronsim
