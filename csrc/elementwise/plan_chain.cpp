// How the links of a chain run: which are one step or none, and in which registers their values lie.
#include <map>
#include <utility>

#include "elementwise/chain.h"

namespace neuronsim {
namespace {

// Whether it is one that the kernel of terms joined with rows has.
bool joins(int op) {
    return op < op_count &&
           (op_rows[op].kind == Kind::reducer || op == static_cast<int>(Op::subtract) ||
            op == static_cast<int>(Op::divide));
}

}  // namespace

// Whether a link is (x << c) | (x >> (32 - c)) of one x, as random numbers are made.
bool Chain::is_rotation(size_t index, int* of, int* by) const {
    const Link& link = links_[index];
    if (link.op != static_cast<int>(Op::bitwise_or) || storage_bytes(link.result) != 4) return false;
    int found[2] = {-1, -1}, amounts[2] = {};
    for (const int v : link.operands) {
        if (v < static_cast<int>(inputs_.size())) return false;
        const Link& shift = links_[static_cast<size_t>(v) - inputs_.size()];
        const bool left = shift.op == static_cast<int>(Op::shift_left);
        if (!left && shift.op != static_cast<int>(Op::shift_right_logical)) return false;
        const auto x = static_cast<size_t>(shift.operands[0]),
                   amount = static_cast<size_t>(shift.operands[1]);
        if (!is_constant(amount) || shift.result != link.result || dtypes_[x] != link.result)
            return false;
        found[left] = shift.operands[0];
        amounts[left] = static_cast<int>(links_[amount - inputs_.size()].constant & 0xFFFFFFFF);
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
    const auto becomes = [&](size_t s, int op, int by, int a, int b) {
        if (plain_[s].op < 0 || plain_[s].round >= 0) return;
        plain_[s] = {op, 0, by, -1, {a, b, a}};
        for (const int v : {a, b}) keep_until(last_use, v, static_cast<int>(s));
        for (const int v : links_[s].operands)
            if (v != a && v != b && readers[v] == 1)
                plain_[static_cast<size_t>(v) - first].op = part_of_rotation;
    };
    for (size_t s = 0; s < links_.size(); ++s) {
        const Link& link = links_[s];
        int of, by;
        if (is_rotation(s, &of, &by)) becomes(s, rotation, by, of, of);
        if (link.op != static_cast<int>(Op::bitwise_xor)) continue;
        for (size_t i = 0; i < 2; ++i) {
            const auto v = static_cast<size_t>(link.operands[i]);
            if (v < first || plain_[v - first].op != rotation || readers[v] != 1) continue;
            const Plain rotated = plain_[v - first];
            becomes(s, rotation + 1, rotated.bits, rotated.operands[0], link.operands[1 - i]);
            break;
        }
    }
}

// A conversion that storing its result does has its operand's place, to the end.
void Chain::plan_aliases(std::vector<int>& last_use) {
    for (size_t s = 0; s < links_.size(); ++s) {
        aliases_.push_back(false);
        if (!is_conversion(links_[s].op)) continue;
        const size_t operand = static_cast<size_t>(links_[s].operands[0]);
        aliases_[s] = is_device_float(links_[s].result) && storage_bytes(links_[s].result) < 4 &&
                      is_device_float(dtypes_[operand]) && !rounds_[s] && !moves_[inputs_.size() + s];
        if (aliases_[s]) last_use[operand] = static_cast<int>(dtypes_.size());
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
        repeats_.push_back(-1);
        const size_t s = v - first;
        if (is_constant(v)) same[v] = constants.try_emplace(constants_[s].get(), number).first->second;
        if (plain_[s].op < 0 || plain_[s].op >= op_count || is_passed_[s]) continue;
        std::vector<int> key{links_[s].op, static_cast<int>(links_[s].result)};
        for (const int operand : links_[s].operands) key.push_back(same[operand]);
        same[v] = values.try_emplace(std::move(key), number).first->second;
        if (same[v] == number) continue;
        repeats_[s] = same[v];
        last_use[same[v]] = static_cast<int>(dtypes_.size());
        for (size_t o = 0; o < outputs_.size(); ++o)
            if (outputs_[o] == number) misaligned_[o] = ~uintptr_t{0};
    }
}

// A link's result never shares a tile with its operands: their elements may differ in size.
void Chain::plan_registers(const std::vector<int>& last_use) {
    const int values = static_cast<int>(dtypes_.size()), input_count = static_cast<int>(inputs_.size());
    std::vector<int> free_registers;
    for (int v = 0; v < values; ++v) {
        if (is_constant(static_cast<size_t>(v))) {
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
        std::vector<int> operands = links_[s].operands;
        const Plain& plain = plain_[s];
        if (plain.op == rotation || plain.op == rotation + 1)
            operands.insert(operands.end(), plain.operands, plain.operands + 2);
        const Joining& joining = joinings_[s];
        if (!joining.folds.empty()) operands.push_back(joining.first);
        for (const Fold& fold : joining.folds) operands.push_back(fold.value);
        for (size_t i = 0; i < operands.size(); ++i) {
            bool repeated = false;
            for (size_t j = 0; j < i; ++j) repeated = repeated || operands[j] == operands[i];
            const auto operand = static_cast<size_t>(operands[i]);
            if (!repeated && last_use[operand] == s && !is_constant(operand))
                free_registers.push_back(registers_[operands[i]]);
        }
    }
}

// Whether a link is the kernel of such an operation, of float32 values and nothing else.
bool Chain::joins_floats(size_t index) const {
    const Link& link = links_[index];
    return plain_[index].op >= 0 && plain_[index].op < op_count && joins(link.op) &&
           link.result == DType::float32 && plain_[index].round < 0 && repeats_[index] < 0 &&
           !is_passed_[index];
}

// A link goes on from the operand that nothing else reads, the one with more links before it if both
// are such. What the others read stays until the last one.
void Chain::plan_joinings(std::vector<int>& last_use) {
    const size_t first = inputs_.size();
    std::vector<int> readers(dtypes_.size());
    for (size_t s = 0; s < links_.size(); ++s) {
        if (repeats_[s] >= 0) readers[repeats_[s]] += 2;
        else
            for (const int v : links_[s].operands) ++readers[v];
    }
    for (const int v : outputs_) ++readers[v];
    const auto length = [&](int value) -> size_t {
        const auto v = static_cast<size_t>(value);
        const size_t n = v < first || readers[v] != 1 ? 0 : joinings_[v - first].folds.size();
        return n < max_joined ? n : 0;
    };
    for (size_t s = 0; s < links_.size(); ++s) {
        joinings_.push_back({});
        if (!joins_floats(s)) continue;
        const std::vector<int>& operands = links_[s].operands;
        const size_t of_left = length(operands[0]), of_right = length(operands[1]);
        const bool begins = of_left == 0 && of_right == 0;
        const bool turned = begins ? operands[1] == 0 || is_constant(static_cast<size_t>(operands[0]))
                                   : of_right > of_left;
        const int before = operands[turned];
        Joining joining{before, {}};
        if (!begins) {
            Joining& earlier = joinings_[static_cast<size_t>(before) - first];
            joining = {earlier.first, earlier.folds};
            earlier.goes_on = true;
        }
        joining.folds.push_back({links_[s].op, operands[!turned], turned});
        joinings_[s] = std::move(joining);
    }
    for (size_t s = 0; s < links_.size(); ++s) {
        const Joining& joining = joinings_[s];
        if (joining.goes_on || joining.folds.empty()) continue;
        keep_until(last_use, joining.first, static_cast<int>(s));
        for (const Fold& fold : joining.folds) keep_until(last_use, fold.value, static_cast<int>(s));
    }
}

void Chain::plan_sole_joining() {
    if (outputs_.size() != 1) return;
    auto v = static_cast<size_t>(outputs_[0]);
    const size_t first = inputs_.size();
    const bool is_rounded = v >= first && aliases_[v - first];
    if (is_rounded) v = static_cast<size_t>(links_[v - first].operands[0]);
    if (v < first || joined_steps_.size() != (is_rounded ? 2 : 1)) return;
    const Joining& joining = joinings_[v - first];
    const auto is_ready = [&](int value) {
        const auto i = static_cast<size_t>(value);
        return is_constant(i) || (i < first && dtypes_[i] == DType::float32);
    };
    if (joining.folds.empty() || !is_ready(joining.first)) return;
    for (const Fold& fold : joining.folds)
        if (!is_ready(fold.value)) return;
    sole_joining_ = static_cast<int>(v - first);
}

const std::vector<Chain::Fold>* Chain::sole_folds() const {
    if (sole_joining_ < 0) return nullptr;
    const Joining& joining = joinings_[sole_joining_];
    for (const Fold& fold : joining.folds)
        if (fold.value == 0) return nullptr;
    return joining.first == 0 ? &joining.folds : nullptr;
}

}  // namespace neuronsim
