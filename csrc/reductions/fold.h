// The inner loops of reductions: sequences of elements folded left to right, many sequences at a time
// (R2). Included inside each instruction set's namespace.

// The rows that a window reads, into registers from the first to the last; `step` 2: every second of
// their elements.
template <class Body>
void fold_window(const float* const* rows, int count, int n, int step, float* out) {
    if (step == 2) {
        for (int at = 0, left = n; left > 0; at += Vec::lanes, left -= Vec::lanes) {
            const auto row = [&](int i) {
                return floats_of(load_every_second(rows[i] + 2 * at, left, Vec::zero()));
            };
            FloatVector x = row(0);
            for (int i = 1; i < count; ++i) x = Body::apply(x, row(i));
            vec_of(x).store_some(out + at, left < Vec::lanes ? left : Vec::lanes);
        }
        return;
    }
    in_pieces<4>(n, [&]<int N>(int at, const auto& load, const auto& store) {
        FloatVector x[N];
        for (int j = 0; j < N; ++j) x[j] = floats_of(load(rows[0] + at + j * Vec::lanes));
        for (int i = 1; i < count; ++i)
            for (int j = 0; j < N; ++j)
                x[j] = Body::apply(x[j], floats_of(load(rows[i] + at + j * Vec::lanes)));
        for (int j = 0; j < N; ++j) store(vec_of(x[j]), out + at + j * Vec::lanes);
    });
}

// The prefixes of a fold: step i reads what step i - 1 wrote. NaN is made canonical by the caller.
template <class Body>
void scan_float(void* out, const void* in, int n) {
    auto* y = static_cast<float*>(out);
    const auto* x = static_cast<const float*>(in);
    float acc = y[0] = x[0];
    for (int i = 1; i < n; ++i) y[i] = acc = Body::apply(acc, x[i]);
}
template <OpKernel Kernel, class T>
void scan_integer(void* out, const void* in, int n) {
    auto* y = static_cast<T*>(out);
    const auto* x = static_cast<const T*>(in);
    y[0] = x[0];
    for (int i = 1; i < n; ++i) {
        const void* const operands[] = {y + i - 1, x + i};
        Kernel(y + i, operands, 1, 64);
    }
}

// The transpose of a square block of one vector's width by exchanges of 1, 2, 4, ... lanes.
inline constexpr int block = Vec::lanes;
inline constexpr ptrdiff_t cache_line = 64;
template <int... I>
using Lanes = std::integer_sequence<int, I...>;
template <int N>
using MakeLanes = std::make_integer_sequence<int, N>;

template <int S, int... I>
inline void exchange(FloatVector& a, FloatVector& b, Lanes<I...>) {
    const FloatVector low = __builtin_shufflevector(a, b, ((I & S) == 0 ? I : I - S + block)...);
    b = __builtin_shufflevector(a, b, ((I & S) == 0 ? I + S : I + block)...);
    a = low;
}

template <int S>
inline void transpose(FloatVector* rows) {
    for (int i = 0; i < block; ++i)
        if ((i & S) == 0) exchange<S>(rows[i], rows[i + S], MakeLanes<block>());
    if constexpr (2 * S < block) transpose<2 * S>(rows);
}

// The elements of a vector for sums and comparisons: what a NaN holds does not matter to these.
template <DType T>
inline void load_vector(const char* data, FloatVector& v) {
    using S = Word<T>;
    if constexpr (sizeof(S) == sizeof(float)) {
        __builtin_memcpy(&v, data, sizeof v);  // GCC would keep a value apart, and spill (measured)
    } else if constexpr (T == DType::bfloat16) {
        v = floats_of(load_bfloat16(data));
    } else if constexpr (T == DType::float16 && has_float16_conversion) {
        v = floats_of(load_float16(data));
    } else {
        alignas(sizeof v) uint32_t x[block];
        for (int i = 0; i < block; ++i)
            x[i] = widen<T>(read<S>(data + i * static_cast<ptrdiff_t>(sizeof(S))));
        v = read<FloatVector>(x);
    }
}

// A long sequence looks for signals each time that so many of its elements, counted by k, are folded.
inline constexpr int64_t folded_at_once = 1 << 16;
template <int64_t Step>
[[gnu::always_inline]] inline void note_folded(int64_t k, int64_t sequences) {
    constexpr int64_t last = folded_at_once - Step;
    if ((k & last) == last) [[unlikely]]
        note_work(sequences * folded_at_once);
}

// An element as float32.
template <int I>
inline float float_at(const char* p) {
    constexpr DType T = static_cast<DType>(I);
    return bits_as<float>(widen<T>(read<Word<T>>(p)));
}

// Neighbouring sequences that lie side by side, four elements of each at a time.
template <int I, class Body>
void fold_adjacent(const char* data, ptrdiff_t stride, int64_t count, int sequences, float* acc) {
    constexpr ptrdiff_t size = formats[I].storage_bytes;
    for (int j = 0; j < sequences; ++j) acc[j] = float_at<I>(data + j * size);
    int64_t k = 1;
    for (; k + 4 <= count; k += 4) {
        note_folded<4>(k, sequences);
        const char* p = data + k * stride;
        for (int j = 0; j < sequences; ++j) {
            float a = Body::apply(acc[j], float_at<I>(p + j * size));
            a = Body::apply(a, float_at<I>(p + stride + j * size));
            a = Body::apply(a, float_at<I>(p + 2 * stride + j * size));
            acc[j] = Body::apply(a, float_at<I>(p + 3 * stride + j * size));
        }
    }
    for (; k < count; ++k)
        for (int j = 0; j < sequences; ++j)
            acc[j] = Body::apply(acc[j], float_at<I>(data + k * stride + j * size));
}

// `block` sequences, each contiguous: blocks of them are transposed.
template <int I, class Body>
void fold_transposed(const char* p, ptrdiff_t sequence_stride, int64_t count, float* acc) {
    constexpr ptrdiff_t size = formats[I].storage_bytes;
    for (int j = 0; j < block; ++j) acc[j] = float_at<I>(p + j * sequence_stride);
    FloatVector a = read<FloatVector>(acc);
    // Meanwhile the lines that come next are fetched sequence by sequence, as memory likes it: those
    // of the next sequences where they follow in memory, else the next elements of these.
    const ptrdiff_t length = count * size, lines = length / cache_line;
    const char* next = p + (sequence_stride == length ? block * sequence_stride : length);
    ptrdiff_t line = 0;
    int64_t k = 1;
    for (; k + block <= count; k += block) {
        note_folded<block>(k, block);
        for (int i = 0; i < block * block * size / cache_line; ++i, ++line) {
            if (line == lines) {
                line = 0;
                next += sequence_stride;
            }
            __builtin_prefetch(next + line * cache_line);
        }
        FloatVector rows[block];
        for (int j = 0; j < block; ++j)
            load_vector<static_cast<DType>(I)>(p + j * sequence_stride + k * size, rows[j]);
        transpose<1>(rows);
        for (int i = 0; i < block; ++i) a = Body::apply(a, rows[i]);
    }
    __builtin_memcpy(acc, &a, sizeof a);
    for (; k < count; ++k)
        for (int j = 0; j < block; ++j)
            acc[j] = Body::apply(acc[j], float_at<I>(p + j * sequence_stride + k * size));
}

// Maximum and minimum have the same bits in any order (E7).
template <class Body>
inline constexpr bool has_any_order =
    std::is_same_v<Body, body::maximum> || std::is_same_v<Body, body::minimum>;

// The lanes of a vector fold their parts of one contiguous sequence; the last vector begins within the
// one before it. Quickly: but for NaN, with which the total is NaN, and the sign of zero.
template <int I, class Body, bool Quickly>
inline FloatVector fold_in_lanes(const char* p, int64_t count, FloatVector& total) {
    const auto load = [&](int64_t k, FloatVector& x) {
        load_vector<static_cast<DType>(I)>(p + k * formats[I].storage_bytes, x);
    };
    FloatVector a;
    load(0, a);
    total = a;
    for (int64_t k = block; k < count; k += block) {
        note_folded<block>(k, 1);
        FloatVector x;
        load(k + block <= count ? k : count - block, x);
        if constexpr (!Quickly) a = Body::apply(a, x);
        else if constexpr (std::is_same_v<Body, body::maximum>) a = x > a ? x : a;
        else a = x < a ? x : a;
        total += x;
    }
    return a;
}
// Up to `block` of these, whose vectors are transposed.
template <int I, class Body, bool Quickly = true>
void fold_any_order(const char* p, ptrdiff_t sequence_stride, int64_t count, int sequences,
                    float* acc) {
    FloatVector rows[block];
    bool is_sure = true;
    for (int j = 0; j < block; ++j) {
        FloatVector total;
        rows[j] = j < sequences ? fold_in_lanes<I, Body, Quickly>(p + j * sequence_stride, count, total)
                                : rows[0];
        if (Quickly && j < sequences) is_sure = is_sure && !any_nan(vec_of(total));
    }
    transpose<1>(rows);
    for (int i = 1; i < block; ++i) rows[0] = Body::apply(rows[0], rows[i]);
    __builtin_memcpy(acc, &rows[0], sequences * sizeof(float));
    for (int j = 0; Quickly && j < sequences; ++j) is_sure = is_sure && acc[j] != 0;
    if constexpr (Quickly)
        if (!is_sure) fold_any_order<I, Body, false>(p, sequence_stride, count, sequences, acc);
}

// Sequence i starts at data + i * sequence_stride and has `count` elements `stride` bytes apart. Its
// fold is acc[i]. NaN is made canonical by the caller, once, at the end (E6).
template <int I, class Body>
void fold_sequences(const char* data, ptrdiff_t sequence_stride, ptrdiff_t stride, int64_t count,
                    int sequences, float* acc) {
    constexpr ptrdiff_t size = formats[I].storage_bytes;
    if (sequence_stride == size) return fold_adjacent<I, Body>(data, stride, count, sequences, acc);
    int first = 0;
    if (stride == size && count > block) {
        if constexpr (has_any_order<Body>)
            for (; first < sequences; first += block)
                fold_any_order<I, Body>(data + first * sequence_stride, sequence_stride, count,
                                        sequences - first < block ? sequences - first : block,
                                        acc + first);
        else
            for (; first + block <= sequences; first += block)
                fold_transposed<I, Body>(data + first * sequence_stride, sequence_stride, count,
                                         acc + first);
    }
    for (; first < sequences; ++first) {
        const char* p = data + first * sequence_stride;
        float a = float_at<I>(p);
        for (int64_t k = 1; k < count; ++k) {
            note_folded<1>(k, 4);
            a = Body::apply(a, float_at<I>(p + k * stride));
        }
        acc[first] = a;
    }
}
