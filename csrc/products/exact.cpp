#include <algorithm>
#include <cstring>

#include "machine/dispatch.h"
#include "machine/interrupt.h"
#include "machine/pool.h"
#include "products/strategies.h"

namespace neuronsim {
namespace {

// The exact sum of products of float32 values (M6).
class ExactSum {
public:
    void add_product(float a, float b);
    // The sum rounded to odd in float64, to 33 bits or more: one rounding of that to a device type is
    // the exact sum's. An exact zero is +0; NaN where IEEE 754 has an invalid operation.
    double rounded_to_odd() const;

private:
    // The fixed point: digit i counts units of 2^(32 i - 298), 2^-298 being the least product's.
    static constexpr int digits = 20, least_exponent = -298;
    int64_t digit_[digits] = {};
    uint32_t pending_ = 0;  // products since the digits were last brought below 2^32
    bool nan_ = false, plus_inf_ = false, minus_inf_ = false;

    static void carry(int64_t* digit);
};

struct Parts {
    uint64_t significand;
    int exponent;  // of the significand's unit
    bool negative;
};

Parts parts_of(uint32_t bits) {
    const uint32_t field = bits >> 23 & 0xFF;
    return {(bits & 0x7FFFFF) | (field != 0 ? 0x800000u : 0u),
            static_cast<int>(field != 0 ? field : 1) - 150, bits >> 31 != 0};
}

// Leaves all digits but the last, which has the sign, in [0, 2^32).
void ExactSum::carry(int64_t* digit) {
    for (int i = 0; i + 1 < digits; ++i) {
        const int64_t up = digit[i] >> 32;
        digit[i] -= up * (int64_t{1} << 32);
        digit[i + 1] += up;
    }
}

void ExactSum::add_product(float a, float b) {
    uint32_t x, y;
    std::memcpy(&x, &a, sizeof x);
    std::memcpy(&y, &b, sizeof y);
    constexpr uint32_t inf = 0x7F800000, magnitude = 0x7FFFFFFF;
    if ((x & magnitude) >= inf || (y & magnitude) >= inf) {
        const bool is_nan = (x & magnitude) > inf || (y & magnitude) > inf || (x & magnitude) == 0 ||
                            (y & magnitude) == 0;
        const bool negative = (x ^ y) >> 31 != 0;
        nan_ |= is_nan;
        minus_inf_ |= !is_nan && negative;
        plus_inf_ |= !is_nan && !negative;
        return;
    }
    const Parts p = parts_of(x), q = parts_of(y);
    const uint64_t product = p.significand * q.significand;
    const int shift = p.exponent + q.exponent - least_exponent;
    const int first = shift / 32, by = shift % 32;
    // 48 bits shifted by up to 31 are three digits.
    const uint64_t low = (product & 0xFFFFFFFF) << by, high = (product >> 32) << by;
    const int64_t parts[] = {static_cast<int64_t>(low & 0xFFFFFFFF),
                             static_cast<int64_t>((low >> 32) + (high & 0xFFFFFFFF)),
                             static_cast<int64_t>(high >> 32)};
    const bool negative = p.negative != q.negative;
    for (int i = 0; i < 3; ++i) digit_[first + i] += negative ? -parts[i] : parts[i];
    if (++pending_ == 1u << 28) {
        carry(digit_);
        pending_ = 0;
    }
}

double ExactSum::rounded_to_odd() const {
    if (nan_ || (plus_inf_ && minus_inf_)) return __builtin_nan("");
    if (plus_inf_ || minus_inf_) return plus_inf_ ? __builtin_inf() : -__builtin_inf();
    int64_t digit[digits];
    std::memcpy(digit, digit_, sizeof digit);
    carry(digit);
    const bool negative = digit[digits - 1] < 0;
    if (negative) {
        for (int64_t& d : digit) d = -d;
        carry(digit);
    }
    int top = digits - 1;
    while (top > 0 && digit[top] == 0) --top;
    // The top 33 to 64 bits, and whether anything lies below.
    uint64_t head = static_cast<uint64_t>(digit[top]);
    int unit = 32 * top + least_exponent;
    bool sticky = false;
    for (int i = top - 1; i >= 0; --i) {
        if (head >> 32 == 0) {
            head = head << 32 | static_cast<uint64_t>(digit[i]);
            unit -= 32;
        } else {
            sticky |= digit[i] != 0;
        }
    }
    // At most 53 bits, the last of them odd if any bit is lost.
    const int length = head == 0 ? 0 : 64 - __builtin_clzll(head);
    const int drop = length > 53 ? length - 53 : 0;
    sticky |= drop > 0 && (head & ((uint64_t{1} << drop) - 1)) != 0;
    uint64_t kept = head >> drop;
    if (sticky && drop == 0 && length < 53) {  // what is lost lies below a short head
        const int room = 53 - length;
        kept <<= room;
        unit -= room;
    }
    kept |= sticky ? 1 : 0;
    double value = static_cast<double>(kept);
    // Powers of two that float64 has: |unit + drop| is below 400.
    const int exponent = unit + drop;
    const uint64_t scale_bits = static_cast<uint64_t>(1023 + exponent) << 52;
    double scale;
    std::memcpy(&scale, &scale_bits, sizeof scale);
    value *= scale;
    return negative ? -value : value;
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
                packer.stage_block(operand.data + axes_offset(operand.batch, batch), vector, 1, at,
                                   count, false, 0, reinterpret_cast<char*>(to.data()));
            };
            for (int64_t j = 0; j < columns; ++j) {
                ExactSum sum;
                for (int64_t at = 0; at < depth; at += piece) {
                    const int64_t count = std::min(piece, depth - at);
                    note_work(8 * count);
                    if (j == 0 || depth > piece) stage(a_packer, a, row, at, count, x);
                    stage(b_packer, b, j, at, count, y);
                    for (int64_t i = 0; i < count; ++i)
                        sum.add_product(x[static_cast<size_t>(i)], y[static_cast<size_t>(i)]);
                }
                tile.f64[0] = sum.rounded_to_odd();
                // From float64 by round-to-odd, one rounding is that of the exact value (C1).
                const bool nearest = result.dtype == DType::float32 || numerics.stochastic;
                Tile narrow;
                k.to_float32[static_cast<int>(Domain::float64)](
                    &narrow, &tile, 1, nearest ? Narrowing::nearest : Narrowing::odd);
                if (narrow.f32[0] != narrow.f32[0]) narrow.f32[0] = __builtin_nanf("");
                const int64_t at = axes_offset(result.batch, batch) + axes_offset(result.rows, row) +
                                   axes_offset(result.columns, j);
                round_values(k, result.dtype, numerics, draw, draw.first + at / size, &narrow, 1);
                k.store[static_cast<int>(result.dtype)](&narrow, 1, result.data + at);
            }
        }
    });
}

}  // namespace neuronsim
