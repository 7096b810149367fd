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
        for_sums<Rows, Vectors>([&](int row, int j) { acc[row][j] = read<IntVector>(psum(row, j)); });
    if (t.start != nullptr)
        for_sums<Rows, Vectors>(
            [&](int row, int j) { acc[row][j] += read<IntVector>(t.start + j * Vec::lanes); });
    const float* b = t.b;
    const ptrdiff_t stride = t.a_row, step = t.a_step;
    for (const BlockRun* run = t.runs; run != t.runs_end; ++run) {
        const char* a[(Rows + 2) / 3];  // the others are one or two strides away
        for (int i = 0; i < (Rows + 2) / 3; ++i) a[i] = t.a + run->a + 3 * i * stride;
        for (int64_t n = run->steps; n > 0; --n) {
            IntVector b_row[Vectors];
            for (int j = 0; j < Vectors; ++j) b_row[j] = read<IntVector>(b + j * Vec::lanes);
#pragma GCC unroll 16
            for (int row = 0; row < Rows; ++row) {
                const IntVector element = IntVector{} + read<int32_t>(a[row / 3] + row % 3 * stride);
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

#if defined(__AVX512BW__)
inline constexpr int tile_side = 16;  // a tile's rows, its words, and the steps of a and b in one

// Tiles 0 to 3 are of sums, two by two, 4 and 5 of a's upper and lower rows, 6 and 7 of b's columns.
// `shapes` says how they are shaped, since that takes as long as a dozen of their products.
inline void shape_tiles(int upper, int lower, int steps, uint32_t& shapes) {
    const auto wanted = static_cast<uint32_t>(upper | lower << 8 | steps << 16);
    if (shapes == wanted) return;
    TileShapes s;
    const auto shape = [&](int tile, int rows, int words) {
        s.rows[tile] = static_cast<uint8_t>(rows);
        s.row_bytes[tile] = static_cast<uint16_t>(rows == 0 ? 0 : sizeof(int32_t) * words);
    };
    for (int j = 0; j < 2; ++j) {
        shape(j, upper, tile_side);
        shape(2 + j, lower, tile_side);
        shape(6 + j, steps, tile_side);
    }
    shape(4, upper, steps);
    shape(5, lower, steps);
    shape_tiles(s);
    shapes = wanted;
}

// The same of quads in AMX's tiles: two by two of sums, of up to 32 rows, that take sixteen steps at a
// time. `shapes` is 0 before the first block.
template <bool Turned>
void tile_block(const RegisterBlock& t, int rows, int vectors, uint32_t& shapes) {
    static_assert(block_vectors == 2 && Vec::lanes == tile_side, "two tiles of columns");
    constexpr int side = tile_side, word = sizeof(int32_t);
    const int upper = rows < side ? rows : side, lower = rows - upper;
    const ptrdiff_t b_row = vectors * side * word;
    int64_t steps = 0;  // of the panel
    for (const BlockRun* run = t.runs; run != t.runs_end; ++run) steps += run->steps;
    const int deep = steps < side ? static_cast<int>(steps) : side;
    shape_tiles(upper, lower, deep, shapes);
    const auto for_tiles = [&](auto f) {
        f.template operator()<0>(0, 0);
        if (vectors > 1) f.template operator()<1>(0, 1);
        if (lower > 0) f.template operator()<2>(1, 0);
        if (lower > 0 && vectors > 1) f.template operator()<3>(1, 1);
    };
    const ptrdiff_t sums_row = t.psum_stride * word;
    const auto sums_at = [&](int i, int j) { return t.psum + i * side * t.psum_stride + j * side; };
    for (int i = 0; t.continues && t.start != nullptr && i < rows; ++i)
        for (int j = 0; j < vectors; ++j) {
            float* const at = t.psum + i * t.psum_stride + j * side;
            const IntVector sums = read<IntVector>(at) + read<IntVector>(t.start + j * side);
            __builtin_memcpy(at, &sums, sizeof sums);
        }
    for_tiles([&]<int T>(int i, int j) {
        if (t.continues) load_tile<T>(sums_at(i, j), sums_row);
        else if (t.start != nullptr) load_tile<T>(t.start + j * side, 0);
        else zero_tile<T>();
    });
    const auto add_products = [&](const char* a, ptrdiff_t a_row, int64_t step) {
        const char* const b = reinterpret_cast<const char*>(t.b) + step * b_row;
        load_tile<4>(a, a_row);
        load_tile<6>(b, b_row);
        add_tile_products<Turned, 0, 4, 6>();
        if (vectors > 1) {
            load_tile<7>(b + side * word, b_row);
            add_tile_products<Turned, 1, 4, 7>();
        }
        if (lower == 0) return;
        load_tile<5>(a + side * a_row, a_row);
        add_tile_products<Turned, 2, 5, 6>();
        if (vectors > 1) add_tile_products<Turned, 3, 5, 7>();
    };
    const BlockRun* run = t.runs;
    int64_t taken = 0;  // steps of the run
    const auto take = [&](int64_t n) {
        taken += n;
        if (taken < run->steps) return;
        ++run;
        taken = 0;
    };
    for (int64_t at = 0; at < steps;) {
        if (t.a_step == word && run->steps - taken >= deep) {
            add_products(t.a + run->a + taken * word, t.a_row, at);
            at += deep;
            take(deep);
            continue;
        }
        // What is left of runs: a's words are laid together, zeros beside them, so that as many of b's
        // steps can be read.
        struct Piece {
            const char* a;
            uint16_t lanes;
        } pieces[side];
        int count = 0;
        const int64_t first = at < steps - deep ? at : steps - deep;
        while (at < first + deep) {
            const auto lane = static_cast<int>(at - first);
            int64_t n = t.a_step == word ? run->steps - taken : 1;
            if (n > deep - lane) n = deep - lane;
            pieces[count++] = {t.a + run->a + taken * t.a_step - lane * word,
                               static_cast<uint16_t>(((1u << n) - 1) << lane)};
            at += n;
            take(n);
        }
        alignas(64) char words[2 * side][side * word];
        for (int i = 0; i < rows; ++i) {
            IntVector row{};
            for (int n = 0; n < count; ++n)
                row |= load_words(pieces[n].a + i * t.a_row, pieces[n].lanes);
            __builtin_memcpy(words[i], &row, sizeof row);
        }
        add_products(words[0], sizeof words[0], first);
    }
    for_tiles([&]<int T>(int i, int j) { store_tile<T>(sums_at(i, j), sums_row); });
}
#endif

// Sixteen bytes each of four steps as words, four to a vector.
typedef uint8_t ByteVector __attribute__((vector_size(16)));
typedef uint16_t ShortVector __attribute__((vector_size(16)));
inline void interleave_quads(const ByteVector (&x)[4], uint32_t* words) {
    const auto low = [](ByteVector a, ByteVector b) {
        return (ShortVector)__builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                                    22, 7, 23);
    };
    const auto high = [](ByteVector a, ByteVector b) {
        return (ShortVector)__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29,
                                                    14, 30, 15, 31);
    };
    const ShortVector first[2] = {low(x[0], x[1]), high(x[0], x[1])};
    const ShortVector second[2] = {low(x[2], x[3]), high(x[2], x[3])};
    for (int i = 0; i < 2; ++i, words += 8) {
        const ShortVector a = __builtin_shufflevector(first[i], second[i], 0, 8, 1, 9, 2, 10, 3, 11);
        const ShortVector b = __builtin_shufflevector(first[i], second[i], 4, 12, 5, 13, 6, 14, 7, 15);
        __builtin_memcpy(words, &a, sizeof a);
        __builtin_memcpy(words + 4, &b, sizeof b);
    }
}

// Bytes that lie across as words of four steps.
inline uint32_t pack_quads_across(const char* source, ptrdiff_t stride, int64_t depth, int n, int width,
                                  void* panel) {
    constexpr int some = sizeof(ByteVector);
    auto* out = static_cast<uint32_t*>(panel);
    ByteVector x[4];
    for (int64_t k = 0; k < depth; k += 4, source += 4 * stride, out += width) {
        const int rows = depth - k < 4 ? static_cast<int>(depth - k) : 4;
        int j = 0;
        if (rows == 4) {
            // Each row is a page of its own: the processor does not see what comes.
            for (int r = 0; r < 4; ++r) __builtin_prefetch(source + r * stride + 64);
            for (; j + some <= n; j += some) {
                for (int r = 0; r < 4; ++r) __builtin_memcpy(&x[r], source + r * stride + j, some);
                interleave_quads(x, out + j);
            }
        }
        for (; j < width; j += some) {
            uint32_t words[some];
            const int count = n - j < some ? n - j : some, room = width - j < some ? width - j : some;
            for (int r = 0; r < 4; ++r) {
                x[r] = ByteVector{};
                if (r < rows && count > 0) __builtin_memcpy(&x[r], source + r * stride + j, count);
            }
            interleave_quads(x, words);
            __builtin_memcpy(out + j, words, room * sizeof(uint32_t));
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
