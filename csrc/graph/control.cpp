#include "graph/control.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "graph/body.h"

namespace neuronsim {
namespace {

// The integer or bool at p, in 64 bits.
int64_t integer_at(const char* p, DType dtype) {
    int64_t x = 0;
    if (dtype == DType::int32) {
        int32_t usual;
        __builtin_memcpy(&usual, p, sizeof usual);
        return usual;
    }
    const int bytes = storage_bytes(dtype), spare = 64 - 8 * bytes;
    __builtin_memcpy(&x, p, bytes);  // little-endian
    return is_signed_integer(dtype) ? x << spare >> spare : x;
}

class Moving : public Call {
public:
    Moving(const void* array, const void* other, const Starts& starts) {
        at_ = {Address(array), Address(other)};
        for (const Start& s : starts) {
            if (s.limit == 0) continue;  // it begins where the array does
            starts_.push_back(s);
            at_.emplace_back(s.at.data);
        }
    }

protected:
    // From the array's beginning to the window's, in bytes.
    int64_t offset(const Run& run) const {
        int64_t offset = 0;
        for (size_t d = 0; d < starts_.size(); ++d)
            offset += clamped(at(run, 2 + d), starts_[d]) * starts_[d].stride;
        return offset;
    }

private:
    // To [0, limit].
    static int64_t clamped(const char* p, const Start& start) {
        const int64_t x = integer_at(p, start.at.dtype);
        if (x < 0) return is_signed_integer(start.at.dtype) ? 0 : start.limit;
        return std::min(x, start.limit);
    }

    Starts starts_;
};

class DynamicCopy : public Moving {
public:
    DynamicCopy(const Copy& copy, const void* source, void* target, const Starts& starts,
                bool moves_source)
        : Moving(source, target, starts),
          copy_(simplified(copy)),
          moves_source_(moves_source),
          is_word_(row_bytes(copy_) == 4) {}
    void run(const Run& run) const override {
        const int64_t by = offset(run);
        const char* const from = at(run, 0) + (moves_source_ ? by : 0);
        char* const to = at(run, 1) + (moves_source_ ? 0 : by);
        if (is_word_) __builtin_memcpy(to, from, 4);
        else run_copy(copy_, from, to);
    }

private:
    const Copy copy_;
    const bool moves_source_, is_word_;
};

class DynamicView : public Moving {
public:
    using Moving::Moving;
    void run(const Run& run) const override { at_[1].set(run.memories, at(run, 0) + offset(run)); }
};

class Counting : public Call {
public:
    Counting(int64_t count, std::vector<Counter> counters, Schedule body, char* trips)
        : count_(count), counters_(std::move(counters)), body_(std::move(body)) {
        at_.emplace_back(trips);
        for (const Counter& c : counters_) at_.emplace_back(c.data);
    }
    void place(const std::vector<Standin>& standins) override {
        Call::place(standins);
        body_.place(standins);
    }
    void run(const Run& run) const override {
        for (int64_t trip = 0; trip < count_; ++trip) {
            __builtin_memcpy(at(run, 0), &trip, sizeof trip);
            for (size_t i = 0; i < counters_.size(); ++i) {
                const auto number = static_cast<int32_t>(counters_[i].start + trip * counters_[i].step);
                __builtin_memcpy(at(run, 1 + i), &number, sizeof number);
            }
            body_.run(run);
        }
    }

private:
    const int64_t count_;
    const std::vector<Counter> counters_;
    Body body_;
};

class While : public Call {
public:
    While(Schedule condition, const char* goes_on, Schedule body, char* trips)
        : condition_(std::move(condition)), body_(std::move(body)) {
        at_ = {Address(goes_on), Address(trips)};
    }
    void place(const std::vector<Standin>& standins) override {
        Call::place(standins);
        condition_.place(standins);
        body_.place(standins);
    }
    void run(const Run& run) const override {
        for (int64_t trip = 0;; ++trip) {
            __builtin_memcpy(at(run, 1), &trip, sizeof trip);
            condition_.run(run);
            if (*at(run, 0) == 0) return;
            body_.run(run);
        }
    }

private:
    Body condition_, body_;
};

class Conditional : public Call {
public:
    Conditional(Scalar index, std::vector<Schedule> branches)
        : branches_(branches.begin(), branches.end()), dtype_(index.dtype) {
        if (branches_.empty()) throw std::invalid_argument("a conditional has branches");
        at_.emplace_back(index.data);
    }
    void place(const std::vector<Standin>& standins) override {
        Call::place(standins);
        for (Body& b : branches_) b.place(standins);
    }
    void run(const Run& run) const override {
        const auto index = static_cast<uint64_t>(integer_at(at(run, 0), dtype_));
        branches_[std::min(index, branches_.size() - 1)].run(run);
    }

private:
    std::vector<Body> branches_;
    const DType dtype_;  // of the index
};

}  // namespace

std::shared_ptr<Call> dynamic_copy_call(const Copy& copy, const void* source, void* target,
                                        const Starts& starts, bool moves_source) {
    return std::make_shared<DynamicCopy>(copy, source, target, starts, moves_source);
}
std::shared_ptr<Call> window_call(const char* array, const char* part, const Starts& starts) {
    return std::make_shared<DynamicView>(array, part, starts);
}
std::shared_ptr<Call> while_call(Schedule condition, const char* goes_on, Schedule body, char* trips) {
    return std::make_shared<While>(std::move(condition), goes_on, std::move(body), trips);
}
std::shared_ptr<Call> count_call(int64_t count, std::vector<Counter> counters, Schedule body,
                                 char* trips) {
    return std::make_shared<Counting>(count, std::move(counters), std::move(body), trips);
}
std::shared_ptr<Call> conditional_call(Scalar index, std::vector<Schedule> branches) {
    return std::make_shared<Conditional>(index, std::move(branches));
}

}  // namespace neuronsim
