// Rows of one element each, as broadcasting a last dimension makes them.
// Included inside each instruction set's namespace.

// Each of n words `Times` times, side by side.
template <int Times>
void repeat_words(const char* source, int64_t n, char* target) {
    constexpr int word = sizeof(uint32_t), lanes = Vec::lanes;
    int64_t at = 0;
    int begun = 0;  // copies of the element `at` that are there
    // A shuffle by a vector is one instruction of those that have longer ones than SSE2.
    if constexpr (lanes > 4) {
        static constexpr auto element = [] {
            std::array<std::array<uint32_t, lanes>, Times> found{};
            for (int b = 0; b < Times; ++b)
                for (int i = 0; i < lanes; ++i) found[b][i] = static_cast<uint32_t>((b + i) / Times);
            return found;
        }();
        for (; at + lanes <= n; target += lanes * word) {
            const auto x = read<BitsVector>(source + at * word);
            const BitsVector y = __builtin_shuffle(x, read<BitsVector>(element[begun].data()));
            __builtin_memcpy(target, &y, sizeof y);
            begun += lanes % Times;
            at += lanes / Times + begun / Times;
            begun %= Times;
        }
    }
    for (; at < n; ++at, begun = 0)
        for (; begun < Times; ++begun, target += word)
            __builtin_memcpy(target, source + at * word, word);
}
