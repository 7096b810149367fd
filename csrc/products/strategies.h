// The ways in which ProductCall::run computes, one of which it takes.
#pragma once

#include "machine/caches.h"
#include "machine/kernels.h"
#include "products/product.h"

namespace neuronsim {

// Whether register blocks read a right operand where it lies though each of its rows has a page of its
// own: AVX-512's, of 14 rows by 32 columns of float32, ask for few lines of it.
inline bool reads_pages_in_place(const Kernels& k) { return k.lanes >= 16 && has_quick_third_cache; }

// The axes of each operand and of the result are collapsed, and the result has elements.

// In register blocks of rows and columns: floats, and integers modulo 2^32.
void product_blocked(const ProductCall& call, Draw draw);
// Of columns that fit the first cache: both operands are read where they lie, if the kernels can.
bool is_small(const ProductCall& call);
void product_small(const ProductCall& call, Draw draw);
// Few rows by a matrix in memory as it lies: b is read once and not packed.
void product_streamed(const ProductCall& call);
// Single outputs of float32, as those of vectors: both operands are read where they lie.
bool is_of_lines(const ProductCall& call);
void product_of_lines(const ProductCall& call);
// M6: the exact sum rounded once, to the output's type.
void product_exact(const ProductCall& call, Draw draw);
// M7 of 64 bits; to bool, the or of ands of what is not zero.
void product_integer(const ProductCall& call);

}  // namespace neuronsim
