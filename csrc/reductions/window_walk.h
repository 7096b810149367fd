// The elements of windows, however these lie: the walk over them, and windows that run along a
// dimension.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "reductions/window.h"

namespace neuronsim {

// Throws std::invalid_argument where the windows are none.
void check(const Windows& w);

inline constexpr int lanes = 64;  // neighbouring outputs that are folded together

inline int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

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
            const int64_t reach = (dimension.size - 1) * dimension.window_dilation;
            is_inside_ = is_inside_ && dimension.base_dilation == 1 && low >= 0 && high + reach <= last;
        }
        position_ = begin_;
    }

    bool is_empty() const { return is_empty_; }
    // Whether all lanes have an element at every position, so that all move on by the same distance.
    bool is_inside() const { return is_inside_; }

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
    bool is_empty_ = false, is_inside_ = true;
    std::vector<int64_t> origin_, position_, begin_, end_;
};

inline void copy_lane(Tile& to, const Tile& from, int lane, int size) {
    if (size == sizeof(float)) {
        to.f32[lane] = from.f32[lane];
        return;
    }
    __builtin_memcpy(reinterpret_cast<char*>(&to) + lane * size,
                     reinterpret_cast<const char*>(&from) + lane * size, size);
}

// The dimension along which windows run over the operand from its first element on, or backwards from
// its last one: what a cumulative function's elements reduce (R4), each from the one before it.
struct Running {
    size_t dimension;
    bool backwards;
    int64_t length, inner, others;  // inner: elements behind the dimension; others: of all other ones
};

std::optional<Running> running(const Windows& w);
// The operand with the dimension along which the windows run as its last one.
std::pair<std::vector<int64_t>, View> along(const Running& r, const Windows& w, const View& input);

}  // namespace neuronsim
