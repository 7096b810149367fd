// Rows of sums on their way out: joined with terms, and stored as a type.
// Included inside each instruction set's namespace.

// Vectors with a term's.
template <class Body, bool TermFirst, int N>
inline void join(FloatVector (&x)[N], const FloatVector (&term)[N]) {
    for (int j = 0; j < N; ++j)
        x[j] = TermFirst ? Body::apply(term[j], x[j]) : Body::apply(x[j], term[j]);
}
// The vectors of a row from `at` on with all terms.
template <int N, class Load>
inline void join_all(FloatVector (&x)[N], const JoinedTerm* terms, int count, ptrdiff_t row,
                     ptrdiff_t at, const Load& load) {
    for (const JoinedTerm* t = terms; t != terms + count; ++t) {
        FloatVector term[N];
        if (t->data == nullptr) {
            for (int j = 0; j < N; ++j) term[j] = x[j];
        } else {
            const float* const from = t->data + row * t->row + (t->along ? at : 0);
            for (int j = 0; j < N; ++j)
                term[j] = floats_of(t->along ? load(from + j * Vec::lanes) : Vec::splat(*from));
        }
        if (t->op == Op::add) join<body::add, false>(x, term);
        else if (t->op == Op::multiply) join<body::multiply, false>(x, term);
        else if (t->op == Op::maximum) join<body::maximum, false>(x, term);
        else if (t->op == Op::minimum) join<body::minimum, false>(x, term);
        else if (t->op == Op::subtract && t->comes_first) join<body::subtract, true>(x, term);
        else if (t->op == Op::subtract) join<body::subtract, false>(x, term);
        else if (t->comes_first) join<body::divide, true>(x, term);
        else join<body::divide, false>(x, term);
    }
}
inline void join_terms(float* rows, ptrdiff_t stride, int count, int n, const JoinedTerm* terms,
                       int term_count, char* target, ptrdiff_t target_stride) {
    const bool stays = target == nullptr;
    constexpr int most = Vec::lanes == 16 ? 8 : 4;  // with their terms, in the registers
    for (int row = 0; row < count; ++row)
        in_pieces<most>(n, [&]<int N>(int at, const auto& load, const auto& store) {
            float* const from = rows + row * stride + at;
            FloatVector x[N];
            for (int j = 0; j < N; ++j) x[j] = floats_of(load(from + j * Vec::lanes));
            join_all(x, terms, term_count, row, at, load);
            float* const to =
                stays ? from : reinterpret_cast<float*>(target + row * target_stride) + at;
            for (int j = 0; j < N; ++j)
                store(stays ? vec_of(x[j]) : canonical_nan_lanes(vec_of(x[j])), to + j * Vec::lanes);
        });
}

// The sums of `count` rows, n of each, as the type's storage: NaN canonical (E6), one rounding (M4).
template <DType T>
void store_rows(float* rows, ptrdiff_t stride, int count, int n, char* target,
                ptrdiff_t target_stride) {
    constexpr ptrdiff_t size = storage_bytes(T);
    for (int i = 0; i < count; ++i, rows += stride, target += target_stride) {
        // The processor's conversions stop at NaN.
        int done = 0;
        if constexpr (T == DType::bfloat16 && has_bfloat16_conversion)
            done = encode_bfloat16(reinterpret_cast<uint32_t*>(rows), n, target);
        if constexpr (T == DType::float16 && has_float16_conversion)
            done = encode_float16(reinterpret_cast<uint32_t*>(rows), n, target);
        if constexpr (T == DType::float32 || T == DType::tfloat32) {
            for (; done + block <= n; done += block) {
                Vec x = canonical_nan_lanes(Vec::load(rows + done));
                if constexpr (T == DType::tfloat32) x = rounded_to_tfloat32(x);
                x.store(reinterpret_cast<float*>(target) + done);
            }
        }
        if (done == n) continue;
        for (int j = done; j < n; ++j)
            rows[j] = rows[j] == rows[j] ? rows[j] : bits_as<float>(canonical_nan);
        if constexpr (T == DType::tfloat32) round_to<T>(rows + done, n - done);
        store<T, Payload::none>(reinterpret_cast<uint32_t*>(rows + done), n - done,
                                target + done * size);
    }
}
