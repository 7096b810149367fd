"""What each setting of AWS's tables of option combinations casts: the plan, and the executed bits.

The products have one term, so that they are exact in float32 and one rounding to each type, by NumPy
and ml_dtypes, gives every expected bit.
"""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest
from tests.casting import reading
from tests.support.graphs import constant, inst, module_of, parameter, reducer
from tests.support.parameters import each_of

import neuronsim
from neuronsim import dtypes, ops
from neuronsim.casting.flags import CAST_TYPES
from neuronsim.hlo.module import Module, Shape, TupleShape
from neuronsim.reference import sums
from neuronsim.targets import RELEASES

ROWS, COLUMNS = 40, 30


def rounded(x: np.ndarray, name: str) -> np.ndarray:
    """To nearest, ties to even."""
    return reading.rounded(x, CAST_TYPES[name]) if name else x


@pytest.fixture(scope="module")
def network() -> Module:
    """A product on the tensor engine and one on the vector engine, both results of the model."""
    x, w, both = (Shape(dtypes.float32, d) for d in ((ROWS, 1), (1, COLUMNS), (ROWS, COLUMNS)))
    return module_of(
        *(parameter("x", x), parameter("w", w, 1)),
        inst("product", "dot", both, "x", "w", dot_dimensions=ops.DotDimensions((1,), (0,))),
        inst("square", "multiply", x, "x", "x"),
        inst("out", "tuple", TupleShape((both, x)), "product", "square"),
    )


@pytest.fixture(scope="module")
def values() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(15)
    x, w = (rng.uniform(0.5, 2, n).astype(np.float32) for n in (ROWS, COLUMNS))
    return x.reshape(ROWS, 1), w.reshape(1, COLUMNS)


def check(
    network: Module,
    values: tuple[np.ndarray, np.ndarray],
    flags: str,
    casts: tuple[str, str],
    sdk: str = "2.26",
    target: str = "trn1",
) -> None:
    """The network under these flags rounds as `casts`, what is cast and to which type, says."""
    program = neuronsim.compile(network, flags=flags, sdk=sdk, target=target)
    (kind, t), (x, w) = casts, values
    product = rounded(x, t if kind != "none" else "") * rounded(w, t if kind != "none" else "")
    square = x * x
    if kind == "all":
        product, square = rounded(product, t), rounded(rounded(x, t) * rounded(x, t), t)
    found = program(x=x, w=w)
    # I/O types are never cast (neuron.md 1.1).
    assert [a.dtype.name for a in found] == ["float32", "float32"]
    for got, want in zip(found, (product, square), strict=True):
        assert np.asarray(got).tobytes() == want.tobytes()
    decided = {"none": set(), "matmult": {"product"}, "all": {"product", "square"}}[kind]
    assert {n for n in program.plan.decisions if n in ("product", "square")} == decided


# neuron.md 1.5: the seven rows of both tables of option combinations, and fp8_e4m3 of 1.2.
COMBINATIONS = [
    ("--auto-cast all --auto-cast-type bf16", ("all", "bf16")),
    ("--auto-cast matmult --auto-cast-type bf16", ("matmult", "bf16")),
    ("--auto-cast all --auto-cast-type fp16", ("all", "fp16")),
    ("--auto-cast matmult --auto-cast-type fp16", ("matmult", "fp16")),
    ("--auto-cast all --auto-cast-type tf32", ("all", "tf32")),
    ("--auto-cast matmult --auto-cast-type tf32", ("matmult", "tf32")),
    ("--auto-cast none", ("none", "")),
    ("--auto-cast matmul --auto-cast-type fp8_e4m3", ("matmult", "fp8_e4m3")),
    ("--auto-cast all --auto-cast-type fp8_e4m3", ("all", "fp8_e4m3")),
    ("--auto-cast none --auto-cast-type fp8_e4m3", ("none", "")),  # 1.2: inert with none
]


@each_of(("flags", "casts"), COMBINATIONS)
def test_option_combinations(
    flags: str, casts: tuple[str, str], network: Module, values: tuple[np.ndarray, np.ndarray]
) -> None:
    inert = pytest.warns(neuronsim.errors.FlagWarning, match="--auto-cast-type fp8_e4m3 has no effect")
    with inert if casts[0] == "none" and "-type" in flags else contextlib.nullcontext():
        for sdk in ("2.26", "2.27"):
            check(network, values, flags, casts, sdk)


@each_of("sdk", [r.sdk for r in RELEASES])
def test_default_of_a_release(sdk: str, network: Module, values: tuple[np.ndarray, np.ndarray]) -> None:
    # neuron.md 1.3: the default became none with 2.27.
    casts = ("none", "") if int(sdk[2:]) >= 27 else ("matmult", "bf16")
    check(network, values, "", casts, sdk)


# ---- mixed-precision accumulation ----------------------------------------------------------------

ENABLE, DISABLE = "--enable-mixed-precision-accumulation", "--disable-mixed-precision-accumulation"


@pytest.fixture(scope="module")
def totals() -> Module:
    """Sums of 1,024 bfloat16 elements: two tiles (R2)."""
    bf16 = dtypes.bfloat16
    return module_of(
        parameter("x", (8, 1024), dtype=bf16),
        constant("zero", 0, bf16),
        inst("y", "reduce", (8,), "x", "zero", dtype=bf16, dimensions=(1,), called=("add",)),
        others=(reducer("add", dtype=bf16),),
    )


@pytest.fixture(scope="module")
def sums_by_setting() -> tuple[np.ndarray, dict[bool, list[int]]]:
    """Addends, and the bits of their sums with mixed-precision accumulation and without it."""
    x = np.random.default_rng(16).uniform(0.5, 2, (8, 1024)).astype(ml_dtypes.bfloat16)
    rows = x.view(np.uint16).tolist()
    return x, {
        on: [sums.reduce_float("add", "bfloat16", row, 0, round_tiles=not on) for row in rows]
        for on in (True, False)
    }


# neuron.md 1.2 and 1.3: on since 2.27, which added the flag that turns it off; the right-most wins.
ACCUMULATION = [
    *(("", r.sdk, int(r.sdk[2:]) >= 27) for r in RELEASES),
    (ENABLE, "2.26", True),
    (ENABLE, "2.27", True),
    (DISABLE, "2.27", False),
    (f"{ENABLE} {DISABLE}", "2.27", False),
    (f"{DISABLE} {ENABLE}", "2.27", True),
    (f"--auto-cast matmult {DISABLE}", "2.27", False),  # 1.3: what restores 2.26
]


@each_of(("flags", "sdk", "on"), ACCUMULATION)
def test_mixed_precision_accumulation_R3(
    flags: str,
    sdk: str,
    on: bool,
    totals: Module,
    sums_by_setting: tuple[np.ndarray, dict[bool, list[int]]],
) -> None:
    x, expected = sums_by_setting
    assert expected[True] != expected[False]
    found = neuronsim.compile(totals, flags=flags, sdk=sdk, target="trn1")(x=x)
    assert found.bits.data.tolist() == expected[on]


# neuron.md 2.2 and 2.3; what their transposes do is in the tests of relayouts.
FAST_MATH = [
    ("", ("all", "bf16")),
    ("--fast-math all", ("all", "bf16")),
    ("--fast-math none", ("matmult", "bf16")),  # there is no float32 product on Inf1
    ("--fast-math fast-relayout", ("all", "bf16")),
    ("--fast-math no-fast-relayout", ("all", "bf16")),
    ("--fast-math fp32-cast-all", ("all", "bf16")),
    ("--fast-math fp32-cast-all-fp16", ("all", "fp16")),
    ("--fast-math fp32-cast-matmult", ("matmult", "bf16")),
    ("--fast-math fp32-cast-matmult-bf16", ("matmult", "bf16")),
    ("--fast-math fp32-cast-matmult-fp16", ("matmult", "fp16")),
    ("--fast-math none fp32-cast-all-fp16", ("all", "fp16")),
]
FP32_CAST = [
    ("--fp32-cast all", ("all", "bf16")),
    ("--fp32-cast matmult", ("matmult", "bf16")),
    ("--fp32-cast matmult-fp16", ("matmult", "fp16")),
    ("--fp32-cast matmult-bf16", ("matmult", "bf16")),
    ("--fp32-cast all-fp16", ("all", "fp16")),
    ("--fp32-cast all-fp16 --fast-math none", ("all", "fp16")),  # the higher priority
    ("--fast-math fp32-cast-all --fp32-cast matmult-fp16", ("matmult", "fp16")),
]


@each_of(("flags", "casts"), FAST_MATH + FP32_CAST)
def test_fast_math_and_fp32_cast_on_inf1(
    flags: str, casts: tuple[str, str], network: Module, values: tuple[np.ndarray, np.ndarray]
) -> None:
    deprecated = pytest.warns(
        neuronsim.errors.FlagWarning, match="--fp32-cast is deprecated: --fast-math"
    )
    with deprecated if "--fp32-cast" in flags else contextlib.nullcontext():
        check(network, values, flags, casts, target="inf1")


def test_a_wrong_expectation_fails(network: Module, values: tuple[np.ndarray, np.ndarray]) -> None:
    for wrong in (("matmult", "fp16"), ("all", "bf16"), ("none", "")):
        with pytest.raises(AssertionError):
            check(network, values, "--auto-cast matmult --auto-cast-type bf16", wrong)
