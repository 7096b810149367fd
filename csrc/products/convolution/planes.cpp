#include "products/convolution/planes.h"

#include <numeric>
#include <tuple>

namespace neuronsim {

constexpr int64_t plane_bytes = 1 << 20;  // of one channel
constexpr size_t max_phases = 256;        // of a plane
constexpr int64_t planes_at_once = 4096;  // elements of those that are computed together
constexpr int64_t word = 4;

Convolver::Plane Convolver::plane(int64_t count) const {
    Plane p;
    p.extents.resize(rank());
    p.pitches.resize(rank());
    for (size_t d = rank(); d-- > 0;) {
        const ConvolutionAxis& s = c_.spatial[d];
        const int64_t n = d == 0 ? count : s.output;
        p.extents[d] = ceil_divide(s.reach(n), s.stride);
        p.pitches[d] = p.phase;
        p.phase = saturated_product({p.phase, p.extents[d]});
        if (p.phase == INT64_MAX) break;  // too large for any limit
        p.outputs += (n - 1) * p.pitches[d];
    }
    const int64_t window = c_.window();
    for (int64_t i = 0; i < window; ++i) {
        std::vector<int64_t> phase(rank());
        int64_t rest = i, offset = 0;
        for (size_t d = rank(); d-- > 0;) {
            const ConvolutionAxis& s = c_.spatial[d];
            const int64_t at = rest % s.window * s.window_dilation;
            rest /= s.window;
            phase[d] = at % s.stride;
            offset += at / s.stride * p.pitches[d];
        }
        note_work(16 + static_cast<int64_t>(4 * p.phases.size()));
        const auto found = std::find(p.phases.begin(), p.phases.end(), phase);
        p.places.push_back((found - p.phases.begin()) * p.phase + offset);
        if (found == p.phases.end()) p.phases.push_back(phase);
        if (p.phases.size() > max_phases) {
            p.phase = INT64_MAX;
            return p;
        }
    }
    return p;
}

// The parts of the input's lines that lie in the phases, in the order of their places. `from` is where
// the elements are in the channel, or, if it is staged, among its float32 values side by side.
std::vector<PlaneLine> Convolver::lines_of(const Plane& p, int64_t row, bool staged) const {
    const size_t last = rank() - 1;
    const ConvolutionAxis& s = c_.spatial[last];
    int64_t inner = 1;  // lines of an element of the first dimension, if that is not the lines' own
    for (size_t d = 1; d < last; ++d) inner *= c_.spatial[d].input;
    const auto start = [&](size_t d) {  // the place of the dimension's first element
        return c_.spatial[d].padding_low - (d == 0 ? row * c_.spatial[d].stride : 0);
    };
    // The elements of a dimension that lie in the planes.
    const auto within = [&](size_t d) {
        return c_.spatial[d].elements_on(p.extents[d] * c_.spatial[d].stride, start(d));
    };
    const auto [outer, outer_end] = last > 0 ? within(0) : std::pair{int64_t{0}, int64_t{1}};
    // Every `step`-th element of a line has the same phase.
    const int64_t common = std::gcd(s.stride, s.base_dilation);
    const int64_t step = s.stride / common, pitch = s.base_dilation / common;
    const int64_t skipped = within(last).first;
    std::vector<PlaneLine> lines;
    for (size_t phase = 0; phase < p.phases.size(); ++phase) {
        int64_t first = skipped;
        const auto place = [&](int64_t i) { return start(last) + i * s.base_dilation; };
        while (first < s.input && first < skipped + step &&
               place(first) % s.stride != p.phases[phase][last])
            ++first;
        if (first >= s.input || first >= skipped + step) continue;
        const int64_t room = p.extents[last] - place(first) / s.stride;
        const int64_t count = std::min(ceil_divide(s.input - first, step), ceil_divide(room, pitch));
        if (room <= 0) continue;
        for (int64_t number = outer * inner; number < outer_end * inner; ++number) {
            note_work(16);
            int64_t rest = number, distance = 0;
            int64_t to = static_cast<int64_t>(phase) * p.phase + place(first) / s.stride;
            bool inside = true;
            for (size_t d = last; d-- > 0;) {
                const ConvolutionAxis& axis = c_.spatial[d];
                const int64_t i = rest % axis.input, at = start(d) + i * axis.base_dilation;
                rest /= axis.input;
                inside = inside && at >= 0 && at % axis.stride == p.phases[phase][d] &&
                         at / axis.stride < p.extents[d];
                to += inside ? at / axis.stride * p.pitches[d] : 0;
                distance += i * x_axes()[d + 1].stride;
            }
            const int64_t from = (staged ? number * s.input * word : distance) + first * word;
            if (inside) lines.push_back({from, to, count, step, pitch});
        }
    }
    return lines;
}

// The first of the channel's lines that are read, and how many to the last one: what is staged, in
// which the lines' places are from now on.
static std::pair<int64_t, int64_t> staged_lines(std::vector<PlaneLine>& lines, int64_t line_bytes) {
    int64_t low = INT64_MAX, end = 0;
    for (const PlaneLine& l : lines) {
        low = std::min(low, l.from / line_bytes);
        end = std::max(end, l.from / line_bytes + 1);
    }
    for (PlaneLine& l : lines) l.from -= low * line_bytes;
    return lines.empty() ? std::pair{int64_t{0}, int64_t{0}} : std::pair{low, end - low};
}

// Where the outputs' lines begin among the sums.
std::vector<int64_t> Convolver::line_places(const Plane& p, int64_t row_count, int64_t length,
                                            int64_t count) const {
    std::vector<int64_t> places;
    for (int64_t i = 0; i < count / length; ++i) {
        int64_t place = 0, rest = i;
        for (size_t d = rank() - 1; d-- > 0;) {
            const int64_t n = d == 0 ? row_count : c_.spatial[d].output;
            place += rest % n * p.pitches[d];
            rest /= n;
        }
        places.push_back(place);
    }
    return places;
}

Axes Convolver::PlaneFiller::lines_of_channels(const Convolver& c) {
    Axes lines{{c.c_.feature_groups * c.c_.input_features, c.channel_stride()}};
    for (size_t d = 1; d < c.rank(); ++d) lines.push_back(c.x_axes()[d]);
    return collapsed(lines, storage_bytes(c.x_.dtype));
}

bool Convolver::PlaneFiller::is_whole() const {
    bool is = p_.phases.size() == 1 && p_.phase == all_ * width_ && std::ssize(lines_) == all_;
    for (int64_t i = 0; is && i < all_; ++i) {
        const PlaneLine& l = lines_[i];
        is = l.count == width_ && l.place == i * width_ && l.pitch == 1;
    }
    return is;
}

Convolver::PlaneFiller::PlaneFiller(const Convolver& c, const Plane& p, int64_t row)
    : c_(c),
      p_(p),
      width_(c.c_.spatial.back().input),
      all_(axes_size(c.x_axes()) / c.x_axes()[0].size / width_),
      input_{c.x_.data,    c.x_.dtype, {}, lines_of_channels(c), {{width_, c.x_axes().back().stride}},
             c.x_.prologue},
      packer_(c.k_, input_, ProductForm::fma, Numerics{}),
      in_place_(packer_.is_stored_as_packed()),
      lines_(c.lines_of(p, row, !in_place_)),
      is_plane_(is_whole()) {
    std::tie(low_, staged_) =
        in_place_ ? std::pair{int64_t{0}, all_} : staged_lines(lines_, width_ * word);
}

void Convolver::PlaneFiller::fill(int64_t n, int64_t source, int64_t some, float* planes) const {
    note_work(some * (all_ * width_ + p_.size()));
    const char* sample = c_.x_.data + n * c_.x_axes()[0].stride;
    float* values = nullptr;
    if (!in_place_ && !is_plane_)
        values = per_thread<Workspace>([] {}).get<float>(staged_ * width_ * some);
    const int64_t whole = staged_ == all_ ? some : 1;
    for (int64_t c = 0; c < some && (!in_place_ || is_plane_); c += whole)
        packer_.stage_block(
            {sample, (source + c) * all_ + low_, whole * staged_, 0, width_}, false, word * width_,
            reinterpret_cast<char*>((is_plane_ ? planes : values) + c * staged_ * width_));
    if (is_plane_) return;
    c_.k_.fill_planes(
        in_place_ ? sample + source * c_.channel_stride() : reinterpret_cast<const char*>(values),
        in_place_ ? c_.channel_stride() : staged_ * width_ * word, static_cast<int>(some),
        lines_.data(), lines_.data() + lines_.size(), static_cast<float>(c_.c_.padding), planes,
        p_.size());
}

void Convolver::multiply_planes(int64_t row, int64_t row_count) const {
    const Plane p = plane(row_count);
    const PlaneFiller filler(*this, p, row);
    const int64_t window = static_cast<int64_t>(p.places.size()), of_source = c_.output_features;
    const float* weights = channel_weights(window, false);
    const ProductResult r = by_channels(out_);
    const int64_t length = rank() == 1 ? row_count : c_.spatial.back().output;
    const int64_t of_row = axes_size(out_.rows) / c_.batch / outputs(), count = of_row * row_count;
    const std::vector<int64_t> places = line_places(p, row_count, length, count);
    const Epilogue epilogue(k_, r, numerics_, draw_, count);
    // As many channels at a time as stay in the first cache.
    const int64_t at_once = std::clamp<int64_t>(planes_at_once / p.size(), 1, c_.feature_groups);
    const int64_t slack = k_.lanes * 8;  // whole vectors are read and written past the ends
    const int64_t together = std::max(work_at_once / window / slack, int64_t{1}) * slack;
    const auto padding = static_cast<float>(c_.padding);
    parallel_for(c_.batch * c_.feature_groups, at_once, [&](int64_t begin, int64_t end) {
        auto& plane_space = per_thread<Workspace>([] {});
        auto& sum_space = per_thread<Workspace>([] {});
        auto& line_space = per_thread<Workspace>([] {});
        float* planes = plane_space.get<float>(p.size() * at_once + slack);
        float* sums = sum_space.get<float>((p.outputs + slack) * at_once * of_source);
        float* joined_lines = line_space.get<float>(count * at_once * of_source + slack);
        // The lines of each plane take the places of the last one's; the rest stays padding (M5).
        std::fill_n(planes, p.size() * at_once + slack, padding);
        for (int64_t job = begin, some = 0; job < end; job += some) {
            const int64_t n = job / c_.feature_groups, source = job % c_.feature_groups;
            some = std::min({at_once, end - job, c_.feature_groups - source});
            filler.fill(n, source, some, planes);
            PlaneSums s{planes,
                        p.size(),
                        some * of_source,
                        of_source,
                        p.places.data(),
                        window,
                        how_.tile,
                        weights + source * of_source * window,
                        0,
                        sums,
                        p.outputs + slack};
            for (int64_t at = 0; at < p.outputs; at += together) {
                s.count = std::min(together, p.outputs - at);
                s.planes = planes + at;
                s.sums = sums + at;
                note_work(s.count * s.channels * window);
                k_.sum_planes(s);
            }
            k_.join_lines(sums, s.pitch, s.channels, places.data(), static_cast<int64_t>(places.size()),
                          length, joined_lines);
            epilogue.finish(joined_lines, 0, source * of_source, s.channels,
                            (n * outputs() + row) * of_row, static_cast<int>(count));
        }
    });
}

void Convolver::multiply_planes() const {
    const int64_t rows = rows_within(plane_bytes, [&](int64_t n) { return plane(n).bytes(); });
    if (rows == 0) return multiply_gathered();
    for (int64_t row = 0; row < outputs(); row += rows)
        multiply_planes(row, std::min(rows, outputs() - row));
}

}  // namespace neuronsim
