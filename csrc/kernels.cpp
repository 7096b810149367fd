// Built once per instruction set, each time in its own namespace (NEURONSIM_ISA_NAMESPACE), so that
// the linker cannot merge code for one processor into another's.
#include "machine/kernels.h"

#include <array>
#include <bit>
#include <concepts>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "functions/exact/accurate.h"
#include "machine/interrupt.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neuronsim::NEURONSIM_ISA_NAMESPACE {
namespace {

// clang-format off: each relies on those before it
#include "formats/native.h"
#include "formats/encoding.h"
#include "formats/storage.h"
#include "formats/round.h"
#include "formats/conversion.h"
#include "machine/simd.h"
#include "machine/doubles.h"

namespace math {
#include "functions/fast/tables.h"
#include "functions/fast/exponential.h"
#include "functions/fast/logarithm.h"
#include "functions/fast/error_function.h"
#include "functions/fast/root.h"
#include "functions/fast/trigonometric.h"
}  // namespace math

#include "functions/fast/rounded.h"
#include "movement/places.h"
#include "movement/short_rows.h"
#include "elementwise/elementwise.h"
#include "elementwise/exceptional.h"
#include "elementwise/power.h"
#include "elementwise/quantize.h"
#include "reductions/fold.h"
#include "reductions/accumulate.h"
#include "reductions/choose_pairs.h"
#include "reductions/rows.h"
#include "products/block.h"
#include "products/few.h"
#include "products/stream.h"
#include "products/integer_block.h"
#include "products/convolution/depthwise.h"
#include "products/pack.h"
#include "products/store.h"
#include "products/line_sums.h"
// clang-format on

constexpr Domain f32 = Domain::float32, f64 = Domain::float64, i8 = Domain::int8, u8 = Domain::uint8,
                 i32 = Domain::int32, u32 = Domain::uint32, i64 = Domain::int64, u64 = Domain::uint64;

// Calls the body with the constants 0 to N - 1.
template <int N, class Body>
constexpr void count_up(const Body& body) {
    [&]<int... I>(std::integer_sequence<int, I...>) {
        (body(std::integral_constant<int, I>()), ...);
    }(std::make_integer_sequence<int, N>());
}

template <int I>
constexpr void fill_dtype(Kernels& k) {
    constexpr DType T = static_cast<DType>(I);
    k.load[I] = load<T>;
    k.store[I] = store<T, Payload::keep>;
    k.store_quiet[I] = store<T, Payload::drop>;
    k.round[I] = round_to<T>;
    if constexpr (is_device_float(T)) {
        k.round_by[I] = round_by<T>;
        k.store_rows[I] = store_rows<T>;
        k.stores_in_blocks[I] = stores_in_blocks<T>;
        k.product_stream[I] = product_stream<T>;
        if constexpr (storage_bytes(T) == 1) k.widen_to_bfloat16[I] = widen_float8<I>;
        k.reduce_precision[I] = reduce_precision<T>;
    }
    if constexpr (is_integer(T)) {
        using Signed = std::make_signed_t<Word<T>>;
        k.add_places[I] = add_places<std::conditional_t<is_signed_integer(T), Signed, Word<T>>>;
        count_up<domain_count>(
            [&](auto d) { k.to_integer[d][I] = to_integer<static_cast<Domain>(int{d}), T>; });
    }
}

template <int I>
constexpr void fill_domain(Kernels& k) {
    constexpr Domain D = static_cast<Domain>(I);
    if constexpr (D != f32) k.to_float32[I] = to_float32<D>;
    if constexpr (D != f64) k.to_float64[I] = to_float64<D>;
    k.to_bool[I] = to_bool<D>;
}

template <Domain D>
constexpr void fill_choices(Kernels& k) {
    auto& row = k.choose[D];
    row[i32] = choose<DomainElement<D>, int32_t>;
    row[u32] = choose<DomainElement<D>, uint32_t>;
}

template <ProductForm F, int MaxRows, int Rows = 1, int Vectors = 1>
constexpr void fill_product(Kernels& k) {
    if constexpr (Vectors <= block_vectors) {
        BlockKernel& kernel = k.product[F][Vectors - 1][Rows - 1];
        if constexpr (F < ProductForm::quads) kernel = product_block<F, Rows, Vectors>;
        else kernel = integer_block<F, Rows, Vectors>;
        if constexpr (F == ProductForm::fma && takes_side_by_side)
            k.product_side_by_side[Vectors - 1][Rows - 1] = product_block<F, Rows, Vectors, true>;
        if constexpr (Rows < MaxRows) fill_product<F, MaxRows, Rows + 1, Vectors>(k);
        else fill_product<F, MaxRows, 1, Vectors + 1>(k);
    }
}
constexpr void fill_depthwise(Kernels& k) {
    count_up<std::size(depthwise_windows)>([&](auto i) {
        constexpr int window = depthwise_windows[i];
        count_up<max_depthwise_stride>([&](auto s) {
            constexpr int stride = s + 1;
            k.depthwise[i][s] = sum_float_lines<window, stride>;
#if defined(__AVX512BW__)
            k.depthwise_bytes[0][i][s] = sum_depthwise<ByteLines<window, stride, false>>;
            k.depthwise_bytes[1][i][s] = sum_depthwise<ByteLines<window, stride, true>>;
#endif
        });
    });
}

constexpr void fill_products(Kernels& k) {
    k.panel_width = block_vectors * Vec::lanes;
    k.joins_lines = joins_lines;
    fill_product<ProductForm::fma, block_rows>(k);
    if constexpr (has_pairs) {
        fill_product<ProductForm::pairs, block_rows>(k);
        fill_product<ProductForm::pairs_by_fma, block_rows>(k);
        k.pair_chains = run_chains<fma_pairs>;
    }
    // The models of accumulation are there to be right: one row at a time.
    constexpr int first = static_cast<int>(ProductForm::flushed);
    count_up<static_cast<int>(ProductForm::quads) - first>(
        [&](auto i) { fill_product<static_cast<ProductForm>(first + i), 1>(k); });
    if constexpr (has_quads) {
        fill_product<ProductForm::quads, block_rows>(k);
        fill_product<ProductForm::quads_turned, block_rows>(k);
    }
#if defined(__AVX512BW__)
    k.product_tiles[0] = tile_block<false>;
    k.product_tiles[1] = tile_block<true>;
    k.release_tiles = release_tiles;
#endif
    fill_product<ProductForm::shorts, block_rows>(k);
    fill_product<ProductForm::words, block_rows>(k);
    k.pack_pairs_across = pack_pairs_across;
    k.pack_pairs_along = pack_pairs_along;
    k.pack_pairs_rows = pack_pairs_rows;
    k.least_of_pairs = least_of_pairs;
    k.pack_quads_across = pack_quads_across;
    k.widen_to_int16[0] = widen_bytes<uint8_t, int16_t>;
    k.widen_to_int16[1] = widen_bytes<int8_t, int16_t>;
    k.widen_to_float32[0] = widen_bytes<uint8_t, float>;
    k.widen_to_float32[1] = widen_bytes<int8_t, float>;
    k.product_few = product_few;
    k.line_sums = line_sums;
    k.product_channels = product_channels;
    k.fill_planes = fill_planes;
    k.sum_planes = sum_planes;
    k.join_lines = join_lines;
    fill_depthwise(k);
    k.pack_across = pack_across;
    k.pack_along = pack_along;
    k.pack_interleaved = pack_interleaved;
    k.turn = turn;
    k.join_terms = join_terms;
    k.fma_chains = run_chains<fma>;
    k.chain_count = independent_chains * Vec::lanes;
}

constexpr void fill_operations(Kernels& k) {
#define SET(name, domain, suffix) k.op[Op::name][domain] = kernel::name##_##suffix;
#define SET_SCAN(name, domain, suffix)                                                       \
    k.scan[Op::name][domain] = scan_integer<kernel::name##_##suffix, DomainElement<domain>>; \
    k.accumulate_rows[Op::name][domain] =                                                    \
        accumulate_integers<kernel::name##_##suffix, DomainElement<domain>>;
#define SET_SCANS(name, integer)     \
    SET_SCAN(name, i8, integer##8)   \
    SET_SCAN(name, u8, uint8)        \
    SET_SCAN(name, i32, integer##32) \
    SET_SCAN(name, u32, uint32)      \
    SET_SCAN(name, i64, integer##64) \
    SET_SCAN(name, u64, uint64)
#define SET_INTEGERS(name) \
    SET(name, i8, int8)    \
    SET(name, u8, uint8)   \
    SET(name, i32, int32) SET(name, u32, uint32) SET(name, i64, int64) SET(name, u64, uint64)
#define SET_ALL(name) SET(name, f32, float32) SET_INTEGERS(name)
#define REDUCER(name, f, s, u)                                      \
    SET_ALL(name)                                                   \
    SET_SCANS(name, int)                                            \
    k.scan[Op::name][f32] = scan_float<body::name>;                 \
    k.accumulate_rows[Op::name][f32] = accumulate_rows<body::name>; \
    k.fold_window[Op::name] = fold_window<body::name>;              \
    count_up<format_count>(                                         \
        [&](auto i) { k.fold_sequences[Op::name][i] = fold_sequences<i, body::name>; });
#define ARITHMETIC(name, arity, f, s, u) SET_ALL(name)
#define FLOATING(name, arity, f) SET(name, f32, float32)
#define FUNCTION(name) SET(name, f32, float32)
#define SET_BITS(name)   \
    SET(name, i8, uint8) \
    SET(name, u8, uint8) \
    SET(name, i32, uint32) SET(name, u32, uint32) SET(name, i64, uint64) SET(name, u64, uint64)
#define INTEGRAL(name, arity, u)              \
    SET_BITS(name)                            \
    if constexpr (is_bit_reducer(Op::name)) { \
        SET_SCANS(name, uint)                 \
    }
#define BITWISE(name, arity, f, s, u) SET_ALL(name)
#define SIGN(name, arity, f) SET(name, f32, float32)
#define SET_SELECT_BY(name, domain, suffix) \
    k.select_by[Op::name][domain] = kernel::select_by_##name##_##suffix;
#define COMPARISON(name, arity, body) \
    SET_ALL(name)                     \
    SET_SELECT_BY(name, f32, float32) SET_SELECT_BY(name, i32, int32) SET_SELECT_BY(name, u32, uint32)
#define SELECTION(name) SET(name, f32, uint32) SET_BITS(name)
#include "ops.def"
    // Those of two operands that have lanes, and the bits that these are right to.
#define SET_PAIR(name, bits) k.op[Op::name][f32] = rounded_pair<math::name, accurate::name, bits>;
    SET_PAIR(atan2, 42)
    SET_PAIR(hypot, 42)
    auto& powers = k.op[Op::power];
    powers[f32] = power_float32;
    powers[i8] = power_integers<int8_t, kernel::power_int8>;
    powers[u8] = power_integers<uint8_t, kernel::power_uint8>;
    powers[i32] = power_integers<int32_t, kernel::power_int32>;
    powers[u32] = power_integers<uint32_t, kernel::power_uint32>;
    powers[i64] = power_integers<int64_t, kernel::power_int64>;
    powers[u64] = power_integers<uint64_t, kernel::power_uint64>;
}

constexpr Kernels make_kernels() {
    Kernels k{};
    k.isa = NEURONSIM_ISA_NAME;
    k.lanes = Vec::lanes;
    k.rows = {fold_rows<Plain>, fold_rows<CentredSquare>, row_maximum,
              powers_of_row,    subtract_twice,           divide_row,
              normalize_row};
    k.flush = change_bits<flushed>;
    k.exceptional = exceptional;
    k.special[0] = special<false>;
    k.special[1] = special<true>;
    k.leaves_range = leaves_range;
    k.restrict_magnitude = restrict_magnitude;
    k.canonicalize = change_bits<quiet>;
    k.quantize = quantize;
    k.begin_places = begin_places;
    count_up<most_repeats - 1>([&](auto i) { k.repeat_words[i] = repeat_words<i + 2>; });
    count_up<dtype_count>([&](auto i) { fill_dtype<i>(k); });
    count_up<domain_count>([&](auto i) { fill_domain<i>(k); });
    fill_products(k);
    fill_operations(k);
    // Rows of sums in vectors.
    k.accumulate_rows[Op::add][i32] = k.accumulate_rows[Op::add][u32] = accumulate_rows<WrappingAdd>;
    k.rotate[0] = kernel::rotate<false>;
    k.rotate[1] = kernel::rotate<true>;
    fill_choices<f32>(k);
    fill_choices<i8>(k);
    fill_choices<u8>(k);
    fill_choices<i32>(k);
    fill_choices<u32>(k);
    return k;
}

}  // namespace

extern const Kernels kernels;
constinit const Kernels kernels = make_kernels();

}  // namespace neuronsim::NEURONSIM_ISA_NAMESPACE
