// The processor's caches, as it reports them.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace neuronsim {

// Bytes of one processor's second-level cache; where nothing is reported, of the smaller usual one.
inline const int64_t second_cache_bytes = [] {
    int64_t reported = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
    reported = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return reported > 0 ? reported : int64_t{1} << 20;
}();

// Whether the third-level cache feeds products. Measured: Zen 4's does, Emerald Rapids', beside second
// ones of 2 MiB, does not.
inline const bool has_quick_third_cache = second_cache_bytes < 2 << 20;

}  // namespace neuronsim
