// What this processor's own bfloat16 instructions give: chains of VDPBF16PS, each from +0, and
// VCVTNEPS2BF16. Built and run by test_dot_avx512_bf16.py; exit code 77: the processor has neither.
//
//   vdpbf16ps dot IN OUT batch rows depth columns    (columns a multiple of 16)
//   vdpbf16ps convert OUT first step count           (count a multiple of 16)
#include <immintrin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

template <typename T>
bool read_all(const char* path, std::vector<T>& to) {
    FILE* file = std::fopen(path, "rb");
    const bool ok = file && std::fread(to.data(), sizeof(T), to.size(), file) == to.size();
    if (file) std::fclose(file);
    return ok;
}

template <typename T>
bool write_all(const char* path, const std::vector<T>& from) {
    FILE* file = std::fopen(path, "wb");
    const bool ok = file && std::fwrite(from.data(), sizeof(T), from.size(), file) == from.size();
    return file && std::fclose(file) == 0 && ok;
}

int run_dot(char** words) {
    long n[4];
    for (int i = 0; i < 4; ++i) n[i] = std::atol(words[2 + i]);
    const long batch = n[0], rows = n[1], depth = n[2], columns = n[3];
    std::vector<uint16_t> in(batch * depth * (rows + columns));
    std::vector<float> out(batch * rows * columns);
    if (!read_all(words[0], in)) return 1;
    for (long i = 0; i < batch; ++i) {
        const uint16_t* a = in.data() + i * rows * depth;
        const uint16_t* b = in.data() + batch * rows * depth + i * depth * columns;
        for (long row = 0; row < rows; ++row)
            for (long column = 0; column < columns; column += 16) {
                __m512 acc = _mm512_setzero_ps();
                for (long k = 0; k < depth; k += 2) {
                    const bool whole = k + 1 < depth;  // +0 stands behind an odd end
                    uint32_t left = a[row * depth + k], right[16];
                    if (whole) left |= uint32_t{a[row * depth + k + 1]} << 16;
                    for (long j = 0; j < 16; ++j) {
                        right[j] = b[k * columns + column + j];
                        if (whole) right[j] |= uint32_t{b[(k + 1) * columns + column + j]} << 16;
                    }
                    acc = _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(static_cast<int>(left)),
                                           (__m512bh)_mm512_loadu_si512(right));
                }
                _mm512_storeu_ps(out.data() + (i * rows + row) * columns + column, acc);
            }
    }
    return write_all(words[1], out) ? 0 : 1;
}

int run_convert(char** words) {
    const uint64_t first = std::strtoull(words[1], nullptr, 10);
    const uint64_t step = std::strtoull(words[2], nullptr, 10);
    const uint64_t count = std::strtoull(words[3], nullptr, 10);
    std::vector<uint16_t> out(count);
    for (uint64_t i = 0; i < count; i += 16) {
        uint32_t lanes[16];
        for (uint64_t j = 0; j < 16; ++j) lanes[j] = static_cast<uint32_t>(first + (i + j) * step);
        __m512 x;
        std::memcpy(&x, lanes, sizeof x);
        const __m256bh y = _mm512_cvtneps_pbh(x);
        std::memcpy(out.data() + i, &y, sizeof y);
    }
    return write_all(words[0], out) ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
    if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512f")) return 77;
    if (count == 8 && !std::strcmp(words[1], "dot")) return run_dot(words + 2);
    if (count == 6 && !std::strcmp(words[1], "convert")) return run_convert(words + 2);
    return 2;
}
