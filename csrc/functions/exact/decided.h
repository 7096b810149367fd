// Ziv's strategy: the precision doubles until the ball decides the rounding.
#pragma once

#include <limits>

#include "functions/exact/ball_functions.h"
#include "machine/interrupt.h"

namespace neuronsim::accurate {

inline constexpr float inf = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

inline constexpr int first_limbs = 4, last_limbs = 16;

// Values on a rounding boundary come from exact balls; the nearest others known are 2^-300 away (y/x in
// atan2), far above the last level, at which the midpoint would decide.
template <int L = first_limbs, class F, class... X>
float decided(const F& f, X... x) {
    note_work(L * 1024);  // microseconds
    Ball<L> ball = f(Ball<L>(x)...);
    float result = 0;
    if (round(ball, result)) return result;
    if constexpr (L < last_limbs) return decided<2 * L>(f, x...);
    if (!ball.has_sign()) return nan;
    ball.radius = {};
    round(ball, result);
    return result;
}

}  // namespace neuronsim::accurate
