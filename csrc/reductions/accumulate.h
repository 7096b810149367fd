// Rows of updates, each accumulated at its place one after the other (R5).
// Included inside each instruction set's namespace.

// Sums of 32-bit integers, whose bits stand in floats.
struct WrappingAdd {
    template <class T>
    static T apply(T a, T b) {
        if constexpr (sizeof(T) == sizeof(float)) {
            return bits_as<float>(bits_as<uint32_t>(a) + bits_as<uint32_t>(b));
        } else {
            typedef uint32_t Bits __attribute__((vector_size(sizeof(T))));
            return (T)((Bits)a + (Bits)b);
        }
    }
};
// Rows of updates, each to its place: whole vectors first, then halves of them, then single elements.
template <class Body, class T>
inline int64_t accumulate(float* to, const float* from, int64_t at, int64_t row) {
    constexpr int64_t lanes = sizeof(T) / sizeof(float);
    for (; at + lanes <= row; at += lanes) {
        T x = Body::apply(read<T>(to + at), read<T>(from + at));
        if constexpr (!std::is_same_v<Body, WrappingAdd>) {
            typedef uint32_t Bits __attribute__((vector_size(sizeof(T))));
            if constexpr (lanes == 1) x = bits_as<float>(canonical(x));
            else x = x == x ? x : (T)(Bits{} + canonical_nan);
        }
        __builtin_memcpy(to + at, &x, sizeof x);
    }
    return at;
}
typedef float FourFloats __attribute__((vector_size(4 * sizeof(float))));
typedef float TwoFloats __attribute__((vector_size(2 * sizeof(float))));
typedef float HalfVector __attribute__((vector_size(sizeof(float) * (Vec::lanes < 8 ? 4 : 8))));
// Rows that are one vector each.
template <class Body, class T>
void accumulate_vectors(float* target, const int64_t* places, int n, const float* updates) {
    constexpr int64_t lanes = sizeof(T) / sizeof(float);
    for (int i = 0; i < n; ++i)
        if (places[i] != nowhere)
            accumulate<Body, T>(target + places[i], updates + i * lanes, 0, lanes);
}
template <class Body>
void accumulate_rows(void* to_rows, const int64_t* places, int n, const void* from_rows, int64_t row) {
    constexpr int ahead = 8;
    auto* const target = static_cast<float*>(to_rows);
    const auto* updates = static_cast<const float*>(from_rows);
    if (row == sizeof(HalfVector) / sizeof(float))
        return accumulate_vectors<Body, HalfVector>(target, places, n, updates);
    if (row == 4) return accumulate_vectors<Body, FourFloats>(target, places, n, updates);
    if (row == 2) return accumulate_vectors<Body, TwoFloats>(target, places, n, updates);
    for (int i = 0; i < n && row == 1; ++i)
        if (places[i] != nowhere) accumulate<Body, float>(target + places[i], updates + i, 0, 1);
    for (int i = 0; i < n && row > 1; ++i, updates += row) {
        if (row > ahead && i + ahead < n && places[i + ahead] != nowhere)
            __builtin_prefetch(target + places[i + ahead], 1);
        if (places[i] == nowhere) continue;
        float* const to = target + places[i];
        int64_t at = accumulate<Body, FloatVector>(to, updates, 0, row);
        at = accumulate<Body, HalfVector>(to, updates, at, row);
        accumulate<Body, float>(to, updates, at, row);
    }
}

template <OpKernel Kernel, class T>
void accumulate_integers(void* target, const int64_t* places, int n, const void* updates, int64_t row) {
    const auto* from = static_cast<const T*>(updates);
    for (int i = 0; i < n; ++i, from += row) {
        if (places[i] == nowhere) continue;
        T* const to = static_cast<T*>(target) + places[i];
        for (int64_t at = 0; at < row; ++at) {
            const void* const operands[] = {to + at, from + at};
            Kernel(to + at, operands, 1, 8 * sizeof(T));
        }
    }
}
