// Quick tests of tiles for what is worth a closer look: Inf, NaN, zeros, values that leave a range.
// Included inside each instruction set's namespace.

// Whether a magnitude is below `least`, but for zero if that is `allowed`, or above `greatest`.
inline bool leaves_range(const void* in, int n, float least, float greatest, bool allowed) {
    const auto* x = static_cast<const uint32_t*>(in);
    const uint32_t step = allowed ? 1 : 0;
    uint32_t fewest = ~0u, most = 0;
    FOR_ELEMENTS {
        const uint32_t magnitude = x[i] & ~sign_bit;
        const uint32_t below = magnitude - step;  // an allowed zero is the greatest
        fewest = below < fewest ? below : fewest;
        most = magnitude > most ? magnitude : most;
    }
    return fewest < bits_as<uint32_t>(least) - step || most > bits_as<uint32_t>(greatest);
}

// Whether an element is Inf or NaN, or zero if Zeros. Below zero is above all: one comparison finds
// both.
template <bool Zeros>
bool special(const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    int i = 0;
#if defined(__AVX512DQ__)
    constexpr int nan_or_inf = 0x01 | 0x80 | 0x08 | 0x10, zero = 0x02 | 0x04;
    __mmask16 found = 0;
    for (; i + 16 <= n; i += 16)
        found |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + i), Zeros ? nan_or_inf | zero : nan_or_inf);
    if (found != 0) return true;
#endif
    constexpr uint32_t step = Zeros ? 1 : 0;
    uint32_t most = 0;
    for (; i < n; ++i) {
        const uint32_t magnitude = (x[i] & ~sign_bit) - step;
        most = magnitude > most ? magnitude : most;
    }
    return most >= 0x7F800000u - step;
}

// Whether a result is Inf or NaN, or zero where the operand is not.
inline bool exceptional(const void* out, const void* in, int n) {
    const auto* x = static_cast<const uint32_t*>(in);
    const auto* y = static_cast<const uint32_t*>(out);
    constexpr uint32_t exponent = 0x7F800000u;
    if (!special<true>(out, n)) return false;
    uint32_t found = 0;
    FOR_ELEMENTS {
        const uint32_t magnitude = y[i] & ~sign_bit;
        const uint32_t vanished = magnitude == 0 ? x[i] & ~sign_bit : 0;
        found |= magnitude >= exponent ? magnitude : vanished;
    }
    return found != 0;
}
