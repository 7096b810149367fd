// The table of kernels that each instruction set provides; dispatch.cpp picks one at import.
#pragma once

#include "formats.h"
#include "tile.h"

namespace neuronsim {

enum class Op : uint8_t {
#define ARITHMETIC(name, arity, f, s, u) name,
#define FLOATING(name, arity, f) name,
#define INTEGRAL(name, arity, u) name,
#define BITWISE(name, arity, f, s, u) name,
#define COMPARISON(name, body) name,
#define SELECTION(name) name,
#include "ops.def"
    count
};
inline constexpr int op_count = static_cast<int>(Op::count);

struct OpRow {
    const char* name;
    int arity;
    const char* kind;  // which section of ops.def the row stands in
};

constexpr Domain domain_of(DType t) {
    if (is_device_float(t)) return Domain::float32;
    if (t == DType::float64) return Domain::float64;
    return is_signed_integer(t) ? Domain::signed_integer : Domain::unsigned_integer;
}

// How a 64-bit source reaches float32 (C1): the value wanted, or the round-to-odd stepping stone
// from which a second rounding to a narrower format is still the rounding of the exact value.
enum class Narrowing : uint8_t { nearest, odd };

inline constexpr int max_arity = 3;
// Writes the elements of a tile from `target` on, which may be inside one.
using LoadKernel = void (*)(const char* source, ptrdiff_t stride, int n, void* target);
using StoreKernel = void (*)(const Tile& in, char* target, int n);
using OpKernel = void (*)(Tile& out, const Tile* const* operands, int n);
using RoundKernel = void (*)(Tile& tile, int n);
using ConvertKernel = void (*)(Tile& out, const Tile& in, int n);
using NarrowKernel = void (*)(Tile& out, const Tile& in, int n, Narrowing narrowing);
// acc[i] = op(acc[i], in[i])
using FoldKernel = void (*)(Tile& acc, const Tile& in, int n);

// The folds of `chains` chains of elements in memory: fold.h says how they lie.
using ChainsKernel = void (*)(const char* data, ptrdiff_t chain_stride, ptrdiff_t stride, int64_t count,
                              int chains, float* acc);

struct Kernels {
    const char* isa;
    int dot_rows;  // the register block of dot_block
    int dot_columns;
    LoadKernel load[dtype_count];
    StoreKernel store[dtype_count];  // the elements are values of the type already
    RoundKernel round[dtype_count];  // float32 to the format's values (C2-C5), integers wrapped (E8)
    RoundKernel canonicalize;        // float32 tiles: NaN quiet and without payload (C5)
    OpKernel op[op_count][domain_count];
    FoldKernel fold[op_count][domain_count];
    ChainsKernel fold_chains[op_count][format_count];  // of float types, where the op is a reducer
    NarrowKernel to_float32[domain_count];
    ConvertKernel to_float64[domain_count];
    ConvertKernel to_integer[domain_count][dtype_count];  // truncate and saturate (C6); wrap
    ConvertKernel to_bool[domain_count];
    // psum += sum over k of a[k][row] * b[k][column], one tile of the contraction (M2)
    void (*dot_block)(const float* a, const float* b, int64_t k, float* psum);
};

extern const OpRow op_rows[op_count];

}  // namespace neuronsim
