#include "graph/control.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "machine/interrupt.h"

namespace neuronsim {
namespace {

// The integer at p, in 64 bits.
int64_t integer_at(const char* p, DType dtype) {
    const auto read = [&]<class T>(T x) {
        __builtin_memcpy(&x, p, sizeof x);
        return static_cast<int64_t>(x);
    };
    switch (dtype) {
        case DType::int8:
            return read(int8_t{});
        case DType::int16:
            return read(int16_t{});
        case DType::int32:
            return read(int32_t{});
        case DType::uint16:
            return read(uint16_t{});
        case DType::uint32:
            return read(uint32_t{});
        case DType::int64:
        case DType::uint64:
            return read(int64_t{});
        default:
            return read(uint8_t{});  // bool as well
    }
}

class PlacedDynamicCopy : public Call {
public:
    explicit PlacedDynamicCopy(DynamicCopy copy) : c_(std::move(copy)) {
        c_.copy.copy = simplified(c_.copy.copy);
        at_ = {Address(c_.copy.source), Address(c_.copy.target)};
        for (const Scalar& s : c_.starts) at_.emplace_back(s.data);
    }
    void run(const Run& run) const override {
        int64_t offset = 0;
        for (size_t d = 0; d < c_.starts.size(); ++d)
            offset += clamped(at(run, 2 + d), c_.starts[d].dtype, c_.limits[d]) * c_.strides[d];
        run_copy(c_.copy.copy, at(run, 0) + (c_.moves_source ? offset : 0),
                 at(run, 1) + (c_.moves_source ? 0 : offset));
    }

private:
    // To [0, limit].
    static int64_t clamped(const char* p, DType dtype, int64_t limit) {
        if (is_device_float(dtype) || dtype == DType::float64)
            throw std::invalid_argument("an index is an integer");
        const int64_t x = integer_at(p, dtype);
        if (x < 0) return is_signed_integer(dtype) ? 0 : limit;
        return std::min(x, limit);
    }

    DynamicCopy c_;
};

class While : public Call {
public:
    While(Schedule condition, Scalar goes_on, Schedule body, char* trips)
        : condition_(std::move(condition)), body_(std::move(body)), dtype_(goes_on.dtype) {
        at_ = {Address(goes_on.data), Address(trips)};
    }
    void place(const std::vector<Standin>& standins) override {
        Call::place(standins);
        place_all(condition_, standins);
        place_all(body_, standins);
    }
    void run(const Run& run) const override {
        constexpr int64_t operations_of_trip = 1024;
        for (int64_t trip = 0;; ++trip) {
            __builtin_memcpy(at(run, 1), &trip, sizeof trip);
            note_work(operations_of_trip);
            run_all(condition_, run);
            if (integer_at(at(run, 0), dtype_) == 0) return;
            run_all(body_, run);
        }
    }

private:
    const Schedule condition_, body_;
    const DType dtype_;  // of what says whether it goes on
};

class Conditional : public Call {
public:
    Conditional(Scalar index, std::vector<Schedule> branches)
        : branches_(std::move(branches)), dtype_(index.dtype) {
        if (branches_.empty()) throw std::invalid_argument("a conditional has branches");
        at_.emplace_back(index.data);
    }
    void place(const std::vector<Standin>& standins) override {
        Call::place(standins);
        for (const Schedule& b : branches_) place_all(b, standins);
    }
    void run(const Run& run) const override {
        const auto index = static_cast<uint64_t>(integer_at(at(run, 0), dtype_));
        run_all(branches_[std::min(index, branches_.size() - 1)], run);
    }

private:
    const std::vector<Schedule> branches_;
    const DType dtype_;  // of the index
};

}  // namespace

std::shared_ptr<Call> dynamic_copy_call(DynamicCopy copy) {
    return std::make_shared<PlacedDynamicCopy>(std::move(copy));
}
std::shared_ptr<Call> while_call(Schedule condition, Scalar goes_on, Schedule body, char* trips) {
    return std::make_shared<While>(std::move(condition), goes_on, std::move(body), trips);
}
std::shared_ptr<Call> conditional_call(Scalar index, std::vector<Schedule> branches) {
    return std::make_shared<Conditional>(index, std::move(branches));
}

}  // namespace neuronsim
