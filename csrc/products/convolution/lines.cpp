#include <iterator>

#include "products/convolution/convolver.h"

namespace neuronsim {

constexpr int64_t most_bytes = 1 << 20;     // of one channel as float32
constexpr int64_t sums_at_once = 4096;      // of the channels that are computed together
constexpr uint32_t each_byte = 0x01010101;  // of a word

DepthwiseKernel Convolver::lines_kernel() const {
    if (rank() != 2) return nullptr;
    const ConvolutionAxis &rows = c_.spatial[0], &columns = c_.spatial[1];
    for (const ConvolutionAxis& s : c_.spatial)
        if (s.base_dilation != 1 || s.window_dilation != 1 || s.stride > max_depthwise_stride)
            return nullptr;
    if (rows.window != columns.window || rows.stride != columns.stride ||
        saturated_product({rows.input, columns.input, 4}) > most_bytes ||
        saturated_product({rows.output, columns.output, 4}) > most_bytes)
        return nullptr;
    const auto* const found =
        std::find(std::begin(depthwise_windows), std::end(depthwise_windows), rows.window);
    if (found == std::end(depthwise_windows)) return nullptr;
    const int64_t window = found - depthwise_windows, stride = rows.stride - 1;
    if (!is_device_float(out_.dtype))
        return is_quad_form(form_)
                   ? k_.depthwise_bytes[form_ == ProductForm::quads_turned][window][stride]
                   : nullptr;
    return rows.window * columns.window <= how_.tile ? k_.depthwise[window][stride] : nullptr;
}

Convolver::LineWeights Convolver::line_weights(int64_t window, int32_t offset) const {
    if (is_device_float(out_.dtype))
        return {channel_weights(window * window, false), window * window * 4, nullptr};
    const int64_t channels = c_.feature_groups * c_.output_features, taps = ceil_divide(window, 4);
    const int64_t all = channels * window * window;
    char* bytes = per_thread<Workspace>([] {}).get<char>(all + 4);
    stage_weights(form_, window * window, false, bytes);
    auto* words = per_thread<Workspace>([] {}).get<int32_t>(channels * window * taps);
    auto* starts = per_thread<Workspace>([] {}).get<int32_t>(channels);
    int32_t* to = words;
    for (int64_t line = 0; line < channels * window; ++line)
        for (int64_t k = 0; k < window; k += 4) {
            uint32_t word;
            __builtin_memcpy(&word, bytes + line * window + k, sizeof word);
            const int64_t beside = window - k < 4 ? 4 - (window - k) : 0;
            *to++ = static_cast<int32_t>(word & ~uint32_t{0} >> 8 * beside);
        }
    for (int64_t c = 0; c < channels; ++c) {
        starts[c] = 0;
        for (int64_t i = c * window * window; offset != 0 && i < (c + 1) * window * window; ++i)
            starts[c] -= offset * (form_ == ProductForm::quads ? static_cast<int8_t>(bytes[i])
                                                               : static_cast<uint8_t>(bytes[i]));
    }
    return {words, window * taps * 4, starts};
}

void Convolver::multiply_lines(DepthwiseKernel kernel) const {
    const ConvolutionAxis &rows = c_.spatial[0], &columns = c_.spatial[1];
    const bool is_float = is_device_float(out_.dtype);
    const int64_t element = is_float ? 4 : 1, line = columns.input * element;
    const int64_t of_source = c_.output_features, count = rows.output * columns.output;
    const ProductOperand input{
        x_.data,
        x_.dtype,
        {},
        collapsed({{c_.feature_groups, channel_stride()}, x_axes()[1]}, storage_bytes(x_.dtype)),
        {{columns.input, x_axes()[2].stride}},
        x_.prologue};
    const Packer packer(k_, input, is_float ? ProductForm::fma : form_, Numerics{});
    const bool in_place = packer.is_stored_as_packed();
    const int32_t offset = quad_offset(form_, x_.type());
    const LineWeights weights = line_weights(rows.window, offset);
    ProductResult r = by_channels(out_);
    if (!is_float) r.exact_floats = false;
    const Epilogue epilogue(k_, r, numerics_, draw_, count);
    const int64_t at_once = std::clamp<int64_t>(sums_at_once / count, 1, c_.feature_groups);
    parallel_for(c_.batch * c_.feature_groups, at_once, [&](int64_t begin, int64_t end) {
        char* staged = nullptr;
        if (!in_place) staged = per_thread<Workspace>([] {}).get<char>(at_once * rows.input * line);
        auto* sums = per_thread<Workspace>([] {}).get<float>(at_once * of_source * count + max_lanes);
        for (int64_t job = begin, some = 0; job < end; job += some) {
            const int64_t n = job / c_.feature_groups, source = job % c_.feature_groups;
            some = std::min({at_once, end - job, c_.feature_groups - source});
            const char* sample = x_.data + n * x_axes()[0].stride;
            note_work(some * of_source * count * rows.window * columns.window);
            DepthwiseLines d{
                sample + source * channel_stride(),
                channel_stride(),
                x_axes()[1].stride,
                rows.input,
                columns.input,
                -rows.padding_low,
                -columns.padding_low,
                some * of_source,
                of_source,
                rows.output,
                columns.output,
                static_cast<const char*>(weights.data) + source * of_source * weights.of_channel,
                sums};
            if (!in_place) {
                packer.stage_block({sample, source * rows.input, some * rows.input, 0, columns.input},
                                   false, line, staged);
                d.data = staged;
                d.row = line;
                d.channel = rows.input * line;
            }
            if (!is_float) {
                d.starts = weights.starts + source * of_source;
                d.padding = static_cast<int32_t>(static_cast<uint8_t>(c_.padding) * each_byte);
                d.flip = static_cast<int32_t>(offset == 0 ? 0 : 0x80 * each_byte);
            }
            kernel(d);
            epilogue.finish(sums, 0, source * of_source, d.channels, n * count,
                            static_cast<int>(count));
        }
    });
}

}  // namespace neuronsim
