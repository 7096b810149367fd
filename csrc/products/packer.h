// The operands of a product on their way into the kernels: rounded, and laid out as these read them.
#pragma once

#include <cstdint>

#include "elementwise/chain.h"
#include "movement/axes.h"
#include "products/form.h"

namespace neuronsim {

// One operand as vectors along the contraction, for each element of the batch: the rows of a, the
// columns of b. Elements may lie anywhere and overlap.
struct ProductOperand {
    const char* data;
    DType dtype;
    Axes batch, vectors, depth;
    // Takes each element while it is packed; one input, one output, no draws. May be null.
    const Chain* prologue = nullptr;
    // The elements are words as the kernels take them, of several each; those of bfloat16 with their
    // least magnitude (pack.h), bytes moved by an offset (form.h).
    bool holds_words = false;
    uint32_t least = no_magnitude;
    int32_t offset = 0;

    DType type() const { return prologue == nullptr ? dtype : prologue->output_dtype(0); }
};

// The same with axes that are walked as one.
ProductOperand collapsed(const ProductOperand& x);

// The vectors [first, first + n) over [at, at + depth), of the batch's element at `data`.
struct OperandPart {
    const char* data;
    int64_t first, n, at, depth;
};

// Whether so many rows fall on the same lines of the first cache, and would push each other out.
inline bool push_each_other_out(const Axis& rows, int64_t period = 4096) {
    constexpr int64_t ways = 8;
    return rows.stride % period == 0 && rows.size > ways;
}

// Packs parts of an operand in a form.
class Packer {
public:
    Packer(const Kernels& k, const ProductOperand& operand, ProductForm form, const Numerics& numerics,
           int32_t offset = 0);

    // Whether elements in memory are those that the kernels take.
    bool is_stored_as_packed() const;
    // Whether the kernels of 16-bit pairs lay the elements out.
    bool pairs() const { return is_pair_form(form_) || form_ == ProductForm::shorts; }
    int64_t packed_element() const { return is_quad_form(form_) ? 1 : pairs() ? 2 : 4; }
    // Whether the vectors lie side by side rather than the elements of each.
    bool across() const;

    // A block as the kernels take its elements but for their order: [depth][n] if across, else
    // [n][depth], `pitch` bytes from one to the next.
    void stage_block(const OperandPart& part, bool is_across, int64_t pitch, char* target) const;

    // Panels of `width` vectors, each `panel_words` after the last one; the narrower last one has whole
    // lanes. Gives their least magnitudes in `least`, if it is there.
    void panels(const OperandPart& part, int width, float* out, int64_t panel_words,
                uint32_t* least = nullptr) const;

    // Rows `pitch` words apart; returns their least magnitude.
    uint32_t rows(const OperandPart& part, int64_t pitch, float* out) const;

private:
    // Elements of at most a tile: rows of `n`, `stride` bytes apart, that come to lie side by side.
    struct Piece {
        const char* source;
        int64_t stride;
        int n;
        int64_t row_stride = 0;
        int rows = 1;
    };
    void stage(const char* source, int64_t stride, int64_t n, char* target) const;
    void stage_tile(const Piece& piece, char* target) const;
    void stage_exact_floats(const Piece& piece, char* target) const;
    void stage_integers(const Piece& piece, char* target) const;
    void load(const Piece& piece, Tile* tile) const;
    void move_bytes(int n, char* target) const;
    bool is_interleaved() const;
    void stage_interleaved(const OperandPart& part, int64_t pitch, char* target) const;
    bool lies_in_runs(int64_t first, int64_t n, int width) const;
    PackKernel pack_kernel(bool is_across) const;
    void interleaved_panels(const OperandPart& part, int width, float* out, int64_t panel_words) const;

    const Kernels& k_;
    const ProductOperand& x_;
    const ProductForm form_;
    const int64_t steps_;  // of work on an element that is staged
    const bool flush_;     // C4: operands with the exponents of float32 read as zero where subnormal
    const int32_t offset_;
    const bool rounds_to_bfloat16_;  // by the prologue, and it does nothing else
};

}  // namespace neuronsim
