"""ONNX's own test suite: every case passes, or is excluded by a rule with a reason."""

from __future__ import annotations

import fnmatch
import functools
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim.errors
from neuronsim.frontends.onnx import operators  # noqa: F401  which fills the table
from neuronsim.frontends.onnx.table import OPERATORS

onnx = pytest.importorskip("onnx")

pytestmark = pytest.mark.isa_independent

KINDS = ("simple", "pytorch-operator", "pytorch-converted")
# The node cases of an operator run with those of its file; "bodies" are of operators that run by the
# function of ONNX's own, which "expanded" cases have in the place of the operator.
GROUPS = (
    *sorted({r[0].function.__module__.rpartition(".")[2] for r in OPERATORS.values()}),
    "bodies",
    "expanded",
)


@dataclass(frozen=True)
class Rule:
    """Why cases are excluded, and what they end with."""

    reason: str
    error: str
    types: Sequence[str] = ()
    operators: Sequence[str] = ()
    cases: Sequence[str] = ()
    rounded: bool = False  # by the reference, whose values are farther off than ours

    def excludes(self, case: Case) -> bool:
        return (
            _any_matches(self.cases, {case.name})
            or _any_matches(self.operators, case.operators)
            or _any_matches(self.types, case.types)
        )


@dataclass(frozen=True, eq=False)
class Case:
    """A case, with what rules ask of it."""

    name: str
    model: Any
    data: Callable[[], list[tuple[list[Any], list[Any]]]]
    rtol: float
    atol: float
    group: str = ""
    operators: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)


def _any_matches(patterns: Sequence[str], names: set[str]) -> bool:
    return any(fnmatch.fnmatchcase(n, p) for p in patterns for n in names)


@functools.cache
def rules() -> tuple[Rule, ...]:
    text = Path(__file__).with_name("onnx_exclusions.toml").read_text(encoding="utf-8")
    return tuple(Rule(**r) for r in tomllib.loads(text)["rule"])


# ---- the cases --------------------------------------------------------------------------------------


@functools.cache
def node_cases() -> dict[str, Case]:
    """The cases that onnx makes: their data are drawn from a generator that it seeds for each."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's of the infinities that some cases make
        found = collect_testcases(None)
    return {c.name: _case(c, c.model, functools.partial(_sets, c)) for c in found}


def _sets(case: Any) -> list[tuple[list[Any], list[Any]]]:
    return [([*map(_value, i)], [*map(_value, o)]) for i, o in case.data_sets]


def _value(x: Any) -> Any:
    return onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


@functools.cache
def model_cases(kind: str) -> dict[str, Case]:
    """The cases that lie in onnx's folder."""
    from onnx.backend.test.loader import load_model_tests

    found = {}
    for c in load_model_tests(kind=kind):
        model = c.model or onnx.load(Path(c.model_dir) / "model.onnx")
        data = functools.partial(_sets, c) if c.data_sets else functools.partial(_stored, c.model_dir)
        found[c.name] = _case(c, model, data)
    return found


def _stored(folder: str) -> list[tuple[list[Any], list[Any]]]:
    def read(part: Path, what: str) -> list[Any]:
        files = sorted(part.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.partition("_")[2]))
        return [_value(onnx.TensorProto.FromString(f.read_bytes())) for f in files]

    return [
        (read(part, "input"), read(part, "output"))
        for part in sorted(Path(folder).glob("test_data_set*"))
    ]


def _case(found: Any, model: Any, data: Any) -> Case:
    case = Case(found.name, model, data, found.rtol, found.atol, _group(found.name, model))
    _look(model.graph, case)
    for f in model.functions:
        for n in f.node:
            _look_at_node(n, case)
    return case


def _group(name: str, model: Any) -> str:
    if name.endswith("_expanded") or "_expanded_ver" in name:
        return "expanded"
    own = {
        OPERATORS[n.domain, n.op_type][0]
        for n in model.graph.node
        if (n.domain, n.op_type) in OPERATORS
    }
    return min((r.function.__module__.rpartition(".")[2] for r in own), default="bodies")


def _look(graph: Any, case: Case) -> None:
    for v in (*graph.input, *graph.output, *graph.value_info):
        case.types.update(_types(v.type))
    case.types.update(_type_name(t.data_type) for t in graph.initializer)
    for n in graph.node:
        _look_at_node(n, case)


def _look_at_node(n: Any, case: Case) -> None:
    case.operators.add(f"{n.domain}.{n.op_type}" if n.domain else n.op_type)
    for a in n.attribute:
        if a.type == onnx.AttributeProto.TENSOR:
            case.types.add(_type_name(a.t.data_type))
        if a.type == onnx.AttributeProto.INT and a.name == "to":
            case.types.add(_type_name(a.i))
        for g in (*([a.g] if a.HasField("g") else []), *a.graphs):
            _look(g, case)


def _type_name(number: int) -> str:
    return str(onnx.TensorProto.DataType.Name(number))


def _types(proto: Any) -> Iterator[str]:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        yield _type_name(proto.tensor_type.elem_type)
    elif kind:
        yield kind.removesuffix("_type").upper()


# ---- running them -----------------------------------------------------------------------------------


@functools.cache
def outcome(case: Case) -> Exception | None:
    """What a case ends with."""
    from onnx.backend.test.runner import Runner

    from neuronsim.onnx_backend import NeuronSimBackend

    try:
        prepared = NeuronSimBackend.prepare(case.model)
        for inputs, outputs in case.data():
            found = list(prepared.run(inputs))
            Runner.assert_similar_outputs(outputs, found, rtol=case.rtol, atol=case.atol)
    except Exception as error:  # every kind is a failure to tell of
        return error
    return None


def check(cases: dict[str, Case]) -> int:
    """Every case passes, or is excluded and ends as its rule says; gives how many pass."""
    wrong, passed = [], 0
    for case in cases.values():
        rule = next((r for r in rules() if r.excludes(case)), None)
        error = outcome(case)
        passed += error is None
        if rule is None:
            if error is not None:
                wrong.append(f"{case.name}: {type(error).__name__}: {str(error)[:300]}")
        elif error is None:
            wrong.append(f"{case.name} passes, and is excluded: {rule.reason.strip()}")
        elif not isinstance(error, getattr(neuronsim.errors, rule.error, AssertionError)):
            wrong.append(f"{case.name}: {type(error).__name__}, no {rule.error}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)
    return passed


@functools.cache
def passed_of(group: str) -> int:
    return check({k: c for k, c in node_cases().items() if c.group == group})


@pytest.mark.parametrize("group", GROUPS)
def test_node_cases(group: str) -> None:
    passed_of(group)


def test_at_least_1780_node_cases_pass() -> None:
    cases = node_cases()
    assert {c.group for c in cases.values()} <= set(GROUPS)
    assert len(cases) >= 1884
    assert sum(passed_of(g) for g in GROUPS) >= 1780


# What quantizes or multiplies integers; float8 is in no other case than those of casts and of these.
QUANTIZED = {
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    *("QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger"),
}


def test_all_121_cases_of_quantized_integers_and_float8_pass() -> None:
    """Also those on types that Trn1 lacks."""
    chosen, kinds = {}, dict.fromkeys(("FNUZ", "under 8 bits or E8M0", "float8", "integer"), 0)
    for name, case in node_cases().items():
        float8 = {t for t in case.types if t.startswith("FLOAT8")}
        if not float8 and not case.operators & QUANTIZED:
            continue
        chosen[name] = case
        small = _any_matches(["*INT[24]", "FLOAT4*", "*E8M0"], case.types)
        of_fnuz = _any_matches(["*FNUZ"], float8)
        kinds[
            next(k for k, is_it in zip(kinds, (of_fnuz, small, float8, True), strict=True) if is_it)
        ] += 1
        assert not any(r.excludes(case) for r in rules()), name
    assert kinds == {"FNUZ": 36, "under 8 bits or E8M0": 14, "float8": 42, "integer": 29}
    assert check(chosen) == 121


@pytest.mark.parametrize(
    ("kind", "least"), [("simple", 15), ("pytorch-operator", 35), ("pytorch-converted", 82)]
)
def test_model_cases(kind: str, least: int) -> None:
    assert check(model_cases(kind)) >= least


# ---- the rules --------------------------------------------------------------------------------------


def test_every_rule_excludes_a_case() -> None:
    every = [*node_cases().values(), *(c for k in KINDS for c in model_cases(k).values())]
    for rule in rules():
        assert rule.reason.strip()
        assert any(rule.excludes(c) for c in every), rule
        for patterns in (rule.types, rule.operators, rule.cases):
            for p in patterns:
                assert any(Rule("", "", *([[p]] * 3)).excludes(c) for c in every), p


def test_a_rule_that_excludes_a_passing_case_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = node_cases()["test_relu"]
    rule = Rule("of a control", "NeuronSimError", operators=["Rel?"])
    monkeypatch.setitem(globals(), "rules", lambda: (rule,))
    with pytest.raises(AssertionError, match="test_relu passes, and is excluded: of a control"):
        check({case.name: case})


def test_a_case_that_fails_without_a_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = node_cases()["test_equal_string"]
    monkeypatch.setitem(globals(), "rules", lambda: ())
    with pytest.raises(AssertionError, match=r"test_equal_string: UnsupportedType: .*STRING"):
        check({case.name: case})


@pytest.mark.parametrize("name", [c for r in rules() if r.rounded for c in r.cases])
def test_what_differs_by_the_references_roundings_is_right_here(name: str) -> None:
    """Ours is within the case's tolerance of the values of the same model in float64; the case's own
    values are not, or are farther off.
    """
    from neuronsim.onnx_backend import NeuronSimBackend

    case = node_cases()[name]
    (inputs, outputs), *_ = case.data()
    found = NeuronSimBackend.prepare(case.model).run(inputs)[0]
    exact = _in_float64(node_cases()[name.removesuffix("_expanded")], inputs)
    ours, theirs = (_excess(np.asarray(x), exact, case) for x in (found, outputs[0]))
    assert ours <= 1
    assert ours <= theirs


def _excess(x: Any, exact: Any, case: Case) -> float:
    """The largest error, in what the case tolerates."""
    error = np.abs(x.astype(np.float64) - exact) / (case.atol + case.rtol * np.abs(exact))
    return float(error.max())


def _in_float64(case: Case, inputs: list[Any]) -> Any:
    from onnx.reference import ReferenceEvaluator  # which takes long to load

    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    wide = {}
    for v, x in zip(model.graph.input, inputs, strict=True):
        if np.issubdtype(x.dtype, np.floating):
            v.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
        wide[v.name] = x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x
    return ReferenceEvaluator(model).run(None, wide)[0]
