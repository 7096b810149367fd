"""Random numbers: XLA's bit generators, and the distributions that draw S2's words."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops.chains import is_float
from neuronsim.ops.composites import ArraySteps
from neuronsim.ops.elementwise import converted
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    Evaluation,
    Outputs,
    Result,
    Setting,
    same_type,
)

_WORD = 1 << 64


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


def bind_rng_bit_generator(e: Evaluation, outputs: Outputs) -> list[_core.Call]:
    """The new state and the bits. Of ThreeFry's pairs of words one is an element of 64 bits, or two of
    32, neighbours along the first even dimension, or else the longest.
    """
    state, bits = outputs
    shape = bits.shape or (1,)
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else shape.index(max(shape))
    threefry = e.attributes["rng_algorithm"] not in _PHILOX
    reads = e.setting.profile.rng_seed != "ignore"
    return [_core.generate_bits(threefry, reads, axis, e.operands[0].data, state, bits)]


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
    is_integer = t.dtype.kind in ("signed", "unsigned")
    if not is_float(t.dtype) and (distribution == "RNG_NORMAL" or not is_integer):
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
    count, long = each * result.size, wide.itemsize == 8
    words = _core.random_words(setting.seed, setting.place("rng"), 0, count * (1 + long))
    words = words.view("<u8") if long else words
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
