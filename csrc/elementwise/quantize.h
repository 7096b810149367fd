// Bytes of float32 values, or of products' sums, in one pass: what rules Q1 and Q3 state in steps.
// Included inside each instruction set's namespace.

inline float as_float(int32_t x) { return static_cast<float>(x); }
inline FloatVector as_float(IntVector x) { return __builtin_convertvector(x, FloatVector); }
inline int32_t as_integer(float x) { return static_cast<int32_t>(x); }
inline IntVector as_integer(FloatVector x) { return __builtin_convertvector(x, IntVector); }
inline void store_bytes(uint32_t x, uint8_t* out) { *out = static_cast<uint8_t>(x); }
inline void store_bytes(BitsVector x, uint8_t* out) {
    typedef uint8_t Bytes __attribute__((vector_size(Vec::lanes)));
    const Bytes bytes = __builtin_convertvector(x, Bytes);
    __builtin_memcpy(out, &bytes, sizeof bytes);
}

// What each element of a row takes: one of its own, or the same.
template <bool Along, class T>
struct Spread {
    const T* from;
    T first;
    template <class V>
    V at(int i) const {
        if constexpr (Along) return read<V>(from + i);
        else return first - V{};
    }
};
template <bool Along, class T>
inline Spread<Along, T> spread(const T* from, ptrdiff_t distance) {
    const T* const p = reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + distance);
    return {p, *p};
}

// From 1.5 * 2^23 on a float32 counts by ones: adding that rounds what is clamped to the nearest
// integer, ties to even, whose last bits are those of the sum.
template <class V, class I, class B, class Value>
[[gnu::always_inline]] inline void quantize_some(const Quantizing& q, int i, uint8_t* out,
                                                 const Value& value) {
    constexpr float ones = 0x1.8p23f;
    const V low = q.low + V{}, high = q.high + V{};
    V x = value(i, V{}, I{});
    x = x == x ? x : V{};
    x = x > low ? x : low;
    x = (x < high ? x : high) + ones;
    store_bytes(bits_as<B>(x) + static_cast<uint32_t>(q.zero), out + i);
}
template <class Value>
inline void quantize_row(const Quantizing& q, int n, uint8_t* out, const Value& value) {
    const auto take = [&](int i) {
        quantize_some<FloatVector, IntVector, BitsVector>(q, i, out, value);
    };
    int i = 0;
    for (; i + Vec::lanes <= n; i += Vec::lanes) take(i);
    // The last ones again with those before them, where no byte lies on a value that is still read.
    if (i < n && n >= 2 * Vec::lanes) return take(n - Vec::lanes);
    for (; i < n; ++i) quantize_some<float, int32_t, uint32_t>(q, i, out, value);
}

template <bool TakenAlong, bool FactorsAlong>
void quantize_rows(const Quantizing& q, int rows, int n, char* target, ptrdiff_t target_row) {
    constexpr int32_t nothing = 0;
    for (int r = 0; r < rows; ++r) {
        auto* const out = reinterpret_cast<uint8_t*>(target + r * target_row);
        const char* const row = static_cast<const char*>(q.values) + r * q.values_row;
        const auto taken = spread<TakenAlong>(q.taken == nullptr ? &nothing : q.taken, r * q.taken_row);
        const auto factors =
            spread<FactorsAlong>(q.factors == nullptr ? &q.factor : q.factors, r * q.factors_row);
        const auto* const sums = reinterpret_cast<const int32_t*>(row);
        const auto* const values = reinterpret_cast<const float*>(row);
        if (q.kind == QuantizedValues::sums)
            quantize_row(q, n, out, [=]<class V, class I>(int i, V, I) {
                return as_float(read<I>(sums + i) - taken.template at<I>(i)) *
                       factors.template at<V>(i);
            });
        else if (q.kind == QuantizedValues::exact_sums)
            quantize_row(q, n, out, [=]<class V, class I>(int i, V, I) {
                return as_float(as_integer(read<V>(values + i)) - taken.template at<I>(i)) *
                       factors.template at<V>(i);
            });
        else if (q.divides)
            quantize_row(q, n, out, [=]<class V, class I>(int i, V, I) {
                return read<V>(values + i) / factors.template at<V>(i);
            });
        else
            quantize_row(q, n, out, [=]<class V, class I>(int i, V, I) {
                return read<V>(values + i) * factors.template at<V>(i);
            });
    }
}

inline void quantize(const Quantizing& q, int rows, int n, char* target, ptrdiff_t target_row) {
    constexpr QuantizeKernel by[2][2] = {{quantize_rows<false, false>, quantize_rows<false, true>},
                                         {quantize_rows<true, false>, quantize_rows<true, true>}};
    by[q.taken_along][q.factors_along](q, rows, n, target, target_row);
}
