// What a loop's trip or a branch runs: its calls, those on few elements as steps without a call around
// each, so that a trip of scalars costs what its operations cost.
#pragma once

#include "elementwise/chain.h"
#include "graph/call.h"
#include "movement/copy.h"
#include "products/product.h"

namespace neuronsim {

class Body {
public:
    // No array of a chain has more elements, no chain more registers, no copy more bytes.
    static constexpr int few_elements = 64, few_registers = 32, few_bytes = 4096;
    static constexpr int64_t scratch_bytes = few_registers * few_elements * int64_t{sizeof(uint64_t)};

    explicit Body(Schedule calls) : calls_(std::move(calls)) {}
    void place(const std::vector<Standin>& standins);
    void run(const Run& run) const;

    // Add a call's steps, if it has so few elements.
    bool append(const ChainCall& call, const std::vector<Address>& at);
    bool append(const CopyCall& call, const std::vector<Address>& at);
    bool append(const ProductCall& call, const std::vector<Address>& at);

private:
    enum class Kind : uint8_t {
        call,
        load,
        operate,
        rotate,
        select_by,
        round,
        link,
        store,
        copy,
        multiply
    };
    // An input of a chain: elements side by side, or one that stands for all.
    struct Source {
        Address place;
        bool is_dense;
    };
    // `what`: the number of a call, a kernel, a type, a link, a product or of bytes. `bits`: of an
    // operation's elements, or a load's stride, or whether a store moves them.
    struct Step {
        Kind kind;
        int n = 0, what = 0, bits = 0;
        Address out{}, in[max_reads]{};
        const ChainPlan* chain = nullptr;
    };

    bool append_chain(const Chain& chain, int64_t count, const std::vector<Source>& sources,
                      const std::vector<Address>& targets);
    void append_links(const ChainPlan& plan, size_t inputs, int n, std::vector<Address>& places);

    Schedule calls_;
    std::vector<Step> steps_;
    std::vector<FewProduct> products_;
    int64_t operations_ = 0;  // of a run, as they are noted
};

}  // namespace neuronsim
