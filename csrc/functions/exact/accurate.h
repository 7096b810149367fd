// The float32 functions of rules E3 and E4, correctly rounded for every input. Those of one operand
// are slow (microseconds): what a quick step with an error bound cannot decide comes here.
#pragma once

namespace neuronsim::accurate {

#define FUNCTION(name) float name(float x);
#include "ops.def"

// So are these, of what functions/fast/rounded.h leaves over.
float atan2(float y, float x);
float hypot(float x, float y);
// These are quick: they come to ball arithmetic only where float64 cannot decide.
float power(float x, float y);
float logaddexp(float x, float y);   // ln(e^x + e^y)
float logaddexp2(float x, float y);  // log2(2^x + 2^y)

}  // namespace neuronsim::accurate
