#include <algorithm>
#include <bit>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/strategies.h"

namespace neuronsim {
namespace {

using Wide = unsigned __int128;

// The exact sum of products of two float32 values, which float64 has exactly (M6).
class ExactSum {
public:
    void add(double product);
    // The sum rounded to odd in float64: one rounding of that to a device type is the exact sum's. An
    // exact zero is +0; NaN where IEEE 754 has an invalid operation.
    double rounded_to_odd() const;

private:
    // The fixed point: digit i counts units of 2^(32 i - 350). The least product is 2^-298, a normal
    // float64 whose last bit is 52 below.
    static constexpr int digits = 20, least_exponent = -350;
    int64_t digit_[digits] = {};
    uint32_t pending_ = 0;  // products since the digits were last brought below 2^32
    double special_ = 0;    // the sum of those that are Inf or NaN

    static void carry(int64_t* digit);
};

// Leaves all digits but the last, which has the sign, in [0, 2^32).
void ExactSum::carry(int64_t* digit) {
    for (int i = 0; i + 1 < digits; ++i) {
        const int64_t up = digit[i] >> 32;
        digit[i] -= up * (int64_t{1} << 32);
        digit[i + 1] += up;
    }
}

void ExactSum::add(double product) {
    if (product == 0) return;
    if (product - product != 0) {
        special_ += product;
        return;
    }
    const uint64_t bits = std::bit_cast<uint64_t>(product), hidden = uint64_t{1} << 52;
    const int shift = static_cast<int>(bits >> 52 & 0x7FF) - 1075 - least_exponent;
    // 53 bits shifted by up to 31 are three digits.
    Wide rest = static_cast<Wide>((bits & (hidden - 1)) | hidden) << shift % 32;
    for (int i = 0; i < 3; ++i, rest >>= 32) {
        const int64_t part = static_cast<uint32_t>(rest);
        digit_[shift / 32 + i] += bits >> 63 != 0 ? -part : part;
    }
    if (++pending_ == 1u << 28) {
        carry(digit_);
        pending_ = 0;
    }
}

double ExactSum::rounded_to_odd() const {
    if (special_ != 0) return special_;
    int64_t digit[digits];
    std::copy(digit_, digit_ + digits, digit);
    carry(digit);
    const bool negative = digit[digits - 1] < 0;
    if (negative) {
        for (int64_t& d : digit) d = -d;
        carry(digit);
    }
    int top = digits - 1;
    while (top > 2 && digit[top] == 0) --top;
    // Three digits are 65 bits or more, or all there is.
    Wide head = 0;
    for (int i = top; i > top - 3; --i) head = head << 32 | static_cast<uint64_t>(digit[i]);
    for (int i = 0; i < top - 2; ++i) head |= digit[i] != 0;
    int exponent = 32 * (top - 2) + least_exponent;
    for (; head >> 53 != 0; ++exponent) head = head >> 1 | (head & 1);
    // A power of two that float64 has: |exponent| is below 400.
    const double unit = std::bit_cast<double>(static_cast<uint64_t>(1023 + exponent) << 52);
    return (negative ? -1.0 : 1.0) * static_cast<double>(static_cast<uint64_t>(head)) * unit;
}

}  // namespace

void product_exact(const ProductCall& call, Draw draw) {
    const ProductOperand &a = call.a, &b = call.b;
    const ProductResult& result = call.result;
    const Numerics& numerics = call.numerics;
    const Kernels& k = kernels();
    const int64_t rows = axes_size(result.rows), columns = axes_size(result.columns),
                  depth = axes_size(a.depth);
    const Packer a_packer(k, a, ProductForm::fma, numerics), b_packer(k, b, ProductForm::fma, numerics);
    const int size = storage_bytes(result.dtype);
    parallel_for(axes_size(result.batch) * rows, 1, [&](int64_t begin, int64_t end) {
        constexpr int64_t piece = 4096;
        std::vector<float> x(piece), y(piece);
        Tile tile;
        for (int64_t job = begin; job < end; ++job) {
            const int64_t batch = job / rows, row = job % rows;
            const auto stage = [&](const Packer& packer, const ProductOperand& operand, int64_t vector,
                                   int64_t at, int64_t count, std::vector<float>& to) {
                const char* const data = operand.data + axes_offset(operand.batch, batch);
                packer.stage_block({data, vector, 1, at, count}, false, 0,
                                   reinterpret_cast<char*>(to.data()));
            };
            for (int64_t j = 0; j < columns; ++j) {
                ExactSum sum;
                for (int64_t at = 0; at < depth; at += piece) {
                    const int64_t count = std::min(piece, depth - at);
                    note_work(8 * count);
                    if (j == 0 || depth > piece) stage(a_packer, a, row, at, count, x);
                    stage(b_packer, b, j, at, count, y);
                    for (int64_t i = 0; i < count; ++i) sum.add(static_cast<double>(x[i]) * y[i]);
                }
                tile.f64[0] = sum.rounded_to_odd();
                // From float64 by round-to-odd, one rounding is that of the exact value (C1).
                const bool nearest = result.dtype == DType::float32 || numerics.stochastic;
                Tile narrow;
                k.to_float32[Domain::float64](&narrow, &tile, 1,
                                              nearest ? Narrowing::nearest : Narrowing::odd);
                if (narrow.f32[0] != narrow.f32[0]) narrow.f32[0] = __builtin_nanf("");
                const int64_t at = axes_offset(result.batch, batch) + axes_offset(result.rows, row) +
                                   axes_offset(result.columns, j);
                round_values(k, result.dtype, numerics, draw, draw.first + at / size, &narrow, 1);
                k.store[result.dtype](&narrow, 1, result.data + at);
            }
        }
    });
}

}  // namespace neuronsim
