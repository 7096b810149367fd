// Bytes of float32 values, or of products' sums, in one pass: what rules Q1 and Q3 state in steps.
// Included inside each instruction set's namespace.

// What each element of a row takes: one of its own, or the same.
template <bool Along, class T>
struct Spread {
    const T* from;
    T first;
    T at(int i) const {
        if constexpr (Along) return from[i];
        else return first;
    }
};
template <bool Along, class T>
inline Spread<Along, T> spread(const T* from, ptrdiff_t distance) {
    const T* const p = reinterpret_cast<const T*>(reinterpret_cast<const char*>(from) + distance);
    return {p, *p};
}

// From 1.5 * 2^23 on a float32 counts by ones: adding that rounds what is clamped to the nearest
// integer, ties to even, whose last bits are those of the sum.
template <class Value>
inline void quantize_row(const Quantizing& q, int n, uint8_t* out, const Value& value) {
    constexpr float ones = 0x1.8p23f;
    const float low = q.low, high = q.high;
    const uint32_t zero = static_cast<uint32_t>(q.zero);
    FOR_ELEMENTS {
        float x = value(i);
        x = x == x ? x : 0.0f;
        x = x > low ? x : low;
        x = x < high ? x : high;
        out[i] = static_cast<uint8_t>(bits_as<uint32_t>(x + ones) + zero);
    }
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
            quantize_row(q, n, out, [=](int i) {
                return static_cast<float>(sums[i] - taken.at(i)) * factors.at(i);
            });
        else if (q.kind == QuantizedValues::exact_sums)
            quantize_row(q, n, out, [=](int i) {
                return static_cast<float>(static_cast<int32_t>(values[i]) - taken.at(i)) *
                       factors.at(i);
            });
        else if (q.divides) quantize_row(q, n, out, [=](int i) { return values[i] / factors.at(i); });
        else quantize_row(q, n, out, [=](int i) { return values[i] * factors.at(i); });
    }
}

inline void quantize(const Quantizing& q, int rows, int n, char* target, ptrdiff_t target_row) {
    constexpr QuantizeKernel by[2][2] = {{quantize_rows<false, false>, quantize_rows<false, true>},
                                         {quantize_rows<true, false>, quantize_rows<true, true>}};
    by[q.taken_along][q.factors_along](q, rows, n, target, target_row);
}
