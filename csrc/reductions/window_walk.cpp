#include "reductions/window_walk.h"

#include <algorithm>
#include <stdexcept>

namespace neuronsim {

constexpr int64_t window_limit = int64_t{1} << 31;  // so that no product of two overflows

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

constexpr int64_t few_elements = 32;  // which windows take in ascending order backwards too (R4)

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

std::pair<std::vector<int64_t>, View> along(const Running& r, const Windows& w, const View& input) {
    std::vector<int64_t> shape = w.input_shape;
    View view = input;
    std::rotate(shape.begin() + static_cast<ptrdiff_t>(r.dimension),
                shape.begin() + static_cast<ptrdiff_t>(r.dimension) + 1, shape.end());
    std::rotate(view.strides.begin() + static_cast<ptrdiff_t>(r.dimension),
                view.strides.begin() + static_cast<ptrdiff_t>(r.dimension) + 1, view.strides.end());
    return {std::move(shape), std::move(view)};
}

}  // namespace neuronsim
