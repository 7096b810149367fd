// Reductions and cumulative functions by rules R1-R4.
#pragma once

#include <cstdint>

#include "elementwise/rounding.h"
#include "machine/kernels.h"
#include "machine/sizes.h"
#include "movement/axes.h"

namespace neuronsim {

struct Reduction {
    Op op;
    DType dtype;       // of the elements, the initial value and the result
    DType accumulate;  // float32, or the type to which every step is rounded (R1)
    int64_t tile;      // Profile.reduce_tile
    bool round_tiles;  // Profile.mixed_precision_accumulation off (R3)
    Numerics numerics;

    // How many ids it draws by: that of the last rounding, and those of so many tiles.
    size_t draw_count(int64_t tiles) const {
        return !numerics.stochastic ? 0 : round_tiles ? static_cast<size_t>(1 + tiles) : 1;
    }
};

// The steps of a reduction, whichever way its elements are walked. These are as they are computed with.
class Steps {
public:
    // Throws std::invalid_argument where there is no such reduction.
    Steps(const Reduction& reduction, const char* initial, const Draws& draws);

    // Whether a step does more than the operation.
    bool settles() const { return settles_; }
    bool reads_flushed() const { return reads_flushed_; }
    // C4: subnormal operands read as zeros.
    void flush(void* elements, int n) const {
        if (reads_flushed_) k_.flush(elements, elements, n);
    }
    // One step in the accumulate type (R1): acc = op(acc, in).
    void fold(void* acc, const void* in, int n) const {
        const void* const operands[] = {acc, in};
        op_(acc, operands, n, 64);
        if (!settles_) return;
        if (r_.numerics.flush_subnormals) k_.flush(acc, acc, n);
        if (r_.accumulate != DType::float32)
            round_values(k_, r_.accumulate, r_.numerics, {}, 0, acc, n, false);
    }
    // After each tile (R3); the results' indices begin at `first` and are `stride` apart.
    void round_tile(void* results, int n, int64_t tile, int64_t first, int64_t stride = 1) const {
        if (r_.round_tiles) round(results, n, 1 + tile, first, stride);
    }
    void load_initial(void* elements, int n) const { k_.load[r_.dtype](initial_, 0, n, elements); }
    // The initial value comes last, then the one rounding (R2).
    void finish(void* acc, void* scratch, int n, int64_t first, int64_t stride = 1) const {
        load_initial(scratch, n);
        flush(scratch, n);
        fold(acc, scratch, n);
        round(acc, n, 0, first, stride);
    }
    // `id` is the number of the one by which it draws.
    void round(void* values, int n, int64_t id, int64_t first, int64_t stride) const;

private:
    const Kernels& k_;
    const Reduction& r_;
    const char* const initial_;
    const Draws& draws_;
    const OpKernel op_;
    const bool settles_, reads_flushed_;
};

// A reduction of an array.
struct ReduceCall {
    Reduction reduction;
    Axes outputs, reduced;  // collapsed
    // Cumulative (R4) if above 0: one dimension is reduced, and in the output it lies before so many
    // last elements; element j along it is the reduction of the elements 0 to j, or `backwards` of the
    // last element to j.
    int64_t cumulative_inner;
    bool backwards;

    // The axes are the outputs' (`kept` of them) and then the reduced ones in ascending order.
    ReduceCall(const Reduction& reduction, const Axes& axes, int kept, int64_t cumulative_inner = 0,
               bool backwards = false);
    // `data`: the input, the initial value, which is one element of storage, and the output, dense
    // row-major.
    void run(char* const* data, const Draws& draws) const;
    size_t draw_count() const {
        return reduction.draw_count(ceil_divide(axes_size(reduced), reduction.tile));
    }
};

}  // namespace neuronsim
