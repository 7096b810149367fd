// One convolution's parts, and the ways in which it is computed, each in a file of its own.
#pragma once

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "machine/workspace.h"
#include "movement/view.h"
#include "products/convolution/convolution.h"

namespace neuronsim {

// How the padded image holds its elements: as words of several for the kernels (pairs of bfloat16 or of
// int16, quads of bytes), as float32, or, for integers, as they come.
enum class Held : uint8_t { words, float32, raw };

struct Image {
    std::vector<int64_t> extents;  // of the spatial dimensions
    int64_t pixel;                 // words or elements from a pixel to the next
    Held held;
    int64_t element;  // bytes of one element, or of a word
    int64_t line() const { return saturated_product({extents.back(), pixel, element}); }
    int64_t lines() const {
        int64_t n = 1;
        for (size_t d = 0; d + 1 < extents.size(); ++d) n = saturated_product({n, extents[d]});
        return n;
    }
    int64_t bytes() const { return saturated_product({lines(), line()}); }
    std::vector<int64_t> strides() const { return dense_strides(extents, pixel * element); }
};

inline constexpr int64_t work_at_once = 1 << 22;  // multiply-adds between two looks at signals

class Convolver {
public:
    // The kernel is the call's, in the order in which windows read it.
    Convolver(const ConvolutionCall& call, Draw draw)
        : k_(kernels()),
          c_(call.shape),
          x_(call.a),
          w_(call.b),
          packed_(call.packed != nullptr && call.packed->fits(call) ? call.packed : nullptr),
          out_(call.result),
          how_(call.how),
          numerics_(call.numerics),
          draw_(draw),
          groups_(c_.feature_groups * c_.batch_groups),
          form_(packed_ != nullptr
                    ? packed_->form()
                    : product_form(k_, x_.type(), w_.type(), how_, numerics_, axes_size(out_.rows))),
          is_depthwise_(has_own_channels()) {}

    void run();

private:
    size_t rank() const { return c_.spatial.size(); }
    // Of the first spatial dimension.
    int64_t outputs() const { return rank() == 0 ? 1 : c_.spatial[0].output; }
    const Axes& x_axes() const { return x_.vectors; }  // batch, spatial ...
    int64_t channel_stride() const { return x_.depth[0].stride; }
    // How many outputs of the first spatial dimension stay within a limit together; 0 if not even one.
    template <class Bytes>
    int64_t rows_within(int64_t limit, const Bytes& bytes) const {
        int64_t rows = outputs();
        while (rows > 0 && bytes(rows) > limit) rows /= 2;
        return rows;
    }
    // Whether a window reaches into padding or holes, or the channels of a pixel lie apart where
    // several windows read it.
    bool needs_image() const;
    // Whether each output feature has an input feature of its own, which the vectors run over.
    bool has_own_channels() const;

    // The product of a view of the input: no window reaches into padding. Where strides leave gaps
    // between the elements of channels that lie apart, of a copy without these.
    void multiply_in_place() const;
    bool leaves_gaps() const;

    Held held() const;
    // Copies a pixel's channels, side by side, for what computes with the elements as they come.
    void copy_raw(const char* source, int64_t channels, char* target) const;
    // Samples, and outputs of the first spatial dimension.
    struct Portion {
        int64_t n, n_count, row, row_count;
    };
    // The image that so many outputs of the first spatial dimension read.
    Image image(int64_t count) const;
    // Copies the input into the image: channels last, +0 in padding and holes (M5).
    void fill(const Portion& part);
    void pad_line(char* to) const;
    uint32_t fill_line(int64_t sample, int64_t line, int64_t row, char* to) const;
    // n pixels with all their channels, `pixel` elements from one to the next.
    uint32_t fill_pixels(const char* source, int64_t n, int64_t pixel, char* target) const;
    // The product of the filled image.
    void multiply_image(const Portion& part) const;

    // The weights of a depthwise convolution: [window][channels] if across, else [channels][window].
    void stage_weights(ProductForm form, int64_t window, bool is_across, char* to) const;
    const float* channel_weights(int64_t window, bool is_across) const;
    // The result with the features of all groups as its columns.
    static ProductResult joined(ProductResult r);
    // The same whose rows are the channels, where the places of each lie side by side.
    static ProductResult by_channels(const ProductResult& r);
    // Depthwise: the sums of neighbouring channels run side by side, each with its own weight.
    void multiply_channels(const Portion& part) const;

    // Depthwise on the input's lines in place, where the window is a square of neighbours.
    DepthwiseKernel lines_kernel() const;  // or null
    void multiply_lines(DepthwiseKernel kernel) const;
    // [features][window] as the kernel takes them, bytes in words of up to four neighbours of a line,
    // with what the sums take beside for the offset of the input's bytes.
    struct LineWeights {
        const void* data;
        int64_t of_channel;  // bytes
        const int32_t* starts;
    };
    LineWeights line_weights(int64_t window, int32_t offset) const;

    // On planes: neighbouring outputs run side by side, all with the same weight. Depthwise:
    struct Plane;
    class PlaneFiller;
    void multiply_planes() const;
    // For so many outputs of the first spatial dimension.
    Plane plane(int64_t count) const;
    std::vector<PlaneLine> lines_of(const Plane& p, int64_t row, bool staged) const;
    std::vector<int64_t> line_places(const Plane& p, int64_t row_count, int64_t length,
                                     int64_t count) const;
    void multiply_planes(int64_t row, int64_t row_count) const;
    // A few channels into any number of features, in register blocks of these by places: by bands of as
    // many outputs of the first spatial dimension as have planes, and sums, that stay in the second
    // cache; 0 where it is not done so.
    int64_t rows_of_band() const;
    void multiply_few_channels(int64_t rows) const;
    // A band of one sample, with panels of weights unless they are packed.
    void multiply_band(int64_t n, int64_t row, int64_t row_count, const float* panels) const;
    // Outputs that follow each other, from `place` of a plane on, and where the result has them.
    struct Span {
        int64_t place, count, to;
    };
    // The block says where PSUM is, and the result if the sums go there at once, joined with the terms:
    // PSUM is then that of one block.
    void sum_features(const Plane& p, const float* planes, const float* panels, RegisterBlock block,
                      const std::vector<Span>& spans, BlockTerms& terms) const;

    // Where an image would be too large: the windows of some outputs of one line are copied one by one.
    void multiply_gathered() const;
    // The input element, of a group's first feature, that a window element of an output reads; null for
    // padding and holes. Lines are those of the outputs.
    const char* element_at(int64_t group, int64_t line, int64_t output, int64_t element) const;
    void multiply_line(const char* data, DType dtype, int64_t group, int64_t line, int64_t first,
                       int64_t count, int64_t depth) const;

    // The result's places for a part of it.
    ProductResult result_of(const Portion& part) const;
    // A product into a part of the result. Packed columns are those of one group.
    void multiply(const ProductOperand& a, const ProductOperand& b, const PackedColumns* packed,
                  const ProductResult& r) const;
    // S2: an element's index is its place in the whole result.
    Draw draw_of(const ProductResult& r) const;
    Axes window_axes(const std::vector<int64_t>& strides, int64_t channels, int64_t channel) const;
    Axes position_axes(int64_t samples, int64_t sample, const std::vector<int64_t>& strides,
                       int64_t rows) const;

    const Kernels& k_;
    const Convolution& c_;
    const ProductOperand &x_, &w_;
    const PackedColumns* packed_;
    const ProductResult& out_;
    const Accumulation& how_;
    const Numerics& numerics_;
    const Draw draw_;
    const int64_t groups_;
    const ProductForm form_;
    const bool is_depthwise_;
    Image image_{};
    char* data_ = nullptr;
    uint32_t least_ = no_magnitude;
};

// Computes a convolution whose input has holes (M5) without them, each phase of the outputs by itself;
// not where this could change a bit, or holes are no zeros. The kernel is in the order of windows.
bool multiply_by_phases(const ConvolutionCall& call, Draw draw);

}  // namespace neuronsim
