#include "reductions/window_walk.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace neuronsim {

static int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

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

WindowBlock::WindowBlock(const Windows& w, const std::vector<View>& inputs)
    : w_(w), inputs_(inputs), rank_(w.dimensions.size()), along_{1, 1, 0, 1, 1} {
    const auto is_inside = [&](size_t d) {
        const WindowDimension& x = w.dimensions[d];
        const int64_t length = w.input_shape[d];
        return x.size == 1 && x.stride == 1 && x.padding_low == 0 && x.base_dilation == 1 &&
               length == w.output_shape[d] && length > 0 && length <= tile_elements / inner_ &&
               std::all_of(inputs.begin(), inputs.end(), [&](const View& input) {
                   return input.axes[d].stride == inner_ * storage_bytes(input.dtype);
               });
    };
    while (rank_ > 1 && is_inside(rank_ - 1)) inner_ *= static_cast<int>(w.input_shape[--rank_]);
    strides_.resize(inputs.size());
    // Where elements have holes between them, each place is a row of its own.
    if (rank_ > 0 && w.dimensions[rank_ - 1].base_dilation == 1) {
        along_ = w.dimensions[--rank_];
        input_length_ = w.input_shape[rank_];
        length_ = w.output_shape[rank_];
        for (size_t i = 0; i < inputs.size(); ++i) strides_[i] = inputs[i].axes[rank_].stride;
    }
    const int64_t outputs = element_count(w.output_shape), most = tile_elements / inner_;
    all_rows_ = outputs == 0 ? 0 : outputs / (length_ * inner_);
    rows_together_ =
        std::clamp<int64_t>(most / std::max<int64_t>(length_, 1), 1, std::max<int64_t>(all_rows_, 1));
    pieces_ = ceil_divide(length_, most);
    origin_.resize(rank_ * static_cast<size_t>(rows_together_));
    offsets_.resize(inputs.size() * static_cast<size_t>(rows_together_));
    origins_.resize(offsets_.size());
    apart_.resize(inputs.size());
    begin_.resize(rank_);
    end_.resize(rank_);
}

void WindowBlock::move_to(int64_t block) {
    const int64_t most = tile_elements / inner_;
    const int64_t row = block / pieces_ * rows_together_, column = block % pieces_ * most;
    rows_ = static_cast<int>(std::min(rows_together_, all_rows_ - row));
    first_ = (row * length_ + column) * inner_;
    const int places = static_cast<int>(std::min(length_ - column, most));
    if (column != column_ || places != row_places_) {
        column_ = column;
        row_places_ = places;
        find_spans();
    }
    is_empty_ = first_position_ >= last_position_;
    is_inside_ = true;
    int64_t inside = 1;  // rows within one of the dimension before
    for (size_t d = rank_; d-- > 0; inside *= w_.output_shape[d]) {
        const WindowDimension& x = w_.dimensions[d];
        int64_t* const origin = origin_.data() + static_cast<int64_t>(d) * rows_together_;
        int64_t low = std::numeric_limits<int64_t>::max(), high = std::numeric_limits<int64_t>::min();
        int64_t rest = row % inside, place = row / inside % w_.output_shape[d];
        for (int r = 0; r < rows_; ++r) {
            origin[r] = place * x.stride - x.padding_low;
            low = std::min(low, origin[r]);
            high = std::max(high, origin[r]);
            if (++rest < inside) continue;
            rest = 0;
            if (++place == w_.output_shape[d]) place = 0;
        }
        const int64_t last = (w_.input_shape[d] - 1) * x.base_dilation;
        begin_[d] = std::max<int64_t>(-floor_divide(high, x.window_dilation), 0);
        end_[d] = std::min(floor_divide(last - low, x.window_dilation) + 1, x.size);
        is_empty_ = is_empty_ || w_.input_shape[d] == 0 || begin_[d] >= end_[d];
        const int64_t reach = (x.size - 1) * x.window_dilation;
        is_inside_ = is_inside_ && x.base_dilation == 1 && low >= 0 && high + reach <= last;
    }
    std::fill(apart_.begin(), apart_.end(), nowhere);
    if (!is_inside_) return;
    const auto together = static_cast<size_t>(rows_together_);
    for (size_t i = 0; i < inputs_.size(); ++i) {
        int64_t* const origins = origins_.data() + i * together;
        std::fill_n(origins, rows_, 0);
        for (size_t d = 0; d < rank_; ++d)
            for (int r = 0; r < rows_; ++r)
                origins[r] +=
                    origin_[d * together + static_cast<size_t>(r)] * inputs_[i].axes[d].stride;
        const int64_t apart = rows_ > 1 ? origins[1] - origins[0] : 0;
        bool is_even = true;
        for (int r = 1; r < rows_; ++r) is_even = is_even && origins[r] - origins[r - 1] == apart;
        if (is_even) apart_[i] = apart;
    }
}

void WindowBlock::find_spans() {
    // At position p place j reads the element origin + p * dilation + j * stride.
    const int64_t origin = column_ * along_.stride - along_.padding_low;
    const int64_t farthest = origin + (row_places_ - 1) * along_.stride, last = input_length_ - 1;
    const int64_t end = floor_divide(last - origin, along_.window_dilation) + 1;
    first_position_ = std::max<int64_t>(-floor_divide(farthest, along_.window_dilation), 0);
    last_position_ = input_length_ == 0 ? first_position_ : std::min(end, along_.size);
    spans_.clear();
    for (int64_t p = first_position_; has_spans() && p < last_position_; ++p)
        if (const Span span = span_at(p); span.begin < span.end) spans_.push_back(span);
}

WindowBlock::Span WindowBlock::span_at(int64_t position) const {
    const int64_t stride = along_.stride, last = input_length_ - 1;
    const int64_t element = column_ * stride - along_.padding_low + position * along_.window_dilation;
    const int64_t low = std::max<int64_t>(-floor_divide(element, stride), 0);
    const int64_t high = std::min<int64_t>(floor_divide(last - element, stride) + 1, row_places_);
    if (low >= high) return {0, 0, 0};
    return {static_cast<int>(low), static_cast<int>(high), element + low * stride};
}

// Finds where the rows' windows have their elements at the position; whether any has one.
bool WindowBlock::locate() {
    const auto together = static_cast<size_t>(rows_together_);
    for (size_t i = 0; i < inputs_.size() && is_inside_; ++i) {
        int64_t moved = 0;
        for (size_t d = 0; d < rank_; ++d)
            moved += position_[d] * w_.dimensions[d].window_dilation * inputs_[i].axes[d].stride;
        for (size_t at = i * together; at < i * together + static_cast<size_t>(rows_); ++at)
            offsets_[at] = origins_[at] + moved;
    }
    if (is_inside_) return true;
    std::fill(offsets_.begin(), offsets_.end(), 0);
    int missing = 0;
    for (size_t d = 0; d < rank_; ++d) {
        const WindowDimension& x = w_.dimensions[d];
        const int64_t* const origin = origin_.data() + static_cast<int64_t>(d) * rows_together_;
        for (int row = 0; row < rows_; ++row) {
            if (offsets_[static_cast<size_t>(row)] == nowhere) continue;
            int64_t at = origin[row] + position_[d] * x.window_dilation;
            bool is_there = at >= 0;
            if (x.base_dilation != 1) {
                is_there = is_there && at % x.base_dilation == 0;
                at /= x.base_dilation;
            }
            is_there = is_there && at < w_.input_shape[d];
            if (!is_there) ++missing;
            for (size_t i = 0, place = static_cast<size_t>(row); i < inputs_.size();
                 ++i, place += together)
                offsets_[place] = is_there ? offsets_[place] + at * inputs_[i].axes[d].stride : nowhere;
        }
    }
    return missing < rows_;
}

void WindowBlock::load(const Kernels& k, const Span& span, size_t input, Tile& tile) const {
    const DType type = inputs_[input].dtype;
    const int stored = storage_bytes(type), size = inner_ * computed_bytes(type);
    const int64_t stride = step(input);
    if (row_places_ == 1 && inner_ == 1 && apart_[input] != nowhere) {
        const char* const first = inputs_[input].data + offsets_of(input)[0];
        return k.load[type](first + span.element * strides_[input], apart_[input], rows_, &tile);
    }
    for_pieces(span, input, [&](int row, const char* data) {
        char* to = reinterpret_cast<char*>(&tile) + (row * row_places_ + span.begin) * size;
        if (inner_ == 1) return k.load[type](data, stride, span.end - span.begin, to);
        for (int at = span.begin; at < span.end; ++at, data += stride, to += size)
            k.load[type](data, stored, inner_, to);
    });
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

View along(const Running& r, const View& input) {
    View view = input;
    Axis* const dimension = view.axes.begin() + r.dimension;
    std::rotate(dimension, dimension + 1, view.axes.end());
    return view;
}

}  // namespace neuronsim
