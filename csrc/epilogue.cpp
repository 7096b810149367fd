#include "epilogue.h"

#include "workspace.h"

namespace neuronsim {

void Epilogue::prefetch(int64_t batch, int64_t first, int64_t count, int64_t column,
                        int columns) const {
    const int64_t size = storage_bytes(out_.stored());
    if (out_.columns.back().stride != size || out_.rows.size() > 1) return;
    constexpr int64_t line = 64;
    const char* row = out_.data + axes_offset(out_.batch, batch) + axes_offset(out_.columns, column) +
                      axes_offset(out_.rows, first);
    for (int64_t i = 0; i < count; ++i, row += out_.rows[0].stride)
        for (int64_t at = 0; at < columns * size; at += line) __builtin_prefetch(row + at, 1);
}

void Epilogue::finish(float* sums, int64_t batch, int64_t first, int64_t count, int64_t column,
                      int columns) const {
    char* const data = out_.data + axes_offset(out_.batch, batch);
    const int64_t size = storage_bytes(out_.stored());
    if (out_.epilogue == nullptr && numerics_.plain()) {
        const StoreRowsKernel store = k_.store_rows[static_cast<int>(out_.dtype)];
        if (out_.columns.back().stride == size &&
            run_length(out_.columns, column, columns) == columns) {
            char* const target = data + axes_offset(out_.columns, column);
            for (int64_t i = 0; i < count;) {
                const int64_t n = run_length(out_.rows, first + i, count - i);
                store(sums + i * pitch_, pitch_, static_cast<int>(n), columns,
                      target + axes_offset(out_.rows, first + i), out_.rows.back().stride);
                i += n;
            }
            return;
        }
        if (out_.rows.back().stride == size && out_.rows.back().size > 1) {
            thread_local Workspace space;
            float* turned = sums;
            if (pitch_ > 1) {
                turned = space.get<float>(count * columns);
                k_.turn(sums, pitch_, static_cast<int>(count), columns, turned, count);
            }
            for (int j = 0; j < columns; ++j) {
                char* const target = data + axes_offset(out_.columns, column + j);
                for (int64_t i = 0; i < count;) {
                    const int64_t n = run_length(out_.rows, first + i, count - i);
                    store(turned + j * count + i, 0, 1, static_cast<int>(n),
                          target + axes_offset(out_.rows, first + i), 0);
                    i += n;
                }
            }
            return;
        }
    }
    for (int64_t i = 0; i < count;) {
        const int64_t rows = std::min<int64_t>(count - i, std::max(tile_elements / columns, 1));
        finish_rows(sums + i * pitch_, batch, first + i, static_cast<int>(rows), column, columns);
        i += rows;
    }
}

// As any profile and epilogue have it: a tile of rows at a time.
void Epilogue::finish_rows(const float* sums, int64_t batch, int64_t first, int rows, int64_t column,
                           int columns) const {
    thread_local std::vector<Tile> registers;
    const TileProgram* program = out_.epilogue;
    const size_t needed = program == nullptr ? 1 : program->register_count();
    if (registers.size() < needed) registers.resize(needed);
    Tile* const value = &registers[program == nullptr ? 0 : program->input_register(0)];
    const int64_t size = storage_bytes(out_.dtype);
    for (int r = 0; r < rows; ++r) {
        float* const to = value->f32 + r * columns;
        for (int j = 0; j < columns; ++j) {
            const float x = sums[r * pitch_ + j];
            to[j] = x == x ? x : __builtin_nanf("");  // E6, once, at the end
        }
        // S2: the element's index in the product's own order, which is that of its storage.
        for (int64_t j = 0; j < columns;) {
            const int64_t n = run_length(out_.columns, column + j, columns - j);
            const int64_t at = axes_offset(out_.batch, batch) + axes_offset(out_.rows, first + r) +
                               axes_offset(out_.columns, column + j);
            Draw draw = draw_;
            draw.stride = out_.columns.back().stride / size;
            round_values(k_, out_.dtype, numerics_, draw, draw.first + at / size, to + j,
                         static_cast<int>(n));
            j += n;
        }
    }
    const Tile* result = value;
    if (program != nullptr) {
        for (size_t t = 0; t < out_.terms.size(); ++t)
            load_term(out_.terms[t], batch, first, rows, column, columns,
                      &registers[program->input_register(t + 1)]);
        program->run_tiles(k_, registers.data(), rows * columns);
        result = &registers[program->output_register(0)];
    }
    const DType stored = out_.stored();
    const int64_t stored_size = storage_bytes(stored);
    const int element = computed_bytes(stored);
    const StoreKernel store = k_.store[static_cast<int>(stored)];
    const char* from = reinterpret_cast<const char*>(result);
    for (int r = 0; r < rows; ++r)
        for (int64_t j = 0; j < columns;) {
            const bool adjacent = out_.columns.back().stride == stored_size;
            const int64_t n = adjacent ? run_length(out_.columns, column + j, columns - j) : 1;
            char* to = out_.data + axes_offset(out_.batch, batch) + axes_offset(out_.rows, first + r) +
                       axes_offset(out_.columns, column + j);
            store(from + (r * columns + j) * element, static_cast<int>(n), to);
            j += n;
        }
}

void Epilogue::load_term(const DotTerm& term, int64_t batch, int64_t first, int rows, int64_t column,
                         int columns, Tile* out) const {
    const LoadKernel load = k_.load[static_cast<int>(term.dtype)];
    const int element = computed_bytes(term.dtype);
    char* to = reinterpret_cast<char*>(out);
    for (int r = 0; r < rows; ++r) {
        const char* row =
            term.data + axes_offset(term.batch, batch) + axes_offset(term.rows, first + r);
        for (int64_t j = 0; j < columns;) {
            const int64_t n = run_length(term.columns, column + j, columns - j);
            load(row + axes_offset(term.columns, column + j), term.columns.back().stride,
                 static_cast<int>(n), to + (r * columns + j) * element);
            j += n;
        }
    }
}

}  // namespace neuronsim
