#include "reductions/window.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/window_walk.h"

namespace neuronsim {
namespace {

// Outputs that are folded together: neighbours along `dimension`, each a place with `inner` elements
// side by side, those of the later dimensions, which the windows leave as they are.
struct RowsOfWindows {
    size_t dimension;
    int64_t inner;
};
RowsOfWindows rows_of(const Windows& w, const View& input) {
    if (w.dimensions.empty()) return {0, 1};
    size_t d = w.dimensions.size() - 1;
    int64_t inner = 1, stride = storage_bytes(input.dtype);
    const auto is_kept = [&] {
        const WindowDimension& k = w.dimensions[d];
        return k.size == 1 && k.stride == 1 && k.padding_low == 0 && k.base_dilation == 1 &&
               w.input_shape[d] == w.output_shape[d] && w.input_shape[d] > 0;
    };
    for (; d > 0 && is_kept() && input.strides[d] == stride; --d) {
        if (w.input_shape[d] > tile_elements / inner) break;
        inner *= w.input_shape[d];
        stride *= w.input_shape[d];
    }
    return {d, inner};
}

// Whether the windows of a row of neighbouring outputs move together, and none is longer than a tile.
bool lies_in_rows(const Windows& w, const RowsOfWindows& rows, int64_t tile) {
    int64_t positions = 1;
    for (const WindowDimension& d : w.dimensions) {
        if (d.size > tile) return false;
        positions *= d.size;
        if (positions > tile) return false;
    }
    return !w.dimensions.empty() && w.dimensions[rows.dimension].base_dilation == 1;
}

// `n` neighbouring places from the flat index `first` of an output on, all in one row.
struct WindowRow {
    const Windows& w;
    const View& input;
    const RowsOfWindows& rows;
    int64_t first, column;  // the first place's output in the array, and its number in its row
    int n;
    const int64_t* origin;  // of the row's windows, in the earlier dimensions
    int64_t* position;      // within the windows: room for visit
    char* has_element;      // of each place

    // Bytes from what a place reads to what the next one does.
    int64_t step() const { return w.dimensions[rows.dimension].stride * input.strides[rows.dimension]; }
    // Whether most places read at every position, and the others are few enough to go one by one.
    bool has_few_ends() const {
        int64_t positions = 1;
        for (size_t d = 0; d <= rows.dimension; ++d) positions *= w.dimensions[d].size;
        const WindowDimension& along = w.dimensions[rows.dimension];
        return (along.size - 1) * along.window_dilation * positions <= n;
    }
    // How many places from `at` on have all had an element, or none.
    int run(int at, int end) const {
        const char* const from = has_element + at;
        const void* const other = std::memchr(from, *from ^ 1, static_cast<size_t>(end - at));
        return other == nullptr ? end - at : static_cast<int>(static_cast<const char*>(other) - from);
    }

    // Calls body(data, stride, begin, end) for the window's positions in row-major order: the elements
    // of places [begin, end) at that position lie `stride` bytes apart.
    template <class Body>
    void visit(const Body& body) const {
        const auto& spans = spans_along();
        std::fill_n(has_element, n, char{0});
        std::fill_n(position, rows.dimension, int64_t{0});
        for (;;) {
            int64_t offset = 0;
            note_work(8);
            if (outer_offset(offset))
                for (const Span& s : spans) {
                    note_work(n * rows.inner);
                    body(input.data + offset + s.offset, step(), s.begin, s.end);
                    std::fill(has_element + s.begin, has_element + s.end, char{1});
                }
            size_t d = rows.dimension;
            while (d-- > 0 && ++position[d] == w.dimensions[d].size) position[d] = 0;
            if (d == static_cast<size_t>(-1)) return;
        }
    }

private:
    // The places that have an element at a position along the row, and where the first one's is.
    struct Span {
        int begin, end;
        int64_t offset;
    };
    const std::vector<Span>& spans_along() const {
        auto& spans = per_thread<std::vector<Span>>([] {});
        spans.clear();
        const WindowDimension& along = w.dimensions[rows.dimension];
        const int64_t length = w.input_shape[rows.dimension];
        for (int64_t p = 0; length > 0 && p < along.size; ++p) {
            // Place j reads the element j * stride + shift.
            const int64_t shift = column * along.stride - along.padding_low + p * along.window_dilation;
            const int64_t low = -floor_divide(shift, along.stride);
            const int64_t high = floor_divide(length - 1 - shift, along.stride) + 1;
            const int begin = static_cast<int>(std::clamp<int64_t>(low, 0, n));
            const int end = static_cast<int>(std::clamp<int64_t>(high, 0, n));
            if (begin < end)
                spans.push_back(
                    {begin, end, (shift + begin * along.stride) * input.strides[rows.dimension]});
        }
        return spans;
    }
    bool outer_offset(int64_t& offset) const {
        for (size_t d = 0; d < rows.dimension; ++d) {
            const WindowDimension& dimension = w.dimensions[d];
            int64_t at = origin[d] + position[d] * dimension.window_dilation;
            if (at < 0 || at % dimension.base_dilation != 0) return false;
            at /= dimension.base_dilation;
            if (at >= w.input_shape[d]) return false;
            offset += at * input.strides[d];
        }
        return true;
    }
};

// Calls body(row, tiles) for every row of outputs, cut where a tile ends; it has two tiles of its own.
template <class Body>
void reduce_rows(const Windows& w, const View& input, const RowsOfWindows& rows, const Body& body) {
    const int64_t outputs = element_count(w.output_shape);
    if (outputs == 0) return;
    const int64_t length = w.output_shape[rows.dimension], most = tile_elements / rows.inner;
    const int64_t pieces = ceil_divide(length, most), count = outputs / (length * rows.inner);
    const int64_t grain = ceil_divide(tile_elements, std::min(length, most) * rows.inner);
    parallel_for(count * pieces, grain, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[2]());
        std::vector<int64_t> origin(w.dimensions.size()), position(w.dimensions.size());
        char has_element[tile_elements];
        for (int64_t job = begin; job < end; ++job) {
            int64_t rest = job / pieces;
            const int64_t column = job % pieces * most;
            const int64_t first = (rest * length + column) * rows.inner;
            for (size_t d = rows.dimension; d-- > 0;) {
                origin[d] =
                    rest % w.output_shape[d] * w.dimensions[d].stride - w.dimensions[d].padding_low;
                rest /= w.output_shape[d];
            }
            const int n = static_cast<int>(std::min(length - column, most));
            body(WindowRow{w, input, rows, first, column, n, origin.data(), position.data(),
                           has_element},
                 tiles.get());
        }
    });
}

// How the sums of windows are folded, rounded and stored, whichever way they are walked.
class Sums {
public:
    Sums(const WindowsCall& call, char* const* data, const Draws& draws)
        : steps(call.reduction, data[1], draws),
          k_(kernels()),
          r_(call.reduction),
          size_(computed_bytes(r_.dtype)),
          takes_rows_(takes_rows(call, data[0])),
          output_(data[2]) {}

    const Steps steps;
    int size() const { return size_; }  // of an element of a tile
    void load(const char* data, ptrdiff_t stride, int n, void* to) const {
        k_.load[r_.dtype](data, stride, n, to);
    }
    // Where n places of `inner` elements lie as they are computed with, and how many bytes apart: in
    // memory, or loaded to the tile.
    std::pair<const char*, ptrdiff_t> elements(const char* data, ptrdiff_t stride, int inner, int n,
                                               Tile& tile) const {
        const int stored = storage_bytes(r_.dtype);
        if (!steps.reads_flushed() && stored == size_ && (inner > 1 || stride == stored) &&
            reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_) == 0)
            return {data, stride};
        char* const to = reinterpret_cast<char*>(&tile);
        const int together = inner > 1 ? 1 : n;
        const ptrdiff_t next = inner > 1 ? stored : stride;
        for (int place = 0; place < n; place += together)
            load(data + place * stride, next, together * inner, to + place * inner * size_);
        steps.flush(to, n * inner);
        return {to, inner * size_};
    }
    // Whether the rows of a window may be folded into registers, from memory.
    bool takes_rows() const { return takes_rows_; }
    void fold_window(const float* const* rows, int count, int n, int step, float* sums) const {
        k_.fold_window[r_.op](rows, count, n, step, sums);
    }
    // Takes in the initial value, and stores the outputs of places from `first` on. A window without
    // elements has the initial value itself.
    template <class HasElement>
    void finish(Tile& acc, Tile& element, int inner, int places, int64_t first,
                const HasElement& has_element) const {
        const int n = places * inner, place_bytes = inner * size_;
        steps.finish(&acc, &element, n, first);
        steps.load_initial(&element, n);
        for (int place = 0; place < places; ++place)
            if (!has_element(place))
                __builtin_memcpy(reinterpret_cast<char*>(&acc) + place * place_bytes, &element,
                                 place_bytes);
        k_.store[r_.dtype](&acc, n, output_ + first * storage_bytes(r_.dtype));
    }

private:
    bool takes_rows(const WindowsCall& call, const char* data) const {
        const auto is_whole = [](int64_t bytes) { return bytes % int64_t{sizeof(float)} == 0; };
        const std::vector<int64_t>& strides = call.input.strides;
        return r_.dtype == DType::float32 && r_.accumulate == DType::float32 &&
               !r_.numerics.flush_subnormals && k_.fold_window[r_.op] != nullptr &&
               is_whole(static_cast<int64_t>(reinterpret_cast<uintptr_t>(data))) &&
               std::all_of(strides.begin(), strides.end(), is_whole);
    }

    const Kernels& k_;
    const Reduction& r_;
    const int size_;
    const bool takes_rows_;
    char* const output_;
};

// Place by place, all that its window reads; places of one element together, where they read at every
// position.
void fold_places(const Sums& sums_of, const WindowRow& row, Tile& acc) {
    struct Piece {
        const char* data;
        int64_t stride;
        int begin, end;
    };
    const int inner = static_cast<int>(row.rows.inner);
    auto& pieces = per_thread<std::vector<Piece>>([] {});
    auto& read = per_thread<std::vector<const float*>>([] {});
    pieces.clear();
    row.visit([&](const char* data, int64_t stride, int begin, int end) {
        pieces.push_back({data, stride, begin, end});
    });
    const int step = inner > 1 || row.step() == sizeof(float) ? 1 : 2;
    int low = 0, high = inner == 1 ? row.n : 0;
    for (const Piece& p : pieces) low = std::max(low, p.begin), high = std::min(high, p.end);
    for (int place = 0, together = 1; place < row.n; place += together) {
        together = place == low ? std::max(high - low, 1) : 1;
        read.clear();
        for (const Piece& p : pieces)
            if (p.begin <= place && place < p.end)
                read.push_back(reinterpret_cast<const float*>(p.data + (place - p.begin) * p.stride));
        if (!read.empty())
            sums_of.fold_window(read.data(), static_cast<int>(read.size()), together * inner, step,
                                acc.f32 + place * inner);
    }
}

void reduce_row(const Sums& sums_of, const WindowRow& row, Tile& acc, Tile& element) {
    const int inner = static_cast<int>(row.rows.inner), size = inner * sums_of.size();
    const auto finish = [&] {
        sums_of.steps.round_tile(&acc, row.n * inner, 0, row.first);
        const bool all = row.has_element[0] != 0 && row.run(0, row.n) == row.n;
        sums_of.finish(acc, element, inner, row.n, row.first,
                       [&](int place) { return all || row.has_element[place]; });
    };
    const bool is_near = row.step() == size || row.step() == 2 * size;
    if (sums_of.takes_rows() && (inner > 1 || (is_near && row.has_few_ends()))) {
        fold_places(sums_of, row, acc);
        return finish();
    }
    bool none = true, all = false;  // of the row's places have had an element
    row.visit([&](const char* data, int64_t stride, int begin, int end) {
        const int n = end - begin;
        const auto [values, step] = sums_of.elements(data, stride, inner, n, element);
        const auto take = [&](int at, int count, bool is_first) {
            const int together = step == size ? count : 1;
            for (const int stop = at + count; at < stop; at += together) {
                char* const sums = reinterpret_cast<char*>(&acc) + at * size;
                const char* const from = values + (at - begin) * step;
                if (is_first) __builtin_memcpy(sums, from, together * size);
                else sums_of.steps.fold(sums, from, together * inner);
            }
        };
        if (n == row.n && (none || all)) {
            take(0, n, none);
            none = false, all = true;
            return;
        }
        none = false;
        for (int at = begin, run = 0; at < end; at += run) {
            run = row.run(at, end);
            take(at, run, !row.has_element[at]);
        }
    });
    finish();
}

// The n windows of a walk from output `first` on, element by element.
void reduce_walk(const Sums& sums_of, Walk walk, const View& input, int64_t tile, int64_t first, int n,
                 Tile* tiles) {
    Tile &element = tiles[0], &next = tiles[1], &acc = tiles[2], &total = tiles[3], &closed = tiles[4];
    const int size = sums_of.size();
    const auto bytes = static_cast<size_t>(size);
    int64_t count[lanes] = {};
    // Adds a finished tile's result to the total of one lane.
    const auto close = [&](int lane, int64_t finished) {
        Tile one;
        __builtin_memcpy(&one, reinterpret_cast<const char*>(&acc) + lane * size, bytes);
        sums_of.steps.round_tile(&one, 1, finished, first + lane);
        char* target = reinterpret_cast<char*>(&total) + lane * size;
        if (finished > 0) {
            __builtin_memcpy(&closed, target, bytes);
            sums_of.steps.fold(&closed, &one, 1);
        }
        __builtin_memcpy(target, finished > 0 ? &closed : &one, bytes);
    };
    if (!walk.is_empty()) do {
            note_work(8 * n);
            bool present[lanes];
            for (int lane = 0; lane < n; ++lane) {
                int64_t offset;
                present[lane] = walk.element(lane, input.strides, offset);
                if (present[lane])
                    sums_of.load(input.data + offset, 0, 1,
                                 reinterpret_cast<char*>(&element) + lane * size);
            }
            sums_of.steps.flush(&element, n);
            __builtin_memcpy(&next, &acc, n * size);
            sums_of.steps.fold(&next, &element, n);
            for (int lane = 0; lane < n; ++lane) {
                if (!present[lane]) continue;
                const bool starts = count[lane] % tile == 0;
                if (starts && count[lane] > 0) close(lane, count[lane] / tile - 1);
                copy_lane(acc, starts ? element : next, lane, size);
                ++count[lane];
            }
        } while (walk.advance());
    for (int lane = 0; lane < n; ++lane)
        if (count[lane] > 0) close(lane, (count[lane] - 1) / tile);
    sums_of.finish(total, element, 1, n, first, [&](int lane) { return count[lane] > 0; });
}

}  // namespace

size_t WindowsCall::draw_count() const {
    int64_t places = 1, elements = element_count(windows.input_shape);
    for (const WindowDimension& d : windows.dimensions)
        if (__builtin_mul_overflow(places, d.size, &places)) places = elements;
    // A window without elements has a tile's rounding too.
    return reduction.draw_count(
        std::max<int64_t>(ceil_divide(std::min(places, elements), reduction.tile), 1));
}

void WindowsCall::run(char* const* data, const Draws& draws) const {
    const Windows& w = windows;
    check(w);
    const Sums sums(*this, data, draws);
    View input = this->input;
    input.data = data[0];
    if (const auto run = running(w)) {
        const auto [shape, view] = along(*run, w, input);
        const int kept = static_cast<int>(shape.size()) - 1;
        char* const moved[] = {const_cast<char*>(view.data), data[1], data[2]};
        return ReduceCall(reduction, shape, kept, view.strides, run->inner, run->backwards)
            .run(moved, draws);
    }
    const int64_t tile = reduction.tile;
    if (const RowsOfWindows rows = rows_of(w, input); lies_in_rows(w, rows, tile))
        return reduce_rows(w, input, rows, [&](const WindowRow& row, Tile* tiles) {
            reduce_row(sums, row, tiles[0], tiles[1]);
        });
    const int64_t outputs = element_count(w.output_shape);
    parallel_for(ceil_divide(outputs, lanes), 4, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[5]);
        for (int64_t first = begin * lanes; first < end * lanes && first < outputs; first += lanes) {
            const int n = static_cast<int>(outputs - first < lanes ? outputs - first : lanes);
            reduce_walk(sums, Walk(w, first, n), input, tile, first, n, tiles.get());
        }
    });
}

}  // namespace neuronsim
