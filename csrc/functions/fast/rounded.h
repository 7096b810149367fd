// From float64 lanes to correctly rounded float32 (E3): every function is within 2^-42 of the exact
// value, relative to it, where float32 does not give its limit. So only a result as near as that to a
// midpoint of two float32 is in doubt. The accurate step decides these few, and takes NaN, by which a
// function passes on what it does not treat itself.

inline constexpr int64_t error_ulps = int64_t{1} << 11;  // of float64; the least is 2^-53 of a value
inline constexpr double error_bound = 0x1p-42;

// These halve what is near zero, so that 2^-149 could vanish, and multiply -Inf by what does vanish.
template <Doubles (*Function)(Doubles)>
inline constexpr bool asks_operand = Function == math::silu || Function == math::gelu ||
                                     Function == math::gelu_tanh || Function == math::gelu_sigmoid;

// Subnormal results have their midpoints elsewhere, as has the least normal one, which three quarters
// of make subnormal. Any other result that vanishes is right, since no value lies within the bound of
// 2^-150 (tests/core/test_functions.py).
template <Doubles (*Function)(Doubles)>
inline LaneSet in_doubt(Floats x, Doubles y, Floats rounded) {
    constexpr int64_t below_float32 = (int64_t{1} << 29) - 1, midpoint = int64_t{1} << 28;
    const LaneSet found =
        lanes_without(bits_of(y) + (error_ulps - midpoint), below_float32 & -2 * error_ulps) |
        lanes_subnormal_or_nan(rounded * 0.75f);
    return asks_operand<Function> ? found | lanes_subnormal_or_unbounded(x) : found;
}

template <float (*Accurate)(float)>
[[gnu::noinline]] static void settle(Floats x, Doubles y, float* out) {
    for (int i = 0; i < double_lanes; ++i) {
        const double slack = (y[i] < 0 ? -y[i] : y[i]) * error_bound;
        const float low = static_cast<float>(y[i] - slack), high = static_cast<float>(y[i] + slack);
        const bool is_infinite = x[i] - x[i] != 0;
        if (!(low == high) || is_infinite) out[i] = Accurate(x[i]);
    }
}

// The function of what `prepare` makes of n elements.
template <Doubles (*Function)(Doubles), float (*Accurate)(float), class Prepare>
inline void round_each(const float* in, int n, float* out, const Prepare& prepare) {
    constexpr int step = 2 * double_lanes;
    const auto block = [&](const float* from, float* to) {
        const Floats x0 = prepare(load_floats(from)), x1 = prepare(load_floats(from + double_lanes));
        const Doubles y0 = Function(widened(x0)), y1 = Function(widened(x1));
        const Floats rounded0 = narrowed(y0), rounded1 = narrowed(y1);
        store_floats(to, rounded0);
        store_floats(to + double_lanes, rounded1);
        if (in_doubt<Function>(x0, y0, rounded0) | in_doubt<Function>(x1, y1, rounded1)) [[unlikely]] {
            settle<Accurate>(x0, y0, to);
            settle<Accurate>(x1, y1, to + double_lanes);
        }
    };
    int i = 0;
    for (; i + step <= n; i += step) block(in + i, out + i);
    if (i == n) return;
    float rest[step] = {};
    __builtin_memcpy(rest, in + i, static_cast<size_t>(n - i) * sizeof(float));
    block(rest, rest);
    __builtin_memcpy(out + i, rest, static_cast<size_t>(n - i) * sizeof(float));
}

template <Doubles (*Function)(Doubles), float (*Accurate)(float)>
static void rounded(void* result, const void* const* operands, int n, int) {
    round_each<Function, Accurate>(static_cast<const float*>(operands[0]), n,
                                   static_cast<float*>(result), [](Floats x) { return x; });
}
