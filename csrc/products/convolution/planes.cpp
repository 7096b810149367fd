#include "products/convolution/convolver.h"

namespace neuronsim {

constexpr int64_t plane_bytes = 1 << 20;  // of one channel
constexpr size_t max_phases = 256;        // of a plane

// A channel's padded plane, cut by the strides: a phase holds every stride-th place, so that the
// windows of neighbouring outputs are neighbours, over the ends of lines too. Only phases that the
// window reads are there.
struct Convolver::Plane {
    std::vector<int64_t> extents, pitches;  // of a phase
    int64_t phase = 1;                      // elements of one
    int64_t outputs = 1;                    // from the first to the last, with what lies between
    std::vector<std::vector<int64_t>> phases;
    std::vector<int64_t> places;  // of the window's elements

    int64_t size() const { return saturated_product({phase, static_cast<int64_t>(phases.size())}); }
    int64_t bytes() const { return saturated_product({size(), 4}); }
};

Convolver::Plane Convolver::plane(int64_t count) const {
    Plane p;
    p.extents.resize(rank());
    p.pitches.resize(rank());
    for (size_t d = rank(); d-- > 0;) {
        const ConvolutionAxis& s = c_.spatial[d];
        const int64_t n = d == 0 ? count : s.output;
        const int64_t reach = (n - 1) * s.stride + (s.window - 1) * s.window_dilation + 1;
        p.extents[d] = blocks(reach, s.stride);
        p.pitches[d] = p.phase;
        p.phase = saturated_product({p.phase, p.extents[d]});
        if (p.phase == INT64_MAX) break;  // too large for any limit
        p.outputs += (n - 1) * p.pitches[d];
    }
    int64_t window = 1;
    for (const ConvolutionAxis& s : c_.spatial) window *= s.window;
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

// The part of an input's line that lies in a phase: `count` elements from number `first` on, every
// `step`-th, go to `place` and every `pitch`-th place after it.
struct Convolver::Line {
    int64_t number, distance;  // the line's, and how far it lies from the channel's first in bytes
    int64_t first, step, count, place, pitch;
};

std::vector<Convolver::Line> Convolver::lines_of(const Plane& p, int64_t row) const {
    const size_t last = rank() - 1;
    const ConvolutionAxis& s = c_.spatial[last];
    int64_t all = 1;
    for (size_t d = 0; d < last; ++d) all *= c_.spatial[d].input;
    const auto start = [&](size_t d) {  // the place of the dimension's first element
        return c_.spatial[d].padding_low - (d == 0 ? row * c_.spatial[d].stride : 0);
    };
    // Every `step`-th element of a line has the same phase.
    int64_t a = s.stride, b = s.base_dilation;
    while (b != 0) std::swap(a, b), b %= a;
    const int64_t step = s.stride / a, pitch = s.base_dilation / a;
    const int64_t skipped = start(last) < 0 ? blocks(-start(last), s.base_dilation) : 0;
    std::vector<Line> lines;
    for (size_t phase = 0; phase < p.phases.size(); ++phase) {
        int64_t first = skipped;
        const auto place = [&](int64_t i) { return start(last) + i * s.base_dilation; };
        while (first < s.input && first < skipped + step &&
               place(first) % s.stride != p.phases[phase][last])
            ++first;
        if (first >= s.input || first >= skipped + step) continue;
        const int64_t room = p.extents[last] - place(first) / s.stride;
        const int64_t count = std::min(blocks(s.input - first, step), blocks(room, pitch));
        if (room <= 0) continue;
        for (int64_t number = 0; number < all; ++number) {
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
            if (inside) lines.push_back({number, distance, first, step, count, to, pitch});
        }
    }
    return lines;
}

// Every second number; four at a time, which read one place beyond the last of theirs.
static void take_even(const float* values, int64_t count, float* target) {
    typedef float Four __attribute__((vector_size(16)));
    int64_t i = 0;
    for (; i + 4 < count; i += 4) {
        Four low, high;
        __builtin_memcpy(&low, values + 2 * i, sizeof low);
        __builtin_memcpy(&high, values + 2 * i + 4, sizeof high);
        const Four even = __builtin_shufflevector(low, high, 0, 2, 4, 6);
        __builtin_memcpy(target + i, &even, sizeof even);
    }
    for (; i < count; ++i) target[i] = values[2 * i];
}

void Convolver::fill_plane(const std::vector<Line>& lines, bool is_plane, const char* source,
                           const ProductOperand& line, const Packer& packer, float* to) const {
    const int64_t length = c_.spatial.back().input, all = axes_size(line.vectors);
    if (is_plane) {
        note_work(all * length);
        return packer.stage_block(source, 0, all, 0, length, false, 4 * length,
                                  reinterpret_cast<char*>(to));
    }
    const bool in_place = packer.is_stored_as_packed();
    // A small channel is staged as one, a large one line by line.
    const bool whole = saturated_product({all, length, 4}) <= plane_bytes;
    auto& space = per_thread<Workspace>([] {});
    float* const staged = in_place ? nullptr : space.get<float>(whole ? all * length : length);
    if (!in_place && whole && !lines.empty())
        packer.stage_block(source, 0, all, 0, length, false, 4 * length,
                           reinterpret_cast<char*>(staged));
    int64_t held = -1;
    for (const Line& l : lines) {
        note_work(l.count);
        const float* values = whole && !in_place ? staged + l.number * length : staged;
        if (in_place) {
            values = reinterpret_cast<const float*>(source + l.distance);
        } else if (!whole && held != l.number) {
            packer.stage_block(source, l.number, 1, 0, length, false, 0,
                               reinterpret_cast<char*>(staged));
            held = l.number;
        }
        values += l.first;
        float* const target = to + l.place;
        if (l.step == 1 && l.pitch == 1) {
            __builtin_memcpy(target, values, static_cast<size_t>(l.count) * 4);
        } else if (l.step == 2 && l.pitch == 1) {
            take_even(values, l.count, target);
        } else {
            for (int64_t i = 0; i < l.count; ++i) target[i * l.pitch] = values[i * l.step];
        }
    }
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

void Convolver::multiply_planes(int64_t row, int64_t row_count) const {
    const Plane p = plane(row_count);
    const int64_t window = static_cast<int64_t>(p.places.size());
    const int64_t channels = c_.feature_groups * c_.output_features;
    const float* weights = channel_weights(window, false);
    const Axes outer(x_axes().begin() + 1, x_axes().end() - 1);
    const ProductOperand line{x_.data,
                              x_.dtype,
                              {},
                              collapsed(outer, storage_bytes(x_.dtype)),
                              {{c_.spatial.back().input, x_axes().back().stride}},
                              x_.prologue};
    const Packer packer(k_, line, ProductForm::fma, Numerics{});
    const ProductResult r = joined(out_);
    const int64_t length = rank() == 1 ? row_count : c_.spatial.back().output;
    const int64_t of_row = axes_size(out_.rows) / c_.batch / outputs(0);
    const int64_t count = of_row * row_count;
    const std::vector<int64_t> places = line_places(p, row_count, length, count);
    const std::vector<Line> lines = lines_of(p, row);
    const Epilogue epilogue(k_, r, numerics_, draw_, 1);
    // Without padding and strides the plane is the channel itself.
    const int64_t all = axes_size(line.vectors), width = c_.spatial.back().input;
    bool is_plane = p.phases.size() == 1 && p.phase == all * width;
    for (size_t i = 0; i < lines.size(); ++i)
        is_plane = is_plane && lines[i].number == static_cast<int64_t>(i) && lines[i].count == width &&
                   lines[i].place == static_cast<int64_t>(i) * width && lines[i].pitch == 1;
    is_plane = is_plane && static_cast<int64_t>(lines.size()) == all;
    parallel_for(c_.batch * channels, 1, [&](int64_t begin, int64_t end) {
        auto& plane_space = per_thread<Workspace>([] {});
        auto& sum_space = per_thread<Workspace>([] {});
        auto& line_space = per_thread<Workspace>([] {});
        const int64_t slack = k_.lanes * 8;  // whole vectors are read and written past the ends
        const int64_t together = std::max(work_at_once / window / slack, int64_t{1}) * slack;
        float* data = plane_space.get<float>(p.size() + slack);
        float* sums = sum_space.get<float>(p.outputs + slack);
        float* packed_lines = line_space.get<float>(count);
        // The lines of each plane take the places of the last one's; the rest stays +0 (M5).
        std::fill_n(data, p.size() + slack, 0.0f);
        int64_t held = -1;
        for (int64_t job = begin; job < end; ++job) {
            const int64_t n = job / channels, channel = job % channels;
            const int64_t source = n * c_.feature_groups + channel / c_.output_features;
            if (source != held)
                fill_plane(
                    lines, is_plane,
                    x_.data + n * x_axes()[0].stride + channel / c_.output_features * channel_stride(),
                    line, packer, data);
            held = source;
            for (int64_t at = 0; at < p.outputs; at += together) {
                const int64_t some = std::min(together, p.outputs - at);
                note_work(some * window);
                k_.product_plane(data + at, p.places.data(), window, how_.tile,
                                 weights + channel * window, some, sums + at);
            }
            for (size_t i = 0; i < places.size(); ++i)
                __builtin_memcpy(packed_lines + static_cast<int64_t>(i) * length, sums + places[i],
                                 static_cast<size_t>(length) * 4);
            epilogue.finish(packed_lines, 0, (n * outputs(0) + row) * of_row, count, channel, 1);
        }
    });
}

void Convolver::multiply_planes() const {
    const int64_t rows = rows_within(plane_bytes, [&](int64_t n) { return plane(n).bytes(); });
    if (rows == 0) return multiply_gathered();
    for (int64_t row = 0; row < outputs(0); row += rows)
        multiply_planes(row, std::min(rows, outputs(0) - row));
}

}  // namespace neuronsim
