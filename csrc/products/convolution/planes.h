// The planes of a convolution's channels, and what fills them from the input.
#pragma once

#include <vector>

#include "products/convolution/convolver.h"

namespace neuronsim {

// A channel's padded plane, cut by the strides: a phase holds every stride-th place, so that the
// windows of neighbouring outputs are neighbours, over the ends of lines too. Only phases that the
// window reads are there.
struct Convolver::Plane {
    std::vector<int64_t> extents, pitches;  // of a phase
    int64_t phase = 1;                      // elements of one
    int64_t outputs = 1;                    // from the first to the last, with what lies between
    std::vector<std::vector<int64_t>> phases;
    std::vector<int64_t> places;  // of the window's elements

    int64_t size() const { return saturated_product({phase, static_cast<int64_t>(phases.size())}); }
    int64_t bytes() const { return saturated_product({size(), 4}); }
};

// Fills the planes of some channels from the input.
class Convolver::PlaneFiller {
public:
    PlaneFiller(const Convolver& c, const Plane& p, int64_t row);

    // The planes hold padding where no element comes to lie.
    void fill(int64_t n, int64_t source, int64_t some, float* planes) const;

private:
    static Axes lines_of_channels(const Convolver& c);
    // Whether the plane is the channel itself: without padding and strides.
    bool is_whole() const;

    const Convolver& c_;
    const Plane& p_;
    const int64_t width_, all_;  // of a line, and lines of a channel
    const ProductOperand input_;
    const Packer packer_;
    const bool in_place_;
    std::vector<PlaneLine> lines_;
    const bool is_plane_;
    int64_t low_, staged_;
};

}  // namespace neuronsim
