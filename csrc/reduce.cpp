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

struct Chains {
    const Kernels& k;
    FoldKernel fold;
    LoadKernel load;
    RoundKernel round;
    int element_size;

    // Folds `count` elements at `walk` of `lanes` neighbouring chains, `stride` bytes apart, left to
    // right from the first element (R2).
    void fold_tile(const char* data, Odometer walk, int64_t count, int64_t stride, int lanes, Tile& acc,
                   Tile& scratch) const {
        load(data + walk.offset(), stride, lanes, acc);
        for (int64_t i = 1; i < count; ++i) {
            walk.advance();
            load(data + walk.offset(), stride, lanes, scratch);
            fold(acc, scratch, lanes);
        }
    }
};

}  // namespace

void reduce(const Reduction& r, const std::vector<int64_t>& shape, int kept, const View& input,
            const char* initial, char* output) {
    const Kernels& k = kernels();
    const int t = static_cast<int>(r.dtype);
    const FoldKernel fold = k.fold[static_cast<int>(r.op)][static_cast<int>(domain_of(r.dtype))];
    if (fold == nullptr || r.tile < 1) throw std::invalid_argument("not a reduction");

    std::vector<int64_t> out_shape(shape.begin(), shape.begin() + kept);
    std::vector<int64_t> reduced_shape(shape.begin() + kept, shape.end());
    std::vector<View> out_view{input}, reduced_view{input};
    out_view[0].strides.resize(static_cast<size_t>(kept));
    reduced_view[0].strides.erase(reduced_view[0].strides.begin(),
                                  reduced_view[0].strides.begin() + kept);
    collapse(out_shape, out_view);
    collapse(reduced_shape, reduced_view);
    const int64_t n = element_count(out_shape), depth = element_count(reduced_shape);
    const int reduced_rank = static_cast<int>(reduced_shape.size());
    const int64_t row = out_shape.empty() ? 1 : out_shape.back();
    const int64_t row_stride = out_shape.empty() ? 0 : out_view[0].strides.back();
    const Chains chains{k, fold, k.load[t], k.round[t], storage_bytes(r.dtype)};

    // The chains of neighbouring outputs run in the lanes of a tile, a row of outputs at a time.
    constexpr int64_t max_lanes = 128;
    const int64_t pieces_per_row = (row + max_lanes - 1) / max_lanes;
    const auto body = [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[3]);
        Tile &total = tiles[0], &acc = tiles[1], &scratch = tiles[2];
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece / pieces_per_row * row + piece % pieces_per_row * max_lanes;
            const int64_t left = row - piece % pieces_per_row * max_lanes;
            const int lanes = static_cast<int>(left < max_lanes ? left : max_lanes);
            const Odometer outputs(out_shape.data(), out_view[0].strides.data(),
                                   static_cast<int>(out_shape.size()), first);
            const char* data = input.data + outputs.offset();
            k.load[t](initial, 0, lanes, scratch);
            if (depth == 0) __builtin_memcpy(&total, &scratch, sizeof(Tile));
            for (int64_t at = 0; at < depth; at += r.tile) {
                const int64_t count = depth - at < r.tile ? depth - at : r.tile;
                const Odometer walk(reduced_shape.data(), reduced_view[0].strides.data(), reduced_rank,
                                    at);
                Tile& into = at == 0 ? total : acc;
                chains.fold_tile(data, walk, count, row_stride, lanes, into, scratch);
                if (r.round_tiles) chains.round(into, lanes);
                if (at > 0) fold(total, acc, lanes);
            }
            if (depth > 0) {
                k.load[t](initial, 0, lanes, scratch);
                fold(total, scratch, lanes);
                k.round[t](total, lanes);
            }
            k.store[t](total, output + first * chains.element_size, lanes);
        }
    };
    const int64_t pieces = n == 0 ? 0 : n / row * pieces_per_row;
    const int64_t work = depth * (row < max_lanes ? row : max_lanes);
    const int64_t grain = 1 + 65536 / (work + 1);
    parallel_for(pieces, grain, body);
}

}  // namespace neuronsim
