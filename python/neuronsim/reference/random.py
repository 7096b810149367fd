"""The random words of stochastic rounding (rule S2): Philox4x32-10 and its counter.

>>> hex(word(0, 0, 0))
'0x6627e8d5'
"""

from __future__ import annotations

import hashlib

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
