"""The operations: one row each, and `apply`, the one door to every evaluation.

A row says what an operation is called (NumPy, HLO, XlaBuilder), what its result's type is, how it is
evaluated on ndarrays of bits, which engine runs it, what the compiler's casts do to it and what it
costs. Arithmetic bodies are the core's (`csrc/ops.def`); data movement is NumPy's on the bits.

>>> by_name("exp").opcode, by_name("exp").engine
('exponential', 'scalar')
"""

from neuronsim.ops.chains import (
    Link as Link,
    TRUNCATED as TRUNCATED,
    constant_link as constant_link,
    core_code as core_code,
    count_outside_range as count_outside_range,
    counts as counts,
    elementwise_chain as elementwise_chain,
    has_input_range as has_input_range,
    is_chained as is_chained,
    is_counted as is_counted,
    is_host as is_host,
    link_tiles as link_tiles,
    lower as lower,
    lower_counted as lower_counted,
    make_chain as make_chain,
    numerics as numerics,
    outside_range_warning as outside_range_warning,
    pusher as pusher,
    run_chain as run_chain,
    truncation as truncation,
    truncate_constant as truncate_constant,
    truncated_elements as truncated_elements,
    truncate_int64 as truncate_int64,
)
from neuronsim.ops.collectives import COLLECTIVES as COLLECTIVES, with_groups as with_groups
from neuronsim.ops.composites import (
    LONGEST_ROW as LONGEST_ROW,
    composes_in_core as composes_in_core,
    composite_kernel as composite_kernel,
)
from neuronsim.ops.computations import ScalarComputation as ScalarComputation, ScalarStep as ScalarStep
from neuronsim.ops.custom_calls import (
    OWN_PREFIX as OWN_PREFIX,
    custom_call_attributes as custom_call_attributes,
    own_configuration as own_configuration,
)
from neuronsim.ops.decompositions import (
    FFT_TYPES as FFT_TYPES,
    LAPACK_DEFAULTS as LAPACK_DEFAULTS,
    TRANSPOSES as TRANSPOSES,
    TriangularOptions as TriangularOptions,
    lapack_call as lapack_call,
)
from neuronsim.ops.elementwise import check_elementwise as check_elementwise
from neuronsim.ops.evaluation import (
    KEEPS_64_BITS as KEEPS_64_BITS,
    apply as apply,
    evaluate as evaluate,
    evaluate_fused as evaluate_fused,
    moves_bits as moves_bits,
    run as run,
    truncated_all as truncated_all,
)
from neuronsim.ops.indexing import pad_slices as pad_slices
from neuronsim.ops.movement import relayout_type as relayout_type
from neuronsim.ops.observation import (
    ALWAYS as ALWAYS,
    EVENTS as EVENTS,
    Statistics as Statistics,
    empty_records as empty_records,
    events_of as events_of,
    find_origins as find_origins,
    is_elementwise as is_elementwise,
    is_judged as is_judged,
    numbers as numbers,
    observe as observe,
    observe_rounding as observe_rounding,
    of_origins as of_origins,
    rounds_sums as rounds_sums,
    statistics as statistics,
)
from neuronsim.ops.order import (
    order_keys as order_keys,
    take_along as take_along,
)
from neuronsim.ops.product_types import algorithm_attributes as algorithm_attributes
from neuronsim.ops.products import (
    ACCUMULATE_TYPES as ACCUMULATE_TYPES,
    NO_FUSION as NO_FUSION,
    Fusion as Fusion,
    accumulation as accumulation,
    bind_product as bind_product,
    goes_via_float32 as goes_via_float32,
    host_product as host_product,
    is_few as is_few,
    is_fusible as is_fusible,
    left_type as left_type,
    pack_columns as pack_columns,
    pack_in_run as pack_in_run,
    with_terms as with_terms,
)
from neuronsim.ops.reductions import reduction as reduction
from neuronsim.ops.rows import (
    ALONE as ALONE,
    OPS as OPS,
    ArrayType as ArrayType,
    Attributes as Attributes,
    Bits as Bits,
    BitsArray as BitsArray,
    CastClass as CastClass,
    ConvolutionDimensions as ConvolutionDimensions,
    DotDimensions as DotDimensions,
    Evaluation as Evaluation,
    Exchange as Exchange,
    GatherDimensions as GatherDimensions,
    Op as Op,
    Replica as Replica,
    Result as Result,
    ScatterDimensions as ScatterDimensions,
    Setting as Setting,
    WindowDimension as WindowDimension,
    broadcast_dims as broadcast_dims,
    by_name as by_name,
    check_dims as check_dims,
    empty as empty,
    standin as standin,
    whole as whole,
)
from neuronsim.ops.table import (
    FUNCTIONS_OF_FLOATS as FUNCTIONS_OF_FLOATS,
    OPCODES as OPCODES,
    by_opcode as by_opcode,
)
