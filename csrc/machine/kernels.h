// The table of kernels that each instruction set provides; dispatch.cpp picks one at import.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "formats/domain.h"
#include "formats/numerics.h"

namespace neuronsim {

// The block of elements on which every kernel works, small enough to stay in the L1 cache.
inline constexpr int tile_elements = 512;
union alignas(64) Tile {
    float f32[tile_elements];
    double f64[tile_elements];
    uint64_t u64[tile_elements];
};

enum class Op : uint8_t {
#define OP(kind, name, arity) name,
#include "ops.def"
    count
};
inline constexpr int op_count = static_cast<int>(Op::count);
template <class T>
using ByOp = By<Op, op_count, T>;

constexpr bool is_bit_reducer(Op op) {  // R2
    return op == Op::bitwise_and || op == Op::bitwise_or || op == Op::bitwise_xor;
}

enum class Kind : uint8_t {  // which section of ops.def a row stands in
    reducer,
    arithmetic,
    floating,
    function,
    integral,
    bitwise,
    sign,
    comparison,
    selection,
};
inline constexpr const char* kind_names[] = {
    "reducer", "arithmetic", "floating",   "function",  "integral",
    "bitwise", "sign",       "comparison", "selection",
};

// The input ranges that AWS documents for the activation table ("NKI ISA", tbl-act-func), as
// magnitudes: outside "the Scalar Engine will generate invalid output results". Not listed: any input.
struct InputRange {
    Op op;
    float least, greatest;
};
inline constexpr InputRange documented_ranges[] = {
    {Op::log, 0x1p-64f, 0x1p64f},   {Op::sin, 0, 3.14159274f},
    {Op::atan, 0, 1.57079637f},     {Op::sqrt, 0x1p-116f, 0x1p118f},
    {Op::rsqrt, 0x1p-87f, 0x1p97f}, {Op::reciprocal, 0x1p-42f, 0x1p42f},
};
inline constexpr int range_count = sizeof(documented_ranges) / sizeof(documented_ranges[0]);

struct OpRow {
    const char* name;
    int arity;
    Kind kind;
};

inline constexpr int max_arity = 3, max_reads = 4;  // of an operation, and of what is one kernel
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
// NaN in place of what has another magnitude than these and those between.
using RestrictKernel = void (*)(void* out, const void* in, int n, float least, float greatest);
using IntegerKernel = void (*)(void* out, const void* in, int n, FloatToInt rounding);
// Rows of bytes made in one pass: clamp(nearest(values * factors), low, high) + zero (Q1, Q3).
enum class QuantizedValues : uint8_t {
    float32,
    sums,       // int32, as float32 less what is taken away
    exact_sums  // the same, in float32, where they are exact
};
struct Quantizing {
    QuantizedValues kind = QuantizedValues::float32;
    bool divides = false;  // float32 values by the factors, instead of multiplying
    const void* values = nullptr;
    const int32_t* taken = nullptr;  // null where nothing is
    const float* factors = nullptr;  // null where it is `factor`
    // Whether each element of a row has one of its own.
    bool taken_along = false, factors_along = false;
    ptrdiff_t values_row = 0, taken_row = 0, factors_row = 0;  // bytes from a row to the next
    float factor = 1, low = 0, high = 0;
    int32_t zero = 0;
};
using QuantizeKernel = void (*)(const Quantizing& q, int rows, int n, char* target,
                                ptrdiff_t target_row);
// n elements of each of so many rows of float32, one row after the other; they lie `step` apart, 1 or
// 2. NaN need not be canonical.
using FoldWindowKernel = void (*)(const float* const* rows, int count, int n, int step, float* out);
// Of two pairs (x, i) and (y, j) all ones where y, or j, is taken: by how x compares with y (below,
// equal, above, only x is NaN, only y is, both are) and i with j (below, equal, above).
struct ChoiceMasks {
    uint32_t value[6][3], index[6][3];
    // Whether values and indices are taken together, but for equals and two NaNs, between which the
    // indices may decide.
    bool is_simple;
};
// Pairs side by side each take (y, j) or keep (x, i).
using ChooseKernel = void (*)(const ChoiceMasks& masks, const void* y, const void* j, int n, void* x,
                              void* i);
// Places `step` apart; and adds to them those of indices: places.h says how.
using BeginPlaces = void (*)(int64_t first, int64_t step, int n, int64_t* found);
using PlacesKernel = void (*)(const char* indices, ptrdiff_t stride, int n, int64_t limit, int64_t step,
                              bool clamps, int64_t* found);
inline constexpr int64_t nowhere = std::numeric_limits<int64_t>::min();  // what place is not there
// Each of n words two or more times, up to `most_repeats`.
using RepeatKernel = void (*)(const char* source, int64_t n, char* target);
inline constexpr int most_repeats = 8;
// target[places[i] + j] = op(target[places[i] + j], updates[i * row + j]) for i ascending, for places
// that are there.
using AccumulateRows = void (*)(void* target, const int64_t* places, int n, const void* updates,
                                int64_t row);
// out[0] = in[0], out[i] = op(out[i - 1], in[i])
using ScanKernel = MapKernel;

// The folds of some sequences of elements in memory: fold.h says how they lie.
using SequencesKernel = void (*)(const char* data, ptrdiff_t sequence_stride, ptrdiff_t stride,
                                 int64_t count, int sequences, float* acc);

// How the matrix product accumulates: what a step of the contraction does (M2, M6).
enum class ProductForm : uint8_t {
    fma,
    pairs,         // two bfloat16 a step, by VDPBF16PS
    pairs_by_fma,  // the same where that instruction's zeros for subnormals would show
    flushed,       // fma under C4
    product_bfloat16,
    product_bfloat16_flushed,
    to_bfloat16,  // every sum rounded
    to_bfloat16_flushed,
    to_float16,
    to_float16_flushed,
    odd_even,  // the order of VDPBF16PS on two float32 a step
    odd_even_flushed,
    // Of integers, modulo 2^32 (M7).
    quads,         // four bytes a step by VPDPBUSD, those of a unsigned and those of b signed
    quads_turned,  // the same with a signed and b unsigned
    shorts,        // two int16 a step
    words,         // int32
    count
};
inline constexpr int product_form_count = static_cast<int>(ProductForm::count);
// Whether the form's kernels can store what a product gives. PSUM's place stays theirs to use.
constexpr bool stores_results(ProductForm f) {
    return f == ProductForm::fma || f == ProductForm::pairs || f == ProductForm::pairs_by_fma;
}
inline constexpr int max_block_rows = 14, max_block_vectors = 4, max_lanes = 16;

// Steps of the contraction whose elements of a lie a constant distance apart.
struct BlockRun {
    ptrdiff_t a;  // from the row's beginning, in bytes
    int64_t steps;
    bool ends_tile;
};
// What rows of float32 are joined with, `row` floats from one row's elements to the next.
struct JoinedTerm {
    Op op;              // add, multiply, maximum, minimum, subtract or divide
    bool comes_first;   // what is subtracted from, or divided
    const float* data;  // null: they join themselves (join_terms alone)
    ptrdiff_t row;
    bool along = true;  // a row has an element for each column, else one for all
};
// Whether register blocks join their sums with such terms themselves (store_result has their bodies).
constexpr bool is_joined_in_blocks(Op op, bool comes_first) {
    return op == Op::add || op == Op::multiply || op == Op::maximum ||
           (op == Op::subtract && !comes_first);
}
using StoreRowsKernel = void (*)(float* rows, ptrdiff_t stride, int count, int n, char* target,
                                 ptrdiff_t target_stride);
// One register block's work. Distances of a are in bytes; b is a panel.
struct RegisterBlock {
    const char* a;
    ptrdiff_t a_row, a_step;
    const BlockRun *runs, *runs_end;
    const float* b;
    float* psum;
    ptrdiff_t psum_stride;
    bool fresh;      // PSUM is +0, whatever its place holds
    bool continues;  // and the first tile began in an earlier block: its sums are in PSUM's place
    const float* start = nullptr;     // of integers: what each column's sums take beside, if anything
    ptrdiff_t b_step = 0;             // words of b from a step to the next where it is no panel
    const int64_t* places = nullptr;  // or the words at which each step's columns lie (`takes_places`)
    char* result = nullptr;           // where the last tile's sums go instead, if anywhere
    ptrdiff_t result_row = 0;         // bytes
    DType result_type{};              // one that the kernels store (Kernels::stores_in_blocks)
    StoreRowsKernel store_rows = nullptr;  // for sums that they leave to it
    int partial = 0;                       // columns of the last vector that go there, where not all do
    // With which they go there; those along rows only if all columns of the vectors do.
    const JoinedTerm* terms = nullptr;
    int term_count = 0;
    // Where `joins_lines`: rows from `line` on are the next line's, which begins so far beyond them.
    int line = max_block_rows;
    ptrdiff_t jump = 0;
};
using BlockKernel = void (*)(const RegisterBlock& block);
// The same of so many rows, up to `most_tile_rows`, and vectors; `shapes` is what the last one left.
using TileKernel = void (*)(const RegisterBlock& block, int rows, int vectors, uint32_t& shapes);
inline constexpr int most_tile_rows = 32;
// A product of few float32 elements; distances in bytes. The result is [rows][columns].
struct FewProduct {
    static constexpr int most = 16, most_columns = 64, most_depth = 128;
    // At most `most` each; of one row by adjacent columns at most `most_columns` and `most_depth`.
    int rows, columns, depth;
    ptrdiff_t a_row, a_step, b_step, b_column;

    constexpr bool is_row() const { return rows == 1 && (columns == 1 || b_column == sizeof(float)); }
    constexpr bool is_few() const {
        if (is_row()) return columns <= most_columns && depth <= most_depth;
        return rows <= most && columns <= most && depth <= most;
    }
};
using FewProductKernel = void (*)(const FewProduct& product, const char* a, const char* b, float* out);
// Adds to the sums of n columns `count` steps of few rows, `a_pitch` apart, with b's, `b_step` bytes
// apart.
using StreamKernel = void (*)(const float* a, ptrdiff_t a_pitch, int rows, const char* b,
                              ptrdiff_t b_step, int count, int n, float* acc);
// Sums of neighbouring channels at `count` places `step` bytes apart: [count][pitch], each over the
// window's places with its own weights [window][weight_pitch].
using ChannelsKernel = void (*)(const char* data, ptrdiff_t step, int64_t count, const int64_t* places,
                                int64_t window, int64_t tile, const float* weights,
                                int64_t weight_pitch, int channels, float* sums, int64_t pitch);
// A line of a channel on its way into its plane: every `step`-th element from `from` on, in bytes, to
// `place` and every `pitch`-th place after it.
struct PlaneLine {
    int64_t from, place, count, step, pitch;
};
// Reads and writes up to a vector past the ends of the planes.
using FillPlanes = void (*)(const char* data, ptrdiff_t data_pitch, int channels,
                            const PlaneLine* lines, const PlaneLine* lines_end, float padding,
                            float* planes, int64_t plane_pitch);
// Sums of `count` neighbouring places over the window's places, a channel's with the same weights
// [channels][window]. Reads and writes up to eight vectors past the end.
struct PlaneSums {
    const float* planes;
    int64_t plane_pitch, channels, multiplier;  // channels that share a plane
    const int64_t* places;
    int64_t window, tile;
    const float* weights;
    int64_t count;
    float* sums;
    int64_t pitch;
};
using SumPlanes = void (*)(const PlaneSums& planes);
using JoinLines = void (*)(const float* sums, int64_t pitch, int64_t channels, const int64_t* places,
                           int64_t count, int64_t length, float* out);
// Lines of depthwise sums from the input in place, whose windows are squares of neighbours.
struct DepthwiseLines {
    const char* data;                 // of the first channel, whose elements of a line are neighbours
    int64_t channel, row;             // bytes from one to the next
    int64_t rows, columns;            // of the input
    int64_t first_row, first_column;  // that the first output's window begins with, or before them
    int64_t channels, multiplier;     // of outputs, and how many of them share an input channel
    int64_t lines, length;            // of outputs
    const void* weights;  // [channels][window], or of bytes [channels][lines][words of four]
    float* sums;          // [channels][lines][length], and room for a vector behind them
    const int32_t* starts = nullptr;  // of bytes: what each channel's sums take beside
    int32_t padding = 0, flip = 0;    // of bytes, four times: what stands for padding; of input's bits
};
using DepthwiseKernel = void (*)(const DepthwiseLines& lines);
inline constexpr int depthwise_windows[] = {3, 5}, max_depthwise_stride = 2;
// Packs n vectors of `depth` elements as [depth][width], or as [pairs of them][width] of words with the
// first element high. Distances are in bytes. Those of pairs return the least nonzero magnitude less
// one, as bits, or `no_magnitude`.
inline constexpr uint32_t no_magnitude = 0xFFFF;
using PackKernel = uint32_t (*)(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                                void* panel);
using PackInterleavedKernel = void (*)(const char* source, ptrdiff_t stride, int64_t outer,
                                       int64_t inner, int n, int width, void* panel);
// Joins rows with the terms, one after another. They go to `target`, NaN canonical (E6), and are only
// read; where that is null they stay, with whatever NaN they have.
using JoinTermsKernel = void (*)(float* rows, ptrdiff_t stride, int count, int n,
                                 const JoinedTerm* terms, int term_count, char* target,
                                 ptrdiff_t target_stride);
using TurnKernel = void (*)(const float* in, ptrdiff_t in_stride, int rows, int columns, float* out,
                            ptrdiff_t out_stride);

// What composites do with rows of float32 (R7): rows.h says how.
using FoldRowsKernel = void (*)(const float* data, ptrdiff_t stride, int64_t count, int64_t runs,
                                const float* centres, float* sums, const char* ahead,
                                ptrdiff_t fetched);
struct RowKernels {
    FoldRowsKernel sums, centred_squares;
    float (*maximum)(const float* x, int64_t n);
    void (*powers)(const float* x, int n, float top, float* out);
    void (*subtract_twice)(const float* x, int n, float first, float second, float* out);
    void (*divide)(const float* x, int n, float divisor, float* out);
    void (*normalize)(const float* x, int n, float centre, float scale, const float* weight,
                      const float* bias, float* out);
};

// So many sums, each of the products of two runs.
using LineSumsKernel = void (*)(const float* const* a, const float* const* b, int count, int64_t steps,
                                float* sums);

struct Kernels {
    const char* isa;
    int panel_width;  // columns of a panel, and of the register block of `product`
    int lanes;
    bool joins_lines;  // a register block of floats may take its rows from two lines of an image
    ByDType<LoadKernel> load;
    ByDType<StoreKernel> store;        // of values of the type: their bits move (E6)
    ByDType<StoreKernel> store_quiet;  // rounds float32 (C2) and makes NaN canonical (C5)
    ByDType<RoundKernel> round;        // float32 to the format's values, integers wrapped (E8)
    ByFormat<RoundByKernel> round_by;  // the same as the profile says
    ByFormat<PrecisionKernel> reduce_precision;  // C9
    MapKernel canonicalize;                      // float32: NaN quiet and without payload (C5)
    RestrictKernel restrict_magnitude;
    MapKernel flush;  // float32: subnormals to zero (C4)
    // Whether there may be anything to count: among an operation's results, a conversion's operands.
    bool (*exceptional)(const void* out, const void* in, int n);
    bool (*special[2])(const void* in, int n);  // Inf or NaN; or zero
    bool (*leaves_range)(const void* in, int n, float least, float greatest, bool allowed);
    ByOp<ByDomain<OpKernel>> op;
    ByOp<ByDomain<ScanKernel>> scan;  // of reducers
    // Operand 2 or 3, of 32 bits, by whether a comparison of 0 and 1, of 32 bits too, holds.
    ByOp<ByDomain<OpKernel>> select_by;
    OpKernel rotate[2];  // 32 bits by `bits` to the left; and then exclusive or with another value
    ByDomain<ByDomain<ChooseKernel>> choose;      // of values and indices of 32 bits
    RepeatKernel repeat_words[most_repeats - 1];  // by how often, less two
    BeginPlaces begin_places;
    ByDType<PlacesKernel> add_places;                // of integers
    ByOp<ByDomain<AccumulateRows>> accumulate_rows;  // where the op is a reducer
    ByOp<FoldWindowKernel> fold_window;              // of float32, where the op is a reducer
    ByOp<ByFormat<SequencesKernel>> fold_sequences;  // of float types, where the op is a reducer
    ByDomain<NarrowKernel> to_float32;
    ByDomain<MapKernel> to_float64;
    ByDomain<ByDType<IntegerKernel>> to_integer;  // saturates (C6); integers wrap
    ByDomain<MapKernel> to_bool;
    QuantizeKernel quantize;
    // By form, vectors - 1 and rows - 1; null where the instruction set has no such block.
    By<ProductForm, product_form_count, BlockKernel[max_block_vectors][max_block_rows]> product;
    // The same of fma for rows that lie side by side, a vector's width or a panel's for each step; null
    // where it would be no quicker.
    BlockKernel product_side_by_side[max_block_vectors][max_block_rows];
    // Of quads and quads_turned by AMX's tiles, and what follows the last of them; null where the
    // instruction set has none.
    TileKernel product_tiles[2];
    void (*release_tiles)();
    ByFormat<StreamKernel> product_stream;  // by the type of b
    FewProductKernel product_few;
    LineSumsKernel line_sums;
    ChannelsKernel product_channels;
    FillPlanes fill_planes;
    SumPlanes sum_planes;
    JoinLines join_lines;
    // By window and stride - 1: of float32, and of bytes by VPDPBUSD, the unsigned ones in the input or
    // in the weights; null where the instruction set has no words of bytes.
    DepthwiseKernel depthwise[2][max_depthwise_stride];
    DepthwiseKernel depthwise_bytes[2][2][max_depthwise_stride];
    // `across`: the vectors lie side by side, `along`: the elements of each do.
    PackKernel pack_across, pack_along, pack_pairs_across, pack_pairs_along, pack_quads_across;
    PackInterleavedKernel pack_interleaved;
    PackKernel pack_pairs_rows;  // [vectors][pairs], `width` words from one to the next
    // The least magnitude, as these have it, of rows of so many pairs.
    uint32_t (*least_of_pairs)(const char* source, ptrdiff_t stride, int64_t pairs, int rows);
    JoinTermsKernel join_terms;
    ByFormat<StoreRowsKernel> store_rows;                // sums to nearest (M4), NaN canonical (E6)
    ByDType<bool> stores_in_blocks;                      // the register blocks store such results too
    TurnKernel turn;                                     // out[j][i] = in[i][j]
    ByFormat<StoreKernel> widen_to_bfloat16;             // the bits of float8 types
    StoreKernel widen_to_int16[2], widen_to_float32[2];  // of unsigned and of signed bytes
    RowKernels rows;
    // Do n * chain_count multiply-adds, or pairs of them, to be timed.
    float (*fma_chains)(int64_t n);
    float (*pair_chains)(int64_t n);  // null without VDPBF16PS
    int chain_count;
};

extern const ByOp<OpRow> op_rows;

}  // namespace neuronsim
