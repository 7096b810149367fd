"""Policy: which operations run in which types. Data, not code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.records import check_fields

# What a policy's lists say of an operation, in TVM's words. TensorFlow's are allow, infer, deny and
# clear; those of torch's autocast lower, promote and float32.
Category: TypeAlias = Literal["always", "follow", "never", "clear"]
# How operations that are not "always" or "never" get their types (`propagation`).
Propagate: TypeAlias = Literal["none", "all_inputs_low", "allow_paths", "depth_first"]
# The rounding of one instruction; "" is the profile's.
Rounding: TypeAlias = Literal["", "nearest_even", "stochastic"]


@dataclass(frozen=True)
class Rule:
    """What a policy says of instructions that are not as their lists have them. All conditions that are
    given must hold; the last rule that matches an instruction wins (`Policy.include_wins`), and what
    that does not state is as the lists have it. A `low` of float32 keeps an instruction as it is and
    lets no type spread through.

    `operation` holds names as in `Policy.lists`, `name` names of instructions, both with shell
    wildcards; `regex` matches a whole instruction name, `scope` (wildcards) the metadata's op_name. The
    others need numbers: the largest magnitude of operands and results in a float32 run (`above`), of a
    constant operand (`constant_above`), elements that one result sums (`depth_above`), the share of
    nonzero results that the low type would make zero (`underflow_above`), the operands' largest
    magnitude over the result's (`cancellation_above`).
    """

    reason: str
    category: Category | None = None
    low: DType | None = None
    accumulate: DType | None = None
    output: DType | None = None
    rounding: Rounding = ""
    operation: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    regex: str = ""
    scope: str = ""
    above: float | None = None
    constant_above: float | None = None
    depth_above: int | None = None
    underflow_above: float | None = None
    cancellation_above: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_float_types(self, "low", "accumulate", "output")
        for name in ("above", "constant_above", "depth_above", "underflow_above", "cancellation_above"):
            bound = getattr(self, name)
            share = name == "underflow_above"
            if bound is not None and not (0 <= bound < (1 if share else math.inf)):
                allowed = "a share from 0 to below 1" if share else "a finite number from 0 on"
                raise InvalidArgument(f"Rule: {name} is {bound!r}, not {allowed}")


def _check_float_types(record: Any, *names: str) -> None:
    """Raises InvalidArgument for a type that no float is rounded to."""
    for name in names:
        dtype = getattr(record, name)
        if dtype is not None and not (dtype.kind == "float" and dtype.device):
            raise InvalidArgument(
                f"{type(record).__name__}: {name} is {dtype.name}, not a float type of the device, "
                "such as neuronsim.bfloat16"
            )


@dataclass(frozen=True)
class Policy:
    """Lists of operations by category, how the types spread from these, and exceptions.

    A list names operations (`operations.names_of`): HLO opcodes, `reduce-add`, composites such as
    `softmax`, or the cast classes `matmult`, `compute` and `movement`; the most specific name of an
    instruction decides. What no list names is of the category `default`. `reasons` are said of the
    listed names; `{policy}` and `{low}` in them are the policy's name and the type chosen, `{rounded}`
    which float32 values of the instruction are rounded to it.
    `policies` has those of the field; `dataclasses.replace` makes others from them.
    """

    name: str
    low: DType | None = None  # None casts nothing
    lists: Mapping[Category, frozenset[str]] = field(default_factory=dict)
    default: Category = "never"  # of the rest; in TensorFlow's colouring it then affects nothing else
    propagate: Propagate = "none"
    accumulate: DType = dtypes.float32  # of products, and of add and multiply reduces (R1, M6)
    product_output: DType | None = None  # None: the low type
    sources_follow: bool = False  # parameters and constants count as low where that decides (TVM)
    # By operation the numbers of the operands and of the results that stay float32 where it is low, as
    # the statistics of a batch norm do: TensorFlow's colours are of an operation's type slots.
    float32_slots: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    keep_output_type: bool = True  # the entry computation's results keep the model's types
    relayout: DType | None = None  # transposes run on the tensor engine in this type (A3)
    saturate_infinity: bool = False
    unlisted: Literal["ignore", "warn", "error"] = "ignore"  # of operations that no list names
    rules: tuple[Rule, ...] = ()
    include_wins: bool = False  # rules of "always" win over all others, whatever their order (ModelOpt)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_float_types(self, "low", "accumulate", "product_output", "relayout")
