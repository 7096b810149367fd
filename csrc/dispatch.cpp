#include "dispatch.h"

#include <atomic>
#include <stdexcept>

namespace neuronsim {

#if defined(__x86_64__)
namespace x86_64 {
extern const Kernels kernels;
}
namespace x86_64_v3 {
extern const Kernels kernels;
}
namespace x86_64_v4 {
extern const Kernels kernels;
}
namespace x86_64_v4_bf16 {
extern const Kernels kernels;
}
#else
namespace native {
extern const Kernels kernels;
}
#endif

namespace {

struct Candidate {
    const Kernels* kernels;
    bool supported;
};

// The names are those of the x86-64 psABI's microarchitecture levels, narrowest first; the last one
// has AVX512-BF16's conversions as well.
std::vector<Candidate> candidates() {
#if defined(__x86_64__)
    const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512cd");
    return {
        {&x86_64::kernels, true},
        {&x86_64_v3::kernels, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                  __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c")},
        {&x86_64_v4::kernels, v4},
        {&x86_64_v4_bf16::kernels, v4 && __builtin_cpu_supports("avx512bf16")},
    };
#else
    return {{&native::kernels, true}};
#endif
}

const Kernels* widest() {
    const Kernels* best = nullptr;
    for (const Candidate& c : candidates())
        if (c.supported) best = c.kernels;
    return best;
}

std::atomic<const Kernels*> selected = widest();

}  // namespace

const OpRow op_rows[op_count] = {
#define REDUCER(name, f, s, u) {#name, 2, Kind::reducer},
#define ARITHMETIC(name, arity, f, s, u) {#name, arity, Kind::arithmetic},
#define FLOATING(name, arity, f) {#name, arity, Kind::floating},
#define INTEGER(name, arity, s, u) {#name, arity, Kind::integer},
#define INTEGRAL(name, arity, u) {#name, arity, Kind::integral},
#define BITWISE(name, arity, f, s, u) {#name, arity, Kind::bitwise},
#define SIGN(name, arity, f) {#name, arity, Kind::sign},
#define COMPARISON(name, arity, body) {#name, arity, Kind::comparison},
#define SELECTION(name) {#name, 3, Kind::selection},
#include "ops.def"
};

const Kernels& kernels() { return *selected.load(std::memory_order_relaxed); }

std::vector<std::string> available_isas() {
    std::vector<std::string> names;
    for (const Candidate& c : candidates())
        if (c.supported) names.emplace_back(c.kernels->isa);
    return names;
}

void select_isa(const std::string& name) {
    for (const Candidate& c : candidates()) {
        if (name != c.kernels->isa) continue;
        if (!c.supported) throw std::invalid_argument("this processor does not have " + name);
        selected = c.kernels;
        return;
    }
    throw std::invalid_argument("no kernels were built for " + name);
}

}  // namespace neuronsim
