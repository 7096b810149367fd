#include "products/convolution/convolver.h"

namespace neuronsim {

void Convolver::stage_weights(ProductForm form, int64_t window, bool is_across, char* to) const {
    const int64_t channels = c_.feature_groups * c_.output_features;
    ProductOperand w = w_;
    w.vectors = {w_.batch[0], w_.vectors[0]};
    w.batch = {};
    w = collapsed(w);
    const Packer packer(k_, w, form, Numerics{});
    packer.stage_block({w.data, 0, channels, 0, window}, is_across,
                       packer.packed_element() * (is_across ? channels : window), to);
}

const float* Convolver::channel_weights(int64_t window, bool is_across) const {
    auto& space = per_thread<Workspace>([] {});
    float* weights = space.get<float>(window * c_.feature_groups * c_.output_features);
    stage_weights(ProductForm::fma, window, is_across, reinterpret_cast<char*>(weights));
    return weights;
}

ProductResult Convolver::joined(ProductResult r) {
    const int64_t size = storage_bytes(r.stored());
    const auto join = [&](auto& array) {
        array.columns = collapsed({array.batch[0], array.columns[0]}, size);
        array.rows = collapsed(array.rows, size);
        array.batch = {{1, 0}};
    };
    join(r);
    r.exact_floats = !is_device_float(r.dtype);
    for (ProductTerm& t : r.terms) join(t);
    return r;
}

ProductResult Convolver::by_channels(const ProductResult& r) {
    ProductResult turned = joined(r);
    std::swap(turned.rows, turned.columns);
    for (ProductTerm& t : turned.terms) std::swap(t.rows, t.columns);
    return turned;
}

void Convolver::multiply_channels(const Portion& part) const {
    const std::vector<int64_t> strides = image_.strides();
    const int64_t channels = c_.feature_groups * c_.output_features;
    const Axes taps = window_axes(strides, 1, 0);
    const int64_t window = axes_size(taps);
    const float* weights = channel_weights(window, true);
    std::vector<int64_t> places(static_cast<size_t>(window));
    for (int64_t i = 0; i < window; ++i) places[i] = axes_offset(taps, i);
    const ProductResult selected = result_of(part), r = joined(selected);
    const Draw draw = draw_of(selected);
    const Axes positions = position_axes(part.n_count, image_.bytes(), strides, part.row_count);
    const int64_t inner = positions.back().size, step = positions.back().stride;
    // Channels and positions whose sums stay in the first cache.
    constexpr int64_t strip = 64, piece = 64;
    const int64_t strips = ceil_divide(channels, strip), pieces = ceil_divide(inner, piece);
    // As many at a time as take some milliseconds, whole blocks of the kernel's eight.
    const int64_t together = std::clamp<int64_t>(work_at_once / (strip * window) / 8 * 8, 8, piece);
    parallel_for(axes_size(positions) / inner * pieces * strips, 1, [&](int64_t begin, int64_t end) {
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
                k_.product_channels(base + at * step, step, some, places.data(), window, how_.tile,
                                    weights + first, channels, count, sums + at * strip, strip);
            }
            epilogue.finish(sums, 0, line * inner + from, length, first, count);
        }
    });
}

}  // namespace neuronsim
