#include "graph/call.h"

#include <algorithm>
#include <stdexcept>

#include "machine/interrupt.h"

namespace neuronsim {

void Address::place(const std::vector<Standin>& standins) {
    const auto after = std::upper_bound(standins.begin(), standins.end(), recorded_,
                                        [](const char* p, const Standin& s) { return p < s.begin; });
    if (after == standins.begin()) throw std::invalid_argument("a step has memory of its own");
    const Standin& s = *(after - 1);
    memory_ = s.memory;
    offset_ = s.offset + (recorded_ - s.begin);
}

void place_all(const Schedule& schedule, const std::vector<Standin>& standins) {
    for (const auto& call : schedule) call->place(standins);
}

void run_all(const Schedule& schedule, const Run& run, const std::function<void()>& after) {
    constexpr int64_t operations = 1024;  // at least a microsecond, however few the elements
    for (const auto& call : schedule) {
        note_work(operations);
        call->run(run);
        if (after) after();
    }
}

}  // namespace neuronsim
