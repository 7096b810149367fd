// The functions of two operands (E4).
#include <algorithm>

#include "functions/exact/accurate.h"
#include "functions/exact/decided.h"

namespace neuronsim::accurate {
namespace {

// Rounds a value with an error below `error`, unless a boundary or zero is that near.
bool round_quickly(double value, double error, float& result) {
    result = static_cast<float>(value - error);
    const float other = static_cast<float>(value + error);
    return std::bit_cast<uint32_t>(result) == std::bit_cast<uint32_t>(other);
}

// Rounds a positive value with a relative error below 2^-41, unless a boundary is that near. (power has
// the largest: 2^-51 of a logarithm up to 150 is 2^-44 of the result.)
bool round_quickly(double value, float& result) {
    return round_quickly(value, value * 0x1p-40, result);
}

template <int terms>
struct Polynomial {
    double coefficient[terms];

    double operator()(double z) const {  // even and odd powers apart, for speed
        double even = 0, odd = 0;
        for (int k = terms - 2; k >= 0; k -= 2) {
            even = even * (z * z) + coefficient[k];
            odd = odd * (z * z) + coefficient[k + 1];
        }
        return even + z * odd;
    }
};

// Σ z^k / (2k + 1), for |z| < 1/32
constexpr auto inverse_polynomial = [] {
    Polynomial<12> p{};
    for (int k = 0; k < 12; ++k) p.coefficient[k] = 1.0 / (2 * k + 1);
    return p;
}();

// Σ z^k / k!, for |z| < 3/8
constexpr auto exp_polynomial = [] {
    Polynomial<14> p{{1}};
    for (int k = 1; k < 14; ++k) p.coefficient[k] = p.coefficient[k - 1] / k;
    return p;
}();

// log2 of a positive float32 number.
double quick_log2(float x) {
    const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(x));
    constexpr uint64_t sqrt_half = 0x3FE6A09E667F3BCD, exponent_mask = 0xFFFull << 52;
    const uint64_t exponent = (bits - sqrt_half) & exponent_mask;
    const double m = std::bit_cast<double>(bits - exponent);  // in [√½, √2)
    const double s = (m - 1) / (m + 1);
    constexpr double two_over_ln2 = 0x1.71547652b82fep+1;
    return static_cast<double>(static_cast<int64_t>(exponent) >> 52) +
           two_over_ln2 * s * inverse_polynomial(s * s);
}

constexpr double ln2_double = 0x1.62e42fefa39efp-1;
// The exponents told apart: 2^-200 is nothing beside a float32, and rounds to 0.
constexpr double quick_range = 200;

// 2^t
double quick_exp2(double exponent) {
    constexpr double round_to_integer = 0x1.8p52;
    const double t = std::clamp(exponent, -quick_range, quick_range);
    const double shifted = t + round_to_integer;
    const double r = (t - (shifted - round_to_integer)) * ln2_double;
    const int64_t k = std::bit_cast<int64_t>(shifted) - std::bit_cast<int64_t>(round_to_integer);
    return exp_polynomial(r) * std::bit_cast<double>(static_cast<uint64_t>(1023 + k) << 52);
}

// ln(1 + w) for 0 < w <= 1: 2 artanh(w/(2 + w)), or ln 2 more with (1 + w)/2 in place of 1 + w.
double quick_log1p(double w) {
    constexpr double sqrt2_minus_1 = 0x1.a827999fcef32p-2;
    const bool large = w > sqrt2_minus_1;
    const double s = large ? (w - 1) / (w + 3) : w / (w + 2);
    return (large ? ln2_double : 0) + 2 * s * inverse_polynomial(s * s);
}

enum class Parity { fractional, even, odd };

Parity parity(float y) {
    if (y >= 0x1p24f || y <= -0x1p24f) return Parity::even;
    const int32_t integer = static_cast<int32_t>(y);
    if (static_cast<float>(integer) != y) return Parity::fractional;
    return integer & 1 ? Parity::odd : Parity::even;
}

float magnitude(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFF); }
bool is_negative(float x) { return std::bit_cast<uint32_t>(x) >> 31 != 0; }
float with_sign(float x, bool negative) { return negative ? -x : x; }

// x^y of finite x > 0 and y. It lies on a rounding boundary only where x is a power of two, which log2
// and exp2 keep exact, or where y = n/2^k > 0 and x is the 2^k-th power of some odd b >= 3 times one of
// two: then b^n < 2^25, so n <= 15 and, as b^(2^k) < 2^24, k <= 3.
float power_of_positive(float x, float y) {
    const double t = y * quick_log2(x);
    float result;
    if (round_quickly(quick_exp2(t), result)) return result;
    const bool may_be_rational = y > 0 && y <= 15 && parity(8 * y) != Parity::fractional;
    return decided(
        [=]<int L>(const Ball<L>& base, const Ball<L>& exponent) {
            if (may_be_rational) {
                Ball<L> root = base, product = 1;
                float n = y;
                for (; parity(n) == Parity::fractional; n *= 2) root = sqrt(root);
                for (; root.is_exact() && n > 0; --n) product = product * root;
                if (root.is_exact() && product.is_exact()) return product;
            }
            return exp2(exponent * log2(base));
        },
        x, y);
}

}  // namespace

float power(float x, float y) {
    if (x == 1 || y == 0) return 1;
    if (x != x || y != y) return nan;
    const float base = magnitude(x);
    if (y == inf || y == -inf) return base == 1 ? 1 : (base > 1) == (y > 0) ? inf : 0;
    const Parity p = parity(y);
    const bool negative = is_negative(x) && p == Parity::odd;
    if (base == 0 || base == inf) return with_sign((base == 0) == (y > 0) ? 0 : inf, negative);
    if (x < 0 && p == Parity::fractional) return nan;
    return with_sign(power_of_positive(base, y), negative);
}

float atan2(float y, float x) {
    if (x != x || y != y) return nan;
    float high = magnitude(x), low = magnitude(y);
    // A zero or an infinity acts as a direction.
    if (high == inf || low == inf) {
        high = high == inf ? 1 : 0;
        low = low == inf ? 1 : 0;
    } else if (low == 0) {
        high = 1;
    }
    const bool left = is_negative(x);
    // Multiples of 45 degrees, which the lanes leave where a quotient is none.
    if (low == 0) return with_sign(left ? 0x1.921fb6p+1f : 0, is_negative(y));
    if (low == high) return with_sign(left ? 0x1.2d97c8p+1f : 0x1.921fb6p-1f, is_negative(y));
    const float result = decided(
        [left]<int L>(const Ball<L>& y, const Ball<L>& x) {
            const Ball<L> angle = atan(y / x);
            return left ? pi<L>() - angle : angle;
        },
        low, high);
    return with_sign(result, is_negative(y));
}

float hypot(float x, float y) {
    const float a = magnitude(x), b = magnitude(y);
    if (a == inf || b == inf) return inf;
    if (a != a || b != b) return nan;
    return decided([](const auto& a, const auto& b) { return sqrt(a * a + b * b); }, a, b);
}

namespace {

// The logarithm of c^x + c^y to a base c: the larger operand plus the logarithm of 1 + c^(low - high).
// The exponent of two, below 200, has a relative error of at most 4 units of 2^-53, that logarithm
// therefore one below 2^-43; the larger operand is exact. The result is irrational (Lindemann and
// Weierstrass; to the base 2, of unequal operands, by the norm of 1 + 2^(low - high)): no boundary, so
// `accurately`, a function of the larger and the smaller operand, decides what float64 cannot.
template <class F>
float log_of_sum(float x, float y, double ln_base, const F& accurately) {
    if (x != x || y != y) return nan;
    const float high = x > y ? x : y, low = x > y ? y : x;
    if (high == inf || low == -inf) return high + 0.0f;  // ln(e^-0 + 0) is +0
    const double t = (static_cast<double>(low) - high) * (ln_base / ln2_double);
    const double rest = quick_log1p(quick_exp2(t)) * (1 / ln_base);
    const double sum = high + rest;
    float result;
    if (round_quickly(sum, rest * 0x1p-43 + __builtin_fabs(sum) * 0x1p-50, result)) return result;
    return decided(accurately, high, low);
}

}  // namespace

float logaddexp(float x, float y) {
    return log_of_sum(x, y, 1,
                      [](const auto& high, const auto& low) { return high + log1p(exp(low - high)); });
}

float logaddexp2(float x, float y) {
    if (x == y) return x + 1;
    return log_of_sum(x, y, ln2_double, []<int L>(const Ball<L>& high, const Ball<L>& low) {
        return high + log1p(exp2(low - high)) * inverse_ln2<L>();
    });
}

}  // namespace neuronsim::accurate
