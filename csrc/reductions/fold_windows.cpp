#include <cstring>
#include <memory>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/order.h"
#include "reductions/window_walk.h"

namespace neuronsim {
namespace {

constexpr int lanes = 64;  // neighbouring sequences that are folded together

// Sequences side by side, each folded from element to element, every accumulator being a result.
void fold_running(const Running& r, const Chain& computation, const std::vector<View>& inputs,
                  char* const* initial, char* const* outputs) {
    const Kernels& k = kernels();
    const size_t count = inputs.size();
    std::vector<View> sequences;
    for (const View& input : inputs) sequences.push_back(along(r, input));
    const int64_t pieces = ceil_divide(r.others, lanes);
    parallel_for(pieces, 1 + 256 / (r.length + 1), [&](int64_t begin, int64_t end) {
        const std::unique_ptr<Tile[]> acc(new Tile[count]), elements(new Tile[count]),
            next(new Tile[count]);
        std::vector<const void*> operands, results(count);
        for (size_t i = 0; i < count; ++i) operands.push_back(&acc[i]);
        for (size_t i = 0; i < count; ++i) operands.push_back(&elements[i]);
        std::vector<int64_t> offsets(count * lanes);
        for (int64_t piece = begin; piece < end; ++piece) {
            const int64_t first = piece * lanes;
            const int n = static_cast<int>(r.others - first < lanes ? r.others - first : lanes);
            for (size_t i = 0; i < count; ++i) {
                for (int lane = 0; lane < n; ++lane)
                    offsets[i * lanes + static_cast<size_t>(lane)] =
                        line_offset(sequences[i], first + lane);
                k.load[computation.output_dtype(i)](initial[i], 0, n, &acc[i]);
            }
            for (int64_t step = 0; step < r.length; ++step) {
                const int64_t at = r.backwards ? r.length - 1 - step : step;
                for (size_t i = 0; i < count; ++i) {
                    const DType t = inputs[i].dtype;
                    const char* const data = inputs[i].data + at * sequences[i].axes.back().stride;
                    for (int lane = 0; lane < n; ++lane)
                        k.load[t](data + offsets[i * lanes + static_cast<size_t>(lane)], 0, 1,
                                  reinterpret_cast<char*>(&elements[i]) + lane * computed_bytes(t));
                }
                computation.run_tile(k, operands.data(), n, results.data());
                for (size_t i = 0; i < count; ++i)
                    computation.copy_output(k, i, results[i], n, &next[i]);
                for (size_t i = 0; i < count; ++i) {
                    const DType t = computation.output_dtype(i);
                    __builtin_memcpy(&acc[i], &next[i], n * computed_bytes(t));
                    for (int lane = 0; lane < n; ++lane) {
                        const int64_t o = first + lane;
                        const int64_t place = (o / r.inner * r.length + at) * r.inner + o % r.inner;
                        k.store[t](reinterpret_cast<const char*>(&acc[i]) + lane * computed_bytes(t), 1,
                                   outputs[i] + place * storage_bytes(t));
                    }
                }
            }
        }
    });
}

}  // namespace

void FoldCall::run(char* const* data) const {
    const Windows& w = windows;
    const Chain& computation = *this->computation;
    check(w);
    std::vector<View> inputs = this->inputs;
    const size_t count = inputs.size();
    for (size_t i = 0; i < count; ++i) inputs[i].data = data[i];
    char *const *const initial = data + count, *const *const outputs = initial + count;
    if (computation.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a reduction");
    for (size_t i = 0; i < count; ++i)
        if (computation.inputs()[i] != computation.output_dtype(i) ||
            computation.inputs()[count + i] != inputs[i].dtype)
            throw std::invalid_argument("the computation's types are not those of the arrays");
    if (const auto run = running(w)) return fold_running(*run, computation, inputs, initial, outputs);
    const Kernels& k = kernels();
    parallel_for(WindowBlock(w, inputs).count(), 1, [&](int64_t begin, int64_t end) {
        WindowBlock block(w, inputs);
        const std::unique_ptr<Tile[]> tiles(new Tile[3 * count]());
        Tile *const acc = tiles.get(), *const elements = acc + count, *const next = elements + count;
        std::vector<const void*> operands, results(count);
        for (size_t i = 0; i < 2 * count; ++i) operands.push_back(&tiles[i]);
        for (int64_t number = begin; number < end; ++number) {
            block.move_to(number);
            const int n = block.elements();
            for (size_t i = 0; i < count; ++i)
                k.load[computation.output_dtype(i)](initial[i], 0, n, &acc[i]);
            block.visit([&](const WindowBlock::Span& span) {
                note_work(8 * n * static_cast<int64_t>(computation.link_count() + count));
                for (size_t i = 0; i < count; ++i) block.load(k, span, i, elements[i]);
                computation.run_tile(k, operands.data(), n, results.data());
                for (size_t i = 0; i < count; ++i)
                    computation.copy_output(k, i, results[i], n, &next[i]);
                for (size_t i = 0; i < count; ++i) {
                    const int size = block.inner() * computed_bytes(computation.output_dtype(i));
                    auto* const to = reinterpret_cast<char*>(&acc[i]);
                    auto* const from = reinterpret_cast<char*>(&next[i]);
                    if (block.is_whole(span)) {
                        std::memcpy(to, from, static_cast<size_t>(block.places() * size));
                        continue;
                    }
                    const int bytes = (span.end - span.begin) * size;
                    block.for_pieces(span, i, [&](int row, const char*) {
                        const int begin = (row * block.row_places() + span.begin) * size;
                        std::memcpy(to + begin, from + begin, static_cast<size_t>(bytes));
                    });
                }
            });
            for (size_t i = 0; i < count; ++i) {
                const DType t = computation.output_dtype(i);
                k.store[t](&acc[i], n, outputs[i] + block.first() * storage_bytes(t));
            }
        }
    });
}

}  // namespace neuronsim
