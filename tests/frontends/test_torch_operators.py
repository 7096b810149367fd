"""Every row of the table of ATen's operators against PyTorch, on known arrays and compiled."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.support.places import ROOT

torch = pytest.importorskip("torch")

from tests.frontends.torch_cases import Case, check_all, compiled  # noqa: E402
from tests.support.scripts import load_script  # noqa: E402

import neuronsim  # noqa: E402
from neuronsim.frontends.torch.table import OPERATORS  # noqa: E402

pytestmark = pytest.mark.isa_independent

GENERATOR = torch.Generator().manual_seed(0)


def f(*dims: int) -> Any:
    return torch.randn(dims, generator=GENERATOR)


def u(*dims: int) -> Any:
    """Of (0, 1)."""
    return torch.rand(dims, generator=GENERATOR) * 0.98 + 0.01


def i(*dims: int, high: int = 7, low: int = 0) -> Any:
    return torch.randint(low, high, dims, generator=GENERATOR)


def mask(*dims: int) -> Any:
    return torch.rand(dims, generator=GENERATOR) > 0.5


def a(
    name: str, *args: Any, results: tuple[int, ...] = (0,), known: tuple[int, ...] = (), **kw: Any
) -> Case:
    tolerances = {k: kw.pop(k) for k in ("rtol", "atol") if k in kw}
    space = "" if name.startswith("prims.") else "aten."
    name = name if "." in name else f"{name}.default"
    return Case(space + name, args, kw, results, known, **tolerances)


SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -2.5, 0.5])


def with_nan() -> Any:
    lines = torch.stack([f(8), SPECIAL, SPECIAL.flip(0).roll(3).clone()])
    lines[2, ::3] = float("nan")
    return lines


def unary() -> Iterator[Case]:
    for name in ("asinh", "atan", "ceil", "cos", "erf", "erfc", "exp", "exp2", "expm1", "floor", "neg",
                 "relu", "round", "signbit", "sigmoid", "sin", "sinh", "cosh", "tan", "tanh", "trunc",
                 "abs", "isnan"):  # fmt: skip
        yield a(name, f(3, 4))
    for name in (
        "acos",
        "asin",
        "atanh",
        "log",
        "log10",
        "log1p",
        "log2",
        "reciprocal",
        "rsqrt",
        "sqrt",
    ):
        yield a(name, u(3, 4))
    yield a("acosh", u(3, 4) + 1, rtol=1e-4)
    for name in (
        "exp",
        "sqrt",
        "sigmoid",
        "abs",
        "neg",
        "sign",
        "relu",
        "reciprocal",
        "isinf",
        "isnan",
    ):
        yield a(name, i(3, 4, low=1))
    for name in ("sign", "isinf", "isnan", "floor", "round", "relu", "abs", "logical_not", "signbit"):
        yield a(name, SPECIAL)
    yield a("signbit", i(5, low=-3))
    for x in (SPECIAL, f(40) * 9, 10 ** (f(20) * 9), torch.arange(-3.0, 4), i(5, low=1)):
        yield a("lgamma", x, rtol=5e-6, atol=5e-6)
    yield a("bitwise_not", i(3))
    yield a("bitwise_not", mask(3))
    yield a("logical_not", mask(3))
    yield a("round.decimals", f(5), decimals=2)
    for approximate in ("none", "tanh"):
        yield a("gelu", f(3, 4), approximate=approximate)
        yield a("gelu_backward", f(3, 4), f(3, 4), approximate=approximate)
    yield a("silu", f(4))
    yield a("silu_backward", f(4), f(4))
    yield a("leaky_relu", f(4), 0.2)
    yield a("rrelu_with_noise_functional", f(9), f(9), 0.1, 0.3, results=(0, 1))
    yield a("elu", f(4))
    yield a("elu", f(4), 1.67, 1.05, 0.7)
    yield a("softplus", f(4))
    yield a("softplus", f(9) * 5, 2.0, 3.0)
    yield a("hardtanh", f(5), -0.5, 0.7)


def special_functions() -> Iterator[Case]:
    real = torch.cat([f(40) * 9, 10 ** (f(20) * 9), torch.tensor([0.0, float("nan")])])
    lines = {
        "erfinv": torch.cat([torch.linspace(-1, 1, 41), 1 - 10 ** -(u(9) * 6), torch.tensor([2.0])]),
        "special_erfcx": torch.cat([real.clamp(min=-9), torch.tensor([-20.0, *[-math.inf, math.inf]])]),
        "special_log_ndtr": torch.cat([real, torch.tensor([-math.inf, math.inf])]),
        "digamma": torch.cat(
            [real, torch.arange(-3.0, 4), torch.tensor([-0.0, *[-math.inf, math.inf]])]
        ),
        **dict.fromkeys(("i0", "special_i0e", "special_i1", "special_i1e"), real),
    }
    for name, x in lines.items():
        yield a(name, x, rtol=3e-6, atol=3e-6)
        yield a(name, x.double(), rtol=1e-10, atol=1e-10)
        yield a(name, i(5, low=-1, high=2))
    p = torch.cat([u(40), 10 ** -(u(20) * 37), 1 - 10 ** -(u(9) * 6), torch.tensor([0.5, 0.025])])
    yield a("special_ndtri", p, rtol=3e-6, atol=3e-6)
    yield a("special_ndtri", p.double(), rtol=1e-10, atol=1e-10)
    yield a("special_ndtri", torch.tensor([0.0, 1.0, -0.1, 1.1, math.nan]))
    for order in (2, 3, 7):
        yield a("polygamma", order, torch.cat([f(40) * 5, u(20) * 40]), rtol=1e-4)
        yield a("polygamma", order, torch.cat([f(40) * 5, u(20) * 40]).double(), rtol=1e-9)
    yield from zeta()
    yield from incomplete_gamma()
    for order in (0, 1):
        yield a("polygamma", order, torch.cat([f(40) * 5, real.abs() + 1e-6]), rtol=1e-4)
        yield a("polygamma", order, f(40).double() * 5, rtol=1e-9)


def zeta() -> Iterator[Case]:
    """Hurwitz's: of poles, of what has no real value, and of negative numbers too."""
    s = torch.cat([1 + u(20) * 20, 1 + u(20) * 0.1, 1 + u(20) * 500, torch.full((20,), 2.0)])
    q = torch.cat([u(40) * 30, u(40) * 1000])
    yield a("special_zeta", s, q, rtol=3e-6, atol=1e-44)
    yield a("special_zeta", s.double(), q.double(), rtol=1e-12, atol=1e-300)
    s, q = torch.tensor([2.0, 3.0, 4.0, 9.0]), -u(6, 4) * 20
    yield a("special_zeta", s, q, rtol=1e-4)
    yield a("special_zeta", s.double(), q.double(), rtol=1e-10)
    ends = torch.tensor([1.0, 0.5, 2.0, 2.0, 2.5, 2.5, 3.0, math.nan, 2.0])
    yield a("special_zeta", ends, torch.tensor([2.0, 2.0, 0.0, -3.0, -1.5, -2.0, -1.5, 1.0, math.nan]))
    yield a("special_zeta.other_scalar", u(9) * 5 + 1.5, 2.0, rtol=2e-6)
    yield a("special_zeta.self_scalar", 3, u(9) * 5, rtol=2e-6)
    yield a("special_zeta", i(5, low=2), i(5, low=1), rtol=2e-6)


def incomplete_gamma() -> Iterator[Case]:
    by, x = torch.cat([u(200) * 3, u(200) * 40, u(100) * 1000]), u(500)
    near = by * (0.5 + x)  # of both formulas
    ends = torch.tensor([0.0, 0.0, 1.0, 2.0, math.inf, math.inf, -1.0, 1.0, math.nan, 0.0])
    x_ends = torch.tensor([0.0, 1.0, 0.0, math.inf, 1.0, math.inf, 1.0, -1.0, 1.0, math.inf])
    for name in ("igamma", "igammac"):
        for first, second in ((by, near), (by, by * x * 3), (ends, x_ends)):
            yield a(name, first, second, rtol=3e-5, atol=3e-6)
            yield a(name, first.double(), second.double(), rtol=4e-9, atol=1e-9)


def binary() -> Iterator[Case]:
    x, y = f(3, 4), f(4)
    for name in ("add", "sub"):
        yield a(f"{name}.Tensor", x, y)
        yield a(f"{name}.Tensor", x, y, alpha=2)
        yield a(f"{name}.Tensor", i(3), f(3))
        yield a(f"{name}.Tensor", i(3), i(3).to(torch.int32))
        yield a(f"{name}.Tensor", x, torch.tensor(2.5, dtype=torch.float64))
        yield a(f"{name}.Scalar", x, 1.5)
        yield a(f"{name}.Scalar", i(3), 2)
    for name in ("mul", "div"):
        yield a(f"{name}.Tensor", x, y)
        yield a(f"{name}.Tensor", i(3), i(3, low=1))
        yield a(f"{name}.Scalar", i(3), 2.5)
        yield a(f"{name}.Scalar", x, 3)
    yield a("mul.Tensor", mask(5), mask(5))
    for mode in ("floor", "trunc", None):
        yield a("div.Tensor_mode", f(9) * 4, f(9), rounding_mode=mode)
        yield a("div.Scalar_mode", f(9) * 4, 0.7, rounding_mode=mode)
    for mode in ("floor", "trunc"):
        yield a("div.Tensor_mode", i(9, low=-9), i(9, low=1), rounding_mode=mode)
        yield a("div.Scalar_mode", i(9, low=-9), -3, rounding_mode=mode)
    for divisor in (SPECIAL.roll(3), SPECIAL.flip(0)):
        yield a("div.Tensor_mode", SPECIAL, divisor, rounding_mode="floor")
    for name in ("gcd", "lcm"):
        yield a(name, i(9, low=-9, high=9) * 6, i(9, low=-9, high=9) * 4)
        yield a(name, i(3, 1).to(torch.int32), i(4).to(torch.int32))
    for name in ("remainder", "fmod"):
        yield a(f"{name}.Tensor", f(9) * 4, f(9), atol=1e-5)
        yield a(f"{name}.Scalar", f(9) * 4, -1.5, atol=1e-5)
        yield a(f"{name}.Tensor", i(9, low=-9), i(9, low=1))
        yield a(f"{name}.Scalar", i(9, low=-9), 4)
    yield a("remainder.Scalar_Tensor", 5.5, u(4), atol=1e-5)
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, 2.5, -3):
        yield a("pow.Tensor_Scalar", u(5), exponent)
    yield a("pow.Tensor_Scalar", i(5), 2)
    yield a("pow.Tensor_Scalar", i(5), 0.5)
    yield a("pow.Tensor_Tensor", u(5), f(5))
    yield a("pow.Scalar", 2, f(5))
    yield a("atan2", f(5), f(5))
    yield a("maximum", SPECIAL, SPECIAL.flip(0))
    yield a("minimum", x, i(4))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield a(f"{name}.Tensor", i(3, 9), i(9))
        yield a(f"{name}.Tensor", i(9), f(9))
        yield a(f"{name}.Scalar", SPECIAL, 0)
        yield a(f"{name}.Scalar", i(9), 2.5)
    for name in ("and", "or", "xor"):
        yield a(f"bitwise_{name}.Tensor", i(9), i(9))
        yield a(f"bitwise_{name}.Tensor", mask(9), mask(9))
        yield a(f"bitwise_{name}.Scalar", i(9), 3)
        yield a(f"logical_{name}", i(9, high=2), f(9))
    yield a("bitwise_left_shift.Tensor", i(5), i(5))
    yield a("bitwise_right_shift.Tensor", i(5, low=-99), i(5))
    unsigned = torch.tensor([0x12, 0x9A, 0xFF], dtype=torch.uint8)
    yield a("bitwise_right_shift.Tensor_Scalar", unsigned, 4)
    yield a("__rshift__.Scalar", unsigned, 1)
    yield a("bitwise_left_shift.Tensor_Scalar", i(5), 2)
    yield a("bitwise_right_shift.Tensor_Scalar", i(5, low=-99), 2)
    for name in ("copysign.Tensor", "fmax", "fmin", "hypot", "logaddexp2", "nextafter"):
        yield a(name, x, y)
    for name in ("copysign.Tensor", "fmax", "fmin"):
        yield a(name, SPECIAL, SPECIAL.flip(0))
    yield a("copysign.Scalar", x, -2.0)
    yield a("__lshift__.Scalar", i(5), 2)
    yield a("__rshift__.Scalar", i(5, low=-99), 2)
    yield a("clamp", f(9), -0.5, 0.5)
    yield a("clamp", i(9), 2)
    yield a("clamp.Tensor", f(3, 9), f(9) - 1, f(9) + 1)
    yield a("where.self", mask(3, 1), f(3, 4), f(4))
    yield a("where.self", mask(4), f(4), i(4))
    yield a("masked_fill.Scalar", f(4), mask(4), -1.0)
    yield a("masked_fill.Tensor", f(4), mask(4), torch.tensor(2.0))


def conversions() -> Iterator[Case]:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.bool, torch.int8):
        yield a("_to_copy", f(9) * 3, dtype=dtype)
    yield a("_to_copy", i(9), dtype=torch.float32)
    yield a("view.dtype", f(4), torch.int32)
    for to in (torch.int16, torch.uint8, torch.bfloat16, torch.int64, torch.float64):
        yield a("view.dtype", f(3, 4), to)
    yield a("view.dtype", i(3, 4, low=-5), torch.int32)
    yield a("view.dtype", f(2, 4).bfloat16(), torch.float32)
    yield a("view.dtype", f(4).half(), torch.bfloat16)
    yield a("view.dtype", mask(4), torch.int8)
    yield a("view.dtype", mask(2, 4), torch.int32)
    yield a("view.dtype", mask(4).to(torch.uint8), torch.bool)
    yield a("view.dtype", torch.tensor(1.5), torch.int32)
    for x in (f(9) * 100, f(9).half(), f(9).bfloat16(), SPECIAL, f(3) * 1e-42):
        yield a("frexp.Tensor", x, results=(0, 1))
    for name in ("alias", "detach", "clone", "contiguous", "lift_fresh_copy"):
        yield a(name, f(3, 4))
    yield a("copy", f(3, 4), f(4))


def reductions() -> Iterator[Case]:
    x = f(3, 4, 5)
    yield a("sum.default", x)
    yield a("mean.default", x)
    yield a("max.default", x)
    yield a("min.default", x)
    yield a("prod.default", x)
    yield a("prod.default", i(4, low=1))
    yield a("sum.dim_IntList", mask(3, 4), [1])
    for bins, low, high in ((4, 0, 0), (5, -1.0, 0.5), (7, 0.25, 0.25), (8, 0, 7)):
        yield a("histc", f(60), bins, low, high)
    yield a("histc", i(40, low=0).float(), 8, 0, 7)
    yield a("histc", torch.tensor([1.0, float("nan"), 2.0]), 3, 1, 2)
    for dims, keep in (([1], False), ([0, -1], True), ([], False)):
        yield a("sum.dim_IntList", x, dims, keep)
        yield a("sum.dim_IntList", i(3, 4, 5), dims, keep)
        yield a("mean.dim", x, dims, keep)
        yield a("amax", x, dims, keep)
        yield a("amin", x, dims, keep)
        yield a("amax", i(3, 4, 5, low=-9, high=-2), dims, keep)
        yield a("amin", i(3, 4, 5, low=2), dims, keep)
        yield a("var.correction", x, dims, correction=0, keepdim=keep)
    yield a("mean.dim", i(3, 4), [0], dtype=torch.float32)
    yield a("sum.dim_IntList", f(8).to(torch.bfloat16), [0], dtype=torch.float32)
    yield a("var.correction", x)
    for name in ("var_mean.correction", "std_mean.correction"):
        yield a(name, x, results=(0, 1))
        yield a(name, x, [1], correction=0, keepdim=True, results=(0, 1))
    yield a("var.correction", f(1, 3), [0])
    yield a("var.dim", x, [1], False, True)
    yield a("var.dim", x, [0, 2])
    for name in ("prod.dim_int", "cumsum", "cumprod"):
        yield a(name, x, 1)
        yield a(name, i(3, 4, low=1), -1)
    for name in ("cummax", "cummin"):
        yield a(name, f(3, 40), 1, results=(0, 1))
        yield a(name, i(30, 4, high=5), 0, results=(0, 1))
        yield a(name, i(30, 4, high=5) * 3 - 20, 0, results=(0, 1))
        yield a(name, i(30, high=5) * 3 + 20, 0, results=(0, 1))
        yield a(name, with_nan(), -1, results=(0, 1))
        yield a(name, f(), 0, results=(0, 1))
        yield a(name, f(0, 3), 0, results=(0, 1))
    yield a("logcumsumexp", f(3, 40) * 30, 1)
    yield a("logcumsumexp", torch.tensor([-torch.inf, -torch.inf, 300.0, -300.0, 300.0, torch.inf]), 0)
    yield a("logcumsumexp", f(3, 2), 0)
    yield a("logcumsumexp", f(), 0)
    for name in ("max.dim", "min.dim"):
        yield a(name, x, 1, results=(0, 1))
        yield a(name, i(30, 4).sort(0).values, 1, True, results=(0,))
    for name in ("argmax", "argmin"):
        yield a(name, x)
        yield a(name, x, 1, True)
        yield a(name, i(9), 0)
    for name in ("any", "all"):
        yield a(f"{name}.default", mask(3, 4))
        yield a(f"_is_{name}_true", mask(3, 4))
        yield a(f"{name}.dim", f(3, 4), 1)
        yield a(f"{name}.dims", i(3, 4, 2, high=2), [0, 2], True)


def products() -> Iterator[Case]:
    yield a("mm", f(3, 4), f(4, 5))
    yield a("bmm", f(2, 3, 4), f(2, 4, 5))
    for dims in ((4,), (3, 4), (2, 3, 4)):
        yield a("linear", f(*dims), f(5, 4), f(5))
        yield a("linear", f(*dims), f(5, 4))
        yield a("matmul", f(*dims), f(4, 5))
    yield a("matmul", f(4), f(4))
    yield a("matmul", f(3, 1, 2, 4), f(2, 4, 5))
    yield a("matmul", f(2, 3, 4), f(4))
    yield a("addmm", f(5), f(3, 4), f(4, 5))
    yield a("addmm", f(3, 5), f(3, 4), f(4, 5), beta=0.5, alpha=2)
    yield a("baddbmm", f(2, 3, 5), f(2, 3, 4), f(2, 4, 5), beta=0)
    yield a("addbmm", f(3, 5), f(2, 3, 4), f(2, 4, 5), beta=0.5, alpha=2)
    yield a("addbmm", i(3, 5), i(2, 3, 4), i(2, 4, 5))
    for offs in ([2, 2, 5, 7], [0, 3, 3, 9]):  # an empty group, and rows behind the last one
        yield a("_grouped_mm", f(7, 16), f(4, 16, 8), torch.tensor(offs, dtype=torch.int32))
    yield a("_grouped_mm", f(2, 8, 16), f(2, 16, 8))
    conv = (([1, 1], [0, 0], [1, 1], False, [0, 0], 1), ([2, 1], [1, 2], [1, 2], False, [0, 0], 1))
    for settings in conv:
        yield a("convolution", f(2, 3, 8, 9), f(4, 3, 3, 2), f(4), *settings)
        shape = torch.ops.aten.convolution(f(2, 3, 8, 9), f(4, 3, 3, 2), None, *settings).shape
        yield a("convolution_backward", f(*shape), f(2, 3, 8, 9), f(4, 3, 3, 2), [4], *settings,
                [True] * 3, results=(0, 1, 2), rtol=1e-4, atol=1e-4)  # fmt: skip
    grouped = ([2], [1], [1], False, [0], 2)
    yield a("convolution", f(2, 4, 9), f(6, 2, 3), None, *grouped)
    yield a("convolution_backward", f(2, 6, 5), f(2, 4, 9), f(6, 2, 3), [6], *grouped, [True] * 3,
            results=(0, 1, 2), rtol=1e-4, atol=1e-4)  # fmt: skip
    yield a("convolution_backward", f(2, 6, 5), f(2, 4, 10), f(6, 2, 3), None, *grouped,
            [True, True, False], results=(0, 1), rtol=1e-4, atol=1e-4)  # fmt: skip
    turned = ([2, 2], [1, 0], [1, 2], True, [1, 0], 2)
    yield a("convolution", f(2, 4, 5, 6), f(4, 3, 3, 2), f(6), *turned)
    shape = torch.ops.aten.convolution(f(2, 4, 5, 6), f(4, 3, 3, 2), None, *turned).shape
    yield a("convolution_backward", f(*shape), f(2, 4, 5, 6), f(4, 3, 3, 2), [6], *turned, [True] * 3,
            results=(0, 1, 2), rtol=1e-4, atol=1e-4)  # fmt: skip
    yield a("convolution", f(1, 2, 4, 5, 6), f(3, 2, 2, 2, 2), f(3), [1] * 3, [1] * 3, [1] * 3, False,
            [0] * 3, 1)  # fmt: skip
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        yield a("_cdist_forward", f(2, 4, 3), f(2, 5, 3), p, None, rtol=1e-4)
        yield a("_pdist_forward", f(5, 3), p, rtol=1e-4)
    yield a("conv_tbc", f(5, 2, 3), f(3, 3, 4), f(4), 1)
    yield a("_trilinear", f(3, 4), f(6, 4, 5), f(3, 5), [1, 3], [0], [1, 2], [2, 3], rtol=1e-4)
    yield a("_trilinear", f(3, 4), f(3, 4), f(3), [], [], [1], [], rtol=1e-4)


def of_64_bits() -> Iterator[Case]:
    """Whose steps are of float64 too."""
    x = f(2, 4, 6, 6).double()
    near = {"rtol": 1e-11, "atol": 1e-11}
    yield a("native_layer_norm", x, [6], None, None, 1e-5, **near)
    yield a("_fused_rms_norm", x, [6], None, None, **near)
    yield a("native_group_norm", x, None, None, 2, 4, 36, 2, 1e-5, **near)
    yield a("_native_batch_norm_legit.no_stats", x, None, None, True, 0.1, 1e-5, **near)
    yield a("logcumsumexp", x, 1, **near)
    yield a("upsample_bilinear2d.vec", x, None, False, [1.7, 1.7], **near)
    yield a("_upsample_bilinear2d_aa", x, [4, 5], False, **near)
    yield a("_adaptive_avg_pool2d", x, [4, 5], **near)
    yield a("grid_sampler_2d", x, u(2, 3, 3, 2).double() * 2 - 1, 0, 0, False, **near)
    yield a("lgamma", x, **near)


def norms() -> Iterator[Case]:
    x, w, b = f(2, 3, 4), f(4), f(4)
    yield a("native_layer_norm", x, [4], w, b, 1e-5, results=(0, 1, 2), atol=1e-5)
    yield a("native_layer_norm", x, [3, 4], f(3, 4), None, 1e-5, results=(0, 1, 2), atol=1e-5)
    yield a("native_layer_norm", x.to(torch.bfloat16), [4], None, None, 1e-5, rtol=1e-2)
    _, mean, rstd = torch.ops.aten.native_layer_norm(x, [4], w, b, 1e-5)
    yield a("native_layer_norm_backward", f(2, 3, 4), x, [4], mean, rstd, w, b, [True] * 3,
            results=(0, 1, 2), atol=1e-5)  # fmt: skip
    yield a("_fused_rms_norm", x, [4], w, 1e-5, results=(0, 1), atol=1e-5)
    y, w, b = f(3, 4, 5), f(4), f(4)
    yield a("_native_batch_norm_legit_no_training", y, w, b, f(4), u(4), 0.1, 1e-5, atol=1e-5)
    yield a("_native_batch_norm_legit.no_stats", y, w, b, True, 0.1, 1e-5, results=(0, 1, 2), atol=1e-5)
    for training, results in ((True, (0, 1, 2, 3, 4)), (False, (0,))):
        yield a("_native_batch_norm_legit_functional", y, w, b, f(4), u(4), training, 0.1, 1e-5,
                results=results, atol=1e-5)  # fmt: skip
    yield a(
        "_native_batch_norm_legit", y, w, b, f(4), u(4), True, 0.1, 1e-5, results=(0, 1, 2), atol=1e-5
    )
    _, mean, rstd = torch.ops.aten._native_batch_norm_legit.no_stats(y, w, b, True, 0.1, 1e-5)
    for train in (True, False):
        yield a("native_batch_norm_backward", f(3, 4, 5), y, w, f(4), u(4), mean, rstd, train, 1e-5,
                [True] * 3, results=(0, 1, 2), rtol=1e-4, atol=1e-5)  # fmt: skip
    z = f(2, 6, 5)
    yield a("native_group_norm", z, f(6), f(6), 2, 6, 5, 3, 1e-5, results=(0, 1, 2), atol=1e-5)
    _, mean, rstd = torch.ops.aten.native_group_norm(z, None, None, 2, 6, 5, 3, 1e-5)
    yield a("native_group_norm_backward", f(2, 6, 5), z, mean, rstd, f(6), 2, 6, 5, 3, [True] * 3,
            results=(0, 1, 2), atol=1e-5)  # fmt: skip
    for name in ("_softmax", "_log_softmax"):
        yield a(name, f(3, 4), 1, False)
        yield a(name, f(3, 4), 0, False)
    masked = f(3, 4)
    masked[0], masked[1, 2], masked[2] = -torch.inf, -torch.inf, torch.tensor([torch.nan, 1, 2, 3])
    yield a("_safe_softmax", masked, 1)
    yield a("_safe_softmax", masked.to(torch.bfloat16), -1, dtype=torch.float32)
    soft = torch.softmax(f(3, 4), 1)
    yield a("_softmax_backward_data", f(3, 4), soft, 1, torch.float32)


def shapes() -> Iterator[Case]:
    x = f(2, 3, 4)
    for name in ("view", "_unsafe_view", "reshape"):
        yield a(name, x, [6, -1])
    yield a("_reshape_alias", x, [6, 4], [4, 1])
    yield a("permute", x, [2, 0, -2])
    yield a("t", f(2, 3))
    yield a("transpose.int", x, 0, -1)
    yield a("expand", f(3, 1), [2, -1, 4])
    yield a("repeat", f(3, 1), [2, 1, 4])
    yield a("squeeze.dims", f(1, 2, 1), [0, 1])
    yield a("squeeze.dim", f(1, 2, 1), -1)
    yield a("squeeze.default", f(1, 2, 1))
    yield a("unsqueeze", x, -2)
    yield a("cat", [x, f(2, 1, 4), f(0)], 1)
    yield a("cat", [i(3), f(3)])
    yield a("stack", [f(3), f(3)], 1)
    yield a("split_with_sizes", x, [1, 3], 2, results=(0, 1))
    yield a("split_with_sizes_copy", x, [1, 2], 1, results=(0, 1))
    yield a("split.Tensor", x, 3, 2, results=(0, 1))
    yield a("unbind.int", x, 1, results=(0, 2))
    yield a("flip", x, [0, -1])
    yield a("roll", x, [1, -2], [0, 2])
    yield a("roll", x, [5])
    for bounds in ((1, 3, 1), (-3, 99, 2), (None, -1, 1), (3, 1, 1)):
        yield a("slice.Tensor", x, 2, *bounds)
    yield a("select.int", x, 1, -1)
    yield a("slice_scatter", x, f(2, 3, 2), 2, 1, 3)
    yield a("slice_scatter", x, f(2, 3, 2), 2, 0, 4, 2)
    yield a("select_scatter", x, f(2, 4), 1, -2)
    yield a("diagonal_scatter", f(4, 6), f(4))
    yield a("diagonal_scatter", f(4, 6), f(3), -1)
    yield a("diagonal_scatter", f(2, 3, 4), f(3, 2), -1, 2, 0)
    yield a("diagonal_scatter", f(4, 6), f(0), 6)
    for name in ("diagonal", "diagonal_copy"):
        yield a(name, x, 1, 0, 2)
    yield a("as_strided_scatter", f(3, 4), f(2, 3), (2, 3), (5, 1), 2)
    yield a("_new_zeros_with_same_feature_meta", f(2, 3), f(3, 4), self_num_batch_dims=1)
    for dims, dim in (((3, 4, 2), 0), ((3, 4), 1)):
        g = u(*(n if d == dim else 1 for d, n in enumerate(dims)))
        yield a("_weight_norm_interface_backward", f(*dims), v := f(*dims), g,
                torch.norm_except_dim(v, 2, dim), dim, results=(0, 1))  # fmt: skip
    for name in ("as_strided", "as_strided_copy"):
        yield a(name, x, [3, 2], [2, 5], 1)
    for name in ("tril", "triu"):
        yield a(name, f(3, 4), 1)
    yield a("constant_pad_nd", x, [1, 2, -1, 0], 0.5)
    for rank in (1, 2, 3):
        image = f(1, 2, *[4] * rank)
        yield a(f"reflection_pad{rank}d", image, [1, 2] * rank)
        yield a(f"replication_pad{rank}d", image, [2, 1] * rank)


def creation() -> Iterator[Case]:
    for kind, more in (("default", ()), ("periodic", (False,))):
        for name in ("bartlett", "blackman", "hamming", "hann", "kaiser"):
            yield a(f"{name}_window.{kind}", 8, *more)
    yield a("hamming_window.periodic_alpha", 8, True, 0.6)
    yield a("hamming_window.periodic_alpha_beta", 8, True, 0.6, 0.3)
    yield a("kaiser_window.beta", 8, True, 5.0)
    yield a("full", [2, 3], 1.5)
    yield a("full", [2], 3, dtype=torch.int64)
    yield a("full_like", f(2), 2)
    yield a("fill.Scalar", f(2), 3)
    yield a("fill.Tensor", f(2), torch.tensor(3.0))
    for name in ("zeros", "ones"):
        yield a(name, [2, 3])
        yield a(f"{name}_like", i(2))
    yield a("scalar_tensor", 2.5)
    yield a("arange.start_step", 1, 9, 2)
    yield a("arange.start_step", 0.5, 2.0, 0.25)
    yield a("arange.default", 5)
    yield a("arange.start", 2, 5, dtype=torch.float32)
    yield a("eye", 3)
    yield a("eye.m", 2, 3)
    yield a("native_dropout", f(5), 0.5, False, results=(0, 1))
    yield a("native_dropout", f(5), 1.0, True, results=(0, 1))


def indexing() -> Iterator[Case]:
    for size in (3, 20):
        yield a("nonzero_static", mask(3, 4), size=size)
        yield a("nonzero_static", i(9, high=2), size=size, fill_value=7)
    for norm in (2.0, 1.0, math.inf):
        yield a("embedding_renorm", f(5, 4), torch.tensor([[0, 3], [3, 1]]), 1.2, norm)
    x = f(5, 6, 4)
    yield a("embedding", f(7, 3), i(2, 4))
    yield a("embedding_dense_backward", f(2, 4, 3), i(2, 4), 7, 2, False)
    for mode in (0, 1, 2):
        yield a("_embedding_bag", f(7, 3), i(6), torch.tensor([0, 2, 5]), False, mode, known=(2,))
    yield a(
        "_embedding_bag_forward_only",
        f(7, 3),
        i(6),
        torch.tensor([0, 2]),
        False,
        0,
        False,
        f(6),
        known=(2,),
    )
    bags, ends = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 2, 2, 9])
    for mode, padding in itertools.product((0, 1, 2), (-1, 3)):
        for offsets, last in ((bags, False), (ends, True)):
            args = f(7, 3), torch.tensor([3, 3, 1, 3, 6, 0, 2, 3, 1]), offsets, False, mode, False
            yield a("_embedding_bag", *args, None, last, padding)
    yield a("_embedding_bag", f(7, 3), i(6), bags, False, 0, False, f(6), False, 2)
    yield a("index_select", x, 1, i(3, high=6))
    yield a("gather", x, 1, i(5, 3, 4, high=6))
    yield a("gather", x, 2, i(2, 3, 9, high=4))
    for name in ("index.Tensor", "_unsafe_index.Tensor"):
        yield a(name, x, [i(3, high=5)])
        yield a(name, x, [None, i(2, 3, low=-6, high=6)])
        yield a(name, x, [i(3, high=5), None, i(3, high=4)])
        yield a(name, x, [None, i(2, 1, high=6), i(3, high=4)])
    yield a("index.Tensor", x, [mask(5)], known=(1,))
    for name in ("index_put", "_unsafe_index_put"):
        yield a(name, x, [torch.tensor([0, 3])], f(2, 6, 4))
        yield a(name, x, [None, torch.tensor([1, 4]), torch.tensor([0, 3])], f(5, 2))
        yield a(name, x, [torch.tensor([1, 4]), None, torch.tensor([0, 3])], f(2, 6))
        yield a(name, x, [i(9, high=5)], f(9, 6, 4), True, rtol=1e-4, atol=1e-5)
    yield a("index_put", x, [mask(5, 6)], torch.tensor(2.0))
    yield a("index_add", x, 1, torch.tensor([1, 4, 1]), f(5, 3, 4), alpha=2, atol=1e-5)
    order = torch.argsort(torch.rand(5, 6, 4, generator=GENERATOR), dim=1)
    yield a("scatter.src", x, 1, order[:, :3], f(5, 6, 4))
    yield a("scatter.value", x, 1, i(5, 2, 4, high=6), 7.5)
    yield a("scatter_add", x, 0, i(4, 6, 4, high=5), f(4, 6, 4), atol=1e-5)
    for reduce in ("sum", "prod", "amax", "amin", "mean"):
        for own in (True, False):
            args = x, 1, i(5, 3, 4, high=6), f(5, 3, 4), reduce
            yield a("scatter_reduce.two", *args, include_self=own, rtol=1e-4, atol=1e-5)
            args = i(2, 5, low=-9), 1, i(2, 7, high=5), i(2, 7, low=-9), reduce
            yield a("scatter_reduce.two", *args, include_self=own)
    for reduce in ("prod", "amax", "amin", "mean"):
        for own in (True, False):
            args = 1, torch.tensor([4, 1, 4]), f(5, 3, 4), reduce
            yield a("index_reduce", x, *args, include_self=own, rtol=1e-4)
            args = 0, i(7, high=2), i(7, 5, low=-9), reduce
            yield a("index_reduce", i(2, 5, low=-9), *args, include_self=own)
    yield a("index_reduce", f(), 0, torch.tensor([0]), f(), "amax")
    for reduce in ("add", "multiply"):
        yield a("scatter.reduce", x, 1, i(5, 3, 4, high=6), f(5, 3, 4), reduce=reduce, atol=1e-5)
        yield a("scatter.value_reduce", x, 0, i(4, 6, 4, high=5), 1.5, reduce=reduce, atol=1e-5)
    yield a("index_fill.int_Scalar", x, 1, torch.tensor([0, -1, 2]), 2.5)
    yield a("index_fill.int_Scalar", x, -1, torch.tensor(1), 2)
    yield a("index_fill.int_Tensor", i(4, 3), 0, torch.tensor([-1]), torch.tensor(9))
    yield a("index_fill.int_Scalar", f(), 0, torch.tensor([0]), 3.0)
    yield a("put", x, torch.tensor([[-1, 0], [7, -120]]), f(4))
    yield a("put", x, torch.tensor([-1, 3, -1]), f(3), True)
    yield a("masked_scatter", x, mask(5, 6, 4), f(120))
    labels = torch.tensor([[3, 0, -1, 1, 2, 2], [-1] * 6, [5, 4, 3, 2, 1, 0], [1, 1, -1, -1, 0, 0]])
    for reduction in (0, 1, 2):
        yield a("multilabel_margin_loss_forward", f(4, 6), labels, reduction, results=(0, 1))
        yield a("multilabel_margin_loss_forward", f(6), labels[0], reduction, results=(0, 1))
    yield a("topk", x, 3, 1, True, True, results=(0, 1))
    yield a("topk", f(9), 4, -1, False, results=(0, 1))
    yield a("sort", x, 1, True, results=(0, 1))
    yield a("kthvalue", f(4, 7), 2, 1, results=(0, 1))
    yield a("kthvalue", f(4, 7), 3, 0, True, results=(0, 1))
    yield a("kthvalue", f(), 1, results=(0, 1))
    yield a("median.dim", f(4, 7), 1, results=(0, 1))
    yield a("median.dim", f(4, 8), 0, True, results=(0, 1))
    yield a("median.dim", with_nan(), 1, results=(0, 1))
    yield a("median.dim", f(0, 3), 1, results=(0, 1))
    yield a("kthvalue", f(0, 3), 1, 1, results=(0, 1))
    yield a("sort", f(0, 3), 1, results=(0, 1))
    yield a("median", f(4, 7))
    yield a("median", with_nan())
    yield a("nanmedian", with_nan())
    nothing = torch.full((2, 3), float("nan"))
    for lines in (f(4, 7), with_nan(), nothing, f()):
        yield a("nanmedian.dim", lines, -1, results=(0, 1))
    yield a("nanmedian.dim", with_nan(), 0, True, results=(0, 1))
    for lines in (i(9, 12, high=4), i(9, 3), f(2, 5).round(), torch.full((3, 1), 2)):
        yield a("mode", lines, results=(0, 1))
    yield a("mode", i(30, 4, high=3), 0, True)
    yield a("mode", f(), results=(0, 1))
    yield a("sort.stable", i(20, high=4), stable=True, dim=0, descending=True, results=(0, 1))
    line, lines = f(20).sort().values, torch.stack([f(9), f(9).relu()]).sort(1).values
    for right in (False, True):
        yield a("searchsorted.Tensor", line, torch.cat([line[::3], f(7), SPECIAL]), right=right)
        yield a("searchsorted.Tensor", lines, f(2, 5), out_int32=True, right=right)
        with_end = torch.cat([line, torch.full((3,), float("nan"))])
        yield a("searchsorted.Tensor", with_end, torch.cat([line[::3], f(7), SPECIAL]), right=right)
        yield a("bucketize.Tensor", f(2, 3), f(0), right=right)
        yield a("searchsorted.Scalar", line, 0.25, right=right)
        yield a("bucketize.Tensor", i(3, 4, high=9), torch.tensor([1, 3, 3, 7]), right=right)
        yield a("bucketize.Scalar", 2.5, torch.tensor([1, 3, 3, 7]), right=right)
    drawn = f(2, 9)
    yield a("searchsorted.Tensor", drawn, f(2, 5), side="right", sorter=drawn.argsort(1))
    yield a("repeat_interleave.Tensor", torch.tensor([2, 0, 3, 1]), output_size=6)
    yield a("repeat_interleave.Tensor", torch.tensor([2, 0, 3]), known=(0,))
    yield a("repeat_interleave.Tensor", torch.tensor([0, 2], dtype=torch.int32), output_size=2)
    yield a("nonzero", i(4, 3, high=2), known=(0,))


def pools() -> Iterator[Case]:
    for rank in (1, 2, 3):
        x = f(2, 3, *[7] * rank)
        for settings in (([3], [2], [1]), ([2],), ([3], [2], [0], True), ([3], [2], [1], True, False)):
            yield a(
                f"avg_pool{rank}d", x, *([v * rank if isinstance(v, list) else v for v in settings])
            )
    yield a("avg_pool2d", f(2, 3, 6, 6), [2, 2], [2, 2], [0, 0], False, True, 3)
    yield a("avg_pool2d", f(3, 6, 6), [2, 2])
    x = f(2, 3, 7, 8)
    yield a("max_pool2d_with_indices", x, [3, 2], [2, 2], [1, 1], [1, 2], True, results=(0, 1))
    yield a("max_pool2d_with_indices", x, [2, 2], results=(0, 1))
    yield a("max_pool3d_with_indices", f(1, 2, 5, 5, 5), [2] * 3, results=(0, 1))
    y, at = torch.ops.aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])
    yield a(
        "max_pool2d_with_indices_backward", f(*y.shape), x, [3, 3], [2, 2], [1, 1], [1, 1], False, at
    )
    for settings in (([3, 3], [2, 2], [1, 1], False, True), ([2, 3], [1, 2], [0, 1], True, False)):
        y = torch.ops.aten.avg_pool2d(x, *settings)
        yield a("avg_pool2d_backward", f(*y.shape), x, *settings, None)
    yield a("avg_pool2d_backward", f(2, 3, 3, 4), x, [2, 2], [2, 2], [0, 0], False, True, 3)
    yield a("adaptive_avg_pool1d", f(2, 3, 7), [3])
    yield a("_adaptive_avg_pool2d", x, [3, 5])
    yield a("_adaptive_avg_pool2d", x, [7, 4])
    yield a("_adaptive_avg_pool2d", x, [1, 1])
    yield a("_adaptive_avg_pool3d", f(1, 2, 4, 5, 6), [2, 3, 3])
    for sizes in ([3, 5], [7, 4], [1, 1], [9, 3]):
        yield a("adaptive_max_pool2d", x, sizes, results=(0, 1))
    yield a("adaptive_max_pool2d", i(3, 7, 8).float(), [3, 3], results=(0, 1))
    yield a("adaptive_max_pool2d", with_nan()[None], [2, 3], results=(0, 1))
    yield a("max_pool2d_with_indices", with_nan()[None], [2, 3], results=(0, 1))
    for sizes in ([0, 3], [3, 0]):
        yield a("adaptive_max_pool2d", x, sizes, results=(0, 1))
        yield a("_adaptive_avg_pool2d", x, sizes)
    yield a("adaptive_max_pool3d", f(1, 2, 4, 5, 6), [2, 3, 3], results=(0, 1))
    volume = f(2, 3, 4, 5, 6)
    for mode, padding, corners in itertools.product((0, 1), (0, 1, 2), (False, True)):
        grid = f(2, 2, 3, 4, 3)
        grid.view(-1)[:5] = torch.tensor([math.nan, 1e9, math.inf, -math.inf, math.nan])
        yield a("grid_sampler_3d", volume, grid, mode, padding, corners, rtol=1e-4, atol=1e-5)
    for mode, padding, corners in itertools.product((0, 1, 2), (0, 1, 2), (False, True)):
        flat = f(2, 3, 4, 2)
        flat.view(-1)[:4] = torch.tensor([math.nan, 0.5, -math.inf, math.nan])
        yield a("grid_sampler_2d", volume[:, 0], flat, mode, padding, corners, rtol=1e-4, atol=1e-5)
    yield a("_adaptive_avg_pool2d_backward", f(2, 3, 3, 5), x)
    for rank in (1, 2, 3):
        image = f(1, 2, *[5] * rank)
        yield a(f"upsample_nearest{rank}d.vec", image, [8] * rank, None)
        yield a(f"upsample_nearest{rank}d.vec", image, None, [2.5] * rank)
    for align in (True, False):
        yield a("upsample_linear1d.vec", f(1, 2, 5), [8], align, None)
        yield a("upsample_bilinear2d.vec", f(1, 2, 5, 6), [8, 3], align, None, atol=1e-5)
        yield a("upsample_bilinear2d.vec", f(1, 2, 5, 6), None, align, [2.0, 1.5], atol=1e-5)
    for name in ("bilinear", "bicubic"):
        for size, align in itertools.product(([3, 13], [9, 2], [1, 6]), (True, False)):
            yield a(f"_upsample_{name}2d_aa", f(2, 1, 9, 6), size, align)
        yield a(f"_upsample_{name}2d_aa", f(1, 2, 9, 7), [5, 3], False, 0.6, 0.5)
    yield a("col2im", f(2, 12, 20), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1])
    yield a("col2im", f(12, 15), [5, 6], [2, 2], [2, 1], [1, 0], [2, 1])


def c(*dims: int) -> Any:
    return torch.complex(f(*dims), f(*dims))


def complex_numbers() -> Iterator[Case]:
    x, y = c(3, 4), c(4)
    for name in ("view_as_real", "_conj", "_conj_physical", "angle", "abs", "neg", "exp", "log",
                 "sin", "sqrt", "tanh", "atan", "reciprocal", "sum", "mean", "prod", "real",
                 "imag"):  # fmt: skip
        yield a(name, x)
    for name in ("real", "_conj_physical", "angle"):
        yield a(name, SPECIAL)
    yield a("angle", i(5, low=-3))
    yield a("vdot", x[0].clone(), y)
    yield a("vdot", f(4), f(4))
    for name in ("add", "sub", "mul", "div"):
        yield a(f"{name}.Tensor", x, y)
        yield a(f"{name}.Tensor", x, f(4))
        yield a(f"{name}.Scalar", x, 1.5 - 2j)
    for power in (2, 2.5, -1, 1 + 2j):
        yield a("pow.Tensor_Scalar", x, power)
    for dtype in (torch.float32, torch.int32, torch.bool, torch.complex128):
        yield a("_to_copy", x, dtype=dtype)
    yield a("_to_copy", f(4), dtype=torch.complex64)
    yield a("var.correction", x, [1])
    yield a("mm", x, c(4, 2))
    yield a("complex", f(3, 4), f(4))
    yield a("polar", u(3, 4), f(4))
    yield a("view_as_complex", f(3, 4, 2))
    yield a("fft_fftfreq", 9, 0.5)
    yield a("fft_rfftfreq", 8)


def transforms() -> Iterator[Case]:
    real, wide = f(3, 4, 5, 6), c(3, 4, 5, 6)
    for normalization, dims in itertools.product((0, 1, 2), ([3], [2], [2, 3], [3, 0], [0, 1, 2, 3])):
        for yes in (True, False):
            yield a("_fft_r2c", real, dims, normalization, yes, atol=1e-5)
            yield a("_fft_c2c", wide, dims, normalization, yes, atol=1e-5)
        x = torch.fft.rfftn(real, dim=dims).contiguous()
        for rest in (2, 1):
            yield a("_fft_c2r", x, dims, normalization, 2 * x.shape[dims[-1]] - rest, atol=1e-4)
    yield a("_fft_r2c", f(7).double(), [0], 0, True, rtol=1e-12)


def linear_algebra() -> Iterator[Case]:
    near = {"rtol": 1e-4, "atol": 1e-5}
    for draw in (f, c):
        square, b = draw(2, 4, 4) + 3 * torch.eye(4), draw(2, 4, 3)
        definite = square @ square.mH + torch.eye(4)
        tall, wide = draw(2, 5, 3), draw(2, 3, 5)
        for upper in (False, True):
            yield a("linalg_cholesky_ex", definite, upper=upper, results=(0, 1), **near)
            yield a("linalg_cholesky_ex", definite, upper=upper, **near)
            yield a("cholesky", definite, upper, **near)
            factor = torch.linalg.cholesky(definite)
            factor = factor.mH.resolve_conj().contiguous() if upper else factor
            yield a("cholesky_solve", b, factor, upper, **near)
            yield a("cholesky_inverse", factor, upper, **near)
            for left, unit in itertools.product((True, False), (True, False)):
                x = b if left else b.mT.contiguous()
                kw = {"upper": upper, "left": left, "unitriangular": unit}
                a_ = square.triu() if upper else square.tril()
                yield a("linalg_solve_triangular", a_, x, **kw, **near)
            yield a("triangular_solve", b, square, upper, True, results=(0,), **near)
        lu, pivots, _ = torch.linalg.lu_factor_ex(square)
        yield a("linalg_lu_factor_ex", tall, results=(0, 1, 2), **near)
        for x in (square, tall, wide):
            yield a("linalg_lu", x, results=(0, 1, 2), **near)
            for mode, results in (("reduced", (0, 1)), ("complete", (0, 1)), ("r", (0, 1))):
                yield a("linalg_qr", x, mode, results=results, **near)
            yield a("geqrf", x, results=(0, 1), **near)
            yield a("_linalg_svd", x, results=(1,), **near)
            yield a("_linalg_svd", x, False, False, results=(0, 1, 2), **near)
            for kind, bounds in (
                ("tensor", {}), ("tensor", {"atol": torch.tensor(0.5)}),
                ("tensor", {"rtol": torch.tensor(0.4)}),
                ("float", {"rtol": 0.4}), ("float", {"atol": 0.5}),
            ):  # fmt: skip
                yield Case(f"aten.linalg_pinv.atol_rtol_{kind}", (x,), bounds, **near)
        yield a("linalg_pinv.atol_rtol_tensor", definite, hermitian=True, **near)
        yield a("lu_unpack", lu, pivots, results=(0, 1, 2), **near)
        yield a("lu_unpack", lu, pivots, False, results=(0, 1, 2), **near)
        yield a("lu_unpack", lu, pivots, True, False, results=(0, 1, 2), **near)
        for left, adjoint in itertools.product((True, False), (True, False)):
            x = b if left else b.mT.contiguous()
            yield a("linalg_lu_solve", lu, pivots, x, left=left, adjoint=adjoint, **near)
        yield a("_linalg_solve_ex", square, b, results=(0, 1, 2, 3), **near)
        yield a("_linalg_solve_ex", square, b.mT.contiguous(), left=False, **near)
        yield a("_linalg_solve_ex", square, b[..., 0].clone(), **near)
        yield a("_linalg_solve_ex", square[0].clone(), b, **near)
        yield a("linalg_inv_ex", square, results=(0, 1), **near)
        exchanged = square[:, [1, 0, 2, 3]]  # of the two one has another sign
        for x in (square, exchanged):
            yield a("_linalg_det", x, results=(0, 1, 2), **near)
            yield a("_linalg_slogdet", x, results=(0, 1), **near)
        for singular in (torch.zeros_like(square), torch.ones_like(square)):
            yield a("_linalg_det", singular)
            yield a("_linalg_slogdet", singular, results=(0, 1))
        for uplo in ("L", "U"):
            yield a("_linalg_eigh", definite, uplo, results=(0,), **near)
            yield a("_linalg_eigh", definite, uplo, False, results=(0, 1), **near)
        yield a("linalg_eig", square, **near)
        yield a("_linalg_eigvals", square, **near)
        for driver in (None, "gels", "gelsd"):
            for x, y in ((tall, draw(2, 5, 2)), (wide, draw(2, 3, 2)), (tall, draw(2, 5))):
                kw = {"driver": driver, "results": (0, 1, 2, 3), **near}
                yield a("linalg_lstsq", x, y, **kw)
        packed, factors = torch.geqrf(tall)
        yield a("linalg_householder_product", packed, factors, **near)
        for left, transpose in itertools.product((True, False), (True, False)):
            x = draw(2, 5, 2) if left else draw(2, 2, 5)
            yield a("ormqr", packed, factors, x, left, transpose, **near)
        sizes = torch.tensor([0.01, 3.0])[:, None, None]
        yield a("linalg_matrix_exp", (square - 3 * torch.eye(4)) * sizes, **near)
    yield a("linalg_matrix_exp", f(3, 3).double() * 4, rtol=1e-11)
    yield a("linalg_matrix_exp", f(0, 3, 3))
    yield a("linalg_inv_ex", (f(4, 4) + 3 * torch.eye(4)).double(), rtol=1e-11)


def alignments() -> Iterator[Case]:
    x, labels = f(9, 3, 5).log_softmax(-1), i(3, 4, low=1, high=5)
    labels[0] = torch.tensor([1, 1, 2, 2])
    lengths = [9, 8, 6], [4, 0, 2]
    few = [3, 8, 0], [4, 3, 0]  # too few steps, none at all
    line = torch.cat([y[:n] for y, n in zip(labels, lengths[1], strict=True)])
    for targets, (inputs, counts), blank in (
        (labels, lengths, 0), (line, lengths, 0), (labels, few, 0), (labels - 1, lengths, 4),
    ):  # fmt: skip
        for kind, as_given in (("default", list), ("Tensor", torch.tensor)):
            given = targets, as_given(inputs), as_given(counts)
            yield a(f"_ctc_loss.{kind}", x, *given, blank)
            losses, sums = torch.ops.aten._ctc_loss(x, targets, inputs, counts, blank)
            for zero_infinity in (False, True):
                rest = losses, sums, blank, zero_infinity
                yield a(f"_ctc_loss_backward.{kind}", f(3), x, *given, *rest, atol=1e-5)


def rounding() -> Iterator[Case]:
    x = torch.cat([SPECIAL, torch.arange(-40, 40) / 8])
    for zero in (0, 3):
        yield a("fake_quantize_per_tensor_affine_cachemask", x, 0.25, zero, -8, 7, results=(0, 1))
        for enabled in (0, 1):
            args = x, *map(torch.tensor, (0.1, zero, enabled)), -8, 7
            name = "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"
            yield a(name, *args, results=(0, 1))
    for kind in ("tensor", "channel"):
        yield a(f"fake_quantize_per_{kind}_affine_cachemask_backward", f(3, 4), mask(3, 4))
    name, zeros = "fake_quantize_per_channel_affine_cachemask", torch.tensor([0, -1, 3, 7])
    yield a(name, f(2, 4, 3), u(4), zeros.to(torch.int32), 1, -8, 7, results=(0, 1))
    yield a(name, f(3, 4), u(4), zeros.float(), 1, 0, 15, results=(0, 1))
    for symmetric, observes, rounds, size in itertools.product((0, 1), (0, 1), (0, 1), (1.0, 1e-6)):
        flags = torch.tensor([observes]), torch.tensor([rounds])
        for per_row, many in ((False, 1), (True, 4)):
            ends = -size * u(many), size * (u(many) + (many > 1)), torch.ones(many), torch.zeros(many)
            zeros = ends[3].to(torch.int32)
            args = *flags, *ends[:3], zeros, 0.01, *(-128, 127), 0, per_row, bool(symmetric)
            name = "_fused_moving_avg_obs_fq_helper_functional"
            yield a(name, f(4, 3) * size, *args, results=(0, 1, 2, 3, 4, 5))


SUBJECTS = {
    g.__name__: list(g())
    for g in (
        *(
            unary,
            special_functions,
            binary,
            conversions,
            reductions,
            products,
            norms,
            shapes,
            creation,
            indexing,
        ),
        *(pools, complex_numbers, transforms, linear_algebra, alignments, rounding),
    )
}
CASES = [c for cases in SUBJECTS.values() for c in cases]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator_on_known_arrays(case: Case) -> None:
    check_all(case, case.eager())


@pytest.mark.parametrize("subject", SUBJECTS)
def test_operators_compiled(subject: str) -> None:
    """All of a subject in one program."""
    for case, found in zip(SUBJECTS[subject], compiled(SUBJECTS[subject]), strict=True):
        check_all(case, found)


# Rows that give no array, or random ones, and those that tests of whole models run.
ELSEWHERE = {
    *(f"aten.sym_{n}" for n in ("size.int", "numel.default", "stride.int", "storage_offset.default")),
    *("aten.sym_is_contiguous.default", "aten._local_scalar_dense.default", "aten.item.default"),
    *("aten._assert_scalar.default", "aten._assert_async.msg", "aten.sym_constrain_range.default"),
    *("aten.sym_constrain_range_for_size.default", "aten._assert_tensor_metadata.default"),
    *(
        f"aten.{n}.default"
        for n in ("rand", "randn", "rand_like", "randn_like", "randperm", "bernoulli")
    ),
    *("aten.bernoulli.p", "aten.normal.float_float", "aten.randint.low"),
    *(f"aten.{n}.default" for n in ("uniform", "normal_functional", "exponential", "randint")),
    *("aten.empty.memory_format", "aten.empty_like.default"),
    *("aten.new_empty.default", "aten.empty_strided.default", "aten.empty_permuted.default"),
    *(
        "prims.convert_element_type.default",
        "prims.iota.default",
        "aten.mm.dtype",
        "aten.bmm.dtype",
        "aten.atan2.out",
        "aten.max_pool1d_with_indices.default",
        "transformers.grouped_mm_fallback.default",  # the function of _grouped_mm
    ),
}


def test_random_numbers_are_of_their_distributions() -> None:
    def draw(x: Any) -> Any:
        empty = torch.empty_like(x)
        return (
            empty.uniform_(2, 6), torch.empty_like(x).normal_(3, 2), torch.normal(-1.0, 0.5, (4096,)),
            torch.empty_like(x).exponential_(2.0), torch.randint(5, (4096,)),
            torch.randint(-2, 3, (4096,)),
        )  # fmt: skip

    found = [np.asarray(y) for y in neuronsim.compile(draw, f(4096), auto_cast="none")(f(4096))]
    means, deviations = [4, 3, -1, 0.5, 2, 0], [4 / 12**0.5, 2, 0.5, 0.5, 2**0.5, 2**0.5]
    for line, mean, deviation in zip(found, means, deviations, strict=True):
        assert line.mean() == pytest.approx(mean, abs=5 * deviation / 64)
        assert line.std() == pytest.approx(deviation, rel=0.1)
    assert found[0].min() >= 2
    assert found[0].max() <= 6
    assert found[3].min() >= 0
    assert [np.unique(x).tolist() for x in found[4:]] == [[0, 1, 2, 3, 4], [-2, -1, 0, 1, 2]]


def test_every_row_has_a_case() -> None:
    own = {name for name in OPERATORS if not name.startswith("quantized_decomposed.")}
    assert own - {c.target for c in CASES} == ELSEWHERE  # test_torch_quantized.py has the others


def test_the_core_overloads_have_rows_or_a_reason() -> None:
    unread = tomllib.loads((ROOT / "docs" / "torch_unread.toml").read_text())
    core = maker().core_overloads()
    assert core - set(OPERATORS) == set(unread)
    assert len(core & set(OPERATORS)) >= 150


def maker() -> Any:
    return load_script("docs/make_torch_operators.py")


def test_the_page_of_operators_is_what_its_generator_writes() -> None:
    page = maker()
    if "2.13" not in torch.__version__:
        pytest.skip("the page is of PyTorch 2.13")
    assert page.PAGE.read_text(encoding="utf-8") == page.page()
