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
Ball<L> sqrt_half(const Ball<L>&) {
    static const Ball<L> value = sqrt(Ball<L>(1).scaled(-1));
    return value;
}

template <int L>
Ball<L> ln10(const Ball<L>&) {
    static const Ball<L> value = log(Ball<L>(10));
    return value;
}

// 1.702 x
template <int L>
Ball<L> times_1702_thousandths(const Ball<L>& x) {
    return over(851 * x, 500);
}

}  // namespace

float exp(float x) {
    return evaluate(x, {0, inf}, [](auto x) { return exp(x); });
}

float exp2(float x) {
    return evaluate(x, {0, inf}, [](auto x) { return exp2(x); });
}

float expm1(float x) {
    return evaluate(x, {-1, inf}, [](auto x) { return expm1(x); });
}

float log(float x) {
    if (x <= 0) return x < 0 ? nan : -inf;
    return evaluate(x, {nan, inf}, [](auto x) { return log(x); });
}

float log2(float x) {
    if (x <= 0) return x < 0 ? nan : -inf;
    return evaluate(x, {nan, inf}, [](auto x) { return log2(x); });
}

float log10(float x) {
    if (x <= 0) return x < 0 ? nan : -inf;
    return evaluate(x, {nan, inf}, [](auto x) { return log(x) / ln10(x); });
}

float log1p(float x) {
    if (x <= -1) return x < -1 ? nan : -inf;
    return evaluate(x, {nan, inf}, [](auto x) { return log1p(x); });
}

float sin(float x) {
    return evaluate(x, {nan, nan}, [](auto x) { return sine_cosine(x).sine; });
}

float cos(float x) {
    return evaluate(x, {nan, nan}, [](auto x) { return sine_cosine(x).cosine; });
}

float tan(float x) {
    return evaluate(x, {nan, nan}, [](auto x) {
        const auto [sine, cosine] = sine_cosine(x);
        return sine / cosine;
    });
}

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

float atan(float x) {
    constexpr float right_angle = 0x1.921fb6p+0f;
    return evaluate(x, {-right_angle, right_angle}, [](auto x) { return atan(x); });
}

float sinh(float x) {
    return evaluate(x, {-inf, inf}, [](auto x) {
        if (x.exponent < 0) return x * factorial_series(1, 2, x * x);
        const auto e = exp(x);
        return (e - 1 / e).scaled(-1);
    });
}

float cosh(float x) {
    return evaluate(x, {inf, inf}, [](auto x) {
        const auto e = exp(x);
        return (e + 1 / e).scaled(-1);
    });
}

float tanh(float x) {
    return evaluate(x, {-1, 1}, [](auto x) {
        const auto e = expm1(x.scaled(1));
        return e / (e + 2);
    });
}

float asinh(float x) {
    return evaluate(x, {-inf, inf}, [](auto x) {
        const auto a = x.magnitude(), z = a * a;
        const auto result = log1p(a + z / (1 + sqrt(1 + z)));
        return x.negative ? -result : result;
    });
}

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

float erf(float x) {
    return evaluate(x, {-1, 1}, [](auto x) { return erf(x); });
}

float erfc(float x) {
    return evaluate(x, {2, 0}, [](auto x) { return erfc(x); });
}

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

float sigmoid(float x) {
    return evaluate(x, {0, 1}, [](auto x) { return sigmoid(x); });
}

float silu(float x) {
    return evaluate(x, {-0.0f, inf}, [](auto x) { return x * sigmoid(x); });
}

float gelu(float x) {
    return evaluate(x, {-0.0f, inf}, [](auto x) { return (x * erfc(-(x * sqrt_half(x)))).scaled(-1); });
}

float gelu_tanh(float x) {  // x/2 (1 + tanh u) = x σ(2u)
    return evaluate(x, {-0.0f, inf}, []<int L>(Ball<L> x) {
        const Ball<L> cubic = x + over(over(44715 * x * x * x, 1000), 1000);
        // 2 √(2/π) = √2 · 2/√π
        return x * sigmoid((sqrt_half(x) * inverse_sqrt_pi<L>() * cubic).scaled(2));
    });
}

float gelu_sigmoid(float x) {
    return evaluate(x, {-0.0f, inf}, [](auto x) { return x * sigmoid(times_1702_thousandths(x)); });
}

float softplus(float x) {
    return evaluate(x, {0, inf}, [](auto x) {
        const auto tail = log1p(exp(-x.magnitude()));
        return x.negative ? tail : x + tail;
    });
}

float mish(float x) {  // with n = e^x, tanh(ln(1 + n)) = n(n + 2) / (n(n + 2) + 2)
    return evaluate(x, {-0.0f, inf}, [](auto x) {
        const auto n = exp(x), m = n * (n + 2);
        return x * m / (m + 2);
    });
}

float erf_dx(float x) {
    return evaluate(x, {0, 0},
                    []<int L>(Ball<L> x) { return (inverse_sqrt_pi<L>() * exp(-(x * x))).scaled(1); });
}

float silu_dx(float x) {
    return evaluate(x, {-0.0f, 1}, [](auto x) { return swish_derivative(x); });
}

float gelu_dx(float x) {  // Φ(x) + x φ(x)
    return evaluate(x, {-0.0f, 1}, []<int L>(Ball<L> x) {
        const Ball<L> t = x * sqrt_half(x);
        return (erfc(-t) + t * inverse_sqrt_pi<L>() * exp(-(x * x).scaled(-1)).scaled(1)).scaled(-1);
    });
}

float gelu_sigmoid_dx(float x) {
    return evaluate(x, {-0.0f, 1}, [](auto x) { return swish_derivative(times_1702_thousandths(x)); });
}

}  // namespace neuronsim::accurate
