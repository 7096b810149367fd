#include "machine/interrupt.h"

#include <chrono>

namespace neuronsim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t operations_between_looks = int64_t{1} << 18;
constexpr std::chrono::milliseconds between_checks{50};

std::atomic<void (*)()> signal_check = nullptr;
thread_local Clock::time_point last_check{};

}  // namespace

thread_local constinit int64_t operations_left = operations_between_looks;
thread_local constinit bool is_handling_signals = false;
thread_local constinit const std::atomic<bool>* cancelled = nullptr;
thread_local constinit uint32_t looks_for_signals = 0;

void set_signal_check(void (*check)()) { signal_check = check; }

void look_for_signals() {
    if (is_handling_signals || signal_check == nullptr) return;
    const Clock::time_point now = Clock::now();
    if (now - last_check < between_checks) return;
    last_check = now;
    ++looks_for_signals;
    const Scoped handling(is_handling_signals, true);
    signal_check.load()();
}

void look() {
    operations_left = operations_between_looks;
    if (is_handling_signals) return;
    if (cancelled != nullptr && *cancelled) throw Cancelled{};
    look_for_signals();
}

}  // namespace neuronsim
