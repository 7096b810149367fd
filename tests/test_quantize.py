"""`quantize`: methods of calibration, granularities, what is left out, what falls back, and data that
cannot be calibrated with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import neuronsim as ns
from neuronsim import dtypes
from neuronsim.arrays import nn
from neuronsim.casting.decisions.quantization import FLOATS
from neuronsim.casting.policies.ranges import METHODS, Seen, counts_values
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.hlo.module import Module
from tests.support.parameters import each_of
from tests.support.places import DIGITS

pytestmark = pytest.mark.isa_independent  # doors and plans

RNG = np.random.default_rng(30)


@pytest.fixture(scope="module")
def digits() -> tuple[str, dict[str, Any]]:
    with np.load(DIGITS / "test.npz") as data:
        return str(DIGITS / "model.hlo.pb"), {n: data[n][:192] for n in data.files}


def accuracy(model: Any, data: dict[str, Any], plan: Any = None) -> float:
    program = ns.compile(model, auto_cast="none") if plan is None else ns.compile(model, plan=plan)
    found = np.concatenate([np.asarray(program(data["x"][i : i + 64])) for i in range(0, 192, 64)])
    return float((found.argmax(-1) == data["labels"]).mean())


def quantized(plan: Any) -> list[str]:
    return [n for n, d in plan.decisions.items() if d.quantizes]


@each_of("method", METHODS)
@each_of("symmetric", [False, True])
def test_digits_lose_no_accuracy(digits: Any, method: str, symmetric: bool) -> None:
    model, data = digits
    plan = ns.quantize(model, data, method=method, symmetric=symmetric)
    assert len(quantized(plan)) == 10
    assert accuracy(model, data, plan) >= accuracy(model, data) - 0.006


@pytest.mark.parametrize(
    "choices",
    [
        {"per_channel": False},
        {"weight_only": True},
        {"weight_only": True, "others": "bf16"},
        {"activations": dtypes.uint8},
        {"others": "bf16"},
        {"others": "neural-compressor/bfloat16"},
        {"bias": dtypes.int32},
        {"bias": dtypes.int32, "per_channel": False, "others": "bf16"},
    ],
)
def test_digits_in_other_granularities_and_with_bfloat16(digits: Any, choices: Any) -> None:
    model, data = digits
    plan = ns.quantize(model, data, **choices)
    assert accuracy(model, data, plan) >= accuracy(model, data) - 0.006
    low = [d for d in plan.decisions.values() if d.output is dtypes.bfloat16]
    assert bool(low) == ("others" in choices)
    biases = [d.bias for d in plan.decisions.values() if d.bias]
    assert len(biases) == (3 if "bias" in choices else 0)
    assert not set(biases) & plan.decisions.keys()
    if choices.get("weight_only"):
        weights = ns.compile(model, plan=plan).module.entry_computation.instructions
        assert sum(i.opcode == "constant" and i.array.dtype is dtypes.int8 for i in weights) >= 7


def test_a_choice_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"quantize\(\) got .* 'methods' \(did you mean 'method'\?\)"):
        ns.quantize("no model is read before", {}, methods="mse")


def test_exclusions_and_operation_lists(digits: Any) -> None:
    model, data = digits
    whole = quantized(ns.quantize(model, data))
    plan = ns.quantize(model, data, exclude=("*.10", "dot_general.12"))
    assert set(whole) - set(quantized(plan)) == {"dot_general.10", "dot_general.12"}
    assert "excluded by '*.10'" in plan.kept["dot_general.10"]
    assert "excluded" in plan.explain("dot_general.12")
    assert not quantized(ns.quantize(model, data, operations=("convolution",)))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("dot_general.1000", "names no product of 'jit_classify' \\(did you mean 'dot_general.10'"),
        ("add*", "names no product of .*: there are dot_general.*"),
        ("head/*", "names no product"),
    ],
)
def test_exclusions_of_nothing_are_refused(digits: Any, pattern: str, message: str) -> None:
    model, data = digits
    with pytest.raises(InvalidArgument, match=message):
        ns.quantize(model, data, exclude=("*.10", pattern))


def test_exclusions_may_name_the_computation(digits: Any) -> None:
    model, data = digits
    found = [ns.quantize(model, data, exclude=(p,)) for p in ("*/dot_general.10", "dot_general.10")]
    assert quantized(found[0]) == quantized(found[1])


def test_what_falls_back_is_as_little_as_the_tolerance_asks(digits: Any) -> None:
    """The strategy basic: INT8, BF16 and FP32 in one plan."""
    model, data = digits
    only_x = {"x": data["x"]}
    all_of_it = ns.quantize(model, only_x, tolerance=1.0)
    assert len(quantized(all_of_it)) == 10
    some = ns.quantize(model, only_x, tolerance=0.006)
    assert 0 < len(quantized(some)) < 10
    reference, found = (
        np.asarray(p(data["x"][:64]))
        for p in (ns.compile(model, auto_cast="none"), ns.compile(model, plan=some))
    )
    assert np.linalg.norm(found - reference) <= 0.008 * np.linalg.norm(reference)
    told = [why for why in some.kept.values() if "falls back" in why]
    assert len(told) == 10 - len(quantized(some))
    assert not quantized(ns.quantize(model, only_x, tolerance=0.0))
    mixed = ns.quantize(model, data, tolerance=0.01, others="bf16")
    outputs = {d.output for d in mixed.decisions.values() if not d.quantizes}
    assert quantized(mixed)
    assert dtypes.bfloat16 in outputs


# ---- a small model of convolutions -----------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Module:
    w = RNG.normal(0, 0.3, (8, 4, 3, 3)).astype(np.float32)
    w[3] = 0  # a channel of zeros

    def net(x: Any) -> Any:
        y = ns.maximum(nn.conv(x, ns.asarray(w), padding=1), 0.0)
        return ns.matmul(y.reshape(2, -1), ns.asarray(RNG.normal(0, 0.1, (288, 3)).astype(np.float32)))

    return ns.compile(net, ns.zeros((2, 4, 6, 6), dtype="float32"), auto_cast="none").model


X = RNG.normal(0, 1, (16, 4, 6, 6)).astype(np.float32)


def test_a_channel_of_zeros_takes_the_scale_1(small: Module) -> None:
    plan = ns.quantize(small, {"x": X})
    weights = plan.decisions["convolution"].quantized_operands[1]
    assert weights is not None
    assert weights.scale[3] == 1.0
    assert len(set(weights.scale)) == 8
    assert np.isfinite(np.asarray(ns.compile(small, plan=plan)(X[:2]))).all()


def test_a_convolution_is_padded_with_its_zero_point(small: Module) -> None:
    """Values far from 0, whose zero point is a limit: what pads is still 0."""
    x = X + 9
    plan = ns.quantize(small, {"x": x})
    found, wanted = (
        np.asarray(p(x[:2]))
        for p in (ns.compile(small, plan=plan), ns.compile(small, auto_cast="none"))
    )
    assert np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_calibration_data_that_are_not_finite_are_refused(small: Module, value: float) -> None:
    x = X.copy()
    x[3, 1, 2, 2] = value
    with pytest.raises(InvalidData, match="NaN" if np.isnan(value) else "Inf"):
        ns.quantize(small, {"x": x})


def test_another_modules_calibration_is_refused_even_where_no_rule_asks_for_it(small: Module) -> None:
    other = ns.calibrate(lambda x: ns.exp(x), {"x": np.ones((4, 2), np.float32)})
    with pytest.raises(InvalidArgument, match="the calibration was made for"):
        ns.quantize(small, {"x": X}, calibration=other)
    with pytest.raises(InvalidArgument, match="the calibration was made for"):
        ns.tune(small, {"x": X}, calibration=other)
    plan = ns.quantize(small, {"x": X})
    with pytest.raises(InvalidArgument, match="the calibration was made for"):
        ns.compile(small, plan=plan, calibration=other)


def test_an_empty_set_is_refused_and_one_sample_is_enough(small: Module) -> None:
    with pytest.raises(InvalidData, match="has no samples"):
        ns.quantize(small, {"x": X[:0]})
    for method in METHODS:
        plan = ns.quantize(small, {"x": X[:1]}, method=method)
        assert np.isfinite(np.asarray(ns.compile(small, plan=plan)(X[:2]))).all()


@each_of("method", ["percentile", "entropy", "mse"])
def test_what_fills_a_batch_up_is_not_calibrated_with(small: Module, method: str) -> None:
    """An odd sample that comes last is counted once, as it is where it comes first."""
    x = X[:15].copy()
    x[0] *= 20
    plans = [ns.quantize(small, {"x": y}, method=method, percentile=99.0) for y in (x, x[::-1])]
    first, last = ({n: d.quantized_operands for n, d in p.decisions.items()} for p in plans)
    assert first == last


@pytest.mark.parametrize("value", [0.0, 7.5, -1e-45, 1e38])
def test_a_constant_tensor(small: Module, value: float) -> None:
    """Never NaN of finite data, never a division by zero."""
    for method in METHODS:
        plan = ns.quantize(small, {"x": np.full_like(X, value)}, method=method)
        found = np.asarray(ns.compile(small, plan=plan)(np.full_like(X[:2], value)))
        assert not np.isnan(found).any()


def test_values_that_are_not_finite_inside_are_left_out_and_told() -> None:
    def net(x: Any) -> Any:
        return ns.matmul(ns.log(x), ns.asarray(np.eye(4, dtype=np.float32)))

    x = np.abs(RNG.normal(0, 1, (8, 4))).astype(np.float32)
    x[0, 0] = 0
    plan = ns.quantize(net, {"x": x})
    assert "1 not finite" in plan.explain("dot")
    with pytest.raises(InvalidData, match="no finite value"):
        ns.quantize(net, {"x": np.zeros((8, 4), np.float32)})


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"method": "minimax"}, "did you mean 'minmax'"),
        ({"activations": dtypes.int16}, "one of int8, uint8"),
        ({"percentile": 101.0}, "percentile"),
        ({"bias": dtypes.bfloat16}, "float32 or int32"),
        ({"bias": dtypes.int32, "weight_only": True}, "sums in int32"),
        ({"recipe": "minmax,fp8_e4m3,int32-bias"}, "sums in int32"),
        ({"operations": ("add",)}, "operations"),
        ({"tolerance": -1.0}, "tolerance"),
    ],
)
def test_choices_that_are_none(small: Module, choices: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        ns.quantize(small, {"x": X}, **choices)


# ---- methods ----------------------------------------------------------------------------------------


def seen(method: str, x: Any, **more: Any) -> tuple[float, float]:
    s = Seen(method, **more)
    for part in np.array_split(x, 4):
        s.add(part)
    for part in np.array_split(x, 4) if counts_values(method) else ():
        s.count(part)
    return s.range()


def test_ranges_of_the_methods() -> None:
    """One outlier: min-max keeps it, all others do not; without one they stay near the range."""
    x = RNG.normal(0, 1, 40_000).astype(np.float32)
    outlier = x.copy()
    outlier[7] = 300
    assert seen("minmax", outlier) == (outlier.min(), 300)
    low, high = seen("percentile", outlier, percentile=99.9)
    assert -4 < low < -2
    assert 2 < high < 5
    assert seen("moving_average", outlier)[1] < 300
    for method in ("entropy", "mse"):
        assert seen(method, outlier)[1] < 300
        low, high = seen(method, x)
        assert high > 0.5 * x.max()
        assert low < 0.5 * x.min()
    assert seen("mse", x)[1] <= x.max()


@pytest.mark.parametrize("own", [dtypes.int8, *FLOATS], ids=str)
def test_the_least_squared_error_is_that_of_the_type(own: dtypes.DType) -> None:
    """As ml_dtypes rounds all the values themselves; what suits integers clips floats too much."""
    x = np.float32(np.random.default_rng(40).standard_t(2, 40_000))  # in whatever order tests run

    def error(top: float) -> float:
        if own is dtypes.int8:
            low = x.min() * top / x.max()
            step = (top - low) / 255
            return float(np.square(np.rint((np.clip(x, low, top) - low) / step) * step + low - x).sum())
        scale = np.float32(max(top, -x.min() * top / x.max()) / own.max)
        bits = np.clip(x / scale, -own.max, own.max).astype(own.numpy)
        return float(np.square(bits.astype(np.float32) * scale - x).sum())

    found = {t: error(seen("mse", x, type=t)[1]) for t in (dtypes.int8, own)}
    assert found[own] <= 1.03 * min(error(x.max() * share) for share in np.linspace(1, 0.1, 91))
    if own is not dtypes.int8:
        assert found[dtypes.int8] > found[own]
        assert seen("entropy", x, type=own)[1] > seen("entropy", x)[1]
