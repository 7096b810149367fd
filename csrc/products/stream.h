// Products of few rows by a matrix that is read as it lies: rule M2 inside a tile of the contraction.
// Included inside each instruction set's namespace.

// Rows of b are fetched a whole pass ahead, into the second cache: the processor follows fewer of them
// than are read together. Zen 3 does follow them, and would lose a fifth by it (measured).
inline constexpr bool fetches_rows = !has_avx2_alone;
// Bfloat16 by the halves of words: on AVX2 a shift and a mask take less than a conversion (measured).
template <DType T>
inline constexpr bool takes_halves = T == DType::bfloat16 && has_avx2_alone;

// The even and the odd columns, in their order.
template <int... I>
[[gnu::always_inline]] inline void store_joined(Vec even, Vec odd, float* to, Lanes<I...>) {
    constexpr int lanes = Vec::lanes;
    const FloatVector x = floats_of(even), y = floats_of(odd);
    vec_of(__builtin_shufflevector(x, y, I / 2 + I % 2 * lanes...)).store(to);
    vec_of(__builtin_shufflevector(x, y, lanes / 2 + I / 2 + I % 2 * lanes...)).store(to + lanes);
}

// `Steps` steps of a few of a's rows, `a_pitch` apart, into their sums of n columns, `pitch` apart; b
// is read as it lies in memory, one of its rows for each step.
template <DType T, int Rows, int Steps>
inline void stream_steps(const float* a, ptrdiff_t a_pitch, const char* b, ptrdiff_t b_step, int n,
                         float* acc, ptrdiff_t pitch) {
    constexpr ptrdiff_t size = storage_bytes(T);
    Vec element[Steps];
    for (int s = 0; Rows == 1 && s < Steps; ++s) element[s] = Vec::splat(a[s]);
    const auto add_step = [&](int s, Vec row, Vec(&x)[Rows]) {
        for (int r = 0; r < Rows; ++r)
            x[r] = Rows == 1
                       ? fma(element[s], row, x[r])
                       : fma_element(reinterpret_cast<const char*>(a + r * a_pitch + s), row, x[r]);
    };
    const auto add_all = [&](const char* p, ptrdiff_t step, Vec(&x)[Rows], const auto& load) {
        for (int s = 0; s < Steps; ++s) add_step(s, load(p + s * step), x);
    };
    const auto whole = [](const char* p) {
        FloatVector row;
        load_vector<T>(p, row);
        return vec_of(row);
    };
    int j = 0;
    if constexpr (takes_halves<T>) {
        constexpr auto lanes = MakeLanes<Vec::lanes>();
        for (; j + 2 * Vec::lanes <= n; j += 2 * Vec::lanes) {
            for (int s = 0; fetches_rows && s < Steps; ++s)
                __builtin_prefetch(b + (s + Steps) * b_step + j * size, 0, 2);
            Vec x[Rows], y[Rows];
            for (int r = 0; r < Rows; ++r) {
                const float* const at = acc + r * pitch + j;
                const Vec low = Vec::load(at), high = Vec::load(at + Vec::lanes);
                x[r] = every_second<0>(low, high), y[r] = every_second<1>(low, high);
            }
            for (int s = 0; s < Steps; ++s) {
                const Vec words = read<Vec>(b + s * b_step + j * size);
                add_step(s, second_of_pair(words), x);
                add_step(s, first_of_pair(words), y);
            }
            for (int r = 0; r < Rows; ++r) store_joined(x[r], y[r], acc + r * pitch + j, lanes);
        }
    }
    Vec x[Rows];
    for (; j + Vec::lanes <= n; j += Vec::lanes) {
        for (int s = 0; fetches_rows && s < Steps; ++s)
            __builtin_prefetch(b + (s + Steps) * b_step + j * size, 0, 2);
        for (int r = 0; r < Rows; ++r) x[r] = Vec::load(acc + r * pitch + j);
        add_all(b + j * size, b_step, x, whole);
        for (int r = 0; r < Rows; ++r) x[r].store(acc + r * pitch + j);
    }
    if (j == n) return;
    for (int r = 0; r < Rows; ++r) x[r] = Vec::load_some(acc + r * pitch + j, n - j, Vec::zero());
    if constexpr (size == sizeof(float)) {
        add_all(b + j * size, b_step, x, [&](const char* p) {
            return Vec::load_some(reinterpret_cast<const float*>(p), n - j, Vec::zero());
        });
    } else {
        char rest[Steps][Vec::lanes * size] = {};
        for (int s = 0; s < Steps; ++s)
            __builtin_memcpy(rest[s], b + s * b_step + j * size, (n - j) * size);
        add_all(rest[0], Vec::lanes * size, x, whole);
    }
    for (int r = 0; r < Rows; ++r) x[r].store_some(acc + r * pitch + j, n - j);
}

template <DType T, int Rows>
void stream_rows(const float* a, ptrdiff_t a_pitch, const char* b, ptrdiff_t b_step, int count, int n,
                 float* acc, ptrdiff_t pitch) {
    constexpr int together = 8;  // measured
    int s = 0;
    for (; s + together <= count; s += together)
        stream_steps<T, Rows, together>(a + s, a_pitch, b + s * b_step, b_step, n, acc, pitch);
    for (; s < count; ++s)
        stream_steps<T, Rows, 1>(a + s, a_pitch, b + s * b_step, b_step, n, acc, pitch);
}

template <DType T>
void product_stream(const float* a, ptrdiff_t a_pitch, int rows, const char* b, ptrdiff_t b_step,
                    int count, int n, float* acc) {
    constexpr ptrdiff_t size = storage_bytes(T);
    // Loads that cross cache lines cost half the bandwidth: the columns before the first whole line are
    // taken on their own.
    constexpr ptrdiff_t vector_bytes = (takes_halves<T> ? 2 : 1) * Vec::lanes * size;
    const ptrdiff_t past = static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(b) % vector_bytes);
    int lead = past == 0 ? 0 : static_cast<int>((vector_bytes - past) / size);
    if (lead > n || b_step % vector_bytes != 0) lead = 0;
    constexpr int most = size == 1 ? 1 : 4;  // rows together; bytes are streamed for one alone
    const auto of_rows = []<int... R>(int count, Lanes<R...>) {
        constexpr decltype(&stream_rows<T, 1>) by_rows[] = {stream_rows<T, R + 1>...};
        return by_rows[count - 1];
    };
    for (int r = 0; r < rows; r += most) {
        const auto run = of_rows(rows - r < most ? rows - r : most, MakeLanes<most>());
        const float* const from = a + r * a_pitch;
        float* const to = acc + r * n;
        if (lead > 0) run(from, a_pitch, b, b_step, count, lead, to, n);
        run(from, a_pitch, b + lead * size, b_step, count, n - lead, to + lead, n);
    }
}
