// A compiled graph: a schedule of calls on memory that is planned beforehand, run as it stands.
#pragma once

#include "graph/call.h"

namespace neuronsim {

class Executable {
public:
    // `standins`: one for each array that a call was recorded on. `records` is how many there are of
    // all calls, those of loops and branches as well, and `windows` how many of the memories, the last
    // ones, are where calls let them be. Throws std::invalid_argument where a call has other memory.
    Executable(Schedule schedule, std::vector<Standin> standins, size_t records, size_t windows);

    size_t records() const { return records_; }
    // `memories` are those of the stand-ins from number 1 on; memory 0 is everything: offsets in it are
    // addresses. Returns nanoseconds by call if asked to.
    std::vector<int64_t> run(const std::vector<char*>& memories, void* context, Observed* observed,
                             bool timed) const;

private:
    const Schedule schedule_;
    const size_t records_, windows_;
    size_t memories_ = 1;
};

}  // namespace neuronsim
