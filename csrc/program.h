// Tile programs: a chain of operations with a result type for each, run block by block. An
// elementwise kernel is a program of length one.
#pragma once

#include <cstdint>
#include <vector>

#include "formats.h"
#include "kernels.h"
#include "view.h"

namespace neuronsim {

// One step computes value number inputs + (its position). `op` is an Op, or convert_op.
struct Step {
    int op;
    DType result;
    std::vector<int> operands;  // value numbers
};
inline constexpr int convert_op = op_count;

class TileProgram {
public:
    // Throws std::invalid_argument if the steps are not a well-typed program.
    TileProgram(std::vector<DType> inputs, std::vector<Step> steps, std::vector<int> outputs,
                bool integers_via_float32);

    const std::vector<DType>& inputs() const { return inputs_; }
    DType output_dtype(size_t i) const { return dtypes_[static_cast<size_t>(outputs_[i])]; }
    size_t output_count() const { return outputs_.size(); }

    // Evaluates over `shape`; the outputs are dense row-major storage of that shape.
    void run(const std::vector<int64_t>& shape, const std::vector<View>& inputs,
             const std::vector<char*>& outputs) const;

private:
    void run_step(const Kernels& k, size_t index, Tile& out, const Tile* const* operands, int n) const;

    std::vector<DType> inputs_;
    std::vector<Step> steps_;
    std::vector<int> outputs_;
    std::vector<DType> dtypes_;   // of every value
    std::vector<bool> rounds_;    // of every step: whether its result is rounded before it is stored
    std::vector<int> registers_;  // the tile that holds every value
    int register_count_ = 0;
    bool integers_via_float32_;  // Profile.int_to_float (C1)
};

}  // namespace neuronsim
