// Kernel calls whose memory is known only when they run: what an executable's schedule consists of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "elementwise/observe.h"

namespace neuronsim {

// Calls are recorded on arrays that only stand for memory. A placement says where each of these
// stand-ins lies in a run: at an offset from one of the run's memories.
struct Standin {
    const char* begin;
    size_t memory;
    int64_t offset;
};

class Address {
public:
    explicit Address(const void* recorded) : recorded_(static_cast<const char*>(recorded)) {}

    void place(const std::vector<Standin>& standins);
    char* in(char* const* memories) const { return memories[memory_] + offset_; }

private:
    const char* recorded_;
    size_t memory_ = 0;
    int64_t offset_ = 0;
};

struct Run {
    char* const* memories;
    void* context;       // what the host's functions get
    Observed* observed;  // the records of all calls, or null
};

class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call() = default;
    virtual void place(const std::vector<Standin>& standins) {
        for (Address& a : at_) a.place(standins);
    }
    virtual void run(const Run& run) const = 0;
    // How many records the call adds to, which are those from `first` on.
    virtual size_t record_count() const { return 0; }
    void set_first_record(size_t first) { first_record_ = first; }

protected:
    std::vector<Address> at_;  // of what the call reads and writes
    char* at(const Run& run, size_t i) const { return at_[i].in(run.memories); }
    Observed* records(const Run& run) const {
        return run.observed == nullptr ? nullptr : run.observed + first_record_;
    }

private:
    size_t first_record_ = 0;
};
using Schedule = std::vector<std::shared_ptr<Call>>;

void place_all(const Schedule& schedule, const std::vector<Standin>& standins);
// Calls `after`, if it is there, after each call.
void run_all(const Schedule& schedule, const Run& run, const std::function<void()>& after = {});

}  // namespace neuronsim
