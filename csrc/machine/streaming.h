// Stores that go past the caches, where the processor has them.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace neuronsim {

#if defined(__SSE2__)
inline bool can_stream(const char* target, int64_t stride) {
    return stride % 16 == 0 && reinterpret_cast<uintptr_t>(target) % 16 == 0;
}
inline void stream_16_bytes(const char* source, char* target) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
}
// What was streamed is there for other threads from here on.
inline void end_streaming() { _mm_sfence(); }
#else
inline bool can_stream(const char*, int64_t) { return false; }
inline void stream_16_bytes(const char* source, char* target) { std::memcpy(target, source, 16); }
inline void end_streaming() {}
#endif

}  // namespace neuronsim
