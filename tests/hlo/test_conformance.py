"""Conformance: for each constraint that AWS documents a module that breaks it and one that does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.graphs import computation, constant, inst, parameter, reducer
from tests.support.graphs import unverified as module_of
from tests.support.parameters import each_of

from neuronsim import api, dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel, NonconformingModel
from neuronsim.hlo.conformance import CUSTOM_CALL_TARGETS, check, compile_time_constants
from neuronsim.hlo.error_codes import ERROR_CODES
from neuronsim.hlo.findings import Finding, group, locations, summary
from neuronsim.hlo.module import AnyShape, Computation, Instruction, Module, Shape, TupleShape
from neuronsim.targets import (
    KNOWN_ISSUES,
    RELEASES,
    SUPPORTED_OPERATORS,
    TABLE_NOTES,
    find_release,
    find_target,
)

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32, S32, S64, U64 = dtypes.float32, dtypes.int32, dtypes.int64, dtypes.uint64
PRED, E4M3FN, C64 = dtypes.boolean, dtypes.float8_e4m3fn, dtypes.complex64
MATRIX = Shape(F32, (4, 3))


def found(module: Module, sdk: str, target: str = "trn1") -> tuple[Finding, ...]:
    return check(module, find_release(sdk), find_target(target))


X = parameter("x", MATRIX)


# ---- modules, each with one instruction `tried` --------------------------------------------------


def tried(
    opcode: str,
    shape: AnyShape,
    *operands: Instruction,
    others: tuple[Computation, ...] = (),
    **attributes: Any,
) -> Module:
    """Of the instruction and its operands, each of which reads no other."""
    last = inst("tried", opcode, shape, *(o.name for o in operands), **attributes)
    return module_of(*{o.name: o for o in operands}.values(), last, others=others)


def rows(count: int) -> tuple[Instruction, Instruction]:
    """The numbers of rows, which no two have in common, and as indices."""
    return (
        inst("iota", "iota", Shape(S32, (count,)), dimensions=(0,)),
        inst("at", "reshape", Shape(S32, (count, 1)), "iota"),
    )


def gather(collapsed: tuple[int, ...], offset: tuple[int, ...], slices: tuple[int, ...]) -> Module:
    numbers = ops.GatherDimensions(offset, collapsed, (0,), index_vector_dim=1)
    dims = tuple(s for axis, s in enumerate(slices) if axis not in collapsed)
    given = X, parameter("rows", Shape(S32, (5, 1)), 1)
    stated = {"gather_dimensions": numbers, "slice_sizes": slices}
    return tried("gather", Shape(F32, (5, *dims)), *given, **stated)


def power(exponent: Instruction, dtype: DType = F32) -> Module:
    return tried("power", Shape(dtype), parameter("x", Shape(dtype)), exponent)


def broadcast_power(exponent: float) -> Module:
    return module_of(
        X,
        constant("c", exponent),
        inst("e", "broadcast", MATRIX, "c", dimensions=()),
        inst("tried", "power", MATRIX, "x", "e"),
    )


def reduce(opcode: str, init: Instruction | None = None, dtype: DType = F32) -> Module:
    given = parameter("x", Shape(dtype, (4, 3))), init or constant("init", 0, dtype)
    over_1 = {"dimensions": (1,), "called": ("f",)}
    return tried("reduce", Shape(dtype, (4,)), *given, others=(reducer("f", opcode, dtype),), **over_1)


def random_bits(algorithm: str = "RNG_DEFAULT") -> Module:
    state = Shape(dtypes.uint32, (4,))
    shape = TupleShape((state, state))
    return tried("rng-bit-generator", shape, parameter("state", state), rng_algorithm=algorithm)


def random_uniform() -> Module:
    bounds = constant("low", 0), constant("high", 1)
    return tried("rng", Shape(F32, (3,)), *bounds, distribution="RNG_UNIFORM")


def update(*starts: Instruction) -> Module:
    return tried("dynamic-update-slice", MATRIX, X, parameter("row", Shape(F32, (1, 3)), 1), *starts)


def convert(dtype: DType) -> Module:
    return tried("convert", Shape(dtype, (4, 3)), X)


def convolution(stride: int = 1, base: int = 1, window: int = 1) -> Module:
    stated = {
        "window": (ops.WindowDimension(3, stride, (2, 2), base, window),),
        "dimension_numbers": ops.ConvolutionDimensions(0, 1, (2,), 1, 0, (2,), 0, 1, (2,)),
        "feature_group_count": 1,
        "batch_group_count": 1,
    }
    x, w = parameter("x", Shape(F32, (1, 1, 8))), parameter("w", Shape(F32, (1, 1, 3)), 1)
    return tried("convolution", x.shape, x, w, **stated)


def reduce_window(base: int = 1, window: int = 1, arrays: int = 1) -> Module:
    d = ops.WindowDimension(3, base_dilation=base, window_dilation=window)
    given = [parameter("x", Shape(F32, (8,)))] * arrays + [constant("init", 0)] * arrays
    stated = {"window": (d,), "called": ("f",)}
    return tried("reduce-window", given[0].shape, *given, others=(reducer("f", "add"),), **stated)


def top_k(dtype: DType) -> Module:
    results = TupleShape((Shape(dtype, (2,)), Shape(S32, (2,))))
    return tried("topk", results, parameter("x", Shape(dtype, (4,))), k=2, largest=True)


def custom_call(target: str, dtype: DType = F32) -> Module:
    return unary("custom-call", dtype, custom_call_target=target)


def scatter(dtype: DType, opcode: str | None = "add", count: int = 2) -> Module:
    """Rows scattered to 4 rows; without an opcode they overwrite. Indices are an iota."""
    ab = parameter("a", Shape(dtype), 0), parameter("b", Shape(dtype), 1)
    x = parameter("x", Shape(dtype, (4, 3)))
    numbers = ops.ScatterDimensions((1,), (0,), (0,), index_vector_dim=1)
    stated = {"scatter_dimensions": numbers, "called": ("f",)}
    return module_of(
        x,
        parameter("rows", Shape(dtype, (count, 3)), 1),
        *rows(count),
        inst("tried", "scatter", x.shape, "x", "at", "rows", **stated),
        others=(reducer("f", opcode, dtype) if opcode else Computation("f", ab, "b"),),
    )


def gather_iota(count: int) -> Module:
    numbers = ops.GatherDimensions((1,), (0,), (0,), index_vector_dim=1)
    stated = {"gather_dimensions": numbers, "slice_sizes": (1, 3)}
    return module_of(
        X, *rows(count), inst("tried", "gather", Shape(F32, (count, 3)), "x", "at", **stated)
    )


def shift(dtype: DType) -> Module:
    x = parameter("x", Shape(dtype))
    return tried("shift-right-arithmetic", x.shape, x, x)


def dot(dtype: DType) -> Module:
    x = parameter("x", Shape(dtype, (3, 3)))
    return tried("dot", x.shape, x, x, dot_dimensions=ops.DotDimensions((1,), (0,)))


def collective(opcode: str, dtype: DType) -> Module:
    x = parameter("x", Shape(dtype, (4,)))
    return tried(opcode, x.shape, x, others=(reducer("f", "add", dtype),), called=("f",))


def unary(opcode: str, dtype: DType = F32, **attributes: Any) -> Module:
    x = parameter("x", Shape(dtype, (4,)))
    return tried(opcode, x.shape, x, **attributes)


def binary(opcode: str, dtype: DType, **attributes: Any) -> Module:
    x = parameter("x", Shape(dtype, (4,)))
    return tried(opcode, x.shape, x, x, **attributes)


def literal(value: Any, dtype: DType) -> Module:
    return module_of(constant("tried", value, dtype))


def broadcast(*dims: int) -> Module:
    return tried("broadcast", Shape(F32, dims), constant("one", 1), dimensions=())


# ---- the cases -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A rule, a release, a module that breaks it there and one that does not; or, with another
    release, the same module there.
    """

    rule: str
    sdk: str
    breaks: Module
    keeps: Module
    keeps_sdk: str = ""


def note(operator: str) -> str:
    return TABLE_NOTES[operator].rule


def issue(name: str) -> str:
    return KNOWN_ISSUES[name].rule


WHOLE, HALF = constant("e", 2.0), constant("e", 2.5)
GIVEN = parameter("e", Shape(F32), 1)
GIVEN_INIT = parameter("init", Shape(F32), 1)
I, J = constant("i", 1, S32), constant("j", 0, S32)
GIVEN_I = parameter("given", Shape(S32), 2)
FIRST = "2.1.0.76"
UNLISTED = SUPPORTED_OPERATORS.rule
X_ONLY = module_of(X)

TABLE_CASES = [
    Case(note("Gather"), FIRST, gather((), (1, 2), (1, 3)), gather((0,), (1,), (1, 3))),
    Case(note("Gather"), "2.32", gather((), (1, 2), (2, 3)), gather((0,), (1,), (1, 2))),
    Case(note("Pow"), FIRST, power(HALF), power(WHOLE)),
    Case(note("Pow"), "2.2.0.73", broadcast_power(0.5), broadcast_power(3.0)),
    Case(note("Pow"), "2.2.0.73", power(HALF), power(HALF), "2.3.0.4"),
    Case(note("Pow"), "2.3.0.4", power(GIVEN), power(HALF)),
    Case(note("Pow"), "2.26", power(GIVEN), power(WHOLE)),
    Case(note("Reduce"), FIRST, reduce("and", dtype=PRED), reduce("maximum")),
    Case(note("Reduce"), "2.3.0.4", reduce("subtract"), reduce("multiply")),
    Case(note("Reduce"), "2.26", reduce("add", GIVEN_INIT), reduce("minimum")),
    Case(note("RngBitGenerator"), FIRST, random_bits(), random_bits(), "2.9.0.16"),
    Case(note("RngBitGenerator"), "2.8.0.25", random_bits(), random_uniform()),
    Case(note("DynamicUpdateSlice"), "2.2.0.73", update(GIVEN_I, J), update(I, J)),
    Case(note("DynamicUpdateSlice"), "2.26", update(I, GIVEN_I), update(J, J)),
    # Before the operator was listed there was no note either.
    Case(note("DynamicUpdateSlice"), "2.3.0.4", update(GIVEN_I, J), update(GIVEN_I, J), FIRST),
    Case(issue("seed"), FIRST, random_bits(), X_ONLY),
    Case(issue("seed"), "2.8.0.25", random_uniform(), random_uniform(), "2.9.0.16"),
    Case(issue("seed"), "2.3.0.4", random_bits(), random_bits(), "2.13"),
    Case(issue("pow exponent"), FIRST, power(HALF), power(WHOLE)),
    Case(issue("pow exponent"), "2.2.0.73", power(GIVEN), power(GIVEN), "2.3.0.4"),
    Case(issue("INT64"), FIRST, convert(S64), convert(S32)),
    Case(issue("INT64"), "2.26", convert(U64), X_ONLY),
    Case(issue("INT64"), "2.32", literal(-(2**31) - 1, S64), literal([-(2**31), 2**31 - 1], S64)),
]

REVERSED = unary("reverse", dimensions=(0,))
LISTS = [
    Case(UNLISTED, "2.2.0.73", REVERSED, unary("sign")),
    Case(UNLISTED, FIRST, REVERSED, REVERSED, "2.3.0.4"),
    Case(UNLISTED, FIRST, update(I, J), update(I, J), "2.2.0.73"),
    Case(UNLISTED, FIRST, binary("atan2", F32), binary("atan2", F32), "2.2.0.73"),
    Case(UNLISTED, FIRST, unary("not", PRED), unary("not", PRED), "2.2.0.73"),
    Case(UNLISTED, "2.26", unary("not", S32), unary("not", PRED)),
    Case(UNLISTED, "2.26", binary("and", S32), binary("and", PRED)),
    Case(UNLISTED, "2.26", binary("or", PRED), binary("compare", PRED, comparison_direction="EQ")),
    Case(UNLISTED, "2.5.0.28", top_k(F32), top_k(F32), "2.6.0.19"),
    Case(UNLISTED, "2.9", unary("bitcast-convert"), unary("bitcast-convert"), "2.10"),
    Case(UNLISTED, "2.3.0.4", binary("select-and-scatter", F32), binary("power", S32)),
    Case(UNLISTED, "2.26", convolution(), dot(F32)),
    Case(UNLISTED, "2.26", unary("triangular-solve"), unary("batch-norm-training")),
    Case(UNLISTED, "2.26", unary("dynamic-slice"), collective("all-reduce", F32)),
    Case(UNLISTED, "2.26", unary("rng", distribution="RNG_NORMAL"), random_uniform()),
]

CODES = [
    Case("NCC_EVRF004", "2.26", convert(C64), convert(C64), "2.32"),
    Case("NCC_EVRF004", "2.32", convert(dtypes.complex128), convert(F32)),
    Case("NCC_EVRF006", "2.26", random_bits("RNG_PHILOX"), random_bits()),
    Case("NCC_EVRF010", "2.26", convolution(base=2, window=2), convolution(stride=2, window=2)),
    Case("NCC_EVRF011", "2.26", convolution(stride=2, base=2), convolution(base=2)),
    Case("NCC_EVRF013", "2.26", top_k(S32), top_k(F32)),
    Case("NCC_EVRF013", "2.26", custom_call("AwsNeuronTopK", S64), custom_call("AwsNeuronTopK")),
    Case("NCC_EVRF015", "2.26", custom_call("AwsNeuronElu"), custom_call("AwsNeuronErf")),
    Case("NCC_EVRF016", "2.26", scatter(S32), scatter(S32, opcode=None)),
    Case("NCC_EVRF016", "2.32", scatter(dtypes.int8), scatter(F32)),
    Case("NCC_EVRF016", "2.26", scatter(PRED, "or"), scatter(S32), "2.32"),
    Case("NCC_EVRF017", "2.26", reduce_window(base=2), reduce_window()),
    Case("NCC_EVRF018", "2.26", reduce_window(window=2), reduce_window()),
    Case("NCC_EVRF019", "2.26", reduce_window(arrays=2), reduce_window()),
    Case("NCC_EVRF022", "2.26", shift(dtypes.int16), shift(S32)),
    Case("NCC_EVRF022", "2.26", shift(S64), shift(dtypes.uint32)),
    Case("NCC_EVRF024", "2.26", broadcast(2**15, 2**15 + 1), broadcast(2**15, 2**15)),
    Case("NCC_EVRF031", "2.26", scatter(F32, count=5), scatter(F32, count=4)),
    Case("NCC_EVRF035", "2.26", dot(S32), dot(dtypes.int8)),
    Case("NCC_EVRF035", "2.26", dot(S64), dot(F32)),
    Case("NCC_EVRF051", "2.26", convert(E4M3FN), convert(dtypes.float8_e4m3)),
    Case("NCC_EVRF056", "2.26", gather_iota(5), gather_iota(4)),
    Case("NCC_EVRF060", "2.32", scatter(S32), scatter(S32), "2.30"),
    Case("NCC_EVRF061", "2.26", collective("all-reduce", S32), collective("all-reduce", F32)),
    Case("NCC_EVRF062", "2.26", power(constant("e", 2, S64), S64), power(constant("e", 2, S32), S32)),
    Case("NCC_EVRF063", "2.26", collective("reduce-scatter", S32), collective("reduce-scatter", F32)),
    Case("NCC_ESFH002", "2.26", literal(2**32, U64), literal(2**32 - 1, U64)),
    Case("NCC_ESPP004", "2.26", convert(dtypes.float64), convert(dtypes.bfloat16)),
]
CASES = TABLE_CASES + LISTS + CODES


@each_of("case", CASES, ids=lambda c: f"{c.rule} {c.sdk}")
def test_a_broken_constraint_names_instruction_rule_and_release(case: Case) -> None:
    (finding,) = (f for f in found(case.breaks, case.sdk) if f.rule == case.rule)
    place = (finding.computation, finding.instruction, finding.opcode)
    assert place == ("main", "tried", case.breaks.root.opcode)
    assert finding.release == str(find_release(case.sdk))
    assert case.sdk in finding.release
    assert all((finding.message, finding.quotation, finding.advice))
    # A constraint that is kept gives no finding.
    kept = found(case.keeps, case.keeps_sdk or case.sdk)
    assert [f for f in kept if f.rule == case.rule] == []


def test_every_constraint_has_a_case() -> None:
    documented = {c.rule for c in (*TABLE_NOTES.values(), *KNOWN_ISSUES.values())}
    assert documented == {c.rule for c in TABLE_CASES}
    # NCC_EVRF052 needs a device newer than Trn3, which neuronsim has not.
    assert {c.rule for c in CODES} == set(ERROR_CODES) - {"NCC_EVRF052"}


def test_every_constraint_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| ")]
    for rule in (*(c.rule for c in TABLE_CASES), UNLISTED, *ERROR_CODES):
        assert any(rule in line for line in table), rule


def test_notes_are_quoted_in_the_words_of_the_table() -> None:
    assert {name: n.quotation for name, n in TABLE_NOTES.items()} == {
        "Gather": "Supports only disjoint start_index_map and remapped_offset_dims",
        "Pow": "Exponent argument must be a compile-time integer constant",
        "Reduce": (
            "Min, Max, Add and Mul are the only supported computations. Init_values must be constant"
        ),
        "RngBitGenerator": "Ignores user seed",
        "DynamicUpdateSlice": "Supports only for constant index",
    }


def test_an_unlisted_operator_has_the_code_and_words_of_aws() -> None:
    (finding,) = found(unary("fft"), "2.3.0.4")
    assert (finding.code, finding.quotation) == ("NCC_EVRF001", "An unsupported operator was used.")
    assert "Fft is not among the documented operators" in finding.message
    assert finding.severity == "warning"
    (finding,) = found(unary("reverse", dimensions=(0,)), FIRST)
    assert "2.3.0.4 is the first that lists it" in finding.message


def test_a_pow_with_any_constant_breaks_nothing_from_2_3_0_4() -> None:
    for exponent in (WHOLE, HALF):
        assert found(power(exponent), "2.3.0.4") == ()
    assert [f.rule for f in found(power(GIVEN), "2.3.0.4")] == ["note on Pow"]


def test_the_host_has_no_constraints() -> None:
    assert found(convert(S64), "2.26", "host") == ()
    assert found(unary("fft"), FIRST, "host") == ()


@each_of("release", RELEASES, ids=str)
def test_a_plain_network_breaks_nothing_under_any_release(release: Any) -> None:
    numbers = ops.DotDimensions((1,), (1,))
    square = Shape(F32, (4, 4))
    module = module_of(
        X,
        inst("d", "dot", square, "x", "x", dot_dimensions=numbers),
        inst("tanh", "tanh", square, "d"),
        constant("init", 0),
        inst("sum", "reduce", Shape(F32, (4,)), "tanh", "init", dimensions=(1,), called=("f",)),
        others=(reducer("f", "add"),),
    )
    assert check(module, release, find_target("trn1")) == ()


# ---- compile-time constants ----------------------------------------------------------------------


def called_power(*arguments: str) -> Module:
    """A callee that raises to its second parameter, called once for each argument."""
    scalar = Shape(F32)
    inner = computation(
        "callee",
        parameter("base", scalar, 0),
        parameter("exponent", scalar, 1),
        inst("tried", "power", scalar, "base", "exponent"),
    )
    calls = [
        inst(f"call.{n}", "call", scalar, "x", name, called=("callee",))
        for n, name in enumerate(arguments)
    ]
    given = (parameter("x", scalar), constant("c", 2.5), parameter("given", scalar, 1))
    return module_of(*given, *calls, others=(inner,))


def test_a_constant_argument_of_every_call_is_constant() -> None:
    assert found(called_power("c", "c"), "2.26") == ()
    for arguments in (("c", "given"), ("given", "c")):
        (finding,) = found(called_power(*arguments), "2.26")
        assert (finding.computation, finding.instruction) == ("callee", "tried")
        assert finding.rule == "note on Pow"


def test_a_constant_is_what_is_computed_from_constants() -> None:
    scalar = Shape(F32)
    module = module_of(
        constant("c", 2.0),
        inst("iota", "iota", Shape(S32, (3,)), dimensions=(0,)),
        inst("sum", "add", scalar, "c", "c"),
        inst("r", "rng", scalar, "c", "c", distribution="RNG_UNIFORM"),
        parameter("x", scalar),
        inst("mixed", "add", scalar, "sum", "x"),
        inst("custom", "custom-call", scalar, "c", custom_call_target="AwsNeuronErf"),
    )
    assert compile_time_constants(module)["main"] == {"c", "iota", "sum"}


def test_the_body_of_a_while_is_checked_and_its_parameter_is_not_constant() -> None:
    scalar = Shape(F32)
    body = computation("body", parameter("p", scalar), inst("tried", "power", scalar, "p", "p"))
    condition = computation("condition", parameter("p", scalar), constant("true", True, PRED))
    loop = inst("loop", "while", scalar, "c", called=("body", "condition"))
    module = module_of(constant("c", 2.0), loop, others=(body, condition))
    findings = found(module, "2.26")
    assert {(f.computation, f.instruction, f.rule) for f in findings} == {
        ("main", "loop", UNLISTED),
        ("body", "tried", "note on Pow"),
    }


def test_a_reducer_is_judged_by_the_reduce_that_calls_it() -> None:
    assert [f.instruction for f in found(reduce("and", dtype=PRED), "2.26")] == ["tried"]


def test_a_type_is_reported_where_a_value_is_made() -> None:
    pair = TupleShape((Shape(S64), Shape(S64)))
    module = module_of(
        parameter("p", Shape(S64)),
        inst("copied", "copy", Shape(S64), "p"),
        inst("t", "tuple", pair, "p", "copied"),
        inst("g", "get-tuple-element", Shape(S64), "t", tuple_index=0),
        inst("n", "negate", Shape(S64), "g"),
    )
    wide = [f.instruction for f in found(module, "2.26") if f.rule == issue("INT64")]
    assert wide == ["p", "n"]


def test_the_custom_calls_that_aws_lists_are_recognised() -> None:
    for target in CUSTOM_CALL_TARGETS:
        assert found(custom_call(target), "2.26") == ()


def test_an_instruction_without_its_operands_is_named() -> None:
    module = module_of(inst("p", "power", Shape(F32)))
    with pytest.raises(InvalidModel, match=r"NCC_EVRF064.*main/p \(power\).*at least 2"):
        found(module, "2.26")


# ---- reports and errors --------------------------------------------------------------------------


def test_findings_of_a_kind_are_grouped_errors_first() -> None:
    wide = [inst(f"n{k}", "convert", Shape(S64, (4, 3)), "x") for k in range(5)]
    module = module_of(X, *wide, inst("f8", "convert", Shape(E4M3FN, (4, 3)), "x"))
    findings = found(module, "2.26")
    groups = group(findings)
    assert [(g[0].severity, len(g)) for g in groups] == [("error", 1), ("warning", 5)]
    assert locations(groups[1]) == "main/n0 (convert), main/n1 (convert), main/n2 (convert) and 2 more"
    assert summary(findings) == "1 error and 5 warnings"


def test_strict_compile_lists_what_is_broken() -> None:
    with pytest.raises(NonconformingModel) as error:
        api.compile(power(GIVEN), sdk="2.2.0.73", strict=True)
    for part in ("main/tried (power)", "note on Pow", "known issue: pow exponent", "2.2.0.73"):
        assert part in str(error.value)
    assert api.compile(power(WHOLE), sdk="2.2.0.73", strict=True).conformance == ()


def test_strict_error_is_short_for_many_kinds() -> None:
    shapes = [
        inst(f"g{n}", "broadcast", Shape(F32, (2**31 + n,)), "c", dimensions=()) for n in range(14)
    ]
    with pytest.raises(NonconformingModel, match="and 4 more kinds"):
        api.compile(module_of(constant("c", 1), *shapes), strict=True)


def test_a_program_has_its_findings_and_no_warning_is_raised() -> None:
    program = api.compile(power(GIVEN), sdk="2.2.0.73")
    assert [f.rule for f in program.conformance] == ["note on Pow", "known issue: pow exponent"]
    assert api.lint(power(GIVEN), sdk="2.2.0.73") == program.conformance


def test_lint_takes_operators_that_neuronsim_does_not_execute() -> None:
    assert [f.instruction for f in api.lint(unary("dynamic-reshape"))] == ["tried"]


def test_lint_refuses_a_graph_that_contradicts_itself() -> None:
    with pytest.raises(InvalidModel, match="NCC_EVRF064"):
        api.lint(module_of(X, inst("t", "tanh", Shape(F32, (5,)), "x")))
