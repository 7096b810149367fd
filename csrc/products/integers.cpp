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
    const auto load = [&](DType t, const char* from, ptrdiff_t stride, int n, uint64_t* words) {
        Tile tile;
        k.load[t](from, stride, n, &tile);
        const DType wide = is_signed_integer(t) ? DType::int64 : DType::uint64;
        k.to_integer[domain_of(t)][wide](words, &tile, n, FloatToInt::truncate);
    };
    const int64_t pieces = ceil_divide(columns, tile_elements);
    parallel_for(axes_size(result.batch) * rows * pieces, 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[3]);
        Tile &total = tiles[0], &row = tiles[1], &narrow = tiles[2];
        for (int64_t job = begin; job < end; ++job) {
            const int64_t first = job % pieces * tile_elements, at = job / pieces;
            const int n = static_cast<int>(std::min<int64_t>(columns - first, tile_elements));
            const char* pa =
                a.data + axes_offset(a.batch, at / rows) + axes_offset(a.vectors, at % rows);
            const char* pb = b.data + axes_offset(b.batch, at / rows);
            for (int i = 0; i < n; ++i) total.u64[i] = 0;
            for (int64_t i = 0; i < depth; ++i) {
                note_work(n);
                uint64_t x;
                load(a.dtype, pa + axes_offset(a.depth, i), 0, 1, &x);
                const char* line = pb + axes_offset(b.depth, i);
                for (int64_t j = 0; j < n;) {
                    const int64_t run = run_length(b.vectors, first + j, n - j);
                    load(b.dtype, line + axes_offset(b.vectors, first + j), b.vectors.back().stride,
                         static_cast<int>(run), row.u64 + j);
                    j += run;
                }
                if (result.dtype == DType::boolean) {
                    for (int j = 0; j < n; ++j) total.u64[j] |= x != 0 && row.u64[j] != 0;
                } else {
                    for (int j = 0; j < n; ++j) total.u64[j] += x * row.u64[j];
                }
            }
            constexpr Domain whole = Domain::uint64;
            if (result.dtype == DType::boolean) k.to_bool[whole](&narrow, &total, n);
            else k.to_integer[whole][result.dtype](&narrow, &total, n, FloatToInt::truncate);
            const char* const words = reinterpret_cast<const char*>(&narrow);
            const int computed = computed_bytes(result.dtype);
            char* out = result.data + axes_offset(result.batch, at / rows) +
                        axes_offset(result.rows, at % rows);
            const bool adjacent = result.columns.back().stride == size;
            for (int64_t j = 0; j < n;) {
                const int64_t run = adjacent ? run_length(result.columns, first + j, n - j) : 1;
                k.store[result.dtype](words + j * computed, static_cast<int>(run),
                                      out + axes_offset(result.columns, first + j));
                j += run;
            }
        }
    });
}

}  // namespace neuronsim
