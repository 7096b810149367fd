// The matrix product by rules M1-M4, M6 and M7: packing, blocking and the split over threads.
#pragma once

#include <cstdint>
#include <vector>

#include "program.h"
#include "rounding.h"
#include "view.h"

namespace neuronsim {

// One dimension of an array: how long it is and how far apart its elements lie, in bytes.
struct Axis {
    int64_t size, stride;
};
using Axes = std::vector<Axis>;  // row-major: the last one is walked fastest

int64_t axes_size(const Axes& axes);
int64_t axes_offset(const Axes& axes, int64_t index);

// One operand as vectors along the contraction, for each element of the batch: the rows of a, the
// columns of b. Elements may lie anywhere and overlap.
struct DotOperand {
    const char* data;
    DType dtype;
    Axes batch, vectors, depth;
    // Takes each element while it is packed; one input, one output, no draws. May be null.
    const TileProgram* program = nullptr;
    // The elements are pairs of bfloat16 as the kernels take them, with their least magnitude (pack.h).
    bool holds_pairs = false;
    uint32_t least = 0xFFFF;

    DType type() const { return program == nullptr ? dtype : program->output_dtype(0); }
};

// An array that an epilogue reads beside the product, over the product's own axes.
struct DotTerm {
    const char* data;
    DType dtype;
    Axes batch, rows, columns;
};

// The product's place: dense storage, its axes in any order.
struct DotResult {
    char* data;
    DType dtype;     // to which the sums are rounded (M4)
    Axes batch, rows, columns;
    // Takes the rounded sums and then the terms; what it gives is stored. May be null.
    const TileProgram* epilogue = nullptr;
    std::vector<DotTerm> terms{};

    DType stored() const { return epilogue == nullptr ? dtype : epilogue->output_dtype(0); }
};

// Profile.accumulate and the plan's accumulate type (M6).
enum class Accumulate : uint8_t { fma, exact, product_bfloat16, pairs };
struct Accumulation {
    Accumulate model;
    DType type;    // to which every sum is rounded: float32, bfloat16 or float16
    int64_t tile;  // of the contraction (M2)
};

// The vectors of an operand packed once, for the columns of many products.
class PackedColumns {
public:
    // Throws std::invalid_argument where the operand is not float.
    PackedColumns(const DotOperand& b, const Numerics& numerics);
    bool fits(const DotOperand& a, const Accumulation& accumulation, const Numerics& numerics) const;
    int64_t bytes() const { return static_cast<int64_t>(words_.size() * sizeof(float)); }

    const float* panel(int64_t batch, int64_t index) const;
    uint32_t least(int64_t batch, int64_t index) const;
    int64_t panels() const { return panels_; }
    int64_t columns() const { return columns_; }

private:
    const char* isa_;
    DotForm form_;
    bool flush_;
    int64_t columns_, panels_, steps_;
    int width_;
    std::vector<float> words_;
    std::vector<uint32_t> least_;
};

// Both operands are float types and so is the result, or all are integers or bool and the sum wraps in
// the result's type (M7). `packed` holds b's columns, or is null. Throws std::invalid_argument where
// the types or the program do not go together.
void dot(const DotOperand& a, const DotOperand& b, const PackedColumns* packed, const DotResult& result,
         const Accumulation& accumulation, const Numerics& numerics, Draw draw);

}  // namespace neuronsim
