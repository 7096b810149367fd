#include "products/product.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/sizes.h"
#include "products/strategies.h"

namespace neuronsim {

// From so many rows side by side in the result on, the vectors run over them.
constexpr int64_t columns_to_turn = 32;

// The most rows that take b as it lies sooner than register blocks do (measured): more of what comes
// from memory, of float16, whose panels are twice as large, and of rows on pages of their own where
// blocks are slow to read these. Bytes are widened once for all rows.
static int64_t rows_to_stream(const ProductOperand& b) {
    constexpr int64_t third_cache = 16 << 20, page = 4096;
    const int64_t size = storage_bytes(b.dtype);
    if (size == 1) return 1;
    if (b.dtype == DType::bfloat16) return 4;
    if (axes_size(b.vectors) * axes_size(b.depth) * size > third_cache) return 16;
    const bool has_pages = b.depth.back().stride >= page && !reads_pages_in_place(kernels());
    return b.dtype == DType::float16 || has_pages ? 8 : 4;
}

// Bytes that lie as the kernels of quads take them are read where they are.
static void read_in_words(ProductOperand& a, const ProductOperand& b) {
    if (a.holds_words || is_device_float(a.type()) || a.prologue != nullptr) return;
    const ProductForm form = integer_form(a.type(), b.type());
    Axis& d = a.depth.back();
    constexpr int64_t half_page = 2048;
    if (!is_quad_form(form) || quad_offset(form, a.type()) != 0 || a.dtype == DType::boolean ||
        d.stride != 1 || d.size % 4 != 0 || push_each_other_out(a.vectors.back(), half_page))
        return;
    d = {d.size / 4, 4};
    a.holds_words = true;
}

Draw ProductCall::placed(char* const* data, const Draws& draws, Observed* observed) {
    a.data = data[0];
    b.data = data[1];
    result.data = data[2];
    for (size_t i = 0; i < result.terms.size(); ++i) result.terms[i].data = data[3 + i];
    result.observed = observed;
    return {draws.seed, draws.ids == nullptr ? 0 : draws.ids[0]};
}

void ProductCall::run(char* const* data, const Draws& draws, Observed* observed) const {
    ProductCall call = *this;
    const Draw draw = call.placed(data, draws, observed);
    if (packed == nullptr || packed->are_packed()) return call.run_collapsed(draw);
    const PackedColumns here = packed->packed_in(data[3 + result.terms.size()]);
    call.packed = &here;
    call.run_collapsed(draw);
}

// Whether it is M2 of floats that are taken as they lie in memory.
static bool is_plain(const ProductCall& c) {
    return is_device_float(c.result.dtype) && c.packed == nullptr && c.numerics.plain() &&
           c.how.model == Accumulate::fma && c.how.type == DType::float32 && c.a.prologue == nullptr &&
           c.b.prologue == nullptr && !c.a.holds_words;
}

// Each element of the batch as a product of few elements, if it is one. The call is collapsed, and
// plain.
static std::optional<FewProduct> few_of(const ProductCall& call) {
    const auto& [a, b, packed, out, how, numerics] = call;
    const auto is_float32 = [](const ProductOperand& x) {
        return x.dtype == DType::float32 && x.vectors.size() == 1 && x.depth.size() == 1;
    };
    if (!is_float32(a) || !is_float32(b) || out.dtype != DType::float32 || out.rows.size() != 1 ||
        out.columns.size() != 1)
        return std::nullopt;
    const int64_t rows = out.rows[0].size, columns = out.columns[0].size, depth = a.depth[0].size;
    const int64_t size = storage_bytes(out.stored());
    if ((columns > 1 && out.columns[0].stride != size) ||
        (rows > 1 && out.rows[0].stride != size * columns) ||
        std::max({rows, columns, depth}) > FewProduct::most_depth ||
        std::min({rows, columns, depth}) < 1 || how.tile < depth)
        return std::nullopt;
    const FewProduct few{static_cast<int>(rows), static_cast<int>(columns), static_cast<int>(depth),
                         a.vectors[0].stride,    a.depth[0].stride,         b.depth[0].stride,
                         b.vectors[0].stride};
    return few.is_few() ? std::optional(few) : std::nullopt;
}

std::optional<FewProduct> product_of_few(const ProductCall& given) {
    ProductCall call = given;
    call.collapse();
    return is_plain(call) && axes_size(call.result.batch) == 1 ? few_of(call) : std::nullopt;
}

static void run_few(const FewProduct& few, const ProductCall& c) {
    constexpr int64_t least_work = 1 << 15;  // of a thread
    const Kernels& k = kernels();
    const int64_t work = int64_t{few.rows} * few.columns * few.depth + 64;
    parallel_for(axes_size(c.result.batch), 1 + least_work / work, [&](int64_t begin, int64_t end) {
        Notes notes;
        for (int64_t i = begin; i < end; ++i) {
            notes.add(work);
            char* const to = c.result.data + axes_offset(c.result.batch, i);
            k.product_few(few, c.a.data + axes_offset(c.a.batch, i),
                          c.b.data + axes_offset(c.b.batch, i), reinterpret_cast<float*>(to));
        }
    });
}

void ProductCall::collapse() {
    const auto collapse_axes = [](auto& array, int64_t element) {
        array.batch = collapsed(array.batch, element);
        array.rows = collapsed(array.rows, element);
        array.columns = collapsed(array.columns, element);
    };
    a = collapsed(a);
    b = collapsed(b);
    collapse_axes(result, storage_bytes(result.stored()));
    for (ProductTerm& t : result.terms) collapse_axes(t, storage_bytes(t.dtype));
}

void ProductCall::run_collapsed(Draw draw) {
    if (axes_size(result.batch) == 0 || axes_size(result.rows) == 0 || axes_size(result.columns) == 0)
        return;
    // A shape whose size overflows is refused before any work, though its elements may overlap.
    for (const ProductOperand* x : {&a, &b}) {
        constexpr int64_t widest = 16;
        checked_product({axes_size(x->batch), axes_size(x->vectors), axes_size(x->depth), widest});
    }
    const bool is_integer = !is_device_float(result.dtype);
    if (is_integer && !is_modulo_2_32(result.dtype)) return product_integer(*this);
    if (!is_integer && how.model == Accumulate::exact && result.epilogue != nullptr)
        throw std::invalid_argument("exact sums have no epilogue");
    if (numerics.stochastic && result.epilogue != nullptr)
        throw std::invalid_argument("each of an epilogue's roundings would draw words of its own (S2)");
    if (!is_integer && how.model == Accumulate::exact) return product_exact(*this, draw);
    if (packed != nullptr && !packed->fits(*this)) packed = nullptr;
    if (packed == nullptr && b.data == nullptr)
        throw std::logic_error("packed columns do not fit, and the operand itself is gone");
    const bool plain = result.epilogue == nullptr && is_plain(*this);
    const int64_t rows = axes_size(a.vectors), columns = axes_size(b.vectors);
    if (plain && is_of_lines(*this)) return product_of_lines(*this);
    if (plain)
        if (const std::optional<FewProduct> few = few_of(*this)) return run_few(*few, *this);
    const auto is_row_of = [](const Axes& axes, DType t) {
        return axes.size() == 1 && axes[0].stride == storage_bytes(t);
    };
    if (plain && axes_size(a.batch) == 1 && rows <= rows_to_stream(b) && !is_small(*this) &&
        is_row_of(b.vectors, b.dtype) && b.depth.size() == 1 && is_row_of(result.columns, result.dtype))
        return product_streamed(*this);
    // The vectors run over the columns. A narrow product, and one whose rows lie side by side in a and
    // in the result, is computed turned round: multiplication commutes, and a sum's NaN is the
    // canonical one whatever it came from.
    const int64_t size = storage_bytes(result.stored());
    const bool rows_adjacent = result.rows.back().stride == size &&
                               result.columns.back().stride != size &&
                               std::abs(a.vectors.back().stride) < std::abs(a.depth.back().stride);
    const bool turns = (columns < rows && columns <= 8) || (rows_adjacent && rows >= columns_to_turn);
    if (turns && packed == nullptr && !a.holds_words) {
        std::swap(a, b);
        std::swap(result.rows, result.columns);
        for (ProductTerm& t : result.terms) std::swap(t.rows, t.columns);
    }
    if (is_small(*this)) return product_small(*this, draw);
    read_in_words(a, b);
    product_blocked(*this, draw);
}

}  // namespace neuronsim
