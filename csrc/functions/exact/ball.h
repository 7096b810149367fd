// Ball arithmetic: a binary floating-point midpoint of L limbs and a bound of its distance from the
// exact value. Every operation widens the bound by what it rounds, so no error analysis is left to its
// users.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <utility>

namespace neuronsim::accurate {

// An upper bound of a magnitude: mantissa · 2^exponent with mantissa <= 2^31, rounded up.
struct Bound {
    uint64_t mantissa = 0;
    int64_t exponent = 0;

    bool is_zero() const { return mantissa == 0; }
    bool is_below_power_of_two(int64_t e) const { return is_zero() || exponent + 32 <= e; }
    Bound scaled(int64_t e) const { return {mantissa, exponent + e}; }
};

inline Bound bound(uint64_t mantissa, int64_t exponent) {
    if (mantissa == 0) return {};
    const int excess = 33 - std::countl_zero(mantissa);
    if (excess <= 0) return {mantissa << -excess, exponent + excess};
    return {(mantissa >> excess) + 1, exponent + excess};
}

inline Bound operator+(Bound a, Bound b) {
    if (a.is_zero()) return b;
    if (b.is_zero()) return a;
    if (a.exponent < b.exponent) std::swap(a, b);
    const int64_t shift = a.exponent - b.exponent;
    return bound(a.mantissa + (shift < 32 ? b.mantissa >> shift : 0) + 1, a.exponent);
}

inline Bound operator*(Bound a, Bound b) {
    return bound(a.mantissa * b.mantissa, a.exponent + b.exponent);
}

using DoubleLimb = unsigned __int128;

// product = a · b. Limbs are least significant first.
template <int L>
void multiply(const uint64_t (&a)[L], const uint64_t (&b)[L], uint64_t (&product)[2 * L]) {
    for (int i = 0; i < L; ++i) product[i] = 0;
    for (int i = 0; i < L; ++i) {
        uint64_t carry = 0;
        for (int j = 0; j < L; ++j) {
            const DoubleLimb t = DoubleLimb{a[i]} * b[j] + product[i + j] + carry;
            product[i + j] = static_cast<uint64_t>(t);
            carry = static_cast<uint64_t>(t >> 64);
        }
        product[i + L] = carry;
    }
}

// a += b; returns the carry.
template <int L>
uint64_t add(uint64_t (&a)[L], const uint64_t (&b)[L]) {
    uint64_t carry = 0;
    for (int i = 0; i < L; ++i) {
        const DoubleLimb t = DoubleLimb{a[i]} + b[i] + carry;
        a[i] = static_cast<uint64_t>(t);
        carry = static_cast<uint64_t>(t >> 64);
    }
    return carry;
}

// a -= b; returns the borrow.
template <int L>
uint64_t subtract(uint64_t (&a)[L], const uint64_t (&b)[L]) {
    uint64_t borrow = 0;
    for (int i = 0; i < L; ++i) {
        const DoubleLimb t = DoubleLimb{a[i]} - b[i] - borrow;
        a[i] = static_cast<uint64_t>(t);
        borrow = static_cast<uint64_t>(t >> 64) & 1;
    }
    return borrow;
}

// a /= divisor, rounded down; returns the remainder.
template <int L>
uint64_t divide(uint64_t (&a)[L], uint64_t divisor) {
    uint64_t remainder = 0;
    for (int i = L - 1; i >= 0; --i) {
        const DoubleLimb t = DoubleLimb{remainder} << 64 | a[i];
        a[i] = static_cast<uint64_t>(t / divisor);
        remainder = static_cast<uint64_t>(t % divisor);
    }
    return remainder;
}

template <int L>
void shift_left(uint64_t (&a)[L], int64_t bits) {
    const int limbs = static_cast<int>(bits / 64), by = static_cast<int>(bits % 64);
    for (int i = L - 1; i >= 0; --i) {
        const uint64_t high = i >= limbs ? a[i - limbs] : 0, low = i > limbs ? a[i - limbs - 1] : 0;
        a[i] = by == 0 ? high : high << by | low >> (64 - by);
    }
}

// Returns whether a bit was lost.
template <int L>
bool shift_right(uint64_t (&a)[L], int64_t bits) {
    const int limbs = static_cast<int>(bits < 64 * L ? bits / 64 : L), by = static_cast<int>(bits % 64);
    uint64_t lost = 0;
    for (int i = 0; i < limbs; ++i) lost |= a[i];
    if (limbs < L) lost |= a[limbs] & ((uint64_t{1} << by) - 1);
    for (int i = 0; i < L; ++i) {
        const uint64_t low = i + limbs < L ? a[i + limbs] : 0,
                       high = i + limbs + 1 < L ? a[i + limbs + 1] : 0;
        a[i] = by == 0 ? low : low >> by | high << (64 - by);
    }
    return lost != 0;
}

template <int L>
class Ball {
public:
    static constexpr int64_t precision = 64 * L;

    // The midpoint's magnitude is the limbs as a fraction in [1/2, 1) times 2^exponent, or zero.
    uint64_t limb[L] = {};
    int64_t exponent = zero_exponent;
    bool negative = false;
    Bound radius;

    Ball() = default;
    Ball(int64_t value) : negative(value < 0) {
        limb[L - 1] = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
        normalise(64);
    }
    explicit Ball(std::same_as<float> auto value) {
        const uint32_t bits = std::bit_cast<uint32_t>(value), field = bits >> 23 & 0xFF;
        limb[L - 1] = (bits & 0x7FFFFF) | (field != 0 ? 0x800000u : 0u);
        negative = bits >> 31 != 0;
        normalise(64 + static_cast<int64_t>(field != 0 ? field : 1) - 150);
    }
    // Nothing is known of the value.
    static Ball unknown() {
        Ball ball;
        ball.radius = bound(1, -zero_exponent);
        return ball;
    }

    bool is_zero() const { return limb[L - 1] == 0; }
    bool is_exact() const { return radius.is_zero(); }
    bool is_exact_zero() const { return is_zero() && is_exact(); }
    // The value has the midpoint's sign and is at least 2^(exponent - 2) in magnitude.
    bool has_sign() const { return !is_zero() && radius.is_below_power_of_two(exponent - 2); }
    Bound midpoint_bound() const {
        return is_zero() ? Bound{} : bound((limb[L - 1] >> 32) + 1, exponent - 32);
    }
    Bound magnitude_bound() const { return midpoint_bound() + radius; }
    Bound last_place() const { return bound(1, exponent - precision); }

    Ball midpoint() const {
        Ball ball = *this;
        ball.radius = {};
        return ball;
    }
    Ball magnitude() const { return negative ? -*this : *this; }
    Ball scaled(int64_t e) const {  // times 2^e
        Ball ball = *this;
        if (!is_zero()) ball.exponent += e;
        ball.radius = radius.scaled(e);
        return ball;
    }
    Ball widened(Bound by) const {
        Ball ball = *this;
        ball.radius = radius + by;
        return ball;
    }

    // Takes limbs without a leading one bit, as a fraction times 2^e.
    void normalise(int64_t e) {
        int leading = 0;
        while (leading < L && limb[L - 1 - leading] == 0) ++leading;
        if (leading == L) {
            exponent = zero_exponent;
            negative = false;
            return;
        }
        const int64_t shift = 64 * leading + std::countl_zero(limb[L - 1 - leading]);
        if (shift != 0) shift_left(limb, shift);
        exponent = e - shift;
    }

    Ball operator-() const {
        Ball ball = *this;
        ball.negative = !negative && !is_zero();
        return ball;
    }

    friend Ball operator+(const Ball& a, const Ball& b) {
        if (a.exponent < b.exponent) return b + a;
        Ball sum = a;
        sum.radius = a.radius + b.radius;
        if (b.is_zero()) return sum;
        uint64_t aligned[L];
        for (int i = 0; i < L; ++i) aligned[i] = b.limb[i];
        bool inexact = shift_right(aligned, a.exponent - b.exponent);
        if (a.negative != b.negative) {
            if (subtract(sum.limb, aligned) != 0) {  // only where the exponents are equal
                for (int i = 0; i < L; ++i) sum.limb[i] = b.limb[i];
                subtract(sum.limb, a.limb);
                sum.negative = b.negative;
            }
            sum.normalise(a.exponent);
        } else if (add(sum.limb, aligned) != 0) {
            inexact |= shift_right(sum.limb, 1);
            sum.limb[L - 1] |= uint64_t{1} << 63;
            sum.exponent = a.exponent + 1;
        }
        if (inexact) sum.radius = sum.radius + bound(2, a.exponent - precision);
        return sum;
    }

    friend Ball operator-(const Ball& a, const Ball& b) { return a + -b; }

    friend Ball operator*(const Ball& a, const Ball& b) {
        Ball product;
        if (a.is_exact_zero() || b.is_exact_zero()) return product;
        if (!a.is_exact()) product.radius = a.radius * b.magnitude_bound();
        if (!b.is_exact()) product.radius = product.radius + b.radius * a.midpoint_bound();
        if (a.is_zero() || b.is_zero()) return product;
        uint64_t limbs[2 * L];
        multiply(a.limb, b.limb, limbs);
        const bool shift = limbs[2 * L - 1] >> 63 == 0;
        if (shift) shift_left(limbs, 1);
        uint64_t lost = 0;
        for (int i = 0; i < L; ++i) lost |= limbs[i];
        for (int i = 0; i < L; ++i) product.limb[i] = limbs[L + i];
        product.exponent = a.exponent + b.exponent - shift;
        product.negative = a.negative != b.negative;
        if (lost != 0) product.radius = product.radius + product.last_place();
        return product;
    }

    // Newton's iteration finds a quotient; the residual proves how good it is.
    friend Ball operator/(const Ball& a, const Ball& b) {
        if (!b.has_sign()) return unknown();
        const Ball divisor = b.midpoint();
        Ball inverse = from_double(1 / divisor.leading_double()).scaled(-divisor.exponent);
        inverse.negative = b.negative;
        for (int64_t bits = 48; bits < precision; bits *= 2)
            inverse = (inverse + inverse * (1 - divisor * inverse)).midpoint();
        const Ball quotient = (a.midpoint() * inverse).midpoint();
        return quotient.widened((a - quotient * b).magnitude_bound().scaled(2 - b.exponent));
    }

    friend Ball sqrt(const Ball& a) {
        if (a.is_exact_zero()) return a;
        if (!a.has_sign() || a.negative) return unknown();
        const int64_t odd = a.exponent & 1, half = (a.exponent + odd) / 2;
        const Ball radicand = a.midpoint().scaled(-2 * half);  // in [1/4, 1)
        Ball inverse =
            from_double(1 / __builtin_sqrt(radicand.leading_double() * (odd != 0 ? 0.5 : 1)));
        for (int64_t bits = 48; bits < precision; bits *= 2)
            inverse = (inverse + (inverse * (1 - radicand * inverse * inverse)).scaled(-1)).midpoint();
        Ball root = (radicand * inverse).midpoint().scaled(half);
        // A root that fits in a limb is found exactly.
        Ball one_limb = (root + Ball(1).scaled(root.exponent - 65)).midpoint();
        for (int i = 0; i < L - 1; ++i) one_limb.limb[i] = 0;
        if ((a - one_limb * one_limb).is_exact_zero()) return one_limb;
        // |root - √a| = |root² - a| / (root + √a), and root >= 2^(exponent - 1)
        return root.widened((a - root * root).magnitude_bound().scaled(1 - root.exponent));
    }

    // a / n, quicker than a division by a ball.
    friend Ball over(const Ball& a, uint32_t n) {
        Ball quotient = a;
        const bool inexact = divide(quotient.limb, n) != 0;
        quotient.normalise(a.exponent);
        if (!a.is_exact()) quotient.radius = bound(a.radius.mantissa / n + 1, a.radius.exponent);
        if (inexact) quotient.radius = quotient.radius + a.last_place();
        return quotient;
    }

    // An integer nearest to the midpoint.
    friend Ball nearest_integer(const Ball& a) {
        Ball integer = a.midpoint() + (a.negative ? Ball(-1) : Ball(1)).scaled(-1);
        if (integer.exponent <= 0) return 0;
        const int64_t fraction = precision - integer.exponent;
        for (int i = 0; i < L; ++i) {
            const int64_t bits = fraction - 64 * i;
            if (bits >= 64) integer.limb[i] = 0;
            else if (bits > 0) integer.limb[i] &= ~uint64_t{0} << bits;
        }
        return integer.midpoint();
    }

    // The bit of weight 2^e in the midpoint's magnitude.
    bool bit(int64_t e) const {
        const int64_t at = precision - exponent + e;
        return at >= 0 && at < precision && (limb[at / 64] >> (at % 64) & 1) != 0;
    }
    // The integral part of the midpoint, where it fits.
    int64_t integral() const {
        const int64_t value = exponent > 0 ? static_cast<int64_t>(limb[L - 1] >> (64 - exponent)) : 0;
        return negative ? -value : value;
    }

private:
    static constexpr int64_t zero_exponent = -(int64_t{1} << 50);

    // The midpoint's fraction, to about 53 bits: where Newton's iterations start.
    double leading_double() const { return static_cast<double>(limb[L - 1] >> 11) * 0x1p-53; }
    static Ball from_double(double value) {  // in [1/2, 16)
        Ball ball;
        ball.limb[L - 1] = static_cast<uint64_t>(value * 0x1p58);
        ball.normalise(6);
        return ball;
    }
};

// Rounds to the nearest float32, ties to even; false where the ball does not decide it.
template <int L>
bool round(const Ball<L>& x, float& result) {
    if (x.is_exact_zero()) {
        result = 0;
        return true;
    }
    // The float32 grid's step at x is 2^unit; the boundaries are the odd multiples of half of it.
    const int64_t unit = x.exponent - 24 > -149 ? x.exponent - 24 : -149;
    // A radius below an eighth keeps the next boundary out of reach, a binade's finer ones included.
    if (!x.has_sign() || !x.radius.is_below_power_of_two(unit - 3)) return false;
    const int64_t halves = x.exponent - (unit - 1);
    const int64_t boundary =
        (halves > 0 ? static_cast<int64_t>(x.limb[L - 1] >> (64 - halves)) : 0) | 1;
    const Ball<L> above = x.magnitude() - Ball<L>(boundary).scaled(unit - 1);
    if (!above.has_sign() && !above.is_exact_zero()) return false;
    int64_t bits = boundary >> 1;
    bits += above.is_exact_zero() ? bits & 1 : !above.negative;
    bits += (unit + 149) << 23;
    if (bits > 0x7F800000) bits = 0x7F800000;
    result = std::bit_cast<float>(static_cast<uint32_t>(bits) | (x.negative ? 0x80000000u : 0u));
    return true;
}

}  // namespace neuronsim::accurate
