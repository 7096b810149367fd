// The sums of a product on their way out: rounded once (M4), through a chain, into storage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "elementwise/chain.h"
#include "elementwise/rounding.h"
#include "movement/axes.h"
#include "products/form.h"

namespace neuronsim {

// An array that an epilogue reads beside the product, over the product's own axes.
struct ProductTerm {
    const char* data;
    DType dtype;
    Axes batch, rows, columns;
};

// The product's place: dense storage, its axes in any order.
struct ProductResult {
    char* data;
    DType dtype;  // to which the sums are rounded (M4)
    Axes batch, rows, columns;
    // Takes the rounded sums and then the terms; what it gives is stored. May be null.
    const Chain* epilogue = nullptr;
    std::vector<ProductTerm> terms{};
    // Where the epilogue adds what it meets: a record for the sums, whose overflow counts those that
    // are Inf or NaN, whatever made them so, and one for each link of its chain. May be null.
    Observed* observed = nullptr;
    bool exact_floats = false;  // integers' sums come as float32, in which they are exact

    DType stored() const { return epilogue == nullptr ? dtype : epilogue->output_dtype(0); }
};

class Epilogue {
public:
    // `pitch` floats lie between the rows of sums.
    Epilogue(const Kernels& k, const ProductResult& out, const Numerics& numerics, Draw draw,
             int64_t pitch);

    // Whether register blocks may store the sums: rows of neighbours, of a type that they store, joined
    // with nothing but terms that they join.
    bool is_of_blocks() const { return is_of_blocks_; }
    // The terms at the first output of an element of the batch.
    void terms_of(int64_t batch, std::vector<JoinedTerm>& terms) const;

    // Asks for the lines that finish will read and write, while there is other work.
    void prefetch(int64_t batch, int64_t first, int64_t count, int64_t column, int columns) const;

    // Stores the sums of rows [first, first + count) and some columns; may change them.
    void finish(float* sums, int64_t batch, int64_t first, int64_t count, int64_t column,
                int columns) const;

private:
    // Where an array holds a block of outputs, in bytes.
    struct Place {
        char* data;
        int64_t row, column;
    };
    // Of the result and then of the terms.
    using Places = std::vector<Place>;

    // What sums are joined with, by the places of the epilogue's inputs.
    template <class F>
    void list_terms(std::vector<JoinedTerm>& terms, const F& place_of) const;
    void finish_block(float* sums, int64_t pitch, int64_t rows, int64_t columns,
                      const Places& places) const;
    // Where the chain is one pass, without tiles; false if an array lies as that cannot read it.
    bool finish_bytes(const float* sums, int64_t pitch, int rows, int columns,
                      const Places& places) const;
    // Where the chain only joins the sums with terms, in the sums' own place; false as above.
    bool finish_joined(float* sums, int64_t pitch, int64_t rows, int64_t columns,
                       const Places& places) const;
    void finish_tile(float* sums, int64_t pitch, int rows, int columns, bool begins,
                     const Places& places) const;
    const void* rounded(float* sums, int64_t pitch, int rows, int columns, const Place& result,
                        Tile* tile) const;
    // Integers' sums, which are int32, modulo 2^n of the result's type.
    const void* wrapped(const float* sums, int64_t pitch, int rows, int columns, Tile* tile) const;
    void observe_sums(const float* sums, int64_t pitch, const float* rounded, int rows, int columns,
                      Observed& seen) const;
    const void* loaded(const Place& term, DType dtype, int rows, int columns, bool begins,
                       Tile* tile) const;
    void store(const void* values, int rows, int columns, const Place& result) const;

    const Kernels& k_;
    const ProductResult& out_;
    const Numerics& numerics_;
    const Draw draw_;
    const int64_t pitch_;
    const bool absorbs_nan_;            // the epilogue takes sums of float32 as they are (E6)
    const QuantizingPass* const pass_;  // all that the epilogue does, or null
    const std::vector<JoinedLink>* const joined_;  // the same, or null
    const bool is_of_blocks_;
    const bool has_canonical_nan_;  // it gives floats as `store_rows` takes them
};

// What register blocks join the sums of an element of the batch with.
class BlockTerms {
public:
    void take(const Epilogue& epilogue, int64_t batch) { epilogue.terms_of(batch, terms_); }
    // Whether one is read along rows, by whole vectors.
    bool any_along() const {
        return std::any_of(terms_.begin(), terms_.end(), [](const JoinedTerm& t) { return t.along; });
    }
    // Of a block that begins with this output; it holds them until the next one's.
    void place(int64_t row, int64_t column, RegisterBlock& block) {
        block.term_count = static_cast<int>(terms_.size());
        if (terms_.empty()) return;
        here_ = terms_;
        for (JoinedTerm& term : here_) term.data += row * term.row + (term.along ? column : 0);
        block.terms = here_.data();
    }

private:
    std::vector<JoinedTerm> terms_, here_;
};

}  // namespace neuronsim
