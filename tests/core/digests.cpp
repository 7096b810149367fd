// Digests of every operation and type from the core alone, without Python, so that they can be computed
// for another processor under an emulator. test_aarch64.py computes the same from the extension.
//
// Prints one line for each case: its label and the digest of its result's bytes.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "elementwise/chain.h"
#include "elementwise/rounding.h"
#include "machine/dispatch.h"
#include "machine/pool.h"
#include "products/convolution/convolution.h"
#include "products/product.h"
#include "reductions/reduce.h"

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
    const Chain program(types, {{op, result, numbers}}, {static_cast<int>(types.size())}, {});
    std::vector<char> out(count * static_cast<size_t>(storage_bytes(result)));
    char* target = out.data();
    program.run_dense(count, inputs.data(), &target);
    print(label, out);
}

// The same for products: floats of a few binades, so that sums round and few are NaN. They lie about 1
// or, for operand 0 if `tiny`, at the lower end of the type's exponents.
std::vector<char> factors(DType t, int operand, bool tiny) {
    std::vector<char> bytes = values(t, operand);
    if (!is_device_float(t)) return bytes;
    const Format& f = formats[static_cast<int>(t)];
    const int place = f.mantissa_bits + storage_shift(f);
    const uint64_t top = (uint64_t{1} << f.exponent_bits) - 1;
    const uint64_t binades = f.exponent_bits < 4 ? 4 : 8;
    const uint64_t least = tiny && operand == 0 ? 0 : (top >> 1) - binades / 2;
    const auto size = static_cast<size_t>(storage_bytes(t));
    for (size_t at = 0; at < bytes.size(); at += size) {
        uint64_t word = 0;
        memcpy(&word, bytes.data() + at, size);
        word = (word & ~(top << place)) | (least + (word >> place) % binades) << place;
        memcpy(bytes.data() + at, &word, size);
    }
    return bytes;
}

// [rows, depth] by [depth, columns] of the first values.
void run_dot(const std::string& label, DType t, DType to, int64_t rows, int64_t depth, int64_t columns,
             const Accumulation& how, bool flush, bool tiny) {
    const int64_t size = storage_bytes(t), stored = storage_bytes(to);
    const std::vector<char> a = factors(t, 0, tiny), b = factors(t, 1, tiny);
    std::vector<char> out(static_cast<size_t>(rows * columns * stored));
    const ProductOperand left{a.data(), t, {}, {{rows, depth * size}}, {{depth, size}}},
        right{b.data(), t, {}, {{columns, size}}, {{depth, columns * size}}};
    const ProductResult result{out.data(), to, {}, {{rows, columns * stored}}, {{columns, stored}}};
    Numerics numerics;
    numerics.flush_subnormals = flush;
    ProductCall{left, right, nullptr, result, how, numerics}.run({});
    print(label, out);
}

// An image [1, length, groups * reads] of which `window` pixels at a time make groups * writes
// features.
void run_convolution(const std::string& label, DType t, int64_t length, int64_t window, int64_t padding,
                     int64_t groups, int64_t reads, int64_t writes, const Accumulation& how) {
    const int64_t size = storage_bytes(t), features = groups * reads, outputs = groups * writes;
    const int64_t places = length + 2 * padding - window + 1;
    const std::vector<char> x = factors(t, 0, false), w = factors(t, 1, false);
    std::vector<char> out(static_cast<size_t>(places * outputs * size));
    const ProductOperand input{x.data(),
                               t,
                               {},
                               {{1, length * features * size}, {length, features * size}},
                               {{features, size}}},
        kernel{w.data(),
               t,
               {{groups, writes * size}},
               {{writes, size}},
               {{window, reads * outputs * size}, {reads, outputs * size}}};
    const ProductResult result{out.data(),
                               t,
                               {{groups, writes * size}},
                               {{1, places * outputs * size}, {places, outputs * size}},
                               {{writes, size}}};
    const Convolution shape{
        {{length, places, window, 1, padding, 1, 1, false}}, groups, 1, 1, reads, writes};
    char* const data[] = {const_cast<char*>(x.data()), const_cast<char*>(w.data()), out.data()};
    ConvolutionCall{{input, kernel, nullptr, result, how, {}}, shape}.run(data, {}, nullptr);
    print(label, out);
}

// Every form in which products accumulate; test_aarch64.py has the same table.
void run_products(DType t) {
    const auto fma = [](DType type, int64_t tile) { return Accumulation{Accumulate::fma, type, tile}; };
    const DType f32 = DType::float32;
    const std::string name = " " + name_of(t);
    run_dot("dot" + name + " psum128", t, t, 10, 300, 10, fma(f32, 128), false, false);
    run_dot("dot" + name + " row", t, t, 1, 300, 10, fma(f32, 128), false, false);
    run_dot("dot" + name + " column", t, t, 29, 101, 1, fma(f32, 128), false, false);
    run_dot("dot" + name + " outer", t, t, 50, 1, 51, fma(f32, 128), false, false);
    run_convolution("convolution" + name + " direct", t, 31, 1, 0, 1, 40, 70, fma(f32, 128));
    run_convolution("convolution" + name + " image", t, 31, 3, 1, 1, 40, 25, fma(f32, 128));
    run_convolution("convolution" + name + " depthwise", t, 31, 3, 2, 40, 1, 2, fma(f32, 128));
    run_convolution("convolution" + name + " groups", t, 29, 3, 1, 4, 25, 9, fma(f32, 128));
    if (!is_device_float(t)) return;
    const std::string ends[] = {"", " tiny", " tiny flush"};
    for (const std::string& end : ends) {
        const auto run = [&](const char* model, const Accumulation& how) {
            run_dot("dot" + name + " " + model + end, t, f32, 10, 300, 10, how, end == ends[2],
                    end != ends[0]);
        };
        if (end != ends[0]) run("psum128", fma(f32, 128));
        run("sequential", fma(f32, 300));
        run("exact", {Accumulate::exact, f32, 128});
        run("pairs", {Accumulate::pairs, f32, 300});
        run("to_bfloat16", fma(DType::bfloat16, 128));
        run("to_float16", fma(DType::float16, 128));
        if (storage_bytes(t) < 4) run("product_bf16", {Accumulate::product_bfloat16, f32, 128});
    }
    run_convolution("convolution" + name + " exact", t, 31, 3, 1, 1, 40, 25,
                    {Accumulate::exact, f32, 128});
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
            const Reduction reduction{op, t, DType::float32, 512, false, {}};
            for (const bool cumulative : {false, true}) {
                const int64_t size = storage_bytes(t);
                std::vector<char> out(static_cast<size_t>(size * (cumulative ? count : 2)));
                char* const places[] = {const_cast<char*>(data.data()), const_cast<char*>(zero.data()),
                                        out.data()};
                ReduceCall{reduction, {{2, count / 2 * size}, {count / 2, size}}, 1, cumulative ? 1 : 0}
                    .run(places, {});
                print(std::string(cumulative ? "cumulative " : "reduce ") +
                          op_rows[static_cast<int>(op)].name + " " + name_of(t),
                      out);
            }
        }
        run_products(t);
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
