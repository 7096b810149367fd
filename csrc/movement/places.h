// What gather and scatter make of their indices: places in an array.
// Included inside each instruction set's namespace.

inline void begin_places(int64_t first, int64_t step, int n, int64_t* found) {
    FOR_ELEMENTS found[i] = first + i * step;
}

// Adds to the places found so far those of one component of n index vectors, `stride` bytes apart. One
// outside of [0, limit] is moved to its end if `clamps`; else there is no place.
template <class Word>
void add_places(const char* indices, ptrdiff_t stride, int n, int64_t limit, int64_t step, bool clamps,
                int64_t* found) {
    const auto index = [](const char* at) {
        const auto x = static_cast<int64_t>(read<Word>(at));
        // Beyond all limits however large.
        return std::is_same_v<Word, uint64_t> && x < 0 ? std::numeric_limits<int64_t>::max() : x;
    };
    const auto clamped = [&](int64_t x) { return x < 0 ? 0 : x < limit ? x : limit; };
    const auto moved = [&](int64_t place, int64_t x) { return place + clamped(x) * step; };
    const auto there = [&](int64_t place, int64_t x) {
        return x == clamped(x) && place != nowhere ? place + x * step : nowhere;
    };
    constexpr ptrdiff_t size = sizeof(Word);
    if (stride != size) {
        for (int i = 0; i < n; ++i) {
            const int64_t x = index(indices + i * stride);
            found[i] = clamps ? moved(found[i], x) : there(found[i], x);
        }
    } else if (clamps) {
        FOR_ELEMENTS found[i] = moved(found[i], index(indices + i * size));
    } else {
        FOR_ELEMENTS found[i] = there(found[i], index(indices + i * size));
    }
}
