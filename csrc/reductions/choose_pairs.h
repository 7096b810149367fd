// Pairs side by side, of which each takes another or stays (R2): Kernels.choose.
// Included inside each instruction set's namespace.

// Values are of 32 bits or of 8, indices of 32.
template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 1, uint8_t, uint32_t>;
template <class T, class I>
[[gnu::noinline]] void choose_simply(const ChoiceMasks& masks, const void* other,
                                     const void* other_index, int n, void* value, void* index) {
    using Bits = BitsOf<T>;
    auto* x = static_cast<Bits*>(value);
    auto* i_bits = static_cast<uint32_t*>(index);
    const auto* y = static_cast<const Bits*>(other);
    const auto* j_bits = static_cast<const uint32_t*>(other_index);
    const auto mask = [](bool on) { return on ? ~0u : 0u; };
    const auto &m = masks.value, &of = masks.index;
    const uint32_t less = m[0][0], more = m[2][0], x_nan = m[3][0], y_nan = m[4][0];
    const uint32_t equals[] = {m[1][0], m[1][1], m[1][2]}, nans[] = {m[5][0], m[5][1], m[5][2]};
    const uint32_t its_equals[] = {of[1][0], of[1][1], of[1][2]},
                   its_nans[] = {of[5][0], of[5][1], of[5][2]};
    FOR_ELEMENTS {
        const T a = bits_as<T>(x[i]), b = bits_as<T>(y[i]);
        const I own = bits_as<I>(i_bits[i]), its = bits_as<I>(j_bits[i]);
        const uint32_t a_nan = mask(a != a), b_nan = mask(b != b);
        const uint32_t below = mask(own < its), same = mask(own == its), above = ~(below | same);
        const auto by_index = [&](const uint32_t* r) {
            return (below & r[0]) | (same & r[1]) | (above & r[2]);
        };
        const uint32_t equal = mask(a == b), both = a_nan & b_nan;
        const uint32_t other_takes = (mask(a < b) & less) | (mask(a > b) & more) |
                                     (a_nan & ~b_nan & x_nan) | (b_nan & ~a_nan & y_nan);
        const uint32_t takes = other_takes | (equal & by_index(equals)) | (both & by_index(nans));
        const uint32_t takes_index =
            other_takes | (equal & by_index(its_equals)) | (both & by_index(its_nans));
        x[i] = static_cast<Bits>((y[i] & takes) | (x[i] & ~takes));
        i_bits[i] = (j_bits[i] & takes_index) | (i_bits[i] & ~takes_index);
    }
}
template <class T, class I>
void choose(const ChoiceMasks& masks, const void* other, const void* other_index, int n, void* value,
            void* index) {
    if (masks.is_simple) return choose_simply<T, I>(masks, other, other_index, n, value, index);
    using Bits = BitsOf<T>;
    auto* x = static_cast<Bits*>(value);
    auto* i_bits = static_cast<uint32_t*>(index);
    const auto* y = static_cast<const Bits*>(other);
    const auto* j_bits = static_cast<const uint32_t*>(other_index);
    const auto mask = [](bool on) { return on ? ~0u : 0u; };
    FOR_ELEMENTS {
        const T a = bits_as<T>(x[i]), b = bits_as<T>(y[i]);
        const I own = bits_as<I>(i_bits[i]), its = bits_as<I>(j_bits[i]);
        const uint32_t a_nan = mask(a != a), b_nan = mask(b != b);
        const uint32_t how[6] = {mask(a < b),    mask(a == b),   mask(a > b),
                                 a_nan & ~b_nan, b_nan & ~a_nan, a_nan & b_nan};
        const uint32_t below = mask(own < its), equal = mask(own == its), above = ~(below | equal);
        uint32_t takes = 0, takes_index = 0;
        for (int r = 0; r < 6; ++r) {
            const auto by_index = [&](const uint32_t* m) {
                return (below & m[0]) | (equal & m[1]) | (above & m[2]);
            };
            takes |= how[r] & by_index(masks.value[r]);
            takes_index |= how[r] & by_index(masks.index[r]);
        }
        x[i] = static_cast<Bits>((y[i] & takes) | (x[i] & ~takes));
        i_bits[i] = (j_bits[i] & takes_index) | (i_bits[i] & ~takes_index);
    }
}
