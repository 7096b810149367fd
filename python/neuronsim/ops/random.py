"""Random numbers: XLA's bit generators, and the distributions that draw S2's words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuronsim import dtypes
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.chains import is_host
from neuronsim.ops.composites import ArraySteps
from neuronsim.ops.elementwise import converted
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Evaluation,
    Result,
    Setting,
    same_type,
)

_MASK = np.uint64((1 << 32) - 1)
_HALF = np.uint64(32)
_BLOCKS = 1 << 13  # at a time, so that the words of a round stay in the processor's cache
_WORD = 1 << 64


def philox4x32(counter: int, key: int, blocks: int) -> BitsArray:
    """The words of Philox4x32-10 at `blocks` counters of 128 bits from `counter` on.

    >>> [hex(w) for w in philox4x32(0, 0, 1)][:2]
    ['0x6627e8d5', '0xe169c58d']
    """
    found = np.empty((blocks, 4), np.uint32)
    for first in range(0, blocks, _BLOCKS):
        count = min(_BLOCKS, blocks - first)
        low, high = np.uint64((counter + first) % _WORD), (counter + first >> 64) % _WORD
        lows = low + np.arange(count, dtype=np.uint64)
        highs = np.where(lows < low, np.uint64((high + 1) % _WORD), np.uint64(high))
        found[first : first + count] = np.stack(_philox_rounds(lows, highs, key), axis=-1)
    return found.reshape(-1)


def _philox_rounds(lows: BitsArray, highs: BitsArray, key: int) -> list[BitsArray]:
    """Ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11)."""
    c = [lows & _MASK, lows >> _HALF, highs & _MASK, highs >> _HALF]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (p1 >> _HALF) ^ c[1] ^ np.uint64(k0),
            p1 & _MASK,
            (p0 >> _HALF) ^ c[3] ^ np.uint64(k1),
            p0 & _MASK,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(counter: int, key: int, count: int) -> tuple[BitsArray, BitsArray]:
    """The two words of ThreeFry2x32-20 at each of `count` counters of 64 bits from `counter` on.

    >>> [hex(int(w[0])) for w in threefry2x32(0, 0, 1)]
    ['0x6b200159', '0x99ba4efe']
    """
    keys = [np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(0x1BD11BDA))
    counters = np.uint64(counter) + np.arange(count, dtype=np.uint64)
    x0 = counters.astype(np.uint32) + keys[0]
    x1 = (counters >> _HALF).astype(np.uint32) + keys[1]
    for n in range(5):
        for rotation in _ROTATIONS[n % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation) | x1 >> np.uint32(32 - rotation)) ^ x0
        x0 = x0 + keys[(n + 1) % 3]
        x1 = x1 + np.array([int(keys[(n + 2) % 3]) + n + 1 & 0xFFFFFFFF], np.uint32)
    return x0, x1


# ---- rng-bit-generator -------------------------------------------------------------------------------

_PHILOX = ("RNG_PHILOX", "RNG_DEFAULT")  # XLA's default on a CPU is Philox


def infer_rng_bit_generator(operands: Sequence[ArrayType], attributes: Attributes) -> Result:
    (state,) = operands
    algorithm = attributes["rng_algorithm"]
    if algorithm not in (*_PHILOX, "RNG_THREE_FRY"):
        raise InvalidArgument(
            f"algorithm {algorithm!r}: neuronsim knows RNG_DEFAULT, RNG_PHILOX and RNG_THREE_FRY"
        )
    lengths = (2, 3) if algorithm in _PHILOX else (2,)
    if state.dtype is not dtypes.uint64 or state.dims not in [(n,) for n in lengths]:
        raise InvalidArgument(
            f"a state of {state}: {algorithm} has {' or '.join(f'uint64[{n}]' for n in lengths)}"
        )
    stated: Result = attributes["results"]
    if isinstance(stated, ArrayType) or len(stated) != 2:
        raise InvalidArgument("its shape is not a tuple of the new state and the bits")
    bits = stated[1]
    if bits.dtype.kind in ("bool", "complex"):
        raise UnsupportedType(f"random bits as {bits.dtype.name}: an integer or float type is needed")
    return state, bits


def evaluate_rng_bit_generator(e: Evaluation) -> tuple[BitsArray, BitsArray]:
    state = e.operands[0].data
    if e.setting.profile.rng_seed == "ignore":
        state = np.zeros_like(state)
    assert not isinstance(e.result, ArrayType)
    bits = e.result[1]
    wide = bits.dtype.itemsize == 8
    generate = _philox_bits if e.attributes["rng_algorithm"] in _PHILOX else _threefry_bits
    words, counter = generate([int(s) for s in state], bits.dims, wide)
    new = [int(state[0]), counter % _WORD, counter >> 64]
    # Of a word of 32 bits a narrower type takes the low ones.
    own = words.astype(f"u{bits.dtype.itemsize}", copy=False).view(bits.dtype.storage)
    return np.array(new[: state.size], np.uint64), own.reshape(bits.dims)


def _philox_bits(state: list[int], dims: tuple[int, ...], wide: bool) -> tuple[BitsArray, int]:
    """The words of a state u64[3] of key and counter; in u64[2] the key is the counter's high half."""
    counter = state[1] | (state[2] if len(state) == 3 else state[0]) << 64
    n = math.prod(dims)
    blocks = -(-n * (2 if wide else 1) // 4)
    words = philox4x32(counter, state[0], blocks)
    return (words.view("<u8") if wide else words)[:n], (counter + blocks) % (1 << 128)


def _threefry_bits(state: list[int], dims: tuple[int, ...], wide: bool) -> tuple[BitsArray, int]:
    """A word of 64 bits is a pair of words. A word of 32 bits is one of a pair, whose members are
    neighbours along the first even dimension, or else the longest.
    """
    key, counter = state
    if wide:
        n = math.prod(dims)
        x0, x1 = threefry2x32(counter, key, n)
        return x0 | x1.astype(np.uint64) << _HALF, (counter + n) % _WORD
    shape = dims or (1,)
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else shape.index(max(shape))
    half = (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    n = math.prod(half)
    pair = [x.reshape(half) for x in threefry2x32(counter, key, n)]
    joined = np.stack(pair, axis=axis + 1)
    joined = joined.reshape(*half[:axis], 2 * half[axis], *half[axis + 1 :])
    kept = np.take(joined, range(shape[axis]), axis=axis)
    return np.ascontiguousarray(kept).reshape(-1), (counter + n) % _WORD


# ---- rng: uniform and normal -------------------------------------------------------------------------


def infer_rng(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    t = same_type(operands, "parameters of a distribution")
    if t.dims:
        raise InvalidArgument(f"the parameters of a distribution are scalars, not {t}")
    distribution = attributes["distribution"]
    if distribution not in ("RNG_UNIFORM", "RNG_NORMAL"):
        raise InvalidArgument(
            f"distribution {distribution!r}: neuronsim knows RNG_UNIFORM and RNG_NORMAL"
        )
    is_float = t.dtype.kind == "float" and (t.dtype.device or is_host(t.dtype))
    is_integer = t.dtype.kind in ("signed", "unsigned")
    if not is_float and (distribution == "RNG_NORMAL" or not is_integer):
        raise UnsupportedType(
            f"{distribution} of {t.dtype.name}: a float type is needed, or an integer"
        )
    return ArrayType(t.dtype, tuple(attributes["dims"]))


def evaluate_rng(e: Evaluation) -> BitsArray:
    if e.result.dtype.kind != "float":
        return _uniform_integers(e.operands, e.result, e.setting)
    wide = dtypes.float64 if e.result.dtype is dtypes.float64 else dtypes.float32
    step = ArraySteps(wide, (), e.setting)
    first, second = (Bits(x.data.reshape([1] * len(e.result.dims)), x.dtype) for x in e.operands)
    a, b = (converted(x, wide, e.setting) for x in (first, second))
    if e.attributes["distribution"] == "RNG_NORMAL":
        # Box and Muller's transform of two words, of which only the cosine is used.
        u, v = (_fractions(x, wide) for x in _words(e.result, e.setting, wide, 2))
        u = Bits(u.data + 2.0 ** -_PRECISION[wide], wide)  # in (0, 1], exactly
        radius = step("sqrt", step("multiply", step("log", u), -2.0))
        found = step("multiply", radius, step("cos", step("multiply", v, 2 * math.pi)))
        return converted(step("add", step("multiply", found, b), a), e.result.dtype, e.setting).data
    (words,) = _words(e.result, e.setting, wide, 1)
    scaled = step("multiply", _fractions(words, wide), step("subtract", b, a))
    found = converted(step("add", scaled, a), e.result.dtype, e.setting)
    # A value that rounds to b is the type's next one below: the interval is open there.
    own = ArraySteps(e.result.dtype, (), e.setting)
    at_end = own("bitwise_and", own("greater_equal", found, second), own("less", first, second))
    return own("select", at_end, own("nextafter", second, -math.inf), found).data


_PRECISION = {dtypes.float32: 24, dtypes.float64: 53}


def _words(result: ArrayType, setting: Setting, wide: dtypes.DType, each: int) -> list[BitsArray]:
    """`each` words of S2 for every element: the words of element i are each*i, each*i+1, ... A word of
    64 bits is two of 32, low first.
    """
    count, long = each * math.prod(result.dims), wide.itemsize == 8
    words = philox4x32(setting.place("rng") << 64, setting.seed, -(-count * (1 + long) // 4))
    words = (words.view("<u8") if long else words)[:count]
    return [np.ascontiguousarray(words[n::each]).reshape(result.dims) for n in range(each)]


def _fractions(words: BitsArray, dtype: dtypes.DType) -> Bits:
    """The upper bits of words, as many as a significand has, as a fraction in [0, 1): exactly."""
    precision = _PRECISION[dtype]
    upper = words >> words.dtype.type(8 * words.itemsize - precision)
    return Bits(upper.astype(dtype.storage) * dtype.storage.type(2.0**-precision), dtype)


def _uniform_integers(operands: Sequence[Bits], result: ArrayType, setting: Setting) -> BitsArray:
    """The lower bound plus a word modulo the length, modulo 2^n; the bound if that is 0."""
    (words,) = _words(result, setting, result.dtype, 1)
    unsigned = np.dtype(f"u{result.dtype.itemsize}")
    a, b = (int(x.data.view(unsigned)) for x in operands)
    length = (b - a) % (1 << 8 * unsigned.itemsize)
    offset = words % words.dtype.type(length) if length else np.zeros_like(words)
    found = offset.astype(unsigned) + unsigned.type(a)
    return np.asarray(found, unsigned).view(result.dtype.storage)


# ---- rng-get-and-update-state ------------------------------------------------------------------------

_INITIAL_STATE = 0x7012395  # XLA's (xla/backends/cpu/runtime/rng_state_lib.cc)


def infer_rng_state(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    state = ArrayType(dtypes.uint64, (2,))
    stated = ArrayType(attributes["dtype"], tuple(attributes["dims"]))
    if stated != state:
        raise InvalidArgument(f"a state of {stated}: XLA's is {state}")
    return state


def evaluate_rng_state(e: Evaluation) -> BitsArray:
    """The state before this call's update, low word first. Each instruction has its own, as XLA's CPU
    runtime has it. In a loop the high word is the id of the trip (S2).
    """
    call, _, rest = e.setting.path.partition("/")
    in_loop = bool(rest.rpartition("/")[2])
    state = _INITIAL_STATE + int(call or 0) * e.attributes["delta"]
    state += e.setting.place("state") << 64 if in_loop else 0
    return np.array([state % _WORD, (state >> 64) % _WORD], np.uint64)
