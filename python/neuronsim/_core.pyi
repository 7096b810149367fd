from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

FORMATS: list[tuple[str, int, int, int, bool, int, int]]
DTYPES: list[str]
OPS: list[tuple[str, int, str]]
OBSERVED: list[str]
CONVERT: int
CONVERT_NEAREST: int
REDUCE_PRECISION: int
RESTRICT: int
BITCAST: int
TRUNCATED: int
CONSTANT: int
INPUT_RANGES: dict[str, tuple[float, float]]

_Array = npt.NDArray[Any]
_Window = list[tuple[int, int, int, int, int]]

class Numerics:
    def __init__(
        self,
        integers_via_float32: bool,
        fp8_overflow: str,
        flush_subnormals: bool,
        stochastic: bool,
    ) -> None: ...

class Chain:
    def __init__(
        self,
        inputs: list[int],
        links: list[tuple[int, int, list[int]]],
        outputs: list[int],
        numerics: Numerics,
    ) -> None: ...
    @property
    def draws(self) -> bool: ...
    @property
    def link_count(self) -> int: ...
    def on(self, inputs: list[_Array], outputs: list[_Array]) -> Call: ...
    def prologue_on(self, input: _Array) -> Call:
        """Only observes what the chain meets on an operand of a product."""

class BitsBase:
    def __init__(self, data: _Array, dtype: Any) -> None: ...

class ArrayBase:
    _data: _Array
    _layout: _Array
    _dtype: Any
    def __init__(self, bits: BitsBase) -> None: ...
    def __getitem__(self, key: Any, /) -> Any: ...

class EagerCall:
    """What an operation runs on arrays of its types and of any layout that it takes."""

class EagerChain(EagerCall):
    """An operation on elements; the last two programs round Python's numbers to its last type."""

    def __init__(
        self,
        result: Any,
        types: list[Any],
        chain: Chain,
        of_float: Chain | None,
        of_integer: Chain | None,
    ) -> None: ...

class EagerMove(EagerCall):
    """NumPy's function that moves storage bits, of arrays, integers and tuples of these."""

    def __init__(self, function: Callable[..., Any]) -> None: ...

def eager_reduction(dtype: Any, reduction: Reduction, initial: _Array) -> EagerCall: ...
def eager_statistic(dtype: Any, composite: Composite, longest: int, correction: float) -> EagerCall: ...
def eager_argument(dtype: Any, places: Any, largest: bool) -> EagerCall: ...
def eager_sort(dtype: Any) -> EagerCall: ...

class EagerProduct(EagerCall):
    """A right operand that nobody can write into is packed once."""

    def __init__(self, dtype: Any, sums: _Sums, numerics: Numerics) -> None: ...

class EagerCache:
    """The calls that a profile remembers: by the operation, the type of the arrays, and the type that
    it converts to or None.
    """

    def __init__(self) -> None: ...
    def keep(self, names: tuple[str, Any, Any], call: EagerCall) -> None: ...
    def __contains__(self, names: tuple[str, Any, Any]) -> bool: ...
    def clear(self) -> None: ...

class Door:
    """A function in the pinned floating-point environment (D1), in whose place runs `operation`: an
    EagerCall, or what the profile in force remembers by that name; if it `writes`, into its first
    argument.
    """

    def __init__(
        self,
        otherwise: Callable[..., Any],
        operation: str | EagerCall | None = None,
        writes: bool = False,
    ) -> None: ...
    def __call__(self, /, *operands: Any, **keywords: Any) -> Any: ...

class DoorMethod(Door):
    def __get__(self, instance: Any, owner: type | None = None, /) -> Callable[..., Any]: ...

def use_arrays(array: type, profile: ContextVar[Any]) -> None: ...
def dlpack_capsule(array: _Array, code: int, bits: int, versioned: bool, copied: bool) -> Any: ...
def dlpack_array(capsule: Any) -> tuple[_Array, int, int]: ...

class Reduction:
    def __init__(
        self,
        op: int,
        dtype: int,
        accumulate: int,
        tile: int,
        round_tiles: bool,
        numerics: Numerics,
    ) -> None: ...
    def on(
        self,
        input: _Array,
        kept: int,
        initial: _Array,
        output: _Array,
        cumulative_inner: int = 0,
    ) -> Call: ...
    def over(self, window: _Window, input: _Array, initial: _Array, output: _Array) -> Call: ...

class Composite:
    def __init__(self, name: str, dtype: int, tile: int) -> None: ...
    def on(
        self,
        input: _Array,
        kept: int,
        output: _Array,
        epsilon: float = 0.0,
        divisor: float = 0.0,
        weight: _Array | None = None,
        bias: _Array | None = None,
    ) -> Call: ...

def order_keys(array: _Array, dtype: int) -> _Array: ...

class PackedColumns:
    def __init__(
        self,
        a_dtype: int,
        b: _Array,
        side: _Side,
        batch: int,
        sums: _Sums,
        numerics: Numerics,
        rows: int,
        packs: bool = True,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
    def on(self, b: _Array, side: _Side, batch: int, place: _Array) -> Call: ...

# The type of an operand, how many of its dimensions are its vectors', and the chain that computes its
# elements while they are packed.
_Side = tuple[int, int, Chain | None]
_Sums = tuple[str, int, int]  # the model of accumulation, the type of the sums, the tile

class Product:
    """Operands come with their batch, their vectors and the contraction in this order."""

    def __init__(
        self,
        a: _Side,
        b: _Side,
        batch: int,
        result: int,
        sums: _Sums,
        numerics: Numerics,
        packed: PackedColumns | None = None,
        epilogue: Chain | None = None,
    ) -> None: ...
    def on(
        self,
        a: _Array,
        b: _Array,
        output: _Array,
        terms: list[_Array] = ...,
        columns: _Array | None = None,
    ) -> Call: ...

class Convolution:
    """Arrays come as (batch, spatial ..., features), the kernel as (spatial ..., input, output).
    Images of bytes may be padded with another number than zero.
    """

    def __init__(
        self,
        x: tuple[int, Chain | None],
        w: tuple[int, Chain | None],
        window: list[tuple[int, int, int, int, int, bool]],
        feature_groups: int,
        batch_groups: int,
        result: int,
        sums: _Sums,
        numerics: Numerics,
        packed: PackedColumns | None = None,
        epilogue: Chain | None = None,
        padding: int = 0,
    ) -> None: ...
    def on(self, x: _Array, w: _Array, output: _Array, terms: list[_Array] = ...) -> Call: ...

def run_pair_chains(n: int) -> int: ...
def pairs_are_proved() -> bool: ...
def multiplies_pairs(rows: int) -> bool: ...
def select_bfloat16_products(name: str) -> None: ...
def byte_products() -> str: ...
def select_byte_products(name: str) -> None: ...
def empty(dtype: int, shape: Sequence[int]) -> _Array: ...
def random_words(seed: int, id: int, first: int, n: int) -> npt.NDArray[np.uint32]: ...
def run_fma_chains(n: int) -> int: ...
def isa() -> str: ...
def available_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def thread_count() -> int: ...
def set_thread_count(n: int) -> None: ...

class Call:
    """A call of a kernel: a step of an Executable, or run at once on the arrays it was made for."""

    def run(
        self, seed: int = 0, ids: list[int] | None = None, records: _Array | None = None
    ) -> None: ...
    @property
    def record_count(self) -> int: ...
    @property
    def is_few(self) -> bool:
        """Whether a loop's trip computes it without a call, a product as a step of few elements."""
    @property
    def draw_count(self) -> int:
        """How many ids `run` takes where it rounds stochastically."""
    def set_first_record(self, first: int) -> None: ...

def gather(
    operand: _Array,
    indices: _Array,
    dtype: int,
    dimensions: list[tuple[int, int, int, int]],
    components: list[tuple[int, int, int]],
    shape: list[int],
    strides: list[int],
    result_strides: list[int],
    result: _Array,
) -> Call: ...
def scatter_rows(
    computation: Chain,
    indices: _Array,
    dtype: int,
    dimensions: list[tuple[int, int, int, int]],
    components: list[tuple[int, int, int]],
    row: int,
    updates: list[_Array],
    targets: list[_Array],
) -> Call: ...
def select_and_scatter(
    select: Chain,
    computation: Chain,
    window: _Window,
    operand: _Array,
    source: _Array,
    target: _Array,
) -> Call: ...
def fold(
    computation: Chain,
    window: _Window,
    inputs: list[_Array],
    initial: list[_Array],
    outputs: list[_Array],
) -> Call: ...
def choose(
    computation: Chain,
    kept: int,
    inputs: list[_Array],
    initial: list[_Array],
    outputs: list[_Array],
) -> Call | None: ...
def sort_lines(
    comparator: Chain,
    keys: list[tuple[Chain, bool, bool]],  # each with whether it descends, and is of TOTALORDER
    operands: list[_Array],
    outputs: list[_Array],
) -> Call: ...
def argsort(dtype: int, input: _Array, places: _Array) -> Call: ...
def top(dtype: int, descends: bool, input: _Array, places: _Array, values: _Array | None) -> Call: ...
def generate_bits(
    threefry: bool, reads_state: bool, axis: int, state: _Array, new_state: _Array, bits: _Array
) -> Call: ...
def argument(dtype: int, largest: bool, input: _Array, places: _Array) -> Call: ...

_Index = tuple[_Array, int]
_Python = Callable[[Any, list[_Array], list[_Array]], None]  # of a context, inputs and outputs

def record_copy(source: _Array, target: _Array) -> Call: ...
def record_dynamic_copy(
    source: _Array, target: _Array, starts: list[_Index], limits: list[int], moves_source: bool
) -> Call: ...
def record_window(array: _Array, part: _Array, starts: list[_Index], limits: list[int]) -> Call: ...
def record_python(function: _Python, inputs: list[_Array], outputs: list[_Array]) -> Call: ...
def record_inspection(function: _Python, inputs: list[_Array], dtype: int, zeros: bool) -> Call: ...
def record_sums_inspection(function: _Python, inputs: list[_Array]) -> Call: ...
def record_count(
    count: int, counters: list[tuple[_Array, int, int]], body: list[Call], trips: _Array
) -> Call: ...
def record_while(condition: list[Call], goes_on: _Array, body: list[Call], trips: _Array) -> Call: ...
def record_conditional(index: _Index, branches: list[list[Call]]) -> Call: ...

class Executable:
    def __init__(
        self,
        steps: list[Call],
        standins: list[tuple[_Array, int, int]],
        records: int = 0,
        windows: int = 0,
    ) -> None: ...
    def run(
        self, memories: list[_Array], context: object, timed: bool, records: _Array | None = None
    ) -> list[int]: ...
