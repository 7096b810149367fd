#include <algorithm>
#include <vector>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/exact_sum.h"
#include "products/strategies.h"

namespace neuronsim {

void product_exact(const ProductOperand& a, const ProductOperand& b, const ProductResult& result,
                   const Numerics& numerics, Draw draw) {
    const Kernels& k = kernels();
    const int64_t rows = axes_size(result.rows), columns = axes_size(result.columns),
                  depth = axes_size(a.depth);
    const Packer a_packer(k, a, ProductForm::fma, numerics), b_packer(k, b, ProductForm::fma, numerics);
    const int size = storage_bytes(result.dtype);
    parallel_for(axes_size(result.batch) * rows, 1, [&](int64_t begin, int64_t end) {
        constexpr int64_t piece = 4096;
        std::vector<float> x(piece), y(piece);
        Tile tile;
        for (int64_t job = begin; job < end; ++job) {
            const int64_t batch = job / rows, row = job % rows;
            const auto stage = [&](const Packer& packer, const ProductOperand& operand, int64_t vector,
                                   int64_t at, int64_t count, std::vector<float>& to) {
                packer.stage_block(operand.data + axes_offset(operand.batch, batch), vector, 1, at,
                                   count, false, 0, reinterpret_cast<char*>(to.data()));
            };
            for (int64_t j = 0; j < columns; ++j) {
                ExactSum sum;
                for (int64_t at = 0; at < depth; at += piece) {
                    const int64_t count = std::min(piece, depth - at);
                    note_work(8 * count);
                    if (j == 0 || depth > piece) stage(a_packer, a, row, at, count, x);
                    stage(b_packer, b, j, at, count, y);
                    for (int64_t i = 0; i < count; ++i)
                        sum.add_product(x[static_cast<size_t>(i)], y[static_cast<size_t>(i)]);
                }
                tile.f64[0] = sum.rounded_to_odd();
                // From float64 by round-to-odd, one rounding is that of the exact value (C1).
                const bool nearest = result.dtype == DType::float32 || numerics.stochastic;
                Tile narrow;
                k.to_float32[static_cast<int>(Domain::float64)](
                    &narrow, &tile, 1, nearest ? Narrowing::nearest : Narrowing::odd);
                if (narrow.f32[0] != narrow.f32[0]) narrow.f32[0] = __builtin_nanf("");
                const int64_t at = axes_offset(result.batch, batch) + axes_offset(result.rows, row) +
                                   axes_offset(result.columns, j);
                round_values(k, result.dtype, numerics, draw, draw.first + at / size, &narrow, 1);
                k.store[static_cast<int>(result.dtype)](&narrow, 1, result.data + at);
            }
        }
    });
}

}  // namespace neuronsim
