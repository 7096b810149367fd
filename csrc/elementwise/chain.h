// A chain of operations run block by block. An elementwise kernel is a chain of one link.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "elementwise/chain_plan.h"
#include "elementwise/layout.h"
#include "elementwise/observe.h"
#include "elementwise/rounding.h"
#include "movement/view.h"

namespace neuronsim {

class Chain {
public:
    // Throws std::invalid_argument if the links are not a well-typed chain.
    Chain(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
          const Numerics& numerics);

    const std::vector<DType>& inputs() const { return p_.inputs; }
    DType output_dtype(size_t i) const { return p_.dtypes[p_.outputs[i]]; }
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
    StoreKernel output_store(const Kernels& k, size_t i) const { return store_of(k, p_.outputs[i]); }
    // The pass of a chain that does nothing else, of its first input, with other inputs; or null.
    const QuantizingPass* sole_pass() const;
    // Those of a chain that joins input 0 with other inputs and constants, one after another, and does
    // nothing else but to round its output where it is stored; or null.
    const std::vector<JoinedLink>* sole_joined_links() const;
    // The element that is a value everywhere, a tile of it; or null.
    const Tile* constant(int value) const {
        const PlannedLink* const link = p_.link_of(value);
        return link == nullptr ? nullptr : link->everywhere.get();
    }

    // Whether a NaN of an input shows in no output but as the canonical one, whatever its bits.
    bool absorbs_nan(size_t input) const;
    // Whether an output's NaN is the canonical one with a plus sign before it is stored.
    bool has_canonical_nan(size_t i) const;
    // Copies an output, rounded as it would be where it is stored.
    void copy_output(const Kernels& k, size_t i, const void* value, int n, void* target) const;

    // Only adds what the links of a chain of one input meet on elements that lie so at `data`.
    void observe_only(const Layout& layout, const char* data, Observed* observed) const;

    const ChainPlan& plan() const { return p_; }
    // A link alone, on values that others have placed.
    void run_link(const Kernels& k, const PlannedLink& link, void* out, const void* const* operands,
                  int n, const Draw& draw, int64_t first) const;

private:
    bool rounds_float32(const Link& link) const;
    // Whether all it does is to look up one function of its one input.
    bool only_looks_up() const {
        return p_.links.size() == 1 && p_.links[0].looks_up && p_.inputs.size() == 1 &&
               p_.outputs == std::vector<int>{1};
    }

    // The links of a block, the n elements from index `first` on (run_links.cpp). `place` says where
    // each value lies.
    void run_links(const Kernels& k, void** place, int n, const Draws& draws, int64_t first,
                   Observed* observed) const;
    void run_steps(const Kernels& k, void** place, int n) const;
    void compute_flushed(const Kernels& k, const PlannedLink& link, void* out,
                         const void* const* operands, int n) const;
    void compute(const Kernels& k, const PlannedLink& link, void* out, const void* const* operands,
                 int n) const;
    void compute_by_table(const Kernels& k, const Link& link, void* out, const void* in, int n) const;
    void run_joining(const Kernels& k, const Joining& joining, void* const* place, void* out,
                     int n) const;
    void run_pass(const Kernels& k, const QuantizingPass& pass, void* const* place, void* out,
                  int n) const;
    void observe_link(const Kernels& k, const PlannedLink& link, void* out, const void* const* operands,
                      int n, Observed& seen) const;

    // Arrays block by block (run_chain.cpp). `input(i, at, n, tile)` gives the place of n elements of
    // an input, in memory or loaded into the tile.
    template <class Input>
    void run_over(int64_t n, const Layout* layout, const Input& input, const char* const* inputs,
                  char* const* outputs, const Draws& draws, Observed* observed) const;
    template <class Input>
    void run_blocks(const Kernels& k, int64_t begin, int64_t end, const Input& input,
                    char* const* outputs, const Draws& draws, int64_t block_elements,
                    Observed* observed) const;
    // At most a tile of elements, without observing: small arrays feel every step around the links.
    template <class Input>
    void run_few(const Kernels& k, int n, const Input& input, char* const* outputs) const;
    template <class Input>
    void run_in(const Kernels& k, int n, const Input& input, char* const* outputs, void** place) const;
    bool is_shared(int64_t n) const;
    // Whether the one operation goes from memory to memory. No tile holds a value then, so that a block
    // may be longer.
    bool operates_in_memory(const Layout* layout, const char* const* inputs,
                            char* const* outputs) const;
    // Whether a value is an input that has an element for each column of the rows.
    bool lies_along(const Layout* layout, int value) const;
    // Whether the sole joining may run from memory to memory, without tiles, and its elements from
    // `begin` on. Inputs without a layout lie side by side.
    bool joins_in_memory(const Layout* layout, const char* const* inputs, char* const* outputs) const;
    void join_in_memory(const Layout* layout, int64_t begin, int64_t end, const char* const* inputs,
                        char* output) const;
    // Where every value lies in the thread's own tiles, until its next call.
    void** thread_places() const;
    // Lets every value lie where it does if it is not in memory. Nothing writes to a constant.
    template <class Tiles>
    void place_in(Tiles& tiles, void** place) const {
        for (size_t v = 0; v < p_.dtypes.size(); ++v) place[v] = tiles.at(p_.registers[v]);
        for (const auto& [v, tile] : p_.fixed) place[v] = const_cast<Tile*>(tile);
    }
    // Whether the link that gives an output writes it where it is stored.
    bool writes_itself(size_t output, const char* target) const {
        return (reinterpret_cast<uintptr_t>(target) & p_.misaligned[output]) == 0;
    }
    StoreKernel store_of(const Kernels& k, int value) const {
        return (p_.moves(value) ? k.store : k.store_quiet)[p_.dtypes[value]];
    }

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
    size_t draw_count() const { return 0; }
    size_t record_count() const { return chain->link_count(); }
};

}  // namespace neuronsim
