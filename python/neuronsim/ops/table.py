"""The rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neuronsim.errors import UnsupportedOperator, nearest
from neuronsim.ops import (
    collectives,
    composites,
    custom_calls,
    decompositions,
    elementwise,
    indexing,
    movement,
    normalization,
    on_host,
    order,
    product_types,
    products,
    random,
    reductions,
    windows,
)
from neuronsim.ops.rows import OPS, Attributes, Engine, Infer, Op, evaluate_bound, infer_same


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
    columns = (opcode, xla_builder, arity, engine, "compute", cost, infer)
    _other(name, *columns, elementwise.evaluate_elementwise, core=core or name, **more)


def _function(name: str, opcode: str, xla_builder: str, **more: Any) -> None:
    """Of one float, on the engine of activations (E3)."""
    _elementwise(name, opcode, xla_builder, 1, "scalar", "activation", of_floats=True, **more)


def _other(name: str, *columns: Any, **more: Any) -> None:
    OPS[name] = Op(name, *columns, **more)


# A wrong column is easier to see when the table stays a table.
# fmt: off
_elementwise("add",         "add",         "Add",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=0.0, operator="+", on_complex=True)
_elementwise("subtract",    "subtract",    "Sub",   2, "vector", "tensor_tensor", operator="-", on_complex=True)
_elementwise("multiply",    "multiply",    "Mul",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=1.0, operator="*", on_complex=True)
_elementwise("divide",      "divide",      "Div",   2, "vector", "reciprocal",    operator="/", on_complex=True)
_elementwise("maximum",     "maximum",     "Max",   2, "vector", "tensor_tensor", on_bool="bitwise_or",  identity=-math.inf)
_elementwise("minimum",     "minimum",     "Min",   2, "vector", "tensor_tensor", on_bool="bitwise_and", identity=math.inf)
_elementwise("fmod",        "remainder",   "Rem",   2, "gpsimd", "tensor_tensor")
_elementwise("remainder",   "",            "",      2, "gpsimd", "tensor_tensor", operator="%")
_elementwise("floor_divide", "",           "",      2, "gpsimd", "tensor_tensor", operator="//", on_host=on_host.floor_divide)
_elementwise("power",       "power",       "Pow",   2, "gpsimd", "tensor_tensor", operator="**", on_complex=True)
_elementwise("clamp",       "clamp",       "Clamp", 3, "vector", "tensor_tensor", elementwise.infer_clamp, on_host=lambda low, x, high: np.minimum(np.maximum(x, low), high))
_elementwise("sign",        "sign",        "Sign",  1, "scalar", "activation", on_complex=True, on_host=on_host.but_of_specials(np.sign, lambda x: np.where(np.isnan(x), math.nan * (1 + 1j), np.sign(x))))
_elementwise("floor",       "floor",       "Floor", 1, "scalar", "activation")
_elementwise("ceil",        "ceil",        "Ceil",  1, "scalar", "activation")
_elementwise("trunc",       "",            "",      1, "scalar", "activation")
_elementwise("rint",        "round-nearest-even", "RoundNearestEven", 1, "scalar", "activation")
_elementwise("round_half_away", "round-nearest-afz", "Round",         1, "scalar", "activation", on_host=lambda x: np.copysign(np.floor(np.abs(x) + (np.abs(x) % 1 >= 0.5)), x))
_elementwise("reciprocal",  "",            "",      1, "vector", "reciprocal", of_floats=True, on_complex=True, on_host=on_host.reciprocal)
_elementwise("copysign",    "",            "",      2, "vector", "tensor_tensor")
_elementwise("shift_left",             "shift-left",             "ShiftLeft",            2, "vector", "tensor_tensor", operator="<<")
_elementwise("shift_right_arithmetic", "shift-right-arithmetic", "ShiftRightArithmetic", 2, "vector", "tensor_tensor")
_elementwise("shift_right_logical",    "shift-right-logical",    "ShiftRightLogical",    2, "vector", "tensor_tensor")
_elementwise("population_count",       "popcnt",                 "PopulationCount",      1, "gpsimd", "tensor_scalar")
_elementwise("count_leading_zeros",    "count-leading-zeros",    "Clz",                  1, "gpsimd", "tensor_scalar")
_function("sqrt",            "sqrt",                   "Sqrt", on_complex=True, on_host=on_host.reflected(np.sqrt))
_function("rsqrt",           "rsqrt",                  "Rsqrt", on_complex=True, on_host=on_host.reflected(lambda x: on_host.reciprocal(np.sqrt(x))), formula="1 / sqrt(x)")
_function("cbrt",            "cbrt",                   "Cbrt")
_function("exp",             "exponential",            "Exp", on_complex=True, on_host=on_host.reflected(np.exp))
_function("exp2",            "",                       "", on_complex=True)
_function("expm1",           "exponential-minus-one",  "Expm1", on_complex=True, on_host=on_host.reflected(on_host.expm1))
_function("log",             "log",                    "Log", on_complex=True, on_host=on_host.reflected(np.log))
_function("log2",            "",                       "", on_complex=True, on_host=on_host.reflected(np.log2))
_function("log10",           "",                       "", on_complex=True, on_host=on_host.reflected(np.log10))
_function("log1p",           "log-plus-one",           "Log1p", on_complex=True, on_host=on_host.reflected(on_host.but_of_specials(np.log1p, lambda x: np.log(on_host.one_plus(x)))))
_function("sin",             "sine",                   "Sin", on_complex=True, on_host=on_host.reflected(np.sin, "odd"))
_function("cos",             "cosine",                 "Cos", on_complex=True, on_host=on_host.reflected(np.cos, "even"))
_function("tan",             "tan",                    "Tan", on_complex=True, on_host=on_host.reflected(on_host.tan, "odd"), custom_calls=("mhlo.tan",))
_function("asin",            "asin",                   "Asin", on_complex=True, on_host=on_host.reflected(np.arcsin, "odd"), custom_calls=("mhlo.asin",))
_function("acos",            "acos",                   "Acos", on_complex=True, on_host=on_host.reflected(np.arccos), custom_calls=("mhlo.acos",))
_function("atan",            "",                       "", on_complex=True, on_host=on_host.reflected(np.arctan, "odd"))
_elementwise("atan2",       "atan2",       "Atan2", 2, "gpsimd", "tensor_tensor", of_floats=True, on_host=np.arctan2)
_elementwise("hypot",       "",            "",      2, "gpsimd", "tensor_tensor", of_floats=True)
_elementwise("logaddexp",   "",            "",      2, "gpsimd", "tensor_tensor", of_floats=True)
_elementwise("logaddexp2",  "",            "",      2, "gpsimd", "tensor_tensor", of_floats=True)
_function("sinh",            "sinh",                   "Sinh", on_complex=True, on_host=on_host.reflected(np.sinh, "odd"), custom_calls=("mhlo.sinh",))
_function("cosh",            "cosh",                   "Cosh", on_complex=True, on_host=on_host.reflected(np.cosh, "even"), custom_calls=("mhlo.cosh",))
_function("tanh",            "tanh",                   "Tanh", on_complex=True, on_host=on_host.reflected(on_host.tanh, "odd"))
_function("asinh",           "asinh",                  "Asinh", on_complex=True, on_host=on_host.reflected(np.arcsinh, "odd"), custom_calls=("mhlo.asinh",))
_function("acosh",           "acosh",                  "Acosh", on_complex=True, on_host=on_host.reflected(np.arccosh), custom_calls=("mhlo.acosh",))
_function("atanh",           "atanh",                  "Atanh", on_complex=True, on_host=on_host.reflected(np.arctanh, "odd"), custom_calls=("mhlo.atanh",))
_function("erf",             "erf",                    "Erf", on_host=on_host.erf, custom_calls=("AwsNeuronErf", "mhlo.erf"))
_function("erfc",            "",                       "", on_host=on_host.erfc)
_function("sigmoid",         "logistic",               "Logistic", on_complex=True, on_host=on_host.reflected(on_host.sigmoid), formula="1 / (1 + e^-x)")
_function("silu",            "",                       "", on_host=on_host.with_limits(lambda x: x * on_host.sigmoid(x), math.inf), formula="x sigmoid(x)", custom_calls=("AwsNeuronSilu",))
_function("gelu",            "",                       "", on_host=on_host.with_limits(lambda x: x * on_host.normal(x), math.inf), formula="x Phi(x), Phi being the normal distribution", custom_calls=("AwsNeuronGelu",))
_function("gelu_tanh",       "",                       "", on_host=on_host.with_limits(lambda x: x * on_host.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)), math.inf), formula="x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))", custom_calls=("AwsNeuronGeluApprxTanh",))
_function("gelu_sigmoid",    "",                       "", on_host=on_host.with_limits(lambda x: x * on_host.sigmoid(1.702 * x), math.inf), formula="x sigmoid(1.702 x)")
_function("softplus",        "",                       "", on_host=lambda x: np.logaddexp(x, 0), formula="ln(1 + e^x)")
_function("mish",            "",                       "", on_host=on_host.with_limits(lambda x: x * np.tanh(np.logaddexp(x, 0)), math.inf), formula="x tanh(softplus(x))")
_function("erf_dx",          "",                       "", on_host=lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), formula="the derivative of erf")
_function("silu_dx",         "",                       "", on_host=on_host.with_limits(on_host.silu_dx, 1), formula="the derivative of silu")
_function("gelu_dx",         "",                       "", on_host=on_host.with_limits(on_host.gelu_dx, 1), formula="the derivative of gelu")
_function("gelu_sigmoid_dx", "",                       "", on_host=on_host.with_limits(lambda x: on_host.silu_dx(1.702 * x), 1), formula="the derivative of gelu_sigmoid")
_elementwise("negative",    "negate",      "Neg",   1, "vector", "tensor_scalar", on_complex=True)
_elementwise("abs",         "abs",         "Abs",   1, "vector", "tensor_scalar", elementwise.infer_abs, on_complex=True)
_elementwise("bitwise_and",    "and", "And", 2, "vector", "tensor_tensor", operator="&")
_elementwise("bitwise_or",     "or",  "Or",  2, "vector", "tensor_tensor", operator="|")
_elementwise("bitwise_xor",    "xor", "Xor", 2, "vector", "tensor_tensor", operator="^")
_elementwise("bitwise_invert", "not", "Not", 1, "vector", "tensor_scalar", on_bool="logical_not")
_elementwise("equal",         "compare", "Eq", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="EQ", operator="==", on_complex=True)
_elementwise("not_equal",     "compare", "Ne", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="NE", operator="!=", on_complex=True)
_elementwise("less",          "compare", "Lt", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="LT", operator="<")
_elementwise("less_equal",    "compare", "Le", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="LE", operator="<=")
_elementwise("greater",       "compare", "Gt", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="GT", operator=">")
_elementwise("greater_equal", "compare", "Ge", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="GE", operator=">=")
_elementwise("equal_total_order",         "compare", "EqTotalOrder", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="EQ", total_order=True)
_elementwise("not_equal_total_order",     "compare", "NeTotalOrder", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="NE", total_order=True)
_elementwise("less_total_order",          "compare", "LtTotalOrder", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="LT", total_order=True)
_elementwise("less_equal_total_order",    "compare", "LeTotalOrder", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="LE", total_order=True)
_elementwise("greater_total_order",       "compare", "GtTotalOrder", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="GT", total_order=True)
_elementwise("greater_equal_total_order", "compare", "GeTotalOrder", 2, "vector", "tensor_tensor", elementwise.infer_comparison, direction="GE", total_order=True)
_elementwise("isfinite", "is-finite", "IsFinite", 1, "vector", "tensor_scalar", elementwise.infer_predicate)
_elementwise("isnan",    "",          "",         1, "vector", "tensor_scalar", elementwise.infer_predicate, on_complex=True)
_elementwise("isinf",    "",          "",         1, "vector", "tensor_scalar", elementwise.infer_predicate, on_complex=True)
_elementwise("signbit",  "",          "",         1, "vector", "tensor_scalar", elementwise.infer_predicate)
_elementwise("select",        "select",  "Select", 3, "vector", "copy_predicated", elementwise.infer_select, on_complex=True, on_host=np.where)

_other("convert",   "convert",   "ConvertElementType", 1, "vector", "compute",  "tensor_copy",   elementwise.infer_convert, elementwise.evaluate_convert)
_other("complex",   "complex",   "Complex",        2, "none",   "host",     "none",          elementwise.infer_complex,   elementwise.evaluate_complex)
_other("real",      "real",      "Real",           1, "none",   "host",     "none",          elementwise.infer_part,      elementwise.evaluate_part)
_other("imag",      "imag",      "Imag",           1, "none",   "host",     "none",          elementwise.infer_part,      elementwise.evaluate_part)
_other("reduce_precision", "reduce-precision", "ReducePrecision", 1, "vector", "compute", "tensor_copy", elementwise.infer_reduce_precision, elementwise.evaluate_elementwise)
_other("map",       "map",       "Map",           -1, "vector", "compute",  "tensor_tensor", elementwise.infer_map,       elementwise.evaluate_map)
_other("reduce",    "reduce",    "Reduce",        -1, "vector", "compute",  "tensor_reduce", reductions.infer_reduce,    reductions.evaluate_reduce, bind=reductions.bind_reduce)
_other("cumulative", "",         "",               2, "vector", "compute",  "tensor_reduce", reductions.infer_cumulative, reductions.evaluate_cumulative, bind=reductions.bind_cumulative)
_other("reduce_window", "reduce-window", "ReduceWindow", -1, "vector", "compute", "tensor_reduce", windows.infer_reduce_window, windows.evaluate_reduce_window, bind=windows.bind_reduce_window)
_other("select_and_scatter", "select-and-scatter", "SelectAndScatter", 3, "gpsimd", "compute", "tensor_tensor", windows.infer_select_and_scatter, windows.evaluate_select_and_scatter, bind=windows.bind_select_and_scatter, dense=True)
_other("argmax",    "",          "",               1, "vector", "movement", "tensor_reduce", order.infer_argument, order.evaluate_argument, bind=order.bind_argument)
_other("argmin",    "",          "",               1, "vector", "movement", "tensor_reduce", order.infer_argument, order.evaluate_argument, bind=order.bind_argument)
_other("argsort",   "",          "",               1, "gpsimd", "movement", "tensor_copy",   order.infer_argsort,  order.evaluate_argsort, bind=order.bind_argsort)
_other("top_k",     "",          "",               1, "gpsimd", "movement", "tensor_copy",   order.infer_top_k,    evaluate_bound, bind=order.bind_top_k)
_other("topk",      "topk",      "TopK",           1, "gpsimd", "movement", "tensor_copy",   order.infer_topk,     evaluate_bound, bind=order.bind_topk)
_other("sort",      "sort",      "Sort",          -1, "gpsimd", "movement", "tensor_copy",   order.infer_sort,     order.evaluate_sort, bind=order.bind_sort)
_other("nextafter", "",          "",               2, "gpsimd", "compute",  "tensor_tensor", order.infer_nextafter, order.evaluate_nextafter)
_other("dot",       "dot",       "DotGeneral",     2, "tensor", "matmult",  "nc_matmul",     product_types.infer_dot,       products.evaluate_product)
_other("convolution", "convolution", "ConvGeneralDilated", 2, "tensor", "matmult", "nc_matmul", product_types.infer_convolution, products.evaluate_product)
_other("broadcast", "broadcast", "BroadcastInDim", 1, "none",   "movement", "none",          movement.infer_broadcast, movement.evaluate_broadcast)
_other("reshape",   "reshape",   "Reshape",        1, "none",   "movement", "none",          movement.infer_reshape,   movement.evaluate_reshape)
_other("copy",      "copy",      "Copy",           1, "dma",    "movement", "dma",           infer_same,      movement.evaluate_copy)
_other("transpose", "transpose", "Transpose",      1, "dma",    "movement", "dma",           movement.infer_transpose, movement.evaluate_transpose)
_other("reverse",   "reverse",   "Rev",            1, "dma",    "movement", "dma",           movement.infer_reverse,   movement.evaluate_reverse)
_other("slice",     "slice",     "Slice",          1, "none",   "movement", "none",          movement.infer_slice,     movement.evaluate_slice)
_other("concatenate", "concatenate", "Concatenate", -1, "dma",  "movement", "dma",           movement.infer_concatenate, movement.evaluate_concatenate)
_other("iota",      "iota",      "Iota",           0, "gpsimd", "compute",  "iota",          movement.infer_iota,      movement.evaluate_iota)
_other("pad",       "pad",       "Pad",            2, "dma",    "movement", "dma",           indexing.infer_pad,       indexing.evaluate_pad)
_other("dynamic_slice", "dynamic-slice", "DynamicSlice", -1, "dma", "movement", "dma", indexing.infer_dynamic_slice, indexing.evaluate_dynamic_slice)
_other("dynamic_update_slice", "dynamic-update-slice", "DynamicUpdateSlice", -1, "dma", "movement", "dma", indexing.infer_dynamic_update_slice, indexing.evaluate_dynamic_update_slice)
_other("gather",    "gather",    "Gather",         2, "dma",    "movement", "dma",           indexing.infer_gather,    evaluate_bound, bind=indexing.bind_gather)
_other("scatter",   "scatter",   "Scatter",       -1, "gpsimd", "compute",  "tensor_tensor", indexing.infer_scatter,   indexing.evaluate_scatter, bind=indexing.bind_scatter, takes_over=True, dense=True)
# Of the class `host`: their operand's own bits and shape are what they are about, so no cast may touch it.
_other("bitcast_convert", "bitcast-convert", "BitcastConvertType", 1, "none", "host", "none", movement.infer_bitcast_convert, movement.evaluate_bitcast_convert)
_other("bitcast",   "bitcast",   "Bitcast",        1, "none",   "host",     "none",          movement.infer_bitcast,   movement.evaluate_bitcast_convert)
_other("get_dimension_size", "get-dimension-size", "GetDimensionSize", 1, "none", "host", "none", movement.infer_get_dimension_size, movement.evaluate_get_dimension_size)
_other("set_dimension_size", "set-dimension-size", "SetDimensionSize", 2, "none", "movement", "none", movement.infer_set_dimension_size, movement.evaluate_set_dimension_size)
_other("fft",       "fft",       "Fft",            1, "none",   "host",     "none",          decompositions.infer_fft,  decompositions.evaluate_fft, host_only=True)
_other("cholesky",  "cholesky",  "Cholesky",       1, "none",   "host",     "none",          decompositions.infer_cholesky, decompositions.evaluate_cholesky, host_only=True)
_other("triangular_solve", "triangular-solve", "TriangularSolve", 2, "none", "host", "none",  decompositions.infer_triangular_solve, decompositions.evaluate_triangular_solve, host_only=True)
_other("lapack",    "",          "",              -1, "none",   "host",     "none",          decompositions.infer_lapack, decompositions.evaluate_lapack, host_only=True)
_other("softmax",     "",        "",               1, "scalar", "compute",  "activation",    composites.infer_by_rows,   composites.evaluate_composite, bind=composites.bind_composite)
_other("log_softmax", "",        "",               1, "scalar", "compute",  "activation",    composites.infer_by_rows,   composites.evaluate_composite, bind=composites.bind_composite)
_other("logsumexp",   "",        "",               1, "scalar", "compute",  "activation",    composites.infer_statistic, composites.evaluate_composite, bind=composites.bind_composite)
_other("layer_norm",  "",        "",              -1, "vector", "compute",  "tensor_tensor", composites.infer_by_rows,   composites.evaluate_composite, bind=composites.bind_composite)
_other("rms_norm",    "",        "",              -1, "vector", "compute",  "tensor_tensor", composites.infer_by_rows,   composites.evaluate_composite, bind=composites.bind_composite)
_other("batch_norm",  "",        "",              -1, "vector", "compute",  "tensor_tensor", composites.infer_batch_norm, composites.evaluate_formula)
_other("batch_norm_training",  "batch-norm-training",  "BatchNormTraining",  3, "vector", "compute", "tensor_tensor", normalization.infer_batch_norm_training,  normalization.evaluate_batch_norm)
_other("batch_norm_inference", "batch-norm-inference", "BatchNormInference", 5, "vector", "compute", "tensor_tensor", normalization.infer_batch_norm_inference, normalization.evaluate_batch_norm_inference)
_other("batch_norm_grad",      "batch-norm-grad",      "BatchNormGrad",      5, "vector", "compute", "tensor_tensor", normalization.infer_batch_norm_grad,      normalization.evaluate_batch_norm)
_other("mean",        "",        "",               1, "vector", "compute",  "tensor_tensor", composites.infer_statistic, composites.evaluate_composite, bind=composites.bind_composite)
_other("var",         "",        "",               1, "vector", "compute",  "tensor_tensor", composites.infer_statistic, composites.evaluate_composite, bind=composites.bind_composite)
_other("std",         "",        "",               1, "vector", "compute",  "tensor_tensor", composites.infer_statistic, composites.evaluate_composite, bind=composites.bind_composite)
_other("vector_norm", "",        "",               1, "vector", "compute",  "tensor_tensor", composites.infer_statistic, composites.evaluate_composite, bind=composites.bind_composite)
_other("rng_bit_generator", "rng-bit-generator", "RngBitGenerator", 1, "gpsimd", "movement", "iota", random.infer_rng_bit_generator, evaluate_bound, bind=random.bind_rng_bit_generator, dense=True)
_other("rng",         "rng",     "RngUniform",     2, "gpsimd", "compute",  "iota",          random.infer_rng,       random.evaluate_rng)
_other("rng_state",   "rng-get-and-update-state", "RngGetAndUpdateState", 0, "gpsimd", "movement", "iota", random.infer_rng_state, random.evaluate_rng_state)
_other("gelu_backward",    "",   "",               2, "scalar", "compute",  "activation",    custom_calls.infer_backward,  custom_calls.evaluate_backward, custom_calls=("AwsNeuronGeluBackward",))
_other("silu_backward",    "",   "",               2, "scalar", "compute",  "activation",    custom_calls.infer_backward,  custom_calls.evaluate_backward, custom_calls=("AwsNeuronSiluBackward",))
_other("softmax_backward", "",   "",               2, "vector", "compute",  "tensor_tensor", custom_calls.infer_backward,  custom_calls.evaluate_backward)
_other("neuron_rms_norm",  "",   "",               3, "vector", "compute",  "tensor_tensor", custom_calls.infer_neuron_rms_norm, custom_calls.evaluate_neuron_rms_norm)
_other("neuron_top_k",     "",   "",               1, "gpsimd", "movement", "tensor_copy",   custom_calls.infer_neuron_top_k, custom_calls.evaluate_neuron_top_k)
_other("resize_nearest",   "",   "",               1, "gpsimd", "movement", "tensor_copy",   custom_calls.infer_resize,    custom_calls.evaluate_resize_nearest)
_other("resize_bilinear",  "",   "",               1, "vector", "compute",  "tensor_tensor", custom_calls.infer_resize,    custom_calls.evaluate_resize_bilinear)
_other("pass_through",     "",   "",              -1, "none",   "movement", "none",          custom_calls.infer_pass_through, custom_calls.evaluate_pass_through)
_other("all_reduce",  "all-reduce", "AllReduce",  -1, "gpsimd", "compute",  "tensor_tensor", collectives.infer_all_reduce, collectives.evaluate_all_reduce)
_other("reduce_scatter", "reduce-scatter", "ReduceScatter", -1, "gpsimd", "compute", "tensor_tensor", collectives.infer_reduce_scatter, collectives.evaluate_reduce_scatter)
_other("all_gather",  "all-gather", "AllGather",  -1, "dma",    "movement", "dma",           collectives.infer_all_gather, collectives.evaluate_all_gather)
_other("all_to_all",  "all-to-all", "AllToAll",   -1, "dma",    "movement", "dma",           collectives.infer_all_to_all, collectives.evaluate_all_to_all)
_other("collective_permute", "collective-permute", "CollectivePermute", -1, "dma", "movement", "dma", collectives.infer_collective_permute, collectives.evaluate_collective_permute)
_other("collective_broadcast", "collective-broadcast", "CollectiveBroadcast", -1, "dma", "movement", "dma", collectives.infer_collective_broadcast, collectives.evaluate_collective_broadcast)
_other("replica_id",  "replica-id", "ReplicaId",   0, "gpsimd", "movement", "iota",          collectives.infer_device_number, collectives.evaluate_replica_id)
_other("partition_id", "partition-id", "PartitionId", 0, "gpsimd", "movement", "iota",       collectives.infer_device_number, collectives.evaluate_partition_id)
# fmt: on

_BY_OPCODE = {op.opcode: op for op in OPS.values() if op.opcode and op.direction is None}
_COMPARISONS = {(op.direction, op.total_order): op for op in OPS.values() if op.direction}
OPCODES = frozenset(op.opcode for op in OPS.values() if op.opcode) | {"custom-call"}
# Arrays of integers take the default float type first: NumPy's functions give them floats.
FUNCTIONS_OF_FLOATS = frozenset(op.name for op in OPS.values() if op.of_floats)
custom_calls.CUSTOM_CALLS.update(
    {target: custom_calls.CustomCall(op.name) for op in OPS.values() for target in op.custom_calls}
)


def by_opcode(opcode: str, attributes: Attributes) -> Op:
    """The row of an HLO opcode; a compare's direction and order choose among twelve, a custom call's
    target among `CUSTOM_CALLS`.
    """
    row = _BY_OPCODE.get(opcode)
    if opcode == "custom-call":
        row = OPS[custom_calls.custom_call_row(attributes.get("custom_call_target", ""))]
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
