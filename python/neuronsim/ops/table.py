"""The rows."""

from __future__ import annotations

import math
from typing import Any

from neuronsim.errors import UnsupportedOperator, nearest
from neuronsim.ops.collectives import (
    evaluate_all_gather,
    evaluate_all_reduce,
    evaluate_all_to_all,
    evaluate_collective_broadcast,
    evaluate_collective_permute,
    evaluate_partition_id,
    evaluate_reduce_scatter,
    evaluate_replica_id,
    infer_all_gather,
    infer_all_reduce,
    infer_all_to_all,
    infer_collective_broadcast,
    infer_collective_permute,
    infer_device_number,
    infer_reduce_scatter,
)
from neuronsim.ops.composites import (
    evaluate_composite,
    evaluate_formula,
    infer_batch_norm,
    infer_by_rows,
    infer_statistic,
)
from neuronsim.ops.custom_calls import (
    custom_call_row,
    evaluate_backward,
    evaluate_neuron_rms_norm,
    evaluate_neuron_top_k,
    evaluate_pass_through,
    evaluate_resize_bilinear,
    evaluate_resize_nearest,
    infer_backward,
    infer_neuron_rms_norm,
    infer_neuron_top_k,
    infer_pass_through,
    infer_resize,
)
from neuronsim.ops.elementwise import (
    evaluate_complex,
    evaluate_convert,
    evaluate_elementwise,
    evaluate_map,
    evaluate_part,
    infer_abs,
    infer_clamp,
    infer_comparison,
    infer_complex,
    infer_convert,
    infer_map,
    infer_part,
    infer_predicate,
    infer_reduce_precision,
    infer_select,
)
from neuronsim.ops.indexing import (
    evaluate_dynamic_slice,
    evaluate_dynamic_update_slice,
    evaluate_gather,
    evaluate_pad,
    evaluate_scatter,
    infer_dynamic_slice,
    infer_dynamic_update_slice,
    infer_gather,
    infer_pad,
    infer_scatter,
)
from neuronsim.ops.movement import (
    evaluate_bitcast_convert,
    evaluate_broadcast,
    evaluate_concatenate,
    evaluate_copy,
    evaluate_get_dimension_size,
    evaluate_iota,
    evaluate_reshape,
    evaluate_reverse,
    evaluate_set_dimension_size,
    evaluate_slice,
    evaluate_transpose,
    infer_bitcast,
    infer_bitcast_convert,
    infer_broadcast,
    infer_concatenate,
    infer_get_dimension_size,
    infer_iota,
    infer_reshape,
    infer_reverse,
    infer_set_dimension_size,
    infer_slice,
    infer_transpose,
)
from neuronsim.ops.normalization import (
    evaluate_batch_norm,
    evaluate_batch_norm_inference,
    infer_batch_norm_grad,
    infer_batch_norm_inference,
    infer_batch_norm_training,
)
from neuronsim.ops.order import (
    evaluate_argsort,
    evaluate_argument,
    evaluate_nextafter,
    evaluate_sort,
    evaluate_top_k,
    evaluate_topk,
    infer_argsort,
    infer_argument,
    infer_nextafter,
    infer_sort,
    infer_top_k,
    infer_topk,
)
from neuronsim.ops.products import evaluate_convolution, evaluate_dot, infer_convolution, infer_dot
from neuronsim.ops.programs import CORE_KINDS
from neuronsim.ops.random import (
    evaluate_rng,
    evaluate_rng_bit_generator,
    evaluate_rng_state,
    infer_rng,
    infer_rng_bit_generator,
    infer_rng_state,
)
from neuronsim.ops.reductions import (
    evaluate_cumulative,
    evaluate_reduce,
    infer_cumulative,
    infer_reduce,
)
from neuronsim.ops.rows import OPS, Attributes, CastClass, Engine, Evaluate, Infer, Op, infer_same
from neuronsim.ops.windows import (
    evaluate_reduce_window,
    evaluate_select_and_scatter,
    infer_reduce_window,
    infer_select_and_scatter,
)


def _elementwise(
    name: str,
    opcode: str,
    xla_builder: str,
    arity: int,
    engine: Engine,
    cost: str,
    infer: Infer = infer_same,
    core: str | None = None,
    **more: Any,
) -> None:
    OPS[name] = Op(
        name=name,
        opcode=opcode,
        xla_builder=xla_builder,
        arity=arity,
        engine=engine,
        cast="compute",
        cost=cost,
        infer=infer,
        evaluate=evaluate_elementwise,
        core=core or name,
        **more,
    )


def _other(
    name: str,
    opcode: str,
    xla_builder: str,
    arity: int,
    engine: Engine,
    cast: CastClass,
    cost: str,
    infer: Infer,
    evaluate: Evaluate,
) -> None:
    OPS[name] = Op(name, opcode, xla_builder, arity, engine, cast, cost, infer, evaluate)


# A wrong column is easier to see when the table stays a table.
# fmt: off
_elementwise("add",         "add",         "Add",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=0.0, operator="+")
_elementwise("subtract",    "subtract",    "Sub",   2, "vector", "tensor_tensor", operator="-")
_elementwise("multiply",    "multiply",    "Mul",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=1.0, operator="*")
_elementwise("divide",      "divide",      "Div",   2, "vector", "reciprocal",    operator="/")
_elementwise("maximum",     "maximum",     "Max",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=-math.inf)
_elementwise("minimum",     "minimum",     "Min",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=math.inf)
_elementwise("fmod",        "remainder",   "Rem",   2, "gpsimd", "tensor_tensor")
_elementwise("remainder",   "",            "",      2, "gpsimd", "tensor_tensor", operator="%")
_elementwise("floor_divide", "",           "",      2, "gpsimd", "tensor_tensor", operator="//")
_elementwise("power",       "power",       "Pow",   2, "gpsimd", "tensor_tensor", operator="**")
_elementwise("clamp",       "clamp",       "Clamp", 3, "vector", "tensor_tensor", infer_clamp)
_elementwise("sign",        "sign",        "Sign",  1, "scalar", "activation")
_elementwise("floor",       "floor",       "Floor", 1, "scalar", "activation")
_elementwise("ceil",        "ceil",        "Ceil",  1, "scalar", "activation")
_elementwise("trunc",       "",            "",      1, "scalar", "activation")
_elementwise("rint",        "round-nearest-even", "RoundNearestEven", 1, "scalar", "activation")
_elementwise("round_half_away", "round-nearest-afz", "Round",         1, "scalar", "activation")
_elementwise("reciprocal",  "",            "",      1, "vector", "reciprocal")
_elementwise("copysign",    "",            "",      2, "vector", "tensor_tensor")
_elementwise("shift_left",             "shift-left",             "ShiftLeft",            2, "vector", "tensor_tensor", operator="<<")
_elementwise("shift_right_arithmetic", "shift-right-arithmetic", "ShiftRightArithmetic", 2, "vector", "tensor_tensor")
_elementwise("shift_right_logical",    "shift-right-logical",    "ShiftRightLogical",    2, "vector", "tensor_tensor")
_elementwise("population_count",       "popcnt",                 "PopulationCount",      1, "gpsimd", "tensor_scalar")
_elementwise("count_leading_zeros",    "count-leading-zeros",    "Clz",                  1, "gpsimd", "tensor_scalar")
_elementwise("sqrt",        "sqrt",        "Sqrt",  1, "scalar", "activation")
_elementwise("rsqrt",       "rsqrt",       "Rsqrt", 1, "scalar", "activation")
_elementwise("cbrt",        "cbrt",        "Cbrt",  1, "scalar", "activation")
_elementwise("exp",         "exponential", "Exp",   1, "scalar", "activation")
_elementwise("exp2",        "",            "",      1, "scalar", "activation")
_elementwise("expm1",       "exponential-minus-one", "Expm1", 1, "scalar", "activation")
_elementwise("log",         "log",         "Log",   1, "scalar", "activation")
_elementwise("log2",        "",            "",      1, "scalar", "activation")
_elementwise("log10",       "",            "",      1, "scalar", "activation")
_elementwise("log1p",       "log-plus-one", "Log1p", 1, "scalar", "activation")
_elementwise("sin",         "sine",        "Sin",   1, "scalar", "activation")
_elementwise("cos",         "cosine",      "Cos",   1, "scalar", "activation")
_elementwise("tan",         "tan",         "Tan",   1, "scalar", "activation")
_elementwise("asin",        "asin",        "Asin",  1, "scalar", "activation")
_elementwise("acos",        "acos",        "Acos",  1, "scalar", "activation")
_elementwise("atan",        "",            "",      1, "scalar", "activation")
_elementwise("atan2",       "atan2",       "Atan2", 2, "gpsimd", "tensor_tensor")
_elementwise("hypot",       "",            "",      2, "gpsimd", "tensor_tensor")
_elementwise("logaddexp",   "",            "",      2, "gpsimd", "tensor_tensor")
_elementwise("logaddexp2",  "",            "",      2, "gpsimd", "tensor_tensor")
_elementwise("sinh",        "sinh",        "Sinh",  1, "scalar", "activation")
_elementwise("cosh",        "cosh",        "Cosh",  1, "scalar", "activation")
_elementwise("tanh",        "tanh",        "Tanh",  1, "scalar", "activation")
_elementwise("asinh",       "asinh",       "Asinh", 1, "scalar", "activation")
_elementwise("acosh",       "acosh",       "Acosh", 1, "scalar", "activation")
_elementwise("atanh",       "atanh",       "Atanh", 1, "scalar", "activation")
_elementwise("erf",         "erf",         "Erf",   1, "scalar", "activation")
_elementwise("erfc",        "",            "",      1, "scalar", "activation")
_elementwise("sigmoid",     "logistic",    "Logistic", 1, "scalar", "activation")
_elementwise("silu",         "", "", 1, "scalar", "activation")
_elementwise("gelu",         "", "", 1, "scalar", "activation")
_elementwise("gelu_tanh",    "", "", 1, "scalar", "activation")
_elementwise("gelu_sigmoid", "", "", 1, "scalar", "activation")
_elementwise("softplus",     "", "", 1, "scalar", "activation")
_elementwise("mish",         "", "", 1, "scalar", "activation")
_elementwise("erf_dx",       "", "", 1, "scalar", "activation")
_elementwise("silu_dx",      "", "", 1, "scalar", "activation")
_elementwise("gelu_dx",      "", "", 1, "scalar", "activation")
_elementwise("gelu_sigmoid_dx", "", "", 1, "scalar", "activation")
_elementwise("negative",    "negate",      "Neg",   1, "vector", "tensor_scalar")
_elementwise("abs",         "abs",         "Abs",   1, "vector", "tensor_scalar", infer_abs)
_elementwise("bitwise_and",    "and", "And", 2, "vector", "tensor_tensor", operator="&")
_elementwise("bitwise_or",     "or",  "Or",  2, "vector", "tensor_tensor", operator="|")
_elementwise("bitwise_xor",    "xor", "Xor", 2, "vector", "tensor_tensor", operator="^")
_elementwise("bitwise_invert", "not", "Not", 1, "vector", "tensor_scalar", on_bool="logical_not")
_elementwise("equal",         "compare", "Eq", 2, "vector", "tensor_tensor", infer_comparison, direction="EQ", operator="==")
_elementwise("not_equal",     "compare", "Ne", 2, "vector", "tensor_tensor", infer_comparison, direction="NE", operator="!=")
_elementwise("less",          "compare", "Lt", 2, "vector", "tensor_tensor", infer_comparison, direction="LT", operator="<")
_elementwise("less_equal",    "compare", "Le", 2, "vector", "tensor_tensor", infer_comparison, direction="LE", operator="<=")
_elementwise("greater",       "compare", "Gt", 2, "vector", "tensor_tensor", infer_comparison, direction="GT", operator=">")
_elementwise("greater_equal", "compare", "Ge", 2, "vector", "tensor_tensor", infer_comparison, direction="GE", operator=">=")
_elementwise("equal_total_order",         "compare", "EqTotalOrder", 2, "vector", "tensor_tensor", infer_comparison, direction="EQ", total_order=True)
_elementwise("not_equal_total_order",     "compare", "NeTotalOrder", 2, "vector", "tensor_tensor", infer_comparison, direction="NE", total_order=True)
_elementwise("less_total_order",          "compare", "LtTotalOrder", 2, "vector", "tensor_tensor", infer_comparison, direction="LT", total_order=True)
_elementwise("less_equal_total_order",    "compare", "LeTotalOrder", 2, "vector", "tensor_tensor", infer_comparison, direction="LE", total_order=True)
_elementwise("greater_total_order",       "compare", "GtTotalOrder", 2, "vector", "tensor_tensor", infer_comparison, direction="GT", total_order=True)
_elementwise("greater_equal_total_order", "compare", "GeTotalOrder", 2, "vector", "tensor_tensor", infer_comparison, direction="GE", total_order=True)
_elementwise("isfinite", "is-finite", "IsFinite", 1, "vector", "tensor_scalar", infer_predicate)
_elementwise("isnan",    "",          "",         1, "vector", "tensor_scalar", infer_predicate)
_elementwise("isinf",    "",          "",         1, "vector", "tensor_scalar", infer_predicate)
_elementwise("signbit",  "",          "",         1, "vector", "tensor_scalar", infer_predicate)
_elementwise("select",        "select",  "Select", 3, "vector", "copy_predicated", infer_select)

_other("convert",   "convert",   "ConvertElementType", 1, "vector", "compute",  "tensor_copy",   infer_convert, evaluate_convert)
_other("complex",   "complex",   "Complex",        2, "none",   "host",     "none",          infer_complex,   evaluate_complex)
_other("real",      "real",      "Real",           1, "none",   "host",     "none",          infer_part,      evaluate_part)
_other("imag",      "imag",      "Imag",           1, "none",   "host",     "none",          infer_part,      evaluate_part)
_other("reduce_precision", "reduce-precision", "ReducePrecision", 1, "vector", "compute", "tensor_copy", infer_reduce_precision, evaluate_elementwise)
_other("map",       "map",       "Map",           -1, "vector", "compute",  "tensor_tensor", infer_map,       evaluate_map)
_other("reduce",    "reduce",    "Reduce",        -1, "vector", "compute",  "tensor_reduce", infer_reduce,    evaluate_reduce)
_other("cumulative", "",         "",               2, "vector", "compute",  "tensor_reduce", infer_cumulative, evaluate_cumulative)
_other("reduce_window", "reduce-window", "ReduceWindow", -1, "vector", "compute", "tensor_reduce", infer_reduce_window, evaluate_reduce_window)
_other("select_and_scatter", "select-and-scatter", "SelectAndScatter", 3, "gpsimd", "compute", "tensor_tensor", infer_select_and_scatter, evaluate_select_and_scatter)
_other("argmax",    "",          "",               1, "vector", "movement", "tensor_reduce", infer_argument, evaluate_argument)
_other("argmin",    "",          "",               1, "vector", "movement", "tensor_reduce", infer_argument, evaluate_argument)
_other("argsort",   "",          "",               1, "gpsimd", "movement", "tensor_copy",   infer_argsort,  evaluate_argsort)
_other("top_k",     "",          "",               1, "gpsimd", "movement", "tensor_copy",   infer_top_k,    evaluate_top_k)
_other("topk",      "topk",      "TopK",           1, "gpsimd", "movement", "tensor_copy",   infer_topk,     evaluate_topk)
_other("sort",      "sort",      "Sort",          -1, "gpsimd", "movement", "tensor_copy",   infer_sort,     evaluate_sort)
_other("nextafter", "",          "",               2, "gpsimd", "compute",  "tensor_tensor", infer_nextafter, evaluate_nextafter)
_other("dot",       "dot",       "DotGeneral",     2, "tensor", "matmult",  "nc_matmul",     infer_dot,       evaluate_dot)
_other("convolution", "convolution", "ConvGeneralDilated", 2, "tensor", "matmult", "nc_matmul", infer_convolution, evaluate_convolution)
_other("broadcast", "broadcast", "BroadcastInDim", 1, "none",   "movement", "none",          infer_broadcast, evaluate_broadcast)
_other("reshape",   "reshape",   "Reshape",        1, "none",   "movement", "none",          infer_reshape,   evaluate_reshape)
_other("copy",      "copy",      "Copy",           1, "dma",    "movement", "dma",           infer_same,      evaluate_copy)
_other("transpose", "transpose", "Transpose",      1, "dma",    "movement", "dma",           infer_transpose, evaluate_transpose)
_other("reverse",   "reverse",   "Rev",            1, "dma",    "movement", "dma",           infer_reverse,   evaluate_reverse)
_other("slice",     "slice",     "Slice",          1, "none",   "movement", "none",          infer_slice,     evaluate_slice)
_other("concatenate", "concatenate", "Concatenate", -1, "dma",  "movement", "dma",           infer_concatenate, evaluate_concatenate)
_other("iota",      "iota",      "Iota",           0, "gpsimd", "compute",  "iota",          infer_iota,      evaluate_iota)
_other("pad",       "pad",       "Pad",            2, "dma",    "movement", "dma",           infer_pad,       evaluate_pad)
_other("dynamic_slice", "dynamic-slice", "DynamicSlice", -1, "dma", "movement", "dma", infer_dynamic_slice, evaluate_dynamic_slice)
_other("dynamic_update_slice", "dynamic-update-slice", "DynamicUpdateSlice", -1, "dma", "movement", "dma", infer_dynamic_update_slice, evaluate_dynamic_update_slice)
_other("gather",    "gather",    "Gather",         2, "dma",    "movement", "dma",           infer_gather,    evaluate_gather)
_other("scatter",   "scatter",   "Scatter",       -1, "gpsimd", "compute",  "tensor_tensor", infer_scatter,   evaluate_scatter)
# Of the class `host`: their operand's own bits and shape are what they are about, so no cast may touch it.
_other("bitcast_convert", "bitcast-convert", "BitcastConvertType", 1, "none", "host", "none", infer_bitcast_convert, evaluate_bitcast_convert)
_other("bitcast",   "bitcast",   "Bitcast",        1, "none",   "host",     "none",          infer_bitcast,   evaluate_bitcast_convert)
_other("get_dimension_size", "get-dimension-size", "GetDimensionSize", 1, "none", "host", "none", infer_get_dimension_size, evaluate_get_dimension_size)
_other("set_dimension_size", "set-dimension-size", "SetDimensionSize", 2, "none", "movement", "none", infer_set_dimension_size, evaluate_set_dimension_size)
_other("softmax",     "",        "",               1, "scalar", "compute",  "activation",    infer_by_rows,   evaluate_composite)
_other("log_softmax", "",        "",               1, "scalar", "compute",  "activation",    infer_by_rows,   evaluate_composite)
_other("logsumexp",   "",        "",               1, "scalar", "compute",  "activation",    infer_statistic, evaluate_composite)
_other("layer_norm",  "",        "",              -1, "vector", "compute",  "tensor_tensor", infer_by_rows,   evaluate_composite)
_other("rms_norm",    "",        "",              -1, "vector", "compute",  "tensor_tensor", infer_by_rows,   evaluate_composite)
_other("batch_norm",  "",        "",              -1, "vector", "compute",  "tensor_tensor", infer_batch_norm, evaluate_formula)
_other("batch_norm_training",  "batch-norm-training",  "BatchNormTraining",  3, "vector", "compute", "tensor_tensor", infer_batch_norm_training,  evaluate_batch_norm)
_other("batch_norm_inference", "batch-norm-inference", "BatchNormInference", 5, "vector", "compute", "tensor_tensor", infer_batch_norm_inference, evaluate_batch_norm_inference)
_other("batch_norm_grad",      "batch-norm-grad",      "BatchNormGrad",      5, "vector", "compute", "tensor_tensor", infer_batch_norm_grad,      evaluate_batch_norm)
_other("mean",        "",        "",               1, "vector", "compute",  "tensor_tensor", infer_statistic, evaluate_composite)
_other("var",         "",        "",               1, "vector", "compute",  "tensor_tensor", infer_statistic, evaluate_composite)
_other("std",         "",        "",               1, "vector", "compute",  "tensor_tensor", infer_statistic, evaluate_composite)
_other("vector_norm", "",        "",               1, "vector", "compute",  "tensor_tensor", infer_statistic, evaluate_composite)
_other("rng_bit_generator", "rng-bit-generator", "RngBitGenerator", 1, "gpsimd", "movement", "iota", infer_rng_bit_generator, evaluate_rng_bit_generator)
_other("rng",         "rng",     "RngUniform",     2, "gpsimd", "compute",  "iota",          infer_rng,       evaluate_rng)
_other("rng_state",   "rng-get-and-update-state", "RngGetAndUpdateState", 0, "gpsimd", "movement", "iota", infer_rng_state, evaluate_rng_state)
_other("gelu_backward",    "",   "",               2, "scalar", "compute",  "activation",    infer_backward,  evaluate_backward)
_other("silu_backward",    "",   "",               2, "scalar", "compute",  "activation",    infer_backward,  evaluate_backward)
_other("softmax_backward", "",   "",               2, "vector", "compute",  "tensor_tensor", infer_backward,  evaluate_backward)
_other("neuron_rms_norm",  "",   "",               3, "vector", "compute",  "tensor_tensor", infer_neuron_rms_norm, evaluate_neuron_rms_norm)
_other("neuron_top_k",     "",   "",               1, "gpsimd", "movement", "tensor_copy",   infer_neuron_top_k, evaluate_neuron_top_k)
_other("resize_nearest",   "",   "",               1, "gpsimd", "movement", "tensor_copy",   infer_resize,    evaluate_resize_nearest)
_other("resize_bilinear",  "",   "",               1, "vector", "compute",  "tensor_tensor", infer_resize,    evaluate_resize_bilinear)
_other("pass_through",     "",   "",              -1, "none",   "movement", "none",          infer_pass_through, evaluate_pass_through)
_other("all_reduce",  "all-reduce", "AllReduce",  -1, "gpsimd", "compute",  "tensor_tensor", infer_all_reduce, evaluate_all_reduce)
_other("reduce_scatter", "reduce-scatter", "ReduceScatter", -1, "gpsimd", "compute", "tensor_tensor", infer_reduce_scatter, evaluate_reduce_scatter)
_other("all_gather",  "all-gather", "AllGather",  -1, "dma",    "movement", "dma",           infer_all_gather, evaluate_all_gather)
_other("all_to_all",  "all-to-all", "AllToAll",   -1, "dma",    "movement", "dma",           infer_all_to_all, evaluate_all_to_all)
_other("collective_permute", "collective-permute", "CollectivePermute", -1, "dma", "movement", "dma", infer_collective_permute, evaluate_collective_permute)
_other("collective_broadcast", "collective-broadcast", "CollectiveBroadcast", -1, "dma", "movement", "dma", infer_collective_broadcast, evaluate_collective_broadcast)
_other("replica_id",  "replica-id", "ReplicaId",   0, "gpsimd", "movement", "iota",          infer_device_number, evaluate_replica_id)
_other("partition_id", "partition-id", "PartitionId", 0, "gpsimd", "movement", "iota",       infer_device_number, evaluate_partition_id)
# fmt: on

_BY_OPCODE = {op.opcode: op for op in OPS.values() if op.opcode and op.direction is None}
_COMPARISONS = {(op.direction, op.total_order): op for op in OPS.values() if op.direction}
OPCODES = frozenset(op.opcode for op in OPS.values() if op.opcode) | {"custom-call"}
# Arrays of integers take the default float type first: NumPy's functions give them floats.
FUNCTIONS_OF_FLOATS = frozenset(
    op.name for op in OPS.values() if op.core is not None and CORE_KINDS[op.core] == "function"
) | {"sqrt", "reciprocal", "atan2", "hypot", "logaddexp", "logaddexp2"}


def by_opcode(opcode: str, attributes: Attributes) -> Op:
    """The row of an HLO opcode; a compare's direction and order choose among twelve, a custom call's
    target among `CUSTOM_CALLS`.
    """
    row = _BY_OPCODE.get(opcode)
    if opcode == "custom-call":
        row = OPS[custom_call_row(attributes.get("custom_call_target", ""))]
    elif opcode == "compare":
        total_order = attributes.get("comparison_type") == "TOTALORDER"
        row = _COMPARISONS.get((attributes.get("comparison_direction", ""), total_order))
    if row is None:
        raise UnsupportedOperator(
            f"[NCC_EVRF001] neuronsim does not execute the operator {opcode!r} yet"
            f"{nearest(opcode, OPCODES)}. `neuronsim list-operators` prints those that it does: replace it "
            "by some of them, or compute it outside the model"
        )
    return row
