#include "movement/indexed.h"

#include <algorithm>
#include <cstring>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/streaming.h"

namespace neuronsim {
namespace {

constexpr int at_once = 256;  // index vectors
constexpr int64_t cached_bytes = int64_t{1} << 23;

// Rows of a few bytes are moved as a word or two. More than the caches hold is written past them.
template <int64_t Size>
void move_rows(const char* source, const int64_t* places, char* target, int64_t stride, int n,
               bool streams) {
    if constexpr (Size % 16 == 0)
        if (streams && can_stream(target, stride)) {
            for (int i = 0; i < n; ++i, target += stride)
                for (int64_t at = 0; at < Size; at += 16)
                    stream_16_bytes(source + places[i] + at, target + at);
            return end_streaming();
        }
    constexpr int ahead = 16;
    for (int i = 0; i < n; ++i) {
        if (i + ahead < n) __builtin_prefetch(source + places[i + ahead]);
        std::memcpy(target + i * stride, source + places[i], Size);
    }
}

void move_long_rows(const char* source, const int64_t* places, char* target, int64_t stride, int n,
                    int64_t size) {
    for (int i = 0; i < n; ++i) std::memcpy(target + i * stride, source + places[i], size);
}

}  // namespace

int64_t Indexed::count() const {
    int64_t n = 1;
    for (const Dimension& d : dimensions) n *= d.size;
    return n;
}

void Indexed::places(const char* indices, int64_t first, int n, bool clamps, int64_t* found) const {
    const PlacesKernel add = kernels().add_places[dtype];
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
        for (int i = 0; i < length; ++i) found[done + i] = base + i * step;
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
    const int64_t elements = slice.shape.empty() ? 1 : element_count(slice.shape);
    if (count == 0 || elements == 0) return;
    const size_t rank = slice.shape.size();
    const bool is_row = element_count({slice.shape.begin(), slice.shape.end() - 1}) == 1 &&
                        (slice.shape.back() == 1 || (slice.source_strides[rank - 1] == slice.size &&
                                                     slice.target_strides[rank - 1] == slice.size));
    const int64_t bytes = elements * slice.size;
    const bool streams = count * bytes > cached_bytes;
    const auto body = [&](int64_t begin, int64_t end) {
        int64_t places[at_once];
        for (int64_t first = begin; first < end;) {
            const int64_t inner = indexed.dimensions.empty() ? 1 : indexed.dimensions.back().size;
            const int n =
                static_cast<int>(std::min({end - first, int64_t{at_once}, inner - first % inner}));
            note_work(n * (2 + elements));
            indexed.places(indices, first, n, true, places);
            int64_t rest = first, offset = 0;
            for (size_t d = strides.size(); d-- > 0; rest /= indexed.dimensions[d].size)
                offset += rest % indexed.dimensions[d].size * strides[d];
            char* const to = target + offset;
            const int64_t stride = strides.empty() ? 0 : strides.back();
            if (!is_row)
                for (int i = 0; i < n; ++i) run_copy(slice, source + places[i], to + i * stride);
            else if (bytes == 1) move_rows<1>(source, places, to, stride, n, streams);
            else if (bytes == 2) move_rows<2>(source, places, to, stride, n, streams);
            else if (bytes == 4) move_rows<4>(source, places, to, stride, n, streams);
            else if (bytes == 8) move_rows<8>(source, places, to, stride, n, streams);
            else if (bytes == 16) move_rows<16>(source, places, to, stride, n, streams);
            else if (bytes == 32) move_rows<32>(source, places, to, stride, n, streams);
            else if (bytes == 64) move_rows<64>(source, places, to, stride, n, streams);
            else move_long_rows(source, places, to, stride, n, bytes);
            first += n;
        }
    };
    constexpr int64_t bytes_per_grain = int64_t{1} << 16;
    const int64_t grain = std::max<int64_t>(1, bytes_per_grain / bytes);
    if (count <= grain || bytes > bytes_per_grain) return body(0, count);
    parallel_for(count, grain, body);
}

}  // namespace neuronsim
