#include "reduce.h"

#include <memory>
#include <stdexcept>

#include "dispatch.h"
#include "pool.h"

namespace neuronsim {
namespace {

// Walks the byte offsets of a row-major index over some dimensions.
class Odometer {
public:
    Odometer(const int64_t* shape, const int64_t* strides, int rank, int64_t at)
        : shape_(shape), strides_(strides), index_(static_cast<size_t>(rank)) {
        for (int d = rank - 1; d >= 0; --d) {
            index_[static_cast<size_t>(d)] = at % shape[d];
            offset_ += at % shape[d] * strides[d];
            at /= shape[d];
        }
    }
    int64_t offset() const { return offset_; }
    void advance() {
        for (size_t d = index_.size(); d-- > 0;) {
            offset_ += strides_[d];
            if (++index_[d] < shape_[d]) return;
            offset_ -= shape_[d] * strides_[d];
            index_[d] = 0;
        }
    }

private:
    const int64_t* shape_;
    const int64_t* strides_;
    std::vector<int64_t> index_;
    int64_t offset_ = 0;
};

// One reduction: the kept dimensions are its outputs, the reduced ones the chains of elements.
class Reducer {
public:
    Reducer(const Reduction& reduction, const std::vector<int64_t>& shape, int kept, const View& input,
            const char* initial, char* output)
        : r_(reduction),
          k_(kernels()),
          type_(static_cast<int>(reduction.dtype)),
          size_(storage_bytes(reduction.dtype)),
          fold_(k_.fold[static_cast<int>(reduction.op)][static_cast<int>(domain_of(reduction.dtype))]),
          initial_(initial),
          output_(output),
          data_(input.data),
          out_shape_(shape.begin(), shape.begin() + kept),
          shape_(shape.begin() + kept, shape.end()) {
        if (fold_ == nullptr || r_.tile < 1) throw std::invalid_argument("not a reduction");
        std::vector<View> outer{input}, inner{input};
        outer[0].strides.resize(static_cast<size_t>(kept));
        inner[0].strides.erase(inner[0].strides.begin(), inner[0].strides.begin() + kept);
        collapse(out_shape_, outer);
        collapse(shape_, inner);
        out_strides_ = outer[0].strides;
        strides_ = inner[0].strides;
        outputs_ = element_count(out_shape_);
        depth_ = element_count(shape_);
        tiles_ = blocks(depth_, r_.tile);
        row_ = out_shape_.empty() ? 1 : out_shape_.back();
        row_stride_ = out_strides_.empty() ? 0 : out_strides_.back();
        // Chains with one stride, of a float type, have a loop of their own.
        if (is_device_float(r_.dtype) && shape_.size() <= 1)
            fold_chains_ = k_.fold_chains[static_cast<int>(r_.op)][type_];
    }

    void run() const {
        if (outputs_ == 0) return;
        if (fold_chains_ != nullptr && outputs_ < few_outputs && tiles_ >= 4) run_by_tiles();
        else run_by_outputs();
    }

private:
    static constexpr int64_t max_lanes = 128, few_outputs = 16;

    // The chains of neighbouring outputs run side by side, a row of outputs at a time.
    void run_by_outputs() const {
        const int64_t pieces_per_row = blocks(row_, max_lanes);
        const int64_t lanes_per_piece = row_ < max_lanes ? row_ : max_lanes;
        const auto body = [&](int64_t begin, int64_t end) {
            const std::unique_ptr<Tile[]> tiles(new Tile[3]);
            Tile &total = tiles[0], &acc = tiles[1], &scratch = tiles[2];
            for (int64_t piece = begin; piece < end; ++piece) {
                const int64_t column = piece % pieces_per_row * max_lanes;
                const int64_t first = piece / pieces_per_row * row_ + column;
                const int lanes =
                    static_cast<int>(row_ - column < max_lanes ? row_ - column : max_lanes);
                for (int64_t tile = 0; tile < tiles_; ++tile) {
                    Tile& into = tile == 0 ? total : acc;
                    fold_tile(first, tile, lanes, into, scratch);
                    if (r_.round_tiles) k_.round[type_](into, lanes);
                    if (tile > 0) fold_(total, acc, lanes);
                }
                finish(total, scratch, first, lanes);
            }
        };
        const int64_t work = depth_ * lanes_per_piece;
        parallel_for(outputs_ / row_ * pieces_per_row, 1 + 65536 / (work + 1), body);
    }

    // With few outputs the tiles of one run side by side; then their results are folded in order.
    void run_by_tiles() const {
        const std::unique_ptr<float[]> results(new float[checked_product({outputs_, tiles_})]);
        const int64_t full = depth_ / r_.tile;
        const int64_t pieces = blocks(tiles_, max_lanes);
        const int64_t stride = strides_.empty() ? 0 : strides_[0];
        parallel_for(outputs_ * pieces, 1 + 65536 / (max_lanes * r_.tile),
                     [&](int64_t begin, int64_t end) {
                         Tile acc;
                         for (int64_t piece = begin; piece < end; ++piece) {
                             const int64_t tile = piece % pieces * max_lanes;
                             const int64_t left = tiles_ - tile < max_lanes ? tiles_ - tile : max_lanes;
                             const int64_t whole = full - tile < left ? full - tile : left;
                             const char* data = start_of(piece / pieces) + tile * r_.tile * stride;
                             fold_chains_(data, r_.tile * stride, stride, r_.tile,
                                          static_cast<int>(whole), acc.f32);
                             if (whole < left)
                                 fold_chains_(data + whole * r_.tile * stride, 0, stride,
                                              depth_ - full * r_.tile, 1, acc.f32 + whole);
                             if (r_.round_tiles) k_.round[type_](acc, static_cast<int>(left));
                             __builtin_memcpy(results.get() + piece / pieces * tiles_ + tile, acc.f32,
                                              static_cast<size_t>(left) * sizeof(float));
                         }
                     });
        parallel_for(outputs_, few_outputs, [&](int64_t begin, int64_t end) {
            Tile total, scratch;
            for (int64_t o = begin; o < end; ++o) {
                const float* result = results.get() + o * tiles_;
                total.f32[0] = result[0];
                for (int64_t tile = 1; tile < tiles_; ++tile) {
                    scratch.f32[0] = result[tile];
                    fold_(total, scratch, 1);
                }
                finish(total, scratch, o, 1);
            }
        });
    }

    const char* start_of(int64_t output) const {
        const Odometer at(out_shape_.data(), out_strides_.data(), static_cast<int>(out_shape_.size()),
                          output);
        return data_ + at.offset();
    }

    // Folds one tile of each of `lanes` neighbouring outputs, left to right from the first element
    // (R2).
    void fold_tile(int64_t first, int64_t tile, int lanes, Tile& acc, Tile& scratch) const {
        const int64_t at = tile * r_.tile;
        const int64_t count = depth_ - at < r_.tile ? depth_ - at : r_.tile;
        Odometer walk(shape_.data(), strides_.data(), static_cast<int>(shape_.size()), at);
        const char* data = start_of(first);
        if (fold_chains_ != nullptr) {
            const int64_t stride = strides_.empty() ? 0 : strides_[0];
            fold_chains_(data + walk.offset(), row_stride_, stride, count, lanes, acc.f32);
            return;
        }
        k_.load[type_](data + walk.offset(), row_stride_, lanes, &acc);
        for (int64_t i = 1; i < count; ++i) {
            walk.advance();
            k_.load[type_](data + walk.offset(), row_stride_, lanes, &scratch);
            fold_(acc, scratch, lanes);
        }
    }

    // The initial value comes last, then the one rounding (R2); no element: the initial value.
    void finish(Tile& total, Tile& scratch, int64_t first, int lanes) const {
        if (depth_ == 0) {
            k_.load[type_](initial_, 0, lanes, &total);
        } else {
            k_.load[type_](initial_, 0, lanes, &scratch);
            fold_(total, scratch, lanes);
            k_.round[type_](total, lanes);
        }
        k_.store[type_](total, output_ + first * size_, lanes);
    }

    Reduction r_;
    const Kernels& k_;
    int type_, size_;
    FoldKernel fold_;
    ChainsKernel fold_chains_ = nullptr;
    const char* initial_;
    char* output_;
    const char* data_;
    std::vector<int64_t> out_shape_, shape_, out_strides_, strides_;
    int64_t outputs_ = 0, depth_ = 0, tiles_ = 0, row_ = 1, row_stride_ = 0;
};

}  // namespace

void reduce(const Reduction& reduction, const std::vector<int64_t>& shape, int kept, const View& input,
            const char* initial, char* output) {
    Reducer(reduction, shape, kept, input, initial, output).run();
}

}  // namespace neuronsim
