// A chain of operations with a result type for each, run block by block. An elementwise kernel is a
// chain of one link.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "elementwise/layout.h"
#include "elementwise/observe.h"
#include "elementwise/rounding.h"
#include "machine/kernels.h"
#include "movement/view.h"

namespace neuronsim {

// A link computes value number inputs + (its position). `op` is an Op or a conversion.
struct Link {
    int op;
    DType result;
    std::vector<int> operands;  // value numbers
    uint64_t constant = 0;      // of constant_op: the element's storage bits
};
// Conversions to the link's result type: by C6 as XLA's convert, or to the nearest integer.
inline constexpr int convert_op = op_count, convert_nearest_op = op_count + 1;
constexpr bool is_conversion(int op) { return op == convert_op || op == convert_nearest_op; }
// reduce-precision to e exponent and m mantissa bits is reduce_precision_op + 32 e + m (C9).
inline constexpr int reduce_precision_op = op_count + 2;
// NaN for what is outside range i of documented_ranges is restrict_op + i.
inline constexpr int restrict_op = reduce_precision_op + 32 * 9;
// The same element everywhere; it has no operands.
inline constexpr int constant_op = restrict_op + range_count;
// The same bits as another type of 32 bits (E6).
inline constexpr int bitcast_op = constant_op + 1;
// A 64-bit integer that C7 truncated is the first operand; the second is what it was before, or the
// float that was converted. Only observing it does anything.
inline constexpr int truncated_op = bitcast_op + 1;
constexpr bool is_restriction(int op) { return op >= restrict_op && op < constant_op; }
// What every run counts (C7, E3).
constexpr bool is_always_observed(int op) { return op == truncated_op || is_restriction(op); }

// Links that are done together, at the last of them: they make bytes of float32 values or of sums
// (quantize.cpp). `values`, `taken` and `factors` are value numbers, or -1.
struct QuantizingPass {
    int values = -1, taken = -1, factors = -1;
    Quantizing quantizing{};
};

// A link that joins the value before it with another, both of them float32: `value` is that one's
// number, or `itself`.
struct JoinedLink {
    static constexpr int itself = -1;
    int op, value;
    bool comes_first;  // `value` is what is subtracted from, or divided
};

// Links that join one value with others, which may run together at the last of them.
struct Joining {
    int first = -1;  // the value that they begin with
    std::vector<JoinedLink> links{};
    bool goes_on = false;  // into those of a later link
};

// How a link runs. One that is observed or draws computes, unless it is a constant or an alias.
enum class Way : uint8_t {
    computes,    // by Chain::run_link
    operates,    // by its operation's kernel, and perhaps a rounding to nearest
    rotates,     // by Kernels.rotate
    selects_by,  // by Kernels.select_by, with the comparison that is taken over
    repeats,     // not at all: an earlier link computes the same
    aliases,     // not at all: a conversion that storing its result does
    quantizes,   // as the last link of a pass
    taken_over,  // with the link that did it
    constant,    // not at all: it lies ready
};

struct PlannedLink : Link {
    Way way = Way::computes;
    bool moves = false;     // bits of its operands, NaN payload and all, instead of computing
    bool rounds = false;    // its result, before it is stored
    bool looks_up = false;  // a function with a table (E5)
    // The numbers of the values that it reads; absent ones repeat the first. The first is the value
    // that it repeats or aliases.
    int reads[max_reads] = {};
    // Of one that operates: the Op with its domain and operands' bits, and the type that it rounds to
    // or -1. Of one that rotates: which of Kernels.rotate, and by how many bits. Of one that selects:
    // the comparison with its domain.
    int kernel = 0, bits = 0, round = -1;
    Domain domain{};
    Joining joining{};                         // the links that end with it, perhaps it alone
    QuantizingPass pass{};                     // of one that quantizes
    std::shared_ptr<const Tile> everywhere{};  // of a constant
};

class Chain {
public:
    // Throws std::invalid_argument if the links are not a well-typed chain.
    Chain(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
          const Numerics& numerics);

    const std::vector<DType>& inputs() const { return inputs_; }
    DType output_dtype(size_t i) const { return dtypes_[outputs_[i]]; }
    size_t output_count() const { return outputs_.size(); }
    size_t link_count() const { return links_.size(); }
    // Whether a link rounds stochastically, so that running it needs ids.
    bool draws() const;

    // The number of the input that output i is as it stands, or -1.
    int moved_input(size_t i) const {
        const int v = outputs_[i];
        return v < static_cast<int>(inputs_.size()) ? v : -1;
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
        return inputs_ == std::vector<DType>{from} && links_.size() == 1 &&
               links_[0].op == convert_op && links_[0].result == to && numerics_.plain();
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
    StoreKernel output_store(const Kernels& k, size_t i) const { return store_of(k, outputs_[i]); }
    // The pass of a chain that does nothing else, of its first input, with other inputs; or null.
    const QuantizingPass* sole_pass() const;
    // Those of a chain that joins input 0 with other inputs and constants, one after another, and does
    // nothing else but to round its output where it is stored; or null.
    const std::vector<JoinedLink>* sole_joined_links() const;
    // The element that is a value everywhere, a tile of it; or null.
    const Tile* constant(int value) const {
        const PlannedLink* const link = link_of(value);
        return link == nullptr ? nullptr : link->everywhere.get();
    }

    // Whether a NaN of an input shows in no output but as the canonical one, whatever its bits.
    bool absorbs_nan(size_t input) const;
    // Whether an output's NaN is the canonical one with a plus sign before it is stored.
    bool has_canonical_nan(size_t i) const;
    // Copies an output, rounded as it would be where it is stored.
    void copy_output(const Kernels& k, size_t i, const void* value, int n, void* target) const;

    // Only adds what the links of a chain of one input meet over a shape and a view that `collapse`
    // has merged.
    void observe_collapsed(int64_t count, const std::vector<int64_t>& shape, const View& input,
                           Observed* observed) const;

    // How a few elements are computed link by link, for who places the values himself. A value that is
    // no constant lies in a register until another takes it.
    const std::vector<int>& steps() const { return steps_; }  // the links that run
    bool has_passes() const {
        return std::any_of(links_.begin(), links_.end(),
                           [](const PlannedLink& link) { return link.way == Way::quantizes; });
    }
    int register_count() const { return register_count_; }
    int register_of(int value) const { return registers_[value]; }
    DType dtype(int value) const { return dtypes_[value]; }
    // Whether its bits are moved ones, NaN payload and all.
    bool moves(int value) const {
        const PlannedLink* const link = link_of(value);
        return link == nullptr || link->moves;
    }
    int output(size_t i) const { return outputs_[i]; }
    // Whether the link that gives an output may write it where it is stored.
    bool may_write_itself(size_t i) const { return misaligned_[i] != ~uintptr_t{0}; }
    const PlannedLink& link(size_t index) const { return links_[index]; }
    void run_link(const Kernels& k, const PlannedLink& link, void* out, const void* const* operands,
                  int n, const Draw& draw, int64_t first) const;

private:
    // The link that computes a value; null for an input.
    const PlannedLink* link_of(int value) const {
        const int first = static_cast<int>(inputs_.size());
        return value < first ? nullptr : &links_[value - first];
    }
    bool is_constant(int value) const {
        const PlannedLink* const link = link_of(value);
        return link != nullptr && link->way == Way::constant;
    }
    bool rounds_float32(const Link& link) const;
    // Whether all it does is one function of its one input.
    bool is_one_function() const {
        return inputs_.size() == 1 && links_.size() == 1 && links_[0].op < op_count &&
               op_rows[links_[0].op].kind == Kind::function && outputs_ == std::vector<int>{1};
    }
    bool only_looks_up() const { return is_one_function() && links_[0].looks_up; }

    // Planning (plan_chain.cpp). `last_use` has the last link that reads each value.
    void plan();
    void plan_link(PlannedLink& link, bool is_read);
    void plan_rotations(std::vector<int>& last_use);
    bool is_rotation(const Link& link, int* of, int* by) const;
    void plan_aliases(std::vector<int>& last_use);
    void plan_passes(std::vector<int>& last_use);
    bool find_pass(int value, const std::vector<int>& readers, QuantizingPass& pass,
                   std::vector<int>& done) const;
    bool is_from_sums(int value) const;
    void plan_repeats(std::vector<int>& last_use);
    void plan_selections(std::vector<int>& last_use);
    // At most so many links join one value with others together.
    static constexpr size_t max_joined = 16;
    void plan_joinings(std::vector<int>& last_use);
    void plan_sole_joining();
    void plan_registers(const std::vector<int>& last_use);
    void plan_grain();
    void plan_block();
    std::vector<int> reader_counts() const;  // of every value
    // The value stays at least until link `s`.
    static void keep_until(std::vector<int>& last_use, int value, int s) {
        int& last = last_use[value];
        last = std::max(last, s);
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
        for (size_t v = 0; v < dtypes_.size(); ++v) place[v] = tiles.at(registers_[v]);
        for (const auto& [v, tile] : fixed_) place[v] = const_cast<Tile*>(tile);
    }
    // Whether the link that gives an output writes it where it is stored.
    bool writes_itself(size_t output, const char* target) const {
        return (reinterpret_cast<uintptr_t>(target) & misaligned_[output]) == 0;
    }
    StoreKernel store_of(const Kernels& k, int value) const {
        return (moves(value) ? k.store : k.store_quiet)[dtypes_[value]];
    }

    std::vector<DType> inputs_;
    std::vector<PlannedLink> links_;
    std::vector<int> outputs_;
    std::vector<DType> dtypes_;   // of every value
    std::vector<int> registers_;  // the tile that holds every value; a constant has one for good
    std::vector<std::pair<size_t, const Tile*>> fixed_;  // the constants, by their values
    // Of every output the bits of an address at which its link cannot write: all, where it never can.
    std::vector<uintptr_t> misaligned_;
    std::vector<int> steps_;         // the links that run: none that is only a part of another
    std::vector<int> joined_steps_;  // the links that run where links are joined
    // The link that ends those that join inputs and constants of float32, if the chain does nothing
    // else but perhaps to round its output where it is stored; or -1.
    int sole_joining_ = -1;
    int64_t grain_ = 0;                       // elements that are worth a thread's turn
    int64_t block_elements_ = tile_elements;  // that the tiles hold, and the first cache the tiles
    int register_count_ = 1;                  // the first one is that of what needs none
    Numerics numerics_;
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
        const View& view = layout.views[0];
        if (observed != nullptr)
            chain->observe_collapsed(layout.count, layout.shapes[0],
                                     {data[0], view.dtype, view.strides}, observed);
    }
    size_t draw_count() const { return 0; }
    size_t record_count() const { return chain->link_count(); }
};

}  // namespace neuronsim
