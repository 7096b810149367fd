"""The fields and enumerations of openxla/xla's `hlo.proto` and `xla_data.proto` that neuronsim reads.

The numbers are those of the descriptors in jaxlib 0.10.2; older ones that XLA has since retired are
marked.
"""

from __future__ import annotations

from collections.abc import Mapping

from neuronsim.errors import InvalidModel
from neuronsim.hlo.element_types import ELEMENT_TYPES
from neuronsim.hlo.wire import Field


def _ints(name: str) -> Field:
    return Field(name, "int", repeated=True)


def _message(name: str, table: Mapping[int, Field], *, repeated: bool = False) -> Field:
    return Field(name, "message", repeated, table)


def _lists_of_ints(*names: str) -> dict[int, Field]:
    """Lists of integers, numbered from 1."""
    return {n: _ints(name) for n, name in enumerate(names, start=1)}


def _int_fields(*names: str) -> dict[int, Field]:
    """Single integers, numbered from 1."""
    return {n: Field(name, "int") for n, name in enumerate(names, start=1)}


LAYOUT: dict[int, Field] = {1: _ints("minor_to_major")}
SHAPE: dict[int, Field] = {
    2: Field("element_type", "int"),
    3: _ints("dimensions"),
    5: _message("layout", LAYOUT),
    6: _ints("is_dynamic_dimension"),
}
SHAPE[4] = _message("tuple_shapes", SHAPE, repeated=True)
PROGRAM_SHAPE = {
    1: _message("parameters", SHAPE, repeated=True),
    2: _message("result", SHAPE),
    3: Field("parameter_names", "string", repeated=True),
}

_LITERAL_NUMBERS = {
    "preds": 2, "u8s": 3, "s32s": 4, "s64s": 5, "u32s": 6, "u64s": 7, "f32s": 8, "f64s": 9, "f16s": 11,
    "c64s": 12, "bf16s": 13, "s8s": 15, "u16s": 16, "s16s": 17, "c128s": 18, "f8e5m2s": 19,
    "f8e4m3fns": 20, "f8e4m3s": 28, "f8e3m4s": 29,
}  # fmt: skip
_VARINT_TYPES = ("pred", "s32", "s64", "u32", "u64")
LITERAL: dict[int, Field] = {1: _message("shape", SHAPE)}
for _t in ELEMENT_TYPES:
    LITERAL[_LITERAL_NUMBERS[_t.literal_field]] = (
        Field(_t.literal_field, "varint elements", element=_t.dtype.numpy.str)
        if _t.name in _VARINT_TYPES
        else Field(_t.literal_field, "fixed elements", element=_t.dtype.storage.newbyteorder("<").str)
    )
LITERAL[10] = _message("tuple_literals", LITERAL, repeated=True)

SLICE = _int_fields("start", "limit", "stride")
DOT = {
    1: _ints("lhs_contracting"),
    2: _ints("rhs_contracting"),
    3: _ints("lhs_batch"),
    4: _ints("rhs_batch"),
}
WINDOW_DIMENSION = _int_fields(
    *("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation", "reversal")
)
WINDOW = {1: _message("dimensions", WINDOW_DIMENSION, repeated=True)}
CONVOLUTION = {
    3: Field("kernel_input_feature", "int"),
    4: Field("kernel_output_feature", "int"),
    6: _ints("kernel_spatial"),
    7: Field("input_batch", "int"),
    8: Field("input_feature", "int"),
    9: Field("output_batch", "int"),
    10: Field("output_feature", "int"),
    11: _ints("input_spatial"),
    12: _ints("output_spatial"),
}
GATHER = {
    1: _ints("offset_dims"),
    2: _ints("collapsed_slice_dims"),
    3: _ints("start_index_map"),
    4: Field("index_vector_dim", "int"),
    5: _ints("operand_batching_dims"),
    6: _ints("start_indices_batching_dims"),
}
SCATTER = {
    1: _ints("update_window_dims"),
    2: _ints("inserted_window_dims"),
    3: _ints("scatter_dims_to_operand_dims"),
    4: Field("index_vector_dim", "int"),
    5: _ints("input_batching_dims"),
    6: _ints("scatter_indices_batching_dims"),
}
TRIANGULAR_SOLVE = _int_fields("left_side", "lower", "unit_diagonal", "transpose_a")
PADDING = {1: _message("dimensions", _int_fields("low", "high", "interior"), repeated=True)}
PRECISION = {1: _ints("operand_precision"), 2: Field("algorithm", "int")}
REPLICA_GROUP = {1: _ints("replica_ids")}
IOTA_REPLICA_GROUPS = {
    1: Field("num_replica_groups", "int"),
    2: Field("num_devices_per_group", "int"),
    3: _ints("iota_reshape_dims"),
    4: _ints("iota_transpose_perm"),
}
COLLECTIVE_DEVICES = {
    1: _message("replica_groups", REPLICA_GROUP, repeated=True),
    2: _message("iota", IOTA_REPLICA_GROUPS),  # retired
}
MESH_AXES_REPLICA_GROUPS = {
    1: _message(
        "mesh",
        {
            1: _message("axes", {1: Field("name", "string"), 2: Field("size", "int")}, repeated=True),
            2: _ints("device_ids"),
            3: _message("iota", _lists_of_ints("reshape_dims", "transpose_perm")),
        },
    ),
    2: _message(
        "axes",
        {
            1: Field("mesh_axis_index", "int"),
            2: _message("sub_axis_info", _int_fields("pre_size", "size")),
        },
        repeated=True,
    ),
}
METADATA = {
    1: Field("op_type", "string"),
    2: Field("op_name", "string"),
    3: Field("source_file", "string"),
    4: Field("source_line", "int"),
    15: Field("stack_frame_id", "int"),
}
STACK_FRAMES = {  # counted from 1
    1: Field("file_names", "string", repeated=True),
    3: _message("file_locations", {1: Field("file", "int"), 3: Field("line", "int")}, repeated=True),
    4: _message("stack_frames", {1: Field("location", "int")}, repeated=True),
}
FRONTEND_ATTRIBUTES = {
    1: _message("map", {1: Field("key", "bytes"), 2: Field("value", "bytes")}, repeated=True)
}
INSTRUCTION = {
    1: Field("name", "string"),
    2: Field("opcode", "string"),
    3: _message("shape", SHAPE),
    7: _message("metadata", METADATA),
    8: _message("literal", LITERAL),
    9: Field("parameter_number", "int"),
    11: Field("fusion_kind", "string"),
    13: Field("tuple_index", "int"),
    14: _ints("dimensions"),
    15: _message("window", WINDOW),
    16: _message("convolution_dimension_numbers", CONVOLUTION),
    17: _message("slice_dimensions", SLICE, repeated=True),
    18: Field("exponent_bits", "int"),
    19: Field("mantissa_bits", "int"),
    20: _ints("dynamic_slice_sizes"),
    21: _message("padding_config", PADDING),
    23: Field("distribution", "int"),
    24: Field("epsilon", "float"),
    25: Field("feature_index", "int"),
    26: Field("channel_id", "int"),
    28: Field("custom_call_target", "string"),
    30: _message("dot_dimension_numbers", DOT),
    31: Field("fft_type", "int"),
    32: _ints("fft_length"),
    33: _message("gather_dimension_numbers", GATHER),
    34: _ints("gather_slice_sizes"),
    35: Field("id", "int"),
    36: _ints("operand_ids"),
    37: _ints("control_predecessor_ids"),
    38: _ints("called_computation_ids"),
    43: Field("backend_config", "bytes"),
    48: _message("scatter_dimension_numbers", SCATTER),
    49: _message("replica_groups", REPLICA_GROUP, repeated=True),
    50: Field("feature_group_count", "int"),
    51: _message("precision_config", PRECISION),
    52: _message("source_target_pairs", _int_fields("source", "target"), repeated=True),
    58: Field("batch_group_count", "int"),
    59: _message("triangular_solve_options", TRIANGULAR_SOLVE),
    60: Field("is_stable", "int"),
    62: _message("cholesky_options", _int_fields("lower")),
    63: Field("comparison_direction", "string"),
    66: Field("delta", "int"),
    67: Field("indices_are_sorted", "int"),
    68: _message("frontend_attributes", FRONTEND_ATTRIBUTES),
    69: Field("unique_indices", "int"),
    70: Field("rng_algorithm", "int"),
    71: Field("use_global_device_ids", "int"),
    72: Field("comparison_type", "string"),
    81: Field("k", "int"),
    85: Field("largest", "int"),
    87: _message("collective_device_list", COLLECTIVE_DEVICES),
    89: Field("is_composite", "int"),
    92: _message("iota_collective_device_list", IOTA_REPLICA_GROUPS),
    93: _message("mesh_axes_replica_group_list", MESH_AXES_REPLICA_GROUPS),
}
COMPUTATION = {
    1: Field("name", "string"),
    2: _message("instructions", INSTRUCTION, repeated=True),
    4: _message("program_shape", PROGRAM_SHAPE),
    5: Field("id", "int"),
    6: Field("root_id", "int"),
}
ALIAS = {
    1: _ints("output_index"),
    2: Field("parameter_number", "int"),
    3: _ints("parameter_index"),
    4: Field("kind", "int"),
}
MODULE = {
    1: Field("name", "string"),
    2: Field("entry_computation_name", "string"),
    3: _message("computations", COMPUTATION, repeated=True),
    4: _message("host_program_shape", PROGRAM_SHAPE),
    5: Field("id", "int"),
    6: Field("entry_computation_id", "int"),
    8: _message("input_output_alias", {1: _message("entries", ALIAS, repeated=True)}),
    17: _message("stack_frame_index", STACK_FRAMES),
}
# For reading: messages are much larger than what they become, so computations and instructions are read
# one by one.
COMPUTATIONS, INSTRUCTIONS = 3, 2
MODULE_HEAD = {n: f for n, f in MODULE.items() if n != COMPUTATIONS}
COMPUTATION_HEAD = {n: COMPUTATION[n] for n in (1, 5, 6)}
INSTRUCTION_HEAD = {n: INSTRUCTION[n] for n in (1, 2, 35)}


def enumerated(number: int, names: Mapping[int, str], what: str) -> str:
    """The name of an enumeration's number; raises InvalidModel where it has none."""
    if number not in names:
        raise InvalidModel(f"{what} {number} is not one of {', '.join(filter(None, names.values()))}")
    return names[number]


# Enumerations: the name of each number.
DISTRIBUTIONS = {1: "RNG_UNIFORM", 2: "RNG_NORMAL"}
RNG_ALGORITHMS = {0: "RNG_DEFAULT", 1: "RNG_THREE_FRY", 2: "RNG_PHILOX"}
ALIAS_KINDS = {1: "MAY_ALIAS", 2: "MUST_ALIAS"}
DOT_ALGORITHMS = {
    0: "",
    1: "ALG_DOT_ANY_F8_ANY_F8_F32",
    2: "ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM",
    3: "ALG_DOT_F16_F16_F16",
    4: "ALG_DOT_F16_F16_F32",
    5: "ALG_DOT_BF16_BF16_BF16",
    6: "ALG_DOT_BF16_BF16_F32",
    7: "ALG_DOT_BF16_BF16_F32_X3",
    8: "ALG_DOT_BF16_BF16_F32_X6",
    9: "ALG_DOT_TF32_TF32_F32",
    10: "ALG_DOT_TF32_TF32_F32_X3",
    11: "ALG_DOT_F32_F32_F32",
    12: "ALG_DOT_F64_F64_F64",
    13: "ALG_DOT_BF16_BF16_F32_X9",
}
