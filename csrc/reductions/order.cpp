#include "reductions/order.h"

#include <algorithm>
#include <type_traits>

#include "machine/interrupt.h"
#include "machine/pool.h"

namespace neuronsim {
namespace {

template <class Word>
void keys_of(DType dtype, const char* floats, int64_t n, char* keys) {
    const bool is_device = is_device_float(dtype);
    const Format& f = formats[is_device ? static_cast<int>(dtype) : 0];
    constexpr int sign = 8 * sizeof(Word) - 1;
    constexpr Word largest = static_cast<Word>(~(uint64_t{1} << sign));
    const auto infinity = static_cast<Word>(is_device ? ((uint64_t{1} << f.exponent_bits) - 1)
                                                            << (f.mantissa_bits + storage_shift(f))
                                                      : uint64_t{0x7FF} << 52);
    const auto nan = static_cast<Word>(f.nan_bits);
    const bool has_inf = !is_device || f.has_inf;
    for (int64_t i = 0; i < n; ++i) {
        Word word;
        std::memcpy(&word, floats + i * static_cast<int64_t>(sizeof word), sizeof word);
        const auto magnitude = static_cast<Word>(word & largest);
        const bool is_nan = has_inf ? magnitude > infinity : magnitude == nan;
        Word key = word < 0 ? static_cast<Word>(word ^ largest) : word;
        if (magnitude == 0) key = 0;
        if (is_nan) key = largest;
        std::memcpy(keys + i * static_cast<int64_t>(sizeof key), &key, sizeof key);
    }
}

}  // namespace

DType integer_of(DType t) {
    constexpr DType integers[] = {DType::int8, DType::int16, DType::int32, DType::int64};
    return integers[__builtin_ctz(static_cast<unsigned>(storage_bytes(t)))];
}

void order_keys(DType dtype, const char* floats, int64_t n, char* keys) {
    constexpr int64_t together = 1 << 16;
    const int64_t size = storage_bytes(dtype);
    with_bits(dtype, [&](auto zero) {
        using Word = std::make_signed_t<decltype(zero)>;
        parallel_for(n, together, [&](int64_t begin, int64_t end) {
            for (int64_t at = begin; at < end; at += together) {
                const int64_t count = std::min(together, end - at);
                note_work(count);
                keys_of<Word>(dtype, floats + at * size, count, keys + at * size);
            }
        });
    });
}

}  // namespace neuronsim
