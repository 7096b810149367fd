"""A cleaned application computes the bits of the literal one, and converts no more bytes."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
from tests.casting.commuting_modules import Example, example
from tests.casting.rounding_cases import FORMATS, OPEN, all_bits, bits_of, cases, rounded
from tests.casting.small_graphs import graph
from tests.executor.reduced_networks import NETWORKS, name
from tests.executor.reduced_networks import inputs as network_inputs
from tests.support import interpreter
from tests.support.graphs import constant, inst, module_of, parameter, unverified
from tests.support.parameters import each_of
from tests.support.running import flat

from neuronsim import api, dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.application.commuting import MOVES
from neuronsim.casting.application.convert_merging import converted_bytes, merge_converts
from neuronsim.casting.application.type_choice import choose_types
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.plans.casts import casts
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies import find_policy, with_rules
from neuronsim.casting.policies.neuron import neuron_policy
from neuronsim.casting.policies.policy import Policy, Rounding, Rule
from neuronsim.dtypes import DType
from neuronsim.errors import NeuronSimError
from neuronsim.executor.compile import compile_module
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Module,
    Shape,
    TupleShape,
)
from neuronsim.hlo.verify import verify
from neuronsim.profiles import Profile
from neuronsim.targets import AutoCast, find_target

pytestmark = pytest.mark.isa_independent

F32, BF16, F16 = dtypes.float32, dtypes.bfloat16, dtypes.float16
LOWS: tuple[tuple[DType, ...], ...] = (
    *(((t,)) for t in (BF16, F16, dtypes.float8_e4m3, dtypes.float8_e5m2, *OPEN[:2])),
    *((BF16, F16), (F16, dtypes.float8_e3m4), (dtypes.tfloat32, BF16)),
)
PROFILES = [
    Profile(subnormals=s, fp8_overflow=o)
    for s, o in itertools.product(("keep", "flush"), ("inf", "nan", "saturate"))
]


def planned(e: Example, *, clean: bool, keep: bool = True) -> Module:
    plan = Plan("random", e.module.name, fingerprint(e.module), e.decisions, keep_output_type=keep)
    return apply_plan(e.module, plan, clean=clean)


def results(module: Module, inputs: tuple[ops.Bits, ...], profile: Profile) -> list[bytes]:
    value, _ = interpreter.evaluate(module, inputs, profile)
    return [x.data.tobytes() for x in interpreter.leaves(value)]


@pytest.mark.parametrize("lows", LOWS, ids=lambda lows: "-".join(t.name for t in lows))
def test_clean_and_literal_application_agree(lows: tuple[DType, ...]) -> None:
    fewer = 0
    for seed in range(30):
        e = example(seed, lows)
        verify(e.module)
        keep = seed % 4 != 3
        literal, clean = (planned(e, clean=c, keep=keep) for c in (False, True))
        verify(clean)
        assert clean.program_shape == literal.program_shape
        profile = PROFILES[seed % len(PROFILES)]
        assert results(clean, e.inputs, profile) == results(literal, e.inputs, profile), seed
        assert converted_bytes(clean) <= converted_bytes(literal), seed
        fewer += converted_bytes(clean) < converted_bytes(literal)
    assert fewer > 8


def test_several_types_never_convert_more_than_literally() -> None:
    """Where each type's choice does not foresee the next, and where float8 is not merged (C3)."""
    for seed in range(180, 210):
        e = example(seed, (F16, FORMATS[2]), size=20)
        literal, clean = (converted_bytes(planned(e, clean=c)) for c in (False, True))
        assert clean <= literal, seed


def with_specials(x: ops.Bits, seed: int) -> ops.Bits:
    """The array with an Inf of each sign and a NaN among its floats."""
    data = x.data.copy()
    if x.dtype.kind == "float":
        values = np.asarray([np.inf, -np.inf, np.nan], x.dtype.numpy).view(data.dtype)
        where = np.random.default_rng(seed).permutation(data.size)[:3]
        data.flat[where] = values[: len(where)]
    return ops.Bits(data, x.dtype)


NAN = Profile(fp8_overflow="nan")
INF = ops.Bits(np.array([1, np.inf, -np.inf, np.nan], np.float32), F32)


@pytest.mark.parametrize("other", [dtypes.float_format(3, 2), F16], ids=lambda t: t.name)
@pytest.mark.parametrize("low", FORMATS[2:], ids=lambda t: t.name)
def test_float8_whose_overflow_is_nan_agrees_C3(low: DType, other: DType) -> None:
    """Infs of parameters, in the low type too, and of another type's values."""
    for seed in range(20):
        e = example(seed, (low, other), size=20)
        literal, clean = (planned(e, clean=c) for c in (False, True))
        inputs = tuple(with_specials(x, seed) for x in e.inputs)
        assert results(clean, inputs, NAN) == results(literal, inputs, NAN), seed


@pytest.mark.parametrize("of_type", ["parameter", "decided parameter", "operation"])
def test_float8_that_holds_inf_is_rounded_again_C3(of_type: str) -> None:
    """A float8 parameter's Inf, and that of an operation in a smaller open format."""
    low, small = dtypes.float8_e5m2, dtypes.float_format(3, 2)
    given = F32 if of_type == "operation" else low
    word = "exponential" if of_type == "operation" else "convert"
    # Else the negation is read by what is decided alone.
    root = "return t" if of_type == "decided parameter" else "return n y t"
    vectors = {"x": Shape(given, (4,)), "y": Shape(F32, (4,))}
    lines = ("x = parameter", f"y = {word} x", "n = negate y", "t = tanh n", root)
    module = graph(*lines, shapes=vectors)
    decisions = {"n": Decision(low, F32, low, "test")}
    if of_type == "operation":
        decisions["y"] = Decision(small, F32, small, "test")
    elif of_type == "decided parameter":
        decisions = dict.fromkeys("yt", Decision(low, F32, low, "test"))
    x = INF if given is F32 else rounded(INF, low, Profile())
    e = Example(module, (x,), decisions)
    literal, clean = (planned(e, clean=c) for c in (False, True))
    assert results(clean, e.inputs, NAN) == results(literal, e.inputs, NAN)


# ---- merging -------------------------------------------------------------------------------------

DEVICE = (*FORMATS, dtypes.float8_e4m3fn, F32)


def chain(source: DType, *types: DType | tuple[int, int], stored: bool) -> Module:
    """A value that is converted through these types; a pair is a reduce-precision. A stored one is
    itself what a conversion gives.
    """
    body = [parameter("x", (1 << 16,), dtype=F32 if stored else source)]
    steps: list[DType | tuple[int, int]] = [*([source] if stored else []), *types]
    for n, step in enumerate(steps):
        before = body[-1]
        if isinstance(step, tuple):
            bits = {"exponent_bits": step[0], "mantissa_bits": step[1]}
            i = inst(f"r{n}", "reduce-precision", before.shape, before.name, **bits)
        else:
            i = inst(f"c{n}", "convert", (1 << 16,), before.name, dtype=step)
        body.append(i)
    return unverified(*body)


def values(source: DType, *, stored: bool) -> tuple[ops.Bits]:
    """Every bit pattern of the type, or float32 values at which its rounding differs."""
    if not stored and source is not F32:
        return (ops.Bits(np.resize(all_bits(source).data, 1 << 16), source),)
    every = cases(dtypes.bfloat16 if source is F32 else source)
    return (ops.Bits(np.resize(np.random.default_rng(1).permutation(every), 1 << 16), F32),)


def converts(module: Module) -> int:
    return len(module.entry_computation.instructions) - 1


@each_of("stored", [False, True], ids=["given", "stored"])
@each_of("source", DEVICE, ids=lambda t: t.name)
def test_merged_converts_give_the_same_bits(source: DType, stored: bool) -> None:
    inputs = values(source, stored=stored)
    merged = 0
    for through, last in itertools.product(DEVICE, DEVICE):
        module = chain(source, through, last, stored=stored)
        shorter = merge_converts(module)
        if shorter is module:
            continue
        merged += 1
        profiles = PROFILES if 1 in {t.itemsize for t in (source, last)} else PROFILES[::3]
        for profile in profiles:
            assert results(shorter, inputs, profile) == results(module, inputs, profile), (
                through,
                last,
            )
    assert merged >= len(DEVICE)


@each_of("stored", [False, True], ids=["given", "stored"])
@each_of("source", DEVICE, ids=lambda t: t.name)
def test_dropped_reduce_precisions_change_no_bit_C9(source: DType, stored: bool) -> None:
    inputs = values(source, stored=stored)
    dropped = 0
    for e, m in itertools.product((4, 5, 6, 8), (2, 3, 7, 9, 10, 23)):
        for steps in ([F32, (e, m)], [F32, (8, 10), (e, m)], [(e, m)]):
            module = chain(source, *steps, stored=stored)
            shorter = merge_converts(module)
            if shorter is not module:
                dropped += 1
                for profile in PROFILES[::2]:
                    assert results(shorter, inputs, profile) == results(module, inputs, profile)
    assert dropped > 0


def test_what_is_merged() -> None:
    for source, steps, stored, left in (
        (BF16, [F32, F16], False, 1),
        (dtypes.float8_e4m3, [BF16, F32, F16], False, 1),
        (F32, [F16, BF16], False, 2),  # two roundings
        (F32, [BF16, F16], False, 2),
        (F16, [BF16, F32], False, 2),  # bfloat16 does not hold it
        (BF16, [F32, BF16], False, 2),  # a parameter may be subnormal (C4), or another NaN (C5)
        (BF16, [F32, BF16], True, 1),
        (F32, [F32], False, 0),
        (BF16, [F32, (8, 10)], False, 1),
        (F16, [F32, (5, 10)], False, 2),  # subnormals become zero (C9)
        (F32, [(8, 10), (8, 10)], False, 1),
        (F32, [(8, 10), (8, 9)], False, 2),
        (F32, [(8, 10), BF16], False, 2),
    ):
        assert converts(merge_converts(chain(source, *steps, stored=stored))) == left, (source, steps)


def test_what_states_how_it_rounds_is_not_merged() -> None:
    module = chain(BF16, F32, F16, stored=False)
    *others, last = module.entry_computation.instructions
    for key, left in (("neuronsim.rounding", 2), ("neuronsim.reason", 1)):
        stated = last.replace(attributes={"frontend_attributes": {key: "stochastic"}})
        changed = Computation("main", (*others, stated), last.name)
        assert converts(merge_converts(module.replace_entry(changed))) == left


def test_what_arithmetic_gives_is_as_a_conversion_leaves_it() -> None:
    """So that it may be widened and narrowed for nothing: NaN, subnormals and Inf are as stored."""
    rows = [o for o in ops.OPS.values() if o.core and o.arity in (1, 2) and o.opcode not in MOVES]
    found = 0
    for op, dtype in itertools.product(rows, FORMATS):
        if op.opcode in ("compare", "map", "custom-call", ""):
            continue
        x = np.resize(all_bits(dtype).data, 1 << 16)
        operands = [ops.Bits(x, dtype), ops.Bits(np.random.default_rng(2).permutation(x), dtype)]
        for profile in PROFILES[::2] if dtype.itemsize > 1 else PROFILES:
            try:
                (y,) = ops.evaluate(op, operands[: op.arity], {}, ops.Setting(profile))
            except NeuronSimError:
                continue  # of integers
            if y.dtype is dtype:
                found += 1
                back = rounded(rounded(y, F32, profile), dtype, profile)
                assert (bits_of(back) == bits_of(y)).all(), (op.name, dtype, profile)
    assert found > 500


# ---- networks ------------------------------------------------------------------------------------


POLICIES: list[tuple[AutoCast, str]] = [
    *(("all", t) for t in ("bf16", "fp16", "tf32")),
    *(("matmult", t) for t in ("bf16", "fp16")),
]


def check_bits(model: Module, policy: Policy, profile: Profile) -> tuple[Module, Module]:
    """The literal and the clean application of a policy's plan, which give the same bits."""
    given = tuple(network_inputs(model))
    plan = make_plan(model, policy)
    literal, clean = (apply_plan(model, plan, clean=c) for c in (False, True))
    verify(clean)
    assert clean.program_shape == literal.program_shape
    assert results(clean, given, profile) == results(literal, given, profile)
    return literal, clean


@pytest.mark.parametrize("path", NETWORKS, ids=name)
def test_networks_compute_the_same_bits(path: Path) -> None:
    model = inline_calls(proto.read(path))
    for auto_cast, cast_type in POLICIES:
        literal, clean = check_bits(model, neuron_policy(auto_cast, cast_type), PROFILES[0])
        assert converted_bytes(clean) <= converted_bytes(literal)


MIXED = with_rules(
    find_policy("all/bf16"),
    Rule("products in float16", low=F16, operation=("matmult",)),
    Rule("maxima in an 8-bit type", low=dtypes.float8_e4m3, operation=("maximum", "reduce-maximum")),
    Rule("exponentials in tfloat32", low=dtypes.tfloat32, operation=("exponential", "tanh")),
    Rule("divisions stay", "never", operation=("divide",)),
)
FIELD: dict[str, Policy] = {
    **{p: find_policy(p) for p in ("tvm/float16", "tensorflow/bfloat16", "torch-cuda/float16")},
    "all/fp8_e4m3": find_policy("all/fp8_e4m3"),
    "mixed": MIXED,
    "low-results": dataclasses.replace(find_policy("all/bf16"), keep_output_type=False),
    "mixed-low-results": dataclasses.replace(MIXED, keep_output_type=False),
}


EXPECTED_WARNINGS = pytest.mark.filterwarnings(
    "ignore:.* lists these operations nowhere", "ignore:.*no instruction is what the rule"
)
QUICK = ("gpt", "lstm", "training_step", "unet")


@EXPECTED_WARNINGS
@pytest.mark.parametrize("policy", FIELD.values(), ids=FIELD)
@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if name(p) in QUICK else pytest.mark.exhaustive) for p in NETWORKS],
    ids=name,
)
def test_networks_under_policies_of_the_field_compute_the_same_bits(path: Path, policy: Policy) -> None:
    literal, clean = check_bits(inline_calls(proto.read(path)), policy, PROFILES[0])
    if not policy.rules:  # the bytes are bounded where there is one low type
        assert converted_bytes(clean) <= converted_bytes(literal)


@EXPECTED_WARNINGS
def test_the_mixed_policy_mixes_types() -> None:
    for path in NETWORKS:
        plan = make_plan(proto.read(path), MIXED)
        assert {BF16, F16} < {d.operand for d in plan.decisions.values()}, path.name


@EXPECTED_WARNINGS
@each_of(
    "policy",
    [*(neuron_policy(*p) for p in POLICIES), *FIELD.values()],
    ids=[*("/".join(p) for p in POLICIES), *FIELD],
)
def test_a_network_of_replicas_computes_the_same_bits(policy: Policy) -> None:
    replicas = 4
    model = inline_calls(proto.read(NETWORKS[0].parent / "data_parallel_step.hlo.pb"))
    plan = make_plan(model, policy)
    given = [
        Array(ops.Bits(np.stack([np.roll(x.data, n) for n in range(replicas)]), x.dtype))
        for x in network_inputs(model)
    ]
    found = []
    for clean in (False, True):
        module = apply_plan(model, plan, clean=clean)
        program = api.compile(module, auto_cast="none", replicas=replicas)
        found.append([x.bits.data.tobytes() for x in flat(program(*given))])
    assert found[0] == found[1]


def test_a_training_step_converts_fewer_bytes() -> None:
    """Its products read masked gradients: the mask is applied in the low type, as the zeros are."""
    (path,) = (p for p in NETWORKS if name(p) == "training_step")
    model = inline_calls(proto.read(path))
    plan = make_plan(model, neuron_policy("matmult", "bf16"))
    literal, clean = (converted_bytes(apply_plan(model, plan, clean=c)) for c in (False, True))
    assert (literal, clean) == (28152, 20040)


def test_an_element_of_a_tuple_is_constant_where_it_was_one() -> None:
    """It is converted whole, before the program runs, and the slice of it is not."""
    module = module_of(
        parameter("x", (4,)),
        constant("c", np.full((8, 4), 1 / 3)),
        inst("t", "tuple", TupleShape((Shape(F32, (4,)), Shape(F32, (8, 4)))), "x", "c"),
        inst("g", "get-tuple-element", (8, 4), "t", tuple_index=1),
        inst("s", "slice", (1, 4), "g", slice=((0, 1, 1), (0, 4, 1))),
        inst("r", "reverse", (1, 4), "s", dimensions=(0,)),
        inst("y", "exponential", (1, 4), "r"),
    )
    plan = Plan("test", "m", fingerprint(module), {"r": low()})
    literal, clean = (apply_plan(module, plan, clean=c) for c in (False, True))
    # The slice is rounded and its reverse widened in the one; the constant, for nothing, in the other.
    assert (converted_bytes(literal), converted_bytes(clean)) == (2 * 4 * 6, 0)
    for applied in (literal, clean):
        found = casts(module, applied, plan)
        assert sum(c.bytes for c in found if not c.of_constant) == converted_bytes(applied)
        steps = compile_module(applied, Profile(), find_target("host")).steps
        names = {name for step in steps for name in step.instructions}
        assert names.isdisjoint(c.name for c in found if c.of_constant)


# ---- what stays ----------------------------------------------------------------------------------


def low(rounding: Rounding = "") -> Decision:
    return Decision(BF16, F32, BF16, "test", rounding=rounding)


def broadcast_then(opcode: str, *more: str) -> Module:
    """A vector that is broadcast, and then something of the whole."""
    return graph("x = vector", "b = columns x", f"y = {opcode} b", *more)


def test_a_convert_is_done_where_the_array_is_smallest() -> None:
    chosen = choose_types(broadcast_then("tanh"), {"y": low()})
    assert (chosen["b"].operand, chosen["b"].output) == (BF16, BF16)
    assert "broadcast commutes with rounding" in chosen["b"].reason
    assert chosen["y"] == low()


def test_stochastic_rounding_stays_in_its_place_S2() -> None:
    """It rounds the elements of the broadcast array, each by a word of its own."""
    plan = {"y": low("stochastic")}
    assert choose_types(broadcast_then("tanh"), plan) == plan
    plan = {"b": low("stochastic")}
    assert choose_types(broadcast_then("tanh"), plan) == plan


@pytest.mark.parametrize("roundings", [*itertools.product(("", "nearest_even"), repeat=2)])
def test_rounding_to_nearest_shares_converts_S1(roundings: tuple[Rounding, ...]) -> None:
    """With what the profile rounds to nearest, and with other decisions that state it."""
    module = broadcast_then("tanh", "z = sine b", "return y z")
    decisions = {n: low(r) for n, r in zip("yz", roundings, strict=True)}
    e = Example(module, (ops.Bits(np.array([1 / 3, 2.1, np.inf, 0], np.float32), F32),), decisions)
    literal, clean = (planned(e, clean=c) for c in (False, True))
    # The two results are widened; the vector is rounded once, before it is broadcast.
    assert (converted_bytes(literal), converted_bytes(clean)) == (4 * 16 * 6, 4 * 6 + 2 * 16 * 6)
    assert results(clean, e.inputs, Profile()) == results(literal, e.inputs, Profile())


def test_a_value_that_is_read_as_it_is_is_not_rounded() -> None:
    module = broadcast_then("tanh", "return b y")
    assert choose_types(module, {"y": low()}) == {"y": low()}


def test_results_in_planned_types_stay() -> None:
    """A broadcast in bfloat16 would be cheaper as float32, and the result is to be bfloat16."""
    module = broadcast_then("negate")
    plan = {"b": low(), "y": low()}
    assert choose_types(module, plan)["y"].output is F32
    kept = choose_types(module, plan, keep_output_type=False)
    assert kept["y"] == low()
