// A persistent thread pool that splits outputs, never a sum, so no bit depends on it (D1).
#pragma once

#include <cstdint>
#include <functional>

#include "machine/fpenv.h"

namespace neuronsim {

int thread_count();
void set_thread_count(int n);  // n >= 1
// Whether others wait for work without sleeping: waking them takes some 60 microseconds (measured).
bool workers_are_awake();

// Runs body(begin, end) over disjoint ranges that cover [0, n), each a multiple of `grain` long but
// for the last. The floating-point environment is pinned around every call of body.
void share_out(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
    if (n > grain) return share_out(n, grain, std::ref(body));
    const PinnedEnvironment pinned;
    if (n > 0) body(0, n);
}

}  // namespace neuronsim
