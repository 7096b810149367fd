// The ways in which product() computes, one of which it takes.
#pragma once

#include "products/product.h"

namespace neuronsim {

// The axes of each operand and of the result are collapsed, and the result has elements.

// Floats, in register blocks of rows and columns.
void product_blocked(const ProductOperand& a, const ProductOperand& b, const PackedColumns* packed,
                     const ProductResult& result, const Accumulation& how, const Numerics& numerics,
                     Draw draw);
// One row by a matrix in memory as it lies: b is read once and not packed.
void product_of_row(const ProductOperand& a, const ProductOperand& b, const ProductResult& result,
                    const Accumulation& how);
// M6: the exact sum rounded once, to the output's type.
void product_exact(const ProductOperand& a, const ProductOperand& b, const ProductResult& result,
                   const Numerics& numerics, Draw draw);
// M7: modulo 2^64 and then 2^n is modulo 2^n; to bool, the or of ands of what is not zero.
void product_integer(const ProductOperand& a, const ProductOperand& b, const ProductResult& result);

}  // namespace neuronsim
