#include <algorithm>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/strategies.h"

namespace neuronsim {

void product_streamed(const ProductCall& call) {
    const ProductOperand &a = call.a, &b = call.b;
    const ProductResult& result = call.result;
    const Accumulation& how = call.how;
    const Kernels& k = kernels();
    const int64_t rows = axes_size(a.vectors), depth = axes_size(a.depth);
    const int64_t columns = axes_size(result.columns);
    const Axis &d = b.depth.back(), &v = b.vectors.back(), &out = result.columns.back();
    constexpr int64_t all_sums = 4096;  // that stay in the first cache
    const int64_t strip = all_sums / rows / k.lanes * k.lanes;
    const int64_t share = ceil_divide(ceil_divide(columns, thread_count()), k.lanes) * k.lanes;
    const int64_t width = std::min(strip, share);
    // Of b, in the caches until the last rows have taken them.
    constexpr int64_t together = 4;
    const int64_t steps = rows <= together ? tile_elements / rows : 16;
    const StreamKernel stream = k.product_stream[b.dtype];
    parallel_for(ceil_divide(columns, width), 1, [&](int64_t begin, int64_t end) {
        alignas(64) float acc[all_sums], psum[all_sums];
        float taken[tile_elements];  // of a's rows
        for (int64_t s = begin; s < end; ++s) {
            const int n = static_cast<int>(std::min(width, columns - s * width));
            std::fill_n(psum, rows * n, 0.0f);
            for (int64_t at = 0; at < depth;) {
                const int64_t tile_end = std::min(depth, (at / how.tile + 1) * how.tile);
                std::fill_n(acc, rows * n, 0.0f);
                while (at < tile_end) {
                    const int count =
                        static_cast<int>(std::min(run_length(a.depth, at, tile_end - at), steps));
                    for (int64_t r = 0; r < rows; ++r)
                        k.load[a.dtype](a.data + axes_offset(a.vectors, r) + axes_offset(a.depth, at),
                                        a.depth.back().stride, count, taken + r * steps);
                    note_work(rows * count * n);
                    stream(taken, steps, static_cast<int>(rows),
                           b.data + at * d.stride + s * width * v.stride, d.stride, count, n, acc);
                    at += count;
                }
                for (int64_t j = 0; j < rows * n; ++j) psum[j] += acc[j];
            }
            for (int64_t r = 0; r < rows; ++r)
                k.store_rows[result.dtype](
                    psum + r * n, 0, 1, n,
                    result.data + axes_offset(result.rows, r) + s * width * out.stride, 0);
        }
    });
}

}  // namespace neuronsim
