#include "reductions/scatter.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "machine/dispatch.h"
#include "machine/fpenv.h"
#include "machine/interrupt.h"
#include "machine/workspace.h"

namespace neuronsim {
namespace {

constexpr int slot_count = 2 * tile_elements;

// Which places the updates of a batch have taken: an open-addressed table that a new batch empties by
// taking the next number.
class TakenPlaces {
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

void apply(const Kernels& k, const Chain& computation, const Batch& batch, char* const* updates,
           char* const* targets, Tile* tiles) {
    const size_t count = computation.output_count();
    std::vector<const void*> inputs, results(count);
    for (size_t i = 0; i < 2 * count; ++i) inputs.push_back(&tiles[i]);
    for (int at = 0, length; at < batch.n; at += length) {
        length = batch.run(at);
        for (size_t i = 0; i < count; ++i) {
            const DType t = computation.inputs()[i], u = computation.inputs()[count + i];
            char* element = reinterpret_cast<char*>(&tiles[i]);
            char* update = reinterpret_cast<char*>(&tiles[count + i]);
            const int size = storage_bytes(t), update_size = storage_bytes(u);
            k.load[t](targets[i] + batch.place[at] * size, size, length,
                      element + at * computed_bytes(t));
            k.load[u](updates[i] + batch.update[at] * update_size, update_size, length,
                      update + at * computed_bytes(u));
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

// Takes updates in their order, and applies them some at a time.
class Updates {
public:
    Updates(const Chain& computation, char* const* updates, char* const* targets)
        : k_(kernels()), computation_(computation), updates_(updates), targets_(targets) {
        if (computation.draws())
            throw std::invalid_argument("S2 has no words for stochastic rounding inside a scatter");
        if (s_.tiles.size() < 2 * count_) s_.tiles.resize(2 * count_);
        s_.taken.clear();
        s_.batch.n = 0;
    }
    void add(int64_t update, int64_t place) {
        Batch& batch = s_.batch;
        if (batch.n == tile_elements) finish();
        if (!s_.taken.take(place)) {
            finish();
            s_.taken.take(place);
        }
        batch.update[batch.n] = update;
        batch.place[batch.n++] = place;
    }
    void finish() {
        note_work((1 + s_.batch.n) * 4 * static_cast<int64_t>(computation_.link_count() + count_));
        if (s_.batch.n > 0) apply(k_, computation_, s_.batch, updates_, targets_, s_.tiles.data());
        s_.batch.n = 0;
        s_.taken.clear();
    }

private:
    struct Scratch {
        std::vector<Tile> tiles;
        TakenPlaces taken;
        Batch batch;
    };
    // On the heap: what every thread has from its start stays small.
    static Scratch& scratch() {
        auto& kept = per_thread<std::unique_ptr<Scratch>>([] {});
        if (kept == nullptr) kept = std::make_unique<Scratch>();
        return *kept;
    }
    const Kernels& k_;
    const Chain& computation_;
    char *const *updates_, *const *targets_;
    const size_t count_ = computation_.output_count();
    Scratch& s_ = scratch();
    const PinnedEnvironment pinned_;
};

// Whether all that a computation does is to take the updates.
bool assigns(const Chain& computation) {
    const size_t count = computation.output_count();
    for (size_t i = 0; i < count; ++i)
        if (computation.moved_input(i) != static_cast<int>(count + i)) return false;
    return true;
}

// What accumulates for a computation that is one reducer, on elements that are stored as they are
// computed with; or null.
AccumulateRows accumulates(const Chain& computation) {
    const DType type = computation.output_dtype(0);
    const int op =
        computation.output_count() == 1 && is_read_in_place(type) ? computation.sole_operation() : -1;
    return op < 0 ? nullptr : kernels().accumulate_rows[op][domain_of(type)];
}

// The rows of updates, of so many bytes, to their places, in units of `size` bytes; a place may be
// none.
template <int64_t Bytes>
void set_rows(char* target, const int64_t* places, int n, const char* updates, int64_t bytes,
              int64_t size) {
    if constexpr (Bytes != 0) bytes = Bytes;
    for (int i = 0; i < n; ++i, updates += bytes)
        if (places[i] != nowhere) std::memcpy(target + places[i] * size, updates, bytes);
}

// Calls body(places, how many, first update) for the rows of updates, some at a time; a place may be
// none.
template <class Body>
void for_rows(const Indexed& indexed, const char* indices, int64_t row, const Body& body) {
    constexpr int at_once = 256;
    int64_t places[at_once];
    const int64_t count = indexed.count();
    for (int64_t first = 0; first < count; first += at_once) {
        const int n = static_cast<int>(std::min<int64_t>(at_once, count - first));
        note_work(n * (2 + row));
        indexed.places(indices, first, n, false, places);
        body(places, n, first * row);
    }
}

}  // namespace

// Whether it sets one element of four bytes, as many loops do in each trip.
bool ScatterCall::is_one_word() const {
    return row == 1 && computation->output_count() == 1 && computation->moved_input(0) == 1 &&
           storage_bytes(computation->output_dtype(0)) == 4 && indexed.count() == 1;
}

void ScatterCall::run(char* const* data) const {
    const size_t count = computation->output_count();
    const char* const indices = data[0];
    char *const *const updates = data + 1, *const *const targets = updates + count;
    if (row == 0) return;
    if (is_one_word()) {
        int64_t place;
        indexed.places(indices, 0, 1, false, &place);
        if (place != nowhere) std::memcpy(targets[0] + 4 * place, updates[0], 4);
        return;
    }
    if (assigns(*computation)) {
        for_rows(indexed, indices, row, [&](const int64_t* places, int n, int64_t update) {
            for (size_t a = 0; a < count; ++a) {
                const int64_t size = storage_bytes(computation->output_dtype(a)), bytes = row * size;
                const auto set = bytes == 4 ? set_rows<4> : bytes == 8 ? set_rows<8> : set_rows<0>;
                set(targets[a], places, n, updates[a] + update * size, bytes, size);
            }
        });
        return;
    }
    if (const AccumulateRows accumulate = accumulates(*computation)) {
        const PinnedEnvironment pinned;
        const int64_t size = storage_bytes(computation->output_dtype(0));
        for_rows(indexed, indices, row, [&](const int64_t* places, int n, int64_t update) {
            accumulate(targets[0], places, n, updates[0] + update * size, row);
        });
        return;
    }
    Updates to(*computation, updates, targets);
    for_rows(indexed, indices, row, [&](const int64_t* places, int n, int64_t update) {
        for (int i = 0; i < n; ++i, update += row)
            for (int64_t j = 0; j < row && places[i] != nowhere; ++j) to.add(update + j, places[i] + j);
    });
    to.finish();
}

void SelectAndScatterCall::run(char* const* data) const {
    const int64_t count = element_count(windows.output_shape);
    auto* const places = per_thread<Workspace>([] {}).get<int64_t>(count);
    View view = input;
    view.data = data[0];
    select_windows(windows, *select, view, places);
    constexpr int64_t at_once = 256;
    if (const AccumulateRows accumulate = accumulates(*computation)) {
        const PinnedEnvironment pinned;
        const int64_t size = storage_bytes(computation->output_dtype(0));
        for (int64_t first = 0; first < count; first += at_once) {
            const int n = static_cast<int>(std::min(at_once, count - first));
            note_work(n);
            accumulate(data[2], places + first, n, data[1] + first * size, 1);
        }
        return;
    }
    Updates to(*computation, data + 1, data + 2);
    Notes notes;
    for (int64_t i = 0; i < count; ++i) {
        notes.add(1);
        if (places[i] != nowhere) to.add(i, places[i]);
    }
    to.finish();
}

}  // namespace neuronsim
