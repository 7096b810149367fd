#include <algorithm>

#include "machine/caches.h"
#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "products/instructions.h"
#include "products/left_rows.h"
#include "products/strategies.h"

namespace neuronsim {

namespace {

// How deep blocks are, and the bytes of a's in the second-level cache.
struct BlockSizes {
    int64_t depth, a_bytes;
};
// Measured on Zen 4 and on Emerald Rapids: where the third cache is slow, b's panels must pass seldom,
// and stay in the second one beside a's block.
const BlockSizes block_sizes =
    has_quick_third_cache ? BlockSizes{4608, 160 << 10} : BlockSizes{1280, 480 << 10};
// Those of b's in the third. Rows and columns bound PSUM's place where the depth is cut.
constexpr int64_t b_block_bytes = 4 << 20, rows_block = 1024, columns_block = 1024;
// Fewer rows leave AMX's tiles so empty that VPDPBUSD is as quick.
constexpr int64_t least_tile_rows = 8;
// Panels that go through the epilogue together, so that its rows are long.
constexpr int64_t panels_together = 2;
// Below this much work a second thread costs more than it saves.
constexpr double least_work = 1 << 18;
// Panels that a block of rows takes one after the other, and their bytes in the first cache.
constexpr int64_t most_short_panels = 16, short_panels_bytes = 16 << 10;

// AMX's tiles as this thread's products shape them, until the last of these.
class Tiles {
public:
    Tiles() = default;
    ~Tiles() {
        if (release_ != nullptr) release_();
    }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;

    void multiply(const Kernels& k, ProductForm form, const RegisterBlock& block, int rows,
                  int vectors) {
        // A signal's handler may have shaped them too.
        if (looks_ != looks_for_signals) shapes_ = 0;
        looks_ = looks_for_signals;
        release_ = k.release_tiles;
        k.product_tiles[form == ProductForm::quads_turned](block, rows, vectors, shapes_);
    }

private:
    uint32_t shapes_ = 0, looks_ = looks_for_signals;
    void (*release_)() = nullptr;
};

class BlockedProduct {
public:
    BlockedProduct(const ProductCall& call, Draw draw, int threads)
        : k_(kernels()),
          a_(call.a),
          b_(call.b),
          packed_(call.packed),
          form_(form_of(call)),
          offset_(a_.holds_words ? a_.offset : quad_offset(form_, a_.type())),
          a_packer_(k_, a_, form_, call.numerics, a_.holds_words ? 0 : offset_),
          b_packer_(k_, b_, form_, call.numerics),
          depth_(axes_size(b_.depth)),
          tile_(is_integer_form(form_) ? std::max<int64_t>(depth_, 1) : call.how.tile),
          width_(k_.panel_width),
          group_(std::min(panels_together, ceil_divide(axes_size(b_.vectors), width_))),
          pitch_(group_ * width_),
          in_tiles_(is_quad_form(form_) && byte_products() == ByteProducts::tiles &&
                    axes_size(a_.vectors) >= least_tile_rows),
          max_rows_(in_tiles_ ? most_tile_rows : most_rows(k_.product[form_])),
          rows_(k_, a_, form_, a_packer_, depth_, tile_, axes_size(b_.vectors), max_rows_),
          epilogue_(k_, call.result, call.numerics, draw, pitch_),
          result_(call.result),
          result_row_(call.result.rows.back().stride),
          result_size_(storage_bytes(call.result.stored())) {
        size_blocks(threads);
        stores_directly_ = depth_ > 0 && stores_results(form_) && epilogue_.is_of_blocks();
        b_in_place_ = multiplies_in_place();
        block_.psum_stride = pitch_;
        block_.result_row = result_row_;
        block_.result_type = result_.stored();
        if (stores_directly_) block_.store_rows = k_.store_rows[block_.result_type];
    }

    int width() const { return width_; }
    ProductForm form() const { return form_; }
    // What threads cut the rows by.
    int64_t row_unit() const { return row_unit_ > 1 ? row_unit_ : max_rows_; }

    // The outputs [row, row_end) x [column, column_end) of one element of the batch.
    void run(int64_t batch, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
        batch_ = batch;
        a_data_ = a_.data + axes_offset(a_.batch, batch);
        b_data_ = b_.data + axes_offset(b_.batch, batch);
        result_data_ = result_.data + axes_offset(result_.batch, batch);
        if (stores_directly_) terms_.take(epilogue_, batch);
        for (int64_t r = row; r < row_end; r += rows_block) {
            const int64_t r_end = std::min(row_end, r + rows_block);
            for (int64_t c = column; c < column_end; c += columns_block_)
                run_columns(r, r_end, c, std::min(column_end, c + columns_block_));
        }
    }

private:
    static ProductForm form_of(const ProductCall& call) {
        const DType a = call.a.type();
        if (call.a.holds_words && is_device_float(a)) return ProductForm::pairs;
        if (call.packed != nullptr) return call.packed->form();
        return product_form(kernels(), a, call.b.type(), call.how, call.numerics,
                            axes_size(call.a.vectors));
    }

    void size_blocks(int threads) {
        // Chunks of the depth hold whole tiles, or are whole parts of the one tile there is.
        const int64_t limit = block_sizes.depth * step_elements(form_) / step_words(form_);
        const int64_t unit = tile_ < depth_ ? tile_ : std::max(step_elements(form_), 2);
        const int64_t chunks = ceil_divide(depth_, limit);
        chunk_ = chunks <= 1
                     ? std::max<int64_t>(depth_, 1)
                     : std::max(ceil_divide(ceil_divide(depth_, chunks), unit), int64_t{1}) * unit;
        const int64_t chunk_bytes =
            steps_of(form_, std::max<int64_t>(chunk_, 1)) * step_words(form_) * 4;
        const int64_t share = std::max(threads / 2, 1);
        const int64_t of_block = b_block_bytes / share / chunk_bytes;
        columns_block_ = std::max<int64_t>(
            (chunks <= 1 ? of_block : std::min(of_block, columns_block)) / width_ * width_, width_);
        // Rows that are read in place take no room; few register blocks reach over an inner axis.
        const int64_t most = 16 * max_rows_, inner = a_.vectors.back().size;
        rows_of_block_ = rows_.are_read_in_place()
                             ? most
                             : std::clamp<int64_t>(block_sizes.a_bytes / chunk_bytes, max_rows_, most);
        row_unit_ = !rows_.are_read_in_place() || a_.vectors.size() == 1 ? 1
                    : inner <= most                                      ? inner
                                                                         : max_rows_;
    }

    BlockKernel kernel(ProductForm form, int vectors, int rows) const {
        if (rows_.are_side_by_side()) return k_.product_side_by_side[vectors - 1][rows - 1];
        return k_.product[form][vectors - 1][rows - 1];
    }

    // The outputs that are computed at once. Their PSUM is that of all rows where the depth is cut,
    // else that of a block of rows.
    struct Outputs {
        int64_t row, row_end, column, column_end;
        bool one_chunk;
        int64_t psum_rows;
        float* psum;
        int64_t columns() const { return column_end - column; }
    };
    // A part of the depth, and b's panels of it.
    struct Chunk {
        int64_t at, steps, panel_words;
        bool is_last;
        const float* b = nullptr;  // where they are packed here
    };

    void run_columns(int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
        auto& b_space = per_thread<Workspace>([] {});
        auto& psum_space = per_thread<Workspace>([] {});
        const int64_t panels = ceil_divide(column_end - column, width_);
        const int64_t row_blocks = ceil_divide(row_end - row, rows_of_block_);
        // Blocks are of whole pieces, so that few of these are less than the registers hold.
        const int64_t row_pieces = row_unit_ > 1 ? row_blocks : ceil_divide(row_end - row, max_rows_);
        Outputs out{row, row_end, column, column_end, chunk_ >= depth_, row_end - row, nullptr};
        if (out.one_chunk)
            out.psum_rows = ceil_divide(row_end - row, row_blocks) + row_unit_ + max_rows_;
        const int64_t groups = out.one_chunk ? 1 : ceil_divide(panels, group_);
        out.psum = psum_space.get<float>(out.psum_rows * pitch_ * groups);
        least_.assign(static_cast<size_t>(panels), no_magnitude);
        for (int64_t at = 0; at == 0 || at < depth_; at += chunk_) {
            const int64_t depth = std::min(chunk_, depth_ - at), steps = steps_of(form_, depth);
            Chunk chunk{at, steps, steps * step_words(form_) * width_, at + depth >= depth_};
            if (packed_ == nullptr && !b_in_place_ && depth > 0) {
                float* const b = b_space.get<float>(chunk.panel_words * panels);
                b_packer_.panels({b_data_, column, out.columns(), at, depth}, width_, b,
                                 chunk.panel_words, least_.data());
                chunk.b = b;
            }
            for (int64_t i = 0; i < row_blocks; ++i) {
                const auto boundary = [&](int64_t block) {
                    const int64_t at_row =
                        row + (row_end - row) * (row_pieces * block / row_blocks) / row_pieces;
                    return std::min(row_end, ceil_divide(at_row, row_unit_) * row_unit_);
                };
                const int64_t first = i == 0 ? row : boundary(i), count = boundary(i + 1) - first;
                if (count <= 0) continue;
                rows_.take({a_data_, first, count, at, depth});
                begin_rows(at == 0);
                multiply_rows(out, chunk, first, count);
            }
        }
    }

    // The rows that were taken by all panels.
    void multiply_rows(const Outputs& out, const Chunk& chunk, int64_t first, int64_t count) {
        const int64_t n = out.columns(), panels = ceil_divide(n, width_);
        // The panels whose sums go to the result at once. What joins terms reads whole vectors.
        const int64_t direct = !chunk.is_last || !stores_directly_                ? 0
                               : result_.epilogue == nullptr || n % k_.lanes == 0 ? panels
                                                                                  : panels - 1;
        // Short ones of these are taken together for each block of rows, so that it writes along the
        // result's rows. (Never integers', which share `start_`.)
        const int64_t together = direct == 0
                                     ? 1
                                     : std::clamp<int64_t>(short_panels_bytes / (4 * chunk.panel_words),
                                                           1, most_short_panels);
        const auto sums_at = [&](int64_t group) {
            return out.one_chunk ? out.psum
                                 : out.psum + (group * out.psum_rows + first - out.row) * pitch_;
        };
        Panel here[most_short_panels];
        for (int64_t p = 0, some = 0; p < panels; p += some) {
            const bool is_direct = p < direct;
            some = is_direct ? std::min(together, direct - p) : 1;
            for (int64_t q = p; q < p + some; ++q) {
                const int64_t c = out.column + q * width_;
                const int columns = static_cast<int>(std::min<int64_t>(width_, out.column_end - c));
                Panel& panel = here[q - p];
                panel = panel_at(chunk, q, c, columns);
                panel.sums = sums_at(q / group_) + q % group_ * width_;
                if (is_direct) panel.result = result_data_ + first * result_row_ + c * result_size_;
                else if (chunk.is_last) epilogue_.prefetch(batch_, first, count, c, columns);
            }
            for (size_t r = 0; r < rows_.blocks().size(); ++r)
                for (int64_t q = 0; q < some; ++q) multiply(here[q], first, r);
            note_work(rows_.steps() * count * some * width_);
            const bool ends_group = p + 1 == panels || (p + 1) % group_ == 0;
            if (!chunk.is_last || is_direct || !ends_group) continue;
            const int64_t group = p / group_, begin = std::max(group * group_, direct) * width_;
            // What joins terms leaves its results in PSUM, which the blocks share.
            if (depth_ == 0) std::fill_n(sums_at(group), count * pitch_, 0.0f);
            epilogue_.finish(sums_at(group) + (begin - group * pitch_), batch_, first, count,
                             out.column + begin,
                             static_cast<int>(std::min((group + 1) * pitch_, n) - begin));
        }
    }

    // Some columns of b over a part of the depth.
    struct Panel {
        const float* data;
        int vectors, partial;  // columns of the last one, where it is not whole
        ptrdiff_t step;        // words
        uint32_t least;
        const float* start;  // of the sums
        int64_t column;
        float* sums = nullptr;
        char* result = nullptr;  // where the sums go, unless they stay in PSUM
    };
    // The p-th panel, which begins with `column`.
    Panel panel_at(const Chunk& chunk, int64_t p, int64_t column, int columns) {
        const int vectors = static_cast<int>(ceil_divide(columns, k_.lanes)),
                  partial = columns % k_.lanes;
        const int64_t words = int64_t{step_words(form_)} * vectors * k_.lanes;
        Panel panel{nullptr, vectors, partial, words, no_magnitude, nullptr, column};
        if (chunk.b != nullptr) panel.data = chunk.b + p * chunk.panel_words;
        if (b_in_place_) {
            panel.step = b_.depth[0].stride / 4;
            panel.data = reinterpret_cast<const float*>(b_data_) + chunk.at * panel.step + column;
        } else if (packed_ == nullptr) {
            panel.least = least_[p];
            panel.start = start_of(panel.data, vectors, chunk.steps, nullptr);
        } else {
            const int64_t index = column / width_;
            const int32_t* sums = offset_ == 0 ? nullptr : packed_->sums(batch_, index);
            panel.data = packed_->panel(batch_, index) + steps_of(form_, chunk.at) * words;
            panel.least = packed_->least(batch_, index);
            // Sums of packed columns are those of the whole depth.
            if (sums == nullptr || chunk.at == 0)
                panel.start = start_of(panel.data, vectors, chunk.steps, sums);
        }
        return panel;
    }

    // Whether the register blocks read b where it lies, which costs less than packing it unless many
    // passes go to memory, or to pages that they are slow to read.
    bool multiplies_in_place() const {
        constexpr int64_t page = 4096, few = 2, most_bytes_read = 64 << 20;
        const Axis &v = b_.vectors.back(), &d = b_.depth.back();
        const int64_t bytes = d.stride * depth_, passes = ceil_divide(axes_size(a_.vectors), max_rows_);
        const bool is_cached = bytes <= b_block_bytes;
        return packed_ == nullptr && form_ == ProductForm::fma && b_packer_.is_stored_as_packed() &&
               b_.vectors.size() == 1 && b_.depth.size() == 1 && v.stride == 4 &&
               v.size % k_.lanes == 0 && d.stride > 0 && d.stride % 4 == 0 && depth_ > 0 &&
               (reads_pages_in_place(k_) ? is_cached || bytes <= most_bytes_read / passes
                                         : is_cached && passes <= few && d.stride < page);
    }

    // VDPBF16PS is M2 where no operand is subnormal and every sum is a multiple of 2^-126: where the
    // least exponents of both sides add up to -112 or more.
    static bool pairs_are_exact(uint32_t a, uint32_t b) {
        const uint32_t ea = (a + 1) >> 7, eb = (b + 1) >> 7;  // biased; no operand but zero: 512
        return ea >= 1 && eb >= 1 && ea + eb >= 2 * 127 - 112;
    }

    // What the sums of quads take beside: a's offset times the columns' sums, away.
    const float* start_of(const float* panel, int vectors, int64_t steps, const int32_t* sums) {
        if (offset_ == 0) return nullptr;
        if (sums == nullptr) sum_columns(k_, form_, panel, steps, vectors, start_);
        for (int j = 0; j < vectors * k_.lanes; ++j)
            start_[j] = -offset_ * (sums == nullptr ? start_[j] : sums[j]);
        return reinterpret_cast<const float*>(start_);
    }

    // What the blocks of the rows just taken share; `first`: the depth begins here.
    void begin_rows(bool first) {
        block_.a_step = rows_.step();
        // The one tile that is the whole depth goes on in every chunk of it.
        continues_ = !first && tile_ >= depth_;
        fresh_ = first || continues_;
    }

    // A block of the rows that begin with `row`.
    void multiply(const Panel& panel, int64_t row, size_t row_block) {
        const LeftRows::Block& r = rows_.blocks()[row_block];
        RegisterBlock& block = block_;
        block.a = r.a;
        block.a_row = r.a_row;
        block.line = r.line;
        block.jump = r.jump;
        block.b = panel.data;
        block.b_step = panel.step;
        block.start = panel.start;
        block.psum = panel.sums + r.first * pitch_;
        block.partial = panel.partial;
        block.fresh = fresh_;
        block.continues = continues_;
        block.result = nullptr;
        block.term_count = 0;
        const bool exact = form_ != ProductForm::pairs || pairs_are_exact(rows_.least(), panel.least);
        const bool by_tiles = !exact && rows_.step() == 4;
        const std::vector<BlockRun>& runs = rows_.runs();
        const BlockRun* const end = runs.data() + runs.size();
        for (block.runs = runs.data(); block.runs != end; block.runs = block.runs_end) {
            ProductForm form = exact ? form_ : ProductForm::pairs_by_fma;
            block.runs_end = by_tiles ? same_form(row_block, block.runs, panel.least, form) : end;
            if (panel.result != nullptr && block.runs_end == end) {
                block.result = panel.result + r.first * result_row_;
                terms_.place(row + r.first, panel.column, block);
            }
            if (in_tiles_) tiles_.multiply(k_, form, block, r.count, panel.vectors);
            else kernel(form, panel.vectors, r.count)(block);
            block.fresh = block.continues = false;
            if (block.runs_end == end) break;
            for (const BlockRun* run = block.runs; run != block.runs_end; ++run)
                block.b += run->steps * panel.step;
        }
    }

    // The end of the tiles from `run` on that the block's rows take in one form, and that form: a few
    // tiny elements, as gelu gives them, cost the quick form no more than their own tiles.
    const BlockRun* same_form(size_t block, const BlockRun* run, uint32_t least, ProductForm& form) {
        const std::vector<BlockRun>& runs = rows_.runs();
        const BlockRun* const end = runs.data() + runs.size();
        const BlockRun* found = run;
        for (bool begins = true; found != end; begins = false) {
            uint32_t of_tile = no_magnitude;
            const BlockRun* next = found;
            do of_tile = std::min(of_tile, rows_.least(block, static_cast<size_t>(next - runs.data())));
            while (!next++->ends_tile && next != end);
            const ProductForm right =
                pairs_are_exact(of_tile, least) ? ProductForm::pairs : ProductForm::pairs_by_fma;
            if (begins) form = right;
            else if (right != form) break;
            found = next;
        }
        return found;
    }

    const Kernels& k_;
    const ProductOperand &a_, &b_;
    const PackedColumns* packed_;
    const ProductForm form_;
    const int32_t offset_;  // of a's elements as they are multiplied
    const Packer a_packer_, b_packer_;
    const int64_t depth_, tile_;
    const int width_;
    const int64_t group_, pitch_;  // of PSUM's rows
    const bool in_tiles_;
    const int max_rows_;  // of a register block
    Tiles tiles_;
    LeftRows rows_;
    const Epilogue epilogue_;
    const ProductResult& result_;
    const int64_t result_row_, result_size_;  // bytes
    bool b_in_place_, stores_directly_;
    RegisterBlock block_{};                  // of which every block changes its own
    bool fresh_ = true, continues_ = false;  // of a block's first runs
    BlockTerms terms_;
    char* result_data_ = nullptr;
    int64_t chunk_, columns_block_, rows_of_block_, row_unit_;
    int64_t batch_ = 0;
    const char *a_data_ = nullptr, *b_data_ = nullptr;
    std::vector<uint32_t> least_;
    int32_t start_[max_block_vectors * max_lanes];
};

// How one element of the batch is cut into the pieces that threads take, by outputs only: each packs
// what its own piece needs.
struct Pieces {
    int64_t rows = 1, columns = 1;
};

Pieces cut(const BlockedProduct& sizes, int64_t batch, int64_t rows, int64_t columns, double work,
           int threads) {
    int64_t wanted = batch >= 4 * threads || threads == 1
                         ? 1
                         : std::min<int64_t>(ceil_divide(threads, std::min<int64_t>(batch, threads)),
                                             static_cast<int64_t>(work / least_work) + 1);
    // Bytes are packed quickly: a thread that comes late takes fewer of more pieces.
    if (is_integer_form(sizes.form()) && wanted > 1)
        wanted = std::clamp<int64_t>(static_cast<int64_t>(work / (8 * least_work)), wanted, 4 * wanted);
    // Cut the longer side, in whole register blocks.
    const int64_t row_units = ceil_divide(rows, sizes.row_unit()),
                  column_units = ceil_divide(columns, sizes.width());
    Pieces pieces;
    while (pieces.rows * pieces.columns < wanted) {
        const bool by_columns = columns / pieces.columns >= rows / pieces.rows;
        if (by_columns && pieces.columns < column_units) ++pieces.columns;
        else if (pieces.rows < row_units) ++pieces.rows;
        else if (pieces.columns < column_units) ++pieces.columns;
        else break;
    }
    return pieces;
}

}  // namespace

void product_blocked(const ProductCall& call, Draw draw) {
    const int64_t batch = axes_size(call.result.batch), rows = axes_size(call.result.rows),
                  columns = axes_size(call.result.columns), depth = axes_size(call.a.depth);
    const int threads = thread_count();
    const BlockedProduct sizes(call, draw, threads);
    const double work = static_cast<double>(rows) * static_cast<double>(columns) *
                        static_cast<double>(std::max<int64_t>(depth, 1));
    const Pieces pieces = cut(sizes, batch, rows, columns, work, threads);
    const int64_t count = pieces.rows * pieces.columns;
    const double piece_work = work / static_cast<double>(count);
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(least_work / (piece_work + 1)));
    parallel_for(batch * count, grain, [&](int64_t begin, int64_t end) {
        BlockedProduct block(call, draw, threads);
        // Where the i-th of so many pieces of n begins, in whole units.
        const auto at = [](int64_t n, int64_t unit, int64_t i, int64_t parts) {
            return std::min(n, ceil_divide(n, unit) * i / parts * unit);
        };
        for (int64_t job = begin; job < end; ++job) {
            const int64_t r = job % count / pieces.columns, c = job % count % pieces.columns;
            block.run(job / count, at(rows, sizes.row_unit(), r, pieces.rows),
                      at(rows, sizes.row_unit(), r + 1, pieces.rows),
                      at(columns, sizes.width(), c, pieces.columns),
                      at(columns, sizes.width(), c + 1, pieces.columns));
        }
    });
}

}  // namespace neuronsim
