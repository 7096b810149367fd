#include <algorithm>
#include <memory>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/strategies.h"

namespace neuronsim {

void product_integer(const ProductCall& call) {
    const ProductOperand &a = call.a, &b = call.b;
    const ProductResult& result = call.result;
    const Kernels& k = kernels();
    const int64_t rows = axes_size(result.rows), columns = axes_size(result.columns),
                  depth = axes_size(a.depth);
    const int size = storage_bytes(result.dtype);
    const LoadKernel load_a = k.load[static_cast<int>(a.dtype)];
    const LoadKernel load_b = k.load[static_cast<int>(b.dtype)];
    const int64_t pieces = blocks(columns, tile_elements);
    parallel_for(axes_size(result.batch) * rows * pieces, 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[3]);
        Tile &total = tiles[0], &row = tiles[1], &element = tiles[2];
        for (int64_t job = begin; job < end; ++job) {
            const int64_t first = job % pieces * tile_elements, at = job / pieces;
            const int n = static_cast<int>(std::min<int64_t>(columns - first, tile_elements));
            const char* pa =
                a.data + axes_offset(a.batch, at / rows) + axes_offset(a.vectors, at % rows);
            const char* pb = b.data + axes_offset(b.batch, at / rows);
            for (int i = 0; i < n; ++i) total.u64[i] = 0;
            for (int64_t i = 0; i < depth; ++i) {
                note_work(n);
                load_a(pa + axes_offset(a.depth, i), 0, 1, &element);
                const char* line = pb + axes_offset(b.depth, i);
                for (int64_t j = 0; j < n;) {
                    const int64_t run = run_length(b.vectors, first + j, n - j);
                    load_b(line + axes_offset(b.vectors, first + j), b.vectors.back().stride,
                           static_cast<int>(run), row.u64 + j);
                    j += run;
                }
                const uint64_t x = element.u64[0];
                if (result.dtype == DType::boolean) {
                    for (int j = 0; j < n; ++j) total.u64[j] |= x != 0 && row.u64[j] != 0;
                } else {
                    for (int j = 0; j < n; ++j) total.u64[j] += x * row.u64[j];
                }
            }
            k.round[static_cast<int>(result.dtype)](&total, n);
            char* out = result.data + axes_offset(result.batch, at / rows) +
                        axes_offset(result.rows, at % rows);
            const bool adjacent = result.columns.back().stride == size;
            for (int64_t j = 0; j < n;) {
                const int64_t run = adjacent ? run_length(result.columns, first + j, n - j) : 1;
                k.store[static_cast<int>(result.dtype)](total.u64 + j, static_cast<int>(run),
                                                        out + axes_offset(result.columns, first + j));
                j += run;
            }
        }
    });
}

}  // namespace neuronsim
