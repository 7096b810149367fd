// The steps of a chain that make bytes of float32 values, found and done in one pass: rules Q1 and Q3.

#include <utility>

#include "elementwise/chain.h"

namespace neuronsim {
namespace {

// Below it a float32 plus 1.5 * 2^23 counts by ones (elementwise/quantize.h).
constexpr float greatest_limit = 0x1p22f;

// Goes back from a value over links whose results nothing else reads.
class Backward {
public:
    Backward(const std::vector<PlannedLink>& links, const std::vector<DType>& dtypes,
             const std::vector<int>& readers, int value)
        : at(value), links_(links), dtypes_(dtypes), readers_(readers) {}

    int at;                 // the value at hand
    std::vector<int> done;  // the links that were gone over

    DType type() const { return dtypes_[at]; }

    // The link that computes the value, or null.
    const Link* link(int value) const {
        const size_t inputs = dtypes_.size() - links_.size(), v = static_cast<size_t>(value);
        return v < inputs || readers_[v] != 1 ? nullptr : &links_[v - inputs];
    }
    bool is(Op op) const {
        const Link* l = link(at);
        return l != nullptr && l->op == static_cast<int>(op);
    }
    bool converts(DType from) const {
        const Link* l = link(at);
        return l != nullptr && is_conversion(l->op) && dtypes_[l->operands[0]] == from;
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
    void note(int value) { done.push_back(value - static_cast<int>(dtypes_.size() - links_.size())); }

    const std::vector<PlannedLink>& links_;
    const std::vector<DType>& dtypes_;
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

}  // namespace

bool Chain::find_pass(int value, const std::vector<int>& readers, QuantizingPass& pass,
                      std::vector<int>& done) const {
    Quantizing& q = pass.quantizing;
    if (dtypes_[value] != DType::int8 && dtypes_[value] != DType::uint8) return false;
    Backward back(links_, dtypes_, readers, value);
    if (!passes_limits(back, q) || !back.is(Op::rint)) return false;
    back.go(0);
    if (back.type() != DType::float32) return false;
    q.divides = back.is(Op::divide);
    if (q.divides || back.is(Op::multiply)) {
        // The factor is a constant, or else what is not converted from sums.
        const bool is_first = !q.divides && !back.takes(1, q.factor) &&
                              (back.takes(0, q.factor) || is_from_sums(back.operand(1)));
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
    done = std::move(back.done);
    return true;
}

bool Chain::is_from_sums(int value) const {
    const Link* const link = link_of(value);
    return link != nullptr && link->op == convert_op && dtypes_[link->operands[0]] == DType::int32;
}

void Chain::plan_passes(std::vector<int>& last_use) {
    if (!numerics_.plain()) return;
    const std::vector<int> readers = reader_counts();
    for (const int v : outputs_) {
        QuantizingPass pass;
        std::vector<int> done;
        if (readers[v] != 1 || !find_pass(v, readers, pass, done)) continue;
        for (const int s : done)
            if (links_[s].way != Way::constant) links_[s].way = Way::taken_over;
        const int last = v - static_cast<int>(inputs_.size());
        // What it reads stays until then.
        for (const int operand : {pass.values, pass.taken, pass.factors})
            if (operand >= 0) keep_until(last_use, operand, last);
        links_[last].way = Way::quantizes;
        links_[last].pass = pass;
    }
}

void Chain::run_pass(const Kernels& k, const QuantizingPass& pass, void* const* place, void* out,
                     int n) const {
    Quantizing q = pass.quantizing;
    const auto at = [&](int value) { return value < 0 ? nullptr : place[value]; };
    q.values = at(pass.values);
    q.taken = static_cast<const int32_t*>(at(pass.taken));
    q.factors = static_cast<const float*>(at(pass.factors));
    q.taken_along = q.taken != nullptr;
    q.factors_along = q.factors != nullptr;
    k.quantize(q, 1, n, static_cast<char*>(out), 0);
}

const QuantizingPass* Chain::sole_pass() const {
    if (outputs_.size() != 1 || steps_.size() != 1) return nullptr;
    const PlannedLink* const link = link_of(outputs_[0]);
    if (link == nullptr || link->way != Way::quantizes) return nullptr;
    const QuantizingPass& pass = link->pass;
    const int inputs = static_cast<int>(inputs_.size());
    return pass.values == 0 && pass.taken < inputs && pass.factors < inputs ? &pass : nullptr;
}

}  // namespace neuronsim
