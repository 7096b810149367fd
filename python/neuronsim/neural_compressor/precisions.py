"""Precisions as policies: which low type a target has, and what op_wise switches off.

>>> rules = {"dot.1": {"activation": {"dtype": ["fp32"]}, "weight": {"dtype": ["fp32"]}}}
>>> mixed_policy("bf16", op_rules(rules, None, "bf16")).rules[0].category
'never'
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from neuronsim import dtypes
from neuronsim.casting.decisions.post_training import PRODUCTS
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.dtypes import DType
from neuronsim.errors import FlagWarning, InvalidArgument, UnsupportedType, nearest, warn
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Instruction, Module, graph_computations
from neuronsim.neural_compressor.config import listed
from neuronsim.setups import DEFAULT_TARGET
from neuronsim.targets import Target, find_target

FORCE = "FORCE_BF16"
LOW = {
    "bf16": dtypes.bfloat16,
    "fp16": dtypes.float16,
    "tf32": dtypes.tfloat32,
    "fp8_e4m3": dtypes.float8_e4m3,
}
INTEGERS = ("int8", "uint8")
_SAME = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8_e4m3", "float32": "fp32"}
_KNOWN = (*LOW, *INTEGERS, "fp32")
DEFAULT_KEY = "default_qconfig"  # what op_wise says of all that it does not name
# Operations by the frameworks' names; others are HLO's, or this package's composites.
_OPERATIONS = {
    **dict.fromkeys(("matmul", "batchmatmul", "batchmatmulv2", "gemm", "linear", "dense"), "dot"),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d", "depthwiseconv2dnative"), "convolution"),
    "relu": "maximum",
    "exp": "exponential",
    "sigmoid": "logistic",
    "mul": "multiply",
    "sub": "subtract",
    "div": "divide",
    "realdiv": "divide",
    "addv2": "add",
}


def find_device(name: str) -> Target:
    """The target of a configuration's device. Neural Compressor's own are trn1's emulation, which is
    said of all but its default, `cpu`.

    Raises InvalidArgument for others that neuronsim does not know.
    """
    if name in OTHER_DEVICES:
        warn(f"there is no device {name!r} here: {DEFAULT_TARGET} is emulated", FlagWarning)
    own = name == "cpu" or name in OTHER_DEVICES
    return find_target(DEFAULT_TARGET if own else name)


OTHER_DEVICES = ("gpu", "npu", "xpu")


def is_forced() -> bool:
    """Whether FORCE_BF16=1 is set."""
    return os.environ.get(FORCE, "") == "1"


def check_capability(target: Target, dtype: DType) -> Target:
    """The target if it computes products in a type; where it does not, with FORCE_BF16=1, the one that
    does, and a warning. Raises UnsupportedType otherwise.
    """
    if dtype in target.types and target.computes_with(dtype, "tensor", "dot"):
        return target
    if not is_forced():
        raise UnsupportedType(
            f"{target.name} ({target.description}) has no products in {dtype.name}: choose another "
            f"precision or device, or set {FORCE}=1 to have it emulated all the same"
        )
    forced = find_target(DEFAULT_TARGET)
    warn(
        f"{FORCE}=1: {target.name} has no products in {dtype.name}; they are emulated as those of "
        f"{forced.name}, and no compiler for {target.name} will make them",
        FlagWarning,
    )
    return forced


def precision(name: str) -> str:
    """A precision's usual name; raises InvalidArgument with the nearest one."""
    word = _SAME.get(name.lower(), name.lower())
    if word not in _KNOWN:
        raise InvalidArgument(
            f"a precision is one of {', '.join(_KNOWN)}, not {name!r}{nearest(name, _KNOWN)}"
        )
    return word


def low_precisions(names: Sequence[str], excluded: Sequence[str] = ()) -> list[str]:
    """The low types among precisions, in their order. Raises InvalidArgument for INT8, which
    quantization makes.
    """
    found = [precision(n) for n in names]
    integers = [n for n in found if n in INTEGERS]
    if integers:
        raise InvalidArgument(
            f"{', '.join(integers)} is made by quantization: use Quantization, or quantization.fit"
        )
    out = [precision(n) for n in excluded]
    return [n for n in dict.fromkeys(found) if n != "fp32" and n not in out]


def allowed(entry: Any, where: str) -> tuple[str, ...] | None:
    """The types that an entry of op_wise allows: those that activation and weight both have, where both
    state any; None where neither does.
    """
    if not isinstance(entry, Mapping):
        raise InvalidArgument(
            f"{where} is a table of activation and weight with dtype, not {entry!r}"[:300]
        )
    unknown = [k for k in entry if k not in ("activation", "weight")]
    if unknown:
        raise InvalidArgument(f"{where} has activation and weight, not {unknown[0]!r}")
    stated = []
    for part, table in entry.items():
        if not isinstance(table, Mapping):
            raise InvalidArgument(f"{where}.{part} is a table with dtype, not {table!r}"[:300])
        if "dtype" in table:
            stated.append([precision(n) for n in listed(table["dtype"])])
    if not stated:
        return None
    floats = [[n for n in names if n not in INTEGERS] for names in stated]
    both = [n for n in floats[0] if all(n in other for other in floats)]
    # An activation is uint8 where its weight is int8.
    integer = all(any(n in INTEGERS for n in names) for names in stated)
    return (*both, *(n for n in stated[0] if integer and n in INTEGERS))


def _entries(
    names: Mapping[str, Any] | None, types: Mapping[str, Any] | None
) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """Each entry's key, the condition of its rule and the types that it allows; the more general ones
    first, since the last rule wins.
    """
    for key, entry in (types or {}).items():
        found = allowed(entry, f"op_type_dict {key!r}")
        if found is not None:
            yield key, {"operation": (_OPERATIONS.get(key.lower(), key.lower()),)}, found
    order = sorted((names or {}).items(), key=lambda pair: pair[0] != DEFAULT_KEY)
    for key, entry in order:
        found = allowed(entry, f"op_wise {key!r}")
        if found is not None:
            pattern = "*" if key == DEFAULT_KEY else key
            yield key, {"scope": pattern} if "/" in pattern else {"name": (pattern,)}, found


def op_rules(
    names: Mapping[str, Any] | None, types: Mapping[str, Any] | None, low: str
) -> tuple[Rule, ...]:
    """The rules of op_wise (`names`) and of operations (`types`) for a low type: where it is not among
    the allowed ones, another low type that is, else float32.
    """
    rules: list[Rule] = []
    for key, condition, found in _entries(names, types):
        reason = f"op_wise allows {key} {', '.join(found) or 'nothing low'}"
        other = [n for n in found if n in LOW]
        if low in other:
            if rules:  # a more general one may have switched it off
                rules.append(Rule(reason, "always", LOW[low], **condition))
        elif other:
            rules.append(Rule(reason, "always", LOW[other[0]], **condition))
        else:
            rules.append(Rule(reason, "never", **condition))
    return tuple(rules)


def not_quantized(
    module: Module, names: Mapping[str, Any] | None, types: Mapping[str, Any] | None
) -> list[str]:
    """The products of a module that op_wise, or their operations' types, do not allow to read 8-bit
    integers: of several entries that are of one product the last decides.
    """
    entries = list(_entries(names, types))
    found = []
    for c in graph_computations(inline_calls(module)):
        for i in c.instructions:
            if i.opcode not in PRODUCTS:
                continue
            own = [types_ for _, condition, types_ in entries if _is_of(condition, i)]
            if own and not any(n in INTEGERS for n in own[-1]):
                found.append(i.name)
    return found


def _is_of(condition: Mapping[str, Any], i: Instruction) -> bool:
    if "scope" in condition:
        return fnmatchcase(i.metadata.op_name, condition["scope"])
    values = i.opcode if "operation" in condition else i.name
    patterns = condition.get("operation") or condition["name"]
    return any(fnmatchcase(values, p) for p in patterns)


def mixed_policy(low: str, rules: Sequence[Rule], name: str = "", base: str = "") -> Policy:
    """The policy of a low type: all operations that the device computes in it, or those of the policy
    `base`, but for the rules; under the model's name where there are any.
    """
    policy = with_rules(find_policy(base or f"all/{low}"), *rules)
    return replace(policy, name=name) if rules and name else policy
