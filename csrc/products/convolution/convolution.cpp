#include "products/convolution/convolution.h"

#include <cstdlib>

#include "movement/copy.h"
#include "products/convolution/convolver.h"

namespace neuronsim {

constexpr int64_t image_bytes = 6 << 20;  // what is padded at a time

void Convolver::run() {
    if (axes_size(out_.rows) == 0) return;
    // Where the elements of a channel's lines lie side by side, in the input and in the result.
    if (is_depthwise_ && x_axes().back().stride == storage_bytes(x_.dtype) &&
        out_.rows.back().stride == storage_bytes(out_.stored())) {
        const DepthwiseKernel kernel = lines_kernel();
        return kernel != nullptr ? multiply_lines(kernel) : multiply_planes();
    }
    if (!is_depthwise_ && !needs_image()) return multiply_in_place();
    const int64_t band = is_depthwise_ ? 0 : rows_of_band();
    if (band > 0) return multiply_few_channels(band);
    // As much of the batch, or else of the first spatial dimension, as the limit allows.
    const auto bytes = [&](int64_t rows) {
        return saturated_product({image(rows).bytes(), c_.batch_groups});
    };
    const int64_t whole = std::max<int64_t>(bytes(outputs()), 1);
    const int64_t samples = std::clamp<int64_t>(image_bytes / whole, 1, c_.batch);
    const int64_t rows = whole <= image_bytes ? outputs() : rows_within(image_bytes, bytes);
    if (rows == 0) return multiply_gathered();
    for (int64_t n = 0; n < c_.batch; n += samples)
        for (int64_t row = 0; row < outputs(); row += rows) {
            const Portion part{n, std::min(samples, c_.batch - n), row,
                               std::min(rows, outputs() - row)};
            fill(part);
            if (is_depthwise_) multiply_channels(part);
            else multiply_image(part);
        }
}

void Convolver::multiply_in_place() const {
    std::vector<int64_t> strides;
    ProductOperand a = x_;
    for (size_t d = 0; d < rank(); ++d) {
        strides.push_back(x_axes()[d + 1].stride);
        a.data -= c_.spatial[d].padding_low * strides[d];
    }
    int64_t c = channel_stride(), n = x_axes()[0].stride;
    a.vectors = position_axes(c_.batch, n, strides, outputs());
    if (leaves_gaps()) {
        const int64_t channels = c_.feature_groups * c_.input_features,
                      samples = c_.batch * c_.batch_groups;
        Axes axes{{samples, n}, {channels, c}};
        for (size_t d = 1; d <= rank(); ++d) axes.push_back(a.vectors[d]);
        const Copy copy = dense_copy(axes, storage_bytes(x_.dtype));
        char* const data = per_thread<Workspace>([] {}).get<char>(axes_size(axes) * copy.element);
        run_copy(simplified(copy), a.data, data);
        a.data = data;
        n = copy.axes[0].target;
        c = copy.axes[1].target;
        a.vectors[0].stride = n;
        for (size_t d = 1; d <= rank(); ++d) a.vectors[d].stride = copy.axes[d + 1].target;
    }
    a.batch = {{groups_, c_.feature_groups > 1 ? c_.input_features * c : c_.batch * n}};
    a.depth = window_axes(strides, c_.input_features, c);
    multiply(a, w_, packed_, out_);
}

bool Convolver::leaves_gaps() const {
    bool strided = false;
    for (const ConvolutionAxis& s : c_.spatial) {
        if (s.window != 1) return false;
        strided = strided || s.stride > 1;
    }
    return strided && std::abs(channel_stride()) > std::abs(x_axes().back().stride);
}

bool Convolver::needs_image() const {
    if (rank() == 0) return false;
    const int64_t window = c_.window();
    bool outside = false;
    for (const ConvolutionAxis& s : c_.spatial)
        outside = outside || s.padding_low > 0 || s.reach(s.output) - s.padding_low > s.input ||
                  s.base_dilation != 1;
    const bool apart = is_device_float(out_.dtype) && c_.input_features > 1 &&
                       channel_stride() != storage_bytes(x_.dtype);
    // Offsets are those of an image, in which the padding has them too.
    return outside || (window > 1 && (apart || held() == Held::words)) ||
           (window > 1 && x_.prologue != nullptr && !is_device_float(out_.dtype));
}

bool Convolver::has_own_channels() const {
    if (rank() == 0 || c_.feature_groups == 1 || c_.input_features != 1 || c_.output_features > 4)
        return false;
    if (!is_device_float(out_.dtype)) {
        // Sums of so few products of bytes are exact in float32: below 2^24.
        constexpr int64_t most = (1 << 24) / (255 * 255);
        return is_modulo_2_32(out_.dtype) && storage_bytes(x_.type()) == 1 &&
               storage_bytes(w_.type()) == 1 && c_.window() <= most;
    }
    return how_.model != Accumulate::exact &&
           (form_ == ProductForm::fma || form_ == ProductForm::pairs) && packed_ == nullptr;
}

ProductResult Convolver::result_of(const Portion& part) const {
    ProductResult r = out_;
    const auto move = [&](auto& array) {
        array.data += part.n * array.rows[0].stride;
        array.rows[0].size = part.n_count;
        if (rank() == 0) return;
        array.data += part.row * array.rows[1].stride;
        array.rows[1].size = part.row_count;
    };
    move(r);
    for (ProductTerm& t : r.terms) move(t);
    return r;
}

void Convolver::multiply(const ProductOperand& a, const ProductOperand& b, const PackedColumns* packed,
                         const ProductResult& r) const {
    ProductCall{a, b, packed, r, how_, numerics_}.run(draw_of(r));
}

Draw Convolver::draw_of(const ProductResult& r) const {
    Draw draw = draw_;
    draw.first = (r.data - out_.data) / storage_bytes(out_.dtype);
    return draw;
}

Axes Convolver::window_axes(const std::vector<int64_t>& strides, int64_t channels,
                            int64_t channel) const {
    Axes axes;
    for (size_t d = 0; d < rank(); ++d)
        axes.push_back({c_.spatial[d].window, strides[d] * c_.spatial[d].window_dilation});
    axes.push_back({channels, channel});
    return axes;
}

Axes Convolver::position_axes(int64_t samples, int64_t sample, const std::vector<int64_t>& strides,
                              int64_t rows) const {
    Axes axes{{samples, sample}};
    for (size_t d = 0; d < rank(); ++d)
        axes.push_back({d == 0 ? rows : c_.spatial[d].output, strides[d] * c_.spatial[d].stride});
    return axes;
}

void ConvolutionCall::run(char* const* data, const Draws& draws, Observed* observed) const {
    ConvolutionCall call = *this;
    const Draw draw = call.placed(data, draws, observed);
    // The kernel's window runs backwards where it is reversed (M5).
    for (size_t d = 0; d < shape.spatial.size(); ++d) {
        if (!shape.spatial[d].reversed) continue;
        Axis& axis = call.b.depth[d];
        call.b.data += (axis.size - 1) * axis.stride;
        axis.stride = -axis.stride;
    }
    if (!multiply_by_phases(call, draw)) Convolver(call, draw).run();
}

}  // namespace neuronsim
