#include <algorithm>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "products/strategies.h"

namespace neuronsim {
namespace {

// Up to so many rows, columns and steps the kernels of single elements beat those of several.
constexpr int64_t few = 16;
// b stays in the first cache beside a's rows.
constexpr int64_t half_cache = 16 << 10, most_columns = 1024;
constexpr int most_tiles = 8;
constexpr int64_t few_lines = 1024;  // elements of a result that need not be fetched

// The form in which single elements are multiplied: what may be multiplied in pairs has the same bits
// by fma (M2), and integers' sums are those modulo 2^32.
ProductForm form_of(const Kernels& k, const ProductCall& c) {
    const bool is_tiny =
        axes_size(c.a.vectors) <= few && axes_size(c.b.vectors) <= few && axes_size(c.a.depth) <= few;
    const int64_t rows = axes_size(c.a.vectors);
    const ProductForm form = product_form(k, c.a.type(), c.b.type(), c.how, c.numerics, rows);
    if (is_tiny && is_integer_form(form)) return ProductForm::words;
    return is_tiny && form == ProductForm::pairs ? ProductForm::fma : form;
}

// Whether each of the operand's vectors and its depth are one axis of what the kernels take.
bool lies_as_packed(const ProductOperand& x, const Packer& packer) {
    return packer.is_stored_as_packed() && x.vectors.size() == 1 && x.depth.size() == 1;
}

class SmallProduct {
public:
    SmallProduct(const ProductCall& c, Draw draw)
        : k_(kernels()),
          a_(c.a),
          b_(c.b),
          packed_(c.packed),
          form_(form_of(k_, c)),
          a_packer_(k_, a_, form_, c.numerics),
          b_packer_(k_, b_, form_, c.numerics),
          rows_(axes_size(a_.vectors)),
          columns_(axes_size(b_.vectors)),
          depth_(axes_size(a_.depth)),
          tile_(is_integer_form(form_) ? depth_ : c.how.tile),
          pitch_(ceil_divide(columns_, k_.lanes) * k_.lanes),
          result_(c.result),
          epilogue_(k_, result_, c.numerics, draw, pitch_),
          width_(k_.panel_width),
          stored_columns_(!stores_results(form_) || !epilogue_.is_of_blocks() ? 0
                          : result_.epilogue == nullptr || columns_ % k_.lanes == 0
                              ? columns_
                              : columns_ / width_ * width_),
          fetches_(rows_ * columns_ >= few_lines),
          most_rows_(most_rows(k_.product[form_])) {
        row_blocks_ = ceil_divide(rows_, most_rows_);
        reads_a_ = lies_as_packed(a_, a_packer_) && !push_each_other_out(a_.vectors[0]);
        takes_all_rows_ = reads_a_ || 4 * rows_ * depth_ <= half_cache;
        staged_rows_ = takes_all_rows_ ? rows_ : most_rows_;
        const bool across = a_packer_.across();
        a_row_ = reads_a_ ? a_.vectors[0].stride : across ? 4 : 4 * depth_;
        a_step_ = reads_a_ ? a_.depth[0].stride : across ? 4 * staged_rows_ : 4;
        reads_b_ = packed_ == nullptr && !is_integer_form(form_) && lies_as_packed(b_, b_packer_) &&
                   b_.vectors[0].stride == 4 && b_.depth[0].stride > 0 && b_.depth[0].stride % 4 == 0;
        if (!reads_b_) return;
        b_end_ = b_.data + (depth_ - 1) * b_.depth.back().stride + 4 * columns_;
        for (const Axis& axis : b_.batch) b_end_ += std::max<int64_t>(axis.size - 1, 0) * axis.stride;
    }

    int64_t row_blocks() const { return row_blocks_; }

    // The jobs [begin, end): each the outputs of a block of rows, of one element of the batch after
    // another.
    void run(int64_t begin, int64_t end) {
        float* const sums = per_thread<Workspace>([] {}).get<float>(most_rows_ * pitch_);
        BlockRun runs[most_tiles];
        RegisterBlock block{};
        block.a_row = a_row_;
        block.a_step = a_step_;
        block.runs = block.runs_end = runs;
        for (int64_t at = 0; at < depth_; at += tile_)
            runs[block.runs_end++ - runs] = {at * a_step_, std::min(tile_, depth_ - at), true};
        block.psum_stride = pitch_;
        block.fresh = true;
        block.result_row = result_.rows.back().stride;
        block.result_type = result_.stored();
        if (stored_columns_ > 0) block.store_rows = k_.store_rows[block.result_type];
        int64_t batch = begin / row_blocks_, row_block = begin % row_blocks_;
        for (int64_t job = begin; job < end; ++job) {
            if (job == begin || row_block == 0) take_operands(batch);
            const int64_t first = rows_ * row_block / row_blocks_;
            const int count = static_cast<int>(rows_ * (row_block + 1) / row_blocks_ - first);
            note_work(count * columns_ * depth_);
            block.a = takes_all_rows_ ? a_here_ + first * a_row_ : staged_rows(first, count);
            const int left = static_cast<int>(columns_ - stored_columns_);
            if (fetches_ && left > 0) epilogue_.prefetch(batch, first, count, stored_columns_, left);
            multiply(block, first, count, sums);
            if (left > 0)
                epilogue_.finish(sums + stored_columns_, batch, first, count, stored_columns_, left);
            if (++row_block < row_blocks_) continue;
            row_block = 0;
            ++batch;
        }
    }

private:
    BlockKernel kernel(int vectors, int rows) const { return k_.product[form_][vectors - 1][rows - 1]; }

    void multiply(RegisterBlock& block, int64_t first, int count, float* sums) {
        char* const to = result_here_ + first * block.result_row;
        for (int64_t c = 0; c < columns_; c += width_) {
            const int n = static_cast<int>(std::min(width_, columns_ - c));
            const int vectors = static_cast<int>(ceil_divide(n, k_.lanes));
            const bool in_place = c < columns_in_place_;
            block.b = in_place ? b_here_ + c : panels_ + (c - columns_in_place_) * depth_;
            block.b_step = in_place ? b_.depth[0].stride / 4 : vectors * k_.lanes;
            block.psum = sums + c;
            const bool is_stored = c < stored_columns_;
            block.result = is_stored ? to + c * storage_bytes(block.result_type) : nullptr;
            if (is_stored) terms_.place(first, c, block);
            else block.term_count = 0;
            block.partial = n % k_.lanes;
            kernel(vectors, count)(block);
        }
    }

    // Of an element of the batch: a's rows, and b's columns where they lie, but for those whose last
    // vector would be read beyond its end, or panels of them.
    void take_operands(int64_t batch) {
        a_here_ = a_.data + axes_offset(a_.batch, batch);
        if (!reads_a_ && takes_all_rows_) a_here_ = staged_rows(0, rows_);
        result_here_ = result_.data + axes_offset(result_.batch, batch);
        if (stored_columns_ > 0) terms_.take(epilogue_, batch);
        columns_in_place_ = 0;
        if (packed_ != nullptr) {
            panels_ = packed_->panel(batch, 0);
            return;
        }
        const char* const data = b_.data + axes_offset(b_.batch, batch);
        if (reads_b_) {
            b_here_ = reinterpret_cast<const float*>(data);
            const bool ends = data + (depth_ - 1) * b_.depth[0].stride + 4 * pitch_ <= b_end_;
            columns_in_place_ = ends ? columns_ : columns_ / width_ * width_;
            if (columns_in_place_ == columns_) return;
        }
        const int64_t c = columns_in_place_, n = columns_ - c, room = pitch_ - c;
        float* const panels = per_thread<Workspace>([] {}).get<float>(depth_ * room);
        panels_ = panels;
        if (reads_b_)
            k_.pack_across(data + 4 * c, b_.depth[0].stride, depth_, static_cast<int>(n),
                           static_cast<int>(room), panels);
        else if (n <= width_ && b_packer_.across())
            b_packer_.stage_block({data, 0, n, 0, depth_}, true, 4 * room,
                                  reinterpret_cast<char*>(panels));
        else
            b_packer_.panels({data, 0, n, 0, depth_}, static_cast<int>(width_), panels,
                             depth_ * width_);
    }

    // A copy of a's rows as they lie to each other in memory.
    const char* staged_rows(int64_t first, int64_t count) const {
        char* const rows = per_thread<Workspace>([] {}).get<char>(4 * staged_rows_ * depth_);
        const bool across = a_row_ == 4;
        a_packer_.stage_block({a_here_, first, count, 0, depth_}, across, across ? a_step_ : a_row_,
                              rows);
        return rows;
    }

    const Kernels& k_;
    const ProductOperand &a_, &b_;
    const PackedColumns* const packed_;
    const ProductForm form_;
    const Packer a_packer_, b_packer_;
    const int64_t rows_, columns_, depth_, tile_;
    const int64_t pitch_;  // of the sums' rows
    const ProductResult& result_;
    const Epilogue epilogue_;
    const int64_t width_;  // of panels
    // How many columns the kernels store, the first ones: those that join terms read whole vectors.
    const int64_t stored_columns_;
    BlockTerms terms_;
    const bool fetches_;  // asks for the lines of the result while there is other work
    const int most_rows_;
    int64_t row_blocks_, staged_rows_, a_row_, a_step_;
    bool reads_a_, reads_b_, takes_all_rows_;
    const char* b_end_ = nullptr;
    // Of the element of the batch at hand.
    const char* a_here_ = nullptr;
    char* result_here_ = nullptr;
    const float *b_here_ = nullptr, *panels_ = nullptr;
    int64_t columns_in_place_ = 0;
};

}  // namespace

bool is_small(const ProductCall& c) {
    if (c.a.holds_words) return false;
    const Kernels& k = kernels();
    const int64_t depth = axes_size(c.a.depth), columns = axes_size(c.b.vectors);
    const bool is_float = is_device_float(c.result.dtype);
    if (depth == 0 || depth > half_cache || columns > most_columns ||
        (is_float && (depth - 1) / c.how.tile >= most_tiles) ||
        4 * depth * ceil_divide(columns, k.lanes) * k.lanes > half_cache)
        return false;
    const ProductForm form = form_of(k, c);
    return step_elements(form) == 1 && (c.packed == nullptr || c.packed->form() == form);
}

void product_small(const ProductCall& call, Draw draw) {
    const SmallProduct sizes(call, draw);
    const int64_t row_blocks = sizes.row_blocks(), jobs = axes_size(call.result.batch) * row_blocks;
    constexpr int64_t least_work = 1 << 16;  // of a thread
    const int64_t work =
        axes_size(call.result.rows) * axes_size(call.result.columns) * axes_size(call.a.depth);
    parallel_for(jobs, 1 + least_work * row_blocks / work, [&](int64_t begin, int64_t end) {
        SmallProduct product = sizes;
        product.run(begin, end);
    });
}

}  // namespace neuronsim
