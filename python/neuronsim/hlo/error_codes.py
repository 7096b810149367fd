"""AWS's error codes that can be told from a module, each as a `Constraint` with AWS's words.

The readers raise NCC_EMOD025, NCC_EVRF005 and NCC_ESPP047, the verifier NCC_EVRF064; others need the
compiler. AWS dates no code, so they hold under every release unless its notes say otherwise. Integers
that neuronx-cc computes in a narrower type are warnings: `--implicit-integer-downcast` permits them by
default. Sources: `reference/neuron.md` 7.2 in the project's research notes; the pages
compiler/error-codes of aws-neuron-sdk.
"""

from __future__ import annotations

from typing import Any

from neuronsim import dtypes
from neuronsim.targets import Constraint


def _code(code: str, quotation: str, advice: str, **fields: Any) -> Constraint:
    source = f"error code {code}"
    return Constraint(code, quotation, source, advice, **{"severity": "error", "code": code, **fields})


_FLOAT_ADVICE = "cast to a floating-point type, or keep all values and sums within 2^24"
ERROR_CODES = {
    c.code: c
    for c in (
        _code(
            "NCC_EVRF004",
            "Complex data types are not supported on the Neuron device.",
            "compute on real and imaginary parts, or on the host",
        ),
        _code(
            "NCC_EVRF006",
            "The compiler encountered a RNGBitGenerator operation using a random number generation "
            "algorithm other than RNG_DEFAULT.",
            "leave the algorithm to the framework (RNG_DEFAULT)",
        ),
        _code(
            "NCC_EVRF010",
            "The compiler encountered simultaneous use of input and kernel dilation, which is not "
            "supported.",
            "dilate the input or the kernel, not both: pad the other one with zeros beforehand",
        ),
        _code(
            "NCC_EVRF011",
            "The compiler encountered strided convolution combined with dilated input, which is not "
            "supported.",
            "pad the input with interior zeros first, or take the strided slice afterwards",
        ),
        _code(
            "NCC_EVRF013",
            "TopK does not support int32 or int64 input tensors.",
            "convert to float32 first, if the values are within 2^24",
        ),
        _code(
            "NCC_EVRF015",
            "The compiler encountered a custom call instruction with a target name that is not "
            "recognized.",
            "use a target that AWS lists on that page, or plain operators",
        ),
        _code(
            "NCC_EVRF016",
            "The scatter-reduce operation cannot perform reduction logic if the data being scattered "
            "or the destination tensor is using an integer or boolean data type.",
            "cast operand and updates to a floating-point type",
        ),
        _code(
            "NCC_EVRF017",
            "Reduce-window operation with base dilation greater than 1 is not supported.",
            "pad the operand with interior values of the init first",
        ),
        _code(
            "NCC_EVRF018",
            "Reduce-window operation with window dilation greater than 1 is not supported.",
            "combine strided slices instead",
        ),
        _code(
            "NCC_EVRF019",
            "The compiler encountered a reduce-window operation with more or less than 2 operands.",
            "split it into one reduce-window for each array",
        ),
        _code(
            "NCC_EVRF022",
            "Shift-right-arithmetic operation on non 32-bit inputs is not supported.",
            "convert the first operand to int32 and the result back",
        ),
        _code(
            "NCC_EVRF024",
            "The output tensor size limit of 4GB was exceeded.",
            "make the batch smaller or split the tensor",
        ),
        _code(
            "NCC_EVRF031",
            "The compiler encountered a scatter out-of-bounds error. The indices created via iota "
            "instruction contain values that are beyond the size of the operand dimension.",
            "make the iota as long as the operand's dimension",
        ),
        _code(
            "NCC_EVRF056",
            "Operation gather encountered out of bound indices.",
            "make the iota at most as long as the operand's dimension, such as the table of positions",
        ),
        _code(
            "NCC_EVRF035",
            "Opcode (dot) does not support 32-bit or 64-bit integer operands on this target.",
            _FLOAT_ADVICE,
            severity="warning",
        ),
        _code(
            "NCC_EVRF051",
            "Data type F8E4M3FN is not supported on TRN1/TRN2.",
            "use float8_e4m3, whose largest value is 240, with scales to match",
        ),
        _code(
            "NCC_EVRF052",
            "Data type F8E4M3 is not supported on hardware newer than Trn3.",
            "use float8_e4m3fn",
        ),
        _code(
            "NCC_EVRF060",
            "Scatter does not support N-bit integer operands on this target; they are converted to "
            "f32, which loses precision for values larger than 2^24.",
            _FLOAT_ADVICE,
            severity="warning",
            since="2.32",
        ),
        _code(
            "NCC_EVRF061",
            "AllReduce performs its reduction compute in floating point (f32) and does not support "
            "32-bit or 64-bit integer operands on this target",
            _FLOAT_ADVICE,
            severity="warning",
        ),
        _code(
            "NCC_EVRF062",
            "Opcode (power) does not support 64-bit integer operands on this target; they are downcast "
            "to 32-bit integer, which loses precision for values larger than 2^31.",
            "cast to int32, or to a floating-point type",
            severity="warning",
        ),
        _code(
            "NCC_EVRF063",
            "ReduceScatter performs its reduction compute in floating point (f32) and does not support "
            "32-bit or 64-bit integer operands on this target",
            _FLOAT_ADVICE,
            severity="warning",
        ),
        _code(
            "NCC_ESFH002",
            "The compiler encountered a unsigned 64-bit integer constant with a value that cannot be "
            "safely converted to 32-bit representation.",
            "use uint32 constants",
        ),
        _code(
            "NCC_ESPP004",
            "The compiler encountered a data type that is not supported for code generation.",
            "convert the model to float32",
        ),
    )
}

# The element types that a target may lack, and what AWS says of them.
TYPE_CODES = {
    dtypes.complex64: "NCC_EVRF004",
    dtypes.complex128: "NCC_EVRF004",
    dtypes.float8_e4m3fn: "NCC_EVRF051",
    dtypes.float8_e4m3: "NCC_EVRF052",
    dtypes.float64: "NCC_ESPP004",
}
COMPLEX64_SINCE = "2.32"  # "30 complex64 ops", its release notes
INTEGER_SCATTER_SINCE = "2.32"  # `--implicit-integer-downcast` permits what NCC_EVRF016 refused

CUSTOM_CALL_TARGETS = frozenset(
    {
        *(
            f"AwsNeuron{name}"
            for name in (
                *("Erf", "Gelu", "GeluApprxTanh", "GeluBackward", "Silu", "SiluBackward", "RmsNorm"),
                *("Softmax", "SoftmaxBackward", "CollectiveMatmul", "IntMatmult", "ArgMax", "ArgMin"),
                *("TopK", "DropoutMaskV1", "CustomNativeKernel", "CustomOp", "DevicePrint"),
                *("LNCShardingConstraint", "TransferWithStaticRing"),
                *("ModuleMarkerStart-Forward", "ModuleMarkerStart-Backward"),
                *("ModuleMarkerEnd-Forward", "ModuleMarkerEnd-Backward"),
            )
        ),
        *("ResizeNearest", "ResizeBilinear", "ResizeNearestGrad"),
        *("NeuronBoundaryMarker-Start", "NeuronBoundaryMarker-End"),
    }
)
