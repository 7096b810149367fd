#include "movement/indexed.h"

#include <algorithm>
#include <cstring>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/streaming.h"

namespace neuronsim {
namespace {

constexpr int at_once = 256, least_together = 4;  // index vectors
constexpr int64_t cached_bytes = int64_t{1} << 23, near_bytes = int64_t{1} << 18;

// What moves a row of `size` bytes for each of n places.
using MoveRows = void (*)(const char* source, const int64_t* places, char* target, int64_t stride,
                          int n, int64_t size);

// Rows of a few bytes are moved as a word or two, to targets side by side or `stride` apart.
template <int64_t Size>
void move_rows(const char* source, const int64_t* places, char* target, int64_t stride, int n,
               int64_t) {
    const auto move = [&](int64_t step) [[gnu::always_inline]] {
        for (int i = 0; i < n; ++i) std::memcpy(target + i * step, source + places[i], Size);
    };
    if (stride == Size) move(Size);
    else move(stride);
}

// From beyond the caches.
template <int64_t Size>
void fetch_rows(const char* source, const int64_t* places, char* target, int64_t stride, int n,
                int64_t size) {
    constexpr int ahead = 16;
    int i = 0;
    for (; i + ahead < n; ++i) {
        __builtin_prefetch(source + places[i + ahead]);
        std::memcpy(target + i * stride, source + places[i], Size);
    }
    move_rows<Size>(source, places + i, target + i * stride, stride, n - i, size);
}

// More than the caches hold is written past them.
template <int64_t Size>
void stream_rows(const char* source, const int64_t* places, char* target, int64_t stride, int n,
                 int64_t size) {
    if (!can_stream(target, stride)) return fetch_rows<Size>(source, places, target, stride, n, size);
    for (int i = 0; i < n; ++i, target += stride)
        for (int64_t at = 0; at < Size; at += 16) stream_16_bytes(source + places[i] + at, target + at);
    end_streaming();
}

void move_long_rows(const char* source, const int64_t* places, char* target, int64_t stride, int n,
                    int64_t size) {
    for (int i = 0; i < n; ++i) std::memcpy(target + i * stride, source + places[i], size);
}

template <int64_t Size>
MoveRows mover(int64_t source_bytes, int64_t target_bytes) {
    if (Size % 16 == 0 && target_bytes > cached_bytes) return stream_rows<Size>;
    return source_bytes > near_bytes ? fetch_rows<Size> : move_rows<Size>;
}

template <int64_t... Sizes>
MoveRows mover_of(int64_t row, int64_t source_bytes, int64_t target_bytes) {
    MoveRows found = move_long_rows;
    ((found = row == Sizes ? mover<Sizes>(source_bytes, target_bytes) : found), ...);
    return found;
}

// Calls move(source, target) for every row of a slice, its dimensions before `rank`.
template <class Move>
void for_rows(const Copy& slice, size_t rank, size_t d, const char* source, char* target,
              const Move& move) {
    if (d == rank) return move(source, target);
    const auto [n, from, to] = slice.axes[d];
    for (int64_t i = 0; i < n; ++i)
        for_rows(slice, rank, d + 1, source + i * from, target + i * to, move);
}

}  // namespace

int64_t Indexed::count() const {
    int64_t n = 1;
    for (const Dimension& d : dimensions) n *= d.size;
    return n;
}

void Indexed::places(const char* indices, int64_t first, int n, bool clamps, int64_t* found) const {
    const Kernels& k = kernels();
    const PlacesKernel add = k.add_places[dtype];
    for (int done = 0; done < n;) {
        // A run along the last dimension.
        int64_t at = first + done, vector = 0, base = 0;
        int length = n - done;
        int64_t vector_stride = 0, step = 0;
        for (size_t d = dimensions.size(); d-- > 0;) {
            const Dimension& dimension = dimensions[d];
            const int64_t place = at % dimension.size;
            at /= dimension.size;
            vector += place * dimension.indices;
            base += place * dimension.array;
            if (d + 1 < dimensions.size()) continue;
            vector_stride = dimension.indices;
            step = dimension.array;
            length = static_cast<int>(std::min<int64_t>(length, dimension.size - place));
        }
        k.begin_places(base, step, length, found + done);
        for (const Component& c : components)
            add(indices + vector + c.offset, vector_stride, length, c.limit, c.stride, clamps,
                found + done);
        done += length;
    }
}

void GatherCall::run(char* const* data) const {
    const char *const source = data[0], *const indices = data[1];
    char* const target = data[2];
    const int64_t count = indexed.count();
    int64_t elements = 1;
    for (const CopyAxis& a : slice.axes) elements *= a.size;
    if (count == 0 || elements == 0) return;
    // The slice's rows: elements side by side, or single ones.
    const auto [n, from, to] = slice.axes.back();
    const bool lies_along = from == slice.element && to == slice.element;
    const int64_t row = (lies_along ? n : 1) * slice.element;
    const size_t rank = slice.axes.size() - (lies_along ? 1 : 0);
    int64_t reach = 0;
    for (const Indexed::Component& c : indexed.components) reach += c.limit * c.stride;
    const int64_t bytes = elements * slice.element;
    const MoveRows move = mover_of<1, 2, 4, 8, 12, 16, 24, 32, 48, 64>(row, reach, count * bytes);
    // Large slices look for signals as they are copied.
    constexpr int64_t bytes_per_grain = int64_t{1} << 16;
    const bool is_small = bytes <= bytes_per_grain;
    const std::vector<Indexed::Dimension>& dimensions = indexed.dimensions;
    const int64_t inner = dimensions.empty() ? 1 : dimensions.back().size;
    const int64_t stride = dimensions.empty() ? 0 : dimensions.back().result;
    const auto body = [&](int64_t begin, int64_t end) {
        int64_t places[at_once];
        for (int64_t first = begin; first < end;) {
            const int n =
                static_cast<int>(std::min({end - first, int64_t{at_once}, inner - first % inner}));
            note_work(n * (2 + elements));
            indexed.places(indices, first, n, true, places);
            int64_t rest = first, offset = 0;
            for (size_t d = dimensions.size(); d-- > 0; rest /= dimensions[d].size)
                offset += rest % dimensions[d].size * dimensions[d].result;
            char* const to = target + offset;
            // A row at a time of all slices, where that is more than a slice at a time.
            if (rank == 0 || (is_small && n >= least_together))
                for_rows(slice, rank, 0, source, to, [&](const char* from, char* row_to) {
                    move(from, places, row_to, stride, n, row);
                });
            else
                for (int i = 0; i < n; ++i) run_copy(slice, source + places[i], to + i * stride);
            first += n;
        }
    };
    const int64_t grain = std::max<int64_t>(1, bytes_per_grain / bytes);
    if (count <= grain || bytes > bytes_per_grain) return body(0, count);
    parallel_for(count, grain, body);
}

}  // namespace neuronsim
