#include "reductions/window.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"

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

constexpr int64_t few_elements = 32;  // which windows take in ascending order backwards too (R4)

// The dimension along which windows run over the operand from its first element on, or backwards from
// its last one: what a cumulative function's elements reduce (R4), each from the one before it.
struct Running {
    size_t dimension;
    bool backwards;
    int64_t length, inner, others;  // inner: elements behind the dimension; others: of all other ones
};

std::optional<Running> running(const Windows& w) {
    std::optional<Running> found;
    for (size_t d = 0; d < w.dimensions.size(); ++d) {
        const WindowDimension& x = w.dimensions[d];
        const int64_t n = w.input_shape[d];
        if (x.stride != 1 || x.base_dilation != 1 || w.output_shape[d] != n) return {};
        if (x.size == 1 && x.padding_low == 0) continue;
        const bool forwards = x.padding_low == x.size - 1;
        if (found || x.window_dilation != 1 || x.size < n || !(forwards || x.padding_low == 0))
            return {};
        if (!forwards && n <= few_elements) return {};
        found = Running{d, !forwards, n, 1, 1};
    }
    if (!found) return {};
    for (size_t d = 0; d < w.dimensions.size(); ++d) {
        if (d > found->dimension) found->inner *= w.input_shape[d];
        if (d != found->dimension) found->others *= w.input_shape[d];
    }
    return found;
}

// The operand with the dimension along which the windows run as its last one.
std::pair<std::vector<int64_t>, View> along(const Running& r, const Windows& w, const View& input) {
    std::vector<int64_t> shape = w.input_shape;
    View view = input;
    std::rotate(shape.begin() + static_cast<ptrdiff_t>(r.dimension),
                shape.begin() + static_cast<ptrdiff_t>(r.dimension) + 1, shape.end());
    std::rotate(view.strides.begin() + static_cast<ptrdiff_t>(r.dimension),
                view.strides.begin() + static_cast<ptrdiff_t>(r.dimension) + 1, view.strides.end());
    return {std::move(shape), std::move(view)};
}

// The byte offset of the sequence of each of `n` outputs from the flat index `first` on.
void sequence_offsets(const std::vector<int64_t>& shape, const View& view, int64_t first, int n,
                      int64_t* offsets) {
    for (int lane = 0; lane < n; ++lane) {
        int64_t at = first + lane;
        offsets[lane] = 0;
        for (size_t d = shape.size() - 1; d-- > 0; at /= shape[d])
            offsets[lane] += at % shape[d] * view.strides[d];
    }
}

// Sequences side by side, each folded from element to element, every accumulator being a result.
void fold_running(const Running& r, const Windows& w, const Chain& computation,
                  const std::vector<View>& inputs, const std::vector<const char*>& initial,
                  const std::vector<char*>& outputs) {
    const Kernels& k = kernels();
    const size_t count = outputs.size();
    std::vector<View> sequences;
    std::vector<int64_t> shape;
    for (const View& input : inputs) {
        auto [moved, view] = along(r, w, input);
        shape = std::move(moved);
        sequences.push_back(std::move(view));
    }
    parallel_for(blocks(r.others, lanes), 1 + 256 / (r.length + 1), [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> acc(new Tile[count]), elements(new Tile[count]),
            next(new Tile[count]);
        std::vector<const void*> operands, results(count);
        for (size_t i = 0; i < count; ++i) operands.push_back(&acc[i]);
        for (size_t i = 0; i < count; ++i) operands.push_back(&elements[i]);
        std::vector<int64_t> offsets(count * lanes);
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(r.others - first < lanes ? r.others - first : lanes);
            for (size_t i = 0; i < count; ++i) {
                sequence_offsets(shape, sequences[i], first, n, &offsets[i * lanes]);
                k.load[static_cast<int>(computation.output_dtype(i))](initial[i], 0, n, &acc[i]);
            }
            for (int64_t step = 0; step < r.length; ++step) {
                const int64_t at = r.backwards ? r.length - 1 - step : step;
                for (size_t i = 0; i < count; ++i) {
                    const DType t = inputs[i].dtype;
                    const char* const data = inputs[i].data + at * sequences[i].strides.back();
                    for (int lane = 0; lane < n; ++lane)
                        k.load[static_cast<int>(t)](
                            data + offsets[i * lanes + static_cast<size_t>(lane)], 0, 1,
                            reinterpret_cast<char*>(&elements[i]) + lane * computed_bytes(t));
                }
                computation.run_tile(k, operands.data(), n, results.data());
                for (size_t i = 0; i < count; ++i)
                    computation.copy_output(k, i, results[i], n, &next[i]);
                for (size_t i = 0; i < count; ++i) {
                    const DType t = computation.output_dtype(i);
                    __builtin_memcpy(&acc[i], &next[i], static_cast<size_t>(n * computed_bytes(t)));
                    for (int lane = 0; lane < n; ++lane) {
                        const int64_t o = first + lane;
                        const int64_t place = (o / r.inner * r.length + at) * r.inner + o % r.inner;
                        k.store[static_cast<int>(t)](
                            reinterpret_cast<const char*>(&acc[i]) + lane * computed_bytes(t), 1,
                            outputs[i] + place * storage_bytes(t));
                    }
                }
            }
        }
    });
}

// Whether the windows of a row of neighbouring outputs move together along the operand's last
// dimension, and none is longer than a tile.
bool lies_in_rows(const Windows& w, int64_t tile) {
    int64_t positions = 1;
    for (const WindowDimension& d : w.dimensions) {
        if (d.size > tile) return false;
        positions *= d.size;
        if (positions > tile) return false;
    }
    return !w.dimensions.empty() && w.dimensions.back().base_dilation == 1;
}

// `n` neighbouring outputs from the flat index `first` on, all in one row of the last dimension.
struct WindowRow {
    const Windows& w;
    const View& input;
    int64_t first, column;  // the first output's index in the array, and in its row
    int n;
    const int64_t* origin;  // of the row's windows, in the other dimensions
    mutable char has_element[tile_elements];

    // How many outputs from `at` on have all had an element, or none.
    int run(int at, int end) const {
        int to = at + 1;
        while (to < end && has_element[to] == has_element[at]) ++to;
        return to - at;
    }

    // Calls body(data, stride, begin, end) for the window's positions in row-major order: the elements
    // of outputs [begin, end) at that position lie `stride` bytes apart.
    template <class Body>
    void visit(const Body& body) const {
        const size_t rank = w.dimensions.size();
        const WindowDimension& last = w.dimensions.back();
        const int64_t length = w.input_shape.back(), step = last.stride * input.strides.back();
        for (int lane = 0; lane < n; ++lane) has_element[lane] = 0;
        std::vector<int64_t> position(rank, 0);
        for (;;) {
            int64_t offset = 0;
            note_work(8);
            if (outer_offset(position, offset)) {
                for (int64_t p = 0; p < last.size; ++p) {
                    note_work(n);
                    // Output j reads the element j * stride + shift.
                    const int64_t shift =
                        column * last.stride - last.padding_low + p * last.window_dilation;
                    const int64_t low = -floor_divide(shift, last.stride);
                    const int64_t high = floor_divide(length - 1 - shift, last.stride) + 1;
                    const int begin = static_cast<int>(std::clamp<int64_t>(low, 0, n));
                    const int end = static_cast<int>(std::clamp<int64_t>(high, 0, n));
                    if (begin >= end) continue;
                    const char* data =
                        input.data + offset + shift * input.strides.back() + begin * step;
                    body(data, step, begin, end);
                    for (int lane = begin; lane < end; ++lane) has_element[lane] = 1;
                }
            }
            size_t d = rank - 1;
            while (d-- > 0 && ++position[d] == w.dimensions[d].size) position[d] = 0;
            if (d == static_cast<size_t>(-1)) return;
        }
    }

private:
    bool outer_offset(const std::vector<int64_t>& position, int64_t& offset) const {
        for (size_t d = 0; d + 1 < w.dimensions.size(); ++d) {
            const WindowDimension& dimension = w.dimensions[d];
            int64_t at = origin[d] + position[d] * dimension.window_dilation;
            if (at < 0 || at % dimension.base_dilation != 0) return false;
            at /= dimension.base_dilation;
            if (at >= w.input_shape[d]) return false;
            offset += at * input.strides[d];
        }
        return w.input_shape.back() > 0;
    }
};

// Calls body(row, tiles) for every row of outputs, cut where a tile ends; it has two tiles of its own.
template <class Body>
void reduce_rows(const Windows& w, const View& input, const Body& body) {
    const size_t rank = w.dimensions.size();
    const int64_t length = w.output_shape.back();
    if (length == 0) return;
    const int64_t pieces = blocks(length, tile_elements), rows = element_count(w.output_shape) / length;
    const int64_t grain = blocks(tile_elements, length < tile_elements ? length : tile_elements);
    parallel_for(rows * pieces, grain, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[2]());
        std::vector<int64_t> origin(rank);
        for (int64_t job = begin; job < end; ++job) {
            int64_t rest = job / pieces;
            const int64_t column = job % pieces * tile_elements, first = rest * length + column;
            for (size_t d = rank - 1; d-- > 0;) {
                origin[d] =
                    rest % w.output_shape[d] * w.dimensions[d].stride - w.dimensions[d].padding_low;
                rest /= w.output_shape[d];
            }
            const int n =
                static_cast<int>(length - column < tile_elements ? length - column : tile_elements);
            WindowRow row{w, input, first, column, n, origin.data(), {}};
            body(row, tiles.get());
        }
    });
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
    const auto settle = [&](void* t, int n) {
        if (flushes) k.flush(t, t, n);
        if (r.accumulate != DType::float32 && is_device_float(r.dtype))
            round_values(k, r.accumulate, r.numerics, {}, 0, t, n, false);
    };
    const auto round_tile = [&](Tile& t, int n, size_t tile, int64_t first) {
        const bool has_id = r.numerics.stochastic && 1 + tile < r.ids.size();
        if (r.round_tiles)
            round_values(k, r.dtype, r.numerics, {r.seed, has_id ? r.ids[1 + tile] : 0}, first, &t, n);
    };
    if (const auto run = running(w)) {
        const auto [shape, view] = along(*run, w, input);
        return reduce_cumulative(r, shape, view, initial, run->inner, run->backwards, output);
    }
    const Draw last{r.seed, r.numerics.stochastic ? r.ids[0] : 0};
    const int64_t outputs = element_count(w.output_shape);
    if (lies_in_rows(w, r.tile))
        return reduce_rows(w, input, [&](const WindowRow& row, Tile* tiles) {
            Tile &acc = tiles[0], &element = tiles[1];
            row.visit([&](const char* data, int64_t stride, int begin, int end) {
                const int n = end - begin;
                k.load[type](data, stride, n, &element);
                if (flushes && is_wide) k.flush(&element, &element, n);
                for (int at = begin; at < end;) {
                    const int run = row.run(at, end);
                    char* const sums = reinterpret_cast<char*>(&acc) + at * size;
                    const char* const values =
                        reinterpret_cast<const char*>(&element) + (at - begin) * size;
                    if (row.has_element[at]) {
                        fold(sums, values, run);
                        settle(sums, run);
                    } else {
                        __builtin_memcpy(sums, values, static_cast<size_t>(run * size));
                    }
                    at += run;
                }
            });
            round_tile(acc, row.n, 0, row.first);
            k.load[type](initial, 0, row.n, &element);
            if (flushes && is_wide) k.flush(&element, &element, row.n);
            fold(&acc, &element, row.n);
            settle(&acc, row.n);
            round_values(k, r.dtype, r.numerics, last, row.first, &acc, row.n);
            k.load[type](initial, 0, row.n, &element);
            for (int lane = 0; lane < row.n; ++lane)
                if (!row.has_element[lane]) copy_lane(acc, element, lane, size);
            k.store[type](&acc, row.n, output + row.first * storage_bytes(r.dtype));
        });
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
                    settle(&closed, 1);
                    __builtin_memcpy(target, &closed, static_cast<size_t>(size));
                } else {
                    __builtin_memcpy(target, &one, static_cast<size_t>(size));
                }
            };
            if (!walk.is_empty()) do {
                    note_work(8 * n);
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
                    settle(&next, n);
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
            settle(&total, n);
            round_values(k, r.dtype, r.numerics, last, first, &total, n);
            k.load[type](initial, 0, n, &element);
            for (int lane = 0; lane < n; ++lane)
                if (count[lane] == 0) copy_lane(total, element, lane, size);
            k.store[type](&total, n, output + first * storage_bytes(r.dtype));
        }
    });
}

void fold_windows(const Windows& w, const Chain& computation, const std::vector<View>& inputs,
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
    if (const auto run = running(w))
        return fold_running(*run, w, computation, inputs, initial, outputs);
    const Kernels& k = kernels();
    const int64_t n_outputs = element_count(w.output_shape);
    parallel_for(blocks(n_outputs, lanes), 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> acc(new Tile[count]), elements(new Tile[count]),
            next(new Tile[count]);
        std::vector<const void*> operands, results(count);
        for (size_t i = 0; i < count; ++i) operands.push_back(&acc[i]);
        for (size_t i = 0; i < count; ++i) operands.push_back(&elements[i]);
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(n_outputs - first < lanes ? n_outputs - first : lanes);
            Walk walk(w, first, n);
            for (size_t i = 0; i < count; ++i)
                k.load[static_cast<int>(computation.output_dtype(i))](initial[i], 0, n, &acc[i]);
            if (!walk.is_empty()) do {
                    note_work(8 * n * static_cast<int64_t>(computation.link_count() + count));
                    bool present[lanes];
                    for (size_t i = 0; i < count; ++i) {
                        const DType t = inputs[i].dtype;
                        for (int lane = 0; lane < n; ++lane) {
                            int64_t offset;
                            present[lane] = walk.element(lane, inputs[i].strides, offset);
                            char* target =
                                reinterpret_cast<char*>(&elements[i]) + lane * computed_bytes(t);
                            if (present[lane])
                                k.load[static_cast<int>(t)](inputs[i].data + offset, 0, 1, target);
                            else __builtin_memset(target, 0, static_cast<size_t>(computed_bytes(t)));
                        }
                    }
                    computation.run_tile(k, operands.data(), n, results.data());
                    for (size_t i = 0; i < count; ++i)
                        computation.copy_output(k, i, results[i], n, &next[i]);
                    for (size_t i = 0; i < count; ++i)
                        for (int lane = 0; lane < n; ++lane)
                            if (present[lane])
                                copy_lane(acc[i], next[i], lane,
                                          computed_bytes(computation.output_dtype(i)));
                } while (walk.advance());
            for (size_t i = 0; i < count; ++i) {
                const DType t = computation.output_dtype(i);
                k.store[static_cast<int>(t)](&acc[i], n, outputs[i] + first * storage_bytes(t));
            }
        }
    });
}

void select_windows(const Windows& w, const Chain& select, const View& input, int64_t* places) {
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
        const std::unique_ptr<Tile[]> values(new Tile[2]());
        Tile &current = values[0], &next = values[1];
        const void* const operands[] = {&current, &next};
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(outputs - first < lanes ? outputs - first : lanes);
            for (int lane = 0; lane < n; ++lane) places[first + lane] = -1;
            Walk walk(w, first, n);
            if (!walk.is_empty()) do {
                    note_work(8 * n);
                    int64_t place[lanes];
                    for (int lane = 0; lane < n; ++lane) {
                        int64_t offset;
                        place[lane] = walk.element(lane, row_major, place[lane]) ? place[lane] : -1;
                        if (place[lane] < 0) continue;
                        walk.element(lane, input.strides, offset);
                        k.load[type](input.data + offset, 0, 1,
                                     reinterpret_cast<char*>(&next) + lane * size);
                    }
                    const void* output;
                    select.run_tile(k, operands, n, &output);
                    const auto* keeps = static_cast<const uint64_t*>(output);
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
