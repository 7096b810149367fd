// A chain of operations with a result type for each, and how its links run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "machine/kernels.h"

namespace neuronsim {

// A link computes value number inputs + (its position). `op` is an Op or a conversion.
struct Link {
    int op;
    DType result;
    std::vector<int> operands;  // value numbers
    uint64_t constant = 0;      // of constant_op: the element's storage bits

    bool is(Op o) const { return op == static_cast<int>(o); }
    bool is(Kind kind) const { return op < op_count && op_rows[op].kind == kind; }
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
    std::vector<int> links{};  // their numbers
};

// A link that joins the value before it with another, both of them float32: `value` is that one's
// number, or `itself`.
struct JoinedLink {
    static constexpr int itself = -1;
    int op, value;
    bool comes_first;  // `value` is what is subtracted from, or divided
};

// Links that join one value with others, at most so many, which may run together at the last of them.
inline constexpr size_t max_joined = 16;
struct Joining {
    int first = -1;  // the value that they begin with
    std::vector<JoinedLink> links{};
    bool goes_on = false;  // into those of a later link
};

// How a link runs. One that is observed or draws computes, unless it is a constant or an alias.
enum class Way : uint8_t {
    computes,    // as run_link does
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

// The links of a chain and what running them takes.
struct ChainPlan {
    std::vector<DType> inputs;
    std::vector<PlannedLink> links;
    std::vector<int> outputs;
    Numerics numerics;
    std::vector<DType> dtypes;  // of every value

    // What `planned` finds out.
    std::vector<int> registers{};  // the tile that holds every value; a constant has one for good
    std::vector<std::pair<size_t, const Tile*>> fixed{};  // the constants, by their values
    // Of every output the bits of an address at which its link cannot write: all, where it never can.
    std::vector<uintptr_t> misaligned{};
    std::vector<int> steps{};         // the links that run: none that is only a part of another
    std::vector<int> joined_steps{};  // the links that run where links are joined
    // The link that ends those that join inputs and constants of float32, if the chain does nothing
    // else but perhaps to round its output where it is stored; or -1.
    int sole_joining = -1;
    int64_t grain = 0;                       // elements that are worth a thread's turn
    int64_t block_elements = tile_elements;  // that the tiles hold, and the first cache the tiles
    int register_count = 1;                  // the first one is that of what needs none

    DType output_dtype(size_t i) const { return dtypes[outputs[i]]; }
    // The link that computes a value; null for an input.
    const PlannedLink* link_of(int value) const {
        const int first = static_cast<int>(inputs.size());
        return value < first ? nullptr : &links[value - first];
    }
    // The element that is a value everywhere, a tile of it; or null.
    const Tile* constant(int value) const {
        const PlannedLink* const link = link_of(value);
        return link == nullptr ? nullptr : link->everywhere.get();
    }
    bool is_constant(int value) const { return constant(value) != nullptr; }
    // Whether its bits are moved ones, NaN payload and all.
    bool moves(int value) const {
        const PlannedLink* const link = link_of(value);
        return link == nullptr || link->moves;
    }
    bool has_passes() const {
        return std::any_of(links.begin(), links.end(),
                           [](const PlannedLink& link) { return link.way == Way::quantizes; });
    }
    // Whether the link that gives an output may write it where it is stored.
    bool may_write_itself(size_t output) const { return misaligned[output] != ~uintptr_t{0}; }
    // Whether it does, where that is `target`.
    bool writes_itself(size_t output, const char* target) const {
        return (reinterpret_cast<uintptr_t>(target) & misaligned[output]) == 0;
    }
    StoreKernel store(const Kernels& k, int value) const {
        return (moves(value) ? k.store : k.store_quiet)[dtypes[value]];
    }
    // Whether a link's result is a float32 before it is rounded (S1), not the stepping stone of a wider
    // type. C1: an integer of 32 bits or fewer goes through float32 unless the profile says exact.
    bool rounds_float32(const Link& link) const {
        const DType source = dtypes[link.operands.back()];
        return !is_conversion(link.op) || is_device_float(source) ||
               (numerics.integers_via_float32 && source != DType::float64 &&
                storage_bytes(source) <= 4);
    }
};

// The same chain with how its links run: which are one step or none, and where their values lie.
ChainPlan planned(ChainPlan chain);

// The pass that ends with a value (quantize.cpp). `readers` are so many of every value.
std::optional<QuantizingPass> find_pass(const ChainPlan& chain, const std::vector<int>& readers,
                                        int value);

}  // namespace neuronsim
