#include <algorithm>
#include <cstdlib>

#include "movement/copy.h"
#include "products/convolution/convolver.h"

namespace neuronsim {
namespace {

// What is left out pays for the phases' own products and for reading the weights once more.
constexpr int64_t most_phases = 64, most_positions = 1 << 12, least_rows = 64;
constexpr int64_t least_work = 1 << 14;  // multiply-adds of a phase

// The outputs along a dimension that read elements at the same positions of the window, while the
// others of these lie in holes: every `step`-th from `output` on, at every `step`-th position from
// `position` on. Between elements without holes they are a convolution of their own.
struct Phase {
    int64_t step, output, outputs, position, window, padding_low;
};

Phase phase_of(const ConvolutionAxis& s, int64_t output) {
    const int64_t step = s.base_dilation;
    if (step == 1) return {1, 0, s.output, 0, s.window, s.padding_low};
    const int64_t position = ((s.padding_low - output) % step + step) % step;
    return {step,
            output,
            ceil_divide(s.output - output, step),
            position,
            s.window > position ? ceil_divide(s.window - position, step) : 0,
            (s.padding_low - output - position) / step};
}

// The tile that has the sums of M2 if holes are left out, or 0: the rest of the tiles are of one
// length.
int64_t tile_without_holes(const Convolution& c, const std::vector<Phase>& phases, int64_t tile) {
    const int64_t features = c.input_features;
    if (features % tile == 0 || c.window() * features <= tile) return tile;
    if (tile % features != 0 || c.window() > most_positions) return 0;
    // The numbers of the window's positions that are left.
    Axes axes;
    int64_t number = 0;
    for (size_t d = 0; d < phases.size(); ++d) {
        int64_t pitch = 1;
        for (size_t e = d + 1; e < phases.size(); ++e) pitch *= c.spatial[e].window;
        number += phases[d].position * pitch;
        axes.push_back({phases[d].window, phases[d].step * pitch});
    }
    const int64_t positions = tile / features;
    int64_t first = 0, length = 0, before = -1;  // positions in the first tile, and in this one
    for (int64_t i = 0; i < axes_size(axes); ++i) {
        const int64_t of = (number + axes_offset(axes, i)) / positions;
        if (of != before && before >= 0) {
            if (first == 0) first = length;
            if (length != first) return 0;
            length = 0;
        }
        before = of;
        ++length;
    }
    if (first == 0) first = std::max<int64_t>(length, 1);
    return length <= first ? first * features : 0;
}

// Whether no element is Inf or NaN: by such ones holes give NaN (M5).
bool is_finite(const ProductOperand& x) {
    std::vector<Axis> sorted;
    for (const Axes* axes : {&x.batch, &x.vectors, &x.depth})
        for (const Axis& a : *axes)
            if (a.stride != 0) sorted.push_back(a);
    std::stable_sort(sorted.begin(), sorted.end(), [](const Axis& a, const Axis& b) {
        return std::abs(a.stride) > std::abs(b.stride);
    });
    const Axes axes = collapsed({sorted.data(), sorted.data() + sorted.size()}, storage_bytes(x.dtype));
    const Kernels& k = kernels();
    auto& tile = per_thread<Tile>([] {});
    const int64_t count = axes_size(axes);
    for (int64_t at = 0, n; at < count; at += n) {
        n = run_length(axes, at, std::min<int64_t>(tile_elements, count - at));
        note_work(n);
        k.load[x.dtype](x.data + axes_offset(axes, at), axes.back().stride, static_cast<int>(n), &tile);
        if (x.prologue != nullptr) {
            const void* value = &tile;
            x.prologue->run_tile(k, &value, static_cast<int>(n), &value);
            x.prologue->copy_output(k, 0, value, static_cast<int>(n), &tile);
        }
        if (k.special[0](&tile, static_cast<int>(n))) return false;
    }
    return true;
}

template <class Array>
void keep(const std::vector<Phase>& phases, Array& array) {
    for (size_t d = 0; d < phases.size(); ++d) {
        Axis& axis = array.rows[d + 1];
        array.data += phases[d].output * axis.stride;
        axis = {phases[d].outputs, axis.stride * phases[d].step};
    }
}

void multiply_phase(const ConvolutionCall& whole, const std::vector<Phase>& phases, int64_t tile,
                    Draw draw) {
    ConvolutionCall call = whole;
    call.how.tile = tile;
    keep(phases, call.result);
    for (ProductTerm& t : call.result.terms) keep(phases, t);
    bool reads = true;
    for (size_t d = 0; d < phases.size(); ++d) {
        const Phase& p = phases[d];
        ConvolutionAxis& s = call.shape.spatial[d];
        Axis& axis = call.b.depth[d];
        call.b.data += p.position * axis.stride;
        axis = {p.window, axis.stride * p.step};
        s = {s.input, p.outputs, p.window, s.stride, p.padding_low, 1, s.window_dilation, s.reversed};
        reads = reads && p.window > 0;
    }
    // Where the places of a line lie side by side, they do so within the phase too, and then go
    // there.
    ProductResult& out = call.result;
    const int64_t element = storage_bytes(out.stored());
    Copy apart{{}, element};
    char* const there = out.data;
    const bool is_apart = whole.result.rows.back().stride == element && phases.back().step > 1;
    if (is_apart) {
        int64_t pitch = element;
        Axes* const order[] = {&out.rows, &out.columns, &out.batch};
        for (Axes* axes : order)
            for (size_t d = axes->size(); d-- > 0;) {
                Axis& a = (*axes)[d];
                apart.axes.push_back({a.size, pitch, a.stride});
                a.stride = pitch;
                pitch *= a.size;
            }
        out.data = per_thread<Workspace>([] {}).get<char>(std::max<int64_t>(pitch, 1));
    }
    if (reads) {
        Convolver(call, draw).run();
    } else {
        // No product: +0, with what follows it.
        call.a.batch = {{call.shape.feature_groups * call.shape.batch_groups, 0}};
        for (size_t d = 0; d <= phases.size(); ++d) call.a.vectors[d] = {call.result.rows[d].size, 0};
        call.a.depth = call.b.depth;
        call.ProductCall::run(draw);
    }
    if (is_apart) run_copy(simplified(apart), out.data, there);
}

}  // namespace

bool multiply_by_phases(const ConvolutionCall& call, Draw draw) {
    const Convolution& c = call.shape;
    bool has_holes = false;
    int64_t count = 1;
    for (const ConvolutionAxis& s : c.spatial) {
        count = saturated_product({count, std::min(s.base_dilation, s.output)});
        if (s.base_dilation == 1) continue;
        if (s.stride != 1 || s.window_dilation != 1) return false;
        has_holes = true;
    }
    const bool is_float = is_device_float(call.result.dtype);
    if (!has_holes || count > most_phases || c.padding != 0 || call.numerics.stochastic ||
        call.packed != nullptr || (is_float && call.how.model != Accumulate::fma))
        return false;
    // Where C4 flushes, PSUM may be -0, to which a tile of holes adds +0.
    const int64_t depth = saturated_product({c.window(), c.input_features});
    if (is_float && call.numerics.flush_subnormals && depth > call.how.tile) return false;
    // Sums of one channel on planes take neighbours together, holes and all.
    if (c.input_features == 1 && call.result.rows.back().stride == storage_bytes(call.result.stored()))
        return false;
    const int64_t rows = axes_size(call.result.rows);
    const int64_t columns = axes_size(call.result.columns) * c.feature_groups * c.batch_groups;
    if (rows < least_rows || saturated_product({rows, depth, columns}) / (count * count) < least_work)
        return false;
    // All combinations of the dimensions' phases.
    std::vector<std::vector<Phase>> all{{}};
    for (const ConvolutionAxis& s : c.spatial) {
        std::vector<std::vector<Phase>> longer;
        for (const std::vector<Phase>& phases : all)
            for (int64_t output = 0; output < std::min(s.base_dilation, s.output); ++output) {
                longer.push_back(phases);
                longer.back().push_back(phase_of(s, output));
            }
        all = std::move(longer);
    }
    std::vector<int64_t> tiles;
    for (const std::vector<Phase>& phases : all)
        tiles.push_back(is_float ? tile_without_holes(c, phases, call.how.tile) : call.how.tile);
    if (std::find(tiles.begin(), tiles.end(), 0) != tiles.end()) return false;
    if (is_float && !is_finite(call.b)) return false;
    for (size_t i = 0; i < all.size(); ++i) multiply_phase(call, all[i], tiles[i], draw);
    return true;
}

}  // namespace neuronsim
