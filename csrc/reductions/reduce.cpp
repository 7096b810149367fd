#include "reductions/reduce.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"

namespace neuronsim {
namespace {

// One reduction: the kept dimensions are its outputs, the reduced ones the sequences of elements.
class Reducer {
public:
    Reducer(const ReduceCall& call, char* const* data, const Draws& draws)
        : r_(call.reduction),
          k_(kernels()),
          steps_(r_, data[1], draws),
          size_(storage_bytes(r_.dtype)),
          computed_size_(computed_bytes(r_.dtype)),
          scan_(k_.scan[r_.op][domain_of(r_.dtype)]),
          output_(data[2]),
          input_(data[0]),
          out_axes_(call.outputs),
          axes_(call.reduced),
          outputs_(axes_size(out_axes_)),
          depth_(axes_size(axes_)),
          tiles_(ceil_divide(depth_, r_.tile)),
          row_(out_axes_.back().size),
          row_stride_(out_axes_.back().stride),
          stride_(axes_.back().stride) {
        // Sequences with one stride, of a float type, have a loop of their own.
        if (is_device_float(r_.dtype) && axes_.size() == 1 && !steps_.settles())
            fold_sequences_ = k_.fold_sequences[r_.op][r_.dtype];
    }

    void run() const {
        if (outputs_ == 0) return;
        const bool few = outputs_ < few_outputs && tiles_ >= 4;
        if (depth_ >= few_outputs && axes_.size() == 1 && is_free_of_order() && are_long())
            return run_freely();
        if (fold_sequences_ != nullptr && (few || tiles_follow())) run_by_tiles();
        else run_by_outputs();
    }

    // Each sequence runs through its elements once; a tile's prefixes are combined with the result of
    // the tiles before it, which under stochastic rounding every element rounds with words of its own
    // (S2).
    void run_cumulative(int64_t inner, bool backwards) const {
        if (outputs_ == 0 || depth_ == 0) return;
        const int64_t block = std::min<int64_t>(r_.tile, tile_elements);
        const int64_t step = backwards ? -inner : inner;
        const bool draws_tiles = r_.round_tiles && r_.numerics.stochastic;
        constexpr int64_t least_lanes = 8;  // that are worth a step each (measured)
        if (std::min(row_, inner) >= least_lanes && !draws_tiles)
            return run_cumulative_by_rows(inner, backwards);
        parallel_for(outputs_, 1 + 16384 / (depth_ + 1), [&](int64_t begin, int64_t end) {
            const std::unique_ptr<Tile[]> tiles(new Tile[5]);
            Tile &elements = tiles[0], &prefix = tiles[1], &before = tiles[2], &total = tiles[3],
                 &last = tiles[4];
            std::vector<Tile> results;  // of the tiles before, each in its first element
            const int64_t stride = backwards ? -stride_ : stride_;
            for (int64_t o = begin; o < end; ++o) {
                const char* const sequence = start_of(o) + (backwards ? (depth_ - 1) * stride_ : 0);
                const int64_t first = o / inner * depth_ * inner + o % inner;
                results.clear();
                for (int64_t at = 0; at < depth_;) {
                    const int64_t tile = at / r_.tile, tile_end = (tile + 1) * r_.tile;
                    const int64_t limit = std::min(tile_end, depth_);
                    const int n = static_cast<int>(std::min(limit - at, block));
                    note_work(4 * n * (1 + static_cast<int64_t>(results.size())));
                    k_.load[r_.dtype](sequence + at * stride, stride, n, &elements);
                    steps_.flush(&elements, n);
                    // Inside a tile longer than a block the fold goes on from the last prefix.
                    if (at > tile * r_.tile) {
                        steps_.fold(&last, &elements, 1);
                        copy(elements, last, 1);
                    }
                    scan(prefix, elements, n);
                    copy_element(last, prefix, n - 1);
                    const int64_t index = first + (backwards ? depth_ - 1 - at : at) * inner;
                    steps_.round_tile(&prefix, n, tile, index, step);
                    for (size_t t = 0; t < results.size(); ++t) {
                        Tile& one = t == 0 ? before : elements;
                        fill(one, results[t], n);
                        steps_.round_tile(&one, n, static_cast<int64_t>(t), index, step);
                        if (t > 0) steps_.fold(&before, &elements, n);
                    }
                    if (tile > 0) {
                        if (!draws_tiles) fill(before, total, n);
                        steps_.fold(&before, &prefix, n);
                    } else {
                        __builtin_memcpy(&before, &prefix, sizeof before);
                    }
                    if (limit == tile_end && at + n == limit) {
                        if (draws_tiles) results.push_back(last);
                        else copy_element(total, before, n - 1);
                    }
                    finish(before, elements, index, n, index, step);
                    at += n;
                }
            }
        });
    }

private:
    static constexpr int64_t few_outputs = 16, few_lanes = 128, many_lanes = 2048, sequence_lanes = 32;

    // The sequences of neighbouring outputs side by side, an element of each at a time.
    void run_cumulative_by_rows(int64_t inner, bool backwards) const {
        const int64_t row = std::min(row_, inner), pieces_per_row = ceil_divide(row, tile_elements);
        const int64_t stride = backwards ? -stride_ : stride_;
        const auto body = [&](int64_t begin, int64_t end) {
            Tile* const tiles = per_thread<Workspace>([] {}).get<Tile>(5);
            Tile &elements = tiles[0], &prefix = tiles[1], &result = tiles[2], &total = tiles[3];
            for (int64_t piece = begin; piece < end; ++piece) {
                const int64_t column = piece % pieces_per_row * tile_elements;
                const int64_t o = piece / pieces_per_row * row + column;
                const int n = static_cast<int>(std::min<int64_t>(tile_elements, row - column));
                const char* from = start_of(o) + (backwards ? (depth_ - 1) * stride_ : 0);
                const int64_t first = o / inner * depth_ * inner + o % inner;
                for (int64_t i = 0; i < depth_; ++i, from += stride) {
                    note_work(4 * n);
                    const int64_t tile = i / r_.tile;
                    const bool begins = i % r_.tile == 0;
                    if (begins && tile > 0) copy(total, result, n);
                    Tile& into = begins ? prefix : elements;
                    k_.load[r_.dtype](from, row_stride_, n, &into);
                    steps_.flush(&into, n);
                    if (!begins) steps_.fold(&prefix, &elements, n);
                    const int64_t index = first + (backwards ? depth_ - 1 - i : i) * inner;
                    Tile& last = tile == 0 ? result : elements;
                    copy(last, prefix, n);
                    steps_.round_tile(&last, n, tile, index);
                    if (tile > 0) {
                        copy(result, total, n);
                        steps_.fold(&result, &last, n);
                    }
                    copy(elements, result, n);
                    finish(elements, tiles[4], index, n, index);
                }
            }
        };
        parallel_for(outputs_ / row * pieces_per_row, 1 + 16384 / (row * (depth_ + 1)), body);
    }

    // The sequences of neighbouring outputs run side by side, a row of outputs at a time. Where they
    // lie side by side in memory too, many do, so that memory is read in long runs.
    void run_by_outputs() const {
        int64_t lanes_per_piece = few_lanes;
        if (row_stride_ == size_) {
            const int64_t share = ceil_divide(row_, int64_t{2} * thread_count());
            lanes_per_piece = std::clamp(share, few_lanes, many_lanes);
        } else if (fold_sequences_ != nullptr && axes_.size() == 1 && stride_ == size_) {
            lanes_per_piece = sequence_lanes;  // each is read to its end in one go
        }
        const int64_t pieces_per_row = ceil_divide(row_, lanes_per_piece);
        const auto body = [&](int64_t begin, int64_t end) {
            const int64_t tiles = ceil_divide(lanes_per_piece, tile_elements);
            Tile* const total = per_thread<Workspace>([] {}).get<Tile>(3 * tiles);
            Tile *const acc = total + tiles, *const scratch = acc + tiles;
            for (int64_t piece = begin; piece < end; ++piece) {
                const int64_t column = piece % pieces_per_row * lanes_per_piece;
                const int64_t first = piece / pieces_per_row * row_ + column;
                const int lanes = static_cast<int>(std::min(row_ - column, lanes_per_piece));
                for (int64_t tile = 0; tile < tiles_; ++tile) {
                    note_work(std::min(depth_, r_.tile) * lanes);
                    Tile* const into = tile == 0 ? total : acc;
                    fold_tile(first, tile, lanes, into, scratch);
                    steps_.round_tile(into, lanes, tile, first);
                    if (tile > 0) steps_.fold(total, acc, lanes);
                }
                finish(*total, *scratch, first, lanes, first);
            }
        };
        const int64_t work = depth_ * std::min(row_, lanes_per_piece);
        parallel_for(outputs_ / row_ * pieces_per_row, 1 + 65536 / (work + 1), body);
    }

    // Whether the tiles of all outputs, whole ones, follow each other in memory.
    bool tiles_follow() const {
        return axes_.size() == 1 && stride_ == size_ && depth_ % r_.tile == 0 &&
               out_axes_.size() == 1 && row_stride_ == depth_ * size_;
    }

    // Tiles run side by side, those of one output or all; then their results are folded in order.
    void run_by_tiles() const {
        const std::unique_ptr<float[]> results(new float[checked_product({outputs_, tiles_})]);
        if (tiles_follow()) {
            const int64_t all = outputs_ * tiles_;
            // At a time, in whole blocks of the kernel's sequences.
            const int64_t together = ceil_divide(int64_t{1} << 18, r_.tile * 16) * 16;
            parallel_for(all, 1 + 65536 / r_.tile, [&](int64_t begin, int64_t end) {
                for (int64_t at = begin; at < end; at += together) {
                    const int64_t some = std::min(together, end - at);
                    note_work(some * r_.tile);
                    fold_sequences_(input_ + at * r_.tile * size_, r_.tile * size_, size_, r_.tile,
                                    static_cast<int>(some), results.get() + at);
                }
            });
        } else {
            fold_tiles(results.get());
        }
        fold_results(results.get());
    }

    void fold_tiles(float* results) const {
        const int64_t full = depth_ / r_.tile;
        const int64_t pieces = ceil_divide(tiles_, few_lanes);
        parallel_for(outputs_ * pieces, 1 + 65536 / (few_lanes * r_.tile),
                     [&](int64_t begin, int64_t end) {
                         for (int64_t piece = begin; piece < end; ++piece) {
                             note_work(few_lanes * std::min(depth_, r_.tile));
                             const int64_t tile = piece % pieces * few_lanes;
                             const int64_t left = std::min(tiles_ - tile, few_lanes);
                             const int64_t whole = std::min(full - tile, left);
                             const char* data = start_of(piece / pieces) + tile * r_.tile * stride_;
                             float* const out = results + piece / pieces * tiles_ + tile;
                             fold_sequences_(data, r_.tile * stride_, stride_, r_.tile,
                                             static_cast<int>(whole), out);
                             if (whole < left)
                                 fold_sequences_(data + whole * r_.tile * stride_, 0, stride_,
                                                 depth_ - full * r_.tile, 1, out + whole);
                         }
                     });
    }

    void fold_results(const float* results) const {
        parallel_for(outputs_, few_outputs, [&](int64_t begin, int64_t end) {
            Tile total, scratch;
            for (int64_t o = begin; o < end; ++o) {
                const float* result = results + o * tiles_;
                for (int64_t tile = 0; tile < tiles_; ++tile) {
                    note_work(4);
                    Tile& into = tile == 0 ? total : scratch;
                    into.f32[0] = result[tile];
                    steps_.round_tile(&into, 1, tile, o);
                    if (tile > 0) steps_.fold(&total, &scratch, 1);
                }
                finish(total, scratch, o, 1, o);
            }
        });
    }

    const char* start_of(int64_t output) const { return input_ + axes_offset(out_axes_, output); }

    // Whether the sequences are rather folded one by one than side by side, or by the threads.
    bool are_long() const {
        constexpr int64_t long_run = 128;  // of neighbours in memory (measured)
        if (fold_sequences_ == nullptr)
            return 8 * row_ <= depth_ || (stride_ == size_ && depth_ >= long_run);
        return outputs_ < few_outputs && depth_ < 65536 && (stride_ == size_ || outputs_ == 1);
    }
    // Whether the order does not show (R2): integers wrap, and a maximum or minimum is an operand, or
    // the one NaN.
    bool is_free_of_order() const {
        if (steps_.settles() || r_.numerics.stochastic) return false;
        if (!is_device_float(r_.dtype)) return !r_.round_tiles;
        return r_.op == Op::maximum || r_.op == Op::minimum;
    }

    // One output's elements by blocks, whose lanes are then folded by halves.
    void fold_freely(int64_t output, Tile* acc, Tile* scratch) const {
        const char* data = start_of(output);
        const LoadKernel load = k_.load[r_.dtype];
        int n = static_cast<int>(std::min<int64_t>(depth_, tile_elements));
        load(data, stride_, n, acc);
        for (int64_t at = n; at < depth_; at += tile_elements) {
            const int more = static_cast<int>(std::min<int64_t>(depth_ - at, tile_elements));
            note_work(more);
            load(data + at * stride_, stride_, more, scratch);
            steps_.fold(acc, scratch, more);
        }
        for (int half; n > 1; n -= half) {
            half = n / 2;
            steps_.fold(acc, element(*acc, n - half), half);
        }
    }
    void run_freely() const {
        parallel_for(outputs_, 1 + 65536 / depth_, [&](int64_t begin, int64_t end) {
            Tile* const acc = per_thread<Workspace>([] {}).get<Tile>(2);
            for (int64_t o = begin; o < end; ++o) {
                note_work(depth_ + 64);
                fold_freely(o, acc, acc + 1);
                finish(*acc, acc[1], o, 1, o);
            }
        });
    }

    // Folds one tile of each of `lanes` neighbouring outputs, left to right from the first element
    // (R2).
    void fold_tile(int64_t first, int64_t tile, int lanes, Tile* acc, Tile* scratch) const {
        const int64_t begin = tile * r_.tile, end = std::min(begin + r_.tile, depth_);
        const char* data = start_of(first);
        if (fold_sequences_ != nullptr) {
            fold_sequences_(data + begin * stride_, row_stride_, stride_, end - begin, lanes, acc->f32);
            return;
        }
        for (int64_t at = begin; at < end;) {
            const char* element = data + axes_offset(axes_, at);
            for (int64_t n = run_length(axes_, at, end - at); n > 0; --n, ++at, element += stride_) {
                note_work(lanes);
                Tile* const into = at == begin ? acc : scratch;
                k_.load[r_.dtype](element, row_stride_, lanes, into);
                steps_.flush(into, lanes);
                if (at > begin) steps_.fold(acc, scratch, lanes);
            }
        }
    }

    void scan(Tile& prefix, const Tile& elements, int n) const {
        if (!steps_.settles()) return scan_(&prefix, &elements, n);
        Tile acc, next;
        copy_element(acc, elements, 0);
        for (int i = 0; i < n; ++i) {
            if (i > 0) {
                copy_element(next, elements, i);
                steps_.fold(&acc, &next, 1);
            }
            __builtin_memcpy(element(prefix, i), element(acc, 0), computed_size_);
        }
    }

    char* element(Tile& t, int i) const { return reinterpret_cast<char*>(&t) + i * computed_size_; }
    const char* element(const Tile& t, int i) const {
        return reinterpret_cast<const char*>(&t) + i * computed_size_;
    }
    void copy_element(Tile& first, const Tile& from, int i) const {
        __builtin_memcpy(&first, element(from, i), computed_size_);
    }
    void copy(Tile& out, const Tile& from, int n) const {
        __builtin_memcpy(&out, &from, n * computed_size_);
    }
    void fill(Tile& out, const Tile& first, int n) const {
        for (int i = 0; i < n; ++i) __builtin_memcpy(element(out, i), &first, computed_size_);
    }

    // No element: the initial value. The n results go to the output from place `at` on, `stride` apart.
    void finish(Tile& total, Tile& scratch, int64_t index, int n, int64_t at,
                int64_t stride = 1) const {
        if (depth_ == 0) steps_.load_initial(&total, n);
        else steps_.finish(&total, &scratch, n, index, stride);
        if (stride == 1) return k_.store[r_.dtype](&total, n, output_ + at * size_);
        char stored[sizeof(Tile)];
        k_.store[r_.dtype](&total, n, stored);
        for (int i = 0; i < n; ++i)
            __builtin_memcpy(output_ + (at + i * stride) * size_, stored + i * size_, size_);
    }

    const Reduction& r_;
    const Kernels& k_;
    const Steps steps_;
    int size_, computed_size_;
    ScanKernel scan_;
    SequencesKernel fold_sequences_ = nullptr;
    char* output_;
    const char* input_;
    const Axes &out_axes_, &axes_;
    int64_t outputs_, depth_, tiles_, row_, row_stride_, stride_;
};

}  // namespace

Steps::Steps(const Reduction& r, const char* initial, const Draws& draws)
    : k_(kernels()),
      r_(r),
      initial_(initial),
      draws_(draws),
      op_(k_.op[r.op][domain_of(r.dtype)]),
      settles_(is_device_float(r.dtype) &&
               (r.accumulate != DType::float32 || r.numerics.flush_subnormals)),
      reads_flushed_(is_device_float(r.dtype) && r.numerics.flush_subnormals &&
                     formats[static_cast<int>(r.dtype)].exponent_bits == 8) {
    if (k_.scan[r.op][domain_of(r.dtype)] == nullptr) throw std::invalid_argument("not a reduction");
}

void Steps::round(void* values, int n, int64_t id, int64_t first, int64_t stride) const {
    const Draw draw{draws_.seed, r_.numerics.stochastic ? draws_.ids[id] : 0, stride};
    for (int i = 0; i < n; i += tile_elements)
        round_values(k_, r_.dtype, r_.numerics, draw, first + i * stride,
                     static_cast<char*>(values) + i * computed_bytes(r_.dtype),
                     std::min(n - i, tile_elements));
}

ReduceCall::ReduceCall(const Reduction& r, const Axes& axes, int kept, int64_t inner, bool turned)
    : reduction(r),
      outputs(collapsed({axes.begin(), axes.begin() + kept}, 0)),
      reduced(collapsed({axes.begin() + kept, axes.end()}, 0)),
      cumulative_inner(inner),
      backwards(turned) {}

void ReduceCall::run(char* const* data, const Draws& draws) const {
    const Reducer reducer(*this, data, draws);
    if (cumulative_inner > 0) reducer.run_cumulative(cumulative_inner, backwards);
    else reducer.run();
}

}  // namespace neuronsim
