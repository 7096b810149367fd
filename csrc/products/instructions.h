// The processor's instructions for products of narrow types: which it has, and which are quicker.
#pragma once

#include <cstdint>

namespace neuronsim {

// Whether VDPBF16PS was seen, when the module was loaded, to do on this processor what M2 asks of it.
bool pairs_are_proved();

// How products of bfloat16 are computed where that is so. Both forms give the same bits (M2, M3), and
// which is quicker depends on the processor: automatic asks a timing, at the first use.
enum class Bfloat16Products : uint8_t { automatic, pairs, fma };
void select_bfloat16_products(Bfloat16Products form);
bool prefers_pairs(int64_t rows);

// How products of bytes are computed, whose sums are the same in every form: in AMX's tiles of words of
// four bytes, in quads, which are such words, by VPDPBUSD, or widened, in pairs of int16. It is the
// first in this order, from the selected one on, that the processor has for the vectors in use.
enum class ByteProducts : uint8_t { automatic, tiles, quads, widened };
void select_byte_products(ByteProducts form);
ByteProducts byte_products();

}  // namespace neuronsim
