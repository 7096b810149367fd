#include "reductions/choose.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "machine/dispatch.h"
#include "machine/fpenv.h"
#include "machine/interrupt.h"
#include "machine/pool.h"

namespace neuronsim {
namespace {

template <class T>
int compared(T x, T y) {
    if (x < y) return 0;
    if (x == y) return 1;
    if (x > y) return 2;
    return x != x ? (y != y ? 5 : 3) : 4;
}

// Calls body with an element of the type in which elements of t are computed with.
template <class Body>
auto with_element(DType t, const Body& body) {
    switch (domain_of(t)) {
        case Domain::int8:
            return body(int8_t{});
        case Domain::uint8:
            return body(uint8_t{});
        case Domain::int32:
            return body(int32_t{});
        case Domain::uint32:
            return body(uint32_t{});
        case Domain::int64:
            return body(int64_t{});
        case Domain::uint64:
            return body(uint64_t{});
        default:
            return body(float{});
    }
}

// One element in storage, as it is computed with.
template <class T>
T element(const Kernels& k, DType t, const char* at) {
    T x;
    k.load[t](at, 0, 1, &x);
    return x;
}

// The pairs of one output; what is chosen moves as it is stored.
template <class T, class I>
void fold_one(const ChooseCall& c, const Kernels& k, char* const* data, int64_t output) {
    constexpr int64_t block = 64;
    const DType tx = c.values.dtype, ti = c.indices.dtype;
    const char *chosen_x = data[2], *chosen_i = data[3];
    T value = element<T>(k, tx, chosen_x);
    I index = element<I>(k, ti, chosen_i);
    const Axes &x_axes = c.values.axes, &i_axes = c.indices.axes;
    const size_t kept = static_cast<size_t>(c.kept), rank = x_axes.size();
    const char* const x = data[0] + axes_offset(x_axes.part(0, kept), output);
    const char* const i = data[1] + axes_offset(i_axes.part(0, kept), output);
    const bool is_one = rank == kept;  // pair
    const size_t last = is_one ? rank : rank - 1;
    const int64_t n = is_one ? 1 : x_axes.back().size;
    const int64_t sx = is_one ? 0 : x_axes.back().stride, si = is_one ? 0 : i_axes.back().stride;
    const int64_t rows = axes_size(x_axes.part(kept, last));
    T xs[block];
    I is[block];
    for (int64_t row = 0; row < rows; ++row) {
        const char* const px = x + axes_offset(x_axes.part(kept, last), row);
        const char* const pi = i + axes_offset(i_axes.part(kept, last), row);
        for (int64_t at = 0; at < n; at += block) {
            const int count = static_cast<int>(std::min<int64_t>(block, n - at));
            note_work(2 * count);
            k.load[tx](px + at * sx, sx, count, xs);
            k.load[ti](pi + at * si, si, count, is);
            for (int e = 0; e < count; ++e) {
                const uint8_t takes =
                    c.choice.takes[3 * compared(value, xs[e]) + compared(index, is[e])];
                if (takes & 1) value = xs[e], chosen_x = px + (at + e) * sx;
                if (takes & 2) index = is[e], chosen_i = pi + (at + e) * si;
            }
        }
    }
    const int64_t x_size = storage_bytes(tx), i_size = storage_bytes(ti);
    std::memcpy(data[4] + output * x_size, chosen_x, x_size);
    std::memcpy(data[5] + output * i_size, chosen_i, i_size);
}

// Of n outputs from `begin` on, side by side: they lie a constant distance apart in the arrays.
constexpr int64_t most_lanes = 128;
void fold_lanes(const ChooseCall& c, const Kernels& k, ChooseKernel choose, const ChoiceMasks& masks,
                char* const* data, int64_t begin, int n) {
    const DType x_type = c.values.dtype, i_type = c.indices.dtype;
    uint32_t x[most_lanes], y[most_lanes], i[most_lanes], j[most_lanes];
    k.load[x_type](data[2], 0, n, x);
    k.load[i_type](data[3], 0, n, i);
    const Axes &x_axes = c.values.axes, &i_axes = c.indices.axes;
    const size_t kept = static_cast<size_t>(c.kept), rank = x_axes.size();
    const int64_t depth = axes_size(x_axes.part(kept, rank));
    const int64_t x_step = x_axes[kept - 1].stride, i_step = i_axes[kept - 1].stride;
    const char* const px = data[0] + axes_offset(x_axes.part(0, kept), begin);
    const char* const pi = data[1] + axes_offset(i_axes.part(0, kept), begin);
    for (int64_t at = 0; at < depth; ++at) {
        note_work(4 * n);
        k.load[x_type](px + axes_offset(x_axes.part(kept, rank), at), x_step, n, y);
        k.load[i_type](pi + axes_offset(i_axes.part(kept, rank), at), i_step, n, j);
        choose(masks, y, j, n, x, i);
    }
    k.store[x_type](x, n, data[4] + begin * storage_bytes(x_type));
    k.store[i_type](i, n, data[5] + begin * storage_bytes(i_type));
}

ChoiceMasks masks_of(const Choice& choice) {
    const auto mask = [](bool on) { return on ? ~0u : 0u; };
    ChoiceMasks masks;
    for (size_t r = 0; r < choice.takes.size(); ++r) {
        masks.value[r / 3][r % 3] = mask(choice.takes[r] & 1);
        masks.index[r / 3][r % 3] = mask(choice.takes[r] & 2);
    }
    masks.is_simple = true;
    for (const int r : {0, 2, 3, 4})
        for (int i = 0; i < 3; ++i)
            masks.is_simple = masks.is_simple && masks.value[r][i] == masks.value[r][0] &&
                              masks.index[r][i] == masks.value[r][0];
    return masks;
}

}  // namespace

std::optional<Choice> Choice::of(const Chain& computation) {
    const std::vector<DType>& types = computation.inputs();
    const bool is_pair = types.size() == 4 && types[0] == types[2] && types[1] == types[3] &&
                         computation.output_count() == 2 && computation.output_dtype(0) == types[0] &&
                         computation.output_dtype(1) == types[1] && types[0] != DType::float64 &&
                         is_integer(types[1]);
    if (!is_pair || !computation.only_chooses()) return {};
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float values[6][2] = {{1, 2}, {1, 1}, {2, 1}, {nan, 1}, {1, nan}, {nan, nan}};
    // Of equal bools an operation may tell two pairs apart.
    constexpr float bools[4][2] = {{0, 1}, {0, 0}, {1, 0}, {1, 1}};
    constexpr float indices[3][2] = {{1, 2}, {1, 1}, {2, 1}};
    Choice found{};
    const Kernels& k = kernels();
    const PinnedEnvironment pinned;
    const bool is_bool = types[0] == DType::boolean;
    const size_t relations = is_device_float(types[0]) ? 6 : is_bool ? 4 : 3;
    for (size_t x = 0; x < relations; ++x)
        for (size_t i = 0; i < 3; ++i) {
            const std::unique_ptr<Tile[]> tiles(new Tile[4]);
            for (size_t side = 0; side < 2; ++side) {
                const auto set = [&](DType t, float number, Tile& tile) {
                    with_element(t, [&](auto zero) {
                        const auto element = static_cast<decltype(zero)>(number);
                        std::memcpy(&tile, &element, sizeof element);
                    });
                };
                set(types[0], (is_bool ? bools : values)[x][side], tiles[2 * side]);
                set(types[1], indices[i][side], tiles[2 * side + 1]);
            }
            const void* inputs[4] = {&tiles[0], &tiles[1], &tiles[2], &tiles[3]};
            const std::vector<int> chosen = computation.chosen(k, inputs);
            if (chosen[0] % 2 != 0 || chosen[1] % 2 != 1) return {};
            const auto takes =
                static_cast<uint8_t>((chosen[0] == 2 ? 1 : 0) | (chosen[1] == 3 ? 2 : 0));
            if (is_bool && x == 3 && takes != found.takes[3 + i]) return {};
            if (!is_bool || x < 3) found.takes[3 * x + i] = takes;
        }
    return found;
}

void ChooseCall::run(char* const* data) const {
    const Kernels& k = kernels();
    const Axes& axes = values.axes;
    const int64_t count = axes_size(axes.part(0, kept)),
                  depth = axes_size(axes) / std::max<int64_t>(count, 1);
    const int64_t row = kept == 0 ? 1 : axes[kept - 1].size;  // of outputs
    const ChooseKernel choose = k.choose[domain_of(values.dtype)][domain_of(indices.dtype)];
    const ChoiceMasks masks = masks_of(choice);
    with_element(values.dtype, [&](auto x) {
        with_element(indices.dtype, [&](auto i) {
            const auto body = [&](int64_t begin, int64_t end) {
                for (int64_t at = begin, n; at < end; at += n) {
                    n = std::min({most_lanes, end - at, row - at % row});
                    // Few outputs, or wide elements, one by one.
                    constexpr int64_t few = 4;
                    if (n >= few && choose != nullptr) {
                        fold_lanes(*this, k, choose, masks, data, at, static_cast<int>(n));
                    } else {
                        fold_one<decltype(x), decltype(i)>(*this, k, data, at);
                        n = 1;
                    }
                }
            };
            constexpr int64_t pairs_per_grain = 1 << 13;
            parallel_for(count, std::max<int64_t>(1, pairs_per_grain / std::max<int64_t>(depth, 1)),
                         body);
        });
    });
}

}  // namespace neuronsim
