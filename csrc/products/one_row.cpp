#include <algorithm>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/strategies.h"

namespace neuronsim {

void product_of_row(const ProductCall& call) {
    const ProductOperand &a = call.a, &b = call.b;
    const ProductResult& result = call.result;
    const Accumulation& how = call.how;
    const Kernels& k = kernels();
    const int64_t depth = axes_size(a.depth), columns = axes_size(result.columns);
    const Axis &d = b.depth.back(), &v = b.vectors.back(), &out = result.columns.back();
    constexpr int64_t strip = 4096;  // columns whose sums stay in the first cache
    const int64_t share = blocks(blocks(columns, thread_count()), k.lanes) * k.lanes;
    const int64_t width = std::min(strip, share);
    const StreamKernel stream = k.product_stream[static_cast<int>(b.dtype)];
    parallel_for(blocks(columns, width), 1, [&](int64_t begin, int64_t end) {
        alignas(64) float acc[strip], psum[strip];
        Tile row;
        for (int64_t s = begin; s < end; ++s) {
            const int n = static_cast<int>(std::min(width, columns - s * width));
            std::fill_n(psum, n, 0.0f);
            for (int64_t at = 0; at < depth;) {
                const int64_t tile_end = std::min(depth, (at / how.tile + 1) * how.tile);
                std::fill_n(acc, n, 0.0f);
                while (at < tile_end) {
                    const int count = static_cast<int>(
                        std::min<int64_t>(run_length(a.depth, at, tile_end - at), tile_elements));
                    k.load[static_cast<int>(a.dtype)](a.data + axes_offset(a.depth, at),
                                                      a.depth.back().stride, count, &row);
                    note_work(int64_t{count} * n);
                    stream(row.f32, b.data + at * d.stride + s * width * v.stride, d.stride, count, n,
                           acc);
                    at += count;
                }
                for (int j = 0; j < n; ++j) psum[j] += acc[j];
            }
            k.store_rows[static_cast<int>(result.dtype)](psum, 0, 1, n,
                                                         result.data + s * width * out.stride, 0);
        }
    });
}

}  // namespace neuronsim
