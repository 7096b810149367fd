#include <algorithm>

#include "elementwise/chain.h"
#include "functions/function_table.h"
#include "machine/dispatch.h"
#include "machine/fpenv.h"
#include "machine/interrupt.h"
#include "machine/pool.h"

namespace neuronsim {
namespace {

// So small a chain has its values on the stack: loops have many of them.
constexpr int few_elements = 16, few_registers = 32;
constexpr size_t few_values = 320;
constexpr int64_t memory_block = 8 * tile_elements;
constexpr int64_t look_up_grain = int64_t{1} << 16;

// Tiles of a chain, apart so that the same elements of two do not fall on one place of the first cache.
class Tiles {
public:
    void reserve(int count) {
        const size_t lines = static_cast<size_t>(count) * pitch;
        if (words_.size() < lines) words_.resize(lines);
    }
    Tile* at(int index) { return reinterpret_cast<Tile*>(&words_[static_cast<size_t>(index) * pitch]); }

private:
    struct alignas(64) Line {
        char bytes[64];
    };
    static constexpr size_t pitch = sizeof(Tile) / sizeof(Line) + 33;
    std::vector<Line> words_;
};

// How many elements lie before the first that begins a cache line.
int64_t elements_to_line(const char* data, int size) {
    constexpr uintptr_t line = 64;
    return static_cast<int64_t>((line - reinterpret_cast<uintptr_t>(data) % line) % line) / size;
}

// Lets every value lie where it does if it is not in memory. Nothing writes to a constant.
void place_in(const ChainPlan& p, Tiles& tiles, void** place) {
    for (size_t v = 0; v < p.dtypes.size(); ++v) place[v] = tiles.at(p.registers[v]);
    for (const auto& [v, tile] : p.fixed) place[v] = const_cast<Tile*>(tile);
}

// Where every value lies in the thread's own tiles, until its next call.
void** thread_places(const ChainPlan& p) {
    struct Kept {
        Tiles tiles;
        std::vector<void*> place;
    };
    auto& [tiles, place] = per_thread<Kept>([] {});
    tiles.reserve(p.register_count);
    if (place.size() < p.dtypes.size()) place.resize(p.dtypes.size());
    place_in(p, tiles, place.data());
    return place.data();
}

// The elements [begin, end) block by block. `input(i, at, n, tile)` gives the place of n elements of an
// input, in memory or loaded into the tile.
template <class Input>
void run_blocks(const Kernels& k, const ChainPlan& p, int64_t begin, int64_t end, const Input& input,
                char* const* outputs, const Draws& draws, int64_t block_elements, Observed* observed) {
    const size_t input_count = p.inputs.size();
    // Kept from run to run, since small arrays feel every allocation.
    struct Kept {
        Tiles tiles;
        std::vector<void*> in_tiles, place;
        std::vector<char> is_stored;  // outputs that their links do not write themselves
        std::vector<Observed> seen;
    };
    auto& [tiles, in_tiles, place, is_stored, seen] = per_thread<Kept>([] {});
    if (observed != nullptr) seen.assign(p.links.size(), {});
    tiles.reserve(p.register_count);
    in_tiles.resize(p.dtypes.size());
    place_in(p, tiles, in_tiles.data());
    is_stored.assign(p.outputs.size(), true);
    for (size_t o = 0; o < p.outputs.size(); ++o) {
        const auto here = p.outputs.begin() + static_cast<ptrdiff_t>(o);
        // An output may lie where an input did, which what is observed is compared with.
        const bool is_ready = observed == nullptr && p.writes_itself(o, outputs[o]);
        if (is_ready && std::find(p.outputs.begin(), here, *here) == here) is_stored[o] = false;
    }
    // A short first block lets the others' stores begin with a cache line.
    const int64_t lead = elements_to_line(outputs[0], storage_bytes(p.output_dtype(0)));
    // Blocks are too short to be noted one by one (measured: 3 % of an addition from the cache).
    const int64_t operations = block_elements * static_cast<int64_t>(1 + p.links.size());
    const int64_t noted_together = std::max<int64_t>(1, (int64_t{1} << 14) / operations);
    int64_t unnoted = noted_together;
    int n = 0;
    for (int64_t at = begin; at < end; at += n) {
        const int64_t block = at == begin && lead > 0 ? lead : block_elements;
        n = static_cast<int>(std::min(end - at, block));
        if (--unnoted == 0) {
            note_work(noted_together * operations);
            unnoted = noted_together;
        }
        place = in_tiles;
        for (size_t o = 0; o < p.outputs.size(); ++o)
            if (!is_stored[o]) place[p.outputs[o]] = outputs[o] + at * storage_bytes(p.output_dtype(o));
        for (size_t i = 0; i < input_count; ++i)
            place[i] = const_cast<void*>(input(i, at, n, place[i]));
        run_links(k, p, place.data(), n, draws, at, observed == nullptr ? nullptr : seen.data());
        for (size_t o = 0; o < p.outputs.size(); ++o) {
            if (!is_stored[o]) continue;
            const int v = p.outputs[o];
            p.store(k, v)(place[v], n, outputs[o] + at * storage_bytes(p.dtypes[v]));
        }
    }
    if (observed != nullptr) add_observed(seen.data(), static_cast<int64_t>(seen.size()), observed);
}

// Loads what is not used in memory to its place, and stores what does not lie in memory.
template <class Input>
[[gnu::always_inline]] inline void run_in(const Kernels& k, const ChainPlan& p, int n,
                                          const Input& input, char* const* outputs, void** place) {
    for (size_t i = 0; i < p.inputs.size(); ++i) place[i] = const_cast<void*>(input(i, 0, n, place[i]));
    // A link writes an output itself where that is stored as it is computed.
    for (size_t o = 0; o < p.outputs.size(); ++o) {
        if (p.writes_itself(o, outputs[o])) place[p.outputs[o]] = outputs[o];
    }
    run_steps(k, p, place, n);
    for (size_t o = 0; o < p.outputs.size(); ++o) {
        const int v = p.outputs[o];
        if (place[v] != outputs[o]) p.store(k, v)(place[v], n, outputs[o]);
    }
}

// At most a tile of elements, without observing: small arrays feel every step around the links.
template <class Input>
[[gnu::always_inline]] inline void run_few(const Kernels& k, const ChainPlan& p, int n,
                                           const Input& input, char* const* outputs) {
    if (n <= few_elements && p.register_count <= few_registers && p.dtypes.size() <= few_values) {
        constexpr int pitch = few_elements * sizeof(uint64_t);
        alignas(Tile) char values[few_registers * pitch];
        void* place[few_values];
        for (size_t v = 0; v < p.dtypes.size(); ++v) place[v] = values + p.registers[v] * pitch;
        for (const auto& [v, tile] : p.fixed) place[v] = const_cast<Tile*>(tile);
        return run_in(k, p, n, input, outputs, place);
    }
    note_work(n * static_cast<int64_t>(1 + p.links.size()));
    run_in(k, p, n, input, outputs, thread_places(p));
}

// Whether n elements are worth the turns of several threads, or waking them.
bool is_shared(const ChainPlan& p, int64_t n) {
    constexpr int64_t worth_waking = 8;
    return n > p.grain && (n > worth_waking * p.grain || workers_are_awake());
}

// Whether elements at `data`, side by side, are read there.
bool is_read_at(DType t, const char* data) {
    return is_read_in_place(t) &&
           reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(storage_bytes(t)) == 0;
}

// The elements at `data`, side by side in memory: used there if they lie as they are computed with.
[[gnu::always_inline]] inline const void* dense_input(const Kernels& k, DType t, const char* data,
                                                      int n, void* tile) {
    const int size = storage_bytes(t);
    // The processor's own prefetching stops where so short a block ends: ask for the next one
    // (measured: half the time of an addition from memory; longer blocks lose by it).
    constexpr int line = 64;
    if (n == tile_elements)
        for (int i = 0; i < n * size; i += line) __builtin_prefetch(data + n * size + i);
    if (is_read_at(t, data)) return data;
    k.load[t](data, size, n, tile);
    return tile;
}

// Whether the one operation goes from memory to memory. No tile holds a value then, so that a block may
// be longer.
bool operates_in_memory(const ChainPlan& p, const Layout* layout, const char* const* inputs,
                        char* const* outputs) {
    if (p.links.size() != 1 || p.links[0].way != Way::operates || p.links[0].round >= 0 ||
        !p.writes_itself(0, outputs[0]))
        return false;
    for (size_t i = 0; i < p.inputs.size(); ++i)
        if ((layout != nullptr && !layout->is_dense[i]) || !is_read_at(p.inputs[i], inputs[i]))
            return false;
    return true;
}

// Whether a value is an input that has an element for each column of the rows.
bool lies_along(const ChainPlan& p, const Layout* layout, int value) {
    return value != JoinedLink::itself && p.link_of(value) == nullptr &&
           (layout == nullptr || layout->rows[value].along);
}

// Whether the sole joining may run from memory to memory, without tiles. Inputs without a layout lie
// side by side.
bool joins_in_memory(const ChainPlan& p, const Layout* layout, const char* const* inputs,
                     char* const* outputs) {
    constexpr int64_t least_columns = 32;  // what tiles take longer for (measured)
    if (p.sole_joining < 0 || (p.output_dtype(0) == DType::float32 && !p.writes_itself(0, outputs[0])))
        return false;
    for (size_t i = 0; i < p.inputs.size(); ++i)
        if (reinterpret_cast<uintptr_t>(inputs[i]) % sizeof(float) != 0) return false;
    if (layout != nullptr && (layout->rows.size() != p.inputs.size() ||
                              layout->columns < std::min(layout->count, least_columns)))
        return false;
    const Joining& joining = p.links[p.sole_joining].joining;
    return lies_along(p, layout, joining.first) || lies_along(p, layout, joining.links[0].value);
}

// Its elements [begin, end).
void join_in_memory(const ChainPlan& p, const Layout* layout, int64_t begin, int64_t end,
                    const char* const* inputs, char* output) {
    constexpr int64_t size = sizeof(float), narrow_elements = 1024, float_elements = 4096;
    const Kernels& k = kernels();
    const DType type = p.output_dtype(0);
    const bool is_narrow = type != DType::float32;
    const int64_t together = is_narrow ? narrow_elements : float_elements;
    alignas(64) float sums[narrow_elements];
    const Joining& joining = p.links[p.sole_joining].joining;
    const int64_t columns = layout == nullptr ? end : layout->columns;
    // Where the value that links begin with does not lie along the rows, the first link's other operand
    // does, and they begin with that.
    const bool turns = !lies_along(p, layout, joining.first);
    const int begins_with = turns ? joining.links[0].value : joining.first;
    for (int64_t at = begin, n = 0; at < end; at += n) {
        const int64_t row = at / columns, column = at % columns;
        const int64_t width = std::min({columns - column, end - at, together});
        const int64_t rows =
            width < columns ? 1
                            : std::min((end - at) / columns, std::max<int64_t>(1, together / columns));
        n = rows * width;
        note_work(n * static_cast<int64_t>(1 + joining.links.size()));
        const auto term = [&](int value) -> JoinedTerm {
            if (value == JoinedLink::itself) return {{}, false, nullptr, 0};
            if (const Tile* const tile = p.constant(value)) return {{}, false, tile->f32, 0, false};
            const Layout::Rows lie = layout == nullptr ? Layout::Rows{0, true} : layout->rows[value];
            const char* const from = inputs[value] + row * lie.stride + (lie.along ? column * size : 0);
            return {{}, false, reinterpret_cast<const float*>(from), lie.stride / size, lie.along};
        };
        JoinedTerm terms[max_joined];
        int count = 0;
        for (const JoinedLink& joined : joining.links) {
            const bool is_turned = turns && count == 0;
            JoinedTerm& t = terms[count++] = term(is_turned ? joining.first : joined.value);
            t.op = static_cast<Op>(joined.op);
            t.comes_first = joined.comes_first != is_turned;
        }
        const JoinedTerm first = term(begins_with);
        char* const to = output + at * storage_bytes(type);
        k.join_terms(const_cast<float*>(first.data), first.row, static_cast<int>(rows),
                     static_cast<int>(width), terms, count,
                     is_narrow ? reinterpret_cast<char*>(sums) : to, width * size);
        if (is_narrow)
            k.store_rows[type](sums, width, static_cast<int>(rows), static_cast<int>(width), to,
                               width * storage_bytes(type));
    }
}

template <class Input>
void run_over(const ChainPlan& p, int64_t n, const Layout* layout, const Input& input,
              const char* const* inputs, char* const* outputs, const Draws& draws, Observed* observed) {
    const Kernels& k = kernels();
    const bool is_plain = observed == nullptr && draws.ids == nullptr;
    const int64_t block = !is_plain                                        ? tile_elements
                          : operates_in_memory(p, layout, inputs, outputs) ? memory_block
                                                                           : p.block_elements;
    const bool joins = observed == nullptr && joins_in_memory(p, layout, inputs, outputs);
    const auto body = [&](int64_t begin, int64_t end) {
        if (joins) return join_in_memory(p, layout, begin, end, inputs, outputs[0]);
        run_blocks(k, p, begin, end, input, outputs, draws, block, observed);
    };
    if (is_shared(p, n)) return parallel_for(n, p.grain, body);
    const PinnedEnvironment pinned;
    if (n <= tile_elements && is_plain) return run_few(k, p, static_cast<int>(n), input, outputs);
    body(0, n);
}

}  // namespace

void Chain::run_dense(int64_t n, const char* const* inputs, char* const* outputs, const Draws& draws,
                      Observed* observed) const {
    const Kernels& k = kernels();
    const int size = storage_bytes(output_dtype(0));
    const bool only_looks_up = p_.links.size() == 1 && p_.links[0].looks_up && p_.inputs.size() == 1 &&
                               p_.outputs == std::vector<int>{1};
    if (only_looks_up && observed == nullptr)
        return parallel_for(n, look_up_grain, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += look_up_grain) {
                note_work(look_up_grain);
                look_up(p_.links[0].op, output_dtype(0), inputs[0] + at * size,
                        std::min(look_up_grain, end - at), outputs[0] + at * size);
            }
        });
    const auto input = [&](size_t i, int64_t at, int count, void* tile) -> const void* {
        return dense_input(k, p_.inputs[i], inputs[i] + at * storage_bytes(p_.inputs[i]), count, tile);
    };
    run_over(p_, n, nullptr, input, inputs, outputs, draws, observed);
}

void Chain::run_laid_out(const Layout& layout, const char* const* inputs, char* const* outputs,
                         const Draws& draws, Observed* observed) const {
    if (layout.count == 0) return;
    if (p_.inputs.size() == 1 && layout.is_dense[0] && p_.outputs.size() == 1 && draws.ids == nullptr)
        return run_dense(layout.count, inputs, outputs, {}, observed);
    const Kernels& k = kernels();
    const auto input = [&](size_t i, int64_t at, int n, void* tile) -> const void* {
        const View& view = layout.views[i];
        if (layout.is_dense[i])
            return dense_input(k, view.dtype, inputs[i] + at * storage_bytes(view.dtype), n, tile);
        load_run(k, view, inputs[i], at, n, tile);
        return tile;
    };
    run_over(p_, layout.count, &layout, input, inputs, outputs, draws, observed);
}

void Chain::observe_only(const Layout& layout, const char* data, Observed* observed) const {
    const Kernels& k = kernels();
    const View& input = layout.views[0];
    const int64_t size = storage_bytes(input.dtype);
    parallel_for(layout.count, p_.grain, [&](int64_t begin, int64_t end) {
        auto& tile = per_thread<Tile>([] {});
        auto& seen = per_thread<std::vector<Observed>>([] {});
        auto& outputs = per_thread<std::vector<const void*>>([] {});
        seen.assign(p_.links.size(), {});
        outputs.resize(p_.outputs.size());
        for (int64_t at = begin; at < end; at += tile_elements) {
            const int n = static_cast<int>(std::min<int64_t>(end - at, tile_elements));
            note_work(n * static_cast<int64_t>(1 + p_.links.size()));
            const void* values = &tile;
            if (layout.is_dense[0]) values = dense_input(k, input.dtype, data + at * size, n, &tile);
            else load_run(k, input, data, at, n, &tile);
            run_tile(k, &values, n, outputs.data(), seen.data());
        }
        add_observed(seen.data(), static_cast<int64_t>(seen.size()), observed);
    });
}

void Chain::run_tile(const Kernels& k, const void* const* inputs, int n, const void** outputs,
                     Observed* observed) const {
    void** const place = thread_places(p_);
    for (size_t v = 0; v < p_.inputs.size(); ++v) place[v] = const_cast<void*>(inputs[v]);
    run_links(k, p_, place, n, {}, 0, observed);
    for (size_t i = 0; i < p_.outputs.size(); ++i) outputs[i] = place[p_.outputs[i]];
}

}  // namespace neuronsim
