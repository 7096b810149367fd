"""The operations: one row each, and `apply`, the one door to every evaluation.

A row says what an operation is called (NumPy, HLO, XlaBuilder), what its result's type is, how it is
evaluated on ndarrays of bits, which engine runs it, what the compiler's casts do to it and what it
costs. Arithmetic bodies are the core's (`csrc/ops.def`); data movement is NumPy's on the bits.

>>> by_name("exp").opcode, by_name("exp").engine
('exponential', 'scalar')
"""

from neuronsim.ops.chains import (
    Link,
    constant_link,
    core_code,
    count_outside_range,
    elementwise_chain,
    empty,
    has_input_range,
    is_host,
    link_tiles,
    lower,
    make_chain,
    numerics,
    outside_range_warning,
    pusher,
    run_chain,
)
from neuronsim.ops.collectives import COLLECTIVES, with_groups
from neuronsim.ops.composites import LONGEST_ROW, composes_in_core, composite_kernel
from neuronsim.ops.computations import ScalarComputation, ScalarStep
from neuronsim.ops.custom_calls import OWN_PREFIX, custom_call_attributes, own_configuration
from neuronsim.ops.decompositions import FFT_TYPES, TRANSPOSES, TriangularOptions
from neuronsim.ops.elementwise import check_elementwise
from neuronsim.ops.evaluation import (
    apply,
    evaluate,
    evaluate_all,
    evaluate_fused,
    moves_bits,
    run,
    truncate_int64,
    truncated_all,
)
from neuronsim.ops.movement import relayout_type
from neuronsim.ops.observation import (
    EVENTS,
    Statistics,
    find_origins,
    is_elementwise,
    is_judged,
    numbers,
    observe,
    observe_rounding,
    of_origins,
    rounds_sums,
    statistics,
)
from neuronsim.ops.order import line_blocks, order_keys, take_along
from neuronsim.ops.product_types import algorithm_attributes
from neuronsim.ops.products import (
    ACCUMULATE_TYPES,
    NO_FUSION,
    Fusion,
    accumulation,
    bind_product,
    goes_via_float32,
    host_product,
    is_fusible,
    pack_columns,
    with_terms,
)
from neuronsim.ops.reductions import reduction
from neuronsim.ops.rows import (
    ALONE,
    OPS,
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    CastClass,
    ConvolutionDimensions,
    DotDimensions,
    Evaluation,
    Exchange,
    GatherDimensions,
    Op,
    Replica,
    Result,
    ScatterDimensions,
    Setting,
    WindowDimension,
    broadcast_dims,
    by_name,
    check_dims,
    whole,
)
from neuronsim.ops.table import FUNCTIONS_OF_FLOATS, OPCODES, by_opcode
