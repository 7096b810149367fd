// The kernels of ops.def: each row's body over a tile, in each domain that the row has.
// Included inside each instruction set's namespace.

// E7: a NaN operand gives NaN; +0 is above -0.
inline float maximum_float(float a, float b) {
    const float equal = bits_as<float>(bits_as<uint32_t>(a) & bits_as<uint32_t>(b));
    return a > b ? a : b > a ? b : a == b ? equal : bits_as<float>(canonical_nan);
}
inline float minimum_float(float a, float b) {
    const float equal = bits_as<float>(bits_as<uint32_t>(a) | bits_as<uint32_t>(b));
    return a < b ? a : b < a ? b : a == b ? equal : bits_as<float>(canonical_nan);
}
// E8: x/0 is -1 (all ones), INT_MIN/-1 is INT_MIN; narrower types wrap when rounded.
inline int64_t divide_signed(int64_t a, int64_t b) { return b == 0 ? -1 : b == -1 ? 0 - a : a / b; }
inline uint64_t divide_unsigned(uint64_t a, uint64_t b) { return b == 0 ? ~uint64_t{0} : a / b; }

inline uint32_t canonical(float x) { return x == x ? bits_as<uint32_t>(x) : canonical_nan; }

// Absent operands repeat the first: their loads are dead and vanish.
#define FOR_EACH_ELEMENT(member, statement)               \
    const auto* pa = operands[0]->member;                 \
    const auto* pb = operands[arity > 1 ? 1 : 0]->member; \
    for (int i = 0; i < n; ++i) {                         \
        [[maybe_unused]] const auto a = pa[i];            \
        [[maybe_unused]] const auto b = pb[i];            \
        statement;                                        \
    }

#define FLOAT_KERNEL(name, count, body)                                         \
    static void name##_float32(Tile& out, const Tile* const* operands, int n) { \
        constexpr int arity = count;                                            \
        FOR_EACH_ELEMENT(f32, out.f32_bits[i] = canonical(body))                \
    }
#define KERNEL(name, suffix, member, count, body)                                \
    static void name##_##suffix(Tile& out, const Tile* const* operands, int n) { \
        constexpr int arity = count;                                             \
        FOR_EACH_ELEMENT(member, out.member[i] = (body))                         \
    }
#define COMPARISON_KERNEL(name, suffix, member, body)                            \
    static void name##_##suffix(Tile& out, const Tile* const* operands, int n) { \
        constexpr int arity = 2;                                                 \
        FOR_EACH_ELEMENT(member, out.u64[i] = (body))                            \
    }
#define SELECT_KERNEL(name, suffix, member)                                      \
    static void name##_##suffix(Tile& out, const Tile* const* operands, int n) { \
        const uint64_t* condition = operands[0]->u64;                            \
        const auto* b = operands[1]->member;                                     \
        const auto* c = operands[2]->member;                                     \
        for (int i = 0; i < n; ++i) out.member[i] = condition[i] ? b[i] : c[i];  \
    }

// The float32 bodies of two operands as functions, for the folds of fold.h.
namespace body {

#define ARITHMETIC(name, arity, f, s, u) \
    inline float name(float a, float b) { return f; }
#define FLOATING(name, arity, f)
#define INTEGRAL(name, arity, u)
#define BITWISE(name, arity, f, s, u)
#define COMPARISON(name, body)
#define SELECTION(name)
#include "ops.def"

}  // namespace body

namespace kernel {

#define ARITHMETIC(name, arity, f, s, u)        \
    FLOAT_KERNEL(name, arity, f)                \
    KERNEL(name, signed_integer, i64, arity, s) \
    KERNEL(name, unsigned_integer, u64, arity, u)
#define FLOATING(name, arity, f) FLOAT_KERNEL(name, arity, f)
#define INTEGRAL(name, arity, u)                \
    KERNEL(name, signed_integer, u64, arity, u) \
    KERNEL(name, unsigned_integer, u64, arity, u)
#define BITWISE(name, arity, f, s, u)           \
    KERNEL(name, float32, f32_bits, arity, f)   \
    KERNEL(name, signed_integer, i64, arity, s) \
    KERNEL(name, unsigned_integer, u64, arity, u)
#define COMPARISON(name, body)                         \
    COMPARISON_KERNEL(name, float32, f32, body)        \
    COMPARISON_KERNEL(name, signed_integer, i64, body) \
    COMPARISON_KERNEL(name, unsigned_integer, u64, body)
#define SELECTION(name)                      \
    SELECT_KERNEL(name, float32, f32_bits)   \
    SELECT_KERNEL(name, signed_integer, u64) \
    SELECT_KERNEL(name, unsigned_integer, u64)
#include "ops.def"

}  // namespace kernel

// acc = op(acc, in): a reduction's step is the operation's own kernel, so the bodies cannot differ.
template <OpKernel Kernel>
void fold(Tile& acc, const Tile& in, int n) {
    const Tile* const operands[] = {&acc, &in};
    Kernel(acc, operands, n);
}

#undef FOR_EACH_ELEMENT
#undef FLOAT_KERNEL
#undef KERNEL
#undef COMPARISON_KERNEL
#undef SELECT_KERNEL
