"""Which attributes an instruction of each opcode has, its asynchronous halves among them.

>>> ATTRIBUTES["get-tuple-element"]
('tuple_index',)
"""

from __future__ import annotations

# Operations that have halves of their own; any other's are async-start, -update and -done, which call.
OWN_HALVES = frozenset({"all-reduce", "all-gather", "collective-permute", "copy"})

# The attributes that each opcode carries, beside its shape, its operands and the frontend attributes
# that any may have. `called` names computations in the file's order: a while's body and condition, a
# conditional's branches, select and scatter.
_COLLECTIVE = ("replica_groups", "channel_id", "use_global_device_ids")
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "parameter": ("number",),
    "constant": ("literal",),
    "get-tuple-element": ("tuple_index",),
    "call": ("called", "is_composite"),
    "fusion": ("called", "fusion_kind"),
    "map": ("dimensions", "called"),
    "while": ("called", "backend_config"),
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
    "fft": ("fft_type", "fft_length"),
    "cholesky": ("lower",),
    "triangular-solve": ("triangular_solve_options",),
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
    "collective-broadcast": ("replica_groups", "channel_id"),
    "async-start": ("called",),
}
ATTRIBUTES |= {f"{o}-start": ATTRIBUTES.get(o, ()) for o in OWN_HALVES}
ANY_HAS = frozenset({"frontend_attributes"})
# All that an instruction may have; a custom call that applies computations names them too.
ALLOWED = {opcode: ANY_HAS.union(names) for opcode, names in ATTRIBUTES.items()}
ALLOWED["custom-call"] |= {"called"}
