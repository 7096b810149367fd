#include "movement/copy.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "machine/interrupt.h"
#include "machine/pool.h"

namespace neuronsim {
namespace {

constexpr int64_t bytes_per_grain = int64_t{1} << 16;
constexpr int64_t elements_at_once = int64_t{1} << 16;
constexpr int64_t block = 16;  // elements a side of what is transposed at once

void copy_bytes(const char* source, char* target, size_t bytes) {
    if (bytes > 64 || bytes < 4) std::memcpy(target, source, bytes);
    else if (bytes >= 32) copy_ends<32>(source, target, bytes);
    else if (bytes >= 16) copy_ends<16>(source, target, bytes);
    else if (bytes >= 8) copy_ends<8>(source, target, bytes);
    else copy_ends<4>(source, target, bytes);
}

// One or two inner dimensions of elements of one size; the compiler makes each a plain move.
template <int64_t Size>
void copy_row(const char* source, int64_t from, char* target, int64_t to, int64_t n) {
    if (from == Size && to == Size) {
        copy_bytes(source, target, static_cast<size_t>(n * Size));
        return;
    }
    if constexpr (Size == 1 || Size == 4)
        if (from == 2 * Size && to == Size)
            return take_even<std::conditional_t<Size == 1, uint8_t, float>>(source, n, target);
    if (from == 0 && to == Size) {  // what fills a pad
        char element[Size];
        std::memcpy(element, source, Size);
        for (int64_t i = 0; i < n; ++i) std::memcpy(target + i * Size, element, Size);
        return;
    }
    if (from == -Size && to == Size) {
        for (int64_t i = 0; i < n; ++i) std::memcpy(target + i * Size, source - i * Size, Size);
        return;
    }
    for (int64_t i = 0; i < n; ++i) std::memcpy(target + i * to, source + i * from, Size);
}

// Each of n elements `Times` times, side by side.
template <int64_t Size, int Times>
void repeat_each(const char* source, int64_t from, char* target, int64_t n) {
    for (int64_t i = 0; i < n; ++i, source += from) {
        char element[Size];
        std::memcpy(element, source, Size);
        for (int k = 0; k < Times; ++k, target += Size) std::memcpy(target, element, Size);
    }
}

template <int64_t Size>
void copy_block(const Copy& c, const char* source, char* target, int64_t first, int64_t count) {
    Notes notes;
    const auto [n, from, to] = c.axes.back();
    const CopyAxis& last_but_one = c.axes[c.axes.size() - 2];
    const int64_t from_row = last_but_one.source, to_row = last_but_one.target;
    // Few columns that are not side by side are taken one after the other, each along many rows, if
    // these lie so near that the first cache keeps them.
    constexpr int64_t few = 4, together = 512, near = 64;
    if (n <= few && count > n && !(from == Size && to == Size) &&
        std::max(std::abs(from_row), std::abs(to_row)) <= near) {
        for (int64_t row = first, some = 0; row < first + count; row += some) {
            some = std::min(together, first + count - row);
            notes.add(some * n);
            if (from == 0 && to == Size && to_row == n * Size && n > 1) {
                const auto repeat = n == 2   ? repeat_each<Size, 2>
                                    : n == 3 ? repeat_each<Size, 3>
                                             : repeat_each<Size, 4>;
                repeat(source + row * from_row, from_row, target + row * to_row, some);
                continue;
            }
            for (int64_t column = 0; column < n; ++column)
                copy_row<Size>(source + row * from_row + column * from, from_row,
                               target + row * to_row + column * to, to_row, some);
        }
        return;
    }
    if (from == Size && to == Size && n < elements_at_once) {
        const int64_t some = elements_at_once / n;
        for (int64_t row = first, end = 0; row < first + count; row = end) {
            end = std::min(row + some, first + count);
            notes.add((end - row) * n);
            for (int64_t r = row; r < end; ++r)
                copy_bytes(source + r * from_row, target + r * to_row, n * Size);
        }
        return;
    }
    // Rows that the source holds side by side are taken together: a cache line serves all of them.
    const bool transposes = count > 1 && std::abs(from_row) < std::abs(from);
    const int64_t rows = transposes ? block : 1, columns = transposes ? block : elements_at_once;
    for (int64_t row = first; row < first + count; row += rows)
        for (int64_t column = 0; column < n; column += columns) {
            if (column % elements_at_once == 0)
                notes.add(rows * std::min(elements_at_once, n - column));
            for (int64_t r = row; r < std::min(row + rows, first + count); ++r)
                copy_row<Size>(source + r * from_row + column * from, from,
                               target + r * to_row + column * to, to, std::min(columns, n - column));
        }
}

// By the logarithm of the elements' size.
constexpr decltype(&copy_block<1>) copy_blocks[] = {copy_block<1>, copy_block<2>, copy_block<4>,
                                                    copy_block<8>, copy_block<16>};

}  // namespace

Copy simplified(const Copy& copy) {
    std::vector<CopyAxis> order = copy.axes, axes;
    std::stable_sort(order.begin(), order.end(), [](const CopyAxis& a, const CopyAxis& b) {
        return std::abs(a.target) > std::abs(b.target);
    });
    for (const auto& [n, from, to] : order) {
        if (n == 1) continue;
        if (!axes.empty() && axes.back().source == from * n && axes.back().target == to * n)
            axes.back() = {axes.back().size * n, from, to};
        else axes.push_back({n, from, to});
    }
    if (axes.empty()) axes.push_back({1, copy.element, copy.element});
    if (axes.size() == 1) axes.insert(axes.begin(), {1, 0, 0});
    // The row along which the source lies is the last but one, where a block meets it.
    const auto lies_along = [&](const CopyAxis& a) { return std::abs(a.source) == copy.element; };
    const auto planes = axes.end() - 2;
    if (!lies_along(axes.back()))
        for (auto a = axes.begin(); a != planes; ++a)
            if (lies_along(*a)) std::swap(*a, *planes);
    return {std::move(axes), copy.element};
}

int64_t row_bytes(const Copy& c) {
    const auto [n, from, to] = c.axes.back();
    const bool is_row =
        c.axes.size() == 2 && c.axes[0].size == 1 && from == c.element && to == c.element;
    return is_row ? n * c.element : -1;
}

void run_copy(const Copy& c, const char* source, char* target) {
    if (const int64_t bytes = row_bytes(c); bytes > bytes_per_grain) {
        return parallel_for(bytes, bytes_per_grain, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += bytes_per_grain) {
                note_work(bytes_per_grain / c.element);
                std::memcpy(target + at, source + at, std::min(bytes_per_grain, end - at));
            }
        });
    } else if (bytes >= 0) {
        std::memcpy(target, source, bytes);
        return;
    }
    const size_t outer = c.axes.size() - 2;  // dimensions before the last two
    int64_t planes = 1;
    for (size_t d = 0; d < outer; ++d) planes *= c.axes[d].size;
    const int64_t rows = c.axes[outer].size, bytes = c.axes.back().size * c.element;  // of a row
    if (planes == 0 || rows == 0 || bytes == 0) return;
    const auto body = [&](int64_t begin, int64_t end) {
        while (begin < end) {
            const int64_t row = begin % rows, count = std::min(end - begin, rows - row);
            const char* from = source;
            char* to = target;
            for (int64_t d = outer, plane = begin / rows; d-- > 0; plane /= c.axes[d].size) {
                const int64_t place = d > 0 ? plane % c.axes[d].size : plane;  // one is the most
                from += place * c.axes[d].source;
                to += place * c.axes[d].target;
            }
            copy_blocks[std::countr_zero(static_cast<uint64_t>(c.element))](c, from, to, row, count);
            begin += count;
        }
    };
    const int64_t total = planes * rows;
    if (total * bytes <= bytes_per_grain) return body(0, total);
    const int64_t grain = std::max<int64_t>(block, bytes_per_grain / bytes / block * block);
    parallel_for(total, grain, body);
}

}  // namespace neuronsim
