#include <algorithm>
#include <stdexcept>

#include "machine/caches.h"
#include "machine/dispatch.h"
#include "machine/pool.h"
#include "machine/sizes.h"
#include "products/product.h"

namespace neuronsim {

// Few rows wait for memory, of which pairs take half, unless the columns stay in the second cache.
static int64_t rows_that_wait(int64_t rows, const ProductOperand& b) {
    const int64_t elements = axes_size(b.batch) * axes_size(b.vectors) * axes_size(b.depth);
    return elements * int64_t{sizeof(float)} <= second_cache_bytes / 2 ? INT64_MAX : rows;
}

PackedColumns::PackedColumns(DType a, const ProductOperand& operand, const Accumulation& how,
                             const Numerics& numerics, int64_t rows)
    : isa_(kernels().isa), numerics_(numerics), type_(operand.type()) {
    const Kernels& k = kernels();
    const ProductOperand b = collapsed(operand);
    if (is_device_float(type_) != is_device_float(a))
        throw std::invalid_argument("packed columns are of floats, or of integers");
    form_ = product_form(k, a, type_, how, numerics, rows_that_wait(rows, b));
    width_ = k.panel_width;
    columns_ = axes_size(b.vectors);
    panels_ = ceil_divide(columns_, width_);
    batch_ = axes_size(b.batch);
    depth_ = axes_size(b.depth);
    steps_ = steps_of(form_, depth_);
    // A shape whose size overflows is refused before there is any memory.
    checked_product({batch_, panels_, steps_, step_words(form_), width_, sizeof(float)});
}

size_t PackedColumns::least_at() const {
    return checked_product({batch_, panels_, panel_words(), sizeof(float)});
}
size_t PackedColumns::sums_at() const {
    return least_at() + checked_product({batch_, panels_, sizeof(uint32_t)});
}
size_t PackedColumns::bytes() const {
    const size_t of_sums = checked_product({batch_, panels_, width_, sizeof(int32_t)});
    return sums_at() + (is_quad_form(form_) ? of_sums : 0);
}

void PackedColumns::pack(const ProductOperand& b) {
    own_ = std::make_shared_for_overwrite<Line[]>(bytes() / sizeof(Line) + 1);
    char* const memory = own_.get()->bytes;
    pack(b, memory);
    data_ = memory;
}

void PackedColumns::pack(const ProductOperand& operand, char* memory) const {
    const Kernels& k = kernels();
    const ProductOperand b = collapsed(operand);
    const Packer packer(k, b, form_, numerics_);
    float* const panels = reinterpret_cast<float*>(memory);
    auto* const least = reinterpret_cast<uint32_t*>(memory + least_at());
    auto* const sums = reinterpret_cast<int32_t*>(memory + sums_at());
    parallel_for(batch_ * panels_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % panels_ * width_,
                          count = std::min<int64_t>(width_, columns_ - first);
            float* const panel = panels + i * panel_words();
            packer.panels({b.data + axes_offset(b.batch, i / panels_), first, count, 0, depth_}, width_,
                          panel, 0, &least[i]);
            if (is_quad_form(form_))
                sum_columns(k, form_, panel, steps_, static_cast<int>(ceil_divide(count, k.lanes)),
                            sums + i * width_);
        }
    });
}

PackedColumns PackedColumns::packed_in(const char* memory) const {
    PackedColumns there = *this;
    there.data_ = memory;
    return there;
}

bool PackedColumns::fits(const ProductCall& call) const {
    const ProductOperand &a = call.a, &b = call.b;
    if (isa_ != kernels().isa || numerics_.flush_subnormals != call.numerics.flush_subnormals ||
        type_ != b.type() || batch_ != axes_size(b.batch) || columns_ != axes_size(b.vectors) ||
        depth_ != axes_size(b.depth))
        return false;
    if (is_device_float(a.type()) == is_integer_form(form_)) return false;
    if (a.holds_words && !is_integer_form(form_)) return form_ == ProductForm::pairs;
    // What may be multiplied in pairs may be so by fma too, whichever was quicker when it was packed.
    if (form_ == ProductForm::pairs || form_ == ProductForm::fma)
        if (may_pair(kernels(), a.type(), type_, call.how, call.numerics)) return true;
    constexpr int64_t one_row = 1;
    return form_ == product_form(kernels(), a.type(), type_, call.how, call.numerics, one_row);
}

const float* PackedColumns::panel(int64_t batch, int64_t index) const {
    return reinterpret_cast<const float*>(data_) + (batch * panels_ + index) * panel_words();
}
const int32_t* PackedColumns::sums(int64_t batch, int64_t index) const {
    return reinterpret_cast<const int32_t*>(data_ + sums_at()) + (batch * panels_ + index) * width_;
}

void sum_columns(const Kernels& k, ProductForm form, const float* panel, int64_t steps, int vectors,
                 int32_t* sums) {
    // The product of a row of ones, which are such whether they are signed or not.
    constexpr int32_t ones = 0x01010101;
    const BlockRun run{0, steps, true};
    RegisterBlock block{reinterpret_cast<const char*>(&ones), 0, 0,    &run, &run + 1, panel,
                        reinterpret_cast<float*>(sums),       0, true, false};
    k.product[form][vectors - 1][0](block);
}

uint32_t PackedColumns::least(int64_t batch, int64_t index) const {
    return reinterpret_cast<const uint32_t*>(data_ + least_at())[batch * panels_ + index];
}

}  // namespace neuronsim
