#include <memory>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/window_walk.h"

namespace neuronsim {

void select_windows(const Windows& w, const Chain& select, const View& input, int64_t* places) {
    check(w);
    if (select.inputs() != std::vector<DType>{input.dtype, input.dtype} || select.output_count() != 1 ||
        select.output_dtype(0) != DType::boolean)
        throw std::invalid_argument("a selection takes two elements and gives a bool");
    if (select.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a selection");
    const Kernels& k = kernels();
    const int size = computed_bytes(input.dtype);
    std::vector<int64_t> row_major(w.input_shape.size());
    int64_t inner = 1;
    bool is_dense = true;
    for (size_t d = row_major.size(); d-- > 0; inner *= w.input_shape[d]) {
        row_major[d] = inner;
        is_dense = is_dense && input.strides[d] == inner * storage_bytes(input.dtype);
    }
    const int64_t outputs = element_count(w.output_shape);
    parallel_for(ceil_divide(outputs, lanes), 1, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> values(new Tile[2]());
        Tile &current = values[0], &next = values[1];
        const void* const operands[] = {&current, &next};
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(outputs - first < lanes ? outputs - first : lanes);
            for (int lane = 0; lane < n; ++lane) places[first + lane] = -1;
            Walk walk(w, first, n);
            int64_t origin[lanes], place[lanes];
            for (int lane = 0; lane < n && walk.is_inside() && !walk.is_empty(); ++lane)
                walk.element(lane, row_major, origin[lane]);
            if (!walk.is_empty()) do {
                    note_work(8 * n);
                    int64_t moved = 0;
                    if (walk.is_inside()) walk.element(0, row_major, moved);
                    for (int lane = 0; lane < n; ++lane) {
                        int64_t offset;
                        if (walk.is_inside()) place[lane] = origin[lane] + moved - origin[0];
                        else
                            place[lane] = walk.element(lane, row_major, place[lane]) ? place[lane] : -1;
                        if (place[lane] < 0) continue;
                        if (is_dense) offset = place[lane] * storage_bytes(input.dtype);
                        else walk.element(lane, input.strides, offset);
                        if (input.dtype == DType::float32)
                            __builtin_memcpy(&next.f32[lane], input.data + offset, sizeof(float));
                        else
                            k.load[input.dtype](input.data + offset, 0, 1,
                                                reinterpret_cast<char*>(&next) + lane * size);
                    }
                    const void* output;
                    select.run_tile(k, operands, n, &output);
                    const auto* keeps = static_cast<const uint32_t*>(output);
                    for (int lane = 0; lane < n; ++lane) {
                        if (place[lane] < 0 || (places[first + lane] >= 0 && keeps[lane])) continue;
                        places[first + lane] = place[lane];
                        copy_lane(current, next, lane, size);
                    }
                } while (walk.advance());
        }
    });
}

}  // namespace neuronsim
