#include "movement/view.h"

#include <algorithm>
#include <cstring>

namespace neuronsim {

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape, int64_t element) {
    std::vector<int64_t> strides(shape.size());
    for (size_t d = shape.size(); d-- > 0; element *= shape[d]) strides[d] = element;
    return strides;
}

Copy dense_copy(const Axes& axes, int64_t element) {
    Copy copy{{}, element};
    for (const Axis& a : axes) copy.axes.push_back({a.size, a.stride, 0});
    int64_t pitch = element;
    for (size_t d = axes.size(); d-- > 0; pitch *= axes[d].size) copy.axes[d].target = pitch;
    return copy;
}

// Rows of two to eight words, those of each `stride` bytes apart, one after the other.
static void move_short_rows(const char* source, int64_t rows, int64_t next_row, int64_t row,
                            int64_t stride, char* target) {
    constexpr int64_t word = 4;
    const auto bytes = static_cast<size_t>(row * word);
    if (stride == word && row >= 4) {
        for (; rows > 0; --rows, source += next_row, target += bytes)
            copy_ends<16>(source, target, bytes);
    } else if (stride == word) {
        for (; rows > 0; --rows, source += next_row, target += bytes)
            copy_ends<8>(source, target, bytes);
    } else if (stride == 2 * word && row > 4) {
        for (; rows > 0; --rows, source += next_row, target += bytes)
            take_even<float>(source, row, target);
    }
    for (; rows > 0; --rows, source += next_row)
        for (int64_t i = 0; i < row; ++i, target += word)
            std::memcpy(target, source + i * stride, word);
}

// The same a column of all rows at a time, of words or bytes, which elements may be only when they are
// loaded.
static void load_columns(const Kernels& k, DType type, const char* source, int64_t rows,
                         int64_t next_row, int64_t row, int64_t stride, char* target) {
    constexpr int64_t word = 4;
    const int64_t size = computed_bytes(type);
    alignas(word) char column[tile_elements * word];
    for (int64_t i = 0; i < row; ++i) {
        const char* from = source + i * stride;
        if (!is_read_in_place(type) || next_row != size) {
            k.load[type](from, next_row, static_cast<int>(rows), column);
            from = column;
        }
        const bool repeats = stride == 0;
        if (repeats && size == word) return k.repeat_words[row - 2](from, rows, target);
        for (int64_t r = 0; r < rows; ++r) {
            if (size == word) std::memcpy(target + (r * row + i) * word, from + r * word, word);
            else std::fill_n(target + r * row + i, repeats ? row : 1, from[r]);
        }
        if (repeats) return;
    }
}

void load_run(const Kernels& k, const View& view, const char* data, int64_t begin, int n, void* out) {
    const int size = computed_bytes(view.dtype);
    const size_t rank = view.axes.size();
    const int64_t row = view.axes.back().size, row_stride = view.axes.back().stride;
    const bool in_words = size == sizeof(float) && is_read_in_place(view.dtype);
    const bool takes_even = in_words && row_stride == 2 * size;
    const auto load = [&](const char* source, int count, char* target) {
        if (takes_even) take_even<float>(source, count, target);
        else k.load[view.dtype](source, row_stride, count, target);
    };
    if (rank == 1) return load(data + begin * row_stride, n, static_cast<char*>(out));
    const int64_t rows = view.axes[rank - 2].size, next_row = view.axes[rank - 2].stride;
    int64_t outer = begin / row, column = begin % row;
    // Short rows take no call each: by columns where these are one, lie side by side or spare more
    // calls than they cost (measured).
    constexpr int64_t few = 4;
    const bool by_columns =
        row_stride == 0 || next_row == storage_bytes(view.dtype) || (!in_words && row <= few);
    const bool is_short =
        row >= 2 && row <= most_repeats && next_row != 0 && size <= 4 && (in_words || by_columns);
    for (int done = 0; done < n;) {
        const char* source = data + axes_offset(view.axes.part(0, rank - 1), outer);
        int64_t left = rows - outer % rows;  // in the rows that lie a stride apart
        if (is_short && column == 0) {
            char* target = static_cast<char*>(out) + done * size;
            const int64_t whole = std::min(left, (n - done) / row);
            if (by_columns)
                load_columns(k, view.dtype, source, whole, next_row, row, row_stride, target);
            else move_short_rows(source, whole, next_row, row, row_stride, target);
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
            load(source + column * row_stride, piece, target);
            done += piece;
            if (next_row != 0 || piece < row) continue;
            // The row comes again.
            const int times = static_cast<int>(std::min<int64_t>(left - 1, (n - done) / piece));
            repeat_bytes(target, piece * size, (times + 1) * piece * size);
            done += times * piece;
            left -= times;
            outer += times;
        }
    }
}

}  // namespace neuronsim
