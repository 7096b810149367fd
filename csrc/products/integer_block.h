// The register block of products of integers, modulo 2^32: rule M7.
// Included inside each instruction set's namespace.

template <ProductForm F>
inline IntVector integer_step(IntVector a, IntVector b, IntVector acc) {
    if constexpr (F == ProductForm::quads) return add_byte_products(a, b, acc);
    if constexpr (F == ProductForm::quads_turned) return add_byte_products(b, a, acc);
    if constexpr (F == ProductForm::shorts) return add_short_products(a, b, acc);
    return acc + a * b;
}

// The runs have one tile: where the sums are cut is nothing to integers.
template <ProductForm F, int Rows, int Vectors>
void integer_block(const RegisterBlock& t) {
    IntVector acc[Rows][Vectors];
    const auto psum = [&](int row, int j) { return t.psum + row * t.psum_stride + j * Vec::lanes; };
    for_sums<Rows, Vectors>([&](int row, int j) { acc[row][j] = IntVector{}; });
    if (t.continues)
        for_sums<Rows, Vectors>(
            [&](int row, int j) { __builtin_memcpy(&acc[row][j], psum(row, j), sizeof(IntVector)); });
    if (t.start != nullptr)
        for_sums<Rows, Vectors>([&](int row, int j) {
            IntVector start;
            __builtin_memcpy(&start, t.start + j * Vec::lanes, sizeof start);
            acc[row][j] += start;
        });
    const float* b = t.b;
    const ptrdiff_t stride = t.a_row, step = t.a_step;
    for (const BlockRun* run = t.runs; run != t.runs_end; ++run) {
        const char* a[(Rows + 2) / 3];  // as in product_block
        for (int i = 0; i < (Rows + 2) / 3; ++i) a[i] = t.a + run->a + 3 * i * stride;
        for (int64_t n = run->steps; n > 0; --n) {
            IntVector b_row[Vectors];
            for (int j = 0; j < Vectors; ++j)
                __builtin_memcpy(&b_row[j], b + j * Vec::lanes, sizeof(IntVector));
#pragma GCC unroll 16
            for (int row = 0; row < Rows; ++row) {
                int32_t word;
                __builtin_memcpy(&word, a[row / 3] + row % 3 * stride, sizeof word);
                const IntVector element = IntVector{} + word;
#pragma GCC unroll 4
                for (int j = 0; j < Vectors; ++j)
                    acc[row][j] = integer_step<F>(element, b_row[j], acc[row][j]);
            }
            for (const char*& p : a) p += step;
            b += Vectors * Vec::lanes;
        }
    }
    for_sums<Rows, Vectors>(
        [&](int row, int j) { __builtin_memcpy(psum(row, j), &acc[row][j], sizeof(IntVector)); });
}

// Bytes that lie across as words of four steps.
inline uint32_t pack_quads_across(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                                  void* panel) {
    auto* out = static_cast<uint32_t*>(panel);
    for (int64_t k = 0; k < depth; k += 4, source += 4 * stride, out += width) {
        const int rows = depth - k < 4 ? static_cast<int>(depth - k) : 4;
        for (int j = 0; j < width; ++j) out[j] = 0;
        for (int r = 0; r < rows; ++r) {
            const auto* from = reinterpret_cast<const uint8_t*>(source + r * stride);
            for (int j = 0; j < n; ++j) out[j] |= static_cast<uint32_t>(from[j]) << (8 * r);
        }
    }
    return 0;
}

template <class Byte, class Wide>
void widen_bytes(const void* source, int n, char* target) {
    const auto* in = static_cast<const Byte*>(source);
    auto* out = reinterpret_cast<Wide*>(target);
    FOR_ELEMENTS out[i] = in[i];
}
