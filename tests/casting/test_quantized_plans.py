"""Plans that quantize: what a clean application shares changes no bit, XLA runs what is written,
records and files keep scales to the bit, and what cannot be is refused.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.support.parameters import each_of
from tests.support.places import NETWORKS

import neuronsim as ns
from neuronsim import api, dtypes, ops
from neuronsim.arrays import nn
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.decisions.biases import find_biases
from neuronsim.casting.decisions.checks import check_plan
from neuronsim.casting.decisions.quantization import Quantization, quantization_of
from neuronsim.casting.decisions.record import Decision, without_biases
from neuronsim.casting.plans.explain import type_difference
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.module import Module
from neuronsim.hlo.verify import verify

F32 = dtypes.float32
SHAPE = (2, 4, 6, 6)


KINDS = (dtypes.int8, dtypes.int8, dtypes.float8_e4m3, dtypes.int8, dtypes.float8_e5m2)


def random_model(rng: np.random.Generator) -> Module:
    """Convolutions, dots, some with biases, and what bytes pass through or end at, in random order."""

    def weights(*dims: int) -> Any:
        return ns.asarray(rng.normal(0, 0.5, dims).astype(np.float32))

    def model(x: Any) -> Any:
        values = [x]
        for _ in range(int(rng.integers(3, 8))):
            y = values[int(rng.integers(len(values)))]
            kind = rng.integers(9)
            if kind <= 2:
                y = nn.conv(y, weights(4, 4, 3, 3), padding=1)
                y = y + weights(4, 1, 1) if rng.random() < 0.6 else y
            elif kind == 3:
                y = ns.matmul(y, weights(6, 6))
                y = weights(6) + y if rng.random() < 0.6 else y
            elif kind == 4:
                y = ns.maximum(y, 0.0)
            elif kind == 5:
                y = ns.permute_dims(y, (0, 1, 3, 2))
            elif kind == 6:
                y = ns.flip(y, axis=2)
            elif kind == 7:
                y = ns.maximum(y, values[int(rng.integers(len(values)))])
            else:
                y = y + values[-1]
            values.append(y)
        return ns.concat(values[-2:], axis=1)

    return ns.compile(model, ns.zeros(SHAPE, dtype="float32"), auto_cast="none").model


def random_quantization(rng: np.random.Generator, kind: Any = None) -> Quantization:
    """Of a type, else of one of the integers."""
    ranges = [(-2.0, 3.0), (-4.0, 4.0), (0.0, 6.0)]
    low, high = ranges[int(rng.integers(3))]
    kind = kind or [dtypes.int8, dtypes.uint8][int(rng.integers(2))]
    return quantization_of(low, high, kind, symmetric=bool(rng.integers(2)))


def random_plan(
    rng: np.random.Generator, model: Module, others: Plan | None = None, kind: DType = dtypes.int8
) -> Plan:
    """Some products quantized, some of them with their results, and some other results: to integers, or
    to a float8.
    """
    decisions = dict(others.decisions) if others else {}
    also = None if kind is dtypes.int8 else kind
    shared = [random_quantization(rng, kind), random_quantization(rng, also)]  # so that borders meet
    for i in model.entry_computation.instructions:
        result = shared[int(rng.integers(2))] if rng.random() < 0.5 else None
        if i.opcode in ("convolution", "dot") and rng.random() < 0.8:
            right = model.entry_computation.by_name[i.operands[1]].array.dims
            axis = 0 if i.opcode == "convolution" else 1
            if i.operands[1].startswith("constant") and rng.random() < 0.5:
                scales = 0.1 + rng.random(right[axis])
                rhs = quantization_of(-scales, scales, kind, symmetric=True, axis=axis)
            else:
                rhs = quantization_of(-1.5, 1.5, kind, symmetric=True)
            lhs = shared[int(i.opcode == "dot" and rng.integers(2))]
            if i.opcode == "convolution" and lhs.type is not rhs.type:
                continue
            decisions[i.name] = Decision(
                F32, F32, F32, "drawn", quantized_operands=(lhs, rhs), quantized_result=result
            )
        elif i.opcode in ("add", "maximum", "transpose", "reverse") and result is not None:
            decisions[i.name] = Decision(F32, F32, F32, "drawn", quantized_result=result)
    entry = model.entry_computation
    for name, bias in find_biases(entry, decisions).items():
        d = decisions[name]
        if d.reads_integers and rng.random() < 0.7:
            decisions[name] = dataclasses.replace(d, bias=bias.addition.name)
    return Plan("drawn", model.name, fingerprint(model), without_biases(decisions))


@each_of("seed", range(0, 300, 30))
def test_cleaning_gives_the_bits_of_the_literal_application(seed: int) -> None:
    shorter = biased = 0
    for at in range(seed, seed + 30):
        rng = np.random.default_rng([27, at])
        model = random_model(rng)
        others = make_plan(model, neuron_policy("all", "bf16")) if at % 3 == 0 else None
        plan = random_plan(rng, model, others, KINDS[at % len(KINDS)])
        x = rng.normal(0, 2, SHAPE).astype(np.float32)
        x.flat[:3] = np.nan, np.inf, -np.inf
        programs = [ns.compile(model, plan=plan, clean=clean) for clean in (True, False)]
        for p in programs:
            verify(p.module)
        clean, literal = (np.asarray(p(x)).view(np.uint32) for p in programs)
        np.testing.assert_array_equal(clean, literal, err_msg=str(at))
        sizes = [len(p.module.entry_computation.instructions) for p in programs]
        assert sizes[0] <= sizes[1]
        shorter += sizes[0] < sizes[1]
        biased += any(d.bias for d in plan.decisions.values())
        read = Plan.from_json(plan.to_json())
        assert read == plan
        assert not type_difference(read, plan)
    assert shorter > 3
    assert biased > 3


def test_xla_runs_what_is_written() -> None:
    """Where all products are of integers, XLA's bits are ours on these models: each step is exact or
    one rounding, but that its simplifier divides by reciprocals, which shows at ties alone.
    """
    pytest.importorskip("jax")
    from tests.executor import xla

    compared = 0
    for at in range(24):
        rng = np.random.default_rng([28, at])
        model = random_model(rng)
        plan = random_plan(rng, model)
        entry = model.entry_computation
        if any(
            i.opcode in ("dot", "convolution") and i.name not in plan.decisions
            for i in entry.instructions
        ):
            continue
        program = ns.compile(model, plan=plan)
        written = proto.from_bytes(proto.to_bytes(program.module))
        stated = [
            [
                (i.name, i.opcode, i.shape.arrays()[0].type, i.operands)
                for i in m.entry_computation.instructions
            ]
            for m in (written, program.module)
        ]
        assert stated[0] == stated[1]
        x = rng.normal(0, 2, SHAPE).astype(np.float32)
        (theirs,) = xla.execute(program.module, [ops.Bits(x, F32)])
        np.testing.assert_array_equal(np.asarray(program(x)), theirs, err_msg=str(at))
        compared += 1
    assert compared >= 8


def test_saved_programs_keep_scales_to_the_bit(tmp_path: Any) -> None:
    rng = np.random.default_rng(29)
    model = random_model(rng)
    plan = random_plan(rng, model)
    program = ns.compile(model, plan=plan)
    program.save(tmp_path / "model.nsim")
    loaded = ns.load(tmp_path / "model.nsim")
    assert loaded.plan == plan
    x = rng.normal(0, 2, SHAPE).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(loaded(x)), np.asarray(program(x)))


@pytest.fixture(scope="module")
def model() -> Module:
    def net(x: Any) -> Any:
        w = ns.asarray(np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4))
        return ns.maximum(ns.matmul(x, w), 0.0)

    return ns.compile(net, ns.zeros((3, 6), dtype="float32"), auto_cast="none").model


def float32_of_16_bits(dtype: DType) -> Any:
    words = np.arange(1 << 16, dtype=np.uint16)
    return np.asarray(ns.asarray(words.view(dtype.numpy)).astype("float32"))


@each_of("given", [dtypes.bfloat16, dtypes.float16], ids=str)
@each_of("scale", [1.0, 0.3, 2.0**-110, 3.0e33], ids=str)
@each_of("kind", [dtypes.float8_e4m3, dtypes.float8_e5m2], ids=str)
def test_float8_Q6_of_every_16_bit_input(kind: DType, scale: float, given: DType) -> None:
    """The program's steps against NumPy's and ml_dtypes' from float32; again it is the same float8."""
    x = float32_of_16_bits(given)
    q = Quantization(kind, (float(np.float32(scale)),))
    decision = Decision(F32, F32, F32, "drawn", quantized_result=q)

    def twice(x: Any) -> Any:
        return ns.negative(ns.negative(x))

    model = ns.compile(twice, ns.zeros(x.shape, dtype="float32"), auto_cast="none").model
    names = [i.name for i in model.entry_computation.instructions if i.opcode == "negate"]
    plan = Plan("Q6", model.name, fingerprint(model), dict.fromkeys(names, decision))
    found = np.asarray(ns.compile(model, plan=plan)(x))
    expected = q.rounded(x)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found).sum() == np.isnan(x).sum()  # no NaN out of finite values
    assert np.abs(expected[np.isfinite(x)]).max() <= kind.max * q.scale[0]
    np.testing.assert_array_equal(q.rounded(expected), expected)


def test_float8_products_Q6_are_scaled_sums_of_float32() -> None:
    """Small integers, whose sums are exact, by powers of two as scales: so is the whole."""
    rng = np.random.default_rng(6)
    x, w = (rng.integers(-8, 9, dims).astype(np.float32) for dims in ((5, 40), (40, 7)))
    model = ns.compile(lambda x: ns.matmul(x, ns.asarray(w)), x, auto_cast="none").model
    scales = tuple(2.0 ** -(n % 3) for n in range(7))
    by = (
        Quantization(dtypes.float8_e4m3, (0.5,)),
        Quantization(dtypes.float8_e4m3, scales, (0,) * 7, 1),
    )
    decision = Decision(F32, F32, F32, "by hand", quantized_operands=by)
    plan = Plan("Q6", model.name, fingerprint(model), {"dot": decision})
    program = ns.compile(model, plan=plan)
    np.testing.assert_array_equal(np.asarray(program(x)), x @ w)
    (product,) = (i for i in program.module.entry_computation.instructions if i.opcode == "dot")
    assert product.array.dtype is F32
    entry = program.module.entry_computation
    assert {entry.by_name[o].array.dtype for o in product.operands} == {dtypes.float8_e4m3}
    assert "float8_e4m3 (scale 0.5)" in program.plan.explain("dot", program.model)
    assert "sums in float32" in program.plan.explain("dot", program.model)


def test_float8_weights_of_448_are_rescaled_to_the_240_of_the_device() -> None:
    """e4m3fn weights, as other devices store them, lose no range: their scale takes 448 / 240."""
    rng = np.random.default_rng(7)
    drawn = rng.uniform(-448, 448, (64, 16)).astype(np.float32)
    stored = drawn.astype(dtypes.float8_e4m3fn.numpy)
    assert np.abs(stored.astype(np.float32)).max() > 240
    weights = ns.asarray(stored)
    x = rng.normal(0, 1, (32, 64)).astype(np.float32)

    def layer(x: Any) -> Any:
        return ns.matmul(x, weights.astype("float32") * 0.01)

    def error(program: Any) -> float:
        found, exact = np.asarray(program(x)), x @ (stored.astype(np.float32) * np.float32(0.01))
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    plan = ns.quantize(layer, {"x": x}, "minmax,fp8_e4m3,per-tensor", batch=32)
    (decision,) = (d for d in plan.decisions.values() if any(d.quantized_operands))
    assert decision.quantized_operands[1] is not None
    largest = float(np.float32(np.abs(stored.astype(np.float32)).max()) * np.float32(0.01))
    assert decision.quantized_operands[1].scale[0] == pytest.approx(largest / 240, rel=1e-6)
    assert error(ns.compile(layer, x, plan=plan)) < 0.05


WHOLE = quantization_of(-1.0, 1.0, dtypes.uint8, symmetric=False)
FLOAT8 = quantization_of(-1.0, 1.0, dtypes.float8_e4m3, symmetric=True)
COLUMNS = quantization_of(-np.ones(4), np.ones(4), dtypes.int8, symmetric=True, axis=1)
DECISION = Decision(F32, F32, F32, "by hand", quantized_operands=(WHOLE, COLUMNS))


def test_explain_diff_and_types(model: Module) -> None:
    plan = Plan("by hand", model.name, fingerprint(model), {"dot": DECISION})
    text = plan.explain("dot", model)
    assert "reads uint8 (scale 0.00784314, zero point 127) and int8 (4 scales along axis 1)" in text
    assert "sums in int32 and gives float32 (by hand)" in text
    other = dataclasses.replace(
        plan, decisions={"dot": dataclasses.replace(DECISION, quantized_operands=(WHOLE, WHOLE))}
    )
    assert list(plan.diff(other)) == ["dot"]
    assert list(type_difference(plan, other)) == ["dot"]
    written = apply_plan(model, plan)
    (dot,) = (i for i in written.entry_computation.instructions if i.opcode == "dot")
    assert dot.array.dtype is dtypes.int32
    types = [written.entry_computation.by_name[o].array.dtype.name for o in dot.operands]
    assert types == ["uint8", "int8"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quantized_operands": (COLUMNS, COLUMNS)}, "left operand"),
        ({"quantized_operands": (WHOLE, None)}, "both operands"),
        ({"quantized_operands": (WHOLE,)}, "two quantized operands"),
        (
            {"quantized_operands": (WHOLE, dataclasses.replace(COLUMNS, axis=0))},
            "run along axis 0: one of 1",
        ),
        (
            {
                "quantized_operands": (
                    WHOLE,
                    quantization_of([-1], [1], dtypes.int8, symmetric=True, axis=1),
                )
            },
            "4 channels and 1 scales",
        ),
        ({"output": dtypes.bfloat16}, "float types are float32"),
        ({"quantized_operands": (FLOAT8, COLUMNS)}, "read one type alone"),
        ({"quantized_result": COLUMNS}, "no axis"),
    ],
)
def test_check_plan_refuses_what_cannot_be(model: Module, changes: Any, message: str) -> None:
    plan = Plan(
        "wrong", model.name, fingerprint(model), {"dot": dataclasses.replace(DECISION, **changes)}
    )
    with pytest.raises(InvalidArgument, match=message):
        check_plan(plan, model)
    reader = Plan("wrong", model.name, fingerprint(model), {"maximum": DECISION})
    with pytest.raises(InvalidArgument, match="maximum"):
        check_plan(reader, model)


@each_of(
    "wrong",
    [
        {"type": "int8", "scale": [0.0], "zero_point": [0]},
        {"type": "int16", "scale": [1.0], "zero_point": [0]},
        {"type": "int8", "scale": [1.0], "zero_point": [0.5]},
        {"type": "int8", "scale": ["1"], "zero_point": [0]},
        {"type": "int8", "zero_point": [0]},
        {"type": "uint8", "scale": [1.0], "zero_point": [-1]},
        {"type": "float8_e4m3", "scale": [1.0], "zero_point": [1]},
        {"type": "float8_e4m3", "scale": [2.0**-120], "zero_point": [0]},
        {"type": "float8_e4m3fn", "scale": [1.0], "zero_point": [0]},
        [],
    ],
)
def test_a_plan_file_with_a_wrong_quantization_is_refused(model: Module, wrong: Any) -> None:
    import json

    plan = Plan("by hand", model.name, fingerprint(model), {"dot": DECISION})
    body = json.loads(plan.to_json())
    body["decisions"]["dot"]["quantized_operands"][0] = wrong
    with pytest.raises(InvalidArgument, match="not a plan of neuronsim"):
        Plan.from_json(json.dumps(body))


# ---- the two conversions of the document -----------------------------------------------------------


def data_for(module: Module) -> dict[str, Any]:
    """Two batches drawn for a network's inputs."""
    rng = np.random.default_rng(31)
    found = {}
    for name, p in zip(module.input_names(), module.parameters, strict=True):
        dims = (2 * p.array.dims[0], *p.array.dims[1:])
        is_float = p.array.dtype.kind == "float"
        found[name] = rng.normal(0, 1, dims).astype("f") if is_float else rng.integers(0, 9, dims)
    return found


@pytest.mark.parametrize("network", ["resnet18", "mobilenet", "transformer"])
def test_the_two_conversions_have_the_documents_shape(network: str) -> None:
    """Step 1 gives FP32 + INT8, step 2 lowers operations of the BF16 list that step 1 left, step 3
    merges: no cast of a cast, no array quantized twice alike; depth first needs fewer casts for each
    operation in bfloat16 than modules that are wrapped.
    """
    module = api.read_model(str(NETWORKS / f"{network}.hlo.pb"))
    data = data_for(module)
    first = ns.quantize(module, data)
    ints = {n for n, d in first.decisions.items() if d.quantizes}
    assert len(ints) >= 3
    casts = []
    for policy in ("neural-compressor/bfloat16", "neural-compressor-modules/bfloat16"):
        plan = ns.quantize(module, data, others=policy, exclude=tuple(sorted(ints)[:2]))
        assert {n for n, d in plan.decisions.items() if d.quantizes} == ints - set(sorted(ints)[:2])
        assert any(d.output is dtypes.bfloat16 for d in plan.decisions.values())
        entry = apply_plan(module, plan).entry_computation
        quantizes = [i for i in entry.instructions if ".to_int8.ratio" in i.name]
        keys = [(i.operands[0], scale_of(entry, i)) for i in quantizes]
        assert len(keys) == len(set(keys))
        for i in entry.instructions:
            source = entry.by_name[i.operands[0]] if i.opcode == "convert" else None
            if source is not None and source.opcode == "convert":
                types = {
                    i.array.dtype,
                    source.array.dtype,
                    entry.by_name[source.operands[0]].array.dtype,
                }
                assert not types <= {dtypes.float32, dtypes.bfloat16}, i.name
        low = sum(d.output is dtypes.bfloat16 for d in plan.decisions.values())
        made = sum(
            i.opcode == "convert"
            and dtypes.bfloat16 in (i.array.dtype, entry.by_name[i.operands[0]].array.dtype)
            for i in entry.instructions
        )
        casts.append(made / low)
    assert casts[0] < casts[1]


def scale_of(entry: Any, ratio: Any) -> Any:
    """The scale by which a division quantizes."""
    scalar = entry.by_name[entry.by_name[ratio.operands[1]].operands[0]]
    return float(ops.numbers(scalar.attributes["literal"]))


@pytest.mark.parametrize("others", [None, "bf16"])
def test_moves_that_only_integers_read_move_bytes(others: str | None) -> None:
    """A reshape, a reversal and a transpose in front of a product give the same bits as bytes."""
    rng = np.random.default_rng(31)
    w = rng.standard_normal((4, 5)).astype(np.float32)

    def model(x: Any) -> Any:
        y = ns.flip(ns.tanh(x).reshape(4, 6), axis=0)
        return ns.matmul(ns.permute_dims(y, (1, 0)), ns.asarray(w))

    x = rng.standard_normal((12, 8)).astype(np.float32)
    module = ns.compile(model, ns.zeros((3, 8), dtype="float32"), auto_cast="none").model
    plan = ns.quantize(module, {"x": x}, others=others)
    clean, literal = (ns.compile(module, plan=plan, clean=c) for c in (True, False))
    np.testing.assert_array_equal(np.asarray(clean(x[:3])), np.asarray(literal(x[:3])))
    moves = [
        i.array.dtype
        for i in clean.module.entry_computation.instructions
        if i.opcode in ("reshape", "transpose", "reverse")
    ]
    assert moves == [dtypes.int8] * 3
