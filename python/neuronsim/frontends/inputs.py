"""What is said of a model's inputs and outputs: the record that every door takes.

>>> ModelInputs(input_shapes={"x": (8, 2048)}).batch
1
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DType, DTypeLike, as_dtype
from neuronsim.errors import InvalidArgument
from neuronsim.frontends.weights import Weights
from neuronsim.ops import check_dims
from neuronsim.records import is_int

_COMPOSITES = Literal["formulas", "kept"]


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """What a model leaves open of its inputs, and others of its outputs; see `api.compile`."""

    example_args: tuple[Any, ...] = ()
    example_kwargs: Mapping[str, Any] | None = None
    input_shapes: Mapping[str, Sequence[int]] | None = None
    input_types: Mapping[str, DTypeLike] | None = None
    input_values: Mapping[str, Any] | None = None
    batch: int = 1
    composites: _COMPOSITES = "formulas"
    constants: tuple[int | str, ...] = ()
    weights: Weights | None = None
    outputs: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.composites not in get_args(_COMPOSITES):
            raise InvalidArgument(f"composites are 'formulas' or 'kept', not {self.composites!r}")
        given = self.constants if isinstance(self.constants, tuple | list) else (None,)
        if not all(isinstance(c, str) or is_int(c) for c in given):
            raise InvalidArgument(
                "constants are the positions or names of arguments, such as constants=(0,), not "
                f"{self.constants!r}"
            )
        named = self.outputs if isinstance(self.outputs, tuple | list) else (None,)
        if not all(isinstance(name, str) for name in named) or len(set(named)) != len(named):
            raise InvalidArgument(
                "outputs are different names of tensors, such as outputs=('scores',), not "
                f"{self.outputs!r}"
            )
        for what in ("example_kwargs", "input_shapes", "input_types", "input_values"):
            values = getattr(self, what)
            if not (values is None or isinstance(values, Mapping)):
                raise InvalidArgument(f"{what} is a dictionary by the inputs' names, not {values!r}")
        stated = [self.example_kwargs or {}, self.input_shapes or {}, self.input_values or {}]
        for name, times in Counter(itertools.chain(*stated)).items():
            if times > 1:
                raise InvalidArgument(
                    f"{name!r} is in several of example_kwargs, input_shapes and input_values: one is "
                    "enough"
                )
        for name, dims in (self.input_shapes or {}).items():
            numbers = dims if isinstance(dims, Sequence) and not isinstance(dims, str) else (None,)
            if any(type(n) is not int or n < 0 for n in numbers):
                raise InvalidArgument(
                    f"input_shapes: the shape of {name!r} is {dims!r}, no tuple of lengths"
                )
            check_dims(f"the input {name!r}", numbers)
        if not is_int(self.batch, 1):
            raise InvalidArgument(f"batch is an integer of at least 1, not {self.batch!r}")

    @property
    def examples(self) -> tuple[Any, ...]:
        """All example arguments."""
        return (*self.example_args, *(self.example_kwargs or {}).values())

    @property
    def stated_shapes(self) -> dict[str, Sequence[int]]:
        """The shapes that are said of inputs, by name: those of examples too."""
        examples = (self.example_kwargs or {}).items()
        shapes = {n: x.shape if hasattr(x, "shape") else asarray(x).shape for n, x in examples}
        return {**shapes, **(self.input_shapes or {})}

    @property
    def stated_types(self) -> dict[str, DType]:
        """The types that are said of inputs, by name. Raises UnsupportedType for what is none."""
        return {name: as_dtype(t) for name, t in (self.input_types or {}).items()}
