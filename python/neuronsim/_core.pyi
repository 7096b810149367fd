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

class TileProgram:
    def __init__(
        self,
        inputs: list[int],
        steps: list[tuple[int, int, list[int]]],
        outputs: list[int],
        numerics: Numerics,
    ) -> None: ...
    def draws(self) -> bool: ...
    @property
    def step_count(self) -> int: ...
    def run(
        self,
        inputs: list[_Array],
        outputs: list[_Array],
        seed: int = 0,
        ids: list[int] = ...,
        records: _Array | None = None,
    ) -> None: ...

class BitsBase:
    def __init__(self, data: _Array, dtype: Any) -> None: ...

class ArrayBase:
    _data: _Array
    _dtype: Any
    def __init__(self, bits: BitsBase) -> None: ...
    def __getitem__(self, key: Any, /) -> Any: ...

class Elementwise:
    def __init__(
        self, name: str | None, profile: ContextVar[Any], otherwise: Callable[..., Any]
    ) -> None: ...
    def __call__(self, /, *operands: Any, **keywords: Any) -> Any: ...

class ElementwiseMethod(Elementwise):
    def __get__(self, instance: Any, owner: type | None = None, /) -> Callable[..., Any]: ...

def dlpack_capsule(array: _Array, code: int, bits: int, versioned: bool, copied: bool) -> Any: ...
def dlpack_array(capsule: Any) -> tuple[_Array, int, int]: ...
def call_pinned(
    function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], /
) -> Any: ...
def run_dense(program: TileProgram, /, *arrays: _Array) -> _Array | None: ...

class Reduction:
    def __init__(
        self,
        op: int,
        dtype: int,
        accumulate: int,
        tile: int,
        round_tiles: bool,
        numerics: Numerics,
        seed: int,
        ids: list[int],
    ) -> None: ...

def reduce(
    reduction: Reduction,
    input: _Array,
    kept: int,
    initial: _Array,
    output: _Array,
    cumulative_inner: int = 0,
) -> None: ...
def compose(
    composite: str,
    dtype: int,
    tile: int,
    input: _Array,
    kept: int,
    output: _Array,
    epsilon: float = 0.0,
    divisor: float = 0.0,
    weight: _Array | None = None,
    bias: _Array | None = None,
) -> None: ...
def reduce_windows(
    reduction: Reduction, window: _Window, input: _Array, initial: _Array, output: _Array
) -> None: ...
def fold_windows(
    computation: TileProgram,
    window: _Window,
    inputs: list[_Array],
    initial: list[_Array],
    outputs: list[_Array],
) -> None: ...
def select_windows(
    select: TileProgram, window: _Window, input: _Array, places: npt.NDArray[np.int64]
) -> None: ...
def scatter(
    computation: TileProgram,
    places: npt.NDArray[np.int64],
    updates: list[_Array],
    targets: list[_Array],
) -> None: ...
def order_keys(array: _Array, dtype: int) -> _Array: ...
def sort(comparator: TileProgram, operands: list[_Array]) -> _Array: ...

class PackedColumns:
    def __init__(
        self,
        a_dtype: int,
        b: _Array,
        b_dtype: int,
        b_vectors: int,
        batch: int,
        b_program: TileProgram | None,
        accumulate: str,
        accumulate_dtype: int,
        tile: int,
        numerics: Numerics,
        rows: int,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...

def dot(*arguments: Any) -> None: ...
def convolution(*arguments: Any) -> None: ...
def run_pair_chains(n: int) -> int: ...
def pairs_are_proved() -> bool: ...
def multiplies_pairs(rows: int) -> bool: ...
def select_bfloat16_products(name: str) -> None: ...
def multiplies_quads() -> bool: ...
def select_byte_products(name: str) -> None: ...
def empty(dtype: int, shape: Sequence[int]) -> _Array: ...
def random_words(seed: int, id: int, first: int, n: int) -> npt.NDArray[np.uint32]: ...
def run_fma_chains(n: int) -> int: ...
def isa() -> str: ...
def available_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def thread_count() -> int: ...
def set_thread_count(n: int) -> None: ...

class Step:
    """A call of a kernel: a step of an Executable, or run at once on the arrays it was made for."""

    def run(self) -> None: ...
    @property
    def record_count(self) -> int: ...
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
) -> Step: ...
def scatter_rows(
    computation: TileProgram,
    indices: _Array,
    dtype: int,
    dimensions: list[tuple[int, int, int, int]],
    components: list[tuple[int, int, int]],
    row: int,
    updates: list[_Array],
    targets: list[_Array],
) -> Step: ...
def select_and_scatter(
    select: TileProgram,
    computation: TileProgram,
    window: _Window,
    operand: _Array,
    source: _Array,
    target: _Array,
) -> Step: ...
def fold(
    computation: TileProgram,
    window: _Window,
    inputs: list[_Array],
    initial: list[_Array],
    outputs: list[_Array],
) -> Step: ...
def choose(
    computation: TileProgram,
    kept: int,
    inputs: list[_Array],
    initial: list[_Array],
    outputs: list[_Array],
) -> Step | None: ...
def sort_lines(
    comparator: TileProgram,
    key: TileProgram | None,
    descends: bool,
    total: bool,
    operands: list[_Array],
    outputs: list[_Array],
) -> Step: ...
def top(dtype: int, descends: bool, input: _Array, values: _Array, places: _Array) -> Step: ...

_Index = tuple[_Array, int]

def record_elementwise(program: TileProgram, inputs: list[_Array], outputs: list[_Array]) -> Step: ...
def record_dot(*arguments: Any) -> Step: ...
def record_convolution(*arguments: Any) -> Step: ...
def record_reduce(
    reduction: Reduction, input: _Array, kept: int, initial: _Array, output: _Array
) -> Step: ...
def record_reduce_windows(
    reduction: Reduction,
    window: list[tuple[int, int, int, int, int]],
    input: _Array,
    initial: _Array,
    output: _Array,
) -> Step: ...
def record_copy(source: _Array, target: _Array) -> Step: ...
def record_dynamic_copy(
    source: _Array, target: _Array, starts: list[_Index], limits: list[int], moves_source: bool
) -> Step: ...
def record_window(array: _Array, part: _Array, starts: list[_Index], limits: list[int]) -> Step: ...
def record_python(
    function: Callable[[Any, list[_Array], list[_Array]], None],
    inputs: list[_Array],
    outputs: list[_Array],
) -> Step: ...
def record_prologue(program: TileProgram, input: _Array) -> Step: ...
def record_inspection(
    function: Callable[[Any, list[_Array], list[_Array]], None],
    inputs: list[_Array],
    dtype: int,
    zeros: bool,
) -> Step: ...
def record_sums_inspection(
    function: Callable[[Any, list[_Array], list[_Array]], None], inputs: list[_Array]
) -> Step: ...
def record_count(
    count: int, counters: list[tuple[_Array, int, int]], body: list[Step], trips: _Array
) -> Step: ...
def record_while(condition: list[Step], goes_on: _Index, body: list[Step], trips: _Array) -> Step: ...
def record_conditional(index: _Index, branches: list[list[Step]]) -> Step: ...

class Executable:
    def __init__(
        self,
        steps: list[Step],
        standins: list[tuple[_Array, int, int]],
        records: int = 0,
        windows: int = 0,
    ) -> None: ...
    def run(
        self, memories: list[_Array], context: object, timed: bool, records: _Array | None = None
    ) -> list[int]: ...
