#include "graph/executable.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "graph/body.h"
#include "machine/fpenv.h"
#include "machine/interrupt.h"

namespace neuronsim {

void Address::place(const std::vector<Standin>& standins) {
    const auto* const recorded = reinterpret_cast<const char*>(static_cast<intptr_t>(offset));
    const auto after = std::upper_bound(standins.begin(), standins.end(), recorded,
                                        [](const char* p, const Standin& s) { return p < s.begin; });
    if (after == standins.begin()) throw std::invalid_argument("a step has memory of its own");
    const Standin& s = *(after - 1);
    *this = {static_cast<int>(s.memory), s.offset + (recorded - s.begin)};
}

void place_all(const Schedule& schedule, const std::vector<Standin>& standins) {
    for (const auto& call : schedule) {
        if (call->draw_count() > 0) throw std::invalid_argument("a schedule draws no random words");
        if (call->is_placed()) throw std::invalid_argument("a step is of one executable");
        call->place(standins);
    }
}

void run_all(const Schedule& schedule, const Run& run) {
    constexpr int64_t operations = 1024;  // as many as a microsecond's, however few the elements
    note_work(operations * static_cast<int64_t>(1 + schedule.size()));
    for (const auto& call : schedule) call->run(run);
}

Executable::Executable(Schedule schedule, std::vector<Standin> standins, size_t records, size_t windows)
    : schedule_(std::move(schedule)), records_(records), windows_(windows) {
    for (const Standin& s : standins) memories_ = std::max(memories_, s.memory + 1);
    std::sort(standins.begin(), standins.end(),
              [](const Standin& a, const Standin& b) { return a.begin < b.begin; });
    place_all(schedule_, standins);
}

std::vector<int64_t> Executable::run(const std::vector<char*>& given, void* context, Observed* observed,
                                     bool timed) const {
    alignas(64) char scratch[Body::scratch_bytes];
    std::vector<char*> memories(2 + given.size() + windows_);
    memories[0] = scratch;  // before memory 0
    std::copy(given.begin(), given.end(), memories.begin() + 2);
    if (memories.size() < 1 + memories_) throw std::invalid_argument("a memory is missing");
    bool by_steps = true;
    for (const char* p : given)
        by_steps = by_steps && reinterpret_cast<uintptr_t>(p) % alignof(uint32_t) == 0;
    const Run run{memories.data() + 1, context, observed, {}, by_steps};
    const PinnedEnvironment pinned;
    std::vector<int64_t> times;
    if (!timed) {
        run_all(schedule_, run);
        return times;
    }
    using Clock = std::chrono::steady_clock;
    Clock::time_point last = Clock::now();
    for (const auto& call : schedule_) {
        call->run(run);
        const Clock::time_point now = Clock::now();
        times.push_back(std::chrono::nanoseconds(now - last).count());
        last = now;
    }
    return times;
}

}  // namespace neuronsim
