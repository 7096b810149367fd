// The functions of one operand (E3).
#include "functions/exact/accurate.h"
#include "functions/exact/decided.h"

namespace neuronsim::accurate {
namespace {

struct Limits {
    float minus, plus;  // at -Inf and +Inf
};

template <class F>
float evaluate(float x, Limits limits, const F& f) {
    if (x != x) return nan;
    if (x == inf) return limits.plus;
    if (x == -inf) return limits.minus;
    const float result = decided(f, x);
    return x == 0 && result == 0 ? x : result;  // what is zero at zero keeps its sign (E3)
}

// The logistic function σ.
template <int L>
Ball<L> sigmoid(const Ball<L>& x) {
    return 1 / (1 + exp(-x));
}

// d/dx x σ(ax) = σ(u) (1 + u σ(-u)), u = ax
template <int L>
Ball<L> swish_derivative(const Ball<L>& u) {
    return sigmoid(u) * (1 + u * sigmoid(-u));
}

template <int L>
const Ball<L>& sqrt_half() {
    static const Ball<L> value = sqrt(Ball<L>(1).scaled(-1));
    return value;
}

template <int L>
const Ball<L>& ln10() {
    static const Ball<L> value = log(Ball<L>(10));
    return value;
}

// 1.702 x
template <int L>
Ball<L> times_1702_thousandths(const Ball<L>& x) {
    return over(851 * x, 500);
}

}  // namespace

#define EVALUATED(name, minus, plus, ...) \
    float name(float x) { return evaluate(x, {minus, plus}, []<int L>(const Ball<L>& x) __VA_ARGS__); }

EVALUATED(exp, 0, inf, { return exp(x); })
EVALUATED(exp2, 0, inf, { return exp2(x); })
EVALUATED(expm1, -1, inf, { return expm1(x); })

// Logarithms, which begin at a pole.
#define EVALUATED_FROM(name, pole, ...)                                          \
    float name(float x) {                                                        \
        if (x <= pole) return x < pole ? nan : -inf;                             \
        return evaluate(x, {nan, inf}, []<int L>(const Ball<L>& x) __VA_ARGS__); \
    }

EVALUATED_FROM(log, 0, { return log(x); })
EVALUATED_FROM(log2, 0, { return log2(x); })
EVALUATED_FROM(log10, 0, { return log(x) / ln10<L>(); })
EVALUATED_FROM(log1p, -1, { return log1p(x); })

EVALUATED(sin, nan, nan, { return sine_cosine(x).sine; })
EVALUATED(cos, nan, nan, { return sine_cosine(x).cosine; })
EVALUATED(tan, nan, nan, {
    const auto [sine, cosine] = sine_cosine(x);
    return sine / cosine;
})

float asin(float x) {
    if (x < -1 || x > 1) return nan;
    return evaluate(x, {nan, nan},
                    [](auto x) { return atan(x / (1 + sqrt((1 - x) * (1 + x)))).scaled(1); });
}

float acos(float x) {
    if (x < -1 || x > 1) return nan;
    if (x == 1) return 0;
    return evaluate(x, {nan, nan}, []<int L>(Ball<L> x) {
        return (pi<L>().scaled(-2) - atan(x / (1 + sqrt((1 - x) * (1 + x))))).scaled(1);
    });
}

constexpr float right_angle = 0x1.921fb6p+0f;
EVALUATED(atan, -right_angle, right_angle, { return atan(x); })
EVALUATED(sinh, -inf, inf, {
    if (x.exponent < 0) return x * factorial_series(1, 2, x * x);
    const auto e = exp(x);
    return (e - 1 / e).scaled(-1);
})
EVALUATED(cosh, inf, inf, {
    const auto e = exp(x);
    return (e + 1 / e).scaled(-1);
})
EVALUATED(tanh, -1, 1, {
    const auto e = expm1(x.scaled(1));
    return e / (e + 2);
})
EVALUATED(asinh, -inf, inf, {
    const auto a = x.magnitude(), z = a * a;
    const auto result = log1p(a + z / (1 + sqrt(1 + z)));
    return x.negative ? -result : result;
})

float acosh(float x) {
    if (x < 1) return nan;
    return evaluate(x, {nan, inf}, [](auto x) {
        const auto d = x - 1;
        return log1p(d + sqrt(d * (x + 1)));
    });
}

float atanh(float x) {
    if (x < -1 || x > 1) return nan;
    if (x == 1 || x == -1) return x * inf;
    return evaluate(x, {nan, nan}, [](auto x) { return log1p(x.scaled(1) / (1 - x)).scaled(-1); });
}

EVALUATED(erf, -1, 1, { return erf(x); })
EVALUATED(erfc, 2, 0, { return erfc(x); })

float cbrt(float x) {
    if (x == 0) return x;
    return evaluate(x, {-inf, inf}, [](auto x) {
        const auto root = exp(over(log(x.magnitude()), 3));
        return x.negative ? -root : root;
    });
}

float rsqrt(float x) {
    if (x == 0) return 1 / x;
    if (x < 0) return nan;
    return evaluate(x, {nan, 0}, [](auto x) { return 1 / sqrt(x); });
}

EVALUATED(sigmoid, 0, 1, { return sigmoid(x); })
EVALUATED(silu, -0.0f, inf, { return x * sigmoid(x); })
EVALUATED(gelu, -0.0f, inf, { return (x * erfc(-(x * sqrt_half<L>()))).scaled(-1); })
// x/2 (1 + tanh u) = x σ(2u)
EVALUATED(gelu_tanh, -0.0f, inf, {
    const Ball<L> cubic = x + over(over(44715 * x * x * x, 1000), 1000);
    // 2 √(2/π) = √2 · 2/√π
    return x * sigmoid((sqrt_half<L>() * inverse_sqrt_pi<L>() * cubic).scaled(2));
})
EVALUATED(gelu_sigmoid, -0.0f, inf, { return x * sigmoid(times_1702_thousandths(x)); })
EVALUATED(softplus, 0, inf, {
    const auto tail = log1p(exp(-x.magnitude()));
    return x.negative ? tail : x + tail;
})
// with n = e^x, tanh(ln(1 + n)) = n(n + 2) / (n(n + 2) + 2)
EVALUATED(mish, -0.0f, inf, {
    const auto n = exp(x), m = n * (n + 2);
    return x * m / (m + 2);
})
EVALUATED(erf_dx, 0, 0, { return (inverse_sqrt_pi<L>() * exp(-(x * x))).scaled(1); })
EVALUATED(silu_dx, -0.0f, 1, { return swish_derivative(x); })
// Φ(x) + x φ(x)
EVALUATED(gelu_dx, -0.0f, 1, {
    const Ball<L> t = x * sqrt_half<L>();
    return (erfc(-t) + t * inverse_sqrt_pi<L>() * exp(-(x * x).scaled(-1)).scaled(1)).scaled(-1);
})
EVALUATED(gelu_sigmoid_dx, -0.0f, 1, { return swish_derivative(times_1702_thousandths(x)); })

#undef EVALUATED
#undef EVALUATED_FROM

}  // namespace neuronsim::accurate
