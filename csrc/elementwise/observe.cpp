#include "elementwise/observe.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <limits>

#include "elementwise/chain_plan.h"
#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"

namespace neuronsim {
namespace {

// Where an operation's poles are, and which operands make a zero result an underflow.
constexpr auto none = [](auto, auto) { return false; };
constexpr auto at_zero = [](float a, float) { return a == 0; };
constexpr auto divisor_is_zero = [](float, float b) { return b == 0; };
// Zero is exact at zero or nowhere: conversions, and most functions.
constexpr auto of_nonzero = [](auto a, auto) { return a != 0 && a - a == 0; };
// Zeros are exact.
constexpr auto never = none;
// atan2(a, b) and a / b
constexpr auto of_quotient = [](float a, float b) { return a != 0 && b - b == 0; };

// Counters of 32 bits, so that the compiler can vectorise.
template <auto pole_at, auto vanishes, class T = float>
void count(const float* y, const T* a, const T* b, int n, Observed& seen) {
    uint32_t overflow = 0, underflow = 0, pole = 0, nan = 0;
    for (int i = 0; i < n; ++i) {
        const bool infinite = __builtin_fabsf(y[i]) == std::numeric_limits<float>::infinity();
        const bool finite = (a[i] - a[i] == 0) & (b[i] - b[i] == 0);
        const bool at_pole = pole_at(a[i], b[i]);
        overflow += infinite & finite & !at_pole;
        pole += infinite & finite & at_pole;
        nan += (y[i] != y[i]) & (a[i] == a[i]) & (b[i] == b[i]);
        underflow += (y[i] == 0) & vanishes(a[i], b[i]);
    }
    seen.overflow += overflow;
    seen.underflow += underflow;
    seen.division_by_zero += pole;
    seen.nan_origin += nan;
}

using Count = void (*)(const float* y, const float* a, const float* b, int n, Observed& seen);

// Null for what gives zeros, Inf and NaN only where an operand is one, or moves bits.
constexpr auto counters = [] {
    ByOp<Count> table{};
    const auto set = [&](Count counter, std::initializer_list<Op> rows) {
        for (const Op op : rows) table[op] = counter;
    };
#define FUNCTION(name) set(count<none, of_nonzero>, {Op::name});
#include "ops.def"
    set(count<none, [](float a, float b) { return a != -b; }>, {Op::add});
    set(count<none, [](float a, float b) { return a != b; }>, {Op::subtract});
    set(count<none, [](float a, float b) { return a != 0 && b != 0; }>, {Op::multiply});
    set(count<divisor_is_zero, of_quotient>, {Op::divide});
    set(count<divisor_is_zero, never>, {Op::floor_divide});
    set(count<at_zero, [](float a, float b) { return a != 0 && a - a == 0 && b - b == 0; }>,
        {Op::power});
    set(count<none, of_quotient>, {Op::atan2});
    // 0 is exact only in log2(2^-1 + 2^-1)
    set(count<none, [](float a, float b) { return a != b && a - a == 0 && b - b == 0; }>,
        {Op::logaddexp, Op::logaddexp2});
    set(count<none, never>, {Op::fmod, Op::remainder, Op::hypot, Op::sqrt, Op::acos, Op::acosh});
    set(count<at_zero, never>, {Op::log, Op::log2, Op::log10});
    set(count<at_zero, of_nonzero>, {Op::reciprocal, Op::rsqrt});
    set(count<[](float a, float) { return a == -1; }, of_nonzero>, {Op::log1p});
    set(count<[](float a, float) { return a == 1 || a == -1; }, of_nonzero>, {Op::atanh});
    return table;
}();

// C6: what truncates or rounds to a value beyond the type, whose last ones convert to float64 exactly
// up to 32 bits; beyond 2^53 every float is an integer.
template <class T>
int64_t count_saturated(DType type, bool nearest, const T* x, int n) {
    const int bits = 8 * storage_bytes(type);
    const bool is_signed = is_signed_integer(type);
    const double end = static_cast<double>(uint64_t{1} << (bits - 1)) * (is_signed ? 1 : 2);
    const double begin = is_signed ? -end : 0;
    const bool wide = bits == 64, whole = wide && is_signed;
    // Ties go to the even neighbour: below the first value inside, above the last one outside.
    const double past = nearest && !wide ? end - 0.5 : end;
    const double low = whole ? begin : nearest ? begin - 0.5 : begin - 1;
    const bool closed = whole || nearest;
    uint32_t found = 0;
    for (int i = 0; i < n; ++i) {
        const double v = static_cast<double>(x[i]);
        found += !(((v > low) | (closed & (v == low))) & (v < past));
    }
    return found;
}

void observe_conversion(const Kernels& k, int op, DType source, DType result, bool flushes,
                        const void* out, const void* in, int n, Observed& seen) {
    const Domain from = domain_of(source);
    const auto* f32 = static_cast<const float*>(in);
    const auto* f64 = static_cast<const double*>(in);
    if (is_device_float(result)) {
        const auto* y = static_cast<const float*>(out);
        if (from == Domain::float32) {
            if (result == DType::float32 && !flushes) return;  // exact
            if (k.exceptional(out, in, n)) count<none, of_nonzero>(y, f32, f32, n, seen);
        } else if (from == Domain::float64) {
            count<none, of_nonzero, double>(y, f64, f64, n, seen);
        } else if (k.special[0](out, n)) {
            const auto count_in = [&]<class T>(const T* x) { count<none, never, T>(y, x, x, n, seen); };
            if (computed_bytes(source) == 1) count_in(static_cast<const int8_t*>(in));
            else if (computed_bytes(source) == 4) count_in(static_cast<const int32_t*>(in));
            else count_in(static_cast<const int64_t*>(in));
        }
    } else if (is_integer(result)) {
        const bool nearest = op == convert_nearest_op;
        if (from == Domain::float32) seen.saturated += count_saturated(result, nearest, f32, n);
        if (from == Domain::float64) seen.saturated += count_saturated(result, nearest, f64, n);
    }
}

// C7: what differs from y, the truncated integer of 64 bits, and from a float by 1 or more. A negative
// one is 0 as an unsigned integer of any width.
void observe_truncated(DType source, DType result, const int64_t* y, const void* in, int n,
                       Observed& seen) {
    const bool is_signed = is_signed_integer(result);
    uint32_t found = 0;
    if (is_device_float(source)) {
        const auto* x = static_cast<const float*>(in);
        for (int i = 0; i < n; ++i) {
            const double by = static_cast<double>(x[i]) - static_cast<double>(y[i]);
            found += (by >= 1) | (is_signed & (by <= -1));
        }
    } else {
        const auto* x = static_cast<const int64_t*>(in);
        for (int i = 0; i < n; ++i) found += x[i] != y[i];
    }
    seen.int64_truncated += found;
}

void observe_restricted(const float* y, const float* x, int n, Observed& seen) {
    uint32_t found = 0;
    for (int i = 0; i < n; ++i) found += (y[i] != y[i]) & (x[i] == x[i]);
    seen.outside_range += found;
}

// Functions that are bounded or grow slowly, have a value everywhere, and are not below the least
// subnormal where their operand is not.
bool never_vanishes_nor_ends(Op op) {
    return op == Op::erf || op == Op::tanh || op == Op::atan || op == Op::asinh || op == Op::cbrt;
}

// Whether a block has anything to count, by quick tests that may say yes in vain.
bool may_count(const Kernels& k, Op op, bool same, const void* out, const void* const* operands,
               int n) {
    switch (op) {
        case Op::add:
        case Op::subtract:
            // The sum of two numbers of a type is zero only if it is so exactly, unless subnormals are
            // flushed (C4): then it may vanish beside either operand.
            if (same) return k.special[0](out, n);
            return k.exceptional(out, operands[0], n) || k.exceptional(out, operands[1], n);
        case Op::multiply:  // zeros of one operand make many exact ones
            return k.exceptional(out, operands[0], n) && k.exceptional(out, operands[1], n);
        case Op::logaddexp:  // vanishes beside an operand of zero
        case Op::logaddexp2:
            return k.special[1](out, n);
        default:
            return k.exceptional(out, operands[0], n);
    }
}

}  // namespace

void observe(const Kernels& k, int op, DType source, DType result, bool flushes, const void* out,
             const void* const* operands, int n, Observed& seen) {
    if (is_conversion(op))
        return observe_conversion(k, op, source, result, flushes, out, operands[0], n, seen);
    if (op == truncated_op)
        return observe_truncated(source, result, static_cast<const int64_t*>(out), operands[1], n,
                                 seen);
    if (is_restriction(op))
        return observe_restricted(static_cast<const float*>(out),
                                  static_cast<const float*>(operands[0]), n, seen);
    if (!is_device_float(result)) return;
    Count counter = nullptr;
    if (op < op_count) counter = counters[op];
    else if (op >= reduce_precision_op && op < restrict_op) counter = count<none, of_nonzero>;
    if (counter == nullptr) return;
    const bool binary = op < op_count && op_rows[op].arity == 2;
    const Op name = op < op_count ? static_cast<Op>(op) : Op::count;
    const bool same = source == result && !flushes;
    if (same && never_vanishes_nor_ends(name)) return;
    if (!may_count(k, name, same, out, operands, n)) return;
    counter(static_cast<const float*>(out), static_cast<const float*>(operands[0]),
            static_cast<const float*>(operands[binary ? 1 : 0]), n, seen);
}

bool has_special(DType dtype, const char* data, int64_t count, bool zeros) {
    const Kernels& k = kernels();
    const int size = storage_bytes(dtype);
    std::atomic<bool> found = false;
    constexpr int64_t grain = 16 * tile_elements;
    parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        Tile tile;
        for (int64_t at = begin; at < end && !found; at += tile_elements) {
            const int n = static_cast<int>(std::min<int64_t>(end - at, tile_elements));
            note_work(n);
            k.load[dtype](data + at * size, size, n, &tile);
            if (k.special[zeros](&tile, n)) found = true;
        }
    });
    return found;
}

void add_observed(const Observed* seen, int64_t count, Observed* total) {
    const auto* from = reinterpret_cast<const int64_t*>(seen);
    auto* to = reinterpret_cast<int64_t*>(total);
    for (int64_t i = 0; i < count * observed_count; ++i)
        if (from[i] != 0) __atomic_fetch_add(to + i, from[i], __ATOMIC_RELAXED);
}

}  // namespace neuronsim
