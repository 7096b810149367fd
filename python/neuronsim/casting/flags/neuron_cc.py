"""The options of `neuron-cc compile` (Inf1) and what its `--fast-math` and `--fp32-cast` mean together.

Facts: `reference/neuron.md` 2.1 to 2.4 in the project's research notes, from AWS's command line
reference and release notes of neuron-cc. Inf1 has no float32 products: no value leaves them uncast.

>>> find_casts(["none"])
Casts(auto_cast='matmult', auto_cast_type='bf16', relayout='')
>>> find_casts(["no-fast-relayout"], fp32_cast="matmult-fp16")
Casts(auto_cast='matmult', auto_cast_type='fp16', relayout='')
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from neuronsim.casting.flags.options import Option
from neuronsim.errors import InvalidFlag
from neuronsim.targets import AutoCast, CastType


class Casts(NamedTuple):
    """What is cast, to which type, and the type in which fast transposes run ("" for none: A3)."""

    auto_cast: AutoCast
    auto_cast_type: CastType
    relayout: CastType


# neuron.md 2.2. Only fp32-cast-matmult has another type for its transposes.
FP32_CASTS = {
    "fp32-cast-all": Casts("all", "bf16", "bf16"),
    "fp32-cast-all-fp16": Casts("all", "fp16", "fp16"),
    "fp32-cast-matmult": Casts("matmult", "bf16", "fp16"),
    "fp32-cast-matmult-bf16": Casts("matmult", "bf16", "bf16"),
    "fp32-cast-matmult-fp16": Casts("matmult", "fp16", "fp16"),
}
RELAYOUTS = ("fast-relayout", "no-fast-relayout")
# What `all` and `none` stand for where no other value says more; the default is `all`.
_SHORTHANDS = {
    "all": ("fp32-cast-all", "fast-relayout"),
    "none": ("fp32-cast-matmult-bf16", "no-fast-relayout"),
}
_EXCLUSIVE = (tuple(_SHORTHANDS), tuple(FP32_CASTS), RELAYOUTS)

_NOT_HLO = "neuronsim reads HLO; export the model with XLA"

OPTIONS = (
    Option("--fast-math", (*_SHORTHANDS, *FP32_CASTS, *RELAYOUTS), "values", several=True),
    Option(
        "--fp32-cast",
        tuple(name.removeprefix("fp32-cast-") for name in FP32_CASTS),
        "values",
        deprecated="2.3",  # long before: in compiler 1.7.3.0
    ),
    Option("--enable-saturate-infinity", effect="values", since="2.12"),  # compiler 1.17.0.0
    Option("--framework", ("XLA",), refused={"TENSORFLOW": _NOT_HLO, "MXNET": _NOT_HLO}),
    Option("--io-config", (), text="a file, a file:// address or JSON"),
    Option("--neuroncore-pipeline-cores", (), numbers=range(1, 65)),
    Option("--enable-fast-context-switch"),
    Option("--enable-fast-loading-neuron-binaries"),
    Option("--output", (), text="a path"),
    Option("--target", ("inf1",)),  # neuronsim's, by which it chooses the compiler
    Option("--verbose", ("DEBUG", "INFO", "WARN", "ERROR")),
)


def find_casts(fast_math: Sequence[str] = (), fp32_cast: str = "") -> Casts:
    """What the values of one `--fast-math` and that of `--fp32-cast` mean together.

    `fp32-cast-*` and `*-fast-relayout` say more than `all` and `none`, and `--fp32-cast` says more than
    any `fp32-cast-*`. Raises InvalidFlag for values that exclude each other.
    """
    for group in _EXCLUSIVE:
        both = [v for v in dict.fromkeys(fast_math) if v in group]
        if len(both) > 1:
            raise InvalidFlag(
                f"--fast-math cannot be {' and '.join(both)}: give one of {', '.join(group)}"
            )
    shorthand = next((v for v in fast_math if v in _SHORTHANDS), "all")
    cast, relayout = _SHORTHANDS[shorthand]
    cast = next((v for v in fast_math if v in FP32_CASTS), cast)
    relayout = next((v for v in fast_math if v in RELAYOUTS), relayout)
    casts = FP32_CASTS[f"fp32-cast-{fp32_cast}" if fp32_cast else cast]
    return casts if relayout == "fast-relayout" else casts._replace(relayout="")


def fast_math_line(auto_cast: str, auto_cast_type: str, relayout: str) -> str:
    """The `--fast-math` option that means these casts.

    >>> fast_math_line("matmult", "bf16", "fp16")
    '--fast-math fp32-cast-matmult fast-relayout'
    """
    names = [
        name
        for name, casts in FP32_CASTS.items()
        if casts[:2] == (auto_cast, auto_cast_type) and relayout in ("", casts.relayout)
    ]
    if not names:
        raise InvalidFlag(
            f"no --fast-math means {auto_cast}/{auto_cast_type} with {relayout or 'no'} transposes: "
            f"its casts are {', '.join(FP32_CASTS)}"
        )
    return f"--fast-math {names[-1]} {RELAYOUTS[not relayout]}"
