#include "products/convolution/convolution.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"

namespace neuronsim {
namespace {

constexpr int64_t image_bytes = 6 << 20;     // what is padded at a time
constexpr int64_t plane_bytes = 1 << 20;     // of one channel
constexpr int64_t gathered_bytes = 4 << 20;  // of windows that are copied one by one
constexpr size_t max_phases = 256;           // of a plane
constexpr int64_t work_at_once = 1 << 22;    // multiply-adds between two looks at signals
constexpr int64_t max_pixels = 64;           // that are turned to channels last at a time

// A product of sizes that stops at the largest number.
int64_t saturated_product(std::initializer_list<int64_t> factors) {
    int64_t n = 1;
    for (const int64_t f : factors)
        if (__builtin_mul_overflow(n, f, &n)) return INT64_MAX;
    return n;
}

// How the padded image holds its elements: as pairs of bfloat16 or float32 for the kernels, or, for
// integers, as they come.
enum class Held : uint8_t { pairs, float32, raw };

struct Image {
    std::vector<int64_t> extents;  // of the spatial dimensions
    int64_t pixel;                 // words or elements from a pixel to the next
    Held held;
    int64_t element;  // bytes of one element, or of a pair
    int64_t line() const { return saturated_product({extents.back(), pixel, element}); }
    int64_t lines() const {
        int64_t n = 1;
        for (size_t d = 0; d + 1 < extents.size(); ++d) n = saturated_product({n, extents[d]});
        return n;
    }
    int64_t bytes() const { return saturated_product({lines(), line()}); }
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
          groups_(shape.feature_groups * shape.batch_groups),
          form_(packed != nullptr && packed->fits(x_, w_, how, numerics)
                    ? packed->form()
                    : dot_form(k_, x_.type(), w_.type(), how, numerics, axes_size(result.rows))) {}

    void run() {
        if (axes_size(out_.rows) == 0) return;
        const bool by_channels = is_device_float(out_.dtype) && is_depthwise();
        if (by_channels && has_planes()) {
            const int64_t rows = rows_within(plane_bytes, [&](int64_t n) { return plane(n).bytes(); });
            if (rows == 0) return multiply_gathered();
            for (int64_t row = 0; row < outputs(0); row += rows)
                multiply_planes(row, std::min(rows, outputs(0) - row));
            return;
        }
        if (!by_channels && !needs_image()) return multiply_in_place();
        // As much of the batch, or else of the first spatial dimension, as the limit allows.
        const auto bytes = [&](int64_t rows) {
            return saturated_product({image(rows, by_channels).bytes(), c_.batch_groups});
        };
        const int64_t whole = std::max<int64_t>(bytes(outputs(0)), 1);
        const int64_t samples = std::clamp<int64_t>(image_bytes / whole, 1, c_.batch);
        const int64_t rows = whole <= image_bytes ? outputs(0) : rows_within(image_bytes, bytes);
        if (rows == 0) return multiply_gathered();
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

    // How many outputs of the first spatial dimension stay within a limit together; 0 if not even one.
    template <class Bytes>
    int64_t rows_within(int64_t limit, const Bytes& bytes) const {
        int64_t rows = outputs(0);
        while (rows > 0 && bytes(rows) > limit) rows /= 2;
        return rows;
    }

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
               c_.output_features <= 4 && how_.model != Accumulate::exact &&
               (form_ == DotForm::fma || form_ == DotForm::pairs) && packed_ == nullptr;
    }
    // Whether the elements of a channel's lines lie side by side, in the input and in the result.
    bool has_planes() const {
        return x_axes().back().stride == storage_bytes(x_.dtype) &&
               out_.rows.back().stride == storage_bytes(out_.stored());
    }

    Held held(bool by_channels) const {
        if (!is_device_float(out_.dtype)) return Held::raw;
        if (by_channels || how_.model == Accumulate::exact || form_ != DotForm::pairs ||
            c_.input_features % 2 != 0)
            return Held::float32;
        return Held::pairs;
    }

    // The image that so many outputs of the first spatial dimension read.
    Image image(int64_t count, bool by_channels) const {
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
        image_ = image(row_count, by_channels);
        const int64_t samples = n_count * c_.batch_groups;
        data_ = space().get<char>(static_cast<int64_t>(checked_product({samples, image_.bytes()})));
        std::atomic<uint32_t> least{0xFFFF};
        const int64_t lines = image_.lines();
        const int64_t grain = 1 + 16384 / (image_.line() + 1);
        parallel_for(samples * lines, grain, [&](int64_t begin, int64_t end) {
            uint32_t own = 0xFFFF;
            for (int64_t i = begin; i < end; ++i) {
                note_work(image_.line() / image_.element);
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
    static Workspace& space() {
        return per_thread<Workspace>([] {});
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
        auto& workspace = per_thread<Workspace>([] {});
        if (by_channels && c_.output_features > 1) {
            float* values = workspace.get<float>(n * channels);
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
        float* panel = workspace.get<float>(count * n);
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

    // The weights of a depthwise convolution: [window][channels] if across, else [channels][window].
    const float* channel_weights(int64_t window, bool is_across) const {
        auto& space = per_thread<Workspace>([] {});
        const int64_t channels = c_.feature_groups * c_.output_features;
        float* weights = space.get<float>(window * channels);
        DotOperand w = w_;
        w.vectors = {w_.batch[0], w_.vectors[0]};
        w.batch = {};
        Packer(k_, w, DotForm::fma, Numerics{})
            .stage_block(w.data, 0, channels, 0, window, is_across, 4 * (is_across ? channels : window),
                         reinterpret_cast<char*>(weights));
        return weights;
    }
    // The result with the features of all groups as its columns.
    static DotResult joined(DotResult r) {
        const int64_t size = storage_bytes(r.stored());
        const auto join = [&](auto& array) {
            array.columns = collapsed({array.batch[0], array.columns[0]}, size);
            array.rows = collapsed(array.rows, size);
            array.batch = {{1, 0}};
        };
        join(r);
        for (DotTerm& t : r.terms) join(t);
        return r;
    }

    // Depthwise: the sums of neighbouring channels run side by side, each with its own weight.
    void multiply_channels(int64_t n, int64_t n_count, int64_t row, int64_t row_count) const {
        const std::vector<int64_t> strides = image_.strides();
        const int64_t channels = c_.feature_groups * c_.output_features;
        const Axes taps = window_axes(strides, 1, 0);
        const int64_t window = axes_size(taps);
        const float* weights = channel_weights(window, true);
        std::vector<int64_t> places(static_cast<size_t>(window));
        for (int64_t i = 0; i < window; ++i) places[static_cast<size_t>(i)] = axes_offset(taps, i);
        const DotResult selected = part(n, n_count, row, row_count), r = joined(selected);
        const Draw draw = draw_of(selected);
        const Axes positions = position_axes(n_count, image_.bytes(), strides, row_count);
        const int64_t inner = positions.back().size, step = positions.back().stride;
        // Channels and positions whose sums stay in the first cache.
        constexpr int64_t strip = 64, piece = 64;
        const int64_t strips = blocks(channels, strip), pieces = blocks(inner, piece);
        // As many at a time as take some milliseconds, whole blocks of the kernel's eight.
        const int64_t together = std::clamp<int64_t>(work_at_once / (strip * window) / 8 * 8, 8, piece);
        parallel_for(
            axes_size(positions) / inner * pieces * strips, 1, [&](int64_t begin, int64_t end) {
                float sums[piece * strip];
                const Epilogue epilogue(k_, r, numerics_, draw, strip);
                for (int64_t job = begin; job < end; ++job) {
                    const int64_t first = job % strips * strip, line = job / strips / pieces;
                    const int64_t from = job / strips % pieces * piece;
                    const int64_t length = std::min(piece, inner - from);
                    const int count = static_cast<int>(std::min(strip, channels - first));
                    const char* base = data_ + axes_offset(positions, line * inner + from) + first * 4;
                    for (int64_t at = 0; at < length; at += together) {
                        const int64_t some = std::min(together, length - at);
                        note_work(some * count * window);
                        k_.dot_channels(base + at * step, step, some, places.data(), window, how_.tile,
                                        weights + first, channels, count, sums + at * strip, strip);
                    }
                    epilogue.finish(sums, 0, line * inner + from, length, first, count);
                }
            });
    }

    // A channel's padded plane, cut by the strides: a phase holds every stride-th place, so that the
    // windows of neighbouring outputs are neighbours, over the ends of lines too. Only phases that the
    // window reads are there.
    struct Plane {
        std::vector<int64_t> extents, pitches;  // of a phase
        int64_t phase = 1;                      // elements of one
        int64_t outputs = 1;                    // from the first to the last, with what lies between
        std::vector<std::vector<int64_t>> phases;
        std::vector<int64_t> places;  // of the window's elements

        int64_t size() const { return saturated_product({phase, static_cast<int64_t>(phases.size())}); }
        int64_t bytes() const { return saturated_product({size(), 4}); }
    };
    // For so many outputs of the first spatial dimension.
    Plane plane(int64_t count) const {
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
    struct Line {
        int64_t number, distance;  // the line's, and how far it lies from the channel's first in bytes
        int64_t first, step, count, place, pitch;
    };
    std::vector<Line> lines_of(const Plane& p, int64_t row) const {
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

    void fill_plane(const std::vector<Line>& lines, const char* source, const DotOperand& line,
                    const Packer& packer, float* to) const {
        const int64_t length = c_.spatial.back().input, all = axes_size(line.vectors);
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
            } else {
                for (int64_t i = 0; i < l.count; ++i) target[i * l.pitch] = values[i * l.step];
            }
        }
    }

    // Depthwise on planes: neighbouring outputs run side by side, all with the same weight.
    void multiply_planes(int64_t row, int64_t row_count) const {
        const Plane p = plane(row_count);
        const int64_t window = static_cast<int64_t>(p.places.size());
        const int64_t channels = c_.feature_groups * c_.output_features;
        const float* weights = channel_weights(window, false);
        const Axes outer(x_axes().begin() + 1, x_axes().end() - 1);
        const DotOperand line{x_.data,
                              x_.dtype,
                              {},
                              collapsed(outer, storage_bytes(x_.dtype)),
                              {{c_.spatial.back().input, x_axes().back().stride}},
                              x_.program};
        const Packer packer(k_, line, DotForm::fma, Numerics{});
        const DotResult r = joined(out_);
        // The outputs' lines among the sums.
        const int64_t length = rank() == 1 ? row_count : c_.spatial.back().output;
        const int64_t of_row = axes_size(out_.rows) / c_.batch / outputs(0);
        const int64_t count = of_row * row_count;
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
        const std::vector<Line> lines = lines_of(p, row);
        const Epilogue epilogue(k_, r, numerics_, draw_, 1);
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
                    fill_plane(lines,
                               x_.data + n * x_axes()[0].stride +
                                   channel / c_.output_features * channel_stride(),
                               line, packer, data);
                held = source;
                for (int64_t at = 0; at < p.outputs; at += together) {
                    const int64_t some = std::min(together, p.outputs - at);
                    note_work(some * window);
                    k_.dot_plane(data + at, p.places.data(), window, how_.tile,
                                 weights + channel * window, some, sums + at);
                }
                for (size_t i = 0; i < places.size(); ++i)
                    __builtin_memcpy(packed_lines + static_cast<int64_t>(i) * length, sums + places[i],
                                     static_cast<size_t>(length) * 4);
                epilogue.finish(packed_lines, 0, (n * outputs(0) + row) * of_row, count, channel, 1);
            }
        });
    }

    // Where an image would be too large: the windows of some outputs of one line are copied one by one.
    void multiply_gathered() const {
        const bool raw = !is_device_float(out_.dtype), pairs = !raw && form_ == DotForm::pairs;
        const DType held = raw ? x_.dtype : pairs ? DType::bfloat16 : DType::float32;
        const int64_t element = storage_bytes(held), features = c_.input_features;
        int64_t window = 1;
        for (const ConvolutionAxis& s : c_.spatial) window *= s.window;
        const int64_t depth = window * features;
        const ConvolutionAxis& s = c_.spatial.back();
        const int64_t most = std::clamp<int64_t>(gathered_bytes / (depth * element), 1, s.output);
        const int64_t lines = axes_size(out_.rows) / s.output;
        const DotOperand pixel{x_.data,   x_.dtype, {}, {{1, 0}}, {{features, channel_stride()}},
                               x_.program};
        const Packer packer(k_, pixel, pairs ? DotForm::pairs : DotForm::fma, Numerics{});
        for (int64_t group = 0; group < groups_; ++group)
            for (int64_t line = 0; line < lines; ++line)
                for (int64_t first = 0; first < s.output; first += most) {
                    const int64_t count = std::min(most, s.output - first);
                    char* const data = space().get<char>(count * depth * element);
                    parallel_for(count * window, 64, [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                            note_work(features);
                            char* to = data + i * features * element;
                            const char* from = element_at(group, line, first + i / window, i % window);
                            if (from == nullptr) {
                                std::fill_n(to, features * element, char{0});
                            } else if (raw) {
                                for (int64_t c = 0; c < features; ++c)
                                    __builtin_memcpy(to + c * element, from + c * channel_stride(),
                                                     static_cast<size_t>(element));
                            } else {
                                packer.stage_block(from, 0, 1, 0, features, false, 0, to);
                            }
                        }
                    });
                    multiply_line(data, held, group, line, first, count, depth);
                }
    }

    // The input element, of a group's first feature, that a window element of an output reads; null for
    // padding and holes. Lines are those of the outputs.
    const char* element_at(int64_t group, int64_t line, int64_t output, int64_t element) const {
        const int64_t by_features = c_.feature_groups > 1 ? group : 0;
        const int64_t by_batch = c_.feature_groups > 1 ? 0 : group;
        const char* from = x_.data + by_features * c_.input_features * channel_stride();
        for (size_t d = rank(); d-- > 0;) {
            const ConvolutionAxis& s = c_.spatial[d];
            int64_t place = output;
            if (d + 1 < rank()) {
                place = line % s.output;
                line /= s.output;
            }
            const int64_t at =
                place * s.stride + element % s.window * s.window_dilation - s.padding_low;
            element /= s.window;
            if (at < 0 || at % s.base_dilation != 0 || at / s.base_dilation >= s.input) return nullptr;
            from += at / s.base_dilation * x_axes()[d + 1].stride;
        }
        return from + (by_batch * c_.batch + line) * x_axes()[0].stride;
    }

    void multiply_line(const char* data, DType dtype, int64_t group, int64_t line, int64_t first,
                       int64_t count, int64_t depth) const {
        const int64_t element = storage_bytes(dtype);
        const DotOperand a{data, dtype, {}, {{count, depth * element}}, {{depth, element}}};
        DotOperand b = w_;
        b.data += group * w_.batch[0].stride;
        b.batch = {};
        DotResult r = out_;
        const auto move = [&](auto& array) {
            array.data += group * array.batch[0].stride +
                          axes_offset(array.rows, line * c_.spatial.back().output + first);
            array.batch = {};
            array.rows = {{count, array.rows.back().stride}};
        };
        move(r);
        for (DotTerm& t : r.terms) move(t);
        // Packed columns are those of one group.
        dot(a, b, groups_ == 1 ? packed_ : nullptr, r, how_, numerics_, draw_of(r));
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
    const DotForm form_;
    Image image_{};
    char* data_ = nullptr;
    uint32_t least_ = 0xFFFF;
};

}  // namespace

void convolution(const Convolution& shape, const DotOperand& input, const DotOperand& kernel,
                 const PackedColumns* packed, DotResult result, const Accumulation& how,
                 const Numerics& numerics, Draw draw) {
    if (how.tile < 1) throw std::invalid_argument("a contraction tile has at least one element");
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
