#include "products/dot.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "products/exact_sum.h"

namespace neuronsim {

namespace {

// The measured sizes of blocks: of a in the second-level cache, of b in the third, and how deep both
// are; rows and columns bound PSUM's place where the depth is cut.
constexpr int64_t depth_block = 4608, a_block_bytes = 160 << 10, b_block_bytes = 4 << 20,
                  rows_block = 1024, columns_block = 1024;
// Panels that go through the epilogue together, so that its rows are long.
constexpr int64_t panels_together = 2;
// From so many rows side by side in the result on, the vectors run over them.
constexpr int64_t columns_to_turn = 32;

// Where the register blocks read a: from memory, or packed.
struct Rows {
    struct Block {
        const char* a;
        int64_t a_row;
        int first, count;  // within the block of rows
    };
    std::vector<Block> blocks;
    std::vector<DotRun> runs;
    int64_t steps = 0;  // of all runs
    int64_t a_step = 0;
    uint32_t least = 0xFFFF;
};

class BlockedDot {
public:
    BlockedDot(const DotOperand& a, const DotOperand& b, const PackedColumns* packed,
               const DotResult& result, const Accumulation& how, const Numerics& numerics, Draw draw,
               int threads)
        : k_(kernels()),
          a_(a),
          b_(b),
          packed_(packed),
          how_(how),
          form_(a.holds_pairs ? DotForm::pairs
                : packed != nullptr
                    ? packed->form()
                    : dot_form(k_, a.type(), b.type(), how, numerics, axes_size(a.vectors))),
          a_packer_(k_, a, form_, numerics),
          b_packer_(k_, b, form_, numerics),
          depth_(axes_size(b.depth)),
          width_(k_.dot_vectors * k_.lanes),
          group_(std::min(panels_together, blocks(axes_size(b.vectors), width_))),
          pitch_(group_ * width_),
          epilogue_(k_, result, numerics, draw, pitch_) {
        max_rows_ = 0;
        while (max_rows_ < max_dot_rows && kernel(form_, 1, max_rows_ + 1) != nullptr) ++max_rows_;
        // Chunks of the depth hold whole tiles, or are whole parts of the one tile there is.
        const int64_t limit = depth_block * (is_pair_form(form_) ? 2 : 1);
        const int64_t unit = how_.tile < depth_ ? how_.tile : 2;
        const int64_t chunks = blocks(depth_, limit);
        chunk_ = chunks <= 1 ? std::max<int64_t>(depth_, 1)
                             : std::max(blocks(blocks(depth_, chunks), unit), int64_t{1}) * unit;
        const int64_t chunk_bytes =
            steps_of(form_, std::max<int64_t>(chunk_, 1)) * step_words(form_) * 4;
        const int64_t share = std::max(threads / 2, 1);
        columns_block_ = std::clamp(b_block_bytes / share / chunk_bytes / width_ * width_,
                                    int64_t{width_}, columns_block / width_ * width_);
        direct_ = a_.holds_pairs || (reads_in_place() && !takes_two(form_));
        // Rows that are read in place take no room; register blocks do not reach over an inner axis.
        const int64_t most = 16 * max_rows_, inner = a_.vectors.back().size;
        rows_of_block_ =
            direct_ ? most : std::clamp<int64_t>(a_block_bytes / chunk_bytes, max_rows_, most);
        row_unit_ = !direct_ || a_.vectors.size() == 1 ? 1 : inner <= most ? inner : max_rows_;
    }

    int width() const { return width_; }
    // What threads cut the rows by.
    int64_t row_unit() const { return row_unit_ > 1 ? row_unit_ : max_rows_; }

    // The outputs [row, row_end) x [column, column_end) of one element of the batch.
    void run(int64_t batch, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
        batch_ = batch;
        a_data_ = a_.data + axes_offset(a_.batch, batch);
        b_data_ = b_.data + axes_offset(b_.batch, batch);
        for (int64_t r = row; r < row_end; r += rows_block) {
            const int64_t r_end = std::min(row_end, r + rows_block);
            for (int64_t c = column; c < column_end; c += columns_block_)
                run_columns(r, r_end, c, std::min(column_end, c + columns_block_));
        }
    }

private:
    DotKernel kernel(DotForm form, int vectors, int rows) const {
        return k_.dot[static_cast<int>(form)][vectors - 1][rows - 1];
    }

    void run_columns(int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
        auto& b_space = per_thread<Workspace>([] {});
        auto& psum_space = per_thread<Workspace>([] {});
        const int64_t n = column_end - column, panels = blocks(n, width_);
        const bool one_chunk = chunk_ >= depth_;
        const int64_t row_blocks = blocks(row_end - row, rows_of_block_);
        // PSUM of all rows where the depth is cut, else of a block of rows.
        const int64_t psum_rows =
            one_chunk ? blocks(row_end - row, row_blocks) + row_unit_ : row_end - row;
        float* psum =
            psum_space.get<float>(psum_rows * pitch_ * (one_chunk ? 1 : blocks(panels, group_)));
        if (depth_ == 0) std::fill_n(psum, psum_rows * pitch_, 0.0f);
        least_.assign(static_cast<size_t>(panels), 0xFFFF);
        for (int64_t at = 0; at == 0 || at < depth_; at += chunk_) {
            const int64_t depth = std::min(chunk_, depth_ - at);
            const bool last = at + depth >= depth_;
            const int64_t steps = steps_of(form_, depth);
            const int64_t panel_words = steps * step_words(form_) * width_;
            float* b = nullptr;
            if (packed_ == nullptr && depth > 0) {
                b = b_space.get<float>(panel_words * panels);
                b_packer_.panels(b_data_, column, n, at, depth, width_, b, panel_words, least_.data());
            }
            for (int64_t i = 0; i < row_blocks; ++i) {
                const auto boundary = [&](int64_t block) {
                    const int64_t at_row = row + (row_end - row) * block / row_blocks;
                    return std::min(row_end, blocks(at_row, row_unit_) * row_unit_);
                };
                const int64_t first = i == 0 ? row : boundary(i), count = boundary(i + 1) - first;
                if (count <= 0) continue;
                take_rows(first, count, at, depth);
                for (int64_t p = 0; p < panels; ++p) {
                    const int columns = static_cast<int>(std::min<int64_t>(width_, n - p * width_));
                    const int vectors = static_cast<int>(blocks(columns, k_.lanes));
                    float* block =
                        one_chunk ? psum : psum + (p / group_ * psum_rows + first - row) * pitch_;
                    const float* panel = b + p * panel_words;
                    uint32_t least = least_[static_cast<size_t>(p)];
                    if (packed_ != nullptr) {
                        const int64_t index = column / width_ + p;
                        panel = packed_->panel(batch_, index) +
                                steps_of(form_, at) * step_words(form_) * vectors * k_.lanes;
                        least = packed_->least(batch_, index);
                    }
                    if (last) epilogue_.prefetch(batch_, first, count, column + p * width_, columns);
                    multiply(panel, vectors, least, at == 0, block + p % group_ * width_);
                    const bool ends_group = p + 1 == panels || (p + 1) % group_ == 0;
                    if (!last || !ends_group) continue;
                    const int64_t begin = p / group_ * pitch_;
                    epilogue_.finish(block, batch_, first, count, column + begin,
                                     static_cast<int>(std::min(pitch_, n - begin)));
                }
            }
        }
    }

    // a's rows [first, first + count) over [at, at + depth) for the register blocks.
    void take_rows(int64_t first, int64_t count, int64_t at, int64_t depth) {
        Rows& rows = a_rows_;
        rows.blocks.clear();
        rows.runs.clear();
        rows.steps = steps_of(form_, depth);
        if (depth == 0) return;
        const Axis &v = a_.vectors.back(), &d = a_.depth.back();
        const auto cut = [&](int64_t begin, int64_t n, const auto& add) {
            const int64_t pieces = blocks(n, max_rows_);
            for (int64_t i = 0; i < pieces; ++i) {
                const int64_t from = n * i / pieces;
                add(begin + from, static_cast<int>(n * (i + 1) / pieces - from));
            }
        };
        if (direct_) {
            rows.a_step = d.stride;
            rows.least = a_.least;
            for (int64_t i = 0; i < count;) {
                const int64_t n = run_length(a_.vectors, first + i, count - i);
                cut(i, n, [&](int64_t begin, int rows_here) {
                    rows.blocks.push_back({a_data_ + axes_offset(a_.vectors, first + begin), v.stride,
                                           static_cast<int>(begin), rows_here});
                });
                i += n;
            }
        } else {
            const PackedRows packed = pack_rows(first, count, at, depth);
            rows.a_step = packed.step;
            cut(0, count, [&](int64_t begin, int rows_here) {
                rows.blocks.push_back({packed.data + begin * packed.pitch, packed.pitch,
                                       static_cast<int>(begin), rows_here});
            });
        }
        const int64_t two = takes_two(form_) ? 2 : 1;
        for (int64_t i = 0, n = 0; i < depth; i += n) {
            const int64_t to_tile = how_.tile - (at + i) % how_.tile;
            n = std::min(depth - i, to_tile);
            int64_t offset = i / two * rows.a_step;
            if (direct_) {
                // a's axes count pairs where it holds them.
                const int64_t unit = a_.holds_pairs ? 2 : 1;
                n = std::min(n, unit * run_length(a_.depth, (at + i) / unit, blocks(n, unit)));
                offset = axes_offset(a_.depth, (at + i) / unit);
            }
            const bool ends = n == to_tile || at + i + n == depth_;
            rows.runs.push_back({offset, steps_of(form_, n), ends});
        }
    }

    // Whether the register blocks can read a where it lies: rows that fall on the same cache lines
    // would push each other out.
    bool reads_in_place() const {
        const int64_t pitch = std::abs(a_.vectors.back().stride);
        constexpr int64_t page = 4096;
        return a_packer_.is_stored_as_packed() && a_.depth.back().stride == 4 &&
               (pitch % (page / 2) != 0 || a_.vectors.back().size <= 8) && a_.depth.back().size >= 8;
    }

    struct PackedRows {
        const char* data;
        int64_t pitch, step;  // in bytes
    };
    PackedRows pack_rows(int64_t first, int64_t count, int64_t at, int64_t depth) {
        auto& space = per_thread<Workspace>([] {});
        const int64_t steps = steps_of(form_, depth), words = step_words(form_);
        if (a_packer_.across() && words == 1) {  // as one panel of all rows
            float* out = space.get<float>(steps * count);
            a_packer_.panels(a_data_, first, count, at, depth, static_cast<int>(count), out, 0,
                             &a_rows_.least);
            return {reinterpret_cast<const char*>(out), 4, 4 * count};
        }
        // Rows never lie a multiple of half a page apart: they would share the first cache's places.
        constexpr int64_t half_page = 512, line = 16;  // in words
        const int64_t pitch = steps * words + (steps * words % half_page == 0 ? line : 0);
        float* out = space.get<float>(pitch * count);
        a_rows_.least = a_packer_.rows(a_data_, first, count, at, depth, pitch, out);
        return {reinterpret_cast<const char*>(out), 4 * pitch, 4 * words};
    }

    // VDPBF16PS is M2 where no operand is subnormal and every sum is a multiple of 2^-126: where the
    // least exponents of both sides add up to -112 or more.
    static bool pairs_are_exact(uint32_t a, uint32_t b) {
        const uint32_t ea = (a + 1) >> 7, eb = (b + 1) >> 7;  // biased; no operand but zero: 512
        return ea >= 1 && eb >= 1 && ea + eb >= 2 * 127 - 112;
    }

    void multiply(const float* panel, int vectors, uint32_t least, bool first, float* sums) const {
        DotForm form = form_;
        if (form == DotForm::pairs && !pairs_are_exact(a_rows_.least, least))
            form = DotForm::pairs_by_fma;
        DotBlock block;
        block.a_step = a_rows_.a_step;
        block.runs = a_rows_.runs.data();
        block.runs_end = block.runs + a_rows_.runs.size();
        block.b = panel;
        block.psum_stride = pitch_;
        // The one tile that is the whole depth goes on in every chunk of it.
        block.continues = !first && how_.tile >= depth_;
        block.fresh = first || block.continues;
        for (const Rows::Block& r : a_rows_.blocks) {
            block.a = r.a;
            block.a_row = r.a_row;
            block.psum = sums + r.first * pitch_;
            note_work(a_rows_.steps * r.count * vectors * k_.lanes);
            kernel(form, vectors, r.count)(block);
        }
    }

    const Kernels& k_;
    const DotOperand &a_, &b_;
    const PackedColumns* packed_;
    const Accumulation& how_;
    const DotForm form_;
    const Packer a_packer_, b_packer_;
    const int64_t depth_;
    const int width_;
    const int64_t group_, pitch_;  // of PSUM's rows
    const Epilogue epilogue_;
    int max_rows_;
    bool direct_;
    int64_t chunk_, columns_block_, rows_of_block_, row_unit_;
    int64_t batch_ = 0;
    const char *a_data_ = nullptr, *b_data_ = nullptr;
    Rows a_rows_;
    std::vector<uint32_t> least_;
};

// The split over threads, by outputs only: each packs what its own block of outputs needs.
void dot_blocked(const DotOperand& a, const DotOperand& b, const PackedColumns* packed,
                 const DotResult& result, const Accumulation& how, const Numerics& numerics,
                 Draw draw) {
    const int64_t batch = axes_size(result.batch), rows = axes_size(result.rows),
                  columns = axes_size(result.columns), depth = axes_size(a.depth);
    const int threads = thread_count();
    const auto make = [&] { return BlockedDot(a, b, packed, result, how, numerics, draw, threads); };
    const BlockedDot sizes = make();
    // Below this much work a second thread costs more than it saves.
    constexpr double least_work = 1 << 18;
    const double work = static_cast<double>(rows) * static_cast<double>(columns) *
                        static_cast<double>(std::max<int64_t>(depth, 1));
    const int64_t wanted = batch >= 4 * threads || threads == 1
                               ? 1
                               : std::min<int64_t>(blocks(threads, std::min<int64_t>(batch, threads)),
                                                   static_cast<int64_t>(work / least_work) + 1);
    // Cut the longer side, in whole register blocks.
    const int64_t row_units = blocks(rows, sizes.row_unit()),
                  column_units = blocks(columns, sizes.width());
    int64_t row_pieces = 1, column_pieces = 1;
    while (row_pieces * column_pieces < wanted) {
        const bool by_columns = columns / column_pieces >= rows / row_pieces;
        if (by_columns && column_pieces < column_units) ++column_pieces;
        else if (row_pieces < row_units) ++row_pieces;
        else if (column_pieces < column_units) ++column_pieces;
        else break;
    }
    const int64_t pieces = row_pieces * column_pieces;
    const double batch_work = work * static_cast<double>(batch) / static_cast<double>(batch * pieces);
    const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(least_work / (batch_work + 1)));
    parallel_for(batch * pieces, grain, [&](int64_t begin, int64_t end) {
        BlockedDot block = make();
        for (int64_t job = begin; job < end; ++job) {
            const int64_t piece = job % pieces;
            const int64_t r = piece / column_pieces, c = piece % column_pieces;
            const int64_t row = row_units * r / row_pieces * sizes.row_unit(),
                          row_end = row_units * (r + 1) / row_pieces * sizes.row_unit();
            const int64_t column = column_units * c / column_pieces * sizes.width(),
                          column_end = column_units * (c + 1) / column_pieces * sizes.width();
            block.run(job / pieces, row, std::min(rows, row_end), column,
                      std::min(columns, column_end));
        }
    });
}

// One row by a matrix in memory as it lies: b is read once and not packed.
void dot_one_row(const DotOperand& a, const DotOperand& b, const DotResult& result,
                 const Accumulation& how) {
    const Kernels& k = kernels();
    const int64_t depth = axes_size(a.depth), columns = axes_size(result.columns);
    const Axis &d = b.depth.back(), &v = b.vectors.back(), &out = result.columns.back();
    constexpr int64_t strip = 4096;  // columns whose sums stay in the first cache
    const int64_t share = blocks(blocks(columns, thread_count()), k.lanes) * k.lanes;
    const int64_t width = std::min(strip, share);
    const StreamKernel stream = k.dot_stream[static_cast<int>(b.dtype)];
    parallel_for(blocks(columns, width), 1, [&](int64_t begin, int64_t end) {
        alignas(64) float acc[strip], psum[strip];
        Tile row;
        for (int64_t s = begin; s < end; ++s) {
            const int n = static_cast<int>(std::min(width, columns - s * width));
            std::fill_n(psum, n, 0.0f);
            for (int64_t at = 0; at < depth;) {
                const int64_t tile_end = std::min(depth, (at / how.tile + 1) * how.tile);
                std::fill_n(acc, n, 0.0f);
                while (at < tile_end) {
                    const int count = static_cast<int>(
                        std::min<int64_t>(run_length(a.depth, at, tile_end - at), tile_elements));
                    k.load[static_cast<int>(a.dtype)](a.data + axes_offset(a.depth, at),
                                                      a.depth.back().stride, count, &row);
                    note_work(int64_t{count} * n);
                    stream(row.f32, b.data + at * d.stride + s * width * v.stride, d.stride, count, n,
                           acc);
                    at += count;
                }
                for (int j = 0; j < n; ++j) psum[j] += acc[j];
            }
            k.store_rows[static_cast<int>(result.dtype)](psum, 0, 1, n,
                                                         result.data + s * width * out.stride, 0);
        }
    });
}

// M6: the exact sum rounded once, to the output's type.
void dot_exact(const DotOperand& a, const DotOperand& b, const DotResult& result,
               const Numerics& numerics, Draw draw) {
    const Kernels& k = kernels();
    const int64_t rows = axes_size(result.rows), columns = axes_size(result.columns),
                  depth = axes_size(a.depth);
    const Packer a_packer(k, a, DotForm::fma, numerics), b_packer(k, b, DotForm::fma, numerics);
    const int size = storage_bytes(result.dtype);
    parallel_for(axes_size(result.batch) * rows, 1, [&](int64_t begin, int64_t end) {
        constexpr int64_t piece = 4096;
        std::vector<float> x(piece), y(piece);
        Tile tile;
        for (int64_t job = begin; job < end; ++job) {
            const int64_t batch = job / rows, row = job % rows;
            const auto stage = [&](const Packer& packer, const DotOperand& operand, int64_t vector,
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

// M7: modulo 2^64 and then 2^n is modulo 2^n; to bool, the or of ands of what is not zero.
void dot_integer(const DotOperand& a, const DotOperand& b, const DotResult& result) {
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

DotOperand collapsed(const DotOperand& x) {
    DotOperand y = x;
    const int64_t size = storage_bytes(x.dtype);
    y.batch = collapsed(x.batch, size);
    y.vectors = collapsed(x.vectors, size);
    y.depth = collapsed(x.depth, size);
    return y;
}

}  // namespace

// Whether VDPBF16PS gives these products' bits: they may be multiplied in pairs, or by fma.
bool may_pair(const Kernels& k, DType a, DType b, const Accumulation& how, const Numerics& numerics) {
    // Every float8 is a bfloat16.
    const auto is_bfloat16 = [](DType t) { return t == DType::bfloat16 || storage_bytes(t) == 1; };
    return how.type == DType::float32 && how.model == Accumulate::fma && !numerics.flush_subnormals &&
           how.tile % 2 == 0 && k.pair_chains != nullptr && pairs_are_proved() && is_bfloat16(a) &&
           is_bfloat16(b);
}

DotForm dot_form(const Kernels& k, DType a, DType b, const Accumulation& how, const Numerics& numerics,
                 int64_t rows) {
    const auto flushed_if = [&](DotForm f) {
        return numerics.flush_subnormals ? static_cast<DotForm>(static_cast<int>(f) + 1) : f;
    };
    if (how.type == DType::bfloat16) return flushed_if(DotForm::to_bfloat16);
    if (how.type == DType::float16) return flushed_if(DotForm::to_float16);
    if (how.model == Accumulate::product_bfloat16) return flushed_if(DotForm::product_bfloat16);
    if (how.model == Accumulate::pairs) return flushed_if(DotForm::odd_even);
    if (numerics.flush_subnormals) return DotForm::flushed;
    return may_pair(k, a, b, how, numerics) && prefers_pairs(rows) ? DotForm::pairs : DotForm::fma;
}

PackedColumns::PackedColumns(DType a, const DotOperand& operand, const Accumulation& how,
                             const Numerics& numerics, int64_t rows)
    : isa_(kernels().isa), flush_(numerics.flush_subnormals), type_(operand.type()) {
    const Kernels& k = kernels();
    const DotOperand b = collapsed(operand);
    if (!is_device_float(type_) || !is_device_float(a))
        throw std::invalid_argument("packed columns hold floats");
    form_ = dot_form(k, a, type_, how, numerics, rows);
    width_ = k.dot_vectors * k.lanes;
    columns_ = axes_size(b.vectors);
    panels_ = blocks(columns_, width_);
    batch_ = axes_size(b.batch);
    depth_ = axes_size(b.depth);
    steps_ = steps_of(form_, depth_);
    const Packer packer(k, b, form_, numerics);
    words_.resize(checked_product({batch_, panels_, steps_, step_words(form_), width_}));
    least_.resize(static_cast<size_t>(batch_ * panels_));
    parallel_for(batch_ * panels_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % panels_ * width_;
            packer.panels(b.data + axes_offset(b.batch, i / panels_), first,
                          std::min<int64_t>(width_, columns_ - first), 0, depth_, width_,
                          words_.data() + i * panel_words(), 0, &least_[static_cast<size_t>(i)]);
        }
    });
}

bool PackedColumns::fits(const DotOperand& a, const DotOperand& b, const Accumulation& how,
                         const Numerics& numerics) const {
    if (isa_ != kernels().isa || flush_ != numerics.flush_subnormals || type_ != b.type() ||
        batch_ != axes_size(b.batch) || columns_ != axes_size(b.vectors) ||
        depth_ != axes_size(b.depth))
        return false;
    if (a.holds_pairs) return form_ == DotForm::pairs;
    // What may be multiplied in pairs may be so by fma too, whichever was quicker when it was packed.
    if (form_ == DotForm::pairs || form_ == DotForm::fma)
        if (may_pair(kernels(), a.type(), type_, how, numerics)) return true;
    constexpr int64_t one_row = 1;
    return form_ == dot_form(kernels(), a.type(), type_, how, numerics, one_row);
}

const float* PackedColumns::panel(int64_t batch, int64_t index) const {
    return words_.data() + (batch * panels_ + index) * panel_words();
}
uint32_t PackedColumns::least(int64_t batch, int64_t index) const {
    return least_[static_cast<size_t>(batch * panels_ + index)];
}

void dot(const DotOperand& a_given, const DotOperand& b_given, const PackedColumns* packed,
         const DotResult& given, const Accumulation& how, const Numerics& numerics, Draw draw) {
    if (how.tile < 1) throw std::invalid_argument("a contraction tile has at least one element");
    const DotOperand a = collapsed(a_given), b = collapsed(b_given);
    DotResult result = given;
    const int64_t size = storage_bytes(result.stored());
    result.batch = collapsed(given.batch, size);
    result.rows = collapsed(given.rows, size);
    result.columns = collapsed(given.columns, size);
    for (DotTerm& t : result.terms) {
        const int64_t term_size = storage_bytes(t.dtype);
        t.batch = collapsed(t.batch, term_size);
        t.rows = collapsed(t.rows, term_size);
        t.columns = collapsed(t.columns, term_size);
    }
    if (axes_size(result.batch) == 0 || axes_size(result.rows) == 0 || axes_size(result.columns) == 0)
        return;
    // A shape whose size overflows is refused before any work, though its elements may overlap.
    for (const DotOperand* x : {&a, &b}) {
        constexpr int64_t widest = 16;
        checked_product({axes_size(x->batch), axes_size(x->vectors), axes_size(x->depth), widest});
    }
    if (!is_device_float(result.dtype)) return dot_integer(a, b, result);
    if (how.model == Accumulate::exact && result.epilogue != nullptr)
        throw std::invalid_argument("exact sums have no epilogue");
    if (numerics.stochastic && result.epilogue != nullptr)
        throw std::invalid_argument("each of an epilogue's roundings would draw words of its own (S2)");
    if (how.model == Accumulate::exact) return dot_exact(a, b, result, numerics, draw);
    if (packed != nullptr && !packed->fits(a, b, how, numerics)) packed = nullptr;
    if (packed == nullptr && b.data == nullptr)
        throw std::logic_error("packed columns do not fit, and the operand itself is gone");
    const bool plain = packed == nullptr && result.epilogue == nullptr && numerics.plain() &&
                       how.model == Accumulate::fma && how.type == DType::float32 &&
                       a.program == nullptr && b.program == nullptr && !a.holds_pairs;
    const int64_t rows = axes_size(a.vectors), columns = axes_size(b.vectors);
    const auto is_row_of = [](const Axes& axes, DType t) {
        return axes.size() == 1 && axes[0].stride == storage_bytes(t);
    };
    if (plain && axes_size(a.batch) == 1 && rows == 1 && is_row_of(b.vectors, b.dtype) &&
        b.depth.size() == 1 && is_row_of(result.columns, result.dtype))
        return dot_one_row(a, b, result, how);
    // The vectors run over the columns. A narrow product, and one whose rows lie side by side in a and
    // in the result, is computed turned round: multiplication commutes, and a sum's NaN is the
    // canonical one whatever it came from.
    const bool rows_adjacent = result.rows.back().stride == size &&
                               result.columns.back().stride != size &&
                               std::abs(a.vectors.back().stride) < std::abs(a.depth.back().stride);
    const bool turns = (columns < rows && columns <= 8) || (rows_adjacent && rows >= columns_to_turn);
    if (turns && packed == nullptr && !a.holds_pairs) {
        std::swap(result.rows, result.columns);
        for (DotTerm& t : result.terms) std::swap(t.rows, t.columns);
        return dot_blocked(b, a, nullptr, result, how, numerics, draw);
    }
    dot_blocked(a, b, packed, result, how, numerics, draw);
}

}  // namespace neuronsim
