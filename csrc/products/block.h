// The register block of the matrix product: rule M2 inside the tiles of the contraction.
// Included inside each instruction set's namespace.

// C4: what is below 2^-126 becomes zero with its sign.
inline Vec flush_lanes(Vec v) {
    return map_bits(v, [](BitsVector x) {
        const BitsVector tiny = (BitsVector)((x & inf_bits) == 0);
        return x & ~(tiny & ~sign_bit);
    });
}

inline Vec canonical_nan_lanes(Vec v) {
    const FloatVector x = floats_of(v), nan = (FloatVector)(BitsVector{} + canonical_nan);
    return vec_of(x == x ? x : nan);
}

template <DType T>
inline Vec round_lanes(Vec v) {
    constexpr int I = static_cast<int>(T);
    float x[Vec::lanes];
    v.store(x);
    for (float& y : x) y = bits_as<float>(decode<I>(encode<I, Payload::drop>(bits_as<uint32_t>(y))));
    return Vec::load(x);
}

// The product of values of 16 bits or fewer is exact in float64, so that it is rounded once.
inline Vec product_bfloat16(Vec a, Vec b) {
    float x[Vec::lanes], y[Vec::lanes];
    a.store(x);
    b.store(y);
    for (int i = 0; i < Vec::lanes; ++i)
        x[i] = bits_as<float>(to_odd_float32(double{x[i]} * double{y[i]}));
    return round_lanes<DType::bfloat16>(Vec::load(x));
}

// How fast this processor can do it: independent chains of fused multiply-adds, as many as there are
// registers for, n of each. Returns a value that depends on all of them.
inline constexpr int independent_chains = block_rows * block_vectors < 16 ? 10 : 16;
template <Vec (*Step)(Vec, Vec, Vec)>
inline float run_chains(int64_t n) {
    constexpr int chains = independent_chains;
    Vec acc[chains];
    for (int i = 0; i < chains; ++i) acc[i] = Vec::splat(static_cast<float>(i));
    const Vec factor = Vec::splat(0.5f), term = Vec::splat(1.0f);
    for (int64_t k = 0; k < n; ++k)
        for (Vec& v : acc) v = Step(v, factor, term);
    for (int i = 1; i < chains; ++i) acc[0] = add(acc[0], acc[i]);
    float lanes[Vec::lanes];
    acc[0].store(lanes);
    return lanes[0];
}

template <ProductForm F>
inline constexpr bool flushes =
    F == ProductForm::flushed || F == ProductForm::product_bfloat16_flushed ||
    F == ProductForm::to_bfloat16_flushed || F == ProductForm::to_float16_flushed ||
    F == ProductForm::odd_even_flushed;

// A step reads two words of a vector, not one.
template <ProductForm F>
inline constexpr bool takes_two_words =
    F == ProductForm::odd_even || F == ProductForm::odd_even_flushed;

// A sum as the form holds it: flushed (C4), and rounded to the type of the sums (M6).
template <ProductForm F>
inline Vec held_sum(Vec r) {
    if constexpr (flushes<F>) r = flush_lanes(r);
    if constexpr (F == ProductForm::to_bfloat16 || F == ProductForm::to_bfloat16_flushed)
        r = round_lanes<DType::bfloat16>(r);
    if constexpr (F == ProductForm::to_float16 || F == ProductForm::to_float16_flushed)
        r = round_lanes<DType::float16>(r);
    if constexpr (F == ProductForm::to_bfloat16_flushed) r = flush_lanes(r);
    return r;
}

// acc after one step of the contraction (M2), or as the model of accumulation has it (M6).
template <ProductForm F>
inline Vec product_step(Vec a, Vec b, Vec acc) {
    if constexpr (F == ProductForm::product_bfloat16 || F == ProductForm::product_bfloat16_flushed) {
        Vec product = product_bfloat16(a, b);
        if constexpr (flushes<F>) product = flush_lanes(product);
        return held_sum<F>(add(acc, product));
    } else {
        return held_sum<F>(fma(a, b, acc));
    }
}

// The halves of a pair's word as float32: the element that comes first in the contraction lies in the
// high half, where VDPBF16PS begins (M2).
inline Vec first_of_pair(Vec v) {
    return map_bits(v, [](BitsVector x) { return x & 0xFFFF0000u; });
}
inline Vec second_of_pair(Vec v) {
    return map_bits(v, [](BitsVector x) { return x << 16; });
}

// Calls f for the sums of every row and vector. Unrolled by hand, so that the compiler keeps them in
// registers from run to run.
template <int Rows, int Vectors, class F>
[[gnu::always_inline]] inline void for_sums(const F& f) {
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 4
        for (int j = 0; j < Vectors; ++j) f(row, j);
}

// The same with the place of each, of rows `stride` apart. The places are worked out as they are used:
// compilers would keep all of them from before the steps on.
template <int Rows, int Vectors, class T, class F>
[[gnu::always_inline]] inline void at_sums(T* p, ptrdiff_t stride, const F& f) {
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row, p += stride) {
        asm("" : "+r"(p));
#pragma GCC unroll 4
        for (int j = 0; j < Vectors; ++j) f(row, j, p + j * Vec::lanes);
    }
}

// Whether a's rows may lie side by side, a vector's width for each step or a panel's.
inline constexpr bool takes_side_by_side = Vec::lanes > 4 && block_rows <= Vec::lanes;
inline constexpr ptrdiff_t side_by_side_step = Vec::lanes * sizeof(float);
static_assert(!takes_side_by_side || block_vectors == 2, "two steps that product_block tells apart");

// Where each of few rows has a pointer of its own they may lie on two lines of an image. Else every
// third one has: the others are one or two strides away, which addresses can say.
inline constexpr bool joins_lines = has_avx2_alone;
inline constexpr int rows_of_pointer = joins_lines ? 1 : 3;
template <int Rows>
using RowPointers = const char * [(Rows + rows_of_pointer - 1) / rows_of_pointer];

// One step of all rows, or, of an odd_even form's one row, two.
template <ProductForm F, int Rows, int Vectors, bool SideBySide>
[[gnu::always_inline]] inline void block_step(const RowPointers<Rows>& a, ptrdiff_t offset,
                                              ptrdiff_t stride, const float* b,
                                              Vec (&acc)[Rows][Vectors]) {
    const auto row_at = [&](int row) {
        return offset + (SideBySide ? a[0] + row * sizeof(float)
                                    : a[row / rows_of_pointer] + row % rows_of_pointer * stride);
    };
    if constexpr (takes_two_words<F>) {
        // Steps are pairs here: the second element first, as VDPBF16PS reads them from memory.
        constexpr int width = Vectors * Vec::lanes;
        for (int half = 1; half >= 0; --half)
            for (int j = 0; j < Vectors; ++j)
                acc[0][j] =
                    product_step<F>(Vec::splat(read<float>(a[0] + offset + half * sizeof(float))),
                                    Vec::load(b + half * width + j * Vec::lanes), acc[0][j]);
    } else {
        Vec b_row[Vectors];
        for (int j = 0; j < Vectors; ++j) b_row[j] = Vec::load(b + j * Vec::lanes);
#pragma GCC unroll 16
        for (int row = 0; row < Rows; ++row) {
            const char* const at = row_at(row);
            // Every fourth row spares an instruction that way; of more, the loads cost up to 6 %
            // (measured on Intel).
            const bool reads = F == ProductForm::fma && row % 4 == 1;
            const Vec element = reads ? Vec::zero() : Vec::splat(read<float>(at));
#pragma GCC unroll 4
            for (int j = 0; j < Vectors; ++j) {
                Vec& x = acc[row][j];
                if (reads) {
                    x = fma_element(at, b_row[j], x);
                    continue;
                }
                if constexpr (F == ProductForm::pairs) {
                    x = fma_pairs(element, b_row[j], x);
                } else if constexpr (F == ProductForm::pairs_by_fma) {
                    x = fma(first_of_pair(element), first_of_pair(b_row[j]), x);
                    x = fma(second_of_pair(element), second_of_pair(b_row[j]), x);
                } else {
                    x = product_step<F>(element, b_row[j], x);
                }
            }
        }
    }
}

// The columns of b that a later step takes, into the first cache: what comes from the third one does
// not come in time by itself (measured).
template <int Vectors>
[[gnu::always_inline]] inline void prefetch_step(const float* b) {
    constexpr int line = 64 / sizeof(float);
    for (int j = 0; j < Vectors * Vec::lanes; j += line) __builtin_prefetch(b + j);
}

// The sums with a term.
template <class Body, int Rows, int Vectors>
[[gnu::always_inline]] inline void join_sums(const JoinedTerm& term, Vec (&acc)[Rows][Vectors]) {
    const auto join = [](Vec& x, Vec y) { x = vec_of(Body::apply(floats_of(x), floats_of(y))); };
    if (term.along)
        at_sums<Rows, Vectors>(term.data, term.row, [&](int row, int j, const float* p) {
            join(acc[row][j], Vec::load(p));
        });
    else
        for_sums<Rows, Vectors>(
            [&](int row, int j) { join(acc[row][j], Vec::splat(term.data[row * term.row])); });
}

// Whether the register blocks turn sums into values of the type.
template <DType T>
inline constexpr bool stores_in_blocks =
    T == DType::float32 || T == DType::tfloat32 || (T == DType::float16 && has_float16_conversion) ||
    (T == DType::bfloat16 && has_bfloat16_conversion);

// The sums as values of the type to the result; false if there may be one of which `store_rows` makes
// something else. That a NaN is among them their sum tells: additions run beside the multiply-adds,
// which a comparison of each would hold up (measured).
template <DType T, int Rows, int Vectors>
[[gnu::always_inline]] inline bool store_as(const RegisterBlock& t, const Vec (&acc)[Rows][Vectors]) {
    using Element = std::conditional_t<storage_bytes(T) == 2, uint16_t, float>;
    constexpr ptrdiff_t size = sizeof(Element);
    Vec total[2] = {Vec::zero(), Vec::zero()};
    uint32_t exceptional = 0;
    at_sums<Rows, Vectors>(reinterpret_cast<Element*>(t.result), t.result_row / size,
                           [&](int row, int j, Element* p) {
                               const Vec x = acc[row][j];
                               if constexpr (T == DType::bfloat16) exceptional |= store_bfloat16(x, p);
                               else total[row % 2] = add(total[row % 2], x);
                               if constexpr (T == DType::float32) x.store(p);
                               if constexpr (T == DType::tfloat32) rounded_to_tfloat32(x).store(p);
                               if constexpr (T == DType::float16) store_float16(x, p);
                           });
    return exceptional == 0 && !any_nan(add(total[0], total[1]));
}

// What the last tile gave with PSUM and the terms goes to the result at once: rounded once (M4), its
// NaN canonical (E6), subnormals kept (C4).
template <int Rows, int Vectors>
[[gnu::always_inline]] inline void store_result(const RegisterBlock& t, Vec (&acc)[Rows][Vectors]) {
    for (const JoinedTerm* term = t.terms; term != t.terms + t.term_count; ++term) {
        if (term->op == Op::add) join_sums<body::add>(*term, acc);
        else if (term->op == Op::subtract) join_sums<body::subtract>(*term, acc);
        else if (term->op == Op::multiply) join_sums<body::multiply>(*term, acc);
        else join_sums<body::maximum>(*term, acc);
    }
    const auto is_stored = [&]<DType T>() {
        if constexpr (stores_in_blocks<T>) return t.result_type == T && store_as<T>(t, acc);
        else return false;
    };
    if (t.partial == 0 && (is_stored.template operator()<DType::float32>() ||
                           is_stored.template operator()<DType::bfloat16>() ||
                           is_stored.template operator()<DType::float16>() ||
                           is_stored.template operator()<DType::tfloat32>()))
        return;
    at_sums<Rows, Vectors>(t.psum, t.psum_stride,
                           [&](int row, int j, float* p) { acc[row][j].store(p); });
    const int last = t.partial == 0 ? Vec::lanes : t.partial;
    t.store_rows(t.psum, t.psum_stride, Rows, (Vectors - 1) * Vec::lanes + last, t.result,
                 t.result_row);
}

// Whether the steps' columns of b may lie anywhere (convolutions of few channels): in the one kernel of
// each size that these call.
template <ProductForm F, bool SideBySide>
inline constexpr bool takes_places = F == ProductForm::fma && SideBySide == takes_side_by_side;

// Each output's sum starts at +0 and runs through the steps in order; where a tile ends, it is added
// to PSUM (M2). The columns of b lie side by side, `Vectors` vectors for each step.
template <ProductForm F, int Rows, int Vectors, bool SideBySide = false>
void product_block(const RegisterBlock& t) {
    Vec acc[Rows][Vectors];
    for_sums<Rows, Vectors>([&](int row, int j) { acc[row][j] = Vec::zero(); });
    if (t.continues)
        at_sums<Rows, Vectors>(t.psum, t.psum_stride,
                               [&](int row, int j, float* p) { acc[row][j] = Vec::load(p); });
    const ptrdiff_t vector_bytes = Vec::lanes * storage_bytes(t.result_type);
    // Where the sums will go: from beyond the second cache it comes no sooner than they do.
    if (t.result != nullptr)
        at_sums<Rows, 1>(t.result, t.result_row, [&](int, int, char* p) {
            for (int j = 0; j < Vectors; ++j) __builtin_prefetch(p + j * vector_bytes, 1);
        });
    for (const JoinedTerm* term = t.terms; term != t.terms + t.term_count; ++term)
        if (term->along && term->row != 0)
            at_sums<Rows, Vectors>(term->data, term->row,
                                   [&](int, int, const float* p) { __builtin_prefetch(p, 0, 2); });
    const float* b = t.b;
    const ptrdiff_t stride = t.a_row;
    constexpr ptrdiff_t panel_step = (takes_two_words<F> ? 2 : 1) * Vectors * Vec::lanes;
    // Pairs lie in panels, at distances known here; single elements may lie where the operand has them.
    constexpr bool in_panels =
        F == ProductForm::pairs || F == ProductForm::pairs_by_fma || takes_two_words<F>;
    const ptrdiff_t b_step = !in_panels && t.b_step != 0 ? t.b_step : panel_step;
    constexpr ptrdiff_t steps_ahead = 16;
    const int64_t* places = takes_places<F, SideBySide> ? t.places : nullptr;
    bool ended = true, fresh = t.fresh;
    for (const BlockRun* run = t.runs; run != t.runs_end; ++run) {
        RowPointers<Rows> a;
        for (int i = 0; i < static_cast<int>(std::size(a)); ++i) {
            const int row = i * rows_of_pointer;
            a[i] = t.a + run->a + row * stride + (joins_lines && row >= t.line ? t.jump : 0);
        }
        const auto take = [&]<int Together>(auto step) [[gnu::always_inline]] {
            const float* at = b;
            for (int64_t n = run->steps; n > 0; at += Together * b_step) {
#pragma GCC unroll 4
                for (int i = 0; i < Together; ++i) {
                    prefetch_step<Vectors>(at + (steps_ahead + i) * b_step);
                    block_step<F, Rows, Vectors, SideBySide>(a, i * step, stride, at + i * b_step, acc);
                    --n;
                    if (i + 1 < Together && n == 0) return;
                }
                for (const char*& p : a) p += Together * step;
            }
        };
        constexpr int together = F == ProductForm::fma ? block_steps : 1;
        using Along = std::integral_constant<ptrdiff_t, sizeof(float)>;
        using OfVector = std::integral_constant<ptrdiff_t, side_by_side_step>;
        using OfPanel = std::integral_constant<ptrdiff_t, block_vectors * side_by_side_step>;
        if (takes_places<F, SideBySide> && places != nullptr) {
            for (int64_t n = run->steps; n > 0; --n) {
                block_step<F, Rows, Vectors, SideBySide>(a, 0, stride, b + *places++, acc);
                for (const char*& p : a) p += t.a_step;
            }
        } else {
            if constexpr (SideBySide)
                t.a_step == OfVector::value ? take.template operator()<together>(OfVector())
                                            : take.template operator()<together>(OfPanel());
            else if (together > 1 && t.a_step == Along::value)
                take.template operator()<together>(Along());
            else take.template operator()<1>(t.a_step);
            b += run->steps * b_step;
        }
        ended = run->ends_tile;
        if (!ended) continue;
        if (fresh)
            for_sums<Rows, Vectors>(
                [&](int row, int j) { acc[row][j] = add(Vec::zero(), acc[row][j]); });
        else
            at_sums<Rows, Vectors>(t.psum, t.psum_stride, [&](int row, int j, const float* p) {
                acc[row][j] = add(Vec::load(p), acc[row][j]);
            });
        if constexpr (stores_results(F)) {
            if (t.result != nullptr && run + 1 == t.runs_end) return store_result(t, acc);
        }
        at_sums<Rows, Vectors>(t.psum, t.psum_stride, [&](int row, int j, float* p) {
            held_sum<F>(acc[row][j]).store(p);
            acc[row][j] = Vec::zero();
        });
        fresh = false;
    }
    if (!ended)
        at_sums<Rows, Vectors>(t.psum, t.psum_stride,
                               [&](int row, int j, float* p) { acc[row][j].store(p); });
}
