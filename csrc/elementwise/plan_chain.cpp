// How the links of a chain run: which are one step or none, and in which registers their values lie.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "elementwise/chain.h"
#include "functions/function_table.h"
#include "machine/dispatch.h"

namespace neuronsim {
namespace {

// Whether an operation moves or flips bits (E6) instead of computing.
bool moves_bits(int op) {
    if (op >= op_count) return op >= restrict_op;
    const Kind kind = op_rows[op].kind;
    return kind == Kind::bitwise || kind == Kind::sign || kind == Kind::selection;
}

// Whether bools give a bool without a rounding.
constexpr bool gives_one_bit(Op op) { return is_bit_reducer(op) || op == Op::logical_not; }

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
    const int n = static_cast<int>(sizeof(Tile)) / computed_bytes(type);
    kernels().load[type](reinterpret_cast<const char*>(&element), 0, n, tile);
    tiles[key] = shared;
    return shared;
}

// Whether a link is an operation that the kernel of terms joined with rows has, of float32 values and
// nothing else.
bool joins_floats(const PlannedLink& link) {
    const bool joins = link.op < op_count && (op_rows[link.op].kind == Kind::reducer ||
                                              link.op == static_cast<int>(Op::subtract) ||
                                              link.op == static_cast<int>(Op::divide));
    return joins && link.way == Way::operates && link.result == DType::float32 && link.round < 0;
}

}  // namespace

void Chain::plan() {
    const size_t first = inputs_.size();
    const int values = static_cast<int>(dtypes_.size());
    // The last link that reads each value; behind the last one where it is an output.
    std::vector<int> last_use(dtypes_.size(), -1);
    for (int s = 0; s < static_cast<int>(links_.size()); ++s)
        for (const int v : links_[s].operands) last_use[v] = s;
    for (size_t s = 0; s < links_.size(); ++s) {
        plan_link(links_[s], last_use[first + s] >= 0);
        if (is_constant(first + s)) fixed_.push_back({first + s, links_[s].everywhere.get()});
    }
    for (const int v : outputs_) {
        last_use[v] = values;
        const DType t = dtypes_[v];
        const bool never = link_of(v) == nullptr || is_constant(v) || !is_stored_as_computed(t);
        misaligned_.push_back(never ? ~uintptr_t{0} : static_cast<uintptr_t>(computed_bytes(t)) - 1);
    }
    plan_rotations(last_use);
    plan_aliases(last_use);
    plan_passes(last_use);
    plan_repeats(last_use);
    plan_selections(last_use);
    plan_joinings(last_use);
    plan_registers(last_use);
    for (size_t s = 0; s < links_.size(); ++s) {
        const PlannedLink& link = links_[s];
        if (link.way == Way::constant || link.way == Way::taken_over) continue;
        steps_.push_back(static_cast<int>(s));
        if (!link.joining.goes_on) joined_steps_.push_back(static_cast<int>(s));
    }
    plan_sole_joining();
    plan_grain();
    plan_block();
}

// What running a link has to do besides computing; `is_read`: by another link.
void Chain::plan_link(PlannedLink& link, bool is_read) {
    const DType t = link.result;
    const bool is_operation = link.op < op_count;
    const bool selects = is_operation && op_rows[link.op].kind == Kind::selection;
    bool same = true;  // the moved operands have the result's type
    for (size_t i = selects ? 1 : 0; i < link.operands.size(); ++i)
        same = same && dtypes_[link.operands[i]] == t;
    link.moves = link.op == bitcast_op || (same && (is_conversion(link.op) || moves_bits(link.op)));
    link.looks_up = is_operation && numerics_.plain() && has_function_table(link.op, t) &&
                    dtypes_[link.operands[0]] == t;
    // A value that is only stored need not be rounded before: storing a narrow float rounds it.
    const bool store_rounds = is_device_float(t) && storage_bytes(t) < 4 && numerics_.plain();
    const bool is_logical = is_conversion(link.op) ||
                            (is_operation && op_rows[link.op].kind == Kind::comparison) ||
                            (same && is_operation && gives_one_bit(static_cast<Op>(link.op)));
    const bool is_exact = t == DType::boolean  ? is_logical
                          : is_device_float(t) ? t == DType::float32 && numerics_.plain()
                                               : is_stored_as_computed(t);
    link.rounds = link.op != constant_op && !is_exact &&
                  !(link.moves && (is_device_float(t) || selects)) && (is_read || !store_rounds) &&
                  !link.looks_up;
    if (link.op == constant_op) {
        link.way = Way::constant;
        link.everywhere = constant_tile(t, link.constant);
        return;
    }
    for (size_t i = 0; i < max_reads; ++i)
        link.reads[i] = link.operands[i < link.operands.size() ? i : 0];
    if (!is_operation || link.looks_up || !numerics_.plain()) return;
    const DType source = dtypes_[link.operands.back()];
    link.way = Way::operates;
    link.kernel = link.op;
    link.domain = domain_of(source);
    link.bits = 8 * storage_bytes(source);
    if (link.rounds) link.round = static_cast<int>(t);
}

// Whether a link is (x << c) | (x >> (32 - c)) of one x, as random numbers are made.
bool Chain::is_rotation(const Link& link, int* of, int* by) const {
    if (link.op != static_cast<int>(Op::bitwise_or) || storage_bytes(link.result) != 4) return false;
    int found[2] = {-1, -1}, amounts[2] = {};
    for (const int v : link.operands) {
        const Link* const shift = link_of(v);
        if (shift == nullptr) return false;
        const bool left = shift->op == static_cast<int>(Op::shift_left);
        if (!left && shift->op != static_cast<int>(Op::shift_right_logical)) return false;
        const Link* const amount = link_of(shift->operands[1]);
        if (amount == nullptr || amount->op != constant_op || shift->result != link.result ||
            dtypes_[shift->operands[0]] != link.result)
            return false;
        found[left] = shift->operands[0];
        amounts[left] = static_cast<int>(amount->constant & 0xFFFFFFFF);
    }
    *of = found[0];
    *by = amounts[1];
    return found[0] >= 0 && found[0] == found[1] && *by > 0 && *by < 32 && amounts[0] == 32 - *by;
}

std::vector<int> Chain::reader_counts() const {
    std::vector<int> readers(dtypes_.size());
    for (const Link& link : links_)
        for (const int v : link.operands) ++readers[v];
    for (const int v : outputs_) ++readers[v];
    return readers;
}

// Rotations are one step, with the exclusive or that takes one over; what only they read is none.
void Chain::plan_rotations(std::vector<int>& last_use) {
    const size_t first = inputs_.size();
    const std::vector<int> readers = reader_counts();
    const auto becomes = [&](size_t s, bool takes_over, int by, int a, int b) {
        PlannedLink& link = links_[s];
        if (link.way != Way::operates || link.round >= 0) return;
        link.way = Way::rotates;
        link.kernel = takes_over;
        link.bits = by;
        link.reads[0] = a;
        link.reads[1] = b;
        for (const int v : {a, b}) keep_until(last_use, v, static_cast<int>(s));
        for (const int v : link.operands)
            if (v != a && v != b && readers[v] == 1) links_[v - first].way = Way::taken_over;
    };
    for (size_t s = 0; s < links_.size(); ++s) {
        const Link& link = links_[s];
        int of, by;
        if (is_rotation(link, &of, &by)) becomes(s, false, by, of, of);
        if (link.op != static_cast<int>(Op::bitwise_xor)) continue;
        for (size_t i = 0; i < 2; ++i) {
            const int v = link.operands[i];
            const PlannedLink* const rotated = link_of(v);
            if (rotated == nullptr || rotated->way != Way::rotates || rotated->kernel != 0 ||
                readers[v] != 1)
                continue;
            becomes(s, true, rotated->bits, rotated->reads[0], link.operands[1 - i]);
            break;
        }
    }
}

// A conversion that storing its result does has its operand's place, to the end.
void Chain::plan_aliases(std::vector<int>& last_use) {
    for (PlannedLink& link : links_) {
        if (!is_conversion(link.op) || link.rounds || link.moves) continue;
        const int operand = link.operands[0];
        if (!is_device_float(link.result) || storage_bytes(link.result) >= 4 ||
            !is_device_float(dtypes_[operand]))
            continue;
        link.way = Way::aliases;
        last_use[operand] = static_cast<int>(dtypes_.size());
    }
}

// What an earlier link computes of the same values is not computed again, and kept to the end.
void Chain::plan_repeats(std::vector<int>& last_use) {
    const size_t first = inputs_.size();
    std::vector<int> same(dtypes_.size());  // of every value: the first that is it
    std::map<std::vector<int>, int> values;
    std::map<const Tile*, int> constants;
    for (size_t v = 0; v < dtypes_.size(); ++v) {
        const int number = static_cast<int>(v);
        same[v] = number;
        if (v < first) continue;
        PlannedLink& link = links_[v - first];
        if (is_constant(v))
            same[v] = constants.try_emplace(link.everywhere.get(), number).first->second;
        if (link.way != Way::operates) continue;
        std::vector<int> key{link.op, static_cast<int>(link.result), link.round};
        for (const int operand : link.operands) key.push_back(same[operand]);
        same[v] = values.try_emplace(std::move(key), number).first->second;
        if (same[v] == number) continue;
        link.way = Way::repeats;
        link.reads[0] = same[v];
        last_use[same[v]] = static_cast<int>(dtypes_.size());
        for (size_t o = 0; o < outputs_.size(); ++o)
            if (outputs_[o] == number) misaligned_[o] = ~uintptr_t{0};
    }
}

// A comparison that only a few selections read is one step with each of them: without its bools in
// memory that is quicker.
void Chain::plan_selections(std::vector<int>& last_use) {
    constexpr int most_selections = 2;
    const size_t first = inputs_.size();
    const auto takes_words = [&](const PlannedLink& link) {
        return computed_bytes(dtypes_[link.operands.back()]) == 4;
    };
    const auto source = [&](int v) {
        const PlannedLink* const link = link_of(v);
        return link != nullptr && link->way == Way::repeats ? link->reads[0] : v;
    };
    const auto selects = [&](const PlannedLink& link) {
        return link.way == Way::operates && link.op == static_cast<int>(Op::select) && link.round < 0 &&
               takes_words(link);
    };
    std::vector<int> selections(dtypes_.size()), others(dtypes_.size());
    for (const PlannedLink& link : links_) {
        if (link.way == Way::repeats || link.way == Way::taken_over) continue;
        for (size_t i = 0; i < link.operands.size(); ++i)
            ++(i == 0 && selects(link) ? selections : others)[source(link.operands[i])];
    }
    for (const int v : outputs_) ++others[source(v)];
    for (size_t s = 0; s < links_.size(); ++s) {
        PlannedLink& link = links_[s];
        const int condition = link.operands.empty() ? -1 : source(link.operands[0]);
        if (!selects(link) || condition < static_cast<int>(first)) continue;
        PlannedLink& comparison = links_[condition - first];
        const bool compares = (comparison.way == Way::operates || comparison.way == Way::taken_over) &&
                              comparison.op < op_count &&
                              op_rows[comparison.op].kind == Kind::comparison;
        if (!compares || !takes_words(comparison) || others[condition] > 0 ||
            selections[condition] > most_selections)
            continue;
        comparison.way = Way::taken_over;
        link.way = Way::selects_by;
        link.kernel = comparison.op;
        link.domain = comparison.domain;
        const int reads[] = {comparison.reads[0], comparison.reads[1], link.reads[1], link.reads[2]};
        std::copy_n(reads, max_reads, link.reads);
        for (const int v : {reads[0], reads[1]}) keep_until(last_use, v, static_cast<int>(s));
    }
}

// A link's result never shares a tile with its operands: their elements may differ in size.
void Chain::plan_registers(const std::vector<int>& last_use) {
    const int values = static_cast<int>(dtypes_.size()), input_count = static_cast<int>(inputs_.size());
    std::vector<int> free_registers;
    for (int v = 0; v < values; ++v) {
        if (is_constant(v)) {
            registers_.push_back(0);
            continue;
        }
        if (free_registers.empty()) {
            registers_.push_back(register_count_++);
        } else {
            registers_.push_back(free_registers.back());
            free_registers.pop_back();
        }
        if (v < input_count) continue;
        const int s = v - input_count;
        const PlannedLink& link = links_[s];
        std::vector<int> operands = link.operands;
        if (link.way == Way::rotates || link.way == Way::selects_by)
            operands.insert(operands.end(), link.reads, link.reads + 2);
        if (!link.joining.links.empty()) operands.push_back(link.joining.first);
        for (const JoinedLink& joined : link.joining.links)
            if (joined.value != JoinedLink::itself) operands.push_back(joined.value);
        for (size_t i = 0; i < operands.size(); ++i) {
            bool repeated = false;
            for (size_t j = 0; j < i; ++j) repeated = repeated || operands[j] == operands[i];
            const int operand = operands[i];
            if (!repeated && last_use[operand] == s && !is_constant(operand))
                free_registers.push_back(registers_[operand]);
        }
    }
}

// A link goes on from the operand that nothing else reads, the one with more links before it if both
// are such. What the others read stays until the last one.
void Chain::plan_joinings(std::vector<int>& last_use) {
    const size_t first = inputs_.size();
    std::vector<int> readers(dtypes_.size());
    for (const PlannedLink& link : links_) {
        if (link.way == Way::repeats) readers[link.reads[0]] += 2;
        else
            for (const int v : link.operands) ++readers[v];
    }
    for (const int v : outputs_) ++readers[v];
    const auto length = [&](int value, int times) -> size_t {
        const PlannedLink* const link = link_of(value);
        const size_t n = link == nullptr || readers[value] != times ? 0 : link->joining.links.size();
        return n < max_joined ? n : 0;
    };
    for (PlannedLink& link : links_) {
        if (!joins_floats(link)) continue;
        const std::vector<int>& operands = link.operands;
        const bool is_twice = operands[0] == operands[1];
        const size_t of_left = length(operands[0], is_twice ? 2 : 1),
                     of_right = is_twice ? of_left : length(operands[1], 1);
        const bool begins = of_left == 0 && of_right == 0;
        const bool turned = begins ? operands[1] == 0 || is_constant(operands[0]) : of_right > of_left;
        const int before = operands[turned];
        Joining joining{before, {}};
        if (!begins) {
            Joining& earlier = links_[before - first].joining;
            joining = {earlier.first, earlier.links};
            earlier.goes_on = true;
        }
        joining.links.push_back({link.op, is_twice ? JoinedLink::itself : operands[!turned], turned});
        link.joining = std::move(joining);
    }
    for (size_t s = 0; s < links_.size(); ++s) {
        const Joining& joining = links_[s].joining;
        if (joining.goes_on || joining.links.empty()) continue;
        keep_until(last_use, joining.first, static_cast<int>(s));
        for (const JoinedLink& joined : joining.links)
            if (joined.value != JoinedLink::itself)
                keep_until(last_use, joined.value, static_cast<int>(s));
    }
}

void Chain::plan_sole_joining() {
    if (outputs_.size() != 1) return;
    const PlannedLink* link = link_of(outputs_[0]);
    const bool is_rounded = link != nullptr && link->way == Way::aliases;
    if (is_rounded) link = link_of(link->operands[0]);
    if (link == nullptr || joined_steps_.size() != (is_rounded ? 2 : 1)) return;
    const Joining& joining = link->joining;
    const auto is_ready = [&](int value) {
        return is_constant(value) || (link_of(value) == nullptr && dtypes_[value] == DType::float32);
    };
    if (joining.links.empty() || !is_ready(joining.first)) return;
    for (const JoinedLink& joined : joining.links)
        if (joined.value != JoinedLink::itself && !is_ready(joined.value)) return;
    sole_joining_ = static_cast<int>(link - links_.data());
}

// A function takes as long as some sixteen additions (measured).
void Chain::plan_grain() {
    constexpr int64_t of_function = 16, additions = 128, most_tiles = 16;
    int64_t cost = 1;
    for (const int s : steps_) {
        const PlannedLink& link = links_[s];
        const bool is_function = link.op < op_count && op_rows[link.op].kind == Kind::function;
        cost += is_function && !link.looks_up ? of_function : 1;
    }
    grain_ = std::clamp<int64_t>(additions / cost, 1, most_tiles) * tile_elements;
}

// Narrow elements are more to a block: every one takes some steps around the links.
void Chain::plan_block() {
    constexpr int tile_bytes = sizeof(Tile), first_cache = 16 << 10, line = 64;
    int widest = 1;
    for (const DType t : dtypes_) widest = std::max(widest, computed_bytes(t));
    for (const PlannedLink& link : links_)
        if (link.looks_up) return;
    const int fit = first_cache / (register_count_ * widest) / line * line;
    block_elements_ = std::clamp(fit, tile_elements, tile_bytes / widest);
}

const std::vector<JoinedLink>* Chain::sole_joined_links() const {
    if (sole_joining_ < 0) return nullptr;
    const Joining& joining = links_[sole_joining_].joining;
    for (const JoinedLink& joined : joining.links)
        if (joined.value == 0 || joined.value == JoinedLink::itself) return nullptr;
    return joining.first == 0 ? &joining.links : nullptr;
}

}  // namespace neuronsim
