#include "movement/view.h"

namespace neuronsim {

void collapse(std::vector<int64_t>& shape, std::vector<View>& views) {
    size_t kept = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
        if (shape[d] == 1) continue;
        bool merges = kept > 0;
        for (const View& v : views)
            merges = merges && v.strides[kept - (kept > 0)] == v.strides[d] * shape[d];
        if (merges) {
            shape[kept - 1] *= shape[d];
            for (View& v : views) v.strides[kept - 1] = v.strides[d];
        } else {
            shape[kept] = shape[d];
            for (View& v : views) v.strides[kept] = v.strides[d];
            ++kept;
        }
    }
    shape.resize(kept);
    for (View& v : views) v.strides.resize(kept);
}

void load_run(const Kernels& k, const std::vector<int64_t>& shape, const View& view, const char* data,
              int64_t begin, int n, Tile& out) {
    const LoadKernel load = k.load[static_cast<int>(view.dtype)];
    const int size = computed_bytes(view.dtype);
    const int rank = static_cast<int>(shape.size());
    if (rank == 0) return load(data, 0, n, &out);
    const int64_t row = shape[rank - 1];
    const int64_t row_stride = view.strides[rank - 1];
    for (int done = 0; done < n;) {
        const int64_t column = (begin + done) % row;
        int64_t outer = (begin + done) / row;
        const char* source = data + column * row_stride;
        for (int d = rank - 2; d >= 0; --d) {
            source += outer % shape[d] * view.strides[d];
            outer /= shape[d];
        }
        const int piece = row - column < n - done ? static_cast<int>(row - column) : n - done;
        load(source, row_stride, piece, reinterpret_cast<char*>(&out) + done * size);
        done += piece;
    }
}

}  // namespace neuronsim
