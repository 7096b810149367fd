// The steps of a chain that make bytes of float32 values, found so that they are done in one pass:
// rules Q1 and Q3.

#include <utility>

#include "elementwise/chain_plan.h"

namespace neuronsim {
namespace {

// Below it a float32 plus 1.5 * 2^23 counts by ones (elementwise/quantize.h).
constexpr float greatest_limit = 0x1p22f;

// Goes back from a value over links whose results nothing else reads.
class Backward {
public:
    Backward(const ChainPlan& chain, const std::vector<int>& readers, int value)
        : at(value), chain_(chain), readers_(readers) {}

    int at;                 // the value at hand
    std::vector<int> done;  // the links that were gone over

    DType type() const { return chain_.dtypes[at]; }

    // The link that computes the value, or null.
    const Link* link(int value) const { return readers_[value] == 1 ? chain_.link_of(value) : nullptr; }
    bool is(Op op) const {
        const Link* l = link(at);
        return l != nullptr && l->is(op);
    }
    bool converts(DType from) const {
        const Link* l = link(at);
        return l != nullptr && is_conversion(l->op) && chain_.dtypes[l->operands[0]] == from;
    }
    // Whether operand i is one number of float32 or int32 everywhere, which it then gives.
    template <class T>
    bool takes(size_t i, T& number) const {
        const Link* l = link(link(at)->operands[i]);
        if (l == nullptr || l->op != constant_op) return false;
        __builtin_memcpy(&number, &l->constant, sizeof number);
        return true;
    }
    int operand(size_t i) const { return link(at)->operands[i]; }
    // On to operand i, past the constants beside it.
    void go(size_t i) {
        const Link* l = link(at);
        for (size_t other = 0; other < l->operands.size(); ++other) {
            const Link* c = link(l->operands[other]);
            if (other != i && c != nullptr && c->op == constant_op) note(l->operands[other]);
        }
        note(std::exchange(at, l->operands[i]));
    }

private:
    void note(int value) { done.push_back(value - static_cast<int>(chain_.inputs.size())); }

    const ChainPlan& chain_;
    const std::vector<int>& readers_;
};

// Over the steps behind the nearest integers: clamp, convert, add the zero point.
bool passes_limits(Backward& back, Quantizing& q) {
    const DType result = back.type();
    if (back.converts(DType::int32)) {
        back.go(0);
        if (back.is(Op::add)) {
            if (back.takes(1, q.zero)) back.go(0);
            else if (back.takes(0, q.zero)) back.go(1);
            else return false;
        }
        if (!back.converts(DType::float32)) return false;
    } else if (!back.converts(DType::float32)) {
        return false;
    }
    const bool wraps = back.type() == DType::int32;
    back.go(0);
    if (back.is(Op::clamp)) {
        if (!back.takes(0, q.low) || !back.takes(2, q.high)) return false;
        back.go(1);
    } else {
        for (const auto& [op, limit] : {std::pair{Op::minimum, &q.high}, {Op::maximum, &q.low}}) {
            if (!back.is(op)) return false;
            if (back.takes(1, *limit)) back.go(0);
            else if (back.takes(0, *limit)) back.go(1);
            else return false;
        }
    }
    const float least = wraps ? -greatest_limit : is_signed_integer(result) ? -128.0f : 0.0f;
    const float most = wraps ? greatest_limit : is_signed_integer(result) ? 127.0f : 255.0f;
    const auto is_whole = [](float x) { return x == static_cast<float>(static_cast<int>(x)); };
    return least <= q.low && q.low <= 0 && 0 <= q.high && q.high <= most && is_whole(q.low) &&
           is_whole(q.high);
}

// Whether a value is a float of 32-bit integers.
bool is_from_sums(const ChainPlan& chain, int value) {
    const Link* const link = chain.link_of(value);
    return link != nullptr && link->op == convert_op && chain.dtypes[link->operands[0]] == DType::int32;
}

}  // namespace

std::optional<QuantizingPass> find_pass(const ChainPlan& chain, const std::vector<int>& readers,
                                        int value) {
    QuantizingPass pass;
    Quantizing& q = pass.quantizing;
    Backward back(chain, readers, value);
    const bool gives_bytes = back.type() == DType::int8 || back.type() == DType::uint8;
    if (!gives_bytes || !passes_limits(back, q) || !back.is(Op::rint)) return {};
    back.go(0);
    if (back.type() != DType::float32) return {};
    q.divides = back.is(Op::divide);
    if (q.divides || back.is(Op::multiply)) {
        // The factor is a constant, or else what is not converted from sums.
        const bool is_first = !q.divides && !back.takes(1, q.factor) &&
                              (back.takes(0, q.factor) || is_from_sums(chain, back.operand(1)));
        const size_t factor = is_first ? 0 : 1;
        if (!back.takes(factor, q.factor)) pass.factors = back.operand(factor);
        back.go(1 - factor);
    }
    if (!q.divides && back.converts(DType::int32)) {
        q.kind = QuantizedValues::sums;
        back.go(0);
        if (back.is(Op::subtract)) {
            pass.taken = back.operand(1);
            back.go(0);
        }
    }
    pass.values = back.at;
    pass.links = std::move(back.done);
    return pass;
}

}  // namespace neuronsim
