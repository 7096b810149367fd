import numpy as np
import numpy.typing as npt

FORMATS: list[tuple[str, int, int, int, bool, int, int]]
DTYPES: list[str]
OPS: list[tuple[str, int, str]]
CONVERT: int

class TileProgram:
    def __init__(
        self,
        inputs: list[int],
        steps: list[tuple[int, int, list[int]]],
        outputs: list[int],
        integers_via_float32: bool,
    ) -> None: ...
    def run(
        self, inputs: list[npt.NDArray[np.generic]], outputs: list[npt.NDArray[np.generic]]
    ) -> None: ...

def reduce(
    op: int,
    dtype: int,
    input: npt.NDArray[np.generic],
    kept: int,
    initial: npt.NDArray[np.generic],
    output: npt.NDArray[np.generic],
    tile: int,
    round_tiles: bool,
) -> None: ...
def dot(
    a: npt.NDArray[np.generic],
    a_dtype: int,
    b: npt.NDArray[np.generic],
    b_dtype: int,
    output: npt.NDArray[np.generic],
    result_dtype: int,
    tile: int,
) -> None: ...
def isa() -> str: ...
def available_isas() -> list[str]: ...
def select_isa(name: str) -> None: ...
def thread_count() -> int: ...
def set_thread_count(n: int) -> None: ...
