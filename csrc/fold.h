// The inner loops of reductions: chains of elements folded left to right, many chains at a time (R2).
// Included inside each instruction set's namespace.

// The transpose of a 16 x 16 block by exchanges of 1, 2, 4 and 8 lanes.
inline constexpr int block = 16;
typedef float BlockRow __attribute__((vector_size(block * sizeof(float))));
template <int... I>
struct Lanes {};
template <int N, int... I>
struct MakeLanes : MakeLanes<N - 1, N - 1, I...> {};
template <int... I>
struct MakeLanes<0, I...> {
    using type = Lanes<I...>;
};

template <int S, int... I>
inline void exchange(BlockRow& a, BlockRow& b, Lanes<I...>) {
    const BlockRow low = __builtin_shufflevector(a, b, ((I & S) == 0 ? I : I - S + block)...);
    b = __builtin_shufflevector(a, b, ((I & S) == 0 ? I + S : I + block)...);
    a = low;
}

template <int S>
inline void exchange_rows(BlockRow* rows) {
    for (int i = 0; i < block; ++i)
        if ((i & S) == 0) exchange<S>(rows[i], rows[i + S], MakeLanes<block>::type());
}

inline void transpose(BlockRow* rows) {
    exchange_rows<1>(rows);
    exchange_rows<2>(rows);
    exchange_rows<4>(rows);
    exchange_rows<8>(rows);
}

// Chain i starts at data + i * chain_stride and has `count` elements `stride` bytes apart. Its fold is
// acc[i]. NaN is made canonical by the caller, once, at the end (E6).
template <int I, float (*Body)(float, float)>
void fold_chains(const char* data, ptrdiff_t chain_stride, ptrdiff_t stride, int64_t count, int chains,
                 float* acc) {
    constexpr DType T = static_cast<DType>(I);
    using S = typename Storage<storage_bytes(T)>::type;
    constexpr ptrdiff_t size = sizeof(S);
    const auto at = [](const char* p) { return bits_as<float>(widen<T>(read<S>(p))); };
    int chain = 0;
    if (chain_stride == size) {  // neighbouring chains lie side by side
        for (int j = 0; j < chains; ++j) acc[j] = at(data + j * size);
        int64_t k = 1;
        for (; k + 4 <= count; k += 4) {
            const char* p = data + k * stride;
            for (int j = 0; j < chains; ++j) {
                float a = Body(acc[j], at(p + j * size));
                a = Body(a, at(p + stride + j * size));
                a = Body(a, at(p + 2 * stride + j * size));
                acc[j] = Body(a, at(p + 3 * stride + j * size));
            }
        }
        for (; k < count; ++k)
            for (int j = 0; j < chains; ++j) acc[j] = Body(acc[j], at(data + k * stride + j * size));
        return;
    }
    if (stride == size && count > block) {  // each chain is contiguous: transpose blocks of 16 chains
        for (; chain + block <= chains; chain += block) {
            const char* p = data + chain * chain_stride;
            float* a = acc + chain;
            for (int j = 0; j < block; ++j) a[j] = at(p + j * chain_stride);
            int64_t k = 1;
            for (; k + block <= count; k += block) {
                alignas(64) float rows[block][block];
                for (int j = 0; j < block; ++j)
                    for (int i = 0; i < block; ++i)
                        rows[j][i] = at(p + j * chain_stride + (k + i) * size);
                BlockRow columns[block];
                __builtin_memcpy(columns, rows, sizeof rows);
                transpose(columns);
                __builtin_memcpy(rows, columns, sizeof rows);
                for (int i = 0; i < block; ++i)
                    for (int j = 0; j < block; ++j) a[j] = Body(a[j], rows[i][j]);
            }
            for (; k < count; ++k)
                for (int j = 0; j < block; ++j) a[j] = Body(a[j], at(p + j * chain_stride + k * size));
        }
    }
    for (; chain < chains; ++chain) {
        const char* p = data + chain * chain_stride;
        float a = at(p);
        for (int64_t k = 1; k < count; ++k) a = Body(a, at(p + k * stride));
        acc[chain] = a;
    }
}
