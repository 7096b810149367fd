"""Random words: Philox4x32-10 as rule S2 counts it, and XLA's bit generators.

>>> hex(word(0, 0, 0))
'0x6627e8d5'
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product
from math import prod

MASK = (1 << 32) - 1


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Four words from a counter and a key, by ten rounds (Salmon et al., SC11)."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return tuple(c)


def word(seed: int, identifier: int, index: int) -> int:
    """The word of the element with this row-major index."""
    block = index >> 2
    counter = (block & MASK, block >> 32, identifier & MASK, identifier >> 32)
    return philox4x32(counter, (seed & MASK, seed >> 32))[index & 3]


def identifier(path: str) -> int:
    """The first 8 bytes, little-endian, of the SHA-256 of where a rounding stands."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "little")


# ---- XLA's bit generators ----------------------------------------------------------------------------


def threefry2x32(counter: tuple[int, int], key: tuple[int, int]) -> tuple[int, int]:
    """Two words from a counter and a key, by twenty rounds (Salmon et al., SC11)."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + keys[0]) & MASK, (counter[1] + keys[1]) & MASK
    rotations = [13, 15, 26, 6, 17, 29, 16, 24]
    for n in range(20):
        r = rotations[n % 8]
        x = (x + y) & MASK
        y = ((y << r | y >> (32 - r)) & MASK) ^ x
        if n % 4 == 3:
            s = n // 4 + 1
            x, y = (x + keys[s % 3]) & MASK, (y + keys[(s + 1) % 3] + s) & MASK
    return x, y


def _halves(word: int) -> tuple[int, int]:
    return word & MASK, word >> 32


def bit_generator(
    algorithm: str, state: Sequence[int], dims: Sequence[int], bits: int
) -> tuple[list[int], list[int]]:
    """XLA's RngBitGenerator: the new state, and words of `bits` bits in row-major order.

    >>> bit_generator("RNG_PHILOX", [7, 11], [2], 8)
    ([7, 12], [253, 57])
    """
    generate = _threefry if algorithm == "RNG_THREE_FRY" else _philox
    return generate(state, dims, bits)


def _philox(state: Sequence[int], dims: Sequence[int], bits: int) -> tuple[list[int], list[int]]:
    key, n = state[0], prod(dims) * (2 if bits == 64 else 1)
    high = state[2] if len(state) == 3 else key
    start = state[1] + (high << 64)
    words: list[int] = []
    blocks = (n + 3) // 4
    for block in range(blocks):
        at = (start + block) % (1 << 128)
        counter = (*_halves(at % (1 << 64)), *_halves(at >> 64))
        words += philox4x32((counter[0], counter[1], counter[2], counter[3]), _halves(key))
    end = (start + blocks) % (1 << 128)
    new = [key, end % (1 << 64), end >> 64][: len(state)]
    if bits == 64:
        return new, [words[i] | words[i + 1] << 32 for i in range(0, n, 2)]
    return new, [w & ((1 << bits) - 1) for w in words[:n]]


def _threefry(state: Sequence[int], dims: Sequence[int], bits: int) -> tuple[list[int], list[int]]:
    """An element of 32 bits or fewer takes the first or the second word of a counter by whether its
    index along the split axis is even; elements of 64 bits take both.
    """
    key, start = state

    def pair(index: int) -> tuple[int, int]:
        return threefry2x32(_halves((start + index) % (1 << 64)), _halves(key))

    if bits == 64:
        both = [pair(i) for i in range(prod(dims))]
        return [key, (start + len(both)) % (1 << 64)], [a | b << 32 for a, b in both]
    shape = list(dims) or [1]
    axis = next((d for d, n in enumerate(shape) if n % 2 == 0), shape.index(max(shape)))
    half = [-(-n // 2) if d == axis else n for d, n in enumerate(shape)]
    words = []
    for at in product(*map(range, shape)):
        index = 0
        for d, i in enumerate(at):
            index = index * half[d] + (i // 2 if d == axis else i)
        words.append(pair(index)[at[axis] % 2] & ((1 << bits) - 1))
    return [key, (start + prod(half)) % (1 << 64)], words
