#include "reductions/window.h"

#include <algorithm>
#include <memory>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/window_walk.h"

namespace neuronsim {
namespace {

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
    void load(const WindowBlock& block, const WindowBlock::Span& span, Tile& tile) const {
        block.load(k_, span, 0, tile);
        steps.flush(&tile, block.elements());
    }
    // Where n places of `inner` elements lie as they are computed with, and how many bytes apart: in
    // memory, or loaded to the tile.
    std::pair<const char*, ptrdiff_t> elements(const char* data, ptrdiff_t stride, int inner, int n,
                                               Tile& tile) const {
        const int stored = storage_bytes(r_.dtype);
        if (!steps.reads_flushed() && is_read_in_place(r_.dtype) && (inner > 1 || stride == stored) &&
            reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size_) == 0)
            return {data, stride};
        char* const to = reinterpret_cast<char*>(&tile);
        const int together = inner > 1 ? 1 : n;
        const ptrdiff_t next = inner > 1 ? stored : stride;
        for (int place = 0; place < n; place += together)
            k_.load[r_.dtype](data + place * stride, next, together * inner,
                              to + place * inner * size_);
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
    void finish(Tile& acc, Tile& element, int inner, int places, int64_t first,
                const int64_t* taken) const {
        const int n = places * inner, place_bytes = inner * size_;
        steps.finish(&acc, &element, n, first);
        steps.load_initial(&element, n);
        for (int place = 0; place < places; ++place)
            if (taken[place] == 0)
                __builtin_memcpy(reinterpret_cast<char*>(&acc) + place * place_bytes, &element,
                                 place_bytes);
        k_.store[r_.dtype](&acc, n, output_ + first * storage_bytes(r_.dtype));
    }

private:
    bool takes_rows(const WindowsCall& call, const char* data) const {
        const auto is_whole = [](const Axis& a) { return a.stride % int64_t{sizeof(float)} == 0; };
        const Axes& axes = call.input.axes;
        return r_.dtype == DType::float32 && r_.accumulate == DType::float32 &&
               !r_.numerics.flush_subnormals && k_.fold_window[r_.op] != nullptr &&
               reinterpret_cast<uintptr_t>(data) % sizeof(float) == 0 &&
               std::all_of(axes.begin(), axes.end(), is_whole);
    }

    const Kernels& k_;
    const Reduction& r_;
    const int size_;
    const bool takes_rows_;
    char* const output_;
};

// The places of a block that have an element at every position: of a row [begin, end) of them.
struct Common {
    int begin, end;
};
Common common(const WindowBlock& block) {
    Common found{0, block.row_places()};
    for (const WindowBlock::Span& span : block.spans()) {
        found.begin = std::max(found.begin, span.begin);
        found.end = std::min(found.end, span.end);
    }
    return {found.begin, std::max(found.begin, found.end)};
}

// Row by row, all that a place's window reads; places of one element together, where they read at every
// position. `taken` is how many elements each place has.
void fold_rows(const Sums& sums_of, WindowBlock& block, Common together, Tile& acc, int64_t* taken) {
    // What place `together.begin` of each row reads, and what one of the others does.
    auto& reads = per_thread<std::vector<const float*>>([] {});
    auto& alone = per_thread<std::vector<const float*>>([] {});
    const std::vector<WindowBlock::Span>& spans = block.spans();
    const int length = block.row_places(), inner = block.inner();
    const int64_t step = block.step(0), floats = step / int64_t{sizeof(float)};
    const auto rows = static_cast<size_t>(block.rows()), most = static_cast<size_t>(block.positions());
    if (reads.size() < rows * most) reads.resize(rows * most);
    size_t counts[tile_elements];
    std::fill_n(counts, rows, size_t{0});
    block.visit([&](const WindowBlock::Span& span) {
        const int64_t moved = (together.begin - span.begin) * step;
        block.for_pieces(span, 0, [&](int row, const char* data) {
            reads[static_cast<size_t>(row) * most + counts[row]++] =
                reinterpret_cast<const float*>(data + moved);
        });
    });
    if (inner > 1) together.end = std::min(together.end, together.begin + 1);
    for (size_t row = 0; row < rows; ++row) {
        const float* const* const read = reads.data() + row * most;
        const auto fold = [&](int place, int count, const float* const* from, size_t n) {
            const int at = static_cast<int>(row) * length + place;
            std::fill_n(taken + at, count, static_cast<int64_t>(n));
            if (n > 0)
                sums_of.fold_window(from, static_cast<int>(n), count * inner,
                                    inner > 1 ? 1 : static_cast<int>(floats), acc.f32 + at * inner);
        };
        if (together.begin < together.end)
            fold(together.begin, together.end - together.begin, read, counts[row]);
        for (int place = 0; place < length; ++place) {
            if (together.begin <= place && place < together.end) continue;
            alone.clear();
            for (size_t i = 0; i < counts[row]; ++i)
                if (const auto& span = spans[i % spans.size()]; span.begin <= place && place < span.end)
                    alone.push_back(read[i] + (place - together.begin) * floats);
            fold(place, 1, alone.data(), alone.size());
        }
    }
}

// Position by position, what the places read there, by tiles of each window's elements.
void fold_positions(const Sums& sums_of, WindowBlock& block, int64_t tile, Tile* tiles,
                    int64_t* taken) {
    const Steps& steps = sums_of.steps;
    const int inner = block.inner(), size = inner * sums_of.size(), places = block.places();
    auto* const sums = reinterpret_cast<char*>(&tiles[0]);
    auto* const acc = reinterpret_cast<char*>(&tiles[1]);
    // Calls body(begin, end, had) for neighbouring places that have had so many elements each.
    const auto for_runs = [&](int begin, int end, const auto& body) {
        for (int at = begin, stop; at < end; at = stop) {
            const int64_t had = taken[at];
            for (stop = at + 1; stop < end && taken[stop] == had;) ++stop;
            body(at, stop, had);
        }
    };
    // The tile that places have been in joins their sums.
    const auto close = [&](int begin, int end, int64_t had) {
        const int64_t number = (had - 1) / tile;
        const int n = (end - begin) * inner;
        steps.round_tile(acc + begin * size, n, number, block.first() + begin * inner);
        if (number == 0) __builtin_memcpy(sums + begin * size, acc + begin * size, n * sums_of.size());
        else steps.fold(sums + begin * size, acc + begin * size, n);
    };
    std::fill_n(taken, places, int64_t{0});
    const bool fits_a_tile = block.positions() <= tile;
    bool all_had = false;
    block.visit([&](const WindowBlock::Span& span) {
        const bool goes_on = all_had && fits_a_tile;  // so that no place begins a tile
        const auto take_piece = [&](int begin, int end, const char* values, ptrdiff_t step) {
            const auto take = [&](int at, int stop, bool starts) {
                for (const int together = step == size ? stop - at : 1; at < stop; at += together) {
                    const char* const from = values + (at - begin) * step;
                    if (starts) __builtin_memcpy(acc + at * size, from, together * size);
                    else steps.fold(acc + at * size, from, together * inner);
                }
            };
            if (goes_on) return take(begin, end, false);
            for_runs(begin, end, [&](int at, int stop, int64_t had) {
                const bool starts = had % tile == 0;
                if (starts && had > 0) close(at, stop, had);
                take(at, stop, starts);
            });
            for (int at = begin; at < end; ++at) ++taken[at];
        };
        if (block.rows() > 1 && inner == 1 && block.is_whole(span)) {
            sums_of.load(block, span, tiles[2]);
            take_piece(0, places, reinterpret_cast<const char*>(&tiles[2]), size);
        } else {
            block.for_pieces(span, 0, [&](int row, const char* data) {
                const int begin = row * block.row_places() + span.begin, n = span.end - span.begin;
                const auto [values, step] = sums_of.elements(data, block.step(0), inner, n, tiles[2]);
                take_piece(begin, begin + n, values, step);
            });
        }
        all_had = all_had || std::find(taken, taken + places, 0) == taken + places;
    });
    for_runs(0, places, [&](int begin, int end, int64_t had) {
        if (had > 0) close(begin, end, had);
    });
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
        const int kept = static_cast<int>(input.axes.size()) - 1;
        return ReduceCall(reduction, along(*run, input).axes, kept, run->inner, run->backwards)
            .run(data, draws);
    }
    const std::vector<View> inputs{input};
    parallel_for(WindowBlock(w, inputs).count(), 1, [&](int64_t begin, int64_t end) {
        WindowBlock block(w, inputs);
        const std::unique_ptr<Tile[]> tiles(new Tile[3]());
        int64_t taken[tile_elements];
        for (int64_t i = begin; i < end; ++i) {
            block.move_to(i);
            // Places at a row's ends go one by one, short rows one after the other.
            const Common together = common(block);
            const int length = block.row_places(), ends = length - (together.end - together.begin);
            const bool is_near = block.step(0) == sizeof(float) || block.step(0) == 2 * sizeof(float);
            const bool few = ends * static_cast<int64_t>(block.spans().size()) <= length && length >= 4;
            const bool is_short = block.positions() <= std::min<int64_t>(reduction.tile, tile_elements);
            if (sums.takes_rows() && is_short && (block.inner() > 1 || (is_near && few))) {
                fold_rows(sums, block, together, tiles[0], taken);
                sums.steps.round_tile(&tiles[0], block.elements(), 0, block.first());
            } else {
                fold_positions(sums, block, reduction.tile, tiles.get(), taken);
            }
            sums.finish(tiles[0], tiles[1], block.inner(), block.places(), block.first(), taken);
        }
    });
}

}  // namespace neuronsim
