"""What a row of the op table is, the types that it speaks of, and the table itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from neuronsim import _core
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedOperator, nearest
from neuronsim.profiles import Profile
from neuronsim.records import check_fields

BitsArray: TypeAlias = npt.NDArray[Any]
Attributes: TypeAlias = Mapping[str, Any]
Engine = Literal["tensor", "vector", "scalar", "gpsimd", "dma", "none"]
# What `--auto-cast` does to an operation (A1, A2): `matmult` under both settings, `compute` under
# `all`; data movement follows its operand; `host` instructions are never on an engine.
CastClass = Literal["matmult", "compute", "movement", "host"]


class ArrayType(NamedTuple):
    """Element type and dimensions of one array."""

    dtype: DType
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """How many bytes these take."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.dims))}]"


class Bits(_core.BitsBase):
    """One array as the evaluators see it: an ndarray of storage bits and what they mean."""

    __slots__ = ()
    data: BitsArray
    dtype: DType

    def __reduce__(self) -> tuple[Any, ...]:
        return Bits, (self.data, self.dtype)

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.data.shape)


def whole(data: Any) -> Any:
    """An array where NumPy gives a scalar; what records operations as it is.

    >>> whole(np.float32(1)).shape
    ()
    """
    return np.asarray(data) if isinstance(data, np.generic) else data


# From the operands of each member of a group of replicas, in the group's order: the arrays that each
# gets, which no other memory of a replica shares.
Exchange: TypeAlias = Callable[[Sequence[Sequence[Bits]]], Sequence[tuple[BitsArray, ...]]]
# Waits at a place for the members of a group; see `Replica`.
Meet: TypeAlias = Callable[[str, Sequence[int], Sequence[Bits], Exchange], tuple[BitsArray, ...]]


def _meet_alone(
    place: str, members: Sequence[int], operands: Sequence[Bits], exchange: Exchange
) -> tuple[BitsArray, ...]:
    (found,) = exchange([operands])
    return found


def _go_on() -> None:
    pass


class Replica(NamedTuple):
    """Which of `total` replicas of a program evaluates. `meet(place, members, operands, exchange)`
    gives it its part of what `exchange` makes of the operands of the group's members; `check` raises
    an error if the run is to end.
    """

    number: int = 0
    total: int = 1
    meet: Meet = _meet_alone
    check: Callable[[], None] = _go_on


ALONE = Replica()


class Setting(NamedTuple):
    """What an evaluation depends on beside its operands: the profile; for stochastic rounding, the seed
    and where the operation stands ("call/computation/instruction/trip counts", S2); the replica.
    """

    profile: Profile
    seed: int = 0
    path: str = ""
    replica: Replica = ALONE

    def of_result(self, number: int) -> Setting:
        """That of one of several results: each after the first has a place of its own (S2)."""
        return self._replace(path=f"{self.path}/{number}") if number else self

    def identifier(self, tile: str = "") -> int:
        """The id of the words by which the operation rounds (S2); 0 where rounding draws none."""
        return self.place(tile) if self.profile.rounding == "stochastic" else 0

    def place(self, tile: str = "") -> int:
        """The id of what stands at this place: 8 bytes of a SHA-256 (S2)."""
        import hashlib  # which takes long to load

        digest = hashlib.sha256(f"{self.path}/{tile}".encode()).digest()
        return int.from_bytes(digest[:8], "little")


@dataclass(frozen=True)
class DotDimensions:
    """Which dimensions a dot contracts and which it walks as batch, as HLO lists them."""

    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()

    def free_lhs(self, rank: int) -> tuple[int, ...]:
        """The left operand's axes, of this rank, that the result has behind those of the batch."""
        return tuple(n for n in range(rank) if n not in self.lhs_batch + self.lhs_contracting)

    def free_rhs(self, rank: int) -> tuple[int, ...]:
        """The right operand's, which the result has last."""
        return tuple(n for n in range(rank) if n not in self.rhs_batch + self.rhs_contracting)


@dataclass(frozen=True)
class WindowDimension:
    """One dimension of a window, as HLO describes it. Padding and holes are no elements of a reduction
    (R4) and zeros of a convolution (M5); only the latter reverses its window.
    """

    size: int
    stride: int = 1
    padding: tuple[int, int] = (0, 0)
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    def output_size(self, n: int) -> int:
        """How many windows lie in an axis of `n` elements."""
        base = (n - 1) * self.base_dilation + 1 if n else 0
        reach = (self.size - 1) * self.window_dilation + 1 if self.size else 0
        room = base + sum(self.padding) - reach
        return room // self.stride + 1 if room >= 0 else 0


@dataclass(frozen=True)
class ConvolutionDimensions:
    """Which dimensions of a convolution's input, kernel and output are what, as HLO lists them.

    >>> str(ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)))
    'b01f_01io->b01f'
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]

    @property
    def input(self) -> tuple[int, ...]:
        """The input's dimensions: batch, spatial, feature."""
        return (self.input_batch, *self.input_spatial, self.input_feature)

    @property
    def kernel(self) -> tuple[int, ...]:
        """The kernel's dimensions: spatial, input feature, output feature."""
        return (*self.kernel_spatial, self.kernel_input_feature, self.kernel_output_feature)

    @property
    def output(self) -> tuple[int, ...]:
        """The output's dimensions: batch, spatial, feature."""
        return (self.output_batch, *self.output_spatial, self.output_feature)

    def __str__(self) -> str:
        spatial = [str(n) for n in range(len(self.input_spatial))]
        sides = (
            (self.input, ["b", *spatial, "f"]),
            (self.kernel, [*spatial, "i", "o"]),
            (self.output, ["b", *spatial, "f"]),
        )
        if any(len(dimensions) != len(names) for dimensions, names in sides):
            raise InvalidArgument("a convolution's sides have different numbers of spatial dimensions")
        texts = ["".join(dict(sorted(zip(*side, strict=True))).values()) for side in sides]
        return f"{texts[0]}_{texts[1]}->{texts[2]}"


@dataclass(frozen=True)
class GatherDimensions:
    """Which dimensions of a gather's operand, start indices and result are what, as HLO lists them."""

    offset_dims: tuple[int, ...] = ()
    collapsed_slice_dims: tuple[int, ...] = ()
    start_index_map: tuple[int, ...] = ()
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0

    @classmethod
    def slices(cls, axes: tuple[int, ...], batch: range, rank: int) -> GatherDimensions:
        """Those of slices at places along some axes: of the result's axes, `batch` are the places'."""
        kept = tuple(d for d in range(rank) if d not in batch)
        return cls(kept, axes, axes, index_vector_dim=len(batch))

    @classmethod
    def lines(cls, axis: int, rank: int) -> GatherDimensions:
        """Those of elements of each line along an axis, at places of its own."""
        batch = tuple(d for d in range(rank) if d != axis)
        return cls((), (axis,), (axis,), batch, batch, index_vector_dim=rank)


@dataclass(frozen=True)
class ScatterDimensions:
    """Which dimensions of a scatter's operand, indices and updates are what, as HLO lists them."""

    update_window_dims: tuple[int, ...] = ()
    inserted_window_dims: tuple[int, ...] = ()
    scatter_dims_to_operand_dims: tuple[int, ...] = ()
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()
    index_vector_dim: int = 0


# What an operation gives: one array, or several.
Result: TypeAlias = ArrayType | tuple[ArrayType, ...]
Data: TypeAlias = BitsArray | tuple[BitsArray, ...]
Infer: TypeAlias = Callable[[Sequence[ArrayType], Attributes], Result]
# Calls of the core's kernels that give an operation's results in these dense arrays; None where the
# core does not compute it. An array runs them at once, a compiled program where its plan placed them.
Outputs: TypeAlias = Sequence[BitsArray]
Calls: TypeAlias = list[_core.Call] | None


class Evaluation(NamedTuple):
    """An operation with all that its results depend on; `result` is their type, a `Result`."""

    op: Op
    operands: Sequence[Bits]
    attributes: Attributes
    result: Any
    setting: Setting

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """The types of its results."""
        result: Result = self.result
        return (result,) if isinstance(result, ArrayType) else result


Evaluate: TypeAlias = Callable[[Evaluation], Data]
Bind: TypeAlias = Callable[[Evaluation, Outputs], Calls]


@dataclass(frozen=True)
class Op:
    """One operation. `core` names the row of `csrc/ops.def` that an elementwise operation runs,
    `on_bool` the row that takes its place on bool (E8); `identity` starts a reduction by it; `cost`
    names the instruction of the Neuron Kernel Interface whose documented formula prices it. An
    operation of arrays that HLO does not have has the opcode "". `of_floats`: arrays of integers take
    the default float type first, as NumPy's functions give floats; `on_complex`: XLA has it on complex
    types, rows without an opcode are the arrays' alone. Host types are computed by `on_host`, or by
    NumPy's function of the name (H1); `host_only`: all types are, and no device has the operation.
    `formula` says what NumPy has no name for; `custom_calls` are targets that call it with its
    operands. `bind` makes its kernels' calls; with `takes_over` the results are its first operands,
    changed, whose elements the arrays hold; with `dense` it takes dense operands.
    """

    name: str
    opcode: str
    xla_builder: str
    arity: int
    engine: Engine
    cast: CastClass
    cost: str
    infer: Infer
    evaluate: Evaluate
    core: str | None = None
    on_bool: str | None = None
    direction: str | None = None
    identity: float | None = None
    operator: str | None = None
    total_order: bool = False
    of_floats: bool = False
    on_complex: bool = False
    on_host: Callable[..., Any] | None = None
    formula: str = ""
    host_only: bool = False
    custom_calls: tuple[str, ...] = ()
    bind: Bind | None = None
    takes_over: bool = False
    dense: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return by_name, (self.name,)  # what a row holds has no pickle, and it stays the same row

    def infer_array(self, operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
        """The type of the result of an operation that gives one array."""
        result = self.infer(operands, attributes)
        if isinstance(result, ArrayType):
            return result
        raise InvalidArgument(f"{self.label} gives {len(result)} arrays, not one")

    def evaluate_array(
        self, operands: Sequence[Bits], attributes: Attributes, result: ArrayType, setting: Setting
    ) -> BitsArray:
        """The result's data of an operation that gives one array."""
        data = self.evaluate(Evaluation(self, operands, attributes, result, setting))
        (found,) = data if isinstance(data, tuple) else (data,)
        return found

    @property
    def label(self) -> str:
        """What messages call it: the HLO opcode, or the array name."""
        return self.opcode or self.name


def run_bound(e: Evaluation) -> tuple[BitsArray, ...] | None:
    """The results of an operation's kernels; None where the core does not compute it."""
    bind = e.op.bind
    assert bind is not None
    if e.op.dense:
        dense = [Bits(np.array(x.data, order="C", copy=None), x.dtype) for x in e.operands]
        e = e._replace(operands=dense)
    if e.op.takes_over:
        outputs = [x.data.copy() for x in e.operands[: len(e.types)]]
    else:
        outputs = [empty(t) for t in e.types]
    calls = bind(e, outputs)
    if calls is None:
        return None
    for call in calls:
        run_call(call, e.setting)
    return tuple(outputs)


def evaluate_bound(e: Evaluation) -> tuple[BitsArray, ...]:
    """The results of an operation that the core always computes."""
    found = run_bound(e)
    assert found is not None
    return found


def empty(t: ArrayType) -> BitsArray:
    """Memory for the elements of an array, those of a host type too."""
    code = t.dtype.code
    return np.empty(t.dims, t.dtype.storage) if code is None else _core.empty(code, t.dims)


def standin(t: ArrayType) -> Bits:
    """An array of which only the type counts: all of its elements are one in memory."""
    return Bits(np.broadcast_to(np.zeros((), t.dtype.storage), t.dims), t.dtype)


def run_call(call: _core.Call, setting: Setting) -> None:
    """Runs a call on its own arrays. Stochastic rounding draws by the id of the last rounding, and of
    each tile's (S2).
    """
    tiles = ("", *map(str, range(call.draw_count - 1))) if call.draw_count else ()
    call.run(setting.seed, [setting.identifier(tile) for tile in tiles])


def same_type(operands: Sequence[ArrayType], what: str) -> ArrayType:
    for t in operands[1:]:
        if t != operands[0]:
            raise InvalidArgument(f"{what} of different types: {', '.join(map(str, operands))}")
    return operands[0]


def same_dims(types: Sequence[ArrayType], what: str = "arrays") -> tuple[int, ...]:
    """The dimensions that arrays have in common; raises InvalidArgument for others."""
    if any(t.dims != types[0].dims for t in types):
        raise InvalidArgument(f"{what} of different shapes: {', '.join(map(str, types))}")
    return types[0].dims


def one_or_tuple(types: Sequence[ArrayType]) -> Result:
    """The result's type of an operation that gives one array, or several."""
    return types[0] if len(types) == 1 else tuple(types)


def infer_same(operands: Sequence[ArrayType], attributes: Attributes) -> ArrayType:
    return same_type(operands, "operands")


def check_axes(axes: Sequence[int], rank: int, what: str) -> None:
    if len(set(axes)) != len(axes) or not all(0 <= a < rank for a in axes):
        raise InvalidArgument(f"{what} {tuple(axes)} are not distinct axes of {rank} dimensions")


def sole_axis(attributes: Attributes, rank: int) -> int:
    axes: Sequence[int] = attributes["dimensions"]
    check_axes(axes, rank, "dimensions")
    if len(axes) != 1:
        raise InvalidArgument(f"dimensions {tuple(axes)} must be one axis")
    return axes[0]


MAX_AXES = 64  # NumPy's
MAX_ELEMENTS = 1 << 62  # so that no place in an array leaves 64 bits


def check_dims(what: str, dims: Sequence[int]) -> None:
    """Raises InvalidArgument for dimensions that no array has."""
    if len(dims) > MAX_AXES:
        raise InvalidArgument(f"{what}: {len(dims)} axes, and an array has {MAX_AXES} at most")
    if math.prod(dims) > MAX_ELEMENTS:
        raise InvalidArgument(f"{what}: the result would have {math.prod(dims)} elements")


def broadcast_dims(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The dimensions that arrays of these shapes broadcast to. NumPy's arrays have up to 64 axes, and
    its own function of this meaning takes 32.

    >>> broadcast_dims((2, 1), (3,))
    (2, 3)
    """
    found = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for axis, n in enumerate(shape, len(found) - len(shape)):
            if n != 1 and found[axis] not in (1, n):
                raise InvalidArgument(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
            found[axis] = n if n != 1 else found[axis]
    check_dims(f"the shape {tuple(found)}", found)
    return tuple(found)


OPS: dict[str, Op] = {}


def by_name(name: str) -> Op:
    """The row with this array name; raises UnsupportedOperator with the nearest known name."""
    if name not in OPS:
        raise UnsupportedOperator(f"neuronsim has no operation {name!r}{nearest(name, OPS)}")
    return OPS[name]
