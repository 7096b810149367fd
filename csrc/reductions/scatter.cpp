#include "reductions/scatter.h"

#include <memory>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/fpenv.h"
#include "machine/interrupt.h"

namespace neuronsim {
namespace {

constexpr int slot_count = 2 * tile_elements;

// Which places the updates of a batch have taken: an open-addressed table that a new batch empties by
// taking the next number.
class Places {
public:
    void clear() { ++batch_; }

    // Whether the place was free.
    bool take(int64_t place) {
        uint64_t at = static_cast<uint64_t>(place) * 0x9E3779B97F4A7C15u >> 54;
        static_assert(slot_count == 1 << 10);
        while (slots_[at].batch == batch_) {
            if (slots_[at].place == place) return false;
            at = (at + 1) % slot_count;
        }
        slots_[at] = {place, batch_};
        return true;
    }

private:
    struct Slot {
        int64_t place, batch;
    };
    Slot slots_[slot_count] = {};
    int64_t batch_ = 0;
};

// Updates at distinct places, so that their order does not matter.
struct Batch {
    int n = 0;
    int64_t update[tile_elements], place[tile_elements];

    // How many from `at` on lie side by side in both arrays.
    int run(int at) const {
        int length = 1;
        while (at + length < n && update[at + length] == update[at] + length &&
               place[at + length] == place[at] + length)
            ++length;
        return length;
    }
};

void apply(const Kernels& k, const Chain& computation, const Batch& batch,
           const std::vector<const char*>& updates, const std::vector<char*>& targets, Tile* tiles) {
    const size_t count = targets.size();
    std::vector<const void*> inputs, results(count);
    for (size_t i = 0; i < 2 * count; ++i) inputs.push_back(&tiles[i]);
    for (int at = 0, length; at < batch.n; at += length) {
        length = batch.run(at);
        for (size_t i = 0; i < count; ++i) {
            const DType t = computation.inputs()[i], u = computation.inputs()[count + i];
            char* element = reinterpret_cast<char*>(&tiles[i]);
            char* update = reinterpret_cast<char*>(&tiles[count + i]);
            const int size = storage_bytes(t), update_size = storage_bytes(u);
            k.load[static_cast<int>(t)](targets[i] + batch.place[at] * size, size, length,
                                        element + at * computed_bytes(t));
            k.load[static_cast<int>(u)](updates[i] + batch.update[at] * update_size, update_size,
                                        length, update + at * computed_bytes(u));
        }
    }
    computation.run_tile(k, inputs.data(), batch.n, results.data());
    for (int at = 0, length; at < batch.n; at += length) {
        length = batch.run(at);
        for (size_t i = 0; i < count; ++i) {
            const DType t = computation.inputs()[i];
            const auto* result = static_cast<const char*>(results[i]);
            computation.output_store(k, i)(result + at * computed_bytes(t), length,
                                           targets[i] + batch.place[at] * storage_bytes(t));
        }
    }
}

}  // namespace

void scatter(const Chain& computation, int64_t count, const int64_t* places,
             const std::vector<const char*>& updates, const std::vector<char*>& targets) {
    if (computation.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a scatter");
    const PinnedEnvironment pinned;
    const Kernels& k = kernels();
    const std::unique_ptr<Tile[]> tiles(new Tile[2 * targets.size()]);
    const std::unique_ptr<Places> taken(new Places);
    const std::unique_ptr<Batch> batch(new Batch);
    taken->clear();
    Notes notes;
    const int64_t steps = 4 * static_cast<int64_t>(computation.link_count() + targets.size());
    const auto finish = [&] {
        notes.add((1 + batch->n) * steps);
        if (batch->n > 0) apply(k, computation, *batch, updates, targets, tiles.get());
        batch->n = 0;
        taken->clear();
    };
    for (int64_t i = 0; i < count; ++i) {
        notes.add(1);
        if (places[i] < 0) continue;
        if (batch->n == tile_elements) finish();
        if (!taken->take(places[i])) {
            finish();
            taken->take(places[i]);
        }
        batch->update[batch->n] = i;
        batch->place[batch->n++] = places[i];
    }
    finish();
}

}  // namespace neuronsim
