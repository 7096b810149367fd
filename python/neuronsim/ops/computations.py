"""Computations of scalars that an operation applies to elements: reducers, comparators, selections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from neuronsim import _core
from neuronsim.dtypes import DType, float32
from neuronsim.errors import InvalidArgument, UnsupportedOperator
from neuronsim.ops.chains import (
    CONVERT,
    TRUNCATED,
    Link,
    as_32_bits,
    constant_link,
    core_code,
    is_host,
    lower,
    make_chain,
    pusher,
    truncate_constant,
)
from neuronsim.ops.rows import ArrayType, Attributes, Bits, Op, Setting
from neuronsim.profiles import Profile, kept_with_profile

# Rows whose results are operands as they are, or have another sign: they round nothing (S2).
_CHOOSING = frozenset({"maximum", "minimum", "clamp", "select", "negate", "abs"})


class ScalarStep(NamedTuple):
    """One instruction of scalars: a row on earlier values; without one, a constant's storage bits."""

    op: Op | None
    attributes: Attributes
    operands: tuple[int, ...]
    dtype: DType
    constant: int = 0


@dataclass(frozen=True, eq=False)
class ScalarComputation:
    """Values are numbered: the parameters, then the steps. `reducer` names the row that it is, if it is
    a simple reducer (R2).
    """

    name: str
    parameters: tuple[DType, ...]
    steps: tuple[ScalarStep, ...]
    results: tuple[int, ...]
    reducer: str | None = None

    @property
    def result_types(self) -> tuple[DType, ...]:
        """The types of its results."""
        values = (*self.parameters, *(s.dtype for s in self.steps))
        return tuple(values[n] for n in self.results)


def applied_computations(attributes: Attributes, count: int) -> tuple[ScalarComputation, ...]:
    """The computations that an operation applies to elements; raises InvalidArgument for another number
    of them.
    """
    computations: tuple[ScalarComputation, ...] = attributes["computations"]
    if len(computations) != count:
        raise InvalidArgument(f"applies {count} computations, and {len(computations)} are named")
    return computations


def check_computation(
    computation: ScalarComputation, parameters: Sequence[DType], results: Sequence[DType]
) -> None:
    """Raises InvalidArgument for a computation that does not take these types and give those."""
    for own, wanted, does in (
        (computation.parameters, parameters, "takes"),
        (computation.result_types, results, "gives"),
    ):
        if list(own) != list(wanted):
            listed = [", ".join(t.name for t in types) for types in (own, wanted)]
            raise InvalidArgument(
                f"its computation {computation.name!r} {does} ({listed[0]}), not ({listed[1]})"
            )


def is_on_host(computation: ScalarComputation) -> bool:
    """Whether the host computes it, since it has a type that the device has not (H1)."""
    return any(is_host(t) for t in (*computation.parameters, *(s.dtype for s in computation.steps)))


def evaluate_computation(
    computation: ScalarComputation, operands: Sequence[Bits], setting: Setting
) -> tuple[Bits, ...]:
    """The results of a computation on the host, for arrays of one shape, row by row of the op table."""
    values = list(operands)
    dims = operands[0].data.shape
    for s in computation.steps:
        if s.op is None:
            values.append(Bits(np.full(dims, _constant(s, s.dtype).data[0]), s.dtype))
            continue
        arguments = [values[n] for n in s.operands]
        data = s.op.evaluate_array(arguments, s.attributes, ArrayType(s.dtype, dims), setting)
        values.append(Bits(data, s.dtype))
    return tuple(values[n] for n in computation.results)


def _constant(step: ScalarStep, dtype: DType) -> Bits:
    """The value of a constant, in the 32-bit type where 64-bit integers are truncated (C7)."""
    word = step.constant.to_bytes(16, "little")[: step.dtype.itemsize]
    value = Bits(np.frombuffer(word, step.dtype.storage), step.dtype)
    return value if dtype is step.dtype else as_32_bits(truncate_constant(value)[0])


@kept_with_profile
def computation_chain(computation: ScalarComputation, profile: Profile) -> _core.Chain:
    """The chain of a computation: each instruction rounded as it is typed (R2), 64-bit integers
    as 32-bit ones where the profile truncates them (C7). Raises UnsupportedOperator where it draws
    random words, of which S2 has none for elements.
    """
    steps: list[Link] = []
    count, rounds = len(computation.parameters), False
    push = pusher(steps, count)

    def narrow(dtype: DType) -> DType:
        return TRUNCATED.get(dtype, dtype) if profile.int64 == "truncate" else dtype

    def converted(number: int, source: DType, target: DType) -> int:
        code = core_code(target, computation.name)
        return number if source is target else push((CONVERT, code, (number,)))

    types = [narrow(t) for t in (*computation.parameters, *(s.dtype for s in computation.steps))]
    numbers = [converted(n, t, types[n]) for n, t in enumerate(computation.parameters)]
    for s in computation.steps:
        t = narrow(s.dtype)
        if s.op is None:
            numbers.append(push(constant_link(_constant(s, t), computation.name)))
            continue
        operands = [(numbers[n], types[n]) for n in s.operands]
        if s.op.name == "convert" and operands[0][1] is t:
            numbers.append(operands[0][0])
            continue
        exact = None
        if profile.rounding == "stochastic" and s.op.name == "convert" and s.operands[0] >= count:
            given = computation.steps[s.operands[0] - count]
            exact = _exact_constant(given, types[s.operands[0]], s, t, profile)
        if exact is not None:
            numbers.append(push(constant_link(exact, computation.name)))
            continue
        narrows = t.kind == "float" and t is not float32
        rounds = rounds or (narrows and s.op.name not in _CHOOSING)
        numbers.append(lower(s.op, s.attributes, operands, t, profile, push))
    stated = computation.result_types
    pairs = zip(computation.results, stated, strict=True)
    outputs = tuple(converted(numbers[n], types[n], t) for n, t in pairs)
    inputs = tuple(core_code(t, computation.name) for t in computation.parameters)
    if not rounds:
        profile = profile.replace(rounding="nearest_even")
    program = make_chain(inputs, tuple(steps), outputs, profile)
    if program.draws:
        raise UnsupportedOperator(
            f"computation {computation.name!r} under stochastic rounding: S2 has no words for what "
            "its steps round: keep the instruction that applies it in float32 (a rule of a policy), or "
            "round to nearest"
        )
    return program


def _exact_constant(
    given: ScalarStep, source: DType, step: ScalarStep, target: DType, profile: Profile
) -> Bits | None:
    """What a step gives that converts from the type `source`, if it converts a constant that the target
    holds as it is: nothing is rounded and no word drawn (S2). Else None.
    """
    if given.op is not None or step.op is None:
        return None
    value = _constant(given, source)
    setting = Setting(profile.replace(rounding="nearest_even"))

    def converted(x: Bits, t: DType) -> Bits:
        assert step.op is not None
        return Bits(step.op.evaluate_array([x], step.attributes, ArrayType(t, (1,)), setting), t)

    found = converted(value, target)
    is_exact = converted(found, source).data.tobytes() == value.data.tobytes()
    return found if is_exact else None
