#include "products/packer.h"

#include <cstdlib>

#include "machine/interrupt.h"
#include "machine/workspace.h"
#include "movement/copy.h"

namespace neuronsim {

Packer::Packer(const Kernels& k, const ProductOperand& operand, ProductForm form,
               const Numerics& numerics, int32_t offset)
    : k_(k),
      x_(operand),
      form_(form),
      steps_(operand.prologue == nullptr ? 1
                                         : 1 + static_cast<int64_t>(operand.prologue->link_count())),
      flush_(numerics.flush_subnormals && is_device_float(operand.type()) &&
             formats[static_cast<int>(operand.type())].exponent_bits == 8),
      offset_(offset),
      rounds_to_bfloat16_(operand.prologue != nullptr && numerics.plain() &&
                          operand.prologue->only_converts(DType::float32, DType::bfloat16)) {}

bool Packer::is_stored_as_packed() const {
    if (x_.prologue != nullptr || flush_ || offset_ != 0) return false;
    if (is_integer_form(form_))  // a bool's byte may be any but zero
        return storage_bytes(x_.dtype) == packed_element() && x_.dtype != DType::boolean;
    if (!is_device_float(x_.dtype)) return false;
    return pairs() ? x_.dtype == DType::bfloat16 : storage_bytes(x_.dtype) == 4;
}

bool Packer::across() const {
    const auto distance = [](const Axes& a) { return std::abs(a.back().stride); };
    return distance(x_.vectors) < distance(x_.depth) && x_.vectors.back().size > 1;
}

// n elements `stride` apart, any number of them.
void Packer::stage(const char* source, int64_t stride, int64_t n, char* target) const {
    const int64_t size = storage_bytes(x_.dtype);
    for (int64_t i = 0; i < n; i += tile_elements) {
        const int some = static_cast<int>(std::min<int64_t>(n - i, tile_elements));
        if (steps_ > 1) note_work(some * steps_);
        if (stride == 2 * size && (size == 1 || size == 4)) {
            auto& taken = per_thread<Tile>([] {});
            char* const evens = reinterpret_cast<char*>(&taken);
            (size == 1 ? take_even<uint8_t> : take_even<float>)(source + i * stride, some, evens);
            stage_tile({evens, size, some}, target + i * packed_element());
            continue;
        }
        stage_tile({source + i * stride, stride, some}, target + i * packed_element());
    }
}

void Packer::load(const Piece& piece, Tile* tile) const {
    const LoadKernel load = k_.load[x_.dtype];
    const int64_t row_bytes = int64_t{piece.n} * computed_bytes(x_.dtype);
    constexpr int64_t line = 64;
    for (int r = 0; r < piece.rows; ++r) {
        const char* const row = piece.source + r * piece.row_stride;
        // Rows far apart: the processor does not see the next tile's.
        for (int64_t at = 0; piece.rows > 1 && at < piece.n * piece.stride; at += line)
            __builtin_prefetch(row + piece.rows * piece.row_stride + at);
        load(row, piece.stride, piece.n, reinterpret_cast<char*>(tile) + r * row_bytes);
    }
}

void Packer::stage_tile(const Piece& piece, char* target) const {
    if (is_integer_form(form_)) return stage_integers(piece, target);
    if (!is_device_float(x_.type())) return stage_exact_floats(piece, target);
    constexpr DType bfloat16 = DType::bfloat16;
    const auto [source, stride, length, row_stride, rows] = piece;
    const int n = length * rows;
    const bool adjacent = rows == 1 && stride == storage_bytes(x_.dtype);
    // What one kernel does without a tile between.
    if (adjacent && !flush_ && x_.prologue == nullptr) {
        const int64_t size = storage_bytes(x_.dtype);
        if (size == packed_element() && is_stored_as_packed()) {
            __builtin_memcpy(target, source, n * size);
            return;
        }
        if (pairs() && size == 1) return k_.widen_to_bfloat16[x_.dtype](source, n, target);
        if (!pairs()) return k_.load[x_.dtype](source, stride, n, target);
    }
    if (adjacent && pairs() && rounds_to_bfloat16_) return k_.store_quiet[bfloat16](source, n, target);
    if (adjacent && rounds_to_bfloat16_ && !flush_) {
        auto& rounded = per_thread<Tile>([] {});
        char* const words = reinterpret_cast<char*>(&rounded);
        k_.store_quiet[bfloat16](source, n, words);
        return k_.load[bfloat16](words, 2, n, target);
    }
    auto& tile = per_thread<Tile>([] {});
    load(piece, &tile);
    if (x_.prologue != nullptr) {
        const void* value = &tile;
        x_.prologue->run_tile(k_, &value, n, &value);
        if (pairs() && x_.type() == DType::bfloat16)
            return x_.prologue->output_store(k_, 0)(value, n, target);
        x_.prologue->copy_output(k_, 0, value, n, &tile);
    }
    if (flush_) k_.flush(&tile, &tile, n);
    if (pairs()) k_.store[bfloat16](&tile, n, target);
    else __builtin_memcpy(target, &tile, n * sizeof(float));
}

// Bytes as float32, for kernels of floats whose sums of them are exact.
void Packer::stage_exact_floats(const Piece& piece, char* target) const {
    const int n = piece.n * piece.rows;
    if (x_.prologue == nullptr && piece.stride == 1 && x_.dtype != DType::boolean)
        return k_.widen_to_float32[is_signed_integer(x_.dtype)](piece.source, n, target);
    auto& tile = per_thread<Tile>([] {});
    auto& floats = per_thread<Tile>([] {});
    load(piece, &tile);
    if (x_.prologue != nullptr) {
        const void* value = &tile;
        x_.prologue->run_tile(k_, &value, n, &value);
        x_.prologue->copy_output(k_, 0, value, n, &tile);
    }
    k_.to_float32[domain_of(x_.type())](&floats, &tile, n, Narrowing::nearest);
    __builtin_memcpy(target, &floats, n * sizeof(float));
}

void Packer::stage_integers(const Piece& piece, char* target) const {
    const auto size = static_cast<int64_t>(storage_bytes(x_.dtype));
    const auto [source, stride, length, row_stride, rows] = piece;
    const int n = length * rows;
    const bool adjacent = stride == size;
    const bool as_stored = x_.prologue == nullptr && x_.dtype != DType::boolean;
    const bool plain = adjacent && as_stored;
    if (as_stored && size == 1 && packed_element() == 1 && !adjacent) {
        for (int i = 0; i < n; ++i) target[i] = source[i * stride];
    } else if (plain && size == packed_element()) {
        __builtin_memcpy(target, source, n * size);
    } else if (plain && size == 1 && form_ == ProductForm::shorts) {
        k_.widen_to_int16[is_signed_integer(x_.dtype)](source, n, target);
    } else {
        auto& tile = per_thread<Tile>([] {});
        load(piece, &tile);
        if (x_.prologue != nullptr) {
            const void* value = &tile;
            x_.prologue->run_tile(k_, &value, n, &value);
            x_.prologue->copy_output(k_, 0, value, n, &tile);
        }
        // Modulo 2^n of the element that the kernels take.
        const DType packed = is_quad_form(form_)            ? DType::int8
                             : form_ == ProductForm::shorts ? DType::int16
                                                            : DType::int32;
        const DType held = x_.type();
        const void* elements = &tile;
        if (computed_bytes(held) != computed_bytes(packed)) {
            auto& converted = per_thread<Tile>([] {});
            k_.to_integer[domain_of(held)][packed](&converted, &tile, n, FloatToInt::truncate);
            elements = &converted;
        }
        k_.store[packed](elements, n, target);
    }
    move_bytes(n, target);
}

// By the offset of the kernels' bytes: a flip of their first bit.
void Packer::move_bytes(int n, char* target) const {
    if (offset_ != 0)
        for (int i = 0; i < n; ++i) target[i] = static_cast<char>(target[i] ^ 0x80);
}

// Whether the elements of a vector lie in [second axis][first axis] order: a kernel's, input features
// before its window.
bool Packer::is_interleaved() const {
    constexpr int64_t longest = 1 << 16;  // what is turned at a time stays small
    return x_.depth.size() == 2 && x_.depth[1].size <= longest && x_.dtype == DType::float32 &&
           x_.depth[0].stride == 4 && x_.depth[1].stride == 4 * x_.depth[0].size;
}

void Packer::stage_interleaved(const OperandPart& part, int64_t pitch, char* target) const {
    const auto [data, first, n, at, depth] = part;
    auto& workspace = per_thread<Workspace>([] {});
    const int64_t outer = x_.depth[0].size, inner = x_.depth[1].size;
    const int64_t begin = at / inner, end = (at + depth - 1) / inner + 1;
    float* turned = workspace.get<float>((end - begin) * inner);
    for (int64_t i = 0; i < n; ++i) {
        const char* row = data + axes_offset(x_.vectors, first + i);
        k_.turn(reinterpret_cast<const float*>(row) + begin, outer, static_cast<int>(inner),
                static_cast<int>(end - begin), turned, inner);
        stage(reinterpret_cast<const char*>(turned + at - begin * inner), 4, depth, target + i * pitch);
    }
}

void Packer::stage_block(const OperandPart& part, bool is_across, int64_t pitch, char* target) const {
    const auto [data, first, n, at, depth] = part;
    if (n == 0 || depth == 0) return;
    if (!is_across && is_interleaved()) return stage_interleaved(part, pitch, target);
    const Axes &outer = is_across ? x_.depth : x_.vectors, &inner = is_across ? x_.vectors : x_.depth;
    const int64_t from = is_across ? at : first, count = is_across ? depth : n;
    const int64_t begin = is_across ? first : at, length = is_across ? n : depth;
    const int64_t stride = inner.back().stride;
    if (pitch == length * packed_element() && outer.back().stride == length * stride &&
        run_length(inner, begin, length) == length && run_length(outer, from, count) == count)
        return stage(data + axes_offset(outer, from) + axes_offset(inner, begin), stride,
                     count * length, target);
    // The runs are the same in all rows; those of a window whose pixels have few channels are short.
    struct Run {
        int64_t at, length, offset;
    };
    auto& runs = per_thread<std::vector<Run>>([] {});
    runs.clear();
    for (int64_t j = 0, run = 0; j < length; j += run) {
        run = run_length(inner, begin + j, length - j);
        runs.push_back({j * packed_element(), run, axes_offset(inner, begin + j)});
    }
    const bool copies = is_stored_as_packed() && stride == storage_bytes(x_.dtype);
    // Short rows go through a prologue together, as many as a tile holds.
    const bool is_dense = runs.size() == 1 && pitch == length * packed_element();
    const int64_t most = is_dense && x_.prologue != nullptr && !(pairs() && rounds_to_bfloat16_)
                             ? tile_elements / length
                             : 1;
    for (int64_t i = 0, some = 1; i < count; i += some) {
        const char* row = data + axes_offset(outer, from + i);
        char* to = target + i * pitch;
        if (most > 1) {
            some = std::min(most, run_length(outer, from + i, count - i));
            note_work(some * length * steps_);
            stage_tile({row + runs[0].offset, stride, static_cast<int>(length), outer.back().stride,
                        static_cast<int>(some)},
                       to);
            continue;
        }
        for (const Run& r : runs) {
            if (copies) __builtin_memcpy(to + r.at, row + r.offset, r.length * packed_element());
            else stage(row + r.offset, stride, r.length, to + r.at);
        }
    }
}

// Whether no panel of `width` vectors crosses the end of an inner axis.
bool Packer::lies_in_runs(int64_t first, int64_t n, int width) const {
    for (int64_t j = 0; j < n; j += width) {
        const int64_t count = std::min<int64_t>(width, n - j);
        if (run_length(x_.vectors, first + j, count) != count) return false;
    }
    return true;
}

// Of the panel that begins with the `left` last vectors.
static int panel_width(int64_t left, int width, int lanes) {
    return left >= width ? width : static_cast<int>(ceil_divide(left, lanes)) * lanes;
}

PackKernel Packer::pack_kernel(bool is_across) const {
    if (is_quad_form(form_) && is_across) return k_.pack_quads_across;
    if (pairs()) return is_across ? k_.pack_pairs_across : k_.pack_pairs_along;
    return is_across ? k_.pack_across : k_.pack_along;
}

// Of whole vectors.
void Packer::interleaved_panels(const OperandPart& part, int width, float* out,
                                int64_t panel_words) const {
    for (int64_t j = 0; j < part.n; j += width) {
        note_work(part.depth * width);
        k_.pack_interleaved(part.data + axes_offset(x_.vectors, part.first + j), x_.vectors[0].stride,
                            x_.depth[0].size, x_.depth[1].size,
                            static_cast<int>(std::min<int64_t>(width, part.n - j)),
                            panel_width(part.n - j, width, k_.lanes), out + j / width * panel_words);
    }
}

void Packer::panels(const OperandPart& part, int width, float* out, int64_t panel_words,
                    uint32_t* least) const {
    const auto [data, first, n, at, depth] = part;
    const bool is_across = across();
    // Bytes that lie along make words of four as they are.
    const bool as_words = is_quad_form(form_) && !is_across;
    const PackKernel pack = pack_kernel(is_across);
    const Axis &v = x_.vectors.back(), &d = x_.depth.back();
    const bool as_stored =
        is_stored_as_packed() && (is_across ? v : d).stride == storage_bytes(x_.dtype) &&
        run_length(x_.depth, at, depth) == depth && (!as_words || depth % step_elements(form_) == 0);
    for (int64_t p = 0; least != nullptr && p < ceil_divide(n, width); ++p) least[p] = no_magnitude;
    const auto note = [&](int64_t p, uint32_t value) {
        if (least != nullptr) least[p] = std::min(least[p], value);
    };
    if (!is_across && is_interleaved() && is_stored_as_packed() && step_words(form_) == 1 &&
        depth == axes_size(x_.depth) && x_.vectors.size() == 1)
        return interleaved_panels(part, width, out, panel_words);
    // Staged blocks are wide where they lie across, so that each piece of memory is long.
    const int64_t group = is_across ? std::max<int64_t>(tile_elements / width * width, width) : width;
    // Long rows stay in the first cache until the last panel has taken its part of them (measured).
    const int64_t piece_depth = is_across          ? (n <= 128 ? 64 : 16)
                                : is_interleaved() ? depth
                                                   : tile_elements;
    auto& workspace = per_thread<Workspace>([] {});
    for (int64_t g = 0; g < n; g += group) {
        const int64_t in_group = std::min(group, n - g);
        const bool in_place = as_stored && lies_in_runs(first + g, in_group, width);
        // Pieces of the depth, each for all panels: their rows may lie on pages of their own.
        for (int64_t piece = 0; piece < depth; piece += piece_depth) {
            const int64_t length = std::min(piece_depth, depth - piece);
            note_work(length * in_group);
            int64_t pitch = (is_across ? d : v).stride;
            char* staged = nullptr;
            const int64_t steps = steps_of(form_, length);
            if (!in_place) {
                pitch = (is_across ? in_group : as_words ? 4 * steps : length) * packed_element();
                const int64_t bytes = pitch * (is_across ? length : in_group);
                staged = workspace.get<char>(bytes);
                if (as_words && length % 4 != 0) std::fill_n(staged, bytes, char{0});
                stage_block({data, first + g, in_group, at + piece, length}, is_across, pitch, staged);
            }
            for (int64_t j = g; j < g + in_group; j += width) {
                const int count = static_cast<int>(std::min<int64_t>(width, n - j));
                const int w = panel_width(n - j, width, k_.lanes);
                const char* from = in_place ? data + axes_offset(x_.vectors, first + j) +
                                                  axes_offset(x_.depth, at + piece)
                                            : staged + (j - g) * (is_across ? packed_element() : pitch);
                float* to =
                    out + j / width * panel_words + steps_of(form_, piece) * step_words(form_) * w;
                note(j / width, pack(from, pitch, as_words ? steps : length, count, w, to));
            }
        }
    }
    if (step_words(form_) == 1 || depth % 2 == 0) return;
    for (int64_t j = 0; j < n; j += width) {  // the last pair's second half
        const int w = panel_width(n - j, width, k_.lanes);
        std::fill_n(out + j / width * panel_words + depth * w, w, 0.0f);
    }
}

uint32_t Packer::rows(const OperandPart& part, int64_t pitch, float* out) const {
    const auto [data, first, n, at, depth] = part;
    const int64_t words = steps_of(form_, depth) * step_words(form_);
    if (!pairs()) {
        // The last word's rest is zero: what stands beside it in b is no more.
        const int64_t rest = depth % step_elements(form_);
        for (int64_t i = 0; rest != 0 && i < n; ++i) out[i * pitch + words - 1] = 0.0f;
        stage_block(part, false, 4 * pitch, reinterpret_cast<char*>(out));
        return 0;
    }
    const Axis &v = x_.vectors.back(), &d = x_.depth.back();
    const bool as_stored =
        is_stored_as_packed() && d.stride == 2 && run_length(x_.depth, at, depth) == depth;
    auto& workspace = per_thread<Workspace>([] {});
    constexpr int64_t staged_elements = 8192;
    uint32_t least = no_magnitude;
    for (int64_t i = 0, count = 0; i < n; i += count) {
        const char* from;
        int64_t stride = v.stride;
        if (as_stored) {
            count = run_length(x_.vectors, first + i, n - i);
            from = data + axes_offset(x_.vectors, first + i) + axes_offset(x_.depth, at);
        } else {
            count = std::clamp<int64_t>(staged_elements / std::max<int64_t>(depth, 1), 1, n - i);
            stride = 2 * depth;
            char* staged = workspace.get<char>(stride * count);
            stage_block({data, first + i, count, at, depth}, false, stride, staged);
            from = staged;
        }
        least = std::min(least, k_.pack_pairs_rows(from, stride, depth, static_cast<int>(count),
                                                   static_cast<int>(pitch), out + i * pitch));
    }
    return least;
}

ProductOperand collapsed(const ProductOperand& x) {
    ProductOperand y = x;
    const int64_t size = storage_bytes(x.dtype);
    y.batch = collapsed(x.batch, size);
    y.vectors = collapsed(x.vectors, size);
    y.depth = collapsed(x.depth, size);
    return y;
}

}  // namespace neuronsim
