// The table of kernels that each instruction set provides; dispatch.cpp picks one at import.
#pragma once

#include "formats.h"
#include "numerics.h"
#include "tile.h"

namespace neuronsim {

enum class Op : uint8_t {
#define REDUCER(name, f, s, u) name,
#define ARITHMETIC(name, arity, f, s, u) name,
#define FLOATING(name, arity, f) name,
#define INTEGER(name, arity, s, u) name,
#define INTEGRAL(name, arity, u) name,
#define BITWISE(name, arity, f, s, u) name,
#define SIGN(name, arity, f) name,
#define COMPARISON(name, arity, body) name,
#define SELECTION(name) name,
#include "ops.def"
    count
};
inline constexpr int op_count = static_cast<int>(Op::count);

enum class Kind : uint8_t {  // which section of ops.def a row stands in
    reducer,
    arithmetic,
    floating,
    integer,
    integral,
    bitwise,
    sign,
    comparison,
    selection,
};
inline constexpr const char* kind_names[] = {
    "reducer", "arithmetic", "floating",   "integer",   "integral",
    "bitwise", "sign",       "comparison", "selection",
};

struct OpRow {
    const char* name;
    int arity;
    Kind kind;
};

constexpr Domain domain_of(DType t) {
    if (is_device_float(t)) return Domain::float32;
    if (t == DType::float64) return Domain::float64;
    return is_signed_integer(t) ? Domain::signed_integer : Domain::unsigned_integer;
}

// How a 64-bit source reaches float32 (C1): the value wanted, or the round-to-odd stepping stone
// from which a second rounding to a narrower format is still the rounding of the exact value.
enum class Narrowing : uint8_t { nearest, odd };

// Whether an element's storage is its domain's form, so that kernels can work in memory.
constexpr bool is_stored_as_computed(DType t) {
    return is_device_float(t) ? storage_bytes(t) == 4 : storage_bytes(t) == 8;
}
constexpr int computed_bytes(DType t) { return domain_of(t) == Domain::float32 ? 4 : 8; }

inline constexpr int max_arity = 3;
// Elements in the form of a domain lie in a tile, or in memory where the storage has that form.
using LoadKernel = void (*)(const char* source, ptrdiff_t stride, int n, void* target);
using StoreKernel = void (*)(const void* in, int n, char* target);
using OpKernel = void (*)(void* out, const void* const* operands, int n, int bits);
using RoundKernel = void (*)(void* values, int n);
using RoundByKernel = void (*)(void* values, int n, const Numerics& numerics, const uint32_t* words);
using MapKernel = void (*)(void* out, const void* in, int n);
using NarrowKernel = void (*)(void* out, const void* in, int n, Narrowing narrowing);
using PrecisionKernel = void (*)(void* out, const void* in, int n, int exponent_bits,
                                 int mantissa_bits);
using IntegerKernel = void (*)(void* out, const void* in, int n, FloatToInt rounding);
// acc[i] = op(acc[i], in[i])
using FoldKernel = void (*)(void* acc, const void* in, int n);
// out[0] = in[0], out[i] = op(out[i - 1], in[i])
using ScanKernel = MapKernel;

// The folds of `chains` chains of elements in memory: fold.h says how they lie.
using ChainsKernel = void (*)(const char* data, ptrdiff_t chain_stride, ptrdiff_t stride, int64_t count,
                              int chains, float* acc);

using DotKernel = void (*)(const float* a, const float* b, int64_t k, float* psum);

struct Kernels {
    const char* isa;
    int dot_rows;  // the register block of dot_block
    int dot_columns;
    LoadKernel load[dtype_count];
    StoreKernel store[dtype_count];        // of values of the type: their bits move (E6)
    StoreKernel store_quiet[dtype_count];  // rounds float32 (C2) and makes NaN canonical (C5)
    RoundKernel round[dtype_count];        // float32 to the format's values, integers wrapped (E8)
    RoundByKernel round_by[format_count];  // the same as the profile says
    PrecisionKernel reduce_precision[format_count];  // C9
    MapKernel canonicalize;                          // float32: NaN quiet and without payload (C5)
    MapKernel flush;                                 // float32: subnormals to zero (C4)
    OpKernel op[op_count][domain_count];
    FoldKernel fold[op_count][domain_count];
    ScanKernel scan[op_count][domain_count];
    ChainsKernel fold_chains[op_count][format_count];  // of float types, where the op is a reducer
    NarrowKernel to_float32[domain_count];
    MapKernel to_float64[domain_count];
    IntegerKernel to_integer[domain_count][dtype_count];  // saturates (C6); integers wrap
    MapKernel to_bool[domain_count];
    // psum += sum over k of a[k][row] * b[k][column], one tile of the contraction (M2)
    DotKernel dot_block;
    DotKernel dot_block_flushed;     // every float32 result below 2^-126 is zero (C4)
    float (*fma_chains)(int64_t n);  // does n * fma_chain_count multiply-adds, to be timed
    int fma_chain_count;
};

extern const OpRow op_rows[op_count];

}  // namespace neuronsim
