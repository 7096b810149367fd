#include "products/instructions.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "machine/dispatch.h"
#include "machine/fpenv.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace neuronsim {
namespace {

// Runs the kernel of VDPBF16PS beside that of fused multiply-adds on pairs of all signs and mantissas
// and of the exponents for which M2 trusts the instruction, with zeros among them.
bool prove_pairs() {
    const PinnedEnvironment pinned;
    const Kernels& k = widest_kernels();
    constexpr int steps = 64, rounds = 64;
    const int lanes = k.lanes;
    if (k.pair_chains == nullptr || lanes > max_lanes) return false;
    uint64_t state = 1;
    const auto word = [&] {  // Knuth's MMIX generator, its high bits
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state >> 33);
    };
    const auto element = [&](int round) {
        const uint32_t spread = round % 4 == 0 ? 110 : round % 4 == 1 ? 3 : 24;
        const uint32_t exponent = 127 - spread / 2 + word() % (spread + 1);
        const uint32_t x = (word() & 1) << 15 | exponent << 7 | (word() & 0x7F);
        return word() % 16 == 0 ? x & 0x8000 : x;
    };
    for (int round = 0; round < rounds; ++round) {
        uint32_t a[steps], b[steps * max_lanes];
        for (uint32_t& x : a) x = element(round) << 16 | element(round);
        for (uint32_t& x : b) x = element(round) << 16 | element(round);
        const BlockRun run{0, steps, true};
        float found[2][max_lanes];
        for (const ProductForm form : {ProductForm::pairs, ProductForm::pairs_by_fma}) {
            float* const sums = found[form == ProductForm::pairs ? 0 : 1];
            k.product[form][0][0]({reinterpret_cast<const char*>(a), 0, 4, &run, &run + 1,
                                   reinterpret_cast<const float*>(b), sums, lanes, true, false});
        }
        if (__builtin_memcmp(found[0], found[1], static_cast<size_t>(lanes) * sizeof(float)) != 0)
            return false;
    }
    return true;
}
const bool proved = prove_pairs();

#if defined(__x86_64__)
const bool has_avx512_vnni = __builtin_cpu_supports("avx512vnni");
const bool has_avx_vnni = __builtin_cpu_supports("avxvnni");
#else
constexpr bool has_avx512_vnni = false, has_avx_vnni = false;
#endif

// Linux lets a process use the tiles' registers once it has asked for them.
bool may_use_tiles() {
#if defined(__x86_64__) && defined(__linux__)
    constexpr long request_permission = 0x1023, tile_data = 18;  // asm/prctl.h, "x86/xstate"
    constexpr unsigned features = 7, amx_tile = 1u << 24, amx_int8 = 1u << 25;  // CPUID.7.0:EDX
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(features, 0, &a, &b, &c, &d) != 0 && (d & amx_tile) != 0 &&
           (d & amx_int8) != 0 && has_avx512_vnni &&
           syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}
std::atomic<ByteProducts> selected_byte_products = ByteProducts::automatic;

std::atomic<Bfloat16Products> selected_products = Bfloat16Products::automatic;
std::atomic<Bfloat16Products> found_products = Bfloat16Products::automatic;  // before the timing

// Products of no more rows wait for memory, of which pairs take half (measured at 4 rows: half the
// time).
constexpr int64_t few_rows = 16;

// The instruction does twice the work of a fused multiply-add, on some processors in twice the time.
// The advantage that it must have covers what the other form saves: 16 bits become 32 once, in packing.
Bfloat16Products quicker_products() {
    using Clock = std::chrono::steady_clock;
    constexpr int64_t steps = 500;
    constexpr int rounds = 5;  // some 40 microseconds together
    constexpr double least_advantage = 1.15;
    const PinnedEnvironment pinned;
    const Kernels& k = widest_kernels();
    const auto seconds = [](float (*chains)(int64_t)) {
        const Clock::time_point start = Clock::now();
        [[maybe_unused]] const volatile float used = chains(steps);
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    // Another program can only lengthen a round: the shortest one counts.
    double fma = 1, pairs = 1;
    for (int i = 0; i < rounds; ++i) {
        fma = std::min(fma, seconds(k.fma_chains));
        pairs = std::min(pairs, seconds(k.pair_chains));
    }
    return 2 * fma > least_advantage * pairs ? Bfloat16Products::pairs : Bfloat16Products::fma;
}

}  // namespace

void select_bfloat16_products(Bfloat16Products form) { selected_products = form; }

bool prefers_pairs(int64_t rows) {
    Bfloat16Products form = selected_products;
    if (form == Bfloat16Products::automatic && rows <= few_rows) return true;
    if (form == Bfloat16Products::automatic) form = found_products;
    if (form == Bfloat16Products::automatic && proved) {
        // Without a lock, which a fork could leave taken: of several threads' findings the first stays.
        const Bfloat16Products quicker = quicker_products();
        if (found_products.compare_exchange_strong(form, quicker)) form = quicker;
    }
    return form == Bfloat16Products::pairs;
}

bool pairs_are_proved() { return proved; }

void select_byte_products(ByteProducts form) { selected_byte_products = form; }

ByteProducts byte_products() {
    const Kernels& k = kernels();
    const ByteProducts form = selected_byte_products.load(std::memory_order_relaxed);
    // Asked for at the first product of bytes: with the tiles signals need larger stacks.
    static const bool has_tiles = may_use_tiles();
    if (form <= ByteProducts::tiles && has_tiles && k.product_tiles[0] != nullptr)
        return ByteProducts::tiles;
    const bool supported = k.lanes == 16 ? has_avx512_vnni : has_avx_vnni;
    return form <= ByteProducts::quads && supported && k.product[ProductForm::quads][0][0] != nullptr
               ? ByteProducts::quads
               : ByteProducts::widened;
}

}  // namespace neuronsim
