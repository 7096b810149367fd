"""Rule Q7: biases in the int32 sums of products of integers, by the exact twin; which additions have
one, where it stays float32, and what plans say of it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from tests.support.parameters import each_of

import neuronsim as ns
from neuronsim import dtypes, ops
from neuronsim.arrays import nn
from neuronsim.casting.decisions.biases import find_biases, integer_bias
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.quantization import Quantization, quantization_of
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.explain import line_sentence, lines, type_difference, types_of
from neuronsim.casting.plans.plan import Plan
from neuronsim.errors import InvalidArgument
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module
from neuronsim.reference import quantization as twin
from neuronsim.reference.formats import from_float
from neuronsim.tuning.trials import Trial

F32 = dtypes.float32
LEAST, MOST = -(1 << 31), (1 << 31) - 1


def bits(x: Any) -> int:
    return from_float("float32", float(x))


def one(kind: dtypes.DType, scale: Any, zero: int = 0) -> Quantization:
    return Quantization(kind, (float(np.float32(scale)),), (zero,))


# ---- the integers ----------------------------------------------------------------------------------


@each_of("pair", [(0.5, 2.0**-7), (0.0278, 0.0045), (3e-16, 7e-18), (1e15, 3e12)])
def test_integers_of_a_bias_Q7_at_ties_and_limits(pair: tuple[float, float]) -> None:
    """Halves, where the quotient is exact or nearly, their neighbours, large ones, whose float32
    quotients have no units, and those that int32 does not hold.
    """
    scales = np.float32(pair[0]), np.float32(pair[1])
    by = one(dtypes.int32, scales[0] * scales[1])
    halves = np.arange(-40, 41) + np.array([[0.5], [2.0**20 + 0.5], [2.0**27 + 7]])
    middle = (halves.reshape(-1) * by.scale[0]).astype(np.float32)
    ends = np.float32([LEAST, MOST, 2.0**33, -(2.0**31) * 1.0001]) * np.float32(by.scale[0])
    x = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), ends])
    x = np.append(x, np.float32([np.inf, -np.inf, np.nan, 0, -0.0]))
    expected = [twin.quantize_bias(int(w), (bits(scales[0]), bits(scales[1]))) for w in x.view("u4")]
    found = by.quantized(x)
    assert found.dtype == np.int32
    assert found.tolist() == expected
    assert expected[-5:] == [MOST, LEAST, 0, 0, 0]
    in_float32 = np.rint(x[:81] / np.float32(by.scale[0])).astype(int)
    assert np.abs(in_float32 - expected[:81]).max() <= 1


def test_ties_of_a_bias_Q7_are_even() -> None:
    found = one(dtypes.int32, 2.0**-4).quantized(np.float32([0.5, 1.5, 2.5, -0.5, -1.5]) / 16)
    assert found.tolist() == [0, 2, 2, 0, -2]


# ---- products --------------------------------------------------------------------------------------


def layer(kind: str, bias: Any, seed: int) -> tuple[Module, Any, Any]:
    """A module of one product and its bias, an input, and the weights."""
    rng = np.random.default_rng(seed)
    dims: tuple[int, ...] = (2, 5, 8) if kind == "dot" else (2, 4, 7, 7)
    w = rng.normal(0, 0.5, (8, 6) if kind == "dot" else (6, 4, 3, 3)).astype(np.float32)
    x = rng.normal(0, 1, dims).astype(np.float32)

    def net(x: Any) -> Any:
        if kind == "dot":
            return ns.matmul(x, ns.asarray(w)) + ns.asarray(bias)
        return nn.conv(x, ns.asarray(w), padding=1) + ns.asarray(bias.reshape(-1, 1, 1))

    return ns.compile(net, x, auto_cast="none").model, x, w


def summed(kind: str, a: Any, b: Any) -> Any:
    """The sums of products of integers, in int64."""
    if kind == "dot":
        return a @ b
    padded = np.pad(a, [(0, 0), (0, 0), (1, 1), (1, 1)])
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.moveaxis(np.tensordot(views, b, ((1, 4, 5), (1, 2, 3))), -1, 1)


def decided(model: Module, lhs: Any, rhs: Any, result: Any = None) -> Plan:
    """A plan that quantizes the module's product and the bias behind it."""
    entry = model.entry_computation
    ((name, bias),) = find_biases(entry, entry.by_name).items()
    d = Decision(
        F32, F32, F32, "by hand",
        quantized_operands=(lhs, rhs), quantized_result=result, bias=bias.addition.name,
    )  # fmt: skip
    return Plan("by hand", model.name, fingerprint(model), {name: d})


@each_of("zero", [0, 37])
@each_of("by_channel", [False, True])
@each_of("requantized", [False, True])
@each_of("kind", ["dot", "convolution"])
def test_products_with_biases_Q7(kind: str, requantized: bool, by_channel: bool, zero: int) -> None:
    """float32(sum + bias) times the scales, by the twin and integers in int64, where float32 behind the
    sums gives other bits; the literal module's are the same, XLA's too, and the bias is in the
    product's one pass.
    """
    bias = np.random.default_rng(7).normal(0, 3, 6).astype(np.float32)
    model, x, w = layer(kind, bias, 70)
    lhs = one(dtypes.int8, 0.021, zero)
    axis = 1 if kind == "dot" else 0
    most = (
        np.abs(w).max(tuple(n for n in range(w.ndim) if n != axis)) if by_channel else np.abs(w).max()
    )
    rhs = quantization_of(-most, most, dtypes.int8, symmetric=True, axis=axis if by_channel else None)
    result = one(dtypes.uint8, 0.07, 120) if requantized else None
    plan = decided(model, lhs, rhs, result)
    program, literal = (ns.compile(model, plan=plan, clean=c) for c in (True, False))
    found = np.asarray(program(x))
    np.testing.assert_array_equal(found, np.asarray(literal(x)))
    integers = [
        twin.quantize_bias(bits(b), (bits(lhs.scale[0]), bits(s)))
        for b, s in zip(bias, np.broadcast_to(rhs.scale, 6), strict=True)
    ]
    shape = (6,) if kind == "dot" else (6, 1, 1)
    sums = summed(kind, lhs.quantized(x).astype(int) - zero, rhs.quantized(w).astype(int))
    factors = (np.float32(lhs.scale) * np.float32(rhs.scale)).reshape(shape if by_channel else ())
    totals = (sums + np.array(integers).reshape(shape)).astype(np.float32)
    if result is None:
        expected = totals * factors
        behind = sums.astype(np.float32) * factors + bias.reshape(shape)
        assert (expected != behind).any()
    else:
        nearest = np.rint(totals * (factors / np.float32(result.scale[0]))) + 120
        expected = result.dequantized(np.clip(nearest, 0, 255).astype(np.uint8))
    np.testing.assert_array_equal(found, expected)
    steps = [t.opcodes for t in program.timings(x) if kind in t.opcodes]
    assert len(steps) == 1
    assert {kind, "subtract", "convert", "multiply"} <= set(steps[0])
    # One takes the bias and the zero point's part, one the result's zero point.
    assert sum(o == "subtract" for o in steps[0]) == 1 + requantized
    on_xla(program, x, found)


def test_requantize_exact_Q3_is_of_the_sums_with_their_biases_Q7() -> None:
    """By the ratio 3/2, of which every other sum is a tie."""
    bias = np.float32([3, -1.5, 21, 0.75, -9, 6])
    model, _, w = layer("dot", bias, 72)
    lhs, rhs = one(dtypes.int8, 3.0), one(dtypes.int8, 2.0**-9 * 49)
    result = one(dtypes.uint8, 98 * 2.0**-9, 120)
    x = np.random.default_rng(72).integers(-3, 4, (2, 5, 8)).astype(np.float32) * 3
    plan = decided(model, lhs, rhs, result)
    pair = bits(lhs.scale[0]), bits(rhs.scale[0])
    integers = [twin.quantize_bias(bits(b), pair) for b in bias]
    totals = lhs.quantized(x).astype(int) @ rhs.quantized(w).astype(int) + integers
    assert len(set(totals.reshape(-1) % 2)) == 2
    for requantize in ("exact", "float32"):
        program = ns.compile(model, plan=plan, profile=ns.Profile(requantize=requantize))
        expected = [
            twin.requantize(
                int(t), pair, bits(result.scale[0]), 120,
                bits=8, signed=False, exact=requantize == "exact",
            )
            for t in totals.reshape(-1)
        ]  # fmt: skip
        assert len(set(expected)) > 20
        found = np.asarray(program(x)).reshape(-1)
        np.testing.assert_array_equal(found, result.dequantized(np.uint8(expected)))


def on_xla(program: Any, x: Any, expected: Any) -> None:
    pytest.importorskip("jax")
    from tests.executor import xla

    (theirs,) = xla.execute(program.module, [ops.Bits(x, F32)])
    np.testing.assert_array_equal(theirs, expected)


def test_a_bias_Q7_as_large_as_the_sums_leave_room_for() -> None:
    """The largest that is taken, and the next, which is not; no sum wraps."""
    model, x, w = layer("dot", np.full(6, 2.0**30 - 2.0**17, np.float32), 71)
    lhs, rhs = one(dtypes.int8, 2.0), one(dtypes.int8, 0.25)
    ((_, bias),) = find_biases(model.entry_computation, {"dot"}).items()
    room = MOST - 1 - 8 * 128 * 128
    for steps in (room, -room):
        values = np.full((1, 1, 6), steps / 2)  # float64: not all are numbers of float32
        _, integers = integer_bias(dataclasses.replace(bias, values=values), lhs, rhs)
        assert set(integers.reshape(-1).tolist()) == {steps}
        more = np.full((1, 1, 6), (abs(steps) + 1) / 2)
        with pytest.raises(InvalidArgument, match="8 products of bytes may leave int32"):
            integer_bias(dataclasses.replace(bias, values=more), lhs, rhs)
    found = np.asarray(ns.compile(model, plan=decided(model, lhs, rhs))(x * 200))
    sums = lhs.quantized(x * 200).astype(int) @ rhs.quantized(w).astype(int)
    np.testing.assert_array_equal(found, (sums + (1 << 31) - (1 << 18)).astype(np.float32) / 2)


# ---- which additions have one ----------------------------------------------------------------------

B = np.float32([0.5, -1, 2, 0, 3, 4])
W = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)
X = np.linspace(-2, 2, 40, dtype=np.float32).reshape(5, 8)


def product(x: Any) -> Any:
    return ns.matmul(x, ns.asarray(W))


@each_of(
    ("net", "shape"),
    [
        (lambda x: product(x) + ns.asarray(B), (1, 6)),
        (lambda x: ns.asarray(B) + product(x), (1, 6)),
        (lambda x: product(x) + 3.0, (1, 1)),
        (lambda x: product(x) + ns.asarray(np.tile(B, (5, 1))), (1, 6)),
        (lambda x: product(x) + ns.asarray(B[:5, None]), (5, 1)),
        (lambda x: product(x) + ns.asarray(B.reshape(6, 1)).reshape(1, 6), (1, 6)),
        (lambda x: product(x) + ns.permute_dims(ns.asarray(B.reshape(6, 1)), (1, 0)), (1, 6)),
        (lambda x: product(x) + ns.asarray(np.outer(B[:5], B)), None),  # no bias but a matrix
        (lambda x: product(x) - ns.asarray(B), None),
        (lambda x: product(x) + x[:, :6], None),
        (lambda x: (lambda y: (y + ns.asarray(B)) * y)(product(x)), None),  # read twice
        (lambda x: ns.tanh(product(x)) + ns.asarray(B), None),
        (lambda x: product(x), None),
    ],
)
def test_additions_of_biases_are_found_Q7(net: Any, shape: Any) -> None:
    model = ns.compile(net, X, auto_cast="none").model
    entry = model.entry_computation
    found = list(find_biases(entry, entry.by_name).values())
    assert [b.values.shape for b in found] == ([] if shape is None else [shape])
    plan = ns.quantize(model, {"x": X}, "minmax,int32-bias")
    taken = [d.bias for d in plan.decisions.values() if d.bias]
    assert len(taken) == (shape is not None and shape[0] == 1)  # else beside scales of columns
    exact, integers = (
        np.asarray(p(X)) for p in (ns.compile(model, auto_cast="none"), ns.compile(model, plan=plan))
    )
    assert np.linalg.norm(integers - exact) < 0.02 * np.linalg.norm(exact)


def test_a_bias_of_rows_is_taken_beside_one_scale_Q7() -> None:
    model = ns.compile(lambda x: product(x) + ns.asarray(B[:5, None]), X, auto_cast="none").model
    plan = ns.quantize(model, {"x": X}, "minmax,int32-bias,per-tensor")
    assert [d.bias for d in plan.decisions.values()] == ["add"]
    exact, found = (
        np.asarray(p(X)) for p in (ns.compile(model, auto_cast="none"), ns.compile(model, plan=plan))
    )
    assert np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)


@each_of(
    ("bias", "scheme", "why"),
    [
        (np.where(B == 2, np.inf, B), "minmax", "it is not finite"),
        (B * 1e9, "minmax", "with 8 products of bytes may leave int32"),
        (B[:5, None], "minmax", "another axis than the scales"),
    ],
)
def test_a_bias_that_the_sums_may_not_take_stays_float32_Q7(bias: Any, scheme: str, why: str) -> None:
    """The plan says why, and gives what it gives without int32 biases."""
    model = ns.compile(lambda x: product(x) + ns.asarray(np.float32(bias)), X, auto_cast="none").model
    plan, plain = (ns.quantize(model, {"x": X}, s) for s in (f"{scheme},int32-bias", scheme))
    (name,) = plan.decisions
    assert not plan.decisions[name].bias
    assert "; the bias of add stays float32: " in plan.explain(name)
    assert why in plan.explain(name)
    np.testing.assert_array_equal(*(np.asarray(ns.compile(model, plan=p)(X)) for p in (plan, plain)))


def test_scales_whose_product_is_none_leave_the_bias_float32_Q7() -> None:
    tiny = np.float32(1e-24)
    model = ns.compile(
        lambda x: ns.matmul(x, ns.asarray(W * tiny)) + ns.asarray(B), X, auto_cast="none"
    ).model
    plan = ns.quantize(model, {"x": X * tiny}, "minmax,int32-bias")
    assert "add stays float32: a scale is a normal float32" in plan.explain("dot")


# ---- what plans say --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Module:
    net = ns.compile(lambda x: ns.tanh(product(x) + ns.asarray(B)), X, auto_cast="none")
    return net.model


LHS, RHS = one(dtypes.uint8, 0.02, 100), one(dtypes.int8, 0.01)


def test_plans_and_programs_keep_biases(model: Module, tmp_path: Any) -> None:
    plan = decided(model, LHS, RHS)
    without = dataclasses.replace(
        plan, decisions={"dot": dataclasses.replace(plan.decisions["dot"], bias="")}
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert list(plan.diff(without)) == list(type_difference(plan, without)) == ["dot"]
    assert Trial(plan).key != Trial(without).key
    assert "sums in int32 with the bias of add and gives float32" in plan.explain("dot", model)
    for given in (None, model):
        assert plan.explain("add", given).startswith("add is made in the int32 sums of dot")
    assert types_of(plan.decisions["dot"])["sums"] == "int32 + bias"
    assert "int32 sums" in line_sentence(*((*lines(model, plan, ("add",)), plan)))
    program = ns.compile(model, plan=plan)
    program.save(tmp_path / "model.nsim")
    loaded = ns.load(tmp_path / "model.nsim")
    assert loaded.plan == plan
    np.testing.assert_array_equal(np.asarray(loaded(X)), np.asarray(program(X)))
    names = {i.name for i in program.module.entry_computation.instructions}
    assert "add" in names
    assert "dot" not in names
    written = ns.compile(model, plan=plan, clean=False).module.entry_computation.by_name
    assert {written[n].array.dtype for n in ("dot", "add")} == {F32}


@each_of(
    ("changes", "message"),
    [
        ({"bias": "tanh"}, "adds no bias to dot"),
        ({"bias": "nothing"}, "adds no bias to dot"),
        ({"quantized_operands": ()}, "adds no bias to dot"),
        ({"quantized_operands": (LHS, one(dtypes.int8, 1e-12))}, "may leave int32"),
        ({"quantized_operands": (one(dtypes.uint8, 2e-20), one(dtypes.int8, 1e-20))}, "normal float32"),
        ({"quantized_operands": (LHS, one(dtypes.int32, 1.0))}, "int32, which biases alone are"),
        ({"quantized_result": one(dtypes.int32, 1.0)}, "int32, which biases alone are"),
    ],
)
def test_check_plan_refuses_biases_that_cannot_be_Q7(model: Module, changes: Any, message: str) -> None:
    plan = decided(model, LHS, RHS)
    check_plan(plan, model)
    wrong = dataclasses.replace(plan.decisions["dot"], **changes)
    with pytest.raises(InvalidArgument, match=message):
        check_plan(dataclasses.replace(plan, decisions={"dot": wrong}), model)


@each_of("wrong", [3, ["add"], None, "dot", "x" * 100_000])
def test_a_plan_file_with_a_wrong_bias_is_refused_Q7(model: Module, wrong: Any) -> None:
    body = json.loads(decided(model, LHS, RHS).to_json())
    body["decisions"]["dot"]["bias"] = wrong
    with pytest.raises(InvalidArgument) as refused:
        check_plan(Plan.from_json(json.dumps(body)), model)
    assert "bias" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_check_plan_refuses_a_decision_on_what_the_sums_do_Q7(model: Module) -> None:
    plan = decided(model, LHS, RHS)
    own = Decision(dtypes.bfloat16, F32, dtypes.bfloat16, "by hand")
    with pytest.raises(InvalidArgument, match="add is made in the sums of dot"):
        check_plan(dataclasses.replace(plan, decisions={**plan.decisions, "add": own}), model)
