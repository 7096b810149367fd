"""The operations: one row each, and `apply`, the one door to every evaluation.

A row says what an operation is called (NumPy, HLO, XlaBuilder), what its result's type is, how it is
evaluated on ndarrays of bits, which engine runs it, what the compiler's casts do to it and what it
costs. Arithmetic bodies are the core's (`csrc/ops.def`); data movement is NumPy's on the bits.

>>> by_name("exp").opcode, by_name("exp").engine
('exponential', 'scalar')
"""

from neuronsim.ops.elementwise import check_elementwise
from neuronsim.ops.evaluation import (
    apply,
    draws,
    evaluate,
    evaluate_product,
    moves_bits,
    truncate_int64,
    truncated,
)
from neuronsim.ops.order import order_keys
from neuronsim.ops.products import (
    NO_FUSION,
    Accumulation,
    DotSide,
    Fusion,
    accumulation,
    pack_columns,
    transpose_on_tensor_engine,
)
from neuronsim.ops.programs import (
    CONVERT,
    MAX_PROGRAMS,
    ProgramStep,
    TileProgram,
    core_code,
    count_outside_range,
    elementwise_program,
    has_input_range,
    is_host,
    lower,
    numerics,
    outside_range_warning,
    run_tile_program,
    step_tiles,
    tile_program,
)
from neuronsim.ops.reductions import MAX_WINDOW, core_window
from neuronsim.ops.rows import (
    MAX_ELEMENTS,
    OPS,
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    CastClass,
    ConvolutionDimensions,
    DotDimensions,
    Engine,
    Evaluate,
    GatherDimensions,
    Infer,
    Op,
    ScatterDimensions,
    Setting,
    WindowDimension,
    by_name,
)
from neuronsim.ops.table import FUNCTIONS_OF_FLOATS, OPCODES, by_opcode

__all__ = [
    "CONVERT",
    "FUNCTIONS_OF_FLOATS",
    "MAX_ELEMENTS",
    "MAX_PROGRAMS",
    "MAX_WINDOW",
    "NO_FUSION",
    "OPCODES",
    "OPS",
    "Accumulation",
    "ArrayType",
    "Attributes",
    "Bits",
    "BitsArray",
    "CastClass",
    "ConvolutionDimensions",
    "DotDimensions",
    "DotSide",
    "Engine",
    "Evaluate",
    "Fusion",
    "GatherDimensions",
    "Infer",
    "Op",
    "ProgramStep",
    "ScatterDimensions",
    "Setting",
    "TileProgram",
    "WindowDimension",
    "accumulation",
    "apply",
    "by_name",
    "by_opcode",
    "check_elementwise",
    "core_code",
    "core_window",
    "count_outside_range",
    "draws",
    "elementwise_program",
    "evaluate",
    "evaluate_product",
    "has_input_range",
    "is_host",
    "lower",
    "moves_bits",
    "numerics",
    "order_keys",
    "outside_range_warning",
    "pack_columns",
    "run_tile_program",
    "step_tiles",
    "tile_program",
    "transpose_on_tensor_engine",
    "truncate_int64",
    "truncated",
]
