#include "window.h"

#include <memory>
#include <stdexcept>

#include "dispatch.h"
#include "pool.h"

namespace neuronsim {
namespace {

constexpr int lanes = 64;                           // neighbouring outputs that are folded together
constexpr int64_t window_limit = int64_t{1} << 31;  // so that no product of two overflows

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The elements of the windows of some neighbouring outputs, window position by window position. Only
// positions where a window can meet the operand are visited.
class Walk {
public:
    Walk(const Windows& windows, int64_t first, int n)
        : w_(windows), rank_(windows.input_shape.size()) {
        origin_.resize(rank_ * lanes);
        begin_.resize(rank_);
        end_.resize(rank_);
        for (int lane = 0; lane < n; ++lane) {
            int64_t at = first + lane;
            for (size_t d = rank_; d-- > 0;) {
                const WindowDimension& dimension = w_.dimensions[d];
                origin_[d * lanes + static_cast<size_t>(lane)] =
                    at % w_.output_shape[d] * dimension.stride - dimension.padding_low;
                at /= w_.output_shape[d];
            }
        }
        for (size_t d = 0; d < rank_; ++d) {
            const WindowDimension& dimension = w_.dimensions[d];
            int64_t low = origin_[d * lanes], high = low;
            for (int lane = 1; lane < n; ++lane) {
                const int64_t origin = origin_[d * lanes + static_cast<size_t>(lane)];
                low = origin < low ? origin : low;
                high = origin > high ? origin : high;
            }
            const int64_t last = (w_.input_shape[d] - 1) * dimension.base_dilation;
            const int64_t begin = -floor_divide(high, dimension.window_dilation);
            const int64_t end = floor_divide(last - low, dimension.window_dilation) + 1;
            begin_[d] = begin > 0 ? begin : 0;
            end_[d] = end < dimension.size ? end : dimension.size;
            is_empty_ = is_empty_ || w_.input_shape[d] == 0 || begin_[d] >= end_[d];
        }
        position_ = begin_;
    }

    bool is_empty() const { return is_empty_; }

    // Whether a lane has an element at this position, and its byte offset.
    bool element(int lane, const std::vector<int64_t>& strides, int64_t& offset) const {
        offset = 0;
        for (size_t d = 0; d < rank_; ++d) {
            const WindowDimension& dimension = w_.dimensions[d];
            int64_t at = origin_[d * lanes + static_cast<size_t>(lane)] +
                         position_[d] * dimension.window_dilation;
            if (at < 0) return false;
            if (dimension.base_dilation != 1) {
                if (at % dimension.base_dilation != 0) return false;
                at /= dimension.base_dilation;
            }
            if (at >= w_.input_shape[d]) return false;
            offset += at * strides[d];
        }
        return true;
    }

    bool advance() {
        for (size_t d = rank_; d-- > 0;) {
            if (++position_[d] < end_[d]) return true;
            position_[d] = begin_[d];
        }
        return false;
    }

private:
    const Windows& w_;
    size_t rank_;
    bool is_empty_ = false;
    std::vector<int64_t> origin_, position_, begin_, end_;
};

void check(const Windows& w) {
    if (w.input_shape.size() != w.dimensions.size() || w.output_shape.size() != w.dimensions.size())
        throw std::invalid_argument("a window has one entry for each dimension");
    for (const WindowDimension& d : w.dimensions)
        if (d.size < 0 || d.size > window_limit || d.stride < 1 || d.stride > window_limit ||
            d.base_dilation < 1 || d.base_dilation > window_limit || d.window_dilation < 1 ||
            d.window_dilation > window_limit || d.padding_low < -window_limit ||
            d.padding_low > window_limit)
            throw std::invalid_argument("a window's sizes, strides and dilations are positive");
}

void copy_lane(Tile& to, const Tile& from, int lane, int size) {
    __builtin_memcpy(reinterpret_cast<char*>(&to) + lane * size,
                     reinterpret_cast<const char*>(&from) + lane * size, static_cast<size_t>(size));
}

}  // namespace

void reduce_windows(const Windows& w, const Reduction& r, const View& input, const char* initial,
                    char* output) {
    check(w);
    const Kernels& k = kernels();
    const int type = static_cast<int>(r.dtype), size = computed_bytes(r.dtype);
    const FoldKernel fold = k.fold[static_cast<int>(r.op)][static_cast<int>(domain_of(r.dtype))];
    if (fold == nullptr || r.tile < 1) throw std::invalid_argument("not a reduction");
    if (r.numerics.stochastic && r.ids.empty())
        throw std::invalid_argument("stochastic rounding needs an id for each rounding");
    const bool is_wide = is_device_float(r.dtype) && formats[type].exponent_bits == 8;
    const bool flushes = r.numerics.flush_subnormals && is_device_float(r.dtype);
    const auto settle = [&](Tile& t, int n) {
        if (flushes) k.flush(&t, &t, n);
        if (r.accumulate != DType::float32 && is_device_float(r.dtype))
            round_values(k, r.accumulate, r.numerics, {}, 0, &t, n, false);
    };
    const auto round_tile = [&](Tile& t, int n, size_t tile, int64_t first) {
        const bool has_id = r.numerics.stochastic && 1 + tile < r.ids.size();
        if (r.round_tiles)
            round_values(k, r.dtype, r.numerics, {r.seed, has_id ? r.ids[1 + tile] : 0}, first, &t, n);
    };
    const int64_t outputs = element_count(w.output_shape);
    parallel_for(blocks(outputs, lanes), 4, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[5]);
        Tile &element = tiles[0], &next = tiles[1], &acc = tiles[2], &total = tiles[3],
             &closed = tiles[4];
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(outputs - first < lanes ? outputs - first : lanes);
            Walk walk(w, first, n);
            int64_t count[lanes] = {};
            // Adds a finished tile's result to the total of one lane.
            const auto close = [&](int lane, int64_t tile) {
                Tile one;
                const char* from = reinterpret_cast<const char*>(&acc) + lane * size;
                __builtin_memcpy(&one, from, static_cast<size_t>(size));
                round_tile(one, 1, static_cast<size_t>(tile), first + lane);
                char* target = reinterpret_cast<char*>(&total) + lane * size;
                if (tile > 0) {
                    __builtin_memcpy(&closed, target, static_cast<size_t>(size));
                    fold(&closed, &one, 1);
                    settle(closed, 1);
                    __builtin_memcpy(target, &closed, static_cast<size_t>(size));
                } else {
                    __builtin_memcpy(target, &one, static_cast<size_t>(size));
                }
            };
            if (!walk.is_empty()) do {
                    bool present[lanes];
                    for (int lane = 0; lane < n; ++lane) {
                        int64_t offset;
                        present[lane] = walk.element(lane, input.strides, offset);
                        if (present[lane])
                            k.load[type](input.data + offset, 0, 1,
                                         reinterpret_cast<char*>(&element) + lane * size);
                    }
                    if (flushes && is_wide) k.flush(&element, &element, n);
                    __builtin_memcpy(&next, &acc, static_cast<size_t>(n * size));
                    fold(&next, &element, n);
                    settle(next, n);
                    for (int lane = 0; lane < n; ++lane) {
                        if (!present[lane]) continue;
                        const bool starts = count[lane] % r.tile == 0;
                        if (starts && count[lane] > 0) close(lane, count[lane] / r.tile - 1);
                        copy_lane(acc, starts ? element : next, lane, size);
                        ++count[lane];
                    }
                } while (walk.advance());
            for (int lane = 0; lane < n; ++lane)
                if (count[lane] > 0) close(lane, (count[lane] - 1) / r.tile);
            k.load[type](initial, 0, n, &element);
            if (flushes && is_wide) k.flush(&element, &element, n);
            fold(&total, &element, n);
            settle(total, n);
            round_values(k, r.dtype, r.numerics, {r.seed, r.numerics.stochastic ? r.ids[0] : 0}, first,
                         &total, n);
            k.load[type](initial, 0, n, &element);
            for (int lane = 0; lane < n; ++lane)
                if (count[lane] == 0) copy_lane(total, element, lane, size);
            k.store[type](&total, n, output + first * storage_bytes(r.dtype));
        }
    });
}

void fold_windows(const Windows& w, const TileProgram& computation, const std::vector<View>& inputs,
                  const std::vector<const char*>& initial, const std::vector<char*>& outputs) {
    check(w);
    const size_t count = outputs.size();
    if (count == 0 || inputs.size() != count || initial.size() != count ||
        computation.inputs().size() != 2 * count || computation.output_count() != count)
        throw std::invalid_argument(
            "the computation takes accumulators and elements, and gives results");
    if (computation.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a reduction");
    for (size_t i = 0; i < count; ++i)
        if (computation.inputs()[i] != computation.output_dtype(i) ||
            computation.inputs()[count + i] != inputs[i].dtype)
            throw std::invalid_argument("the computation's types are not those of the arrays");
    const Kernels& k = kernels();
    const int64_t n_outputs = element_count(w.output_shape);
    parallel_for(blocks(n_outputs, lanes), 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> registers(new Tile[computation.register_count()]);
        const std::unique_ptr<Tile[]> acc(new Tile[count]);
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(n_outputs - first < lanes ? n_outputs - first : lanes);
            Walk walk(w, first, n);
            for (size_t i = 0; i < count; ++i)
                k.load[static_cast<int>(computation.output_dtype(i))](initial[i], 0, n, &acc[i]);
            if (!walk.is_empty()) do {
                    bool present[lanes];
                    for (size_t i = 0; i < count; ++i) {
                        const DType t = inputs[i].dtype;
                        Tile& element = registers[computation.input_register(count + i)];
                        for (int lane = 0; lane < n; ++lane) {
                            int64_t offset;
                            present[lane] = walk.element(lane, inputs[i].strides, offset);
                            char* target = reinterpret_cast<char*>(&element) + lane * computed_bytes(t);
                            if (present[lane])
                                k.load[static_cast<int>(t)](inputs[i].data + offset, 0, 1, target);
                            else __builtin_memset(target, 0, static_cast<size_t>(computed_bytes(t)));
                        }
                        __builtin_memcpy(
                            &registers[computation.input_register(i)], &acc[i],
                            static_cast<size_t>(n * computed_bytes(computation.inputs()[i])));
                    }
                    computation.run_tiles(k, registers.get(), n);
                    for (size_t i = 0; i < count; ++i)
                        for (int lane = 0; lane < n; ++lane)
                            if (present[lane])
                                copy_lane(acc[i], registers[computation.output_register(i)], lane,
                                          computed_bytes(computation.output_dtype(i)));
                } while (walk.advance());
            for (size_t i = 0; i < count; ++i) {
                const DType t = computation.output_dtype(i);
                k.store[static_cast<int>(t)](&acc[i], n, outputs[i] + first * storage_bytes(t));
            }
        }
    });
}

void select_windows(const Windows& w, const TileProgram& select, const View& input, int64_t* places) {
    check(w);
    if (select.inputs() != std::vector<DType>{input.dtype, input.dtype} || select.output_count() != 1 ||
        select.output_dtype(0) != DType::boolean)
        throw std::invalid_argument("a selection takes two elements and gives a bool");
    if (select.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a selection");
    const Kernels& k = kernels();
    const int type = static_cast<int>(input.dtype), size = computed_bytes(input.dtype);
    std::vector<int64_t> row_major(w.input_shape.size());
    int64_t inner = 1;
    for (size_t d = row_major.size(); d-- > 0; inner *= w.input_shape[d]) row_major[d] = inner;
    const int64_t outputs = element_count(w.output_shape);
    parallel_for(blocks(outputs, lanes), 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> registers(new Tile[select.register_count()]());
        const std::unique_ptr<Tile[]> values(new Tile[2]());
        Tile &current = values[0], &next = values[1];
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(outputs - first < lanes ? outputs - first : lanes);
            for (int lane = 0; lane < n; ++lane) places[first + lane] = -1;
            Walk walk(w, first, n);
            if (!walk.is_empty()) do {
                    int64_t place[lanes];
                    for (int lane = 0; lane < n; ++lane) {
                        int64_t offset;
                        place[lane] = walk.element(lane, row_major, place[lane]) ? place[lane] : -1;
                        if (place[lane] < 0) continue;
                        walk.element(lane, input.strides, offset);
                        k.load[type](input.data + offset, 0, 1,
                                     reinterpret_cast<char*>(&next) + lane * size);
                    }
                    const size_t bytes = static_cast<size_t>(n * size);
                    __builtin_memcpy(&registers[select.input_register(0)], &current, bytes);
                    __builtin_memcpy(&registers[select.input_register(1)], &next, bytes);
                    select.run_tiles(k, registers.get(), n);
                    const uint64_t* keeps = registers[select.output_register(0)].u64;
                    for (int lane = 0; lane < n; ++lane) {
                        if (place[lane] < 0 || (places[first + lane] >= 0 && keeps[lane])) continue;
                        places[first + lane] = place[lane];
                        copy_lane(current, next, lane, size);
                    }
                } while (walk.advance());
        }
    });
}

}  // namespace neuronsim
