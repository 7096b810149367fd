#include "graph/control.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "machine/interrupt.h"

namespace neuronsim {
namespace {

template <class T>
T read(const char* p) {
    T x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}

class PlacedDynamicCopy : public Call {
public:
    PlacedDynamicCopy(DynamicCopy copy, const char* source, char* target)
        : c_(std::move(copy)), source_(source), target_(target) {
        c_.copy = simplified(c_.copy);
    }
    void place(const std::vector<Standin>& standins) override {
        for (Scalar& s : c_.starts) s.place(standins);
        source_.place(standins);
        target_.place(standins);
    }
    void run(const Run& run) const override {
        int64_t offset = 0;
        for (size_t d = 0; d < c_.starts.size(); ++d)
            offset += c_.starts[d].clamped(run.memories, c_.limits[d]) * c_.strides[d];
        run_copy(c_.copy, source_.in(run.memories) + (c_.moves_source ? offset : 0),
                 target_.in(run.memories) + (c_.moves_source ? 0 : offset));
    }

private:
    DynamicCopy c_;
    Address source_, target_;
};

class While : public Call {
public:
    While(Schedule condition, Scalar goes_on, Schedule body, char* trips)
        : condition_(std::move(condition)), goes_on_(goes_on), body_(std::move(body)), trips_(trips) {}
    void place(const std::vector<Standin>& standins) override {
        place_all(condition_, standins);
        goes_on_.place(standins);
        place_all(body_, standins);
        trips_.place(standins);
    }
    void run(const Run& run) const override {
        constexpr int64_t operations_of_trip = 1024;
        char* const count = trips_.in(run.memories);
        for (int64_t trip = 0;; ++trip) {
            __builtin_memcpy(count, &trip, sizeof trip);
            note_work(operations_of_trip);
            run_all(condition_, run);
            if (goes_on_.value(run.memories) == 0) return;
            run_all(body_, run);
        }
    }

private:
    const Schedule condition_;
    Scalar goes_on_;
    const Schedule body_;
    Address trips_;
};

class Conditional : public Call {
public:
    Conditional(Scalar index, std::vector<Schedule> branches)
        : index_(index), branches_(std::move(branches)) {
        if (branches_.empty()) throw std::invalid_argument("a conditional has branches");
    }
    void place(const std::vector<Standin>& standins) override {
        index_.place(standins);
        for (const Schedule& b : branches_) place_all(b, standins);
    }
    void run(const Run& run) const override {
        const int64_t index = index_.value(run.memories),
                      last = static_cast<int64_t>(branches_.size()) - 1;
        run_all(branches_[static_cast<size_t>(index < 0 || index > last ? last : index)], run);
    }

private:
    Scalar index_;
    const std::vector<Schedule> branches_;
};

}  // namespace

int64_t Scalar::clamped(char* const* memories, int64_t limit) const {
    const char* const p = at_.in(memories);
    const auto clamp = [&](int64_t x) { return x < 0 ? 0 : x > limit ? limit : x; };
    switch (dtype_) {
        case DType::int8:
            return clamp(read<int8_t>(p));
        case DType::int16:
            return clamp(read<int16_t>(p));
        case DType::int32:
            return clamp(read<int32_t>(p));
        case DType::int64:
            return clamp(read<int64_t>(p));
        case DType::boolean:
        case DType::uint8:
            return clamp(read<uint8_t>(p));
        case DType::uint16:
            return clamp(read<uint16_t>(p));
        case DType::uint32:
            return clamp(read<uint32_t>(p));
        case DType::uint64:
            return static_cast<int64_t>(std::min(read<uint64_t>(p), static_cast<uint64_t>(limit)));
        default:
            throw std::invalid_argument("an index is an integer");
    }
}

int64_t Scalar::value(char* const* memories) const {
    const char* const p = at_.in(memories);
    return dtype_ == DType::boolean ? read<uint8_t>(p) != 0 : int64_t{read<int32_t>(p)};
}

std::shared_ptr<Call> placed(DynamicCopy copy, const char* source, char* target) {
    return std::make_shared<PlacedDynamicCopy>(std::move(copy), source, target);
}
std::shared_ptr<Call> while_call(Schedule condition, Scalar goes_on, Schedule body, char* trips) {
    return std::make_shared<While>(std::move(condition), goes_on, std::move(body), trips);
}
std::shared_ptr<Call> conditional_call(Scalar index, std::vector<Schedule> branches) {
    return std::make_shared<Conditional>(index, std::move(branches));
}

}  // namespace neuronsim
