#include <algorithm>
#include <memory>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/pool.h"
#include "reductions/window_walk.h"

namespace neuronsim {
namespace {

// Of elements of so many bytes; the second input's offsets are their numbers.
template <class Word>
void select_words(const Windows& w, const Chain& select, const std::vector<View>& inputs,
                  int64_t* places) {
    const Kernels& k = kernels();
    parallel_for(WindowBlock(w, inputs).count(), 1, [&](int64_t begin, int64_t end) {
        WindowBlock block(w, inputs);
        const std::unique_ptr<Tile[]> values(new Tile[2]());
        auto* const current = reinterpret_cast<Word*>(&values[0]);
        auto* const next = reinterpret_cast<Word*>(&values[1]);
        const void* const operands[] = {current, next};
        const int inner = block.inner();
        const int64_t step = block.step(1);
        for (int64_t number = begin; number < end; ++number) {
            block.move_to(number);
            int64_t* const kept = places + block.first();
            std::fill_n(kept, block.elements(), nowhere);
            block.visit([&](const WindowBlock::Span& span) {
                block.load(k, span, 0, values[1]);
                const void* output;
                select.run_tile(k, operands, block.elements(), &output);
                const auto* const keeps = static_cast<const uint8_t*>(output);
                block.for_pieces(span, 1, [&](int row, const char* data) {
                    int64_t element = data - inputs[1].data;
                    const int first = (row * block.row_places() + span.begin) * inner;
                    const int last = first + (span.end - span.begin) * inner;
                    for (int place = first; place < last; place += inner, element += step)
                        for (int i = 0; i < inner; ++i) {
                            const int at = place + i;
                            const bool stays = kept[at] != nowhere && keeps[at] != 0;
                            kept[at] = stays ? kept[at] : element + i;
                            current[at] = stays ? current[at] : next[at];
                        }
                });
            });
        }
    });
}

}  // namespace

void select_windows(const Windows& w, const Chain& select, const View& input, int64_t* places) {
    check(w);
    if (select.inputs() != std::vector<DType>{input.dtype, input.dtype} || select.output_count() != 1 ||
        select.output_dtype(0) != DType::boolean)
        throw std::invalid_argument("a selection takes two elements and gives a bool");
    if (select.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a selection");
    // The elements' numbers, as a second input that they would be the offsets of.
    View numbers = input;
    const std::vector<int64_t> steps = dense_strides(w.input_shape, 1);
    for (size_t d = 0; d < steps.size(); ++d) numbers.axes[d].stride = steps[d];
    const std::vector<View> inputs{input, numbers};
    switch (computed_bytes(input.dtype)) {
        case 1:
            return select_words<uint8_t>(w, select, inputs, places);
        case 4:
            return select_words<uint32_t>(w, select, inputs, places);
        default:
            return select_words<uint64_t>(w, select, inputs, places);
    }
}

}  // namespace neuronsim
