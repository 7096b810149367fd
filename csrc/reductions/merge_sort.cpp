// The stable bottom-up merge sort with any comparator (E10).
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "reductions/order.h"
#include "reductions/sort.h"

namespace neuronsim {
namespace {

constexpr int lanes = 64;  // merges that run side by side
constexpr int64_t moved_at_once = 1 << 16;

// One merge of [left, middle) and [middle, end) of a line's order into `out`.
struct Merge {
    const int64_t* order;
    int64_t* out;
    int64_t line, left, right, middle, end;
    bool both() const { return left < middle && right < end; }
};

class Sorter {
public:
    Sorter(const std::vector<View>& operands, const Chain& comparator)
        : k_(kernels()), operands_(operands), comparator_(comparator) {}

    // `elements` are the comparator's inputs.
    void merge_all(std::vector<Merge>& merges, Tile* elements) const {
        const int n = static_cast<int>(merges.size());
        const auto steps = static_cast<int64_t>(8 * operands_.size() + comparator_.link_count());
        std::vector<const void*> inputs;
        for (size_t i = 0; i < 2 * operands_.size(); ++i) inputs.push_back(&elements[i]);
        for (;;) {
            bool any = false;
            for (int lane = 0; lane < n; ++lane) {
                const Merge& m = merges[lane];
                if (!m.both()) continue;
                any = true;
                for (size_t i = 0; i < operands_.size(); ++i) {
                    load(i, m.line, m.order[m.right], elements[2 * i], lane);
                    load(i, m.line, m.order[m.left], elements[2 * i + 1], lane);
                }
            }
            if (!any) break;
            note_work(n * steps);
            const void* output;
            comparator_.run_tile(k_, inputs.data(), n, &output);
            const auto* takes_right = static_cast<const uint8_t*>(output);
            for (int lane = 0; lane < n; ++lane) {
                Merge& m = merges[lane];
                if (m.both()) *m.out++ = m.order[takes_right[lane] ? m.right++ : m.left++];
            }
        }
        for (Merge& m : merges) {
            append(m, m.left, m.middle);
            append(m, m.right, m.end);
        }
    }

private:
    static void append(Merge& m, int64_t begin, int64_t end) {
        for (int64_t at = begin, n = 0; at < end; at += n) {
            n = std::min(end - at, moved_at_once);
            note_work(n);
            m.out = std::copy_n(m.order + at, n, m.out);
        }
    }
    void load(size_t operand, int64_t line, int64_t at, Tile& element, int lane) const {
        const View& view = operands_[operand];
        const char* data = view.data + at * view.axes.back().stride + line_offset(view, line);
        char* target = reinterpret_cast<char*>(&element);
        k_.load[view.dtype](data, 0, 1, target + lane * computed_bytes(view.dtype));
    }

    const Kernels& k_;
    const std::vector<View>& operands_;
    const Chain& comparator_;
};

}  // namespace

void merge_sort(const std::vector<View>& operands, const Chain& comparator, int64_t* order) {
    if (operands.empty() || operands[0].axes.empty() ||
        comparator.inputs().size() != 2 * operands.size() || comparator.output_count() != 1 ||
        comparator.output_dtype(0) != DType::boolean)
        throw std::invalid_argument(
            "the comparator takes two elements of each operand and gives a bool");
    if (comparator.draws())
        throw std::invalid_argument("S2 has no words for stochastic rounding inside a comparator");
    for (size_t i = 0; i < operands.size(); ++i)
        if (comparator.inputs()[2 * i] != operands[i].dtype ||
            comparator.inputs()[2 * i + 1] != operands[i].dtype)
            throw std::invalid_argument("the comparator's types are not those of the arrays");
    const int64_t n = operands[0].axes.back().size, total = axes_size(operands[0].axes);
    Notes notes;
    for (int64_t i = 0; i < total; ++i) {
        notes.add(1);
        order[i] = i % n;
    }
    if (n < 2 || total == 0) return;
    const std::unique_ptr<int64_t[]> other(new int64_t[total]);
    int64_t *from = order, *to = other.get();
    const Sorter sorter(operands, comparator);
    for (int64_t run = 1; run < n; run *= 2) {
        const int64_t merges = ceil_divide(n, 2 * run), all = total / n * merges;
        parallel_for(ceil_divide(all, lanes), 1, [&](int64_t begin, int64_t end) {
            const std::unique_ptr<Tile[]> elements(new Tile[2 * operands.size()]());
            for (int64_t piece = begin; piece < end; ++piece) {
                std::vector<Merge> batch;
                for (int64_t i = piece * lanes; i < all && i < (piece + 1) * lanes; ++i) {
                    const int64_t line = i / merges, start = i % merges * 2 * run;
                    const int64_t middle = std::min(start + run, n),
                                  stop = std::min(start + 2 * run, n);
                    batch.push_back(
                        {from + line * n, to + line * n + start, line, start, middle, middle, stop});
                }
                sorter.merge_all(batch, elements.get());
            }
        });
        std::swap(from, to);
    }
    for (int64_t at = 0; from != order && at < total; at += moved_at_once) {
        note_work(moved_at_once);
        std::copy_n(from + at, std::min(moved_at_once, total - at), order + at);
    }
}

}  // namespace neuronsim
