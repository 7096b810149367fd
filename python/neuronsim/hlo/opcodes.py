"""What an instruction's attributes mean to the op table, and the opcodes that have no row in it."""

from __future__ import annotations

from typing import Any

from neuronsim import ops
from neuronsim.errors import UnsupportedOperator
from neuronsim.hlo.module import Instruction, Module, Shape, simple_reducer

# Opcodes that arrange values and compute nothing.
STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "call"})

# The attributes that each opcode carries, beside its shape and operands. `called` names computations in
# the file's order: a while's body and condition, a conditional's branches, select and scatter.
_COLLECTIVE = ("replica_groups", "channel_id", "use_global_device_ids")
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "parameter": ("number",),
    "constant": ("literal",),
    "get-tuple-element": ("tuple_index",),
    "call": ("called",),
    "fusion": ("called", "fusion_kind"),
    "map": ("dimensions", "called"),
    "while": ("called",),
    "conditional": ("called",),
    "custom-call": ("custom_call_target", "backend_config"),
    "broadcast": ("dimensions",),
    "transpose": ("dimensions",),
    "reverse": ("dimensions",),
    "concatenate": ("dimensions",),
    "iota": ("dimensions",),
    "get-dimension-size": ("dimensions",),
    "set-dimension-size": ("dimensions",),
    "pad": ("padding",),
    "dynamic-slice": ("dynamic_slice_sizes",),
    "gather": ("gather_dimensions", "slice_sizes", "indices_are_sorted"),
    "scatter": ("scatter_dimensions", "indices_are_sorted", "unique_indices", "called"),
    "reduce": ("dimensions", "called"),
    "reduce-window": ("window", "called"),
    "select-and-scatter": ("window", "called"),
    "sort": ("dimensions", "is_stable", "called"),
    "topk": ("k", "largest"),
    "dot": ("dot_dimensions", "algorithm"),
    "convolution": ("window", "dimension_numbers", "feature_group_count", "batch_group_count"),
    "slice": ("slice",),
    "compare": ("comparison_direction", "comparison_type"),
    "reduce-precision": ("exponent_bits", "mantissa_bits"),
    "batch-norm-training": ("epsilon", "feature_index"),
    "batch-norm-inference": ("epsilon", "feature_index"),
    "batch-norm-grad": ("epsilon", "feature_index"),
    "rng": ("distribution",),
    "rng-bit-generator": ("rng_algorithm",),
    "rng-get-and-update-state": ("delta",),
    "all-reduce": ("called", *_COLLECTIVE),
    "reduce-scatter": ("dimensions", "called", *_COLLECTIVE),
    "all-gather": ("dimensions", *_COLLECTIVE),
    "all-to-all": ("dimensions", "replica_groups", "channel_id"),
    "collective-permute": ("source_target_pairs", "channel_id"),
}


def row(instruction: Instruction) -> ops.Op:
    """The op table's row of an instruction; raises UnsupportedOperator where there is none."""
    return ops.by_opcode(instruction.opcode, instruction.attributes)


def row_attributes(module: Module, instruction: Instruction) -> dict[str, Any]:
    """An instruction's attributes as the row takes them: with what HLO leaves to the result's shape
    (`dims`, `dtype`) and the simple reducer that a reduce calls.
    """
    attributes = {k: v for k, v in instruction.attributes.items() if k != "called"}
    if isinstance(instruction.shape, Shape):
        attributes["dims"] = instruction.shape.dims
        attributes["dtype"] = instruction.shape.dtype
    if instruction.opcode == "reduce":
        if len(instruction.operands) > 2:
            raise UnsupportedOperator("a reduce of several arrays at once is not executed yet")
        attributes["reducer"] = simple_reducer(module.by_name[instruction.called[0]])
        if attributes["reducer"] is None:
            raise UnsupportedOperator(
                f"a reduce whose computation {instruction.called[0]!r} is not one "
                "add, multiply, maximum, minimum, and, or, xor is not executed yet"
            )
    return attributes
