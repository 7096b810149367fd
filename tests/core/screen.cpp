// Which results of a function cannot be right, or are too near a tie to tell in double (E3, E4).
// Built by screening.py as a shared library. The exact value is taken to lie within a relative
// slack of what this system's libm and the compositions below give in double: a result is certain
// when both ends of that interval round to it. What is left goes to a better judge.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

constexpr double INF = std::numeric_limits<double>::infinity();

// glibc's largest documented error of these functions is 5 units of 2^-53; an argument's rounding
// grows in exp and erfc by at most 2^8 before float32 underflows.
constexpr double SLACK = 0x1p-42;

// A value and the magnitude that its errors are relative to: more than its own where terms cancel.
struct Value {
    double value, magnitude;
    Value(double v) : value(v), magnitude(std::fabs(v)) {}
    Value(double v, double m) : value(v), magnitude(m) {}
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

double normal_cdf(double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }

double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// x tanh(softplus(x)), in e^x alone; 2 e^-2x is nothing beside 1 from 40 on.
double mish(double x) {
    const double e = std::exp(x), n = e * (e + 2);
    return x > 40 ? x : x * (n / (n + 2));
}

// x f(x), where f goes to 0 faster than x to -Inf and f(x) = 1/2 + c x + ... with a positive c: near 0
// the product lies between x/2 and the next double above it.
Value weighted(double x, double f) {
    if (x == -INF) return -0.0;
    if (x != 0 && std::fabs(x) < 0x1p-60) return {std::nextafter(x / 2, INF), 0};
    return x * f;
}

// The derivative of x logistic(c x).
Value logistic_product_slope(double c, double x) {
    if (std::isinf(x)) return x > 0 ? 1.0 : -0.0;
    const double s = logistic(c * x), t = c * x * logistic(-c * x);
    return {s * (1 + t), s * (1 + std::fabs(t))};
}

Value gelu_slope(double x) {
    if (std::isinf(x)) return x > 0 ? 1.0 : -0.0;
    const double t = x * std::exp(-0.5 * x * x) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
    const double v = normal_cdf(x) + t;
    return {v == 0 ? -0.0 : v, normal_cdf(x) + std::fabs(t)};
}

double gelu_tanh_logit(double x) { return M_2_SQRTPI * M_SQRT2 * (x + 0.044715 * x * x * x); }

// The logarithm of c^x + c^y to the base c.
Value log_of_sum(double x, double y, double ln_base) {
    const double high = x > y ? x : y, low = x > y ? y : x;
    if (x != x || y != y) return x + y;
    if (std::isinf(high) || std::isinf(low)) return high + 0.0;
    const double rest = std::log1p(std::exp((low - high) * ln_base)) / ln_base, sum = high + rest;
    // Terms that cancel are not exactly zero.
    const double value = sum == 0 && high != 0 ? std::numeric_limits<double>::denorm_min() : sum;
    return {value, std::fabs(sum) + rest};
}

struct Function {
    const char* name;
    Value (*evaluate)(double);
};

struct PairFunction {
    const char* name;
    Value (*evaluate)(double, double);
};

#define ROW(name, ...) {#name, [](double x) -> Value { return __VA_ARGS__; }}
constexpr Function FUNCTIONS[] = {
    ROW(exp, std::exp(x)),
    ROW(exp2, std::exp2(x)),
    ROW(expm1, std::expm1(x)),
    ROW(log, std::log(x)),
    ROW(log2, std::log2(x)),
    ROW(log10, std::log10(x)),
    ROW(log1p, std::log1p(x)),
    ROW(sin, std::sin(x)),
    ROW(cos, std::cos(x)),
    ROW(tan, std::tan(x)),
    ROW(asin, std::asin(x)),
    ROW(acos, std::acos(x)),
    ROW(atan, std::atan(x)),
    ROW(sinh, std::sinh(x)),
    ROW(cosh, std::cosh(x)),
    ROW(tanh, std::tanh(x)),
    ROW(asinh, std::asinh(x)),
    ROW(acosh, std::acosh(x)),
    ROW(atanh, std::atanh(x)),
    ROW(erf, std::erf(x)),
    ROW(erfc, std::erfc(x)),
    ROW(rsqrt, 1 / std::sqrt(x)),
    ROW(sqrt, std::sqrt(x)),
    ROW(reciprocal, 1 / x),
    ROW(cbrt, std::cbrt(x)),
    ROW(sigmoid, logistic(x)),
    ROW(silu, weighted(x, logistic(x))),
    ROW(gelu, weighted(x, normal_cdf(x))),
    ROW(gelu_tanh, weighted(x, logistic(gelu_tanh_logit(x)))),
    ROW(gelu_sigmoid, weighted(x, logistic(1.702 * x))),
    ROW(softplus, softplus(x)),
    ROW(mish, x == -INF ? -0.0 : mish(x)),
    ROW(erf_dx, M_2_SQRTPI* std::exp(-x* x)),
    ROW(silu_dx, logistic_product_slope(1, x)),
    ROW(gelu_dx, gelu_slope(x)),
    ROW(gelu_sigmoid_dx, logistic_product_slope(1.702, x)),
};

#define PAIR_ROW(name, ...) {#name, [](double x, double y) -> Value { return __VA_ARGS__; }}
constexpr PairFunction PAIR_FUNCTIONS[] = {
    PAIR_ROW(power, std::pow(x, y)),
    PAIR_ROW(atan2, std::atan2(x, y)),
    PAIR_ROW(hypot, std::hypot(x, y)),
    PAIR_ROW(logaddexp, log_of_sum(x, y, 1)),
    PAIR_ROW(logaddexp2, log_of_sum(x, y, M_LN2)),
};

template <typename Row, size_t N>
const Row* find(const Row (&rows)[N], const char* name) {
    for (const Row& row : rows)
        if (std::strcmp(row.name, name) == 0) return &row;
    return nullptr;
}

float as_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

uint32_t as_bits(double x) {
    const float rounded = static_cast<float>(x);
    uint32_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    return rounded != rounded ? 0x7FC00000u : bits;
}

struct Ends {
    uint32_t low, high;
};

// The float32 words of both ends of the interval. Zeros, infinities and NaN are exact.
Ends rounded(Value v, double slack) {
    if (v.value == 0 || !std::isfinite(v.value)) return {as_bits(v.value), as_bits(v.value)};
    const double width = v.magnitude * slack;
    return {as_bits(v.value - width), as_bits(v.value + width)};
}

}  // namespace

// The places of the results that are not certain, at most `count`; their number, or -1 for a name
// that is not known.
extern "C" int64_t screen(const char* name, int64_t count, const uint32_t* x, const uint32_t* result,
                          int64_t* places) {
    const Function* f = find(FUNCTIONS, name);
    if (!f) return -1;
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i) {
        const Ends ends = rounded(f->evaluate(as_float(x[i])), SLACK);
        if (ends.low != result[i] || ends.high != result[i]) places[n++] = i;
    }
    return n;
}

extern "C" int64_t screen_pairs(const char* name, int64_t count, const uint32_t* x, const uint32_t* y,
                                const uint32_t* result, int64_t* places) {
    const PairFunction* f = find(PAIR_FUNCTIONS, name);
    if (!f) return -1;
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i) {
        const Ends ends = rounded(f->evaluate(as_float(x[i]), as_float(y[i])), SLACK);
        if (ends.low != result[i] || ends.high != result[i]) places[n++] = i;
    }
    return n;
}

// The words from first to last whose exact value lies within `distance`, relative to the value, of a
// boundary between two roundings: the first `room` of them, and how many there are.
extern "C" int64_t near_ties(const char* name, uint32_t first, uint32_t last, double distance,
                             uint32_t* words, int64_t room) {
    const Function* f = find(FUNCTIONS, name);
    if (!f) return -1;
    int64_t n = 0;
    for (uint64_t x = first; x <= last; ++x) {
        const Ends ends = rounded(f->evaluate(as_float(static_cast<uint32_t>(x))), distance);
        if (ends.low != ends.high) {
            if (n < room) words[n] = static_cast<uint32_t>(x);
            ++n;
        }
    }
    return n;
}
