// A chain of operations run block by block. An elementwise kernel is a chain of one link.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "elementwise/chain_plan.h"
#include "elementwise/layout.h"
#include "elementwise/observe.h"
#include "elementwise/rounding.h"
#include "movement/view.h"

namespace neuronsim {

// A link alone, on values that others have placed (run_links.cpp).
void run_link(const Kernels& k, const ChainPlan& p, const PlannedLink& link, void* out,
              const void* const* operands, int n, const Draw& draw, int64_t first);
// The links of a block, the n elements from index `first` on. `place` says where each value lies.
void run_links(const Kernels& k, const ChainPlan& p, void** place, int n, const Draws& draws,
               int64_t first, Observed* observed);
// The same without draws and observing.
void run_steps(const Kernels& k, const ChainPlan& p, void** place, int n);

class Chain {
public:
    // Throws std::invalid_argument if the links are not a well-typed chain.
    Chain(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
          const Numerics& numerics);

    const std::vector<DType>& inputs() const { return p_.inputs; }
    DType output_dtype(size_t i) const { return p_.output_dtype(i); }
    size_t output_count() const { return p_.outputs.size(); }
    size_t link_count() const { return p_.links.size(); }
    // Whether a link rounds stochastically, so that running it needs ids.
    bool draws() const;

    // The number of the input that output i is as it stands, or -1.
    int moved_input(size_t i) const {
        const int v = p_.outputs[i];
        return v < static_cast<int>(p_.inputs.size()) ? v : -1;
    }
    // The operation if it is one of ops.def on the two inputs in turn, of their type, as its kernel
    // computes it; or -1.
    int sole_operation() const;
    // Whether it compares, selects and combines bools, so that its outputs are inputs chosen by how
    // these compare.
    bool only_chooses() const;
    // Of such a chain: the numbers of the inputs that its outputs are, for one element of each input in
    // the form of its domain.
    std::vector<int> chosen(const Kernels& k, const void* const* elements) const;

    // Whether all it does is to round one type to another, to nearest.
    bool only_converts(DType from, DType to) const {
        return p_.inputs == std::vector<DType>{from} && p_.links.size() == 1 &&
               p_.links[0].op == convert_op && p_.links[0].result == to && p_.numerics.plain();
    }

    // Evaluates on inputs that lie so; the outputs are dense row-major storage of their shape. A chain
    // that draws takes one id for each link. Where `observed` is not null, what each link met is added
    // to its record there.
    void run_laid_out(const Layout& layout, const char* const* inputs, char* const* outputs,
                      const Draws& draws = {}, Observed* observed = nullptr) const;

    // The same on n elements of dense storage.
    void run_dense(int64_t n, const char* const* inputs, char* const* outputs, const Draws& draws = {},
                   Observed* observed = nullptr) const;

    // The same on n <= tile_elements elements in the form of their domains, without draws. `inputs` are
    // their places; gives those of the outputs, until the thread's next call. Floats may still have to
    // be rounded: by `output_store` where they are stored, or `copy_output`.
    void run_tile(const Kernels& k, const void* const* inputs, int n, const void** outputs,
                  Observed* observed = nullptr) const;
    StoreKernel output_store(const Kernels& k, size_t i) const { return p_.store(k, p_.outputs[i]); }
    // The pass of a chain that does nothing else, of its first input, with other inputs; or null.
    const QuantizingPass* sole_pass() const;
    // Those of a chain that joins input 0 with other inputs and constants, one after another, and does
    // nothing else but to round its output where it is stored; or null.
    const std::vector<JoinedLink>* sole_joined_links() const;
    const Tile* constant(int value) const { return p_.constant(value); }

    // Whether a NaN of an input shows in no output but as the canonical one, whatever its bits.
    bool absorbs_nan(size_t input) const;
    // Whether an output's NaN is the canonical one with a plus sign before it is stored.
    bool has_canonical_nan(size_t i) const;
    // Copies an output, rounded as it would be where it is stored.
    void copy_output(const Kernels& k, size_t i, const void* value, int n, void* target) const;

    // Only adds what the links of a chain of one input meet on elements that lie so at `data`.
    void observe_only(const Layout& layout, const char* data, Observed* observed) const;

    const ChainPlan& plan() const { return p_; }

private:
    const ChainPlan p_;
};

// A chain on arrays.
struct ChainCall {
    std::shared_ptr<const Chain> chain;
    Layout layout;

    // `data`: the inputs and the outputs.
    void run(char* const* data, const Draws& draws, Observed* observed) const {
        chain->run_laid_out(layout, data, data + layout.views.size(), draws, observed);
    }
    size_t draw_count() const { return chain->draws() ? chain->link_count() : 0; }
    size_t record_count() const { return chain->link_count(); }
};

// Only observes a chain of one input that a product runs on an operand while it is packed, however
// often.
struct PrologueCall {
    std::shared_ptr<const Chain> chain;
    Layout layout;

    void run(char* const* data, const Draws&, Observed* observed) const {
        if (observed != nullptr) chain->observe_only(layout, data[0], observed);
    }
    size_t record_count() const { return chain->link_count(); }
};

}  // namespace neuronsim
