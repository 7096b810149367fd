#include "movement/view.h"

#include <algorithm>
#include <cstring>

namespace neuronsim {

void collapse(std::vector<int64_t>& shape, std::vector<int64_t>& strides) {
    size_t kept = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] == 1) continue;
        if (kept > 0 && strides[kept - 1] == strides[d] * shape[d]) {
            shape[kept - 1] *= shape[d];
            strides[kept - 1] = strides[d];
        } else {
            shape[kept] = shape[d];
            strides[kept] = strides[d];
            ++kept;
        }
    }
    shape.resize(kept);
    strides.resize(kept);
}

void load_run(const Kernels& k, const std::vector<int64_t>& shape, const View& view, const char* data,
              int64_t begin, int n, void* out) {
    const LoadKernel load = k.load[static_cast<int>(view.dtype)];
    const int size = computed_bytes(view.dtype);
    const int rank = static_cast<int>(shape.size());
    if (rank == 0) return load(data, 0, n, out);
    const int64_t row = shape[rank - 1];
    const int64_t row_stride = view.strides[rank - 1];
    if (rank == 1) return load(data + begin * row_stride, row_stride, n, out);
    const int64_t rows = shape[rank - 2], next_row = view.strides[rank - 2];
    int64_t outer = begin / row, column = begin % row;
    // Short rows are moved word by word where they lie as they are loaded.
    const bool is_short = row <= 8 && next_row != 0 && size == 4 && is_stored_as_computed(view.dtype);
    for (int done = 0; done < n;) {
        const char* source = data;
        int64_t rest = outer, left = rows - outer % rows;  // in the rows that lie a stride apart
        for (int d = rank - 2; d >= 0; --d) {
            source += rest % shape[d] * view.strides[d];
            rest /= shape[d];
        }
        if (is_short && column == 0) {
            char* target = static_cast<char*>(out) + done * size;
            const int64_t whole = std::min(left, (n - done) / row);
            for (int64_t r = 0; r < whole; ++r, source += next_row)
                for (int64_t i = 0; i < row; ++i, target += 4)
                    std::memcpy(target, source + i * row_stride, 4);
            done += static_cast<int>(whole * row);
            left -= whole;
            outer += whole;
        }
        for (; left > 0 && done < n; --left, ++outer, source += next_row, column = 0) {
            const int piece = static_cast<int>(std::min<int64_t>(row - column, n - done));
            char* const target = static_cast<char*>(out) + done * size;
            load(source + column * row_stride, row_stride, piece, target);
            done += piece;
            if (next_row != 0 || piece < row) continue;
            // The row comes again: it is copied, and what was copied with it.
            const int times = static_cast<int>(std::min<int64_t>(left - 1, (n - done) / piece));
            for (int copied = 1, more; copied <= times; copied += more) {
                more = std::min(copied, times + 1 - copied);
                std::memcpy(target + copied * piece * size, target,
                            static_cast<size_t>(more * piece * size));
            }
            done += times * piece;
            left -= times;
            outer += times;
        }
    }
}

}  // namespace neuronsim
