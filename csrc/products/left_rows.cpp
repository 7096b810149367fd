#include "products/left_rows.h"

#include <algorithm>

#include "machine/caches.h"
#include "machine/interrupt.h"
#include "machine/workspace.h"

namespace neuronsim {

// From so many columns on, rows side by side save more than packing them costs (measured on Zen 4 and
// on Emerald Rapids).
static const int64_t least_columns = has_quick_third_cache ? 640 : 128;

LeftRows::LeftRows(const Kernels& k, const ProductOperand& a, ProductForm form, const Packer& packer,
                   int64_t depth, int64_t tile, int64_t columns, int block_rows)
    : k_(k),
      a_(a),
      form_(form),
      packer_(packer),
      depth_(depth),
      tile_(tile),
      columns_(columns),
      block_rows_(block_rows),
      in_tiles_(block_rows > max_block_rows),
      place_(place()) {}

LeftRows::Place LeftRows::place() const {
    if (a_.holds_words) return Place::memory;
    // Not where the rows lie in lines of an image, which fill the register blocks at least by half.
    constexpr int64_t least_rows = 8;
    const bool in_lines = a_.vectors.size() > 1 && a_.vectors.back().size > block_rows_ / 2;
    if (form_ == ProductForm::fma && k_.product_side_by_side[0][0] != nullptr && !in_lines &&
        axes_size(a_.vectors) >= least_rows && columns_ >= least_columns)
        return Place::side_by_side;
    return lies_as_read() ? Place::memory : Place::rows;
}

// Whether the register blocks can read a where it lies.
bool LeftRows::lies_as_read() const {
    return packer_.is_stored_as_packed() && step_elements(form_) == 1 && a_.depth.back().stride == 4 &&
           !push_each_other_out(a_.vectors.back()) && a_.depth.back().size >= 8;
}

template <class F>
void LeftRows::cut(int64_t begin, int64_t n, const F& add) const {
    // Tiles keep their shapes as long as they can, other blocks are of about the same size.
    const int64_t pieces = ceil_divide(n, block_rows_);
    const auto end_of = [&](int64_t i) {
        return in_tiles_ ? std::min<int64_t>(n, i * block_rows_) : n * i / pieces;
    };
    for (int64_t i = 0; i < pieces; ++i)
        add(begin + end_of(i), static_cast<int>(end_of(i + 1) - end_of(i)));
}

void LeftRows::take(const OperandPart& part) {
    const int64_t at = part.at, depth = part.depth;
    blocks_.clear();
    runs_.clear();
    leasts_.clear();
    steps_ = steps_of(form_, depth);
    if (depth == 0) return;
    switch (place_) {
        case Place::memory:
            step_ = a_.depth.back().stride;
            least_ = a_.least;
            read(part);
            break;
        case Place::rows:
            pack(part);
            break;
        case Place::side_by_side:
            pack_side_by_side(part);
            break;
    }
    for (int64_t i = 0, n = 0; i < depth; i += n) {
        const int64_t to_tile = tile_ - (at + i) % tile_;
        n = std::min(depth - i, to_tile);
        int64_t offset = i / step_elements(form_) * step_;
        if (place_ == Place::memory) {
            // a's axes count words where it holds them.
            const int64_t unit = step_elements(form_);
            n = std::min(n, unit * run_length(a_.depth, (at + i) / unit, ceil_divide(n, unit)));
            offset = axes_offset(a_.depth, (at + i) / unit);
        }
        const bool ends = n == to_tile || at + i + n == depth_;
        runs_.push_back({offset, steps_of(form_, n), ends});
    }
}

void LeftRows::read(const OperandPart& part) {
    const int64_t first = part.first, count = part.n;
    const Axis& line = a_.vectors.back();
    // Lines that are so long are at most two of a block's.
    const bool joins = k_.joins_lines && !is_integer_form(form_) && line.size >= block_rows_ - 1;
    for (int64_t i = 0, n = 0; i < count; i += n) {
        n = joins ? count - i : run_length(a_.vectors, first + i, count - i);
        cut(i, n, [&](int64_t begin, int rows) {
            const int64_t at = axes_offset(a_.vectors, first + begin);
            Block block{part.data + at, line.stride, static_cast<int>(begin), rows};
            block.line = static_cast<int>(run_length(a_.vectors, first + begin, rows));
            if (block.line < rows)
                block.jump =
                    axes_offset(a_.vectors, first + begin + block.line) - at - block.line * line.stride;
            blocks_.push_back(block);
        });
    }
}

void LeftRows::pack(const OperandPart& part) {
    auto& space = per_thread<Workspace>([] {});
    const int64_t words = step_words(form_), count = part.n;
    int64_t pitch;  // in words
    float* out;
    const bool as_panel = packer_.across() && words == 1;
    const auto pack_panel = [&](float* to) {  // of all rows
        packer_.panels(part, static_cast<int>(count), to, 0, &least_);
    };
    if (as_panel && !in_tiles_) {
        out = space.get<float>(steps_ * count);
        pack_panel(out);
        pitch = 1;
        step_ = 4 * count;
    } else {
        // Rows never lie a multiple of half a page apart: they would share the first cache's places.
        constexpr int64_t half_page = 512, line = 16;
        pitch = steps_ * words + (steps_ * words % half_page == 0 ? line : 0);
        out = space.get<float>(pitch * count);
        step_ = 4 * words;
        if (as_panel) {
            float* const panel = per_thread<Workspace>([] {}).get<float>(steps_ * count);
            pack_panel(panel);
            k_.turn(panel, count, static_cast<int>(steps_), static_cast<int>(count), out, pitch);
        } else {
            least_ = packer_.rows(part, pitch, out);
        }
    }
    cut(0, count, [&](int64_t begin, int rows) {
        blocks_.push_back({reinterpret_cast<const char*>(out + begin * pitch), 4 * pitch,
                           static_cast<int>(begin), rows});
    });
}

void LeftRows::pack_side_by_side(const OperandPart& part) {
    const int width = k_.lanes;
    auto& space = per_thread<Workspace>([] {});
    float* out = space.get<float>(ceil_divide(part.n, block_rows_) * part.depth * width);
    step_ = 4 * width;
    cut(0, part.n, [&](int64_t begin, int rows) {
        packer_.panels({part.data, part.first + begin, rows, part.at, part.depth}, width, out, 0);
        blocks_.push_back({reinterpret_cast<const char*>(out), 4, static_cast<int>(begin), rows});
        out += part.depth * width;
    });
}

uint32_t LeftRows::least(size_t block, size_t run) {
    if (leasts_.empty())
        for (const Block& r : blocks_)
            for (const BlockRun& of : runs_)
                leasts_.push_back(k_.least_of_pairs(r.a + of.a, r.a_row, of.steps, r.count));
    return leasts_[block * runs_.size() + run];
}

}  // namespace neuronsim
