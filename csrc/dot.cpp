#include "dot.h"

#include <memory>
#include <stdexcept>

#include "dispatch.h"
#include "pool.h"

namespace neuronsim {
namespace {

// Packs `count` vectors of length `depth` as panels [depth][width]: panel element (k, i) is element k
// of vector i. Places beyond `count` stay zero.
void pack(const Kernels& k, const View& view, int64_t vector_stride, int64_t depth_stride,
          const char* data, int64_t count, int64_t depth, int width, bool flush, float* panel) {
    Tile tile;
    const auto load = [&](const char* source, int64_t stride, int n, Tile* target) {
        k.load[static_cast<int>(view.dtype)](source, stride, n, target);
        if (flush) k.flush(target, target, n);
    };
    const auto distance = [](int64_t x) { return x < 0 ? -x : x; };
    if (distance(vector_stride) < distance(depth_stride)) {
        for (int64_t i = 0; i < depth; ++i) {
            load(data + i * depth_stride, vector_stride, static_cast<int>(count), &tile);
            for (int64_t j = 0; j < count; ++j) panel[i * width + j] = tile.f32[j];
            for (int64_t j = count; j < width; ++j) panel[i * width + j] = 0.0f;
        }
        return;
    }
    for (int64_t j = 0; j < width; ++j)
        for (int64_t at = 0; at < depth; at += tile_elements) {
            const int n = static_cast<int>(depth - at < tile_elements ? depth - at : tile_elements);
            if (j < count) load(data + j * vector_stride + at * depth_stride, depth_stride, n, &tile);
            for (int i = 0; i < n; ++i) panel[(at + i) * width + j] = j < count ? tile.f32[i] : 0.0f;
        }
}

struct Panels {
    int width;
    int64_t count;  // per batch
    std::unique_ptr<float[]> data;
};

Panels pack_panels(const Kernels& k, const View& view, int64_t batch, int64_t vectors, int64_t depth,
                   int64_t vector_stride, int64_t depth_stride, int width, const Numerics& numerics) {
    // C4: operands with the exponents of float32 read as zero where they are subnormal.
    const bool flush =
        numerics.flush_subnormals && formats[static_cast<int>(view.dtype)].exponent_bits == 8;
    Panels p{width, blocks(vectors, width), nullptr};
    p.data.reset(
        new float[checked_product({batch, p.count, depth, width, sizeof(float)}) / sizeof(float)]);
    parallel_for(batch * p.count, 1 + 16384 / (depth * width + 1), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % p.count * width;
            const int64_t left = vectors - first;
            pack(k, view, vector_stride, depth_stride,
                 view.data + i / p.count * view.strides[0] + first * vector_stride,
                 left < width ? left : width, depth, width, flush, p.data.get() + i * depth * width);
        }
    });
    return p;
}

void dot_float(const DotShape& s, const View& a, const View& b, DType result, int64_t tile,
               const Numerics& numerics, Draw draw, char* output) {
    const Kernels& k = kernels();
    const int rows = k.dot_rows, columns = k.dot_columns;
    const Panels pa =
        pack_panels(k, a, s.batch, s.rows, s.depth, a.strides[1], a.strides[2], rows, numerics);
    const Panels pb =
        pack_panels(k, b, s.batch, s.columns, s.depth, b.strides[2], b.strides[1], columns, numerics);
    const int size = storage_bytes(result);
    const DotKernel dot_block = numerics.flush_subnormals ? k.dot_block_flushed : k.dot_block;
    // Row blocks run innermost, so that a column panel stays in the cache.
    const int64_t jobs = s.batch * pa.count * pb.count;
    const int64_t work = s.depth * rows * columns + 1;
    parallel_for(jobs, 1 + 65536 / work, [&](int64_t begin, int64_t end) {
        Tile psum, row_tile;
        for (int64_t job = begin; job < end; ++job) {
            const int64_t row_block = job % pa.count;
            const int64_t column_block = job / pa.count % pb.count;
            const int64_t batch = job / pa.count / pb.count;
            const float* pa_block = pa.data.get() + (batch * pa.count + row_block) * s.depth * rows;
            const float* pb_block =
                pb.data.get() + (batch * pb.count + column_block) * s.depth * columns;
            for (int i = 0; i < rows * columns; ++i) psum.f32[i] = 0.0f;
            for (int64_t at = 0; at < s.depth; at += tile) {
                const int64_t depth = s.depth - at < tile ? s.depth - at : tile;
                dot_block(pa_block + at * rows, pb_block + at * columns, depth, psum.f32);
            }
            const int64_t rows_left = s.rows - row_block * rows;
            const int64_t columns_left = s.columns - column_block * columns;
            const int n = static_cast<int>(columns_left < columns ? columns_left : columns);
            for (int64_t row = 0; row < rows && row < rows_left; ++row) {
                for (int i = 0; i < n; ++i) {
                    const float x = psum.f32[row * columns + i];
                    row_tile.f32[i] = x == x ? x : __builtin_nanf("");  // E6, once, at the end
                }
                const int64_t first =
                    (batch * s.rows + row_block * rows + row) * s.columns + column_block * columns;
                round_values(k, result, numerics, draw, first, &row_tile, n);  // M4
                k.store[static_cast<int>(result)](&row_tile, n, output + first * size);
            }
        }
    });
}

// M7: modulo 2^64 and then 2^n is modulo 2^n; to bool, the or of ands of what is not zero.
void dot_integer(const DotShape& s, const View& a, const View& b, DType result, char* output) {
    const Kernels& k = kernels();
    const int size = storage_bytes(result);
    const LoadKernel load_a = k.load[static_cast<int>(a.dtype)];
    const LoadKernel load_b = k.load[static_cast<int>(b.dtype)];
    const int64_t pieces = blocks(s.columns, tile_elements);
    parallel_for(s.batch * s.rows * pieces, 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> tiles(new Tile[3]);
        Tile &total = tiles[0], &row = tiles[1], &element = tiles[2];
        for (int64_t job = begin; job < end; ++job) {
            const int64_t first = job % pieces * tile_elements, at = job / pieces;
            const int64_t left = s.columns - first;
            const int n = static_cast<int>(left < tile_elements ? left : tile_elements);
            const char* pa = a.data + at / s.rows * a.strides[0] + at % s.rows * a.strides[1];
            const char* pb = b.data + at / s.rows * b.strides[0] + first * b.strides[2];
            for (int i = 0; i < n; ++i) total.u64[i] = 0;
            for (int64_t i = 0; i < s.depth; ++i) {
                load_a(pa + i * a.strides[2], 0, 1, &element);
                load_b(pb + i * b.strides[1], b.strides[2], n, &row);
                const uint64_t x = element.u64[0];
                if (result == DType::boolean) {
                    for (int j = 0; j < n; ++j) total.u64[j] |= x != 0 && row.u64[j] != 0;
                } else {
                    for (int j = 0; j < n; ++j) total.u64[j] += x * row.u64[j];
                }
            }
            k.round[static_cast<int>(result)](&total, n);
            k.store[static_cast<int>(result)](&total, n, output + (at * s.columns + first) * size);
        }
    });
}

}  // namespace

void dot(const DotShape& s, const View& a, const View& b, DType result, int64_t tile,
         const Numerics& numerics, Draw draw, char* output) {
    if (tile < 1) throw std::invalid_argument("a contraction tile has at least one element");
    if (is_device_float(result)) dot_float(s, a, b, result, tile, numerics, draw, output);
    else dot_integer(s, a, b, result, output);
}

}  // namespace neuronsim
