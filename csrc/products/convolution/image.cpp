#include <atomic>

#include "products/convolution/convolver.h"

namespace neuronsim {

constexpr int64_t max_pixels = 64;  // that are turned to channels last at a time

Held Convolver::held() const {
    if (is_depthwise_) return Held::float32;
    const bool whole = c_.input_features % step_elements(form_) == 0;
    if (!is_device_float(out_.dtype))
        return is_modulo_2_32(out_.dtype) && form_ != ProductForm::words && whole ? Held::words
                                                                                  : Held::raw;
    return form_ == ProductForm::pairs && whole ? Held::words : Held::float32;
}

Image Convolver::image(int64_t count) const {
    Image i;
    for (size_t d = 0; d < rank(); ++d) {
        const ConvolutionAxis& s = c_.spatial[d];
        i.extents.push_back(s.reach(d == 0 ? count : s.output));
    }
    i.held = held();
    i.element = i.held == Held::raw ? storage_bytes(x_.type()) : 4;
    i.pixel = c_.feature_groups * c_.input_features * (is_depthwise_ ? c_.output_features : 1);
    if (i.held == Held::words) i.pixel /= step_elements(form_);
    // Pixels that a register block reads together must not share their cache lines' places.
    constexpr int64_t half_page = 2048, line = 64;
    if (i.pixel * i.element * c_.spatial.back().stride % half_page == 0) i.pixel += line / i.element;
    return i;
}

void Convolver::fill(const Portion& part) {
    image_ = image(part.row_count);
    const int64_t samples = part.n_count * c_.batch_groups;
    data_ = per_thread<Workspace>([] {}).get<char>(
        static_cast<int64_t>(checked_product({samples, image_.bytes()})));
    std::atomic<uint32_t> least{no_magnitude};
    const int64_t lines = image_.lines();
    const int64_t grain = 1 + 16384 / (image_.line() + 1);
    parallel_for(samples * lines, grain, [&](int64_t begin, int64_t end) {
        uint32_t own = no_magnitude;
        for (int64_t i = begin; i < end; ++i) {
            note_work(image_.line() / image_.element);
            const int64_t sample = i / lines;
            const int64_t from = sample / part.n_count * c_.batch + part.n + sample % part.n_count;
            own = std::min(own, fill_line(from, i % lines, part.row, data_ + i * image_.line()));
        }
        uint32_t seen = least.load();
        while (own < seen && !least.compare_exchange_weak(seen, own)) {
        }
    });
    least_ = least;
}

void Convolver::pad_line(char* to) const {
    const int64_t bytes = image_.line();
    if (c_.padding != 0 && image_.held == Held::float32)
        std::fill_n(reinterpret_cast<float*>(to), bytes / 4, static_cast<float>(c_.padding));
    else if (c_.padding != 0 && image_.held == Held::words && form_ == ProductForm::shorts)
        std::fill_n(reinterpret_cast<int16_t*>(to), bytes / 2, static_cast<int16_t>(c_.padding));
    else
        __builtin_memset(to,
                         image_.held == Held::words && quad_offset(form_, x_.type()) != 0
                             ? c_.padding ^ 0x80
                             : c_.padding,
                         bytes);
}

uint32_t Convolver::fill_line(int64_t sample, int64_t line, int64_t row, char* to) const {
    pad_line(to);
    const char* from = x_.data + sample * x_axes()[0].stride;
    for (size_t d = rank() - 1; d-- > 0;) {
        const ConvolutionAxis& s = c_.spatial[d];
        const int64_t at =
            s.element_at(line % image_.extents[d] + (d == 0 ? row * s.stride : 0) - s.padding_low);
        if (at < 0) return no_magnitude;
        line /= image_.extents[d];
        from += at * x_axes()[d + 1].stride;
    }
    // The pixels of the last dimension: every base_dilation-th place from the first one on.
    const ConvolutionAxis& s = c_.spatial.back();
    const int64_t start = s.padding_low - (rank() == 1 ? row * s.stride : 0);
    const auto [first, end] = s.elements_on(image_.extents.back(), start);
    uint32_t least = no_magnitude;
    const int64_t pixel = image_.pixel * s.base_dilation;
    for (int64_t i = first; i < end; i += max_pixels) {
        char* target = to + (start + i * s.base_dilation) * image_.pixel * image_.element;
        const char* source = from + i * x_axes().back().stride;
        least = std::min(least, fill_pixels(source, std::min(max_pixels, end - i), pixel, target));
    }
    return least;
}

void Convolver::copy_raw(const char* source, int64_t channels, char* target) const {
    const int64_t c_stride = channel_stride(), element = storage_bytes(x_.type());
    if (x_.prologue == nullptr && element == 1) {
        for (int64_t j = 0; j < channels; ++j) target[j] = source[j * c_stride];
        return;
    }
    if (x_.prologue == nullptr) {
        for (int64_t j = 0; j < channels; ++j)
            __builtin_memcpy(target + j * element, source + j * c_stride, element);
        return;
    }
    auto& tile = per_thread<Tile>([] {});
    for (int64_t j = 0; j < channels; j += tile_elements) {
        const int n = static_cast<int>(std::min<int64_t>(channels - j, tile_elements));
        k_.load[x_.dtype](source + j * c_stride, c_stride, n, &tile);
        const void* value = &tile;
        x_.prologue->run_tile(k_, &value, n, &value);
        x_.prologue->output_store(k_, 0)(value, n, target + j * element);
    }
}

uint32_t Convolver::fill_pixels(const char* source, int64_t n, int64_t pixel, char* target) const {
    const int64_t channels = c_.feature_groups * c_.input_features;
    const int64_t x_stride = x_axes().back().stride, c_stride = channel_stride();
    if (image_.held == Held::raw) {
        for (int64_t i = 0; i < n; ++i)
            copy_raw(source + i * x_stride, channels, target + i * pixel * image_.element);
        return no_magnitude;
    }
    ProductOperand line{source, x_.dtype, {}, {{n, x_stride}}, {{channels, c_stride}}, x_.prologue};
    const ProductForm form = image_.held == Held::float32 ? ProductForm::fma : form_;
    // C4 is the product's: the image holds the operand's own values.
    const Packer packer(k_, line, form, Numerics{}, quad_offset(form, x_.type()));
    const OperandPart pixels{source, 0, n, 0, channels};
    auto& workspace = per_thread<Workspace>([] {});
    if (is_depthwise_ && c_.output_features > 1) {
        float* values = workspace.get<float>(n * channels);
        packer.stage_block(pixels, false, 4 * channels, reinterpret_cast<char*>(values));
        const int64_t m = c_.output_features;
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < channels * m; ++j)
                __builtin_memcpy(target + (i * pixel + j) * 4, values + i * channels + j / m, 4);
        return no_magnitude;
    }
    auto* words = reinterpret_cast<float*>(target);
    if (!packer.across()) return packer.rows(pixels, pixel, words);
    // Channels that lie apart are packed as the columns of a panel, which is then turned.
    const int64_t count = channels / step_elements(form);
    float* panel = workspace.get<float>(count * n);
    uint32_t least = no_magnitude;
    packer.panels(pixels, static_cast<int>(n), panel, 0, &least);
    k_.turn(panel, n, static_cast<int>(count), static_cast<int>(n), words, pixel);
    return least;
}

void Convolver::multiply_image(const Portion& part) const {
    const std::vector<int64_t> strides = image_.strides();
    const bool words = image_.held == Held::words;
    const int64_t features = c_.input_features / (words ? step_elements(form_) : 1),
                  sample = image_.bytes();
    const DType held = image_.held == Held::float32   ? DType::float32
                       : image_.held == Held::raw     ? x_.type()
                       : is_pair_form(form_)          ? DType::bfloat16
                       : form_ == ProductForm::shorts ? DType::int16
                       : form_ == ProductForm::quads  ? DType::uint8
                                                      : DType::int8;
    ProductOperand a{
        data_,
        held,
        {{groups_, c_.feature_groups > 1 ? features * image_.element : part.n_count * sample}},
        position_axes(part.n_count, sample, strides, part.row_count),
        window_axes(strides, features, image_.element)};
    a.holds_words = words;
    a.least = least_;
    a.offset = quad_offset(form_, x_.type());
    // Where C4 flushes the image's float32, float16 and float8 lose nothing: none is subnormal there.
    multiply(a, w_, packed_, result_of(part));
}

}  // namespace neuronsim
