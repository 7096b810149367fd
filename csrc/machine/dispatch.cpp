#include "machine/dispatch.h"

#include <atomic>
#include <stdexcept>

namespace neuronsim {

// NEURONSIM_KERNELS lists what csrc/CMakeLists.txt compiled, narrowest first.
#define KERNELS(name)             \
    namespace name {              \
    extern const Kernels kernels; \
    }
NEURONSIM_KERNELS
#undef KERNELS

namespace {

struct Candidate {
    const Kernels* kernels;
    bool supported;
};

// The names are those of the x86-64 psABI's microarchitecture levels; the last one has AVX512-BF16's
// conversions as well.
struct Processor {
#if defined(__x86_64__)
    const bool x86_64 = true;
    const bool x86_64_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
    const bool x86_64_v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512cd");
    const bool x86_64_v4_bf16 = x86_64_v4 && __builtin_cpu_supports("avx512bf16");
#else
    const bool native = true;
#endif
};

std::vector<Candidate> candidates() {
    const Processor processor;
#define KERNELS(name) {&name::kernels, processor.name},
    return {NEURONSIM_KERNELS};
#undef KERNELS
}

std::atomic<const Kernels*> selected = &widest_kernels();

}  // namespace

const ByOp<OpRow> op_rows = {{
#define OP(kind, name, arity) {#name, arity, Kind::kind},
#include "ops.def"
}};

const Kernels& widest_kernels() {
    const Kernels* widest = nullptr;
    for (const Candidate& c : candidates())
        if (c.supported) widest = c.kernels;
    return *widest;
}

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
