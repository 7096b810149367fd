#include "products/convolution/planes.h"

namespace neuronsim {

constexpr int64_t word = sizeof(float);

int64_t Convolver::rows_of_band() const {
    constexpr int64_t few = 4, half_cache = 256 << 10;
    if (rank() == 0 || groups_ > 1 || c_.input_features > few || c_.input_features == 0 ||
        !needs_image() || !is_device_float(out_.dtype) || form_ != ProductForm::fma ||
        how_.model != Accumulate::fma || x_axes().back().stride != storage_bytes(x_.dtype) ||
        out_.rows.back().stride != storage_bytes(out_.stored()) ||
        (packed_ == nullptr && w_.data == nullptr))
        return 0;
    return rows_within(half_cache, [&](int64_t n) {
        const Plane p = plane(n);
        return std::max(saturated_product({c_.output_features, p.outputs, word}),
                        saturated_product({c_.input_features, p.bytes()}));
    });
}

void Convolver::sum_features(const Plane& p, const float* planes, const float* panels,
                             RegisterBlock block, const std::vector<Span>& spans,
                             BlockTerms& terms) const {
    const int64_t features = c_.output_features, depth = std::ssize(p.places) * c_.input_features;
    const int64_t width = k_.panel_width;
    const auto& kernels = k_.product_side_by_side[0][0] != nullptr ? k_.product_side_by_side
                                                                   : k_.product[ProductForm::fma];
    const int64_t most = most_rows(kernels);
    std::vector<int64_t> places;  // of the steps of the contraction (M5)
    for (const int64_t place : p.places)
        for (int64_t c = 0; c < c_.input_features; ++c) places.push_back(place + c * p.size());
    block.places = places.data();
    block.a_row = word;
    block.fresh = true;
    float* const sums = block.psum;
    char* const result = block.result;
    for (int64_t first = 0; first < features; first += width) {
        const int64_t count = std::min(width, features - first), pieces = ceil_divide(count, most);
        const float* panel =
            packed_ != nullptr ? packed_->panel(0, first / width) : panels + first * depth;
        block.a_step = word * ceil_divide(count, k_.lanes) * k_.lanes;
        std::vector<BlockRun> runs;
        for (int64_t k = 0; k < depth; k += how_.tile)
            runs.push_back({k * block.a_step, std::min(how_.tile, depth - k), true});
        block.runs = runs.data();
        block.runs_end = runs.data() + runs.size();
        for (int64_t piece = 0; piece < pieces; ++piece) {
            const int64_t row = count * piece / pieces, rows = count * (piece + 1) / pieces - row;
            block.a = reinterpret_cast<const char*>(panel + row);
            for (const Span& span : spans)
                for (int64_t at = 0; at < span.count; at += width) {
                    const int64_t n = std::min(width, span.count - at),
                                  vectors = ceil_divide(n, k_.lanes);
                    note_work(rows * width * depth);
                    block.b = planes + span.place + at;
                    if (result == nullptr) {
                        block.psum = sums + (first + row) * block.psum_stride + at;
                    } else {
                        const int64_t to = span.to + at;
                        block.result = result + (first + row) * block.result_row +
                                       to * storage_bytes(block.result_type);
                        block.partial = static_cast<int>(n % k_.lanes);
                        terms.place(first + row, to, block);
                    }
                    kernels[vectors - 1][rows - 1](block);
                }
        }
    }
}

void Convolver::multiply_band(int64_t n, int64_t row, int64_t row_count, const float* panels) const {
    const Plane p = plane(row_count);
    const int64_t slack = k_.panel_width, pitch = p.outputs + slack;
    const int64_t all = p.size() * c_.input_features + slack;
    float* planes = per_thread<Workspace>([] {}).get<float>(all);
    std::fill_n(planes, all, 0.0f);  // M5
    PlaneFiller(*this, p, row).fill(n, 0, c_.input_features, planes);
    const ProductResult selected = result_of({n, 1, row, row_count}), r = by_channels(selected);
    const Epilogue epilogue(k_, r, numerics_, draw_of(selected), pitch);
    const int64_t length = rank() == 1 ? row_count : c_.spatial.back().output;
    std::vector<Span> lines;
    for (const int64_t place : line_places(p, row_count, length, axes_size(r.columns)))
        lines.push_back({place, length, std::ssize(lines) * length});
    RegisterBlock block{};
    BlockTerms terms;
    auto& sum_space = per_thread<Workspace>([] {});
    // Lines go to the result at once where they can. Else all between the first output and the last one
    // is summed.
    if (epilogue.is_of_blocks()) terms.take(epilogue, 0);
    if (epilogue.is_of_blocks() && (length % k_.lanes == 0 || !terms.any_along())) {
        block.psum = sum_space.get<float>(max_block_rows * slack);
        block.psum_stride = slack;
        block.result = r.data;
        block.result_row = r.rows[0].stride;
        block.result_type = r.stored();
        block.store_rows = k_.store_rows[block.result_type];
        return sum_features(p, planes, panels, block, lines, terms);
    }
    block.psum = sum_space.get<float>(pitch * c_.output_features);
    block.psum_stride = pitch;
    sum_features(p, planes, panels, block, {{0, p.outputs, 0}}, terms);
    for (const Span& line : lines)
        epilogue.finish(block.psum + line.place, 0, 0, c_.output_features, line.to,
                        static_cast<int>(length));
}

void Convolver::multiply_few_channels(int64_t rows) const {
    const int64_t bands = ceil_divide(outputs(), rows), width = k_.panel_width;
    float* panels = nullptr;
    if (packed_ == nullptr) {
        const ProductOperand w = collapsed(w_);
        const int64_t features = c_.output_features, depth = axes_size(w.depth);
        panels = per_thread<Workspace>([] {}).get<float>(ceil_divide(features, width) * width * depth);
        Packer(k_, w, ProductForm::fma, Numerics{})
            .panels({w.data, 0, features, 0, depth}, static_cast<int>(width), panels, width * depth);
    }
    parallel_for(c_.batch * bands, 1, [&](int64_t begin, int64_t end) {
        for (int64_t job = begin; job < end; ++job) {
            const int64_t row = job % bands * rows;
            multiply_band(job / bands, row, std::min(rows, outputs() - row), panels);
        }
    });
}

}  // namespace neuronsim
