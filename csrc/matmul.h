// The register block of the matrix product: rule M2 inside one tile of the contraction.
// Included inside each instruction set's namespace.

// C4: what is below 2^-126 becomes zero with its sign.
template <bool Flush>
inline Vec flushed_if(Vec v) {
    if constexpr (Flush) {
        float x[Vec::lanes];
        v.store(x);
        for (float& y : x) y = bits_as<float>(flushed(bits_as<uint32_t>(y)));
        return Vec::load(x);
    }
    return v;
}

// How fast this processor can do it: 16 independent chains of fused multiply-adds, n of each. Returns
// a value that depends on all of them.
inline float fma_chains(int64_t n) {
    constexpr int chains = 16;
    Vec acc[chains];
    for (int i = 0; i < chains; ++i) acc[i] = Vec::splat(static_cast<float>(i));
    const Vec factor = Vec::splat(0.5f), term = Vec::splat(1.0f);
    for (int64_t k = 0; k < n; ++k)
        for (Vec& v : acc) v = fma(v, factor, term);
    for (int i = 1; i < chains; ++i) acc[0] = add(acc[0], acc[i]);
    float lanes[Vec::lanes];
    acc[0].store(lanes);
    return lanes[0];
}

// a is [k][rows], b is [k][columns], psum is [rows][columns]. Each output's sum starts at +0 and runs
// through k in order with a fused multiply-add; then it is added to PSUM (M2).
template <bool Flush>
inline void dot_block(const float* a, const float* b, int64_t k, float* psum) {
    constexpr int columns = dot_block_vectors * Vec::lanes;
    Vec acc[dot_block_rows][dot_block_vectors];
    for (auto& row : acc)
        for (Vec& v : row) v = Vec::zero();
    for (int64_t i = 0; i < k; ++i) {
        Vec b_row[dot_block_vectors];
        for (int j = 0; j < dot_block_vectors; ++j)
            b_row[j] = Vec::load(b + i * columns + j * Vec::lanes);
        for (int row = 0; row < dot_block_rows; ++row) {
            const Vec a_element = Vec::splat(a[i * dot_block_rows + row]);
            for (int j = 0; j < dot_block_vectors; ++j)
                acc[row][j] = flushed_if<Flush>(fma(a_element, b_row[j], acc[row][j]));
        }
    }
    for (int row = 0; row < dot_block_rows; ++row)
        for (int j = 0; j < dot_block_vectors; ++j) {
            float* p = psum + row * columns + j * Vec::lanes;
            flushed_if<Flush>(add(Vec::load(p), acc[row][j])).store(p);
        }
}
