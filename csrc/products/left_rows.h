// The rows of the left operand as the register blocks of the matrix product read them: where they lie,
// or packed.
#pragma once

#include <cstdint>
#include <vector>

#include "products/packer.h"

namespace neuronsim {

class LeftRows {
public:
    struct Block {
        const char* a;
        int64_t a_row;
        int first, count;  // within the rows that were taken
        int line = count;  // rows from here on are the next line's, `jump` bytes beyond where they were
        int64_t jump = 0;
    };

    // For a contraction of so many elements with so many columns, in blocks of at most `block_rows`
    // rows.
    LeftRows(const Kernels& k, const ProductOperand& a, ProductForm form, const Packer& packer,
             int64_t depth, int64_t tile, int64_t columns, int block_rows);

    bool are_read_in_place() const { return place_ == Place::memory; }
    bool are_side_by_side() const { return place_ == Place::side_by_side; }
    void take(const OperandPart& part);

    // Of the rows that were taken last.
    const std::vector<Block>& blocks() const { return blocks_; }
    const std::vector<BlockRun>& runs() const { return runs_; }
    int64_t steps() const { return steps_; }  // of all runs
    int64_t step() const { return step_; }    // from one to the next, in bytes
    // The least magnitude, as LeastMagnitude has it, of all of them or of a block in a run.
    uint32_t least() const { return least_; }
    uint32_t least(size_t block, size_t run);

private:
    enum class Place : uint8_t { memory, rows, side_by_side };
    Place place() const;
    bool lies_as_read() const;
    // Adds the blocks of rows that are read where they lie.
    void read(const OperandPart& part);
    void pack(const OperandPart& part);
    void pack_side_by_side(const OperandPart& part);
    // Calls add(first, count) for pieces of the rows [begin, begin + n).
    template <class F>
    void cut(int64_t begin, int64_t n, const F& add) const;

    const Kernels& k_;
    const ProductOperand& a_;
    const ProductForm form_;
    const Packer& packer_;
    const int64_t depth_, tile_, columns_;
    const int block_rows_;
    const bool in_tiles_;  // only tiles' blocks have so many rows
    const Place place_;
    std::vector<Block> blocks_;
    std::vector<BlockRun> runs_;
    int64_t steps_ = 0, step_ = 0;
    uint32_t least_ = no_magnitude;
    std::vector<uint32_t> leasts_;  // of each block in each run, once they are asked for
};

}  // namespace neuronsim
