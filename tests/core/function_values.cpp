// The float64 values of the functions before they are rounded (csrc/functions/fast/), as a shared
// library: test_math_tables.py builds it for an instruction set and compares the values with exact
// ones.
#include "functions/exact/accurate.h"
#include "machine/kernels.h"

#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace neuronsim {
namespace {

#include "formats/encoding.h"
//
#include "machine/simd.h"
//
#include "machine/doubles.h"

namespace math {
#include "functions/fast/tables.h"
//
#include "functions/fast/exponential.h"
#include "functions/fast/logarithm.h"
//
#include "functions/fast/error_function.h"
#include "functions/fast/root.h"
#include "functions/fast/trigonometric.h"
}  // namespace math

template <Doubles (*Function)(Doubles)>
void run(int64_t n, const float* in, double* out) {
    for (int64_t i = 0; i < n; i += double_lanes) {
        const Doubles y = Function(widened(read<Floats>(in + i)));
        __builtin_memcpy(out + i, &y, sizeof y);
    }
}

}  // namespace
}  // namespace neuronsim

// The value of each of n elements, n a multiple of 8; false for a function that is not there.
extern "C" bool function_values(const char* name, int64_t n, const float* in, double* out) {
    using namespace neuronsim;
#define FUNCTION(function) \
    if (__builtin_strcmp(name, #function) == 0) return run<math::function>(n, in, out), true;
#include "ops.def"
    return false;
}
