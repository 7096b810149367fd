#include "elementwise/observe.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <type_traits>

#include "elementwise/chain.h"
#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"

namespace neuronsim {
namespace {

// A kind of operation: where its poles are, and which operands make a zero result an underflow.
struct Value {  // zero at zero or nowhere: conversions, and most functions
    template <class T>
    static bool pole(T, T) {
        return false;
    }
    template <class T>
    static bool vanishes(T a, T) {
        return a != 0 && a - a == 0;
    }
};
struct Exact : Value {  // zeros are exact
    template <class T>
    static bool vanishes(T, T) {
        return false;
    }
};
struct Logarithm : Exact {
    static bool pole(float a, float) { return a == 0; }
};
struct Inverse : Value {
    static bool pole(float a, float) { return a == 0; }
};
struct LogarithmOfOnePlus : Value {
    static bool pole(float a, float) { return a == -1; }
};
struct InverseTangent : Value {
    static bool pole(float a, float) { return a == 1 || a == -1; }
};
struct Sum : Exact {
    static bool vanishes(float a, float b) { return a != -b; }
};
struct Difference : Exact {
    static bool vanishes(float a, float b) { return a != b; }
};
struct Product : Exact {
    static bool vanishes(float a, float b) { return a != 0 && b != 0; }
};
struct Quotient {
    static bool pole(float, float b) { return b == 0; }
    static bool vanishes(float a, float b) { return a != 0 && b - b == 0; }
};
struct FloorOfQuotient : Exact {
    static bool pole(float, float b) { return b == 0; }
};
struct Power {
    static bool pole(float a, float) { return a == 0; }
    static bool vanishes(float a, float b) { return a != 0 && a - a == 0 && b - b == 0; }
};
struct Angle : Exact {  // atan2(a, b)
    static bool vanishes(float a, float b) { return a != 0 && b - b == 0; }
};

struct LogarithmOfSum : Exact {  // 0 is exact only in log2(2^-1 + 2^-1)
    static bool vanishes(float a, float b) { return a != b && a - a == 0 && b - b == 0; }
};

// Counters of 32 bits, so that the compiler can vectorise.
template <class Rule, class T>
void count(const float* y, const T* a, const T* b, int n, Observed& seen) {
    uint32_t overflow = 0, underflow = 0, pole = 0, nan = 0;
    for (int i = 0; i < n; ++i) {
        const bool infinite = __builtin_fabsf(y[i]) == std::numeric_limits<float>::infinity();
        const bool finite = (a[i] - a[i] == 0) & (b[i] - b[i] == 0);
        const bool at_pole = Rule::pole(a[i], b[i]);
        overflow += infinite & finite & !at_pole;
        pole += infinite & finite & at_pole;
        nan += (y[i] != y[i]) & (a[i] == a[i]) & (b[i] == b[i]);
        underflow += (y[i] == 0) & Rule::vanishes(a[i], b[i]);
    }
    seen.overflow += overflow;
    seen.underflow += underflow;
    seen.division_by_zero += pole;
    seen.nan_origin += nan;
}

using Count = void (*)(const float* y, const float* a, const float* b, int n, Observed& seen);

// Null for what gives zeros, Inf and NaN only where an operand is one, or moves bits.
Count counter_of(Op op) {
    switch (op) {
        case Op::add:
            return count<Sum, float>;
        case Op::subtract:
            return count<Difference, float>;
        case Op::multiply:
            return count<Product, float>;
        case Op::divide:
            return count<Quotient, float>;
        case Op::floor_divide:
            return count<FloorOfQuotient, float>;
        case Op::power:
            return count<Power, float>;
        case Op::atan2:
            return count<Angle, float>;
        case Op::logaddexp:
        case Op::logaddexp2:
            return count<LogarithmOfSum, float>;
        case Op::fmod:
        case Op::remainder:
        case Op::hypot:
        case Op::sqrt:
        case Op::acos:
        case Op::acosh:
            return count<Exact, float>;
        case Op::log:
        case Op::log2:
        case Op::log10:
            return count<Logarithm, float>;
        case Op::reciprocal:
        case Op::rsqrt:
            return count<Inverse, float>;
        case Op::log1p:
            return count<LogarithmOfOnePlus, float>;
        case Op::atanh:
            return count<InverseTangent, float>;
        default:
            return op_rows[static_cast<int>(op)].kind == Kind::function ? count<Value, float> : nullptr;
    }
}

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
            if (k.exceptional(out, in, n)) count<Value, float>(y, f32, f32, n, seen);
        } else if (from == Domain::float64) {
            count<Value, double>(y, f64, f64, n, seen);
        } else if (k.special[0](out, n)) {
            const auto* integers = static_cast<const int64_t*>(in);
            count<Exact, int64_t>(y, integers, integers, n, seen);
        }
    } else if (is_signed_integer(result) || is_unsigned_integer(result)) {
        const bool nearest = op == convert_nearest_op;
        if (from == Domain::float32) seen.saturated += count_saturated(result, nearest, f32, n);
        if (from == Domain::float64) seen.saturated += count_saturated(result, nearest, f64, n);
    }
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
    if (!is_device_float(result)) return;
    Count counter = nullptr;
    if (op < op_count) counter = counter_of(static_cast<Op>(op));
    else if (op >= reduce_precision_op && op < restrict_op) counter = count<Value, float>;
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
            k.load[static_cast<int>(dtype)](data + at * size, size, n, &tile);
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
