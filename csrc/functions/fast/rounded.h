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
inline bool in_doubt(const Floats (&x)[2], const Doubles (&y)[2], const Floats (&rounded)[2]) {
    constexpr int64_t below_float32 = (int64_t{1} << 29) - 1, midpoint = int64_t{1} << 28;
    constexpr int64_t from_midpoint = error_ulps - midpoint;
    const bool found = any_without(bits_of(y[0]) + from_midpoint, bits_of(y[1]) + from_midpoint,
                                   below_float32 & -2 * error_ulps) |
                       any_subnormal_or_nan(rounded[0] * 0.75f, rounded[1] * 0.75f);
    return asks_operand<Function> ? found | any_subnormal_or_unbounded(x[0], x[1]) : found;
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

// Whether a quicker way gave what is right for a whole vector.
template <Doubles (*Function)(Doubles)>
inline bool is_found_in_pairs([[maybe_unused]] const float* in, [[maybe_unused]] float* out) {
#if defined(__AVX512F__)
    if constexpr (Function == math::erf) return math::erf_in_pairs(Vec::load(in), out);
#endif
    return false;
}

struct AsTheyAre {
    Floats operator()(Floats x) const { return x; }
};

// The function of what `prepare` makes of n elements.
template <Doubles (*Function)(Doubles), float (*Accurate)(float), class Prepare>
inline void round_each(const float* in, int n, float* out, const Prepare& prepare) {
    constexpr int step = 2 * double_lanes;
    const auto block = [&](const float* from, float* to) {
        const Floats x[2] = {prepare(load_floats(from)), prepare(load_floats(from + double_lanes))};
        const Doubles y[2] = {Function(widened(x[0])), Function(widened(x[1]))};
        const Floats rounded[2] = {narrowed(y[0]), narrowed(y[1])};
        for (int i = 0; i < 2; ++i) store_floats(to + i * double_lanes, rounded[i]);
        if (in_doubt<Function>(x, y, rounded)) [[unlikely]]
            for (int i = 0; i < 2; ++i) settle<Accurate>(x[i], y[i], to + i * double_lanes);
    };
    int i = 0;
    for (; i + step <= n; i += step)
        if (!std::is_same_v<Prepare, AsTheyAre> || !is_found_in_pairs<Function>(in + i, out + i))
            block(in + i, out + i);
    if (i == n) return;
    float rest[step] = {};
    __builtin_memcpy(rest, in + i, static_cast<size_t>(n - i) * sizeof(float));
    block(rest, rest);
    __builtin_memcpy(out + i, rest, static_cast<size_t>(n - i) * sizeof(float));
}

template <Doubles (*Function)(Doubles), float (*Accurate)(float)>
static void rounded(void* result, const void* const* operands, int n, int) {
    round_each<Function, Accurate>(static_cast<const float*>(operands[0]), n,
                                   static_cast<float*>(result), AsTheyAre());
}
