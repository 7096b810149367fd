// What each link of a chain computes on the elements of a block, and what it meets there.
#include "elementwise/chain.h"
#include "functions/function_table.h"

namespace neuronsim {
namespace {

// A link before its rounding.
void compute(const Kernels& k, const ChainPlan& p, const PlannedLink& link, void* out,
             const void* const* operands, int n) {
    const DType source = p.dtypes[link.operands.back()];
    const Domain from = domain_of(source);
    if (link.looks_up) {
        char encodings[tile_elements * sizeof(uint16_t)];
        k.store[link.result](operands[0], n, encodings);
        look_up(link.op, link.result, encodings, n, encodings);
        k.load[link.result](encodings, storage_bytes(link.result), n, out);
    } else if (link.op < op_count) {
        k.op[link.op][from](out, operands, n, 8 * storage_bytes(source));
    } else if (link.op == bitcast_op || link.op == truncated_op) {
        __builtin_memcpy(out, operands[0], n * computed_bytes(link.result));
    } else if (link.op >= restrict_op) {
        const InputRange& range = documented_ranges[link.op - restrict_op];
        k.restrict_magnitude(out, operands[0], n, range.least, range.greatest);
    } else if (link.op >= reduce_precision_op) {
        const int bits = link.op - reduce_precision_op;
        k.reduce_precision[source](out, operands[0], n, bits / 32, bits % 32);
    } else if (link.result == source) {
        __builtin_memcpy(out, operands[0], n * computed_bytes(source));
    } else if (is_device_float(link.result)) {
        if (is_device_float(source)) {
            k.canonicalize(out, operands[0], n);
        } else {
            const bool nearest = p.rounds_float32(link) || link.result == DType::float32;
            k.to_float32[from](out, operands[0], n, nearest ? Narrowing::nearest : Narrowing::odd);
        }
    } else if (link.result == DType::float64) {
        k.to_float64[from](out, operands[0], n);
    } else if (link.result == DType::boolean) {
        k.to_bool[from](out, operands[0], n);
    } else {
        k.to_integer[from][link.result](
            out, operands[0], n,
            link.op == convert_nearest_op ? FloatToInt::nearest : FloatToInt::truncate);
    }
}

// C4: reads subnormal operands as zeros, and makes subnormal results of float32 zeros.
void compute_flushed(const Kernels& k, const ChainPlan& p, const PlannedLink& link, void* out,
                     const void* const* operands, int n) {
    Tile flushed[max_arity];
    const void* read[max_arity];
    for (size_t i = 0; i < link.operands.size(); ++i) {
        const DType t = p.dtypes[link.operands[i]];
        read[i] = operands[i];
        if (!is_device_float(t) || formats[static_cast<int>(t)].exponent_bits != 8) continue;
        k.flush(&flushed[i], operands[i], n);
        read[i] = &flushed[i];
    }
    compute(k, p, link, out, read, n);
    if (link.op < op_count && is_device_float(link.result)) k.flush(out, out, n);
}

// Whether values may overflow or vanish when they are rounded to a float type, to nearest, or some are
// zero before where that is not allowed.
bool may_leave(const Kernels& k, DType type, const void* values, int n, bool zero_allowed) {
    const Format& f = formats[static_cast<int>(type)];
    const auto power = [](int exponent) {  // of two, a normal float32 or the least subnormals
        const int bits = exponent >= -126 ? (exponent + 127) << 23 : 1 << (exponent + 149);
        float x;
        __builtin_memcpy(&x, &bits, sizeof x);
        return x;
    };
    // A format without Inf has numbers beyond these, which are only looked at more closely.
    const float greatest = power(f.bias) * (2 - power(-f.mantissa_bits));
    const float least = power(1 - f.bias - f.mantissa_bits);
    return k.leaves_range(values, n, least, greatest, zero_allowed);
}

// A result that only storing rounds is rounded here, unless it stays within its type.
void observe_link(const Kernels& k, const ChainPlan& p, const PlannedLink& link, void* out,
                  const void* const* operands, int n, Observed& seen) {
    if (link.operands.empty()) return;
    const DType source = p.dtypes[link.operands.back()];
    const auto look = [&] {
        observe(k, link.op, source, link.result, p.numerics.flush_subnormals, out, operands, n, seen);
    };
    if (is_always_observed(link.op)) return look();
    if (link.moves) return;
    if (is_device_float(link.result) && !link.rounds && !link.looks_up) {
        if (!may_leave(k, link.result, out, n, false)) return;
        k.round[link.result](out, n);
    }
    look();
    if (!saturates(link.result, p.numerics)) return;
    Tile exact;
    compute(k, p, link, &exact, operands, n);
    seen.saturated += count_overflowing(k, link.result, exact.f32, n);
}

void run_joining(const Kernels& k, const ChainPlan& p, const Joining& joining, void* const* place,
                 void* out, int n) {
    JoinedTerm terms[max_joined];
    int count = 0;
    // A constant is one element, so that those of a polynomial do not fill the first cache.
    for (const JoinedLink& joined : joining.links) {
        JoinedTerm& term = terms[count++];
        term = {static_cast<Op>(joined.op), joined.comes_first, nullptr, 0};
        if (joined.value == JoinedLink::itself) continue;
        term.data = static_cast<const float*>(place[joined.value]);
        term.along = !p.is_constant(joined.value);
    }
    k.join_terms(static_cast<float*>(place[joining.first]), 0, 1, n, terms, count,
                 static_cast<char*>(out), 0);
}

void run_pass(const Kernels& k, const QuantizingPass& pass, void* const* place, void* out, int n) {
    Quantizing q = pass.quantizing;
    const auto at = [&](int value) { return value < 0 ? nullptr : place[value]; };
    q.values = at(pass.values);
    q.taken = static_cast<const int32_t*>(at(pass.taken));
    q.factors = static_cast<const float*>(at(pass.factors));
    q.taken_along = q.taken != nullptr;
    q.factors_along = q.factors != nullptr;
    k.quantize(q, 1, n, static_cast<char*>(out), 0);
}

}  // namespace

void run_link(const Kernels& k, const ChainPlan& p, const PlannedLink& link, void* out,
              const void* const* operands, int n, const Draw& draw, int64_t first) {
    if (p.numerics.flush_subnormals && !link.moves) compute_flushed(k, p, link, out, operands, n);
    else compute(k, p, link, out, operands, n);
    if (link.rounds)
        round_values(k, link.result, p.numerics, draw, first, out, n, p.rounds_float32(link));
}

void run_steps(const Kernels& k, const ChainPlan& p, void** place, int n) {
    const size_t input_count = p.inputs.size();
    for (const int s : p.joined_steps) {
        const PlannedLink& link = p.links[s];
        void*& out = place[input_count + s];
        if (link.joining.links.size() > 1) {
            run_joining(k, p, link.joining, place, out, n);
            continue;
        }
        const void* const operands[max_reads] = {place[link.reads[0]], place[link.reads[1]],
                                                 place[link.reads[2]], place[link.reads[3]]};
        switch (link.way) {
            case Way::operates:
                k.op[link.kernel][link.domain](out, operands, n, link.bits);
                if (link.round >= 0) k.round[link.round](out, n);
                break;
            case Way::rotates:
                k.rotate[link.kernel](out, operands, n, link.bits);
                break;
            case Way::selects_by:
                k.select_by[link.kernel][link.domain](out, operands, n, link.bits);
                break;
            case Way::repeats:
            case Way::aliases:
                out = place[link.reads[0]];
                break;
            case Way::quantizes:
                run_pass(k, link.pass, place, out, n);
                break;
            case Way::computes:
                run_link(k, p, link, out, operands, n, {}, 0);
                break;
            case Way::taken_over:
            case Way::constant:  // no steps
                break;
        }
    }
}

void run_links(const Kernels& k, const ChainPlan& p, void** place, int n, const Draws& draws,
               int64_t first, Observed* observed) {
    if (draws.ids == nullptr && observed == nullptr) return run_steps(k, p, place, n);
    const size_t input_count = p.inputs.size();
    Draw draw{draws.seed};
    for (size_t s = 0; s < p.links.size(); ++s) {
        const PlannedLink& link = p.links[s];
        if (link.way == Way::constant) continue;
        if (link.way == Way::aliases &&
            (observed == nullptr || !may_leave(k, link.result, place[link.operands[0]], n, true))) {
            place[input_count + s] = place[link.operands[0]];
            continue;
        }
        const void* operands[max_arity] = {};
        for (size_t i = 0; i < link.operands.size(); ++i) operands[i] = place[link.operands[i]];
        if (draws.ids != nullptr) draw.id = draws.ids[s];
        run_link(k, p, link, place[input_count + s], operands, n, draw, first);
        if (observed != nullptr)
            observe_link(k, p, link, place[input_count + s], operands, n, observed[s]);
    }
}

}  // namespace neuronsim
