#include "convolution.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "dispatch.h"
#include "pool.h"

namespace neuronsim {
namespace {

constexpr int64_t image_bytes = 6 << 20;  // what is padded at a time
constexpr int64_t max_pixels = 64;        // that are turned to channels last at a time

// How the padded image holds its elements: as pairs of bfloat16 or float32 for the kernels, or, for
// integers, as they come.
enum class Held : uint8_t { pairs, float32, raw };

struct Image {
    std::vector<int64_t> extents;  // of the spatial dimensions
    int64_t pixel;                 // words or elements from a pixel to the next
    Held held;
    int64_t element;  // bytes of one element, or of a pair
    int64_t line() const { return extents.back() * pixel * element; }
    int64_t lines() const {
        int64_t n = 1;
        for (size_t d = 0; d + 1 < extents.size(); ++d) n *= extents[d];
        return n;
    }
    int64_t bytes() const { return lines() * line(); }
    std::vector<int64_t> strides() const {
        std::vector<int64_t> s(extents.size());
        int64_t stride = pixel * element;
        for (size_t d = extents.size(); d-- > 0;) {
            s[d] = stride;
            stride *= extents[d];
        }
        return s;
    }
};

// One convolution's parts.
class Worker {
public:
    Worker(const Convolution& shape, const DotOperand& input, const DotOperand& kernel,
           const PackedColumns* packed, const DotResult& result, const Accumulation& how,
           const Numerics& numerics, Draw draw)
        : k_(kernels()),
          c_(shape),
          x_(input),
          w_(kernel),
          packed_(packed),
          out_(result),
          how_(how),
          numerics_(numerics),
          draw_(draw),
          groups_(shape.feature_groups * shape.batch_groups) {}

    void run() {
        if (axes_size(out_.rows) == 0) return;
        const bool is_float = is_device_float(out_.dtype);
        const bool by_channels = is_float && is_depthwise();
        if (by_channels && has_planes()) return multiply_planes();
        if (!by_channels && !needs_image()) return multiply_in_place();
        // As much of the batch, or else of the first spatial dimension, as the limit allows.
        const int64_t whole = image(0, outputs(0), by_channels).bytes() * c_.batch_groups;
        const int64_t samples =
            std::clamp<int64_t>(image_bytes / std::max<int64_t>(whole, 1), 1, c_.batch);
        int64_t rows = outputs(0);
        while (samples == 1 && rows > 1 &&
               image(0, rows, by_channels).bytes() * c_.batch_groups > image_bytes)
            rows = (rows + 1) / 2;
        for (int64_t n = 0; n < c_.batch; n += samples)
            for (int64_t row = 0; row < outputs(0); row += rows) {
                const int64_t n_count = std::min(samples, c_.batch - n);
                const int64_t row_count = std::min(rows, outputs(0) - row);
                fill(n, n_count, row, row_count, by_channels);
                if (by_channels) multiply_channels(n, n_count, row, row_count);
                else multiply_image(n, n_count, row, row_count);
            }
    }

private:
    size_t rank() const { return c_.spatial.size(); }
    int64_t outputs(size_t d) const { return rank() == 0 ? 1 : c_.spatial[d].output; }
    const Axes& x_axes() const { return x_.vectors; }  // batch, spatial ...
    int64_t channel_stride() const { return x_.depth[0].stride; }

    // Whether a window reaches into padding or holes, or the channels of a pixel lie apart where
    // several windows read it.
    bool needs_image() const {
        if (rank() == 0) return false;
        int64_t window = 1;
        bool outside = false;
        for (const ConvolutionAxis& s : c_.spatial) {
            window *= s.window;
            const int64_t reach =
                (s.output - 1) * s.stride + (s.window - 1) * s.window_dilation - s.padding_low;
            outside = outside || s.padding_low > 0 || reach >= s.input || s.base_dilation != 1;
        }
        const bool apart = is_device_float(out_.dtype) && c_.input_features > 1 &&
                           channel_stride() != storage_bytes(x_.dtype);
        return outside || (window > 1 && apart) || (window > 1 && held(false) == Held::pairs);
    }

    // Each output feature has an input feature of its own: the vectors run over them.
    bool is_depthwise() const {
        return rank() > 0 && c_.feature_groups > 1 && c_.input_features == 1 &&
               c_.output_features <= 4 && how_.model != Accumulate::exact && form() == DotForm::fma &&
               packed_ == nullptr;
    }
    // Whether the elements of a channel's lines lie side by side, in the input and in the result.
    bool has_planes() const {
        return x_axes().back().stride == storage_bytes(x_.dtype) &&
               out_.rows.back().stride == storage_bytes(out_.stored());
    }
    DotForm form() const {
        const DotForm f = dot_form(k_, x_.type(), w_.type(), how_, numerics_);
        return f == DotForm::pairs && c_.input_features == 1 ? DotForm::fma : f;
    }

    Held held(bool by_channels) const {
        if (!is_device_float(out_.dtype)) return Held::raw;
        if (by_channels || how_.model == Accumulate::exact ||
            dot_form(k_, x_.type(), w_.type(), how_, numerics_) != DotForm::pairs ||
            c_.input_features % 2 != 0)
            return Held::float32;
        return Held::pairs;
    }

    // The image that the outputs [row, row + count) of the first spatial dimension read.
    Image image(int64_t, int64_t count, bool by_channels) const {
        Image i;
        for (size_t d = 0; d < rank(); ++d) {
            const ConvolutionAxis& s = c_.spatial[d];
            const int64_t n = d == 0 ? count : s.output;
            i.extents.push_back((n - 1) * s.stride + (s.window - 1) * s.window_dilation + 1);
        }
        i.held = held(by_channels);
        i.element = i.held == Held::raw ? storage_bytes(x_.dtype) : 4;
        i.pixel = c_.feature_groups * c_.input_features * (by_channels ? c_.output_features : 1);
        if (i.held == Held::pairs) i.pixel /= 2;
        // Pixels that a register block reads together must not share their cache lines' places.
        constexpr int64_t half_page = 2048, line = 64;
        if (i.pixel * i.element * c_.spatial.back().stride % half_page == 0)
            i.pixel += line / i.element;
        return i;
    }

    // Copies the input into the image: channels last, +0 in padding and holes (M5).
    void fill(int64_t n, int64_t n_count, int64_t row, int64_t row_count, bool by_channels) {
        image_ = image(row, row_count, by_channels);
        const int64_t samples = n_count * c_.batch_groups;
        data_ = space().get<char>(checked_bytes(samples));
        std::atomic<uint32_t> least{0xFFFF};
        const int64_t lines = image_.lines();
        const int64_t grain = 1 + 16384 / (image_.line() + 1);
        parallel_for(samples * lines, grain, [&](int64_t begin, int64_t end) {
            uint32_t own = 0xFFFF;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t sample = i / lines;
                const int64_t from = sample / n_count * c_.batch + n + sample % n_count;
                own = std::min(own,
                               fill_line(from, i % lines, row, by_channels, data_ + i * image_.line()));
            }
            uint32_t seen = least.load();
            while (own < seen && !least.compare_exchange_weak(seen, own)) {
            }
        });
        least_ = least;
    }
    int64_t checked_bytes(int64_t samples) const {
        Axes unused;
        int64_t bytes = checked_product({samples, image_.element, image_.pixel});
        for (const int64_t n : image_.extents)
            bytes = static_cast<int64_t>(checked_product({bytes, n}));
        return bytes;
    }
    static Workspace& space() {
        thread_local Workspace workspace;
        return workspace;
    }

    uint32_t fill_line(int64_t sample, int64_t line, int64_t row, bool by_channels, char* to) const {
        __builtin_memset(to, 0, static_cast<size_t>(image_.line()));
        const char* from = x_.data + sample * x_axes()[0].stride;
        for (size_t d = rank() - 1; d-- > 0;) {
            const ConvolutionAxis& s = c_.spatial[d];
            const int64_t at = line % image_.extents[d] + (d == 0 ? row * s.stride : 0) - s.padding_low;
            line /= image_.extents[d];
            if (at < 0 || at % s.base_dilation != 0 || at / s.base_dilation >= s.input) return 0xFFFF;
            from += at / s.base_dilation * x_axes()[d + 1].stride;
        }
        // The pixels of the last dimension: every base_dilation-th place from the first one on.
        const ConvolutionAxis& s = c_.spatial.back();
        const int64_t start = s.padding_low - (rank() == 1 ? row * s.stride : 0);
        const int64_t skipped = start < 0 ? blocks(-start, s.base_dilation) : 0;
        const int64_t place = start + skipped * s.base_dilation;
        const int64_t room = image_.extents.back() - place;
        const int64_t count =
            std::min(s.input - skipped, room <= 0 ? 0 : blocks(room, s.base_dilation));
        uint32_t least = 0xFFFF;
        const int64_t pixel = image_.pixel * s.base_dilation;
        for (int64_t i = 0; i < count; i += max_pixels) {
            const int64_t n = std::min(max_pixels, count - i);
            char* target = to + (place + i * s.base_dilation) * image_.pixel * image_.element;
            const char* source = from + (skipped + i) * x_axes().back().stride;
            least = std::min(least, fill_pixels(source, n, pixel, by_channels, target));
        }
        return least;
    }

    // n pixels with all their channels, `pixel` elements from one to the next.
    uint32_t fill_pixels(const char* source, int64_t n, int64_t pixel, bool by_channels,
                         char* target) const {
        const int64_t channels = c_.feature_groups * c_.input_features;
        const int64_t x_stride = x_axes().back().stride, c_stride = channel_stride();
        if (image_.held == Held::raw) {
            for (int64_t i = 0; i < n; ++i)
                for (int64_t j = 0; j < channels; ++j)
                    __builtin_memcpy(target + (i * pixel + j) * image_.element,
                                     source + i * x_stride + j * c_stride,
                                     static_cast<size_t>(image_.element));
            return 0xFFFF;
        }
        DotOperand line{source, x_.dtype, {}, {{n, x_stride}}, {{channels, c_stride}}, x_.program};
        const bool pairs = image_.held == Held::pairs;
        const DotForm form = image_.held == Held::float32 ? DotForm::fma : DotForm::pairs;
        // C4 is the product's: the image holds the operand's own values.
        const Packer packer(k_, line, form, Numerics{});
        thread_local Workspace first, second;
        if (by_channels && c_.output_features > 1) {
            float* values = first.get<float>(n * channels);
            packer.stage_block(source, 0, n, 0, channels, false, 4 * channels,
                               reinterpret_cast<char*>(values));
            const int64_t m = c_.output_features;
            for (int64_t i = 0; i < n; ++i)
                for (int64_t j = 0; j < channels * m; ++j)
                    __builtin_memcpy(target + (i * pixel + j) * 4, values + i * channels + j / m, 4);
            return 0xFFFF;
        }
        auto* words = reinterpret_cast<float*>(target);
        if (!packer.across()) return packer.rows(source, 0, n, 0, channels, pixel, words);
        // Channels that lie apart are packed as the columns of a panel, which is then turned.
        const int64_t count = pairs ? channels / 2 : channels;
        float* panel = first.get<float>(count * n);
        uint32_t least = 0xFFFF;
        packer.panels(source, 0, n, 0, channels, static_cast<int>(n), panel, 0, &least);
        k_.turn(panel, n, static_cast<int>(count), static_cast<int>(n), words, pixel);
        return least;
    }

    // The result's places for some samples and some outputs of the first spatial dimension.
    DotResult part(int64_t n, int64_t n_count, int64_t row, int64_t row_count) const {
        DotResult r = out_;
        const auto move = [&](auto& array) {
            array.data += n * array.rows[0].stride;
            array.rows[0].size = n_count;
            if (rank() == 0) return;
            array.data += row * array.rows[1].stride;
            array.rows[1].size = row_count;
        };
        move(r);
        for (DotTerm& t : r.terms) move(t);
        return r;
    }
    // S2: an element's index is its place in the whole result.
    Draw draw_of(const DotResult& r) const {
        Draw draw = draw_;
        draw.first = (r.data - out_.data) / storage_bytes(out_.dtype);
        return draw;
    }

    Axes window_axes(const std::vector<int64_t>& strides, int64_t channels, int64_t channel) const {
        Axes axes;
        for (size_t d = 0; d < rank(); ++d)
            axes.push_back({c_.spatial[d].window, strides[d] * c_.spatial[d].window_dilation});
        axes.push_back({channels, channel});
        return axes;
    }
    Axes position_axes(int64_t samples, int64_t sample, const std::vector<int64_t>& strides,
                       int64_t rows) const {
        Axes axes{{samples, sample}};
        for (size_t d = 0; d < rank(); ++d)
            axes.push_back({d == 0 ? rows : c_.spatial[d].output, strides[d] * c_.spatial[d].stride});
        return axes;
    }

    void multiply_in_place() const {
        std::vector<int64_t> strides;
        DotOperand a = x_;
        for (size_t d = 0; d < rank(); ++d) {
            strides.push_back(x_axes()[d + 1].stride);
            a.data -= c_.spatial[d].padding_low * strides[d];
        }
        const int64_t c = channel_stride(), n = x_axes()[0].stride;
        a.batch = {{groups_, c_.feature_groups > 1 ? c_.input_features * c : c_.batch * n}};
        a.vectors = position_axes(c_.batch, n, strides, outputs(0));
        a.depth = window_axes(strides, c_.input_features, c);
        dot(a, w_, packed_, out_, how_, numerics_, draw_);
    }

    void multiply_image(int64_t n, int64_t n_count, int64_t row, int64_t row_count) const {
        const std::vector<int64_t> strides = image_.strides();
        const bool pairs = image_.held == Held::pairs;
        const int64_t features = c_.input_features / (pairs ? 2 : 1), sample = image_.bytes();
        DotOperand a{data_, x_.dtype, {}, {}, {}};
        if (image_.held == Held::float32) a.dtype = DType::float32;
        if (pairs) a.dtype = DType::bfloat16;
        a.holds_pairs = pairs;
        a.least = least_;
        a.batch = {{groups_, c_.feature_groups > 1 ? features * image_.element : n_count * sample}};
        a.vectors = position_axes(n_count, sample, strides, row_count);
        a.depth = window_axes(strides, features, image_.element);
        const DotResult r = part(n, n_count, row, row_count);
        // C4 reads subnormals of the operand's own type as zeros; float16 and float8 have none of its.
        dot(a, w_, packed_, r, how_, numerics_, draw_of(r));
    }

    // Depthwise: the sums of neighbouring channels run side by side, each with its own weight.
    void multiply_channels(int64_t n, int64_t n_count, int64_t row, int64_t row_count) const {
        const std::vector<int64_t> strides = image_.strides();
        const int64_t channels = c_.feature_groups * c_.output_features;
        const Axes taps = window_axes(strides, 1, 0);
        const int64_t window = axes_size(taps);
        // The weights as [window][channels].
        thread_local Workspace weight_space;
        float* weights = weight_space.get<float>(window * channels);
        DotOperand w = w_;
        w.vectors = {w_.batch[0], w_.vectors[0]};
        w.batch = {};
        const Packer packer(k_, w, DotForm::fma, numerics_);
        packer.stage_block(w.data, 0, channels, 0, window, true, 4 * channels,
                           reinterpret_cast<char*>(weights));
        std::vector<int64_t> places(static_cast<size_t>(window));
        for (int64_t i = 0; i < window; ++i) places[static_cast<size_t>(i)] = axes_offset(taps, i);
        DotResult r = part(n, n_count, row, row_count);
        const auto join = [](auto& array) {  // the groups' features are the columns
            array.columns = {array.batch[0], array.columns[0]};
            array.batch = {{1, 0}};
        };
        join(r);
        for (DotTerm& t : r.terms) join(t);
        const int64_t size = storage_bytes(r.stored());
        r.rows = collapsed(r.rows, size);
        r.columns = collapsed(r.columns, size);
        const Draw draw = draw_of(r);
        const Axes positions = position_axes(n_count, image_.bytes(), strides, row_count);
        const int64_t inner = positions.back().size, step = positions.back().stride;
        constexpr int64_t strip = 64;  // channels whose sums stay in the first cache
        const int64_t strips = blocks(channels, strip), lines = axes_size(positions) / inner;
        parallel_for(lines * strips, 1, [&](int64_t begin, int64_t end) {
            thread_local Workspace sum_space;
            const Epilogue epilogue(k_, r, numerics_, draw, strip);
            for (int64_t job = begin; job < end; ++job) {
                const int64_t first = job % strips * strip, line = job / strips;
                const int count = static_cast<int>(std::min(strip, channels - first));
                float* sums = sum_space.get<float>(inner * strip);
                const char* base = data_ + axes_offset(positions, line * inner) + first * 4;
                k_.dot_channels(base, step, inner, places.data(), window, how_.tile, weights + first,
                                channels, count, sums, strip);
                epilogue.finish(sums, 0, line * inner, inner, first, count);
            }
        });
    }

    // A channel's padded plane, cut by the strides: each phase holds every stride-th place, so that the
    // windows of neighbouring outputs are neighbours, over the ends of lines too.
    struct Plane {
        std::vector<int64_t> extents, pitches;  // of a phase
        int64_t phase = 1, phases = 1;          // elements of one, and how many there are
        int64_t outputs = 1;                    // from the first to the last, with what lies between
        std::vector<int64_t> places;            // of the window's elements

        int64_t size() const { return phase * phases; }
        int64_t place(const Convolution& c, const std::vector<int64_t>& at) const {
            int64_t number = 0, offset = 0;
            for (size_t d = 0; d < at.size(); ++d) {
                number = number * c.spatial[d].stride + at[d] % c.spatial[d].stride;
                offset += at[d] / c.spatial[d].stride * pitches[d];
            }
            return number * phase + offset;
        }
    };
    Plane plane() const {
        Plane p;
        p.extents.resize(rank());
        p.pitches.resize(rank());
        for (size_t d = rank(); d-- > 0;) {
            const ConvolutionAxis& s = c_.spatial[d];
            const int64_t reach = (s.output - 1) * s.stride + (s.window - 1) * s.window_dilation + 1;
            p.extents[d] = blocks(reach, s.stride);
            p.pitches[d] = p.phase;
            p.phase = static_cast<int64_t>(checked_product({p.phase, p.extents[d]}));
            p.phases *= s.stride;
            p.outputs += (s.output - 1) * p.pitches[d];
        }
        std::vector<int64_t> at(rank());
        int64_t window = 1;
        for (const ConvolutionAxis& s : c_.spatial) window *= s.window;
        for (int64_t i = 0; i < window; ++i) {
            int64_t rest = i;
            for (size_t d = rank(); d-- > 0;) {
                at[d] = rest % c_.spatial[d].window * c_.spatial[d].window_dilation;
                rest /= c_.spatial[d].window;
            }
            p.places.push_back(p.place(c_, at));
        }
        return p;
    }

    // The input's lines within the plane: each one's number, distance in bytes, and place.
    struct Line {
        int64_t number, distance, place;
    };
    struct Lines {
        std::vector<Line> list;
        int64_t skipped, start, count;  // the elements of a line that lie within the plane
    };
    Lines lines_of(const Plane& p) const {
        const ConvolutionAxis& s = c_.spatial.back();
        const size_t last = rank() - 1;
        const int64_t extent = p.extents[last] * s.stride;
        Lines lines{};
        lines.skipped = s.padding_low < 0 ? blocks(-s.padding_low, s.base_dilation) : 0;
        lines.start = s.padding_low + lines.skipped * s.base_dilation;
        lines.count = std::min(s.input - lines.skipped, blocks(extent - lines.start, s.base_dilation));
        if (lines.count <= 0) return lines;
        int64_t all = 1;
        for (size_t d = 0; d < last; ++d) all *= c_.spatial[d].input;
        std::vector<int64_t> at(rank());
        at[last] = 0;
        for (int64_t number = 0; number < all; ++number) {
            int64_t rest = number, distance = 0;
            bool inside = true;
            for (size_t d = last; d-- > 0;) {
                const ConvolutionAxis& axis = c_.spatial[d];
                const int64_t i = rest % axis.input;
                rest /= axis.input;
                at[d] = axis.padding_low + i * axis.base_dilation;
                inside = inside && at[d] >= 0 && at[d] < p.extents[d] * axis.stride;
                distance += i * x_axes()[d + 1].stride;
            }
            if (inside) lines.list.push_back({number, distance, p.place(c_, at)});
        }
        return lines;
    }

    void fill_plane(const Plane& p, const Lines& lines, const char* source, const Packer& packer,
                    float* to) const {
        thread_local Workspace space;
        const ConvolutionAxis& s = c_.spatial.back();
        const bool in_place = packer.is_stored_as_packed();
        const float* staged = nullptr;
        if (!in_place && !lines.list.empty()) {
            const int64_t all = lines.list.back().number + 1;
            float* values = space.get<float>(all * s.input);
            packer.stage_block(source, 0, all, 0, s.input, false, 4 * s.input,
                               reinterpret_cast<char*>(values));
            staged = values;
        }
        for (const Line& line : lines.list) {
            const float* values = in_place ? reinterpret_cast<const float*>(source + line.distance)
                                           : staged + line.number * s.input;
            values += lines.skipped;
            float* const begin = to + line.place;
            if (s.stride == 1 && s.base_dilation == 1) {
                __builtin_memcpy(begin + lines.start, values, static_cast<size_t>(lines.count) * 4);
                continue;
            }
            // Every stride-th element has the same phase.
            for (int64_t first = 0; first < std::min(s.stride, lines.count); ++first) {
                const int64_t at = lines.start + first * s.base_dilation;
                float* phase = begin + at % s.stride * p.phase + at / s.stride;
                for (int64_t i = first, j = 0; i < lines.count; i += s.stride, j += s.base_dilation)
                    phase[j] = values[i];
            }
        }
    }

    // Depthwise on planes: neighbouring outputs run side by side, all with the same weight.
    void multiply_planes() const {
        const Plane p = plane();
        const int64_t window = static_cast<int64_t>(p.places.size());
        const int64_t channels = c_.feature_groups * c_.output_features;
        thread_local Workspace weight_space;
        float* weights = weight_space.get<float>(window * channels);
        DotOperand w = w_;
        w.vectors = {w_.batch[0], w_.vectors[0]};
        w.batch = {};
        Packer(k_, w, DotForm::fma, Numerics{})
            .stage_block(w.data, 0, channels, 0, window, false, 4 * window,
                         reinterpret_cast<char*>(weights));
        Axes line_axes(x_axes().begin() + 1, x_axes().end() - 1);
        if (line_axes.empty()) line_axes.push_back({1, 0});
        const DotOperand line{x_.data,
                              x_.dtype,
                              {},
                              collapsed(line_axes, storage_bytes(x_.dtype)),
                              {{c_.spatial.back().input, x_axes().back().stride}},
                              x_.program};
        const Packer packer(k_, line, DotForm::fma, Numerics{});
        DotResult r = out_;
        const auto join = [](auto& array) {  // the groups' features are the columns
            array.columns = {array.batch[0], array.columns[0]};
            array.batch = {{1, 0}};
        };
        join(r);
        for (DotTerm& t : r.terms) join(t);
        r.rows = collapsed(r.rows, storage_bytes(r.stored()));
        const int64_t length = c_.spatial.back().output;
        std::vector<int64_t> places;  // of the outputs' lines
        for (int64_t i = 0; i < axes_size(out_.rows) / c_.batch / length; ++i) {
            int64_t place = 0, rest = i;
            for (size_t d = rank() - 1; d-- > 0;) {
                place += rest % c_.spatial[d].output * p.pitches[d];
                rest /= c_.spatial[d].output;
            }
            places.push_back(place);
        }
        const Lines lines = lines_of(p);
        const int64_t outputs = static_cast<int64_t>(places.size()) * length;
        const Epilogue epilogue(k_, r, numerics_, draw_, 1);
        parallel_for(c_.batch * channels, 1, [&](int64_t begin, int64_t end) {
            thread_local Workspace plane_space, sum_space, line_space;
            // Whole vectors are read and written past the ends.
            float* data = plane_space.get<float>(p.size() + k_.lanes * 8);
            float* sums = sum_space.get<float>(p.outputs + k_.lanes * 8);
            float* joined = line_space.get<float>(outputs);
            // The lines of each plane take the places of the last one's; the rest stays +0 (M5).
            std::fill_n(data, p.size() + k_.lanes * 8, 0.0f);
            int64_t held = -1;
            for (int64_t job = begin; job < end; ++job) {
                const int64_t n = job / channels, channel = job % channels;
                const int64_t source = n * c_.feature_groups + channel / c_.output_features;
                if (source != held)
                    fill_plane(p, lines,
                               x_.data + n * x_axes()[0].stride +
                                   channel / c_.output_features * channel_stride(),
                               packer, data);
                held = source;
                k_.dot_plane(data, p.places.data(), window, how_.tile, weights + channel * window,
                             p.outputs, sums);
                for (size_t i = 0; i < places.size(); ++i)
                    __builtin_memcpy(joined + static_cast<int64_t>(i) * length, sums + places[i],
                                     static_cast<size_t>(length) * 4);
                epilogue.finish(joined, 0, n * outputs, outputs, channel, 1);
            }
        });
    }

    const Kernels& k_;
    const Convolution& c_;
    const DotOperand &x_, &w_;
    const PackedColumns* packed_;
    const DotResult& out_;
    const Accumulation& how_;
    const Numerics& numerics_;
    const Draw draw_;
    const int64_t groups_;
    Image image_{};
    char* data_ = nullptr;
    uint32_t least_ = 0xFFFF;
};

}  // namespace

void convolution(const Convolution& shape, const DotOperand& input, const DotOperand& kernel,
                 const PackedColumns* packed, DotResult result, const Accumulation& how,
                 const Numerics& numerics, Draw draw) {
    // The kernel's window runs backwards where it is reversed (M5).
    DotOperand w = kernel;
    for (size_t d = 0; d < shape.spatial.size(); ++d) {
        if (!shape.spatial[d].reversed) continue;
        Axis& axis = w.depth[d];
        w.data += (axis.size - 1) * axis.stride;
        axis.stride = -axis.stride;
    }
    Worker(shape, input, w, packed, result, how, numerics, draw).run();
}

}  // namespace neuronsim
