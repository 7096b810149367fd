"""The functions of rules E3 and E4 on arrays: types, names, host arrays and the activations in nn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim import nn, ops
from neuronsim.errors import InvalidArgument

FUNCTIONS = sorted(name for name in ops.FUNCTIONS_OF_FLOATS if ops.by_name(name).arity == 1)
INTEGERS = ["int8", "int64", "uint16", "bool"]


# ---- types ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", ["float32", "bfloat16"])
def test_integers_take_the_default_float_type(default: str, restored_default: None) -> None:
    np.set_default_dtype(default)
    for name, dtype in itertools.product(FUNCTIONS, INTEGERS):
        x = np.asarray([0, 1, 1, 0] if dtype == "bool" else [0, 1, 2, 5], dtype)
        y = getattr(np, name)(x)
        assert y.dtype.name == default, name
        assert y.tobytes() == getattr(np, name)(x.astype(default)).tobytes()


@each_of("name", FUNCTIONS)
def test_float_types_stay(name: str) -> None:
    """One rounding of the float32 function (E1)."""
    for dtype in ["bfloat16", "float16", "float8_e4m3", "tfloat32"]:
        x = np.asarray([0.5, 1.0, 2.5, 7.0], dtype)
        y = getattr(np, name)(x)
        assert y.dtype.name == dtype
        assert y.tobytes() == getattr(np, name)(x.astype("float32")).astype(dtype).tobytes()


def test_integer_powers_stay_integers_and_other_pairs_do_not() -> None:
    x, y = np.asarray([2, 3]), np.asarray([5, 2])
    assert np.power(x, y).dtype is np.int64
    assert np.power(x, y).tolist() == [32, 9]
    for name in ("atan2", "hypot", "logaddexp", "logaddexp2"):
        assert getattr(np, name)(x, y).dtype is np.float32


# ---- the host (H1) -------------------------------------------------------------------------------

ON_HOST: dict[str, Callable[[float], float]] = {
    **{name: getattr(math, name) for name in ("exp", "expm1", "log", "log2", "log10", "log1p", "sin")},
    **{name: getattr(math, name) for name in ("cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{name: getattr(math, name) for name in ("tanh", "asinh", "acosh", "atanh", "erf", "erfc")},
    "exp2": lambda x: 2.0**x,
    "sqrt": math.sqrt,
    "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x),
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_sigmoid": lambda x: x / (1 + math.exp(-1.702 * x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
}


def slope(f: Callable[[float], float], x: float) -> float:
    return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5


SLOPES = {f"{name}_dx": ON_HOST[name] for name in ("silu", "gelu", "gelu_sigmoid")}
DOMAINS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(["asin", "acos", "atanh"], (-0.9, 0.1, 0.75)),
    **dict.fromkeys(["log", "log2", "log10", "sqrt", "rsqrt"], (0.1, 1.5, 300.0)),
    "log1p": (-0.9, 1e-9, 5.0),
    "acosh": (1.0, 1.5, 30.0),
}


def test_the_host_has_every_function() -> None:
    assert set(ON_HOST) | set(SLOPES) == set(FUNCTIONS)


@each_of("name", FUNCTIONS)
def test_float64_arrays_use_the_host_H1(name: str) -> None:
    values = DOMAINS.get(name, (-3.5, -0.3, 1e-9, 0.7, 4.0))
    y = getattr(np, name)(np.asarray(values, "float64"))
    assert y.dtype is np.float64
    if name in SLOPES:
        assert y.tolist() == pytest.approx([slope(SLOPES[name], x) for x in values], rel=1e-6, abs=1e-9)
    else:
        assert y.tolist() == pytest.approx([ON_HOST[name](x) for x in values], rel=1e-13)


@pytest.mark.parametrize("name", ["exp", "sin", "log", "tanh", "arctan2", "hypot", "power", "sqrt"])
def test_float64_functions_that_numpy_has_are_numpys_H1(name: str) -> None:
    x = numpy.random.default_rng(0).uniform(0.1, 9, 100)
    operands = [x, x[::-1].copy()] if name in ("arctan2", "hypot", "power") else [x]
    ours = getattr(np, name)(*(np.asarray(a) for a in operands))
    assert ours.tobytes() == getattr(numpy, name)(*operands).tobytes()


# ---- names ---------------------------------------------------------------------------------------

ALIASES = {
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    "pow": "power",
}


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_a_function_has_both_of_its_names(alias: str, name: str) -> None:
    assert getattr(np, alias) is getattr(np, name)
    assert alias in np.__all__


# ---- nn ------------------------------------------------------------------------------------------


@each_of("name", ["sigmoid", "silu", "gelu", "softplus", "mish"])
@each_of("dtype", ["float32", "bfloat16", "float8_e4m3", "int32", "float64"])
def test_nn_has_the_activations(name: str, dtype: str) -> None:
    x = np.asarray([-2, 0, 1, 3], dtype)
    assert getattr(nn, name)(x).tobytes() == getattr(np, name)(x).tobytes()


def test_nn_gelu_has_three_forms() -> None:
    x = np.asarray([-2.0, 0.3, 1.0])
    for approximate, name in (("none", "gelu"), ("tanh", "gelu_tanh"), ("sigmoid", "gelu_sigmoid")):
        assert nn.gelu(x, approximate=approximate).tobytes() == getattr(np, name)(x).tobytes()
    assert len({nn.gelu(x, a).tobytes() for a in ("none", "tanh", "sigmoid")}) == 3
    wrong: Any = "erf"
    with pytest.raises(InvalidArgument, match="none, tanh, sigmoid"):
        nn.gelu(x, wrong)


def test_nn_relu_is_the_maximum_with_zero_E7() -> None:
    y = nn.relu(np.asarray([-1.5, -0.0, 0.0, 2.5, math.inf, -math.inf, math.nan], dtype="float16"))
    assert y.tobytes() == numpy.array([0, 0, 0, 2.5, math.inf, 0, math.nan], numpy.float16).tobytes()
    assert nn.relu(np.asarray([-3, 4])).tolist() == [0, 4]
    assert nn.relu(np.asarray([-3, 4])).dtype is np.int64


@each_of("name", ["silu", "gelu", "gelu_tanh", "gelu_sigmoid", "mish"])
@each_of("dtype", ["float32", "float64"])
def test_activations_at_infinity_E3_H1(name: str, dtype: str) -> None:
    x = np.asarray([-math.inf, math.inf], dtype)
    for suffix, ends in (("", [-0.0, math.inf]), ("_dx", [-0.0, 1.0])):
        function = getattr(np, name + suffix, None)
        if function is not None:
            found = function(x).tolist()
            assert found == ends
            assert math.copysign(1, found[0]) == -1
