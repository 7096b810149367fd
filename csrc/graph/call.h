// Kernel calls whose memory is known only when they run: what an executable's schedule consists of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "elementwise/observe.h"
#include "elementwise/rounding.h"

namespace neuronsim {

// Calls are recorded on arrays that only stand for memory. A placement says where each of these
// stand-ins lies in a run: at an offset from one of the run's memories.
struct Standin {
    const char* begin;
    size_t memory;
    int64_t offset;
};

// Where an array lies in a run: at an offset from one of its memories. Until it is placed that is the
// address that was recorded, from memory 0, which is nothing.
struct Address {
    int memory = 0;
    int64_t offset = 0;

    // The memory, one for each run, in which a body keeps what it does not store.
    static constexpr int scratch = -1;

    Address() = default;
    Address(int memory, int64_t offset) : memory(memory), offset(offset) {}
    explicit Address(const void* recorded)
        : offset(static_cast<int64_t>(reinterpret_cast<intptr_t>(recorded))) {}
    void place(const std::vector<Standin>& standins);
    char* in(char* const* memories) const { return memories[memory] + offset; }
    // Lets its memory begin so that it lies at p.
    void set(char** memories, char* p) const { memories[memory] = p - offset; }
    bool operator==(const Address&) const = default;
};

struct Run {
    char** memories;
    void* context;       // what the host's functions get
    Observed* observed;  // the records of all calls that have some, or null
    Draws draws{};       // of a call that runs alone: in a schedule only the host's functions draw
    // Whether bodies may take calls apart that have no records: memories begin where an element of any
    // type may, and the floating-point environment is pinned.
    bool by_steps = false;
};

class Body;

class Call {
public:
    Call() = default;
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    virtual ~Call() = default;
    virtual void place(const std::vector<Standin>& standins) {
        for (Address& a : at_) a.place(standins);
        is_placed_ = true;
    }
    // Its arrays lie in the memories of a run from here on.
    bool is_placed() const { return is_placed_; }
    virtual void run(const Run& run) const = 0;
    // Adds what the call does to a body's steps, if it can be one of them.
    virtual bool append_to(Body&) const { return false; }
    // Whether it is a product that may be one of these steps.
    virtual bool is_few() const { return false; }
    // How many records the call adds to, which are those from `first` on, if it adds to any.
    virtual size_t record_count() const { return 0; }
    // How many ids its roundings draw by.
    virtual size_t draw_count() const { return 0; }
    void set_first_record(size_t first) { first_record_ = first; }
    bool is_recorded() const { return first_record_ != no_record; }

protected:
    std::vector<Address> at_;  // of what the call reads and writes
    char* at(const Run& run, size_t i) const { return at_[i].in(run.memories); }
    Observed* records(const Run& run) const {
        if (run.observed == nullptr || !is_placed_) return run.observed;  // alone it has all
        return is_recorded() ? run.observed + first_record_ : nullptr;
    }

private:
    static constexpr size_t no_record = SIZE_MAX;
    size_t first_record_ = no_record;
    bool is_placed_ = false;
};

// Where a call's arrays lie in a run.
class Places {
public:
    Places(const std::vector<Address>& at, const Run& run) {
        if (at.size() > few) many_.resize(at.size());
        found_ = at.size() > few ? many_.data() : few_;
        for (size_t i = 0; i < at.size(); ++i) found_[i] = at[i].in(run.memories);
    }
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;
    char* const* data() const { return found_; }

private:
    static constexpr size_t few = 16;
    char* few_[few];
    std::vector<char*> many_;
    char** found_;
};

using Schedule = std::vector<std::shared_ptr<Call>>;

void place_all(const Schedule& schedule, const std::vector<Standin>& standins);
void run_all(const Schedule& schedule, const Run& run);

}  // namespace neuronsim
