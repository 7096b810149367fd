#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/workspace.h"
#include "reductions/order.h"
#include "reductions/sort.h"

namespace neuronsim {
namespace {

// What a line's keys have shown so far.
template <class Key>
struct Extreme {
    Key best{};
    int64_t place = -1;

    // `nan` is the key of a NaN, if there may be any and the smallest is looked for.
    void add(const Key* keys, int64_t n, int64_t first, bool largest, const Key* nan) {
        Key least = keys[0], most = keys[0];
        for (int64_t i = 1; i < n; ++i) {
            least = keys[i] < least ? keys[i] : least;
            most = keys[i] > most ? keys[i] : most;
        }
        if (place >= 0 && nan != nullptr && best == *nan) return;
        const bool has_nan = nan != nullptr && most == *nan;
        const Key found = largest || has_nan ? most : least;
        if (place >= 0 && !has_nan && (largest ? found <= best : found >= best)) return;
        best = found;
        place = first + (std::find(keys, keys + n, found) - keys);
    }
};

// Of lines side by side.
template <class Key>
void find_arguments(const ArgumentCall& c, const char* from, char* places) {
    constexpr int64_t block = 2048, size = sizeof(Key);
    constexpr Key nan = std::numeric_limits<Key>::max();
    const bool orders = is_float(c.input.dtype);
    const auto place_size = static_cast<size_t>(storage_bytes(c.places));
    const Axes& axes = c.input.axes;
    const int64_t all = axes_size(axes), length = axes_size(axes.part(c.kept, axes.size()));
    Key keys[block];
    Extreme<Key> seen;
    for (int64_t at = 0, n; at < all; at += n) {
        // Several lines, or a part of one.
        n = length <= block ? block / length * length : std::min(block, length - at % length);
        n = std::min(n, all - at);
        note_work(n);
        auto* const bytes = reinterpret_cast<char*>(keys);
        std::memcpy(bytes, from + at * size, n * size);
        if (orders) order_keys(c.input.dtype, bytes, n, bytes);
        if (c.input.dtype == DType::boolean)
            kernels().load[DType::boolean](bytes, 1, static_cast<int>(n), bytes);
        for (int64_t i = 0; i < n; i += length) {
            seen.add(keys + i, std::min(n, length), (at + i) % length, c.largest,
                     orders && !c.largest ? &nan : nullptr);
            if ((at + i + std::min(n, length)) % length != 0) continue;
            std::memcpy(places, &seen.place, place_size);  // little-endian
            places += place_size;
            seen = {};
        }
    }
}

}  // namespace

void ArgumentCall::run(char* const* data) const {
    const int64_t size = storage_bytes(input.dtype);
    const char* elements = data[0];
    if (!are_dense(collapsed(input.axes, size), size)) {
        auto* const copy = per_thread<Workspace>([] {}).get<char>(axes_size(input.axes) * size);
        run_copy(simplified(dense_copy(input.axes, size)), data[0], copy);
        elements = copy;
    }
    const bool is_unsigned = is_unsigned_integer(input.dtype) || input.dtype == DType::boolean;
    with_bits(input.dtype, [&](auto zero) {
        using Bits = decltype(zero);
        if (is_unsigned) find_arguments<Bits>(*this, elements, data[1]);
        else find_arguments<std::make_signed_t<Bits>>(*this, elements, data[1]);
    });
}

}  // namespace neuronsim
