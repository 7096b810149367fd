// The elements of windows, however these lie: the walk over them, and windows that run along a
// dimension.
#pragma once

#include <optional>
#include <vector>

#include "machine/interrupt.h"
#include "machine/kernels.h"
#include "machine/workspace.h"
#include "reductions/window.h"

namespace neuronsim {

// Throws std::invalid_argument where the windows are none.
void check(const Windows& w);

// Some neighbouring outputs of windows that are computed together, and where their elements lie: rows
// of places along one dimension, whole ones or a part of one. A place is `inner` elements side by side,
// those of the later dimensions, which the windows leave as they are. Padding and holes are no elements
// (R4). The inputs have one shape.
class WindowBlock {
public:
    WindowBlock(const Windows& windows, const std::vector<View>& inputs);

    int64_t count() const { return ceil_divide(all_rows_, rows_together_) * pieces_; }  // of blocks
    void move_to(int64_t block);

    int64_t first() const { return first_; }  // output, in row-major order
    int rows() const { return rows_; }
    int row_places() const { return row_places_; }
    int places() const { return rows_ * row_places_; }
    int inner() const { return inner_; }
    int elements() const { return places() * inner_; }
    // From what a place reads to what the next one does, in bytes.
    int64_t step(size_t input) const { return along_.stride * strides_[input]; }

    // At a position along the rows, the places of a row that have an element, and where the first one's
    // is.
    struct Span {
        int begin, end;
        int64_t element;
    };
    // All of them, where no more positions than a tile has elements can have any.
    const std::vector<Span>& spans() const { return spans_; }

    // At how many positions of the windows there can be elements.
    int64_t positions() const {
        int64_t found = is_empty_ ? 0 : last_position_ - first_position_;
        for (size_t d = 0; d < rank_; ++d) found = saturated_product({found, end_[d] - begin_[d]});
        return found;
    }
    // Calls body(span) for the windows' positions in row-major order, but those at which none of them
    // has an element.
    template <class Body>
    void visit(const Body& body) {
        if (is_empty_) return;
        position_ = begin_;
        do {
            note_work(8 * rows_);
            if (!locate()) continue;
            for (const Span& span : spans_) {
                note_work(elements());
                body(span);
            }
            for (int64_t p = first_position_; !has_spans() && p < last_position_; ++p) {
                const Span span = span_at(p);
                note_work(1 + elements());
                if (span.begin < span.end) body(span);
            }
        } while (advance());
    }
    // At that position, calls piece(row, data) for each row that has elements: where the one of place
    // span.begin is.
    template <class Piece>
    void for_pieces(const Span& span, size_t input, const Piece& piece) const {
        const int64_t* const offsets = offsets_of(input);
        const char* const data = inputs_[input].data + span.element * strides_[input];
        for (int row = 0; row < rows_; ++row)
            if (offsets[row] != nowhere) piece(row, data + offsets[row]);
    }

    // Whether every place has an element there.
    bool is_whole(const Span& span) const {
        return is_inside_ && span.begin == 0 && span.end == row_places_;
    }
    // To their places in a tile, the elements of an input at that position.
    void load(const Kernels& k, const Span& span, size_t input, Tile& tile) const;

private:
    void find_spans();
    Span span_at(int64_t position) const;
    bool has_spans() const { return last_position_ - first_position_ <= tile_elements; }
    bool locate();
    const int64_t* offsets_of(size_t input) const {
        return offsets_.data() + input * static_cast<size_t>(rows_together_);
    }
    bool advance() {
        for (size_t d = rank_; d-- > 0;) {
            if (++position_[d] < end_[d]) return true;
            position_[d] = begin_[d];
        }
        return false;
    }

    const Windows& w_;
    const std::vector<View>& inputs_;
    size_t rank_;                            // how many dimensions come before the rows'
    WindowDimension along_;                  // the rows'
    std::vector<int64_t> strides_;           // the inputs' along the rows
    int64_t input_length_ = 1, length_ = 1;  // of the rows' dimension
    int64_t all_rows_, rows_together_, pieces_;
    int inner_ = 1;

    int64_t first_ = 0, column_ = -1;
    int rows_ = 0, row_places_ = 0;
    bool is_empty_ = false;
    int64_t first_position_ = 0, last_position_ = 0;  // along the rows, of those that can have elements
    std::vector<Span> spans_;
    std::vector<int64_t> origin_, position_, begin_, end_;  // of the rows' windows, and within them
    bool is_inside_ = false;  // all rows' windows have all their elements before the rows' dimension
    std::vector<int64_t> offsets_;  // of each input's rows at the position, in bytes
    std::vector<int64_t> origins_;  // and at the windows' origin, where all is inside
    std::vector<int64_t> apart_;    // from one row to the next, where all are as far, or nowhere
};

// The dimension along which windows run over the operand from its first element on, or backwards from
// its last one: what a cumulative function's elements reduce (R4), each from the one before it.
struct Running {
    size_t dimension;
    bool backwards;
    int64_t length, inner, others;  // inner: elements behind the dimension; others: of all other ones
};

std::optional<Running> running(const Windows& w);
// The operand with the dimension along which the windows run as its last one.
View along(const Running& r, const View& input);

}  // namespace neuronsim
