#include "functions/function_table.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "machine/dispatch.h"
#include "machine/fpenv.h"

namespace neuronsim {
namespace {

std::atomic<const char*> tables[op_count][format_count];  // kept for good

template <class Word>
std::unique_ptr<char[]> build(int op, DType type) {
    constexpr int encodings = 1 << (8 * sizeof(Word));
    const Kernels& k = kernels();
    const PinnedEnvironment pinned;
    auto table = std::make_unique<char[]>(encodings * sizeof(Word));
    Word words[tile_elements];
    Tile x, y;
    for (int begin = 0; begin < encodings; begin += tile_elements) {
        const int n = std::min(encodings - begin, tile_elements);
        for (int i = 0; i < n; ++i) words[i] = static_cast<Word>(begin + i);
        k.load[type](reinterpret_cast<const char*>(words), sizeof(Word), n, &x);
        const void* operands[] = {&x};
        k.op[op][Domain::float32](&y, operands, n, 8 * sizeof(Word));
        k.store_quiet[type](&y, n, table.get() + begin * sizeof(Word));
    }
    return table;
}

// Without a lock, which a fork could leave taken: of several builders of a table the first one's is
// kept.
const char* table_of(int op, DType type) {
    std::atomic<const char*>& slot = tables[op][static_cast<int>(type)];
    if (const char* found = slot.load(std::memory_order_acquire)) return found;
    auto built = storage_bytes(type) == 2 ? build<uint16_t>(op, type) : build<uint8_t>(op, type);
    const char* found = nullptr;
    if (slot.compare_exchange_strong(found, built.get(), std::memory_order_acq_rel,
                                     std::memory_order_acquire))
        return built.release();
    return found;
}

// As many results at a time as one 64-bit word holds.
template <class Word>
void look_up_words(const char* table, const char* in, int64_t n, char* out) {
    constexpr int bits = 8 * sizeof(Word), packed = 64 / bits;
    const Word* const results = reinterpret_cast<const Word*>(table);
    int64_t i = 0;
    for (; i + packed <= n; i += packed) {
        uint64_t x, y = 0;
        __builtin_memcpy(&x, in + i * sizeof(Word), sizeof x);
        for (int j = 0; j < packed; ++j)
            y |= static_cast<uint64_t>(results[static_cast<Word>(x >> (j * bits))]) << (j * bits);
        __builtin_memcpy(out + i * sizeof(Word), &y, sizeof y);
    }
    for (; i < n; ++i) {
        Word x;
        __builtin_memcpy(&x, in + i * sizeof(Word), sizeof x);
        __builtin_memcpy(out + i * sizeof(Word), results + x, sizeof x);
    }
}

}  // namespace

void look_up(int op, DType type, const char* in, int64_t n, char* out) {
    const char* const table = table_of(op, type);
    if (storage_bytes(type) == 2) look_up_words<uint16_t>(table, in, n, out);
    else look_up_words<uint8_t>(table, in, n, out);
}

}  // namespace neuronsim
