// What a loop's trip or a branch runs: its calls, those on few elements as steps without a call around
// each, so that a trip of scalars costs what its operations cost.
#pragma once

#include "graph/call.h"

namespace neuronsim {

class Body {
public:
    // No array of a step has more elements, no chain more registers, no copy more bytes.
    static constexpr int few_elements = 64, few_registers = 32, few_bytes = 4096;
    static constexpr int64_t scratch_bytes = few_registers * few_elements * int64_t{sizeof(uint64_t)};

    explicit Body(Schedule calls) : calls_(std::move(calls)) {}
    void place(const std::vector<Standin>& standins);
    void run(const Run& run) const;

    // Add a call's steps, if it has so few elements.
    bool append(const ChainCall& call, const std::vector<Address>& at);
    bool append(const CopyCall& call, const std::vector<Address>& at);

private:
    enum class Kind : uint8_t { call, load, operate, rotate, round, link, store, copy };
    struct Place {
        int memory = 0;
        int64_t offset = 0;
        char* in(char* const* memories) const { return memories[memory] + offset; }
        bool operator==(const Place&) const = default;
    };
    // `what`: the number of a call, a kernel, a type, a link or of bytes.
    struct Step {
        Kind kind;
        int n = 0, what = 0, bits = 0;
        Place out{}, in[max_arity]{};
        const Chain* chain = nullptr;
    };

    void append_links(const Chain& chain, const Chain::Few& few, int n, std::vector<Place>& places);

    Schedule calls_;
    std::vector<Step> steps_;
    int64_t operations_ = 0;  // of a run, as they are noted
};

}  // namespace neuronsim
