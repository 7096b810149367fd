// From float64 lanes to correctly rounded float32 (E3): every function of one operand is within 2^-42
// of the exact value, relative to it, where float32 does not give its limit. So only a result as near
// as that to a midpoint of two float32 is in doubt. The accurate step decides these few, and takes NaN,
// by which a function passes on what it does not treat itself.

inline constexpr int error_bits = 42;

// Whether any of them is so near a midpoint that an error of 2^-bits could take it across.
template <int Bits>
inline bool near_midpoint(const Doubles (&y)[2]) {
    constexpr int64_t below_float32 = (int64_t{1} << 29) - 1, midpoint = int64_t{1} << 28;
    constexpr int64_t error_ulps = int64_t{1} << (53 - Bits);  // the least is 2^-53 of a value
    constexpr int64_t from_midpoint = error_ulps - midpoint;
    return any_without(bits_of(y[0]) + from_midpoint, bits_of(y[1]) + from_midpoint,
                       below_float32 & -2 * error_ulps);
}

// These halve what is near zero, so that 2^-149 could vanish, and multiply -Inf by what does vanish.
template <Doubles (*Function)(Doubles)>
inline constexpr bool asks_operand = Function == math::silu || Function == math::gelu ||
                                     Function == math::gelu_tanh || Function == math::gelu_sigmoid;

// Subnormal results have their midpoints elsewhere, as has the least normal one, which three quarters
// of make subnormal. Any other result that vanishes is right, since no value lies within the bound of
// 2^-150 (tests/core/test_functions.py).
template <Doubles (*Function)(Doubles)>
inline bool in_doubt(const Floats (&x)[2], const Doubles (&y)[2], const Floats (&rounded)[2]) {
    const bool found =
        near_midpoint<error_bits>(y) | any_subnormal_or_nan(rounded[0] * 0.75f, rounded[1] * 0.75f);
    return asks_operand<Function> ? found | any_subnormal_or_unbounded(x[0], x[1]) : found;
}

// Whether float32 rounds all that lies within 2^-Bits of a value to one number.
template <int Bits>
inline bool is_settled(double y) {
    const double slack = (y < 0 ? -y : y) * (1.0 / static_cast<double>(int64_t{1} << Bits));
    return static_cast<float>(y - slack) == static_cast<float>(y + slack);
}

template <float (*Accurate)(float)>
[[gnu::noinline]] static void settle(Floats x, Doubles y, float* out) {
    for (int i = 0; i < double_lanes; ++i) {
        const bool is_infinite = x[i] - x[i] != 0;
        if (!is_settled<error_bits>(y[i]) || is_infinite) out[i] = Accurate(x[i]);
    }
}

#if defined(__AVX512F__)
// erf of whole groups; gives how many elements these were. What is in doubt waits until it fills a
// block of float64.
template <class Block>
inline int round_erf_in_pairs(const float* in, int n, float* out, const Block& block) {
    float waiting[Vec::lanes] = {};
    int places[Vec::lanes], count = 0;
    const auto settle_waiting = [&]() [[gnu::noinline]] {
        block(waiting, waiting);
        for (int j = 0; j < count; ++j) out[places[j]] = waiting[j];
        count = 0;
    };
    int i = 0;
    for (; i + math::VectorGroup::elements <= n; i += math::VectorGroup::elements) {
        uint64_t doubtful = math::erf_in_pairs(in + i, out + i);
        for (; doubtful != 0; doubtful &= doubtful - 1) {
            places[count] = i + std::countr_zero(doubtful);
            waiting[count] = out[places[count]];
            if (++count == Vec::lanes) settle_waiting();
        }
    }
    if (count > 0) settle_waiting();
    return i;
}
#endif

struct AsTheyAre {
    Floats operator()(Floats x) const { return x; }
};

// The function of what `prepare` makes of n elements.
template <Doubles (*Function)(Doubles), float (*Accurate)(float), class Prepare>
inline void round_each(const float* in, int n, float* out, const Prepare& prepare) {
    constexpr int step = 2 * double_lanes;
    const auto block = [&](const float* from, float* to) {
        const Floats x[2] = {prepare(read<Floats>(from)), prepare(read<Floats>(from + double_lanes))};
        const Doubles y[2] = {Function(widened(x[0])), Function(widened(x[1]))};
        const Floats rounded[2] = {narrowed(y[0]), narrowed(y[1])};
        for (int i = 0; i < 2; ++i) store_floats(to + i * double_lanes, rounded[i]);
        if (in_doubt<Function>(x, y, rounded)) [[unlikely]]
            for (int i = 0; i < 2; ++i) settle<Accurate>(x[i], y[i], to + i * double_lanes);
    };
    int i = 0;
#if defined(__AVX512F__)
    if constexpr (Function == math::erf && std::is_same_v<Prepare, AsTheyAre>)
        i = round_erf_in_pairs(in, n, out, block);
#endif
    for (; i + step <= n; i += step) block(in + i, out + i);
    if (i == n) return;
    float rest[step] = {};
    __builtin_memcpy(rest, in + i, (n - i) * sizeof(float));
    block(rest, rest);
    __builtin_memcpy(out + i, rest, (n - i) * sizeof(float));
}

template <Doubles (*Function)(Doubles), float (*Accurate)(float)>
static void rounded(void* result, const void* const* operands, int n, int) {
    round_each<Function, Accurate>(static_cast<const float*>(operands[0]), n,
                                   static_cast<float*>(result), AsTheyAre());
}

// The same for functions of two operands, whose error is their own, and which may lie beside 2^-150
// too: there what vanishes is in doubt.
template <float (*Accurate)(float, float), int Bits>
[[gnu::noinline]] static void settle_pair(Floats x, Floats y, Doubles z, float* out) {
    for (int i = 0; i < double_lanes; ++i)
        if (!is_settled<Bits>(z[i])) out[i] = Accurate(x[i], y[i]);
}
template <Doubles (*Function)(Doubles, Doubles), float (*Accurate)(float, float), int Bits>
static void rounded_pair(void* result, const void* const* operands, int n, int) {
    constexpr int step = 2 * double_lanes;
    const auto block = [](const float* a, const float* b, float* to) {
        const Floats x[2] = {read<Floats>(a), read<Floats>(a + double_lanes)};
        const Floats y[2] = {read<Floats>(b), read<Floats>(b + double_lanes)};
        const Doubles z[2] = {Function(widened(x[0]), widened(y[0])),
                              Function(widened(x[1]), widened(y[1]))};
        const Floats rounded[2] = {narrowed(z[0]), narrowed(z[1])};
        for (int i = 0; i < 2; ++i) store_floats(to + i * double_lanes, rounded[i]);
        if (near_midpoint<Bits>(z) | any_subnormal_or_nan(rounded[0] * 0.75f, rounded[1] * 0.75f) |
            any_subnormal_or_nan(narrowed(4.0 * z[0]), narrowed(4.0 * z[1]))) [[unlikely]]
            for (int i = 0; i < 2; ++i)
                settle_pair<Accurate, Bits>(x[i], y[i], z[i], to + i * double_lanes);
    };
    const auto *a = static_cast<const float*>(operands[0]), *b = static_cast<const float*>(operands[1]);
    auto* const out = static_cast<float*>(result);
    int i = 0;
    for (; i + step <= n; i += step) block(a + i, b + i, out + i);
    if (i == n) return;
    float rest[2][step] = {};
    const auto bytes = static_cast<size_t>(n - i) * sizeof(float);
    __builtin_memcpy(rest[0], a + i, bytes);
    __builtin_memcpy(rest[1], b + i, bytes);
    block(rest[0], rest[1], rest[0]);
    __builtin_memcpy(out + i, rest[0], bytes);
}
