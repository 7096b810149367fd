"""Profile: every choice that decides a bit, with its evidence.

>>> Profile().reduce_tile
512
>>> with use_profile(int_to_float="exact"):
...     current_profile().int_to_float
'exact'
>>> with in_force(avx512_bf16):
...     current_profile().accumulate
'pairs'
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar

from neuronsim import _core
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.records import is_int

Evidence = Literal["documented", "inferred", "assumed"]


def _choice(rule: str, evidence: Evidence, values: tuple[Any, ...], source: str) -> Any:
    """A field whose first value is the default."""
    meta = {"rule": rule, "evidence": evidence, "values": values, "source": source}
    return field(default=values[0], metadata=meta)


_P = ParamSpec("_P")
_T = TypeVar("_T")
ExceptionMode = Literal["ignore", "warn", "raise", "call", "print", "log"]


@dataclass(frozen=True)
class ExceptionHandling:
    """What eager operations do about IEEE 754's exceptions, by NumPy's keywords (see `errstate`)."""

    divide: ExceptionMode = "ignore"
    over: ExceptionMode = "ignore"
    under: ExceptionMode = "ignore"
    invalid: ExceptionMode = "ignore"


@dataclass(frozen=True)
class Profile:
    """How a bit is decided. A field lists its possible values, the default first.

    The defaults are those of eager arrays; `compile` takes `int64` and
    `mixed_precision_accumulation` from the target and the release instead.
    """

    rounding: str = _choice(
        "C2",
        "documented",
        ("nearest_even", "stochastic"),
        "RNE is the default; NEURON_RT_STOCHASTIC_ROUNDING_EN=1 replaces it.",
    )
    sr_generator: str = _choice(
        "S2", "assumed", ("philox4x32-10",), "AWS publishes no generator of random words."
    )
    subnormals: str = _choice(
        "C4", "assumed", ("keep", "flush"), "Nothing public says whether an engine flushes subnormals."
    )
    fp8_overflow: str = _choice(
        "C3",
        "assumed",
        ("inf", "nan", "saturate"),
        "IEEE overflow; AWS's text on e4m3 mentions NaN beyond 240.",
    )
    nan: str = _choice(
        "E6", "assumed", ("canonical",), "Nothing public gives the NaN that an engine writes."
    )
    max_nan: str = _choice(
        "E7", "assumed", ("propagate",), "Nothing public says how max and min treat NaN."
    )
    int_to_float: str = _choice(
        "C1", "documented", ("via_float32", "exact"), "DMA and copies convert through FP32."
    )
    float_to_int: str = _choice(
        "C6",
        "documented",
        ("truncate", "nearest"),
        "XLA's convert truncates toward zero and saturates.",
    )
    int64: str = _choice(
        "C7", "documented", ("keep", "truncate"), "On trn1 64-bit integers are read as 32-bit."
    )
    scalar: str = _choice(
        "C8",
        "assumed",
        ("dtype", "float32_immediate"),
        "XLA types every operand; NKI's instructions take scalars in FP32.",
    )
    divide: str = _choice(
        "E2",
        "assumed",
        ("ieee", "reciprocal_multiply"),
        "Plain FP32 math; the NKI guide advises reciprocal and multiply.",
    )
    activation: str = _choice(
        "E3",
        "assumed",
        ("exact", "neuron_range"),
        "AWS publishes neither coefficients nor errors, but the input ranges of the activation table.",
    )
    int32_elementwise: str = _choice(
        "E8",
        "assumed",
        ("exact", "via_float32"),
        "GpSimd has 32-bit integers, though VectorE computes in FP32.",
    )
    reduce_order: str = _choice(
        "R2", "assumed", ("tiles",), "The order of a reduction's additions is not public."
    )
    reduce_tile: int = _choice(
        "R2", "inferred", (512,), "The engines' limit of 512 elements in the free dimension."
    )
    mixed_precision_accumulation: str = _choice(
        "R3",
        "documented",
        ("on", "off"),
        "--enable-mixed-precision-accumulation, on from SDK 2.27.",
    )
    collective_order: str = _choice(
        "R6", "assumed", ("ascending",), "The order in which replicas are added up is not public."
    )
    batch_norm: str = _choice(
        "R7",
        "inferred",
        ("two_pass", "xla"),
        "bn_stats and bn_aggr take the variance about the mean; XLA subtracts squares.",
    )
    rng_seed: str = _choice(
        "S2",
        "documented",
        ("use", "ignore"),
        'RngBitGenerator honours the seed from compiler 2.9.0.16; before, it "ignores user seed".',
    )
    fp32_matmul: str = _choice(
        "M3", "assumed", ("fma",), "The four-pass algorithm of FP32 products is not public."
    )
    accumulate: str = _choice(
        "M6",
        "inferred",
        ("psum128", "sequential", "exact", "product_bf16", "pairs"),
        "Partial sums run down a column of 128 PEs.",
    )
    requantize: str = _choice(
        "Q3",
        "assumed",
        ("float32", "exact"),
        "Nothing public says how the device rounds the factor of requantized sums.",
    )
    int_dot: str = _choice(
        "M7",
        "assumed",
        ("exact", "via_float32"),
        "AWS's pages contradict each other on integer products.",
    )
    transpose: str = _choice(
        "A3",
        "assumed",
        ("move_bits", "tensor_engine"),
        "A release note says transposes are cast to FP32.",
    )
    auto_cast_all: str = _choice(
        "A2", "documented", ("documented", "observed"), "AWS: all FP32 operations; one user saw less."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "eager", _core.EagerCache())
        object.__setattr__(self, "parts", {})
        object.__setattr__(self, "handling", None)
        object.__setattr__(self, "plain", None)
        for f in _choices():
            value = getattr(self, f.name)
            values = f.metadata["values"]
            if type(value) is not type(values[0]) or value not in values:
                allowed = ", ".join(map(repr, values))
                raise InvalidArgument(
                    f"profile field {f.name!r} (rule {f.metadata['rule']}) cannot be {value!r}: "
                    f"this version of neuronsim knows {allowed}"
                )

    def replace(self, **fields: Any) -> Profile:
        """A copy with other values; raises InvalidArgument for an unknown field or value."""
        names = [f.name for f in _choices()]
        for name in fields:
            if name not in names:
                raise InvalidArgument(
                    f"Profile has no field {name!r}{nearest(name, names)}; it has {', '.join(names)}"
                )
        return dataclasses.replace(self, **fields)

    # Of the instance, but no fields: no bit depends on them. The calls of eager arrays that it
    # remembers, and what they and programs are made of (`kept_with_profile`).
    eager: ClassVar[_core.EagerCache]
    parts: ClassVar[dict[Any, dict[Any, Any]]]
    handling: ClassVar[ExceptionHandling | None]
    plain: ClassVar[Profile | None]  # the one without handling

    def forget(self) -> None:
        """Drop what is kept with the profile: no bit depends on it."""
        self.eager.clear()
        self.parts.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.to_dict(),)

    def to_dict(self) -> dict[str, Any]:
        """Every field's value."""
        return {f.name: getattr(self, f.name) for f in _choices()}

    def describe(self) -> list[dict[str, Any]]:
        """Every field with its value, rule, evidence, possible values and source.

        >>> Profile().describe()[0]["evidence"]
        'documented'
        """
        return [{"field": f.name, "value": getattr(self, f.name), **f.metadata} for f in _choices()]


MOST_PARTS = 4096  # of one function


def kept_with_profile(make: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function whose last argument is a profile, with which its results are kept: it is called once
    for equal arguments.
    """

    @functools.wraps(make)
    def find(*key: _P.args, **names: _P.kwargs) -> _T:
        parts: dict[Any, dict[Any, Any]] = key[-1].parts  # type: ignore[attr-defined]
        known, own = parts.get(make), key[:-1]
        found: _T | None = None if known is None else known.get(own)
        if found is None:
            known = parts.setdefault(make, {})
            if len(known) >= MOST_PARTS:
                known.clear()
            found = known[own] = make(*key, **names)  # without names, by which nothing is kept
        return found

    return find


def _restore(fields: dict[str, Any]) -> Profile:
    """A Profile from a pickle or a deep copy."""
    return Profile(**fields)


def _choices() -> tuple[dataclasses.Field[Any], ...]:
    return tuple(f for f in dataclasses.fields(Profile) if f.metadata)


# What VDPBF16PS and VCVTNEPS2BF16 of x86-64 processors compute, and so the bfloat16 products of CPU
# libraries that use them. Documented by Intel ("Intel 64 and IA-32 Architectures Software Developer's
# Manual", VDPBF16PS, Operation): of each pair the odd member's product is added first, then the even
# one's, to nearest even; subnormal operands read as zero, subnormal results become zero. Measured on a
# Zen 4: each of the two steps is one fused multiply-add. NaN is canonical (C5, E6), the sum enters PSUM
# at +0, and sums in [2^-126 - 2^-150, 2^-126 - 2^-151) are kept by C4 but flushed by the processor.
avx512_bf16 = Profile(subnormals="flush", accumulate="pairs")


@dataclass(frozen=True)
class RoundingState:
    """The seed of stochastic rounding and the rounding operations since it was set (S2)."""

    seed: int = 0
    calls: int = 0


ROUNDING_VARIABLE = "NEURON_RT_STOCHASTIC_ROUNDING_EN"
SEED_VARIABLE = "NEURON_RT_STOCHASTIC_ROUNDING_SEED"
BF16_VARIABLES = ("XLA_USE_BF16", "XLA_DOWNCAST_BF16")


def is_on(value: str) -> bool:
    """Whether an environment variable that is a switch is on, as PyTorch/XLA reads it.

    >>> is_on("1"), is_on("true"), is_on("0"), is_on("")
    (True, True, False, False)
    """
    text = value.strip().lower()
    return text == "true" or (text.isdecimal() and text.strip("0") != "")


def stochastic_by() -> str:
    """The environment variable that turns stochastic rounding on, or "": the runtime's own, or where
    that is not set one of those by which torch-neuronx turns it on.
    """
    stated = os.environ.get(ROUNDING_VARIABLE, "").strip()
    if stated:
        return ROUNDING_VARIABLE if is_on(stated) else ""
    return next((name for name in BF16_VARIABLES if is_on(os.environ.get(name, ""))), "")


def _profile_of_environment() -> Profile:
    return Profile(rounding="stochastic" if stochastic_by() else "nearest_even")


def default_seed() -> int:
    """The seed that NEURON_RT_STOCHASTIC_ROUNDING_SEED gives, else 0.

    Raises InvalidArgument if the variable is not an unsigned 64-bit integer.
    """
    text = os.environ.get(SEED_VARIABLE, "0") or "0"
    is_short = text.isdecimal() and len(text) <= 20
    return check_seed(int(text) if is_short else text)


def check_seed(seed: Any) -> int:
    """`seed` if it is an unsigned 64-bit integer; else raises InvalidArgument."""
    if not is_int(seed, 0, 2**64 - 1):
        raise InvalidArgument(
            f"the seed of stochastic rounding (seed=, {SEED_VARIABLE}) is an integer from 0 to "
            f"2^64 - 1, not {seed!r}"
        )
    return seed


_DEFAULT = _profile_of_environment()
profile_variable: ContextVar[Profile] = ContextVar("neuronsim_profile", default=_DEFAULT)
_rounding: ContextVar[RoundingState] = ContextVar("neuronsim_rounding")


def rounding_state() -> RoundingState:
    """The state that stochastic rounding of eager arrays uses in this context."""
    state = _rounding.get(None)
    if state is None:
        return RoundingState(default_seed())
    return state


def next_rounding() -> RoundingState:
    """The state for one rounding operation of eager arrays; the next call gets the next one."""
    state = rounding_state()
    _rounding.set(dataclasses.replace(state, calls=state.calls + 1))
    return state


def seed_rounding(seed: int = 0) -> None:
    """Start the random words of stochastic rounding of eager arrays anew, from `seed` (S2).

    >>> seed_rounding(7)
    >>> rounding_state()
    RoundingState(seed=7, calls=0)
    """
    _rounding.set(RoundingState(check_seed(seed)))


def default_profile() -> Profile:
    """The defaults, with the rounding that the environment asks for now. That of eager arrays is the
    one with which neuronsim was imported.
    """
    now = _profile_of_environment()
    return _DEFAULT if now == _DEFAULT else now


def current_profile() -> Profile:
    """The profile that eager arrays use in this context."""
    return profile_variable.get()


@contextmanager
def in_force(profile: Profile) -> Iterator[Profile]:
    """Eager arrays use this profile inside the `with` block (in this thread or task only)."""
    token = profile_variable.set(_handled(profile, profile_variable.get().handling))
    try:
        yield profile_variable.get()
    finally:
        handling = profile_variable.get().handling
        profile_variable.reset(token)
        set_exception_handling(handling)


@functools.lru_cache(64)
def _shared(profile: Profile) -> Profile:
    """One instance for equal profiles, so that a block entered again finds what was derived."""
    return profile


@contextmanager
def use_profile(
    profile: Profile | None = None, /, *, seed: int | None = None, **fields: Any
) -> Iterator[Profile]:
    """Eager arrays use these field values inside the `with` block, or in the function that it
    decorates: those of `profile`, by default the one in force, with the fields given.

    With `seed` the random words of stochastic rounding start anew inside (S2); the sequence outside
    goes on after the block where it stood. A block acts on its thread or task only; tasks started
    inside inherit it. A generator that yields inside leaves it in force for its caller until it goes
    on, as Python's context variables do. Per call there is what NumPy has keywords for: `dtype=` is
    the type in which ufuncs and reductions compute, `casting=` which conversions are let through.

    Raises InvalidArgument for an unknown field, value or seed.

    >>> @use_profile(rounding="stochastic", seed=7)
    ... def rounding() -> str:
    ...     return f"{current_profile().rounding} from {rounding_state().seed}"
    >>> rounding(), current_profile().rounding
    ('stochastic from 7', 'nearest_even')
    >>> with use_profile(avx512_bf16, subnormals="keep") as p:
    ...     p.accumulate, p.subnormals
    ('pairs', 'keep')
    """
    if profile is not None and not isinstance(profile, Profile):
        raise InvalidArgument(f"use_profile takes a Profile or fields by name, not {profile!r}")
    base = profile or current_profile()
    with in_force(_shared(base.replace(**fields)) if fields else base) as found:
        if seed is None:
            yield found
            return
        token = _rounding.set(RoundingState(check_seed(seed)))
        try:
            yield found
        finally:
            _rounding.reset(token)


# ---- exceptions -----------------------------------------------------------------------------------

_receiver: ContextVar[Any] = ContextVar("neuronsim_exception_receiver", default=None)


def _handled(profile: Profile, handling: ExceptionHandling | None) -> Profile:
    """An equal profile whose operations handle exceptions: an instance of its own, so that nothing is
    asked where none is to be handled, and that none of its programs take the short way.
    """
    plain = profile.plain or profile
    return plain if handling is None else _handling(handling, plain)


@kept_with_profile
def _handling(handling: ExceptionHandling, profile: Profile) -> Profile:
    found = profile.replace()
    object.__setattr__(found, "handling", handling)
    object.__setattr__(found, "plain", profile)
    return found


def exception_handling() -> ExceptionHandling:
    """What eager operations of this context do about exceptions."""
    return profile_variable.get().handling or ExceptionHandling()


def set_exception_handling(handling: ExceptionHandling | None) -> None:
    """Change what eager operations of this context do about exceptions, whatever the profile is."""
    wanted = None if handling == ExceptionHandling() else handling
    profile = profile_variable.get()
    if profile.handling != wanted:
        profile_variable.set(_handled(profile, wanted))


def exception_receiver() -> Any:
    """What is called, or written to, in the modes "call" and "log"."""
    return _receiver.get()


def set_exception_receiver(receiver: Any) -> None:
    """Choose what is called, or written to, in the modes "call" and "log"."""
    _receiver.set(receiver)
