// The axes of an array: lengths and distances, in the order in which they are walked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace neuronsim {

// One dimension of an array: how long it is and how far apart its elements lie, in bytes.
struct Axis {
    int64_t size, stride;
};

// Row-major: the last one is walked fastest. A few lie in the object itself, so that what a call
// consists of is copied without fresh memory.
class Axes {
public:
    Axes() = default;
    Axes(std::initializer_list<Axis> axes) : Axes(axes.begin(), axes.end()) {}
    Axes(const Axis* begin, const Axis* end) {
        for (; begin != end; ++begin) push_back(*begin);
    }

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    const Axis* begin() const { return many_.empty() ? few_ : many_.data(); }
    const Axis* end() const { return begin() + size_; }
    const Axis& operator[](size_t i) const { return begin()[i]; }
    const Axis& back() const { return end()[-1]; }
    Axis* begin() { return many_.empty() ? few_ : many_.data(); }
    Axis* end() { return begin() + size_; }
    Axis& operator[](size_t i) { return begin()[i]; }
    Axis& back() { return begin()[size_ - 1]; }
    // Those from number `first` to before `end`.
    std::span<const Axis> part(size_t first, size_t end) const {
        return {begin() + first, end - first};
    }
    void push_back(Axis axis) {
        if (size_ == few) many_.assign(few_, few_ + few);
        if (size_ >= few) many_.push_back(axis);
        else few_[size_] = axis;
        ++size_;
    }

private:
    static constexpr size_t few = 4;
    size_t size_ = 0;
    Axis few_[few];
    std::vector<Axis> many_;
};

inline int64_t axes_size(std::span<const Axis> axes) {
    int64_t n = 1;
    for (const Axis& a : axes) n *= a.size;
    return n;
}

inline int64_t axes_offset(std::span<const Axis> axes, int64_t index) {
    int64_t offset = 0;
    for (size_t d = axes.size(); d-- > 1; index /= axes[d].size)
        offset += index % axes[d].size * axes[d].stride;
    return axes.empty() ? 0 : offset + index * axes[0].stride;  // no division: one axis is the most
}

// Axes that are walked as one are one; those of length 1 are none. There is always one.
inline Axes collapsed(const Axes& axes, int64_t element) {
    Axes out;
    for (const Axis& a : axes) {
        if (a.size == 1) continue;
        if (!out.empty() && out.back().stride == a.stride * a.size)
            out.back() = {out.back().size * a.size, a.stride};
        else out.push_back(a);
    }
    if (out.empty()) out.push_back({1, element});
    return out;
}

// Whether collapsed axes are those of elements side by side.
inline bool are_dense(const Axes& axes, int64_t element) {
    return axes.size() == 1 && axes[0].stride == element;
}

// How many elements from `index` on, of those wanted, lie a constant distance apart.
inline int64_t run_length(const Axes& axes, int64_t index, int64_t wanted) {
    const int64_t inner = axes.back().size;
    return std::min(wanted, inner - index % inner);
}

}  // namespace neuronsim
