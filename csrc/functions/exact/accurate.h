// The float32 functions of rules E3 and E4, correctly rounded for every input. Those of one variable
// are slow (microseconds): what a quick step with an error bound cannot decide comes here.
#pragma once

namespace neuronsim::accurate {

float exp(float x);
float exp2(float x);
float expm1(float x);
float log(float x);
float log2(float x);
float log10(float x);
float log1p(float x);
float sin(float x);
float cos(float x);
float tan(float x);
float asin(float x);
float acos(float x);
float atan(float x);
float sinh(float x);
float cosh(float x);
float tanh(float x);
float asinh(float x);
float acosh(float x);
float atanh(float x);
float erf(float x);
float erfc(float x);
float cbrt(float x);
float rsqrt(float x);
float sigmoid(float x);
float silu(float x);
float gelu(float x);
float gelu_tanh(float x);
float gelu_sigmoid(float x);
float softplus(float x);
float mish(float x);
float erf_dx(float x);
float silu_dx(float x);
float gelu_dx(float x);
float gelu_sigmoid_dx(float x);

// These are quick: they come to ball arithmetic only where float64 cannot decide.
float power(float x, float y);
float atan2(float y, float x);
float hypot(float x, float y);
float logaddexp(float x, float y);   // ln(e^x + e^y)
float logaddexp2(float x, float y);  // log2(2^x + 2^y)

}  // namespace neuronsim::accurate
