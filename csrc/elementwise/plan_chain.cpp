// How the links of a chain run: which are one step or none, and in which registers their values lie.
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "elementwise/chain_plan.h"
#include "functions/function_table.h"
#include "machine/dispatch.h"

namespace neuronsim {
namespace {

// Whether an operation moves or flips bits (E6) instead of computing.
bool moves_bits(const Link& link) {
    return link.op >= restrict_op || link.is(Kind::bitwise) || link.is(Kind::sign) ||
           link.is(Kind::selection);
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
    const bool joins = link.is(Kind::reducer) || link.is(Op::subtract) || link.is(Op::divide);
    return joins && link.way == Way::operates && link.result == DType::float32 && link.round < 0;
}

class Planner {
public:
    explicit Planner(ChainPlan& chain) : p_(chain), last_use_(chain.dtypes.size(), -1) {}

    void plan() {
        for (int s = 0; s < static_cast<int>(p_.links.size()); ++s)
            for (const int v : p_.links[s].operands) last_use_[v] = s;
        for (size_t s = 0; s < p_.links.size(); ++s) plan_link(s);
        for (const int v : p_.outputs) {
            last_use_[v] = to_the_end();
            const DType t = p_.dtypes[v];
            const bool never =
                p_.link_of(v) == nullptr || p_.is_constant(v) || !is_stored_as_computed(t);
            p_.misaligned.push_back(never ? ~uintptr_t{0}
                                          : static_cast<uintptr_t>(computed_bytes(t)) - 1);
        }
        plan_rotations();
        plan_aliases();
        plan_passes();
        plan_repeats();
        plan_selections();
        plan_joinings();
        plan_registers();
        for (size_t s = 0; s < p_.links.size(); ++s) {
            const PlannedLink& link = p_.links[s];
            if (link.way == Way::constant || link.way == Way::taken_over) continue;
            p_.steps.push_back(static_cast<int>(s));
            if (!link.joining.goes_on) p_.joined_steps.push_back(static_cast<int>(s));
        }
        plan_sole_joining();
        plan_grain();
        plan_block();
    }

private:
    // What running link `s` has to do besides computing.
    void plan_link(size_t s) {
        PlannedLink& link = p_.links[s];
        const size_t value = p_.inputs.size() + s;
        const DType t = link.result;
        const bool is_operation = link.op < op_count, is_read = last_use_[value] >= 0;  // by a link
        const bool selects = link.is(Kind::selection);
        bool same = true;  // the moved operands have the result's type
        for (size_t i = selects ? 1 : 0; i < link.operands.size(); ++i)
            same = same && p_.dtypes[link.operands[i]] == t;
        link.moves = link.op == bitcast_op || (same && (is_conversion(link.op) || moves_bits(link)));
        link.looks_up = is_operation && p_.numerics.plain() && has_function_table(link.op, t) &&
                        p_.dtypes[link.operands[0]] == t;
        // A value that is only stored need not be rounded before: storing a narrow float rounds it.
        const bool store_rounds = is_device_float(t) && storage_bytes(t) < 4 && p_.numerics.plain();
        const bool is_logical = is_conversion(link.op) || link.is(Kind::comparison) ||
                                (same && is_operation && gives_one_bit(static_cast<Op>(link.op)));
        const bool is_exact = t == DType::boolean  ? is_logical
                              : is_device_float(t) ? t == DType::float32 && p_.numerics.plain()
                                                   : is_stored_as_computed(t);
        link.rounds = link.op != constant_op && !is_exact &&
                      !(link.moves && (is_device_float(t) || selects)) && (is_read || !store_rounds) &&
                      !link.looks_up;
        if (link.op == constant_op) {
            link.way = Way::constant;
            link.everywhere = constant_tile(t, link.constant);
            p_.fixed.push_back({value, link.everywhere.get()});
            return;
        }
        for (size_t i = 0; i < max_reads; ++i)
            link.reads[i] = link.operands[i < link.operands.size() ? i : 0];
        if (!is_operation || link.looks_up || !p_.numerics.plain()) return;
        const DType source = p_.dtypes[link.operands.back()];
        link.way = Way::operates;
        link.kernel = link.op;
        link.domain = domain_of(source);
        link.bits = 8 * storage_bytes(source);
        if (link.rounds) link.round = static_cast<int>(t);
    }

    // Whether a link is (x << c) | (x >> (32 - c)) of one x, as random numbers are made.
    bool is_rotation(const Link& link, int* of, int* by) const {
        if (!link.is(Op::bitwise_or) || storage_bytes(link.result) != 4) return false;
        int found[2] = {-1, -1}, amounts[2] = {};
        for (const int v : link.operands) {
            const Link* const shift = p_.link_of(v);
            if (shift == nullptr) return false;
            const bool left = shift->is(Op::shift_left);
            if (!left && !shift->is(Op::shift_right_logical)) return false;
            const Link* const amount = p_.link_of(shift->operands[1]);
            if (amount == nullptr || amount->op != constant_op || shift->result != link.result ||
                p_.dtypes[shift->operands[0]] != link.result)
                return false;
            found[left] = shift->operands[0];
            amounts[left] = static_cast<int>(amount->constant & 0xFFFFFFFF);
        }
        *of = found[0];
        *by = amounts[1];
        return found[0] >= 0 && found[0] == found[1] && *by > 0 && *by < 32 && amounts[0] == 32 - *by;
    }

    std::vector<int> reader_counts() const {
        std::vector<int> readers(p_.dtypes.size());
        for (const Link& link : p_.links)
            for (const int v : link.operands) ++readers[v];
        for (const int v : p_.outputs) ++readers[v];
        return readers;
    }

    // Rotations are one step, with the exclusive or that takes one over; what only they read is none.
    void plan_rotations() {
        const size_t first = p_.inputs.size();
        const std::vector<int> readers = reader_counts();
        const auto becomes = [&](size_t s, bool takes_over, int by, int a, int b) {
            PlannedLink& link = p_.links[s];
            if (link.way != Way::operates || link.round >= 0) return;
            link.way = Way::rotates;
            link.kernel = takes_over;
            link.bits = by;
            link.reads[0] = a;
            link.reads[1] = b;
            for (const int v : {a, b}) keep_until(v, s);
            for (const int v : link.operands)
                if (v != a && v != b && readers[v] == 1) p_.links[v - first].way = Way::taken_over;
        };
        for (size_t s = 0; s < p_.links.size(); ++s) {
            const Link& link = p_.links[s];
            int of, by;
            if (is_rotation(link, &of, &by)) becomes(s, false, by, of, of);
            if (!link.is(Op::bitwise_xor)) continue;
            for (size_t i = 0; i < 2; ++i) {
                const int v = link.operands[i];
                const PlannedLink* const rotated = p_.link_of(v);
                if (rotated == nullptr || rotated->way != Way::rotates || rotated->kernel != 0 ||
                    readers[v] != 1)
                    continue;
                becomes(s, true, rotated->bits, rotated->reads[0], link.operands[1 - i]);
                break;
            }
        }
    }

    // A conversion that storing its result does has its operand's place, to the end.
    void plan_aliases() {
        for (PlannedLink& link : p_.links) {
            if (!is_conversion(link.op) || link.rounds || link.moves) continue;
            const int operand = link.operands[0];
            if (!is_device_float(link.result) || storage_bytes(link.result) >= 4 ||
                !is_device_float(p_.dtypes[operand]))
                continue;
            link.way = Way::aliases;
            last_use_[operand] = to_the_end();
        }
    }

    void plan_passes() {
        if (!p_.numerics.plain()) return;
        const std::vector<int> readers = reader_counts();
        for (const int v : p_.outputs) {
            const std::optional<QuantizingPass> pass = find_pass(p_, readers, v);
            if (!pass) continue;
            for (const int s : pass->links)
                if (p_.links[s].way != Way::constant) p_.links[s].way = Way::taken_over;
            const size_t last = static_cast<size_t>(v) - p_.inputs.size();
            // What it reads stays until then.
            for (const int operand : {pass->values, pass->taken, pass->factors})
                if (operand >= 0) keep_until(operand, last);
            p_.links[last].way = Way::quantizes;
            p_.links[last].pass = *pass;
        }
    }

    // What an earlier link computes of the same values is not computed again, and kept to the end.
    void plan_repeats() {
        const size_t first = p_.inputs.size();
        std::vector<int> same(p_.dtypes.size());  // of every value: the first that is it
        std::map<std::vector<int>, int> values;
        std::map<const Tile*, int> constants;
        for (size_t v = 0; v < p_.dtypes.size(); ++v) {
            const int number = static_cast<int>(v);
            same[v] = number;
            if (v < first) continue;
            PlannedLink& link = p_.links[v - first];
            if (p_.is_constant(v))
                same[v] = constants.try_emplace(link.everywhere.get(), number).first->second;
            if (link.way != Way::operates) continue;
            std::vector<int> key{link.op, static_cast<int>(link.result), link.round};
            for (const int operand : link.operands) key.push_back(same[operand]);
            same[v] = values.try_emplace(std::move(key), number).first->second;
            if (same[v] == number) continue;
            link.way = Way::repeats;
            link.reads[0] = same[v];
            last_use_[same[v]] = to_the_end();
            for (size_t o = 0; o < p_.outputs.size(); ++o)
                if (p_.outputs[o] == number) p_.misaligned[o] = ~uintptr_t{0};
        }
    }

    // A comparison that only a few selections read is one step with each of them: without its bools in
    // memory that is quicker.
    void plan_selections() {
        constexpr int most_selections = 2;
        const size_t first = p_.inputs.size();
        const auto takes_words = [&](const PlannedLink& link) {
            return computed_bytes(p_.dtypes[link.operands.back()]) == 4;
        };
        const auto source = [&](int v) {
            const PlannedLink* const link = p_.link_of(v);
            return link != nullptr && link->way == Way::repeats ? link->reads[0] : v;
        };
        const auto selects = [&](const PlannedLink& link) {
            return link.way == Way::operates && link.is(Op::select) && link.round < 0 &&
                   takes_words(link);
        };
        std::vector<int> selections(p_.dtypes.size()), others(p_.dtypes.size());
        for (const PlannedLink& link : p_.links) {
            if (link.way == Way::repeats || link.way == Way::taken_over) continue;
            for (size_t i = 0; i < link.operands.size(); ++i)
                ++(i == 0 && selects(link) ? selections : others)[source(link.operands[i])];
        }
        for (const int v : p_.outputs) ++others[source(v)];
        for (size_t s = 0; s < p_.links.size(); ++s) {
            PlannedLink& link = p_.links[s];
            const int condition = link.operands.empty() ? -1 : source(link.operands[0]);
            if (!selects(link) || condition < static_cast<int>(first)) continue;
            PlannedLink& comparison = p_.links[condition - first];
            const bool compares =
                comparison.is(Kind::comparison) &&
                (comparison.way == Way::operates || comparison.way == Way::taken_over);
            if (!compares || !takes_words(comparison) || others[condition] > 0 ||
                selections[condition] > most_selections)
                continue;
            comparison.way = Way::taken_over;
            link.way = Way::selects_by;
            link.kernel = comparison.op;
            link.domain = comparison.domain;
            const int reads[] = {comparison.reads[0], comparison.reads[1], link.reads[1],
                                 link.reads[2]};
            std::copy_n(reads, max_reads, link.reads);
            for (const int v : {reads[0], reads[1]}) keep_until(v, s);
        }
    }

    // A link's result never shares a tile with its operands: their elements may differ in size.
    void plan_registers() {
        const int values = static_cast<int>(p_.dtypes.size()),
                  input_count = static_cast<int>(p_.inputs.size());
        std::vector<int> free_registers;
        for (int v = 0; v < values; ++v) {
            if (p_.is_constant(v)) {
                p_.registers.push_back(0);
                continue;
            }
            if (free_registers.empty()) {
                p_.registers.push_back(p_.register_count++);
            } else {
                p_.registers.push_back(free_registers.back());
                free_registers.pop_back();
            }
            if (v < input_count) continue;
            const int s = v - input_count;
            const PlannedLink& link = p_.links[s];
            std::vector<int> operands = link.operands;
            if (link.way == Way::rotates || link.way == Way::selects_by)
                operands.insert(operands.end(), link.reads, link.reads + 2);
            if (!link.joining.links.empty()) operands.push_back(link.joining.first);
            for (const JoinedLink& joined : link.joining.links)
                if (joined.value != JoinedLink::itself) operands.push_back(joined.value);
            for (const int operand : operands) {
                if (last_use_[operand] != s || p_.is_constant(operand)) continue;
                free_registers.push_back(p_.registers[operand]);
                last_use_[operand] = -1;  // it may come again
            }
        }
    }

    // A link goes on from the operand that nothing else reads, the one with more links before it if
    // both are such. What the others read stays until the last one.
    void plan_joinings() {
        const size_t first = p_.inputs.size();
        std::vector<int> readers(p_.dtypes.size());
        for (const PlannedLink& link : p_.links) {
            if (link.way == Way::repeats) readers[link.reads[0]] += 2;
            else
                for (const int v : link.operands) ++readers[v];
        }
        for (const int v : p_.outputs) ++readers[v];
        const auto length = [&](int value, int times) -> size_t {
            const PlannedLink* const link = p_.link_of(value);
            const size_t n =
                link == nullptr || readers[value] != times ? 0 : link->joining.links.size();
            return n < max_joined ? n : 0;
        };
        for (PlannedLink& link : p_.links) {
            if (!joins_floats(link)) continue;
            const std::vector<int>& operands = link.operands;
            const bool is_twice = operands[0] == operands[1];
            const size_t of_left = length(operands[0], is_twice ? 2 : 1),
                         of_right = is_twice ? of_left : length(operands[1], 1);
            const bool begins = of_left == 0 && of_right == 0;
            const bool turned =
                begins ? operands[1] == 0 || p_.is_constant(operands[0]) : of_right > of_left;
            const int before = operands[turned];
            Joining joining{before, {}};
            if (!begins) {
                Joining& earlier = p_.links[before - first].joining;
                joining = {earlier.first, earlier.links};
                earlier.goes_on = true;
            }
            joining.links.push_back(
                {link.op, is_twice ? JoinedLink::itself : operands[!turned], turned});
            link.joining = std::move(joining);
        }
        for (size_t s = 0; s < p_.links.size(); ++s) {
            const Joining& joining = p_.links[s].joining;
            if (joining.goes_on || joining.links.empty()) continue;
            keep_until(joining.first, s);
            for (const JoinedLink& joined : joining.links)
                if (joined.value != JoinedLink::itself) keep_until(joined.value, s);
        }
    }

    void plan_sole_joining() {
        if (p_.outputs.size() != 1) return;
        const PlannedLink* link = p_.link_of(p_.outputs[0]);
        const bool is_rounded = link != nullptr && link->way == Way::aliases;
        if (is_rounded) link = p_.link_of(link->operands[0]);
        if (link == nullptr || p_.joined_steps.size() != (is_rounded ? 2 : 1)) return;
        const Joining& joining = link->joining;
        const auto is_ready = [&](int value) {
            return p_.is_constant(value) ||
                   (p_.link_of(value) == nullptr && p_.dtypes[value] == DType::float32);
        };
        if (joining.links.empty() || !is_ready(joining.first)) return;
        for (const JoinedLink& joined : joining.links)
            if (joined.value != JoinedLink::itself && !is_ready(joined.value)) return;
        p_.sole_joining = static_cast<int>(link - p_.links.data());
    }

    // A function takes as long as some sixteen additions (measured).
    void plan_grain() {
        constexpr int64_t of_function = 16, additions = 128, most_tiles = 16;
        int64_t cost = 1;
        for (const int s : p_.steps) {
            const PlannedLink& link = p_.links[s];
            cost += link.is(Kind::function) && !link.looks_up ? of_function : 1;
        }
        p_.grain = std::clamp<int64_t>(additions / cost, 1, most_tiles) * tile_elements;
    }

    // Narrow elements are more to a block: every one takes some steps around the links.
    void plan_block() {
        constexpr int tile_bytes = sizeof(Tile), first_cache = 16 << 10, line = 64;
        int widest = 1;
        for (const DType t : p_.dtypes) widest = std::max(widest, computed_bytes(t));
        for (const PlannedLink& link : p_.links)
            if (link.looks_up) return;
        const int fit = first_cache / (p_.register_count * widest) / line * line;
        p_.block_elements = std::clamp(fit, tile_elements, tile_bytes / widest);
    }

    // A value that stays is last used behind the last link.
    int to_the_end() const { return static_cast<int>(p_.dtypes.size()); }
    // It stays at least until link `s`.
    void keep_until(int value, size_t s) {
        last_use_[value] = std::max(last_use_[value], static_cast<int>(s));
    }

    ChainPlan& p_;
    std::vector<int> last_use_;  // the last link that reads each value, or `to_the_end`
};

}  // namespace

ChainPlan planned(ChainPlan chain) {
    Planner(chain).plan();
    return chain;
}

}  // namespace neuronsim
