#include "movement/view.h"

#include <algorithm>
#include <cstring>

#include "movement/copy.h"

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

// Rows of two to eight words, those of each `stride` bytes apart, one after the other.
static void move_short_rows(const char* source, int64_t rows, int64_t next_row, int64_t row,
                            int64_t stride, char* target) {
    constexpr int64_t word = 4, most = 8;
    const auto bytes = static_cast<size_t>(row * word);
    if (stride == 0) {
        // Whole vectors, of which the next row overwrites what is too much; where none may follow in
        // the target, word by word below.
        for (; rows * row >= most; --rows, source += next_row, target += bytes) {
            uint32_t x[most];
            std::memcpy(x, source, word);
            std::fill_n(x + 1, most - 1, x[0]);
            std::memcpy(target, x, sizeof x);
        }
    } else if (stride == word && row >= 4) {
        for (; rows > 0; --rows, source += next_row, target += bytes)
            copy_ends<16>(source, target, bytes);
    } else if (stride == word) {
        for (; rows > 0; --rows, source += next_row, target += bytes)
            copy_ends<8>(source, target, bytes);
    }
    for (; rows > 0; --rows, source += next_row)
        for (int64_t i = 0; i < row; ++i, target += word)
            std::memcpy(target, source + i * stride, word);
}

void load_run(const Kernels& k, const std::vector<int64_t>& shape, const View& view, const char* data,
              int64_t begin, int n, void* out) {
    const LoadKernel load = k.load[view.dtype];
    const int size = computed_bytes(view.dtype);
    const size_t rank = shape.size();
    if (rank == 0) return load(data, 0, n, out);
    const int64_t row = shape[rank - 1];
    const int64_t row_stride = view.strides[rank - 1];
    if (rank == 1) return load(data + begin * row_stride, row_stride, n, out);
    const int64_t rows = shape[rank - 2], next_row = view.strides[rank - 2];
    int64_t outer = begin / row, column = begin % row;
    // Short rows are moved without a call each where they lie as they are loaded.
    const bool is_short =
        row >= 2 && row <= 8 && next_row != 0 && size == 4 && is_stored_as_computed(view.dtype);
    for (int done = 0; done < n;) {
        const char* source = data + offset_of(shape, view.strides, outer, rank - 1);
        int64_t left = rows - outer % rows;  // in the rows that lie a stride apart
        if (is_short && column == 0) {
            char* target = static_cast<char*>(out) + done * size;
            const int64_t whole = std::min(left, (n - done) / row);
            move_short_rows(source, whole, next_row, row, row_stride, target);
            source += whole * next_row;
            done += static_cast<int>(whole * row);
            left -= whole;
            outer += whole;
        }
        const auto begins_short = [&] { return is_short && column == 0 && n - done >= row; };
        for (; left > 0 && done < n && !begins_short();
             --left, ++outer, source += next_row, column = 0) {
            const int piece = static_cast<int>(std::min<int64_t>(row - column, n - done));
            char* const target = static_cast<char*>(out) + done * size;
            load(source + column * row_stride, row_stride, piece, target);
            done += piece;
            if (next_row != 0 || piece < row) continue;
            // The row comes again: it is copied, and what was copied with it.
            const int times = static_cast<int>(std::min<int64_t>(left - 1, (n - done) / piece));
            for (int copied = 1, more; copied <= times; copied += more) {
                more = std::min(copied, times + 1 - copied);
                std::memcpy(target + copied * piece * size, target, more * piece * size);
            }
            done += times * piece;
            left -= times;
            outer += times;
        }
    }
}

}  // namespace neuronsim
