#include "elementwise/chain.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "machine/dispatch.h"

namespace neuronsim {
namespace {

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
    if (kernels().op[link.op][domain] == nullptr)
        fail("not defined for " + std::string(dtype_names[dtype(first)]));
    const bool fits = op_rows[link.op].kind == Kind::comparison ? link.result == DType::boolean
                                                                : domain_of(link.result) == domain;
    if (!fits) fail("the result cannot be " + std::string(dtype_names[link.result]));
}

}  // namespace

Chain::Chain(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
             const Numerics& numerics)
    : inputs_(std::move(inputs)), outputs_(std::move(outputs)), dtypes_(inputs_), numerics_(numerics) {
    for (Link& link : links) {
        if (link.op < 0 || link.op > truncated_op) throw std::invalid_argument("unknown operation");
        check_link(link, dtypes_);
        dtypes_.push_back(link.result);
        links_.push_back({std::move(link)});
    }
    for (const int v : outputs_)
        if (v < 0 || v >= static_cast<int>(dtypes_.size()))
            throw std::invalid_argument("an output is not computed");
    plan();
}

int Chain::sole_operation() const {
    const bool is_one = links_.size() == 1 && inputs_.size() == 2 && inputs_[0] == inputs_[1] &&
                        outputs_ == std::vector<int>{2} && links_[0].op < op_count &&
                        links_[0].result == inputs_[0] && links_[0].operands == std::vector<int>{0, 1};
    return is_one && !links_[0].rounds && !links_[0].looks_up && !numerics_.flush_subnormals
               ? links_[0].op
               : -1;
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
    for (const PlannedLink& link : links_)
        if (link.rounds && is_device_float(link.result) && link.result != DType::float32 &&
            rounds_float32(link))
            return true;
    return false;
}

// Whether a link's result is a float32 before it is rounded (S1), not the stepping stone of a wider
// type. C1: an integer of 32 bits or fewer goes through float32 unless the profile says exact.
bool Chain::rounds_float32(const Link& link) const {
    const DType source = dtypes_[link.operands.back()];
    return !is_conversion(link.op) || is_device_float(source) ||
           (numerics_.integers_via_float32 && source != DType::float64 && storage_bytes(source) <= 4);
}

std::vector<int> Chain::chosen(const Kernels& k, const void* const* elements) const {
    std::vector<int> input(dtypes_.size());   // that a value is
    std::vector<char> bools(dtypes_.size());  // that links give
    std::vector<const void*> at(elements, elements + inputs_.size());
    for (size_t i = 0; i < inputs_.size(); ++i) input[i] = static_cast<int>(i);
    for (const Link& link : links_) {
        const size_t v = at.size();
        const void* operands[max_arity] = {};
        for (size_t i = 0; i < link.operands.size(); ++i) operands[i] = at[link.operands[i]];
        const DType source = dtypes_[link.operands.back()];
        if (op_rows[link.op].kind == Kind::selection) {
            const bool takes_first = *static_cast<const char*>(operands[0]) != 0;
            const int from = link.operands[takes_first ? 1 : 2];
            input[v] = input[from];
            at.push_back(at[from]);
        } else {
            k.op[link.op][domain_of(source)](&bools[v], operands, 1, 8 * storage_bytes(source));
            input[v] = -1;
            at.push_back(&bools[v]);
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
    const PlannedLink* link = link_of(outputs_[i]);
    while (link != nullptr && link->way == Way::aliases) link = link_of(link->operands[0]);
    return link != nullptr && computes_nan(link->op);
}

void Chain::copy_output(const Kernels& k, size_t i, const void* value, int n, void* target) const {
    const int v = outputs_[i];
    const DType t = dtypes_[v];
    if (moves(v) || !is_device_float(t)) {
        __builtin_memmove(target, value, static_cast<size_t>(n * computed_bytes(t)));
        return;
    }
    k.canonicalize(target, value, n);
    k.round[t](target, n);
}

}  // namespace neuronsim
