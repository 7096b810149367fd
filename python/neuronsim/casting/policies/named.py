"""The named policies: those of Neuron's settings, and those of the field as facts from their origins.

Their lists name framework operations; here they name what these become in HLO. What HLO has no
operation for (losses, linear algebra, lists of tensors) is left out. An activation or norm that XLA
spells out in several instructions is named by its composite, which `hlo.recognition` finds again.
"""

from __future__ import annotations

from collections.abc import Iterator

from neuronsim import dtypes
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.casting.policies.policy import Category, Policy, Rule
from neuronsim.dtypes import DType

PRODUCTS = frozenset({"convolution", "dot"})
# The three batch norms of XLA, and the one that a graph spells out.
BATCH_NORMS = frozenset(
    {"batch-norm-training", "batch-norm-inference", "batch-norm-grad", "batch_norm"}
)
# FusedBatchNormV2's and V3's type U, which has float32 alone: scale, offset and statistics
# (operands), mean and variance or the gradients of scale and offset (results). torch's batch norm keeps
# the same in float32 beside a narrow input.
STATISTICS = {
    "batch-norm-training": ((1, 2), (1, 2)),
    "batch-norm-inference": ((1, 2, 3, 4), ()),
    "batch-norm-grad": ((1, 2, 3), (1, 2)),
}
# What moves values and comes in every framework under some name: Reshape, squeeze, expand_dims,
# Split, strided_slice, Tile, Concat, Stack, Pad, Identity, ...
MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "reverse", "slice", "dynamic-slice", "concatenate", "pad"}
    | {"copy", "gather"}
)
Lists = dict[Category, frozenset[str]]


# ---- TVM: python/tvm/relay/transform/mixed_precision.py @0a42938, to_mixed_precision.cc @08b391a -----

_TVM: Lists = {
    "always": PRODUCTS,  # nn.conv*, nn.dense, nn.batch_matmul
    "follow": MOVES
    | BATCH_NORMS
    | {"scatter", "select", "compare"}  # scatter*, where, less, greater, ...
    | {"add", "subtract", "multiply", "divide", "sqrt"}
    | {"maximum", "minimum", "reduce-maximum", "reduce-minimum", "argmax", "argmin", "clamp"}
    | {"logistic", "tanh"}
    | {"reduce-window-maximum", "reduce-window-add"}  # nn.max_pool*, nn.avg_pool*
    | {"resize_nearest", "resize_bilinear"}  # image.resize2d
    # nn.log_softmax is registered nowhere: it follows, where its exponential and sum would not.
    | {"log_softmax"},
    "never": frozenset(
        {"exponential", "power", "erf", "softmax", "layer_norm", "vector_norm"}
        | {"iota"}  # arange
        | {"reduce-add", "mean", "var"}  # sum, mean, variance, global and adaptive average pools
        # A cast or random numbers keep the type that they state, a function (a loop's body) its own.
        | {"convert", "rng", "while"}
    ),
}


def _tvm(name: str, low: DType, accumulate: DType) -> Policy:
    """ToMixedPrecision with missing_op_mode 1 (its default), keep_orig_output_dtype false (its
    default), and as accumulation type what it ships, the low one, or float32, which the pass has for
    users that register it.
    """
    return Policy(
        name,
        low,
        _TVM,
        default="follow",
        propagate="all_inputs_low",
        accumulate=accumulate,
        sources_follow=True,
        keep_output_type=False,
        unlisted="warn",
    )


def _tvm_rfc(name: str, low: DType) -> Policy:
    """The first stage of the RFC "Relay Automatic FP16 Downcasting": inputs and all parameters go down,
    everything runs low, sums included, and the output goes up again.
    """
    everything = frozenset({"matmult", "compute", "movement", "constant", "while"})
    return Policy(name, low, {"always": everything}, accumulate=low)


# ---- TensorFlow: auto_mixed_precision_lists.h, AutoMixedPrecisionListsFp16 (CUDA 9.1, cuDNN 8 and
# later) and AutoMixedPrecisionListsMkl -------------------------------------------------------------

_TENSORFLOW_INFER = (
    BATCH_NORMS
    | {"add", "subtract", "multiply", "divide", "floor_divide"}
    | {"erf", "erfc", "log", "log-plus-one", "logistic", "tanh", "sqrt", "reciprocal"}
    | {"softmax", "log_softmax", "softplus"}
    | {"reduce-multiply", "reduce-window-add"}  # Prod, AvgPool
)
_TENSORFLOW_DENY = frozenset({"exponential", "exponential-minus-one", "power"})
_TENSORFLOW_CLEAR = (
    MOVES
    | {"abs", "negate", "sign", "ceil", "floor", "round-nearest-even", "clamp"}
    | {"maximum", "minimum", "reduce-maximum", "reduce-minimum", "argmax", "argmin"}
    | {"compare", "select", "is-finite", "topk", "neuron_top_k", "resize_nearest"}
    | {"reduce-window-maximum", "select-and-scatter"}  # MaxPool, MaxPoolGrad
    | {"dynamic-update-slice"}  # DynamicStitch, TensorListSetItem
    | {"while"}  # Enter, Merge, Switch, NextIteration, Exit
)
_TENSORFLOW: dict[DType, Lists] = {
    dtypes.float16: {
        "always": PRODUCTS,
        "follow": _TENSORFLOW_INFER,
        "never": _TENSORFLOW_DENY | {"reduce-add", "mean"},
        "clear": _TENSORFLOW_CLEAR,
    },
    # Mean, Sum and Rsqrt are inferred: bfloat16 has float32's range.
    dtypes.bfloat16: {
        "always": PRODUCTS,
        "follow": _TENSORFLOW_INFER | {"reduce-add", "mean", "rsqrt"},
        "never": _TENSORFLOW_DENY,
        "clear": _TENSORFLOW_CLEAR | {"scatter", "resize_bilinear"},
    },
}


def _tensorflow(name: str, low: DType) -> Policy:
    return Policy(
        name, low, _TENSORFLOW[low], propagate="allow_paths", float32_slots=STATISTICS
    )  # fetched values keep their type


# ---- torch: docs/source/amp.md @4e0ff98, the op reference of each device -------------------------

# What the reference does not list runs in the type of its inputs; a cast or a loop states its own.
_TORCH_STATED = frozenset({"convert", "while"})
_TORCH: dict[str, Lists] = {
    "torch-cpu": {
        "always": PRODUCTS,
        "follow": frozenset({"concatenate"}),  # promote: cat, stack
        "never": _TORCH_STATED | {"reduce-multiply"},  # prod; 3d pools, losses, fft, linalg
    },
    "torch-cuda": {
        "always": PRODUCTS,
        # Listed nowhere, and one operation each, whatever exponentials and sums they are in HLO.
        "follow": BATCH_NORMS
        | {"gelu", "gelu_tanh", "silu", "mean", "var", "std", "logsumexp"}
        | {"atan2", "scatter"},  # promote: atan2, scatter_add, index_put
        "never": _TORCH_STATED
        | {"acos", "asin", "cosh", "sinh", "tan", "power", "rsqrt", "reciprocal"}
        | {"exponential", "exponential-minus-one", "log", "log-plus-one", "log2", "log10"}
        | {"softmax", "log_softmax", "softplus", "layer_norm", "vector_norm"}
        | {"reduce-add", "reduce-multiply"},  # sum, prod
    },
}


def _torch(name: str, device: str, low: DType) -> Policy:
    return Policy(
        name,
        low,
        _TORCH[device],
        default="follow",
        propagate="all_inputs_low",
        keep_output_type=False,
        float32_slots=STATISTICS,
    )


# ---- Neural Compressor: adaptor/tensorflow.yaml @55eb77d, the bf16 list of TensorFlow 2.11 and later,
# and bf16_convert.py ---------------------------------------------------------------------------------

_NEURAL_COMPRESSOR: Lists = {
    "always": PRODUCTS
    | (_TENSORFLOW_INFER - {"erfc"})
    | {"mean", "reduce-add", "rsqrt", "layer_norm"}  # _MklLayerNorm
    | _TENSORFLOW_CLEAR
    | {"resize_bilinear"},
}


def _neural_compressor(name: str, low: DType) -> Policy:
    return Policy(
        name, low, _NEURAL_COMPRESSOR, propagate="depth_first", float32_slots=STATISTICS
    )  # what is not listed gets float32 back, results too


def _neural_compressor_modules(name: str, low: DType) -> Policy:
    """Its conversion of PyTorch, adaptor/pytorch_cpu.yaml @209d93d, the bf16 list of 1.11 (Linear, mm
    and its kin, _convolution, LSTM, GRU, Tanh): BF16Wrapper casts the inputs of each and gives float32,
    and nothing spreads.
    """
    return Policy(name, low, {"always": PRODUCTS | {"tanh"}})


# ---- ModelOpt's AutoCast: docs/source/guides/8_autocast.rst @0991404, nodeclassifier.py @69cb674 -----


def _modelopt(name: str, low: DType) -> Policy:
    """Everything low but what a rule excludes: values of a reference run beyond 512 (data_max), where
    a float16 is 0.5 from the next, and constants beyond 65504 (init_max). Further rules include
    again, which wins, or exclude by name, operation or depth (max_depth_of_reduction, off unless asked
    for).
    """
    return Policy(
        name,
        low,
        {"never": frozenset({"while"})},  # Loop, If and Scan have no narrow form
        default="always",
        keep_output_type=False,  # keep_io_types=False
        include_wins=True,
        rules=(
            Rule("data_max: a value of the reference run is out of range", "never", above=512.0),
            Rule("init_max: a constant is out of range", "never", constant_above=65504.0),
        ),
    )


# ---- all of them -------------------------------------------------------------------------------------


def _policies() -> Iterator[Policy]:
    yield neuron_policy("none", "bf16")
    for cast_type in CAST_TYPES:
        yield neuron_policy("matmult", cast_type)
        yield neuron_policy("all", cast_type)
    for low in (dtypes.float16, dtypes.bfloat16):
        yield _tvm(f"tvm/{low.name}", low, low)
        yield _tvm(f"tvm-float32-sums/{low.name}", low, dtypes.float32)
        yield _tvm_rfc(f"tvm-rfc/{low.name}", low)
        yield _tensorflow(f"tensorflow/{low.name}", low)
        for device in _TORCH:
            yield _torch(f"{device}/{low.name}", device, low)
        yield _modelopt(f"modelopt/{low.name}", low)
    yield _neural_compressor("neural-compressor/bfloat16", dtypes.bfloat16)
    yield _neural_compressor_modules("neural-compressor-modules/bfloat16", dtypes.bfloat16)


POLICIES = {policy.name: policy for policy in _policies()}
