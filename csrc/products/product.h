// The product of two operands over a contraction, batched (HLO calls it dot): rules M1-M4, M6 and M7.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "products/epilogue.h"
#include "products/form.h"
#include "products/packer.h"

namespace neuronsim {

class PackedColumns;

// The sums of the bytes of a panel's columns, `lanes` columns for each of its vectors.
void sum_columns(const Kernels& k, ProductForm form, const float* panel, int64_t steps, int vectors,
                 int32_t* sums);

// A product with its operands. Both are float types and so is the result, or all are integers or bool
// and the sum wraps in the result's type (M7).
struct ProductCall {
    ProductOperand a, b;
    const PackedColumns* packed;  // b's columns, or how they lie, or null
    ProductResult result;
    Accumulation how;
    Numerics numerics;

    // Makes one axis of those that are walked as one.
    void collapse();
    // The types and the prologue go together. Throws std::invalid_argument for an epilogue of sums that
    // are exact or rounded stochastically.
    void run(Draw draw) const {
        ProductCall call = *this;
        call.collapse();
        call.run_collapsed(draw);
    }

    // The same, collapsed, on other places: a's, b's, the result's, those of the epilogue's terms, and
    // that of the columns, where these are packed in memory that only a run knows.
    void run(char* const* data, const Draws& draws, Observed* observed) const;
    size_t draw_count() const { return numerics.stochastic ? 1 : 0; }
    size_t record_count() const {
        return result.epilogue == nullptr ? 0 : 1 + result.epilogue->link_count();
    }

protected:
    Draw placed(char* const* data, const Draws& draws, Observed* observed);

private:
    // May turn the product round.
    void run_collapsed(Draw draw);
};

// The product as a step of few elements: of float32, in one tile, its result row by row. Nothing where
// it is another.
std::optional<FewProduct> product_of_few(const ProductCall& call);

// The columns of a right operand packed once, for many products with left operands of one type: in
// memory of their own, or of a run.
class PackedColumns {
public:
    // How they will lie. `rows` are those of the products to come. Throws std::invalid_argument where
    // the operands are neither both float nor both integers.
    PackedColumns(DType a, const ProductOperand& b, const Accumulation& how, const Numerics& numerics,
                  int64_t rows);

    void pack(const ProductOperand& b);
    // Into memory that begins with a cache line, of so many bytes.
    void pack(const ProductOperand& b, char* memory) const;
    PackedColumns packed_in(const char* memory) const;
    bool are_packed() const { return data_ != nullptr; }
    size_t bytes() const;

    // Whether the product may use them for its b; that they hold b's values is the caller's to know.
    bool fits(const ProductCall& call) const;

    ProductForm form() const { return form_; }
    const float* panel(int64_t batch, int64_t index) const;
    uint32_t least(int64_t batch, int64_t index) const;
    // The sums of a panel's columns, of bytes in quads only.
    const int32_t* sums(int64_t batch, int64_t index) const;

private:
    int64_t panel_words() const { return steps_ * step_words(form_) * width_; }
    // Where the least magnitudes of panels lie, behind these, and the sums behind them.
    size_t least_at() const;
    size_t sums_at() const;

    const char* isa_;
    ProductForm form_;
    Numerics numerics_;
    DType type_;
    int64_t batch_, columns_, depth_, panels_, steps_;
    int width_;
    const char* data_ = nullptr;
    struct alignas(64) Line {  // of the cache: a load that crosses into another takes two (measured)
        char bytes[64];
    };
    std::shared_ptr<Line[]> own_;
};

// Packs a right operand in a run, for the products that follow.
struct PackCall {
    ProductOperand b;
    PackedColumns columns;

    // `data`: b's elements and the memory.
    void run(char* const* data) const {
        ProductOperand x = b;
        x.data = data[0];
        columns.pack(x, data[1]);
    }
};

}  // namespace neuronsim
