#include <algorithm>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "products/strategies.h"

namespace neuronsim {

namespace {

// Along the contraction, the elements of each operand side by side.
bool is_line(const ProductOperand& x) {
    return x.dtype == DType::float32 && x.depth.size() == 1 && x.depth[0].stride == sizeof(float) &&
           reinterpret_cast<uintptr_t>(x.data) % sizeof(float) == 0;
}

}  // namespace

bool is_of_lines(const ProductCall& c) {
    constexpr int64_t least_sums = 4;  // that a kernel has to do at once
    if (axes_size(c.a.vectors) != 1 || axes_size(c.b.vectors) != 1 || !is_line(c.a) || !is_line(c.b))
        return false;
    return axes_size(c.result.batch) * ceil_divide(c.a.depth[0].size, c.how.tile) >= least_sums;
}

void product_of_lines(const ProductCall& c) {
    const Kernels& k = kernels();
    const int64_t depth = axes_size(c.a.depth), lines = axes_size(c.result.batch);
    const int64_t tile = std::min(c.how.tile, depth), whole = depth / tile, rest = depth % tile;
    const int64_t tiles = whole + (rest > 0 ? 1 : 0);
    float* const sums = per_thread<Workspace>([] {}).get<float>(lines * tiles);
    // Tiles of `steps`, `of_line` of each line from its tile `first` on, a lane each.
    const auto sum_tiles = [&](int64_t first, int64_t of_line, int64_t steps) {
        constexpr int64_t least_work = 1 << 15;  // of a thread
        const int64_t groups = ceil_divide(lines * of_line, k.lanes);
        parallel_for(groups, 1 + least_work / (k.lanes * steps), [&](int64_t begin, int64_t end) {
            const float *a[max_lanes], *b[max_lanes];
            float *to[max_lanes], found[max_lanes];
            for (int64_t g = begin; g < end; ++g) {
                const int64_t at = g * k.lanes,
                              count = std::min<int64_t>(k.lanes, lines * of_line - at);
                int64_t line = at / of_line, t = at % of_line;
                for (int64_t i = 0; i < count; ++i) {
                    const auto place = [&](const ProductOperand& x) {
                        const char* const begins = x.data + axes_offset(x.batch, line);
                        return reinterpret_cast<const float*>(begins) + (first + t) * tile;
                    };
                    a[i] = place(c.a);
                    b[i] = place(c.b);
                    to[i] = sums + line * tiles + first + t;
                    if (++t == of_line) ++line, t = 0;
                }
                note_work(count * steps);
                k.line_sums(a, b, static_cast<int>(count), steps, found);
                for (int64_t i = 0; i < count; ++i) *to[i] = found[i];
            }
        });
    };
    sum_tiles(0, whole, tile);
    if (rest > 0) sum_tiles(whole, 1, rest);
    // A line's sum stands where its first tile's did.
    for (int64_t line = 0; line < lines; ++line) {
        float psum = 0.0f;
        for (int64_t t = 0; t < tiles; ++t) psum += sums[line * tiles + t];
        sums[line] = psum;
    }
    const StoreRowsKernel store = k.store_rows[c.result.dtype];
    const int64_t size = storage_bytes(c.result.dtype);
    for (int64_t line = 0, n = 0; line < lines; line += n) {
        n = c.result.batch.back().stride == size ? run_length(c.result.batch, line, lines - line) : 1;
        store(sums + line, 0, 1, static_cast<int>(n), c.result.data + axes_offset(c.result.batch, line),
              0);
    }
}

}  // namespace neuronsim
