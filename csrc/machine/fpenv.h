// Pins the floating-point environment (D1): round to nearest even, no flush to zero, no traps.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace neuronsim {

class PinnedEnvironment {
public:
    // Writing takes longer than reading, and it mostly is what it should be.
    PinnedEnvironment() : saved_(read()) {
        if (saved_ != pinned) write(pinned);
    }
    ~PinnedEnvironment() {
        if (saved_ != pinned) write(saved_);
    }
    PinnedEnvironment(const PinnedEnvironment&) = delete;
    PinnedEnvironment& operator=(const PinnedEnvironment&) = delete;

private:
#if defined(__x86_64__) || defined(_M_X64)
    using Word = uint32_t;
    static constexpr Word pinned = 0x1F80;  // MXCSR at reset: exceptions masked, RNE, no FTZ, no DAZ
    static Word read() { return _mm_getcsr(); }
    static void write(Word w) { _mm_setcsr(w); }
#elif defined(__aarch64__)
    using Word = uint64_t;
    static constexpr Word pinned = 0;  // FPCR at reset
    static Word read() {
        Word w;
        __asm__ volatile("mrs %0, fpcr" : "=r"(w));
        return w;
    }
    static void write(Word w) { __asm__ volatile("msr fpcr, %0" : : "r"(w)); }
#else
#error "neuronsim does not know how to pin this processor's floating-point environment"
#endif
    Word saved_;
};

}  // namespace neuronsim
