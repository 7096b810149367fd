// Elementary functions and erf in ball arithmetic.
#pragma once

#include "functions/exact/ball.h"

namespace neuronsim::accurate {

// The coefficients of a power series, c[0] = 1, falling; fixed point with two integral bits, each
// rounded down by less than two units of the last place.
template <int L>
struct Coefficients {
    static constexpr int count = 44 * L;  // as many as atanh(1/3) needs
    uint64_t limb[count][L] = {};

    static Coefficients factorials() {  // 1 / n!
        Coefficients c;
        c.limb[0][L - 1] = one;
        for (int n = 1; n < count; ++n) {
            for (int i = 0; i < L; ++i) c.limb[n][i] = c.limb[n - 1][i];
            divide(c.limb[n], static_cast<uint64_t>(n));
        }
        return c;
    }
    static Coefficients inverses() {  // 1 / n, from n = 1 on
        Coefficients c;
        for (int n = 1; n < count; ++n) {
            c.limb[n][L - 1] = one;
            divide(c.limb[n], static_cast<uint64_t>(n));
        }
        return c;
    }

private:
    static constexpr uint64_t one = uint64_t{1} << 62;
};

// The sum of c[first + stride·k] z^k, of falling coefficients from 1 on, for |z| <= 3/4.
template <int L>
Ball<L> series(const Coefficients<L>& c, int first, int stride, const Ball<L>& z, bool factorial) {
    if (z.is_exact_zero()) return 1;
    if (z.exponent > 0 || !z.radius.is_below_power_of_two(-8)) return Ball<L>::unknown();
    // As many terms as are above the last place; the tail is at most four times its first term.
    const Bound ratio = z.magnitude_bound();
    Bound tail = bound(1, 0);
    int terms = 0;
    for (int n = first; n < Coefficients<L>::count && !tail.is_below_power_of_two(-Ball<L>::precision);
         n += stride, ++terms) {
        tail = tail * ratio;
        for (int i = 1; factorial && i <= stride; ++i)
            tail = bound(tail.mantissa / static_cast<uint64_t>(n + i) + 1, tail.exponent);
    }
    // Horner's rule in fixed point: the coefficient, z and the product each lose a few units of the
    // last place, which sum to at most four of them per step and sixteen in all.
    uint64_t fraction[L], product[2 * L], rest[L];
    for (int i = 0; i < L; ++i) fraction[i] = z.limb[i];
    shift_right(fraction, -z.exponent < Ball<L>::precision ? -z.exponent : Ball<L>::precision);
    Ball<L> sum;
    for (int k = terms - 1; k >= 0; --k) {
        multiply(fraction, sum.limb, product);
        for (int i = 0; i < L; ++i) {
            rest[i] = product[L + i];
            sum.limb[i] = c.limb[first + stride * k][i];
        }
        if (z.negative) subtract(sum.limb, rest);
        else add(sum.limb, rest);
    }
    sum.normalise(2);
    // The derivative is below 2 in magnitude.
    return sum.widened(bound(64, -Ball<L>::precision) + tail.scaled(2) + z.radius.scaled(1));
}

// Σ z^k / (stride·k + first)!
template <int L>
Ball<L> factorial_series(int first, int stride, const Ball<L>& z) {
    static const Coefficients<L> factorials = Coefficients<L>::factorials();
    return series(factorials, first, stride, z, true);
}

// Σ z^k / (2k + 1)
template <int L>
Ball<L> inverse_series(const Ball<L>& z) {
    static const Coefficients<L> inverses = Coefficients<L>::inverses();
    return series(inverses, 1, 2, z, false);
}

template <int L>
const Ball<L>& ln2() {  // 2 artanh(1/3)
    static const Ball<L> value = Ball<L>(2) / 3 * inverse_series(Ball<L>(1) / 9);
    return value;
}

template <int L>
const Ball<L>& inverse_ln2() {
    static const Ball<L> value = 1 / ln2<L>();
    return value;
}

template <int L>
const Ball<L>& pi() {  // Machin: 16 arctan(1/5) - 4 arctan(1/239)
    static const Ball<L> value = Ball<L>(16) / 5 * inverse_series(Ball<L>(-1) / 25) -
                                 Ball<L>(4) / 239 * inverse_series(Ball<L>(-1) / 57121);
    return value;
}

template <int L>
const Ball<L>& inverse_pi() {
    static const Ball<L> value = 1 / pi<L>();
    return value;
}

template <int L>
const Ball<L>& inverse_sqrt_pi() {
    static const Ball<L> value = 1 / sqrt(pi<L>());
    return value;
}

// An argument of exp beyond ±2^12 is taken for that: nothing here tells e^±2048 from what lies beyond,
// not even as a factor of powers of float32 numbers.
template <int L>
Ball<L> clamped(const Ball<L>& x) {
    if (x.exponent <= 12 || !x.has_sign()) return x;
    return x.negative ? -4096 : 4096;
}

template <int L>
Ball<L> exp(const Ball<L>& argument) {
    const Ball<L> x = clamped(argument);
    if (x.exponent > 13) return Ball<L>::unknown();
    const Ball<L> k = nearest_integer(x * inverse_ln2<L>());
    return factorial_series(0, 1, x - k * ln2<L>()).scaled(k.integral());
}

template <int L>
Ball<L> exp2(const Ball<L>& argument) {
    const Ball<L> x = clamped(argument);
    if (x.exponent > 13) return Ball<L>::unknown();
    const Ball<L> k = nearest_integer(x);
    return factorial_series(0, 1, (x - k) * ln2<L>()).scaled(k.integral());
}

template <int L>
Ball<L> expm1(const Ball<L>& x) {
    if (x.exponent < 0) return x * factorial_series(1, 1, x);
    return exp(x) - 1;
}

template <int L>
Ball<L> log(const Ball<L>& x) {
    if (!x.has_sign() || x.negative) return Ball<L>::unknown();
    constexpr uint64_t sqrt_half = 0xB504F333F9DE6484;
    const int64_t e = x.exponent - (x.limb[L - 1] < sqrt_half ? 1 : 0);
    const Ball<L> m = x.scaled(-e);
    const Ball<L> s = (m - 1) / (m + 1);
    return e * ln2<L>() + (s * inverse_series(s * s)).scaled(1);
}

// Exact at powers of two.
template <int L>
Ball<L> log2(const Ball<L>& x) {
    if ((x - Ball<L>(1).scaled(x.exponent - 1)).is_exact_zero()) return x.exponent - 1;
    return log(x) * inverse_ln2<L>();
}

template <int L>
Ball<L> log1p(const Ball<L>& x) {
    if (x.exponent >= 0) return log(1 + x);
    const Ball<L> s = x / (2 + x);
    return (s * inverse_series(s * s)).scaled(1);
}

template <int L>
struct SineCosine {
    Ball<L> sine, cosine;
};

template <int L>
SineCosine<L> sine_cosine(const Ball<L>& x) {
    const Ball<L> k = nearest_integer((x * inverse_pi<L>()).scaled(1));
    const Ball<L> r = x - (k * pi<L>()).scaled(-1), z = -(r * r);
    const Ball<L> sine = r * factorial_series(1, 2, z), cosine = factorial_series(0, 2, z);
    const bool odd = k.bit(0), half_turn = k.bit(1) != (k.negative && odd);
    const Ball<L> rotated_sine = odd ? cosine : sine, rotated_cosine = odd ? -sine : cosine;
    return {half_turn ? -rotated_sine : rotated_sine, half_turn ? -rotated_cosine : rotated_cosine};
}

template <int L>
Ball<L> atan(const Ball<L>& x) {
    const bool inverted = x.exponent > 0;
    Ball<L> t = inverted ? 1 / x : x;
    int64_t halvings = 0;
    for (; t.exponent > -2; ++halvings) t = t / (1 + sqrt(1 + t * t));
    const Ball<L> angle = (t * inverse_series(-(t * t))).scaled(halvings);
    if (!inverted) return angle;
    const Ball<L> quarter_turn = pi<L>().scaled(-1);
    return (x.negative ? -quarter_turn : quarter_turn) - angle;
}

// erf x = 2/√π x e^-x² Σ (2x²)^n / (1·3·5···(2n+1)), without cancellation.
template <int L>
Ball<L> erf_series(const Ball<L>& x) {
    const Ball<L> z = x * x, w = z.scaled(1);
    Ball<L> term = 1, sum = 1;
    // The terms are summed until they halve at least and the rest, at most the last one, is negligible.
    for (uint32_t n = 3;
         term.exponent > sum.exponent - Ball<L>::precision || w.exponent > std::bit_width(n) - 2;
         n += 2) {
        term = over(term * w, n);
        sum = sum + term;
    }
    sum = sum.widened(term.magnitude_bound());
    return (x * inverse_sqrt_pi<L>() * exp(-z) * sum).scaled(1);
}

// erfc x = e^-x² / (x√π) (1 - 1/2x² + 1·3/(2x²)² - ...), x > 0, whose error is below the first term
// left out.
template <int L>
Ball<L> erfc_asymptotic(const Ball<L>& x) {
    const Ball<L> z = x * x, v = 1 / z.scaled(1);
    Ball<L> term = 1, sum = 0;
    for (int64_t n = 1; term.exponent > -24 * L && n < 2 * z.integral(); n += 2) {
        sum = sum + term;
        term = -(term * v * n);
    }
    sum = sum.widened(term.magnitude_bound());
    return exp(-z) * sum * inverse_sqrt_pi<L>() / x;
}

template <int L>
Ball<L> erfc(const Ball<L>& argument) {
    // Beyond 64 the value is below e^-4096, which is as good as e^-4096 in exp.
    const Ball<L> x = argument.exponent > 6 ? Ball<L>(argument.negative ? -64 : 64) : argument;
    const Ball<L> z = x * x;
    // The asymptotic series has about 23 L bits here, the power series too few after its cancellation.
    if (z.exponent > 0 && z.integral() >= 16 * L) {
        const Ball<L> tail = erfc_asymptotic(x.magnitude());
        return x.negative ? 2 - tail : tail;
    }
    return 1 - erf_series(x);
}

template <int L>
Ball<L> erf(const Ball<L>& x) {
    return x.exponent > 2 ? 1 - erfc(x) : erf_series(x);
}

}  // namespace neuronsim::accurate
