#include "reductions/composite.h"

#include <algorithm>
#include <cstring>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/streaming.h"
#include "machine/workspace.h"

namespace neuronsim {
namespace {

constexpr int most_rows = 32;            // at a time: two vectors of the widest instruction set
constexpr int sequences = 16;            // sums side by side, one vector of them
constexpr int64_t most_elements = 8192;  // of rows at a time, which stay in the first cache
constexpr int64_t most_elements_across = 262144;  // in the second, where a line is of many rows
constexpr int64_t cache_line = 64;
// A result as large as a core's share of the last cache would sweep it (measured: half the time).
constexpr int64_t streamed_bytes = int64_t{8} << 20;

// Some neighbouring rows as float32.
struct Block {
    const float* data;
    ptrdiff_t stride;  // in elements
    int64_t first;     // the number of the first row
    int rows;
    const float* row(int r) const { return data + r * stride; }
};

// Whole cache lines go past the caches; the caller ends the streaming.
void stream(const char* source, int64_t bytes, char* target) {
    const auto apart = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target) % cache_line);
    const int64_t begin = std::min((cache_line - apart) % cache_line, bytes);
    const int64_t end = bytes - (bytes - begin) % cache_line;
    std::memcpy(target, source, begin);
    for (int64_t at = begin; at < end; at += 16) stream_16_bytes(source + at, target + at);
    std::memcpy(target + end, source + end, bytes - end);
}

class Composer {
public:
    Composer(const ComposeCall& call, char* const* data)
        : c_(call),
          k_(kernels()),
          size_(storage_bytes(call.input.dtype)),
          view_{data[0], call.input.dtype, collapsed(call.input.axes, size_)},
          output_(data[1]),
          weight_(call.has_weight ? reinterpret_cast<const float*>(data[2]) : nullptr),
          bias_(call.has_bias ? reinterpret_cast<const float*>(data[2 + call.has_weight]) : nullptr) {
        const Axes& axes = call.input.axes;
        rows_ = axes_size(axes.part(0, call.kept));
        n_ = axes_size(axes.part(call.kept, axes.size()));
        tiles_ = ceil_divide(n_, c_.tile);
        // No fewer than one tile, so that an empty row's sum has its place.
        sums_ = std::max<int64_t>(tiles_, 1);
        find_rows_in_memory();
        // Where whole tiles follow each other each is a sequence, else each row is one.
        const bool tiles_follow = tiles_ > 0 && (n_ % c_.tile == 0 || tiles_ >= sequences);
        const int64_t fewest = tiles_follow ? ceil_divide(sequences, tiles_) : sequences;
        const int64_t elements = lies_across_ ? most_elements_across : most_elements;
        at_once_ = static_cast<int>(
            std::clamp<int64_t>(elements / std::max<int64_t>(n_, 1), fewest, most_rows));
        streams_ = keeps_rows(c_.composite) && rows_ * n_ * size_ >= streamed_bytes;
    }

    void run() const {
        if (rows_ == 0) return;
        const int64_t grain = at_once_ * (1 + 16384 / (at_once_ * n_ + 1));
        parallel_for(rows_, grain, [&](int64_t begin, int64_t end) {
            auto& input = per_thread<Workspace>([] {});
            auto& scratch = per_thread<Workspace>([] {});
            auto& sums = per_thread<Workspace>([] {});
            auto& centres = per_thread<Workspace>([] {});
            const int64_t padded = at_once_ * n_;
            Buffers buffers{is_float32_in_memory_ ? nullptr : input.get<float>(padded),
                            needs_scratch() ? scratch.get<float>(padded) : nullptr,
                            sums.get<float>(at_once_ * sums_), centres.get<float>(at_once_ * sums_)};
            for (int64_t first = begin; first < end; first += at_once_)
                run_block(buffers, first, static_cast<int>(std::min<int64_t>(at_once_, end - first)));
            if (streams_) end_streaming();
        });
    }

private:
    // A thread's own memory for a block.
    struct Buffers {
        float *input, *scratch, *sums, *centres;
    };

    bool needs_scratch() const {
        return c_.composite == Composite::softmax || c_.composite == Composite::log_softmax ||
               c_.composite == Composite::logsumexp;
    }

    // Rows whose elements follow each other are fetched ahead, and read where they are if float32.
    void find_rows_in_memory() {
        const size_t rank = view_.axes.size();
        const int64_t inner = view_.axes.back().size;
        const bool whole = rank == 1 ? inner == n_ * rows_ : rank == 2 && inner == n_;
        row_bytes_ = rank == 2 ? view_.axes[0].stride : n_ * size_;
        const bool dense = view_.axes.back().stride == size_;
        is_dense_ = whole && dense;
        lies_across_ =
            n_ > 0 && rank >= 2 && inner == n_ && !dense && view_.axes[rank - 2].stride == size_;
        is_float32_in_memory_ = is_dense_ && size_ == sizeof(float) &&
                                reinterpret_cast<uintptr_t>(view_.data) % alignof(float) == 0 &&
                                row_bytes_ % static_cast<int64_t>(sizeof(float)) == 0;
    }

    // Memory gives a row quickest when asked for it in one go, and before it is needed.
    void fetch(int64_t row, int64_t at, int64_t n) const {
        if (!is_dense_ || row >= rows_) return;
        const char* const begin = view_.data + row * row_bytes_ + at * size_;
        for (int64_t i = 0; i < n * size_; i += cache_line) __builtin_prefetch(begin + i, 0, 3);
    }

    Block read(const Buffers& buffers, int64_t first, int rows) const {
        if (is_float32_in_memory_)
            return {reinterpret_cast<const float*>(view_.data + first * row_bytes_),
                    row_bytes_ / static_cast<int64_t>(sizeof(float)), first, rows};
        if (lies_across_) {
            for (int done = 0; done < rows;)
                done += read_across(buffers, first + done, rows - done, done);
            return {buffers.input, n_, first, rows};
        }
        const int64_t begin = first * n_, end = begin + rows * n_;
        for (int64_t at = begin; at < end; at += tile_elements)
            load_run(k_, view_, view_.data, at,
                     static_cast<int>(std::min<int64_t>(tile_elements, end - at)),
                     buffers.input + (at - begin));
        return {buffers.input, n_, first, rows};
    }

    // Reads rows whose elements lie side by side, as columns of a matrix do, and turns them; gives how
    // many of the rows wanted there were.
    int read_across(const Buffers& buffers, int64_t first, int wanted, int at) const {
        const size_t side = view_.axes.size() - 2;
        const int64_t columns = view_.axes[side].size, step = view_.axes[side + 1].stride;
        const int rows = static_cast<int>(std::min<int64_t>(wanted, columns - first % columns));
        const char* source = view_.data + axes_offset(view_.axes.part(0, side + 1), first);
        alignas(64) float across[sequences][most_rows];
        for (int64_t k = 0; k < n_; k += sequences) {
            const int some = static_cast<int>(std::min<int64_t>(sequences, n_ - k));
            for (int i = 0; i < some; ++i)
                k_.load[view_.dtype](source + (k + i) * step, size_, rows, across[i]);
            k_.turn(across[0], most_rows, some, rows, buffers.input + at * n_ + k, n_);
        }
        return rows;
    }

    void run_block(const Buffers& buffers, int64_t first, int rows) const {
        note_work(4 * rows * (n_ + 1));
        const Block x = read(buffers, first, rows);
        float a[most_rows], b[most_rows];
        switch (c_.composite) {
            case Composite::softmax:
            case Composite::log_softmax:
            case Composite::logsumexp:
                return run_exponentials(buffers, x);
            case Composite::layer_norm:
                mean_of(buffers, x, a);
                return run_normalization(buffers, x, a);
            case Composite::rms_norm:
                std::fill_n(a, rows, 0.0f);
                return run_normalization(buffers, x, a);
            case Composite::mean:
                mean_of(buffers, x, a);
                return finish(x, a);
            case Composite::variance:
            case Composite::standard_deviation:
                mean_of(buffers, x, a);
                squares_of(buffers, x, a, b);
                for (int r = 0; r < rows; ++r) b[r] /= static_cast<float>(c_.divisor);
                if (c_.composite == Composite::standard_deviation) apply(Op::sqrt, b, rows);
                return finish(x, b);
            case Composite::vector_norm:
                std::fill_n(a, rows, 0.0f);
                squares_of(buffers, x, a, b);
                apply(Op::sqrt, b, rows);
                return finish(x, b);
        }
    }

    void run_exponentials(const Buffers& buffers, const Block& x) const {
        float top[most_rows], total[most_rows];
        const Block powers{buffers.scratch, n_, x.first, x.rows};
        for (int r = 0; r < x.rows; ++r) {
            top[r] = k_.rows.maximum(x.row(r), n_);
            // Infinite elements are shifted by nothing, so that the sum has a logarithm.
            const bool is_infinite = top[r] - top[r] != 0.0f;
            if (c_.composite == Composite::logsumexp && is_infinite) top[r] = 0.0f;
            float* const p = buffers.scratch + r * n_;
            for_tiles([&](int64_t at, int n) {
                fetch(x.first + r + (is_float32_in_memory_ ? 1 : at_once_), at, n);
                k_.rows.powers(x.row(r) + at, n, top[r], p + at);
            });
        }
        fold(k_.rows.sums, buffers, powers, nullptr, {nullptr, 0}, total);
        if (c_.composite == Composite::softmax) {
            for (int r = 0; r < x.rows; ++r)
                store_row(x.first + r, [&](int64_t at, int n, float* out) {
                    k_.rows.divide(powers.row(r) + at, n, total[r], out);
                });
            return;
        }
        apply(Op::log, total, x.rows);
        if (c_.composite == Composite::logsumexp) {
            for (int r = 0; r < x.rows; ++r) total[r] += top[r];
            return finish(x, total);
        }
        for (int r = 0; r < x.rows; ++r)
            store_row(x.first + r, [&](int64_t at, int n, float* out) {
                k_.rows.subtract_twice(x.row(r) + at, n, top[r], total[r], out);
            });
    }

    void run_normalization(const Buffers& buffers, const Block& x, const float* centre) const {
        float scale[most_rows];
        squares_of(buffers, x, centre, scale);
        const float epsilon = static_cast<float>(c_.epsilon);  // in the pinned environment
        for (int r = 0; r < x.rows; ++r) scale[r] = scale[r] / static_cast<float>(n_) + epsilon;
        apply(Op::rsqrt, scale, x.rows);
        for (int r = 0; r < x.rows; ++r)
            store_row(x.first + r, [&](int64_t at, int n, float* out) {
                k_.rows.normalize(x.row(r) + at, n, centre[r], scale[r],
                                  weight_ == nullptr ? nullptr : weight_ + at,
                                  bias_ == nullptr ? nullptr : bias_ + at, out);
            });
    }

    // What follows a block of rows in memory is fetched while the block is summed.
    struct Ahead {
        const char* data;
        ptrdiff_t step;  // bytes for each square of vectors that is summed
    };
    bool has_two_passes() const {
        return c_.composite == Composite::layer_norm || c_.composite == Composite::variance ||
               c_.composite == Composite::standard_deviation;
    }
    Ahead ahead_of(const Block& x, bool second_pass) const {
        const int64_t begin = x.first + x.rows, rows = std::min<int64_t>(x.rows, rows_ - begin);
        if (!is_dense_ || row_bytes_ != n_ * size_ || rows < x.rows) return {nullptr, 0};
        const int64_t step = size_ * k_.lanes * k_.lanes;
        const char* const data = view_.data + begin * row_bytes_;
        if (!has_two_passes()) return {data, step};
        return {second_pass ? data + rows * row_bytes_ / 2 : data, step / 2};
    }

    void mean_of(const Buffers& buffers, const Block& x, float* mean) const {
        fold(k_.rows.sums, buffers, x, nullptr, ahead_of(x, false), mean);
        for (int r = 0; r < x.rows; ++r) mean[r] /= static_cast<float>(n_);
    }
    void squares_of(const Buffers& buffers, const Block& x, const float* centre, float* total) const {
        fold(k_.rows.centred_squares, buffers, x, centre, ahead_of(x, true), total);
    }

    // R2 for every row: the tiles side by side, then their results left to right, last the identity.
    void fold(FoldRowsKernel kernel, const Buffers& buffers, const Block& x, const float* centre,
              Ahead ahead, float* total) const {
        const auto fold_runs = [&](const float* data, ptrdiff_t stride, int64_t count, int64_t runs,
                                   const float* centres, float* sums) {
            kernel(data, stride, count, runs, centres, sums, ahead.data, ahead.step);
            ahead.data += ahead.step * (count / k_.lanes) * ceil_divide(runs, k_.lanes);
        };
        const int64_t full = n_ / c_.tile, rest = n_ % c_.tile;
        if (centre != nullptr)
            for (int64_t i = 0; i < x.rows * tiles_; ++i) buffers.centres[i] = centre[i / tiles_];
        const float* const centres = centre == nullptr ? nullptr : buffers.centres;
        if (rest == 0 && x.stride == n_) {
            fold_runs(x.data, c_.tile, c_.tile, x.rows * tiles_, centres, buffers.sums);
        } else if (x.rows >= tiles_) {
            float column[most_rows];
            for (int64_t t = 0; t < tiles_; ++t) {
                fold_runs(x.data + t * c_.tile, x.stride, t < full ? c_.tile : rest, x.rows, centre,
                          column);
                for (int r = 0; r < x.rows; ++r) buffers.sums[r * tiles_ + t] = column[r];
            }
        } else {
            for (int r = 0; r < x.rows; ++r) {
                float* const sums = buffers.sums + r * tiles_;
                const float* const own = centre == nullptr ? nullptr : centres + r * tiles_;
                fold_runs(x.row(r), c_.tile, c_.tile, full, own, sums);
                if (rest > 0) fold_runs(x.row(r) + full * c_.tile, 0, rest, 1, own, sums + full);
            }
        }
        for (int r = 0; r < x.rows; ++r) {
            const float* const sums = buffers.sums + r * tiles_;
            float acc = tiles_ == 0 ? 0.0f : sums[0];
            for (int64_t t = 1; t < tiles_; ++t) acc += sums[t];
            total[r] = acc + 0.0f;
        }
    }

    void apply(Op op, float* values, int n) const {
        const void* const operands[] = {values};
        k_.op[op][Domain::float32](values, operands, n, 32);
    }

    template <class Body>
    void for_tiles(const Body& body) const {
        for (int64_t at = 0; at < n_; at += tile_elements)
            body(at, static_cast<int>(std::min<int64_t>(tile_elements, n_ - at)));
    }

    // `compute` gives a tile of a result row as float32, its NaN canonical.
    template <class Compute>
    void store_row(int64_t row, const Compute& compute) const {
        char* const target = output_ + row * n_ * size_;
        Tile wide, narrow;
        for_tiles([&](int64_t at, int n) {
            char* const out = target + at * size_;
            if (view_.dtype == DType::float32 && !streams_)
                return compute(at, n, reinterpret_cast<float*>(out));
            compute(at, n, wide.f32);
            if (!streams_) return round_and_store(wide.f32, n, out);
            char* const stored =
                reinterpret_cast<char*>(view_.dtype == DType::float32 ? &wide : &narrow);
            if (view_.dtype != DType::float32) round_and_store(wide.f32, n, stored);
            stream(stored, n * size_, out);
        });
    }

    // The results of a block's rows, one for each.
    void finish(const Block& x, float* values) const {
        for (int r = 0; r < x.rows; ++r)
            if (values[r] != values[r]) values[r] = __builtin_nanf("");  // E6
        round_and_store(values, x.rows, output_ + x.first * size_);
    }
    void round_and_store(float* values, int n, char* target) const {
        // Storage narrower than float32 rounds; a tfloat32 is stored as it is.
        if (view_.dtype == DType::tfloat32) k_.round[view_.dtype](values, n);
        k_.store_quiet[view_.dtype](values, n, target);
    }

    const ComposeCall& c_;
    const Kernels& k_;
    int size_;
    View view_;
    char* output_;
    const float *weight_, *bias_;
    int64_t rows_ = 0, n_ = 0, tiles_ = 0, sums_ = 1, row_bytes_ = 0;
    int at_once_ = 1;
    bool is_dense_ = false, lies_across_ = false, is_float32_in_memory_ = false, streams_ = false;
};

}  // namespace

void ComposeCall::run(char* const* data) const { Composer(*this, data).run(); }

}  // namespace neuronsim
