// Digests of every operation and type from the core alone, without Python, so that they can be computed
// for another processor under an emulator. test_aarch64.py computes the same from the extension.
//
// Prints one line for each case: its label and the digest of its result's bytes.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "dispatch.h"
#include "dot.h"
#include "pool.h"
#include "program.h"
#include "reduce.h"
#include "rounding.h"

using namespace neuronsim;

namespace {

constexpr int64_t count = 3000;

uint64_t mix(uint64_t x) {  // SplitMix64
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint64_t valid_bits(DType t) {
    if (t == DType::boolean) return 1;
    const uint64_t all = ~uint64_t{0} >> (64 - 8 * storage_bytes(t));
    return t == DType::tfloat32 ? all & ~uint64_t{0x1FFF} : all;
}

// Random encodings. In every second place operand 1 has the exponent of operand 0, so that sums round.
std::vector<char> values(DType t, int operand) {
    const size_t size = static_cast<size_t>(storage_bytes(t));
    std::vector<char> bytes(count * size);
    for (int64_t i = 0; i < count; ++i) {
        const auto draw = [&](int n) {
            return mix(static_cast<uint64_t>(n) << 32 | static_cast<uint64_t>(i));
        };
        uint64_t word = draw(operand);
        if (operand == 1 && i % 2 == 1 && is_device_float(t)) {
            const Format& f = formats[static_cast<int>(t)];
            const uint64_t exponent = ((uint64_t{1} << f.exponent_bits) - 1)
                                      << (f.mantissa_bits + storage_shift(f));
            word = (draw(0) & exponent) | (word & ~exponent);
        }
        word &= valid_bits(t);
        memcpy(bytes.data() + static_cast<size_t>(i) * size, &word, size);
    }
    return bytes;
}

void print(const std::string& label, const std::vector<char>& bytes) {
    uint64_t digest = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
        digest += static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) * mix(i);
    printf("%s %016" PRIx64 "\n", label.c_str(), digest);
}

std::string name_of(DType t) { return dtype_names[static_cast<int>(t)]; }

void run_program(const std::string& label, int op, const std::vector<DType>& types, DType result) {
    std::vector<std::vector<char>> storage;
    std::vector<const char*> inputs;
    std::vector<int> numbers;
    for (size_t i = 0; i < types.size(); ++i) {
        storage.push_back(values(types[i], static_cast<int>(i)));
        numbers.push_back(static_cast<int>(i));
    }
    for (const auto& s : storage) inputs.push_back(s.data());
    const TileProgram program(types, {{op, result, numbers}}, {static_cast<int>(types.size())}, {});
    std::vector<char> out(count * static_cast<size_t>(storage_bytes(result)));
    char* target = out.data();
    program.run_dense(count, inputs.data(), &target, 0, nullptr);
    print(label, out);
}

void run_all() {
    for (int code = 0; code < dtype_count; ++code) {
        const DType t = static_cast<DType>(code);
        for (int op = 0; op < op_count; ++op) {
            if (t == DType::float64 || kernels().op[op][static_cast<int>(domain_of(t))] == nullptr)
                continue;
            const OpRow& row = op_rows[op];
            std::vector<DType> types(static_cast<size_t>(row.arity), t);
            if (row.kind == Kind::selection) types[0] = DType::boolean;
            run_program(std::string(row.name) + " " + name_of(t), op, types,
                        row.kind == Kind::comparison ? DType::boolean : t);
        }
        for (int target = 0; target < dtype_count; ++target)
            run_program("convert " + name_of(t) + " " + name_of(static_cast<DType>(target)), convert_op,
                        {t}, static_cast<DType>(target));
        if (t == DType::float64) continue;
        const std::vector<char> data = values(t, 0), zero(8, 0);
        for (const Op op : {Op::add, Op::multiply, Op::maximum, Op::minimum}) {
            const Reduction reduction{op, t, DType::float32, 512, false, {}, 0, {}};
            for (const bool cumulative : {false, true}) {
                const int64_t size = storage_bytes(t);
                std::vector<char> out(static_cast<size_t>(size * (cumulative ? count : 2)));
                const View view{data.data(), t, {count / 2 * size, size}};
                if (cumulative)
                    reduce_cumulative(reduction, {2, count / 2}, 1, view, zero.data(), 1, out.data());
                else reduce(reduction, {2, count / 2}, 1, view, zero.data(), out.data());
                print(std::string(cumulative ? "cumulative " : "reduce ") +
                          op_rows[static_cast<int>(op)].name + " " + name_of(t),
                      out);
            }
        }
        const int64_t size = storage_bytes(t), rows = 10, depth = 300, columns = 10;
        const std::vector<char> other = values(t, 1);
        std::vector<char> out(static_cast<size_t>(rows * columns * size));
        dot({1, rows, depth, columns}, {data.data(), t, {0, depth * size, size}},
            {other.data(), t, {0, columns * size, size}}, t, 128, {}, {}, out.data());
        print("dot " + name_of(t), out);
    }
    std::vector<uint32_t> words(tile_elements);
    random_words({1, 2}, 5, tile_elements, words.data());
    print("random_words",
          std::vector<char>(reinterpret_cast<const char*>(words.data()),
                            reinterpret_cast<const char*>(words.data() + words.size())));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc > 1) set_thread_count(atoi(argv[1]));
    printf("isa %s\n", kernels().isa);
    run_all();
}
