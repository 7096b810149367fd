#include "products/epilogue.h"

#include <algorithm>
#include <type_traits>

#include "machine/interrupt.h"
#include "machine/workspace.h"
#include "movement/copy.h"

namespace neuronsim {

static const QuantizingPass* pass_of(const ProductResult& out, const Numerics& numerics) {
    if (out.epilogue == nullptr || out.observed != nullptr || !numerics.plain()) return nullptr;
    const QuantizingPass* pass = out.epilogue->sole_pass();
    if (pass == nullptr) return nullptr;
    const bool is_float = pass->quantizing.kind == QuantizedValues::float32;
    return out.dtype == (is_float ? DType::float32 : DType::int32) ? pass : nullptr;
}

static const std::vector<JoinedLink>* joined_links_of(const ProductResult& out,
                                                      const Numerics& numerics) {
    if (out.epilogue == nullptr || out.observed != nullptr || !numerics.plain() ||
        out.dtype != DType::float32 || !is_device_float(out.stored()))
        return nullptr;
    return out.epilogue->sole_joined_links();
}

static bool blocks_store(const Kernels& k, const ProductResult& out, const Numerics& numerics,
                         const std::vector<JoinedLink>* joined) {
    constexpr int64_t word = sizeof(float);
    const auto is_whole = [](const Axis& axis) { return axis.stride % word == 0; };
    const auto lies_so = [&](const ProductTerm& t) {
        return t.columns.size() == 1 && t.rows.size() == 1 && t.dtype == DType::float32 &&
               (t.columns[0].stride == word || t.columns[0].stride == 0) && is_whole(t.rows[0]) &&
               std::all_of(t.batch.begin(), t.batch.end(), is_whole) &&
               reinterpret_cast<uintptr_t>(t.data) % word == 0;
    };
    const auto is_joined = [](const JoinedLink& link) {
        return is_joined_in_blocks(static_cast<Op>(link.op), link.comes_first);
    };
    return k.stores_in_blocks[out.stored()] && numerics.plain() && out.rows.size() == 1 &&
           out.columns.size() == 1 && out.columns[0].stride == storage_bytes(out.stored()) &&
           (out.epilogue == nullptr ||
            (joined != nullptr && std::all_of(joined->begin(), joined->end(), is_joined) &&
             std::all_of(out.terms.begin(), out.terms.end(), lies_so)));
}

Epilogue::Epilogue(const Kernels& k, const ProductResult& out, const Numerics& numerics, Draw draw,
                   int64_t pitch)
    : k_(k),
      out_(out),
      numerics_(numerics),
      draw_(draw),
      pitch_(pitch),
      absorbs_nan_(out.epilogue != nullptr && out.dtype == DType::float32 && numerics.plain() &&
                   out.epilogue->absorbs_nan(0)),
      pass_(pass_of(out, numerics)),
      joined_(joined_links_of(out, numerics)),
      is_of_blocks_(blocks_store(k, out, numerics, joined_)),
      has_canonical_nan_(out.epilogue != nullptr && is_device_float(out.stored()) && numerics.plain() &&
                         out.epilogue->has_canonical_nan(0)) {}

template <class F>
void Epilogue::list_terms(std::vector<JoinedTerm>& terms, const F& place_of) const {
    terms.clear();
    if (joined_ == nullptr) return;
    for (const JoinedLink& joined : *joined_) {
        JoinedTerm term{static_cast<Op>(joined.op), joined.comes_first, nullptr, 0, false};
        if (const Tile* const constant = out_.epilogue->constant(joined.value)) {
            term.data = constant->f32;
        } else {
            const Place p = place_of(static_cast<size_t>(joined.value));
            term.data = reinterpret_cast<const float*>(p.data);
            term.row = p.row / static_cast<int64_t>(sizeof(float));
            term.along = p.column != 0;
        }
        terms.push_back(term);
    }
}

void Epilogue::terms_of(int64_t batch, std::vector<JoinedTerm>& terms) const {
    list_terms(terms, [&](size_t i) {
        const ProductTerm& t = out_.terms[i - 1];
        return Place{const_cast<char*>(t.data) + axes_offset(t.batch, batch), t.rows[0].stride,
                     t.columns[0].stride};
    });
}

void Epilogue::prefetch(int64_t batch, int64_t first, int64_t count, int64_t column,
                        int columns) const {
    // Of an array whose rows are there once for each row of the product.
    const auto fetch = [&](const auto& array, int64_t size, auto line_of) {
        if (array.columns.back().stride != size || array.rows.size() > 1 || array.rows[0].stride == 0)
            return;
        constexpr int64_t line = 64;
        const char* row = array.data + axes_offset(array.batch, batch) +
                          axes_offset(array.columns, column) + axes_offset(array.rows, first);
        for (int64_t i = 0; i < count; ++i, row += array.rows[0].stride)
            for (int64_t at = 0; at < columns * size; at += line) line_of(row + at);
    };
    fetch(out_, storage_bytes(out_.stored()), [](const char* p) { __builtin_prefetch(p, 1); });
    for (const ProductTerm& t : out_.terms)  // into the second cache: the first one is the product's
        fetch(t, storage_bytes(t.dtype), [](const char* p) { __builtin_prefetch(p, 0, 2); });
}

// Cut where an array's elements stop lying a constant distance apart.
void Epilogue::finish(float* sums, int64_t batch, int64_t first, int64_t count, int64_t column,
                      int columns) const {
    auto& places = per_thread<Places>([] {});
    auto& space = per_thread<Workspace>([] {});
    const int64_t size = storage_bytes(out_.stored());
    // Where a row's neighbours in memory are those of a column, columns are taken as rows.
    const bool turns = out_.columns.back().stride != size && out_.rows.back().stride == size &&
                       out_.rows.back().size > 1;
    for (int64_t j = 0, n = 0; j < columns; j += n) {
        n = run_length(out_.columns, column + j, columns - j);
        for (const ProductTerm& t : out_.terms) n = run_length(t.columns, column + j, n);
        for (int64_t i = 0, m = 0; i < count; i += m) {
            m = run_length(out_.rows, first + i, count - i);
            for (const ProductTerm& t : out_.terms) m = run_length(t.rows, first + i, m);
            places.clear();
            const auto place = [&](auto& array) {
                const int64_t at = axes_offset(array.batch, batch) +
                                   axes_offset(array.rows, first + i) +
                                   axes_offset(array.columns, column + j);
                const int64_t row = array.rows.back().stride, next = array.columns.back().stride;
                places.push_back(
                    {const_cast<char*>(array.data) + at, turns ? next : row, turns ? row : next});
            };
            place(out_);
            for (const ProductTerm& t : out_.terms) place(t);
            float* block = sums + i * pitch_ + j;
            if (!turns) {
                finish_block(block, pitch_, m, n, places);
                continue;
            }
            if (pitch_ > 1) {
                float* turned = space.get<float>(m * n);
                k_.turn(block, pitch_, static_cast<int>(m), static_cast<int>(n), turned, m);
                block = turned;
            }
            finish_block(block, m, n, m, places);
        }
    }
}

void Epilogue::finish_block(float* sums, int64_t pitch, int64_t rows, int64_t columns,
                            const Places& places) const {
    const Place& result = places[0];
    const bool in_order = out_.epilogue == nullptr && result.column == storage_bytes(out_.dtype);
    if (in_order && is_modulo_2_32(out_.dtype) && storage_bytes(out_.dtype) == 4 &&
        !out_.exact_floats) {
        for (int64_t r = 0; r < rows; ++r)
            __builtin_memcpy(result.data + r * result.row, sums + r * pitch, columns * 4);
        return;
    }
    if (in_order && is_device_float(out_.dtype) && numerics_.plain())
        return k_.store_rows[out_.dtype](sums, pitch, static_cast<int>(rows), static_cast<int>(columns),
                                         result.data, result.row);
    if (pass_ != nullptr && result.column == 1 &&
        finish_bytes(sums, pitch, static_cast<int>(rows), static_cast<int>(columns), places))
        return;
    if (joined_ != nullptr && finish_joined(sums, pitch, rows, columns, places)) return;
    Places at = places;
    for (int64_t c = 0, n = 0; c < columns; c += n) {
        n = std::min<int64_t>(columns - c, tile_elements);
        for (int64_t r = 0, m = 0; r < rows; r += m) {
            m = std::min<int64_t>(rows - r, tile_elements / n);
            for (size_t i = 0; i < at.size(); ++i)
                at[i].data = places[i].data + r * at[i].row + c * at[i].column;
            finish_tile(sums + r * pitch + c, pitch, static_cast<int>(m), static_cast<int>(n), r == 0,
                        at);
        }
    }
}

bool Epilogue::finish_bytes(const float* sums, int64_t pitch, int rows, int columns,
                            const Places& places) const {
    constexpr ptrdiff_t word = 4;
    Quantizing q = pass_->quantizing;
    if (out_.exact_floats) q.kind = QuantizedValues::exact_sums;
    q.values = sums;
    q.values_row = pitch * word;
    const auto take = [&](int input, auto& from, ptrdiff_t& row, bool& along) {
        if (input < 0) return true;
        const Place& p = places[input];
        from = reinterpret_cast<std::remove_reference_t<decltype(from)>>(p.data);
        row = p.row;
        along = columns > 1 && p.column != 0;
        return (!along || p.column == word) && reinterpret_cast<uintptr_t>(p.data) % word == 0 &&
               p.row % word == 0;
    };
    if (!take(pass_->taken, q.taken, q.taken_row, q.taken_along) ||
        !take(pass_->factors, q.factors, q.factors_row, q.factors_along))
        return false;
    note_work(int64_t{rows} * columns * 3);
    k_.quantize(q, rows, columns, places[0].data, places[0].row);
    return true;
}

bool Epilogue::finish_joined(float* sums, int64_t pitch, int64_t rows, int64_t columns,
                             const Places& places) const {
    constexpr int64_t word = 4, few = 32;
    const auto lies_so = [&](const Place& p) {
        return (p.column == word || p.column == 0) && p.row % word == 0 &&
               reinterpret_cast<uintptr_t>(p.data) % word == 0;
    };
    if (places[0].column != storage_bytes(out_.stored()) || columns < few || columns > tile_elements ||
        !std::all_of(places.begin() + 1, places.end(), lies_so))
        return false;
    const int n = static_cast<int>(columns), m = static_cast<int>(rows);
    note_work(rows * columns * static_cast<int64_t>(2 + joined_->size()));
    auto& terms = per_thread<std::vector<JoinedTerm>>([] {});
    list_terms(terms, [&](size_t i) { return places[i]; });
    const bool as_they_are = out_.stored() == DType::float32;
    k_.join_terms(sums, pitch, m, n, terms.data(), static_cast<int>(terms.size()),
                  as_they_are ? places[0].data : nullptr, places[0].row);
    if (!as_they_are) k_.store_rows[out_.stored()](sums, pitch, m, n, places[0].data, places[0].row);
    return true;
}

// `begins` with the first rows of some columns.
void Epilogue::finish_tile(float* sums, int64_t pitch, int rows, int columns, bool begins,
                           const Places& places) const {
    note_work(int64_t{rows} * columns *
              (2 + (out_.epilogue == nullptr ? 0 : static_cast<int64_t>(out_.epilogue->link_count()))));
    auto& tiles = per_thread<std::vector<Tile>>([] {});
    auto& inputs = per_thread<std::vector<const void*>>([] {});
    if (tiles.size() < places.size()) tiles.resize(places.size());
    inputs.resize(places.size());
    const bool is_integer = is_modulo_2_32(out_.dtype);
    const void* result = inputs[0] = is_integer
                                         ? wrapped(sums, pitch, rows, columns, &tiles[0])
                                         : rounded(sums, pitch, rows, columns, places[0], &tiles[0]);
    if (out_.epilogue != nullptr) {
        for (size_t i = 1; i < places.size(); ++i)
            inputs[i] = loaded(places[i], out_.terms[i - 1].dtype, rows, columns, begins, &tiles[i]);
        if (out_.observed == nullptr) {
            out_.epilogue->run_tile(k_, inputs.data(), rows * columns, &result);
        } else {
            auto& seen = per_thread<std::vector<Observed>>([] {});
            seen.assign(1 + out_.epilogue->link_count(), {});
            if (!is_integer)
                observe_sums(sums, pitch, static_cast<const float*>(inputs[0]), rows, columns, seen[0]);
            out_.epilogue->run_tile(k_, inputs.data(), rows * columns, &result, seen.data() + 1);
            add_observed(seen.data(), static_cast<int64_t>(seen.size()), out_.observed);
        }
    }
    store(result, rows, columns, places[0]);
}

const void* Epilogue::wrapped(const float* sums, int64_t pitch, int rows, int columns,
                              Tile* tile) const {
    if (out_.dtype == DType::int32 && !out_.exact_floats && (pitch == columns || rows == 1))
        return sums;
    constexpr FloatToInt whole = FloatToInt::truncate;
    Tile words;
    for (int r = 0; r < rows; ++r) {
        const void* from = sums + r * pitch;
        if (out_.exact_floats) {
            k_.to_integer[Domain::float32][DType::int32](&words, from, columns, whole);
            from = &words;
        }
        k_.to_integer[Domain::int32][out_.dtype](
            reinterpret_cast<char*>(tile) + r * columns * computed_bytes(out_.dtype), from, columns,
            whole);
    }
    return tile;
}

// The sums as values of their type, side by side.
const void* Epilogue::rounded(float* sums, int64_t pitch, int rows, int columns, const Place& result,
                              Tile* tile) const {
    const int n = rows * columns;
    const bool adjacent = pitch == columns || rows == 1;
    if (adjacent && absorbs_nan_) return sums;
    k_.store_rows[DType::float32](sums, pitch, adjacent ? 1 : rows, adjacent ? n : columns,
                                  reinterpret_cast<char*>(tile),
                                  columns * static_cast<int64_t>(sizeof(float)));
    if (numerics_.plain()) {
        k_.round[out_.dtype](tile, n);
        return tile->f32;
    }
    // S2: the element's index in the product's own order, which is that of its storage.
    const int64_t size = storage_bytes(out_.dtype);
    Draw draw = draw_;
    draw.stride = result.column / size;
    for (int r = 0; r < rows; ++r)
        round_values(k_, out_.dtype, numerics_, draw,
                     draw.first + (result.data + r * result.row - out_.data) / size,
                     tile->f32 + r * columns, columns);
    return tile->f32;
}

void Epilogue::observe_sums(const float* sums, int64_t pitch, const float* rounded, int rows,
                            int columns, Observed& seen) const {
    const bool may_vanish = out_.dtype != DType::float32 || numerics_.flush_subnormals;
    const bool counts_saturated = saturates(out_.dtype, numerics_);
    if (!counts_saturated && !k_.special[may_vanish](rounded, rows * columns)) return;
    for (int r = 0; r < rows; ++r, sums += pitch, rounded += columns) {
        for (int j = 0; j < columns; ++j) {
            seen.overflow += rounded[j] - rounded[j] != 0;
            seen.underflow += rounded[j] == 0 && sums[j] != 0;
        }
        if (counts_saturated) seen.saturated += count_overflowing(k_, out_.dtype, sums, columns);
    }
}

// A term's elements in the form of their domain, side by side. What all rows share stays in the tile.
const void* Epilogue::loaded(const Place& term, DType dtype, int rows, int columns, bool begins,
                             Tile* tile) const {
    const int64_t size = storage_bytes(dtype), element = computed_bytes(dtype);
    const bool adjacent = term.column == size && (rows == 1 || term.row == columns * size);
    if (adjacent && is_read_in_place(dtype) &&
        reinterpret_cast<uintptr_t>(term.data) % static_cast<uintptr_t>(size) == 0)
        return term.data;
    const LoadKernel load = k_.load[dtype];
    char* const to = reinterpret_cast<char*>(tile);
    if (term.row != 0) {
        for (int r = 0; r < rows; ++r)
            load(term.data + r * term.row, term.column, columns, to + r * columns * element);
    } else if (begins) {
        load(term.data, term.column, columns, to);
        repeat_bytes(to, columns * element, rows * columns * element);
    }
    return tile;
}

void Epilogue::store(const void* values, int rows, int columns, const Place& result) const {
    const DType dtype = out_.stored();
    const int64_t size = storage_bytes(dtype);
    const int64_t element = computed_bytes(dtype);
    if (has_canonical_nan_ && result.column == size)
        return k_.store_rows[dtype](static_cast<float*>(const_cast<void*>(values)), columns, rows,
                                    columns, result.data, result.row);
    const StoreKernel store =
        out_.epilogue == nullptr ? k_.store[dtype] : out_.epilogue->output_store(k_, 0);
    const auto* from = static_cast<const char*>(values);
    for (int r = 0; r < rows; ++r, from += columns * element) {
        char* const to = result.data + r * result.row;
        if (result.column == size) {
            store(from, columns, to);
            continue;
        }
        for (int c = 0; c < columns; ++c) store(from + c * element, 1, to + c * result.column);
    }
}

}  // namespace neuronsim
