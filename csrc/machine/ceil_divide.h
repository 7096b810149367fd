// A division that rounds up.
#pragma once

#include <cstdint>

namespace neuronsim {

constexpr int64_t ceil_divide(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace neuronsim
