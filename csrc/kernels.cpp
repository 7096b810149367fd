// Built once per instruction set, each time in its own namespace (NEURONSIM_ISA_NAMESPACE), so that
// the linker cannot merge code for one processor into another's.
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neuronsim::NEURONSIM_ISA_NAMESPACE {
namespace {

#include "convert.h"

namespace math {
#include "math/tables.h"
//
#include "math/exp.h"
#include "math/rsqrt.h"
#include "math/tanh.h"
}  // namespace math

#include "elementwise.h"
//
#include "fold.h"
#include "simd.h"
//
#include "matmul.h"

constexpr Domain f32 = Domain::float32, f64 = Domain::float64, i64 = Domain::signed_integer,
                 u64 = Domain::unsigned_integer;

template <int I>
constexpr void fill_dtypes(Kernels& k) {
    if constexpr (I < dtype_count) {
        constexpr DType T = static_cast<DType>(I);
        k.load[I] = load<T>;
        k.store[I] = store<T>;
        k.round[I] = round_to<T>;
        if constexpr (is_signed_integer(T) || is_unsigned_integer(T)) {
            k.to_integer[static_cast<int>(f32)][I] = to_integer<f32, T>;
            k.to_integer[static_cast<int>(f64)][I] = to_integer<f64, T>;
            k.to_integer[static_cast<int>(i64)][I] = to_integer<i64, T>;
            k.to_integer[static_cast<int>(u64)][I] = to_integer<u64, T>;
        }
        fill_dtypes<I + 1>(k);
    }
}

template <float (*Body)(float, float), int I = 0>
constexpr void fill_chains(ChainsKernel* row) {
    if constexpr (I < format_count) {
        row[I] = fold_chains<I, Body>;
        fill_chains<Body, I + 1>(row);
    }
}

template <Domain D>
constexpr void fill_domain(Kernels& k) {
    constexpr int d = static_cast<int>(D);
    if constexpr (D != f32) k.to_float32[d] = to_float32<D>;
    if constexpr (D != f64) k.to_float64[d] = to_float64<D>;
    k.to_bool[d] = to_bool<D>;
}

constexpr Kernels make_kernels() {
    Kernels k{};
    k.isa = NEURONSIM_ISA_NAME;
    k.dot_rows = dot_block_rows;
    k.dot_columns = dot_block_vectors * Vec::lanes;
    k.dot_block = dot_block;
    k.canonicalize = canonicalize;
    fill_dtypes<0>(k);
    fill_domain<f32>(k);
    fill_domain<f64>(k);
    fill_domain<i64>(k);
    fill_domain<u64>(k);
    fill_chains<body::add>(k.fold_chains[static_cast<int>(Op::add)]);
    fill_chains<body::multiply>(k.fold_chains[static_cast<int>(Op::multiply)]);
    fill_chains<body::maximum>(k.fold_chains[static_cast<int>(Op::maximum)]);
    fill_chains<body::minimum>(k.fold_chains[static_cast<int>(Op::minimum)]);
#define SET(name, domain, suffix) \
    k.op[static_cast<int>(Op::name)][static_cast<int>(domain)] = kernel::name##_##suffix;
#define SET_FOLD(name, domain, suffix) \
    k.fold[static_cast<int>(Op::name)][static_cast<int>(domain)] = fold<kernel::name##_##suffix>;
#define SET_INTEGERS(name) SET(name, i64, signed_integer) SET(name, u64, unsigned_integer)
#define SET_ALL(name) SET(name, f32, float32) SET_INTEGERS(name)
#define ARITHMETIC(name, arity, f, s, u)      \
    SET_ALL(name)                             \
    if constexpr (arity == 2) {               \
        SET_FOLD(name, f32, float32)          \
        SET_FOLD(name, i64, signed_integer)   \
        SET_FOLD(name, u64, unsigned_integer) \
    }
#define FLOATING(name, arity, f) SET(name, f32, float32)
#define INTEGRAL(name, arity, u)              \
    SET_INTEGERS(name)                        \
    if constexpr (arity == 2) {               \
        SET_FOLD(name, i64, signed_integer)   \
        SET_FOLD(name, u64, unsigned_integer) \
    }
#define BITWISE(name, arity, f, s, u) SET_ALL(name)
#define COMPARISON(name, body) SET_ALL(name)
#define SELECTION(name) SET_ALL(name)
#include "ops.def"
    return k;
}

}  // namespace

extern const Kernels kernels;
constinit const Kernels kernels = make_kernels();

}  // namespace neuronsim::NEURONSIM_ISA_NAMESPACE
