#include <functional>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/strategies.h"

namespace neuronsim {
namespace {

constexpr int64_t few = 16;  // rows, columns and steps

// The form in which single elements are multiplied: what may be multiplied in pairs has the same bits
// by fma (M2), and integers' sums are those modulo 2^32.
ProductForm form_of(const Kernels& k, const ProductCall& c) {
    if (!is_device_float(c.result.dtype)) return ProductForm::words;
    const ProductForm form = product_form(k, c.a.type(), c.b.type(), c.how, c.numerics, few);
    return form == ProductForm::pairs ? ProductForm::fma : form;
}

// Whether each of the operand's vectors and its depth are one axis of what the kernels take.
bool lies_as_packed(const ProductOperand& x, const Packer& packer) {
    return packer.is_stored_as_packed() && x.vectors.size() == 1 && x.depth.size() == 1;
}

}  // namespace

bool is_small(const ProductCall& c) {
    const Kernels& k = kernels();
    const int64_t depth = axes_size(c.a.depth), columns = axes_size(c.b.vectors);
    return c.packed == nullptr && !c.a.holds_words && axes_size(c.a.vectors) <= few &&
           columns <= std::min<int64_t>(few, k.product_vectors * k.lanes) && depth <= few &&
           depth > 0 && (!is_device_float(c.result.dtype) || depth <= c.how.tile) &&
           step_words(form_of(k, c)) == 1;
}

void product_small(const ProductCall& call, Draw draw) {
    const Kernels& k = kernels();
    const ProductOperand &a = call.a, &b = call.b;
    const ProductForm form = form_of(k, call);
    const int64_t rows = axes_size(a.vectors), columns = axes_size(b.vectors),
                  depth = axes_size(a.depth);
    const int64_t vectors = blocks(columns, k.lanes), width = vectors * k.lanes;
    const Packer a_packer(k, a, form, call.numerics), b_packer(k, b, form, call.numerics);
    const bool reads_a = lies_as_packed(a, a_packer);
    const bool reads_b = lies_as_packed(b, b_packer) && columns == width && b.vectors[0].stride == 4 &&
                         b.depth[0].stride == 4 * width;
    const Epilogue epilogue(k, call.result, call.numerics, draw, width);
    const BlockKernel* const kernels_by_rows = k.product[static_cast<int>(form)][vectors - 1];
    const auto body = [&](int64_t begin, int64_t end) {
        alignas(64) float a_block[few * few], b_block[few * few] = {}, sums[few * few];
        const BlockRun run{0, depth, true};
        for (int64_t at = begin; at < end; ++at) {
            note_work(rows * columns * depth);
            const char* from = a.data + axes_offset(a.batch, at);
            const char* with = b.data + axes_offset(b.batch, at);
            ptrdiff_t row = 4 * depth, step = 4;
            if (reads_a) {
                row = a.vectors[0].stride;
                step = a.depth[0].stride;
            } else {
                a_packer.stage_block(from, 0, rows, 0, depth, false, row,
                                     reinterpret_cast<char*>(a_block));
                from = reinterpret_cast<const char*>(a_block);
            }
            if (!reads_b) {
                b_packer.stage_block(with, 0, columns, 0, depth, true, 4 * width,
                                     reinterpret_cast<char*>(b_block));
                with = reinterpret_cast<const char*>(b_block);
            }
            for (int64_t r = 0, n = 0; r < rows; r += n) {
                n = rows - r;
                while (n > max_block_rows || kernels_by_rows[n - 1] == nullptr) --n;
                kernels_by_rows[n - 1]({from + r * row, row, step, &run, &run + 1,
                                        reinterpret_cast<const float*>(with), sums + r * width, width,
                                        true, false});
            }
            epilogue.finish(sums, at, 0, rows, 0, static_cast<int>(columns));
        }
    };
    constexpr int64_t least_work = 1 << 16;  // of a thread
    parallel_for(axes_size(call.result.batch), 1 + least_work / (rows * columns * depth),
                 std::ref(body));
}

}  // namespace neuronsim
