// How a long kernel is interrupted: it tells how much it has done, and now and then signals are looked
// for, whose handlers may end it with an exception of theirs.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace neuronsim {

// What looks for signals in this thread, and throws what ends its kernel. The pool's threads have none.
void set_signal_check(void (*check)());

// Runs the check, but not inside of it, and not 20 times a second or more.
void look_for_signals();

// Gives a variable another value until the end of the scope.
template <class T>
class Scoped {
public:
    Scoped(T& variable, T value) : variable_(variable), outer_(std::exchange(variable, value)) {}
    ~Scoped() { variable_ = outer_; }
    Scoped(const Scoped&) = delete;
    Scoped& operator=(const Scoped&) = delete;

private:
    T& variable_;
    const T outer_;
};

// Thrown by look() in a thread whose part of the work is not wanted any more; and what says so in this
// thread, or null.
struct Cancelled {};
extern thread_local constinit const std::atomic<bool>* cancelled;

// Takes note of about so many operations on elements since the last note. Between two notes a kernel
// works for some milliseconds at most, and after 2^18 operations this thread looks whether to go on.
// Throws what ends the kernel. Inlined everywhere, so that the linker merges nothing of instruction
// sets.
extern thread_local constinit int64_t operations_left;
void look();
[[gnu::always_inline]] inline void note_work(int64_t operations) {
    operations_left -= operations;
    if (operations_left < 0) [[unlikely]]
        look();
}

// The notes of a loop with turns of nanoseconds, many of them together.
class Notes {
public:
    [[gnu::always_inline]] void add(int64_t operations) {
        unnoted_ += operations;
        if (unnoted_ < together) return;
        note_work(unnoted_);
        unnoted_ = 0;
    }

private:
    static constexpr int64_t together = 1 << 14;
    int64_t unnoted_ = 0;
};

// How often signals were looked for in this thread: a handler may have changed what the processor keeps
// from call to call, as the shapes of its tiles.
extern thread_local constinit uint32_t looks_for_signals;
// Whether this thread runs what a signal's handler called while a kernel waits.
extern thread_local constinit bool is_handling_signals;

// This thread's own T, kept from call to call, since fresh memory is slow; `place` is of a type of its
// own ([] {}) for each place in the source. A handler that computes while a kernel waits has another T.
template <class T, class Place>
T& per_thread(Place) {
    thread_local T own[2];
    return own[is_handling_signals];
}

}  // namespace neuronsim
