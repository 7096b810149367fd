// Products of few elements: rule M2 with one tile.
// Included inside each instruction set's namespace.

// Each sum runs through the steps from +0, and PSUM begins with +0.
inline void product_few(const FewProduct& p, const char* a, const char* b, float* out) {
    constexpr int together = 4;  // whose sums do not wait for each other
    if (p.is_row())
        return in_pieces<together>(p.columns, [&]<int N>(int at, const auto& load, const auto& store) {
            Vec acc[N];
            for (Vec& x : acc) x = Vec::zero();
            for (int k = 0; k < p.depth; ++k) {
                const auto* const row = reinterpret_cast<const float*>(b + k * p.b_step) + at;
                const Vec element = Vec::splat(read<float>(a + k * p.a_step));
                for (int v = 0; v < N; ++v) acc[v] = fma(element, load(row + v * Vec::lanes), acc[v]);
            }
            for (int v = 0; v < N; ++v)
                store(canonical_nan_lanes(add(Vec::zero(), acc[v])), out + at + v * Vec::lanes);
        });
    // One row by columns that are none in memory: they are rows by one column.
    if (p.rows == 1)
        return product_few({p.columns, 1, p.depth, p.b_column, p.b_step, p.a_step, 0}, b, a, out);
    if (p.columns == 1) {
        for (int i = 0; i < p.rows; i += together) {
            const int n = p.rows - i < together ? p.rows - i : together;
            Vec acc[together];
            for (Vec& x : acc) x = Vec::zero();
            for (int k = 0; k < p.depth; ++k) {
                const Vec element = Vec::splat(read<float>(b + k * p.b_step));
                const char* const from = a + i * p.a_row + k * p.a_step;
                for (int r = 0; r < together; ++r)  // the last row in the place of those beyond it
                    acc[r] = fma(Vec::splat(read<float>(from + (r < n ? r : n - 1) * p.a_row)), element,
                                 acc[r]);
            }
            for (int r = 0; r < n; ++r)
                canonical_nan_lanes(add(Vec::zero(), acc[r])).store_some(out + i + r, 1);
        }
        return;
    }
    for (int j = 0; j < p.columns; j += Vec::lanes) {
        const int n = p.columns - j < Vec::lanes ? p.columns - j : Vec::lanes;
        Vec b_row[FewProduct::most];
        for (int k = 0; k < p.depth; ++k) {
            const char* const from = b + k * p.b_step + j * p.b_column;
            if (p.b_column == sizeof(float)) {
                b_row[k] = Vec::load_some(reinterpret_cast<const float*>(from), n, Vec::zero());
                continue;
            }
            float lanes[Vec::lanes] = {};
            for (int lane = 0; lane < n; ++lane) lanes[lane] = read<float>(from + lane * p.b_column);
            b_row[k] = Vec::load(lanes);
        }
        for (int i = 0; i < p.rows; ++i) {
            Vec acc = Vec::zero();
            for (int k = 0; k < p.depth; ++k)
                acc = fma(Vec::splat(read<float>(a + i * p.a_row + k * p.a_step)), b_row[k], acc);
            canonical_nan_lanes(add(Vec::zero(), acc)).store_some(out + i * p.columns + j, n);
        }
    }
}
