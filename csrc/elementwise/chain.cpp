#include "elementwise/chain.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "functions/function_table.h"
#include "machine/dispatch.h"

namespace neuronsim {
namespace {

bool has_domain(int op, Domain d) { return kernels().op[op][d] != nullptr; }

// Whether an operation moves or flips bits (E6) instead of computing.
bool moves_bits(int op) {
    if (op >= op_count) return op >= restrict_op;
    const Kind kind = op_rows[op].kind;
    return kind == Kind::bitwise || kind == Kind::sign || kind == Kind::selection;
}

// Whether a NaN that it gives is the canonical one (E6).
bool computes_nan(int op) {
    if (op >= op_count) return false;
    const Kind kind = op_rows[op].kind;
    return kind == Kind::reducer || kind == Kind::arithmetic || kind == Kind::floating ||
           kind == Kind::function;
}

void check_link(const Link& link, const std::vector<DType>& dtypes) {
    const auto fail = [&](const std::string& why) {
        const char* name = link.op < op_count ? op_rows[link.op].name : "a conversion";
        throw std::invalid_argument(std::string(name) + ": " + why);
    };
    for (const int v : link.operands)
        if (v < 0 || v >= static_cast<int>(dtypes.size())) fail("an operand is not computed yet");
    const auto dtype = [&](size_t i) { return dtypes[link.operands[i]]; };
    if (link.op == constant_op) {
        if (!link.operands.empty()) fail("takes no operands");
        return;
    }
    if (is_conversion(link.op) || link.op == bitcast_op) {
        if (link.operands.size() != 1) fail("takes one operand");
        if (is_conversion(link.op)) return;
        for (const DType t : {dtype(0), link.result})
            if (storage_bytes(t) != 4 || computed_bytes(t) != 4) fail("takes and gives 32 bits");
        return;
    }
    if (link.op == truncated_op) {
        if (link.operands.size() != 2 || storage_bytes(link.result) != 8 || dtype(0) != link.result ||
            (dtype(1) != link.result && !is_device_float(dtype(1))) || is_device_float(link.result))
            fail("takes a 64-bit integer, and that before it was truncated or a float");
        return;
    }
    if (link.op >= reduce_precision_op) {
        if (link.operands.size() != 1 || dtype(0) != link.result || !is_device_float(link.result) ||
            link.op < reduce_precision_op + 32)
            fail("reduce-precision and input ranges keep a float type");
        return;
    }
    if (static_cast<int>(link.operands.size()) != op_rows[link.op].arity)
        fail("takes " + std::to_string(op_rows[link.op].arity) + " operands");
    const size_t first = op_rows[link.op].kind == Kind::selection ? 1 : 0;
    if (first == 1 && dtype(0) != DType::boolean) fail("the first operand must be bool");
    const Domain domain = domain_of(dtype(first));
    for (size_t i = first; i < link.operands.size(); ++i)
        if (domain_of(dtype(i)) != domain) fail("the operands' types do not go together");
    if (!has_domain(link.op, domain)) fail("not defined for " + std::string(dtype_names[dtype(first)]));
    const bool fits = op_rows[link.op].kind == Kind::comparison ? link.result == DType::boolean
                                                                : domain_of(link.result) == domain;
    if (!fits) fail("the result cannot be " + std::string(dtype_names[link.result]));
}

// One element everywhere. All chains share it: the first cache has few of them.
std::shared_ptr<const Tile> constant_tile(DType type, uint64_t element) {
    using Key = std::pair<DType, uint64_t>;
    // Never destroyed, since chains may outlive it.
    static auto& mutex = *new std::mutex;
    static auto& tiles = *new std::map<Key, std::weak_ptr<const Tile>>;
    const Key key{type, element};
    const std::lock_guard lock(mutex);
    if (const auto found = tiles.find(key); found != tiles.end())
        if (auto tile = found->second.lock()) return tile;
    const auto forget = [key](const Tile* tile) {
        delete tile;
        const std::lock_guard lock(mutex);
        if (const auto found = tiles.find(key); found != tiles.end() && found->second.expired())
            tiles.erase(found);
    };
    auto* const tile = new Tile;
    const std::shared_ptr<const Tile> shared(tile, forget);
    kernels().load[type](reinterpret_cast<const char*>(&element), 0, tile_elements, tile);
    tiles[key] = shared;
    return shared;
}

}  // namespace

Chain::Chain(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
             const Numerics& numerics)
    : inputs_(std::move(inputs)),
      links_(std::move(links)),
      outputs_(std::move(outputs)),
      dtypes_(inputs_),
      moves_(inputs_.size(), true),
      numerics_(numerics) {
    for (const Link& link : links_) {
        if (link.op < 0 || link.op > truncated_op) throw std::invalid_argument("unknown operation");
        check_link(link, dtypes_);
        dtypes_.push_back(link.result);
    }
    // The last link that reads each value; behind the last one where it is an output.
    std::vector<int> last_use(dtypes_.size(), -1);
    for (int s = 0; s < static_cast<int>(links_.size()); ++s)
        for (const int v : links_[s].operands) last_use[v] = s;
    for (size_t s = 0; s < links_.size(); ++s) {
        plan_link(s, last_use[inputs_.size() + s] >= 0);
        plan_plain(s);
        const Link& link = links_[s];
        constants_.push_back(link.op == constant_op ? constant_tile(link.result, link.constant)
                                                    : nullptr);
        if (constants_[s]) fixed_.push_back({inputs_.size() + s, constants_[s].get()});
    }
    const int values = static_cast<int>(dtypes_.size());
    for (const int v : outputs_) {
        if (v < 0 || v >= values) throw std::invalid_argument("an output is not computed");
        last_use[v] = values;
        const auto value = static_cast<size_t>(v);
        const DType t = dtypes_[value];
        const bool never = value < inputs_.size() || is_constant(value) || !is_stored_as_computed(t);
        misaligned_.push_back(never ? ~uintptr_t{0} : static_cast<uintptr_t>(computed_bytes(t)) - 1);
    }
    plan_rotations(last_use);
    plan_aliases(last_use);
    plan_passes(last_use);
    plan_repeats(last_use);
    plan_joinings(last_use);
    plan_registers(last_use);
    for (size_t s = 0; s < links_.size(); ++s) {
        if (constants_[s] == nullptr && plain_[s].op != part_of_rotation &&
            (!is_passed_[s] || passes_[s].values >= 0))
            steps_.push_back(static_cast<int>(s));
        if (is_passed_[s]) plain_[s].op = -1;
    }
    for (const int s : steps_)
        if (!joinings_[s].goes_on) joined_steps_.push_back(s);
    plan_sole_joining();
    plan_grain();
}

// A function takes as long as some sixteen additions (measured).
void Chain::plan_grain() {
    constexpr int64_t of_function = 16, additions = 128, most_tiles = 16;
    int64_t cost = 1;
    for (const int s : steps_) {
        const auto index = static_cast<size_t>(s);
        const int op = links_[index].op;
        const bool is_function = op < op_count && op_rows[op].kind == Kind::function;
        cost += is_function && !looks_up_[index] ? of_function : 1;
    }
    grain_ = std::clamp<int64_t>(additions / cost, 1, most_tiles) * tile_elements;
}

// What running a link has to do besides computing; `is_read`: by another link.
void Chain::plan_link(size_t index, bool is_read) {
    const Link& link = links_[index];
    const DType t = link.result;
    bool same = true;  // the moved operands have the result's type
    for (size_t i = link.op < op_count && op_rows[link.op].kind == Kind::selection ? 1 : 0;
         i < link.operands.size(); ++i)
        same = same && dtypes_[link.operands[i]] == t;
    const bool moves =
        link.op == bitcast_op || (same && (is_conversion(link.op) || moves_bits(link.op)));
    moves_.push_back(moves);
    looks_up_.push_back(link.op < op_count && numerics_.plain() && has_function_table(link.op, t) &&
                        dtypes_[link.operands[0]] == t);
    // A value that is only stored need not be rounded before: storing a narrow float rounds it.
    const bool store_rounds = is_device_float(t) && storage_bytes(t) < 4 && numerics_.plain();
    const bool is_logical =
        is_conversion(link.op) || (link.op < op_count && op_rows[link.op].kind == Kind::comparison);
    const bool is_exact = t == DType::boolean  ? is_logical
                          : is_device_float(t) ? t == DType::float32 && numerics_.plain()
                                               : is_stored_as_computed(t);
    rounds_.push_back(link.op != constant_op && !is_exact && !(moves && is_device_float(t)) &&
                      (is_read || !store_rounds) && !looks_up_.back());
}

void Chain::plan_plain(size_t index) {
    const Link& link = links_[index];
    Plain plain;
    if (link.op < op_count && !looks_up_[index] && numerics_.plain()) {
        const DType source = dtypes_[link.operands.back()];
        plain = {link.op, static_cast<int>(domain_of(source)), 8 * storage_bytes(source)};
        if (rounds_[index]) plain.round = static_cast<int>(link.result);
    }
    for (size_t i = 0; i < max_arity && !link.operands.empty(); ++i)
        plain.operands[i] = link.operands[i < link.operands.size() ? i : 0];
    plain_.push_back(plain);
}

int Chain::sole_operation() const {
    const bool is_one = links_.size() == 1 && inputs_.size() == 2 && inputs_[0] == inputs_[1] &&
                        outputs_ == std::vector<int>{2} && links_[0].op < op_count &&
                        links_[0].result == inputs_[0] && links_[0].operands == std::vector<int>{0, 1};
    return is_one && !rounds_[0] && !looks_up_[0] && !numerics_.flush_subnormals ? links_[0].op : -1;
}

bool Chain::only_chooses() const {
    if (!numerics_.plain()) return false;
    for (const Link& link : links_) {
        if (link.op >= op_count) return false;
        const Kind kind = op_rows[link.op].kind;
        const auto op = static_cast<Op>(link.op);
        const bool compares = op >= Op::equal && op <= Op::greater_equal;
        const bool combines =
            link.result == DType::boolean && (kind == Kind::integral || kind == Kind::selection);
        if (!compares && !combines && kind != Kind::selection) return false;
    }
    return true;
}

bool Chain::draws() const {
    if (!numerics_.stochastic) return false;
    for (size_t s = 0; s < links_.size(); ++s)
        if (rounds_[s] && is_device_float(links_[s].result) && links_[s].result != DType::float32 &&
            rounds_float32(s))
            return true;
    return false;
}

// Whether a link's result is a float32 before it is rounded (S1), not the stepping stone of a wider
// type. C1: an integer of 32 bits or fewer goes through float32 unless the profile says exact.
bool Chain::rounds_float32(size_t index) const {
    const DType source = dtypes_[links_[index].operands.back()];
    return !is_conversion(links_[index].op) || is_device_float(source) ||
           (numerics_.integers_via_float32 && source != DType::float64 && storage_bytes(source) <= 4);
}

std::vector<int> Chain::chosen(const Kernels& k, const void* const* elements) const {
    std::vector<int> input(dtypes_.size());      // that a value is
    std::vector<uint32_t> bits(dtypes_.size());  // of bools that links give
    std::vector<const void*> at(elements, elements + inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) input[i] = static_cast<int>(i);
    for (const Link& link : links_) {
        const size_t v = at.size();
        const void* operands[max_arity] = {};
        for (size_t i = 0; i < link.operands.size(); ++i) operands[i] = at[link.operands[i]];
        const DType source = dtypes_[link.operands.back()];
        if (op_rows[link.op].kind == Kind::selection) {
            uint32_t takes_first;
            __builtin_memcpy(&takes_first, operands[0], sizeof takes_first);
            const auto from = static_cast<size_t>(link.operands[takes_first != 0 ? 1 : 2]);
            input[v] = input[from];
            at.push_back(at[from]);
        } else {
            k.op[link.op][domain_of(source)](&bits[v], operands, 1, 8 * storage_bytes(source));
            input[v] = -1;
            at.push_back(&bits[v]);
        }
    }
    std::vector<int> found;
    for (const int v : outputs_) found.push_back(input[v]);
    return found;
}

bool Chain::absorbs_nan(size_t input) const {
    const auto v = static_cast<int>(input);
    for (const Link& link : links_)
        for (const int operand : link.operands)
            if (operand == v && !computes_nan(link.op)) return false;
    return std::find(outputs_.begin(), outputs_.end(), v) == outputs_.end();
}

bool Chain::has_canonical_nan(size_t i) const {
    auto v = static_cast<size_t>(outputs_[i]);
    while (v >= inputs_.size() && aliases_[v - inputs_.size()])
        v = static_cast<size_t>(links_[v - inputs_.size()].operands[0]);
    return v >= inputs_.size() && computes_nan(links_[v - inputs_.size()].op);
}

void Chain::copy_output(const Kernels& k, size_t i, const void* value, int n, void* target) const {
    const auto v = static_cast<size_t>(outputs_[i]);
    const DType t = dtypes_[v];
    if (makes_bytes(v)) return k.load[t](static_cast<const char*>(value), 1, n, target);
    if (moves_[v] || !is_device_float(t)) {
        __builtin_memmove(target, value, static_cast<size_t>(n * computed_bytes(t)));
        return;
    }
    k.canonicalize(target, value, n);
    k.round[t](target, n);
}

}  // namespace neuronsim
