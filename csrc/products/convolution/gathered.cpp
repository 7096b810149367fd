#include "products/convolution/convolver.h"

namespace neuronsim {

constexpr int64_t gathered_bytes = 4 << 20;  // of windows that are copied one by one

void Convolver::multiply_gathered() const {
    const bool raw = !is_device_float(out_.dtype), pairs = !raw && form_ == ProductForm::pairs;
    const DType held = raw ? x_.type() : pairs ? DType::bfloat16 : DType::float32;
    const int64_t element = storage_bytes(held), features = c_.input_features;
    const int64_t window = c_.window(), depth = window * features;
    const ConvolutionAxis& s = c_.spatial.back();
    const int64_t most = std::clamp<int64_t>(gathered_bytes / (depth * element), 1, s.output);
    const int64_t lines = axes_size(out_.rows) / s.output;
    const ProductOperand pixel{x_.data,    x_.dtype, {}, {{1, 0}}, {{features, channel_stride()}},
                               x_.prologue};
    const Packer packer(k_, pixel, pairs ? ProductForm::pairs : ProductForm::fma, Numerics{});
    for (int64_t group = 0; group < groups_; ++group)
        for (int64_t line = 0; line < lines; ++line)
            for (int64_t first = 0; first < s.output; first += most) {
                const int64_t count = std::min(most, s.output - first);
                char* const data = per_thread<Workspace>([] {}).get<char>(count * depth * element);
                parallel_for(count * window, 64, [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                        note_work(features);
                        char* to = data + i * features * element;
                        const char* from = element_at(group, line, first + i / window, i % window);
                        if (from == nullptr) {
                            std::fill_n(to, features * element, static_cast<char>(c_.padding));
                        } else if (raw) {
                            copy_raw(from, features, to);
                        } else {
                            packer.stage_block({from, 0, 1, 0, features}, false, 0, to);
                        }
                    }
                });
                multiply_line(data, held, group, line, first, count, depth);
            }
}

const char* Convolver::element_at(int64_t group, int64_t line, int64_t output, int64_t element) const {
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
            s.element_at(place * s.stride + element % s.window * s.window_dilation - s.padding_low);
        if (at < 0) return nullptr;
        element /= s.window;
        from += at * x_axes()[d + 1].stride;
    }
    return from + (by_batch * c_.batch + line) * x_axes()[0].stride;
}

void Convolver::multiply_line(const char* data, DType dtype, int64_t group, int64_t line, int64_t first,
                              int64_t count, int64_t depth) const {
    const int64_t element = storage_bytes(dtype);
    const ProductOperand a{data, dtype, {}, {{count, depth * element}}, {{depth, element}}};
    ProductOperand b = w_;
    b.data += group * w_.batch[0].stride;
    b.batch = {};
    ProductResult r = out_;
    const auto move = [&](auto& array) {
        array.data += group * array.batch[0].stride +
                      axes_offset(array.rows, line * c_.spatial.back().output + first);
        array.batch = {};
        array.rows = {{count, array.rows.back().stride}};
    };
    move(r);
    for (ProductTerm& t : r.terms) move(t);
    multiply(a, b, groups_ == 1 ? packed_ : nullptr, r);
}

}  // namespace neuronsim
