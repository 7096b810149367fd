#include "elementwise/chain.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "machine/dispatch.h"

namespace neuronsim {
namespace {

// Whether a NaN that it gives is the canonical one (E6).
bool computes_nan(const Link& link) {
    return link.is(Kind::reducer) || link.is(Kind::arithmetic) || link.is(Kind::floating) ||
           link.is(Kind::function);
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
    const size_t first = link.is(Kind::selection) ? 1 : 0;
    if (first == 1 && dtype(0) != DType::boolean) fail("the first operand must be bool");
    const Domain domain = domain_of(dtype(first));
    for (size_t i = first; i < link.operands.size(); ++i)
        if (domain_of(dtype(i)) != domain) fail("the operands' types do not go together");
    if (kernels().op[link.op][domain] == nullptr)
        fail("not defined for " + std::string(dtype_names[dtype(first)]));
    const bool fits =
        link.is(Kind::comparison) ? link.result == DType::boolean : domain_of(link.result) == domain;
    if (!fits) fail("the result cannot be " + std::string(dtype_names[link.result]));
}

ChainPlan checked(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
                  const Numerics& numerics) {
    ChainPlan chain{inputs, {}, std::move(outputs), numerics, std::move(inputs)};
    for (Link& link : links) {
        if (link.op < 0 || link.op > truncated_op) throw std::invalid_argument("unknown operation");
        check_link(link, chain.dtypes);
        chain.dtypes.push_back(link.result);
        chain.links.push_back({std::move(link)});
    }
    for (const int v : chain.outputs)
        if (v < 0 || v >= static_cast<int>(chain.dtypes.size()))
            throw std::invalid_argument("an output is not computed");
    return chain;
}

}  // namespace

Chain::Chain(std::vector<DType> inputs, std::vector<Link> links, std::vector<int> outputs,
             const Numerics& numerics)
    : p_(planned(checked(std::move(inputs), std::move(links), std::move(outputs), numerics))) {}

int Chain::sole_operation() const {
    const bool is_one = p_.links.size() == 1 && p_.inputs.size() == 2 && p_.inputs[0] == p_.inputs[1] &&
                        p_.outputs == std::vector<int>{2} && p_.links[0].op < op_count &&
                        p_.links[0].result == p_.inputs[0] &&
                        p_.links[0].operands == std::vector<int>{0, 1};
    return is_one && !p_.links[0].rounds && !p_.links[0].looks_up && !p_.numerics.flush_subnormals
               ? p_.links[0].op
               : -1;
}

bool Chain::only_chooses() const {
    if (!p_.numerics.plain()) return false;
    for (const Link& link : p_.links) {
        const bool compares =
            link.is(Kind::comparison) && static_cast<Op>(link.op) <= Op::greater_equal;
        const bool combines = link.is(Kind::integral) && link.result == DType::boolean;
        if (!compares && !combines && !link.is(Kind::selection)) return false;
    }
    return true;
}

bool Chain::draws() const {
    if (!p_.numerics.stochastic) return false;
    for (const PlannedLink& link : p_.links)
        if (link.rounds && is_device_float(link.result) && link.result != DType::float32 &&
            p_.rounds_float32(link))
            return true;
    return false;
}

std::vector<int> Chain::chosen(const Kernels& k, const void* const* elements) const {
    std::vector<int> input(p_.dtypes.size());   // that a value is
    std::vector<char> bools(p_.dtypes.size());  // that links give
    std::vector<const void*> at(elements, elements + p_.inputs.size());
    for (size_t i = 0; i < p_.inputs.size(); ++i) input[i] = static_cast<int>(i);
    for (const Link& link : p_.links) {
        const size_t v = at.size();
        const void* operands[max_arity] = {};
        for (size_t i = 0; i < link.operands.size(); ++i) operands[i] = at[link.operands[i]];
        const DType source = p_.dtypes[link.operands.back()];
        if (link.is(Kind::selection)) {
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
    for (const int v : p_.outputs) found.push_back(input[v]);
    return found;
}

const QuantizingPass* Chain::sole_pass() const {
    if (p_.outputs.size() != 1 || p_.steps.size() != 1) return nullptr;
    const PlannedLink* const link = p_.link_of(p_.outputs[0]);
    if (link == nullptr || link->way != Way::quantizes) return nullptr;
    const QuantizingPass& pass = link->pass;
    const int inputs = static_cast<int>(p_.inputs.size());
    return pass.values == 0 && pass.taken < inputs && pass.factors < inputs ? &pass : nullptr;
}

const std::vector<JoinedLink>* Chain::sole_joined_links() const {
    if (p_.sole_joining < 0) return nullptr;
    const Joining& joining = p_.links[p_.sole_joining].joining;
    for (const JoinedLink& joined : joining.links)
        if (joined.value == 0 || joined.value == JoinedLink::itself) return nullptr;
    return joining.first == 0 ? &joining.links : nullptr;
}

bool Chain::absorbs_nan(size_t input) const {
    const auto v = static_cast<int>(input);
    for (const Link& link : p_.links)
        for (const int operand : link.operands)
            if (operand == v && !computes_nan(link)) return false;
    return std::find(p_.outputs.begin(), p_.outputs.end(), v) == p_.outputs.end();
}

bool Chain::has_canonical_nan(size_t i) const {
    const PlannedLink* link = p_.link_of(p_.outputs[i]);
    while (link != nullptr && link->way == Way::aliases) link = p_.link_of(link->operands[0]);
    return link != nullptr && computes_nan(*link);
}

void Chain::copy_output(const Kernels& k, size_t i, const void* value, int n, void* target) const {
    const int v = p_.outputs[i];
    const DType t = p_.dtypes[v];
    if (p_.moves(v) || !is_device_float(t)) {
        __builtin_memmove(target, value, static_cast<size_t>(n * computed_bytes(t)));
        return;
    }
    k.canonicalize(target, value, n);
    k.round[t](target, n);
}

}  // namespace neuronsim
