"""Asynchronous pairs: collectives, copies and computations that are started and awaited."""

from __future__ import annotations

import numpy as np
import pytest

from neuronsim import api
from neuronsim.errors import InvalidModel, NeuronSimError, UnsupportedOperator
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.asynchronous import with_synchronous_pairs

HEAD = """\
HloModule pairs
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}
twice {
  p = f32[4] parameter(0)
  q = f32[4] add(p, p)
  ROOT n = f32[4] negate(q)
}
ENTRY main {
  a = f32[4] parameter(0)
"""
# Each pair, and the operation that it is.
PAIRS = {
    "all-reduce": (
        "s = f32[4] all-reduce-start(a), replica_groups={}, to_apply=add\n"
        "ROOT d = f32[4] all-reduce-done(s)",
        "ROOT d = f32[4] all-reduce(a), replica_groups={}, to_apply=add",
    ),
    "all-gather": (
        "s = (f32[4], f32[8]) all-gather-start(a), replica_groups={{0,1}}, dimensions={0}\n"
        "ROOT d = f32[8] all-gather-done(s)",
        "ROOT d = f32[8] all-gather(a), replica_groups={{0,1}}, dimensions={0}",
    ),
    "collective-permute": (
        "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(a), "
        "source_target_pairs={{0,1},{1,0}}\nROOT d = f32[4] collective-permute-done(s)",
        "ROOT d = f32[4] collective-permute(a), source_target_pairs={{0,1},{1,0}}",
    ),
    "copy": (
        "s = (f32[4], f32[4], u32[]) copy-start(a)\nROOT d = f32[4] copy-done(s)",
        "ROOT d = f32[4] copy(a)",
    ),
    "async": (
        "s = ((f32[4]), f32[4], u32[]) async-start(a), calls=twice\n"
        "u = ((f32[4]), f32[4], u32[]) async-update(s)\nROOT d = f32[4] async-done(u)",
        "ROOT d = f32[4] call(a), to_apply=twice",
    ),
    "negate": (
        "s = ((f32[4]), f32[4], u32[]) negate-start(a)\n"
        "u = ((f32[4]), f32[4], u32[]) negate-update(s)\nROOT d = f32[4] negate-done(u)",
        "ROOT d = f32[4] negate(a)",
    ),
    "reduce-scatter": (
        "s = ((f32[4]), f32[2]) reduce-scatter-start(a), replica_groups={{0,1}}, dimensions={0}, "
        "to_apply=add\nROOT d = f32[2] reduce-scatter-done(s)",
        "ROOT d = f32[2] reduce-scatter(a), replica_groups={{0,1}}, dimensions={0}, to_apply=add",
    ),
    "all-to-all": (
        "s = ((f32[4]), f32[4]) all-to-all-start(a), replica_groups={{0,1}}, dimensions={0}\n"
        "ROOT d = f32[4] all-to-all-done(s)",
        "ROOT d = f32[4] all-to-all(a), replica_groups={{0,1}}, dimensions={0}",
    ),
}
X = np.array([[1, 2, 3, 4], [10, 20, 30, 40]], np.float32)


def module_text(lines: str) -> str:
    return f"{HEAD}  {lines}\n}}\n"


def run(lines: str) -> np.ndarray:
    program = api.compile(module_text(lines).encode(), auto_cast="none", replicas=2)
    return np.asarray(program(X))


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_gives_what_the_operation_does(name: str) -> None:
    pair, whole = PAIRS[name]
    np.testing.assert_array_equal(run(pair), run(whole))


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_survives_text_and_protobuf(name: str) -> None:
    module = parse.from_text(module_text(PAIRS[name][0]))
    for again in (proto.from_bytes(proto.to_bytes(module)), parse.from_text(text.to_text(module))):
        assert [i.opcode for i in again.entry_computation.instructions] == [
            i.opcode for i in module.entry_computation.instructions
        ]
        assert text.to_text(with_synchronous_pairs(again)) == text.to_text(
            with_synchronous_pairs(module)
        )


@pytest.mark.parametrize("name", PAIRS)
def test_xla_reads_the_pairs_and_writes_them(name: str) -> None:
    hlo = pytest.importorskip("jaxlib._hlo")
    peer = hlo.hlo_module_from_text(module_text(PAIRS[name][0]))
    for module in (
        proto.from_bytes(peer.as_serialized_hlo_module_proto()),
        parse.from_text(peer.to_string()),
    ):
        program = api.compile(module, auto_cast="none", replicas=2)
        np.testing.assert_array_equal(np.asarray(program(X)), run(PAIRS[name][1]))
    own = parse.from_text(module_text(PAIRS[name][0]))
    assert hlo.hlo_module_from_text(text.to_text(own)).to_string()
    assert hlo.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(own)).to_string()


def test_others_run_between_the_halves() -> None:
    found = run(
        "s = f32[4] all-reduce-start(a), replica_groups={}, to_apply=add\n"
        "  m = f32[4] multiply(a, a)\n"
        "  d = f32[4] all-reduce-done(s)\n"
        "  t = (f32[4], f32[4]) copy-start(m)\n"
        "  c = f32[4] copy-done(t)\n"
        "  ROOT r = f32[4] add(d, c)"
    )
    np.testing.assert_array_equal(found, X.sum(0) + X * X)


def test_plans_and_lint_see_the_operation() -> None:
    given = module_text(PAIRS["all-reduce"][0]).encode()
    assert not api.lint(given)
    assert api.plan(given, auto_cast="all").decisions.keys() >= {"s"}


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ("ROOT d = f32[4] all-reduce-done(a)", "does not wait for such a start"),
        (PAIRS["copy"][0].replace("copy-done", "all-gather-done"), "does not wait for such a start"),
        (PAIRS["copy"][0].replace("copy-done(s)", "copy-done(s, s)"), "does not wait for such a start"),
        (PAIRS["all-gather"][0].replace("f32[8] all-gather-d", "f32[9] all-gather-d"), "another shape"),
        (PAIRS["copy"][0].split("\n")[0].replace("s =", "ROOT s ="), "has not ended"),
        (
            "s = (f32[4], f32[4]) copy-start(a)\nROOT g = f32[4] get-tuple-element(s), index=0",
            "g reads s, which only its copy-done may",
        ),
        ("s = f32[4] copy-start(a)\nROOT d = f32[4] copy-done(s)", "gives a tuple with its result"),
        ("s = (f32[4], f32[4]) negate-start(a)\nROOT d = f32[4] negate-done(s)", "operands' shapes"),
        ("s = ((f32[4], f32[4]), f32[4]) negate-start(a)\nROOT d = f32[4] negate-done(s)", "has 2"),
    ],
)
def test_halves_that_contradict_each_other(lines: str, match: str) -> None:
    with pytest.raises(InvalidModel, match=match):
        api.compile(module_text(lines).encode())


@pytest.mark.parametrize("opcode", ["send", "recv", "infeed", "outfeed"])
def test_what_leaves_the_program_is_refused_by_name(opcode: str) -> None:
    lines = f"t = token[] after-all()\n  s = (f32[4], u32[], token[]) {opcode}(a, t), channel_id=1\n"
    with pytest.raises(UnsupportedOperator, match=rf"NCC_EVRF001.*{opcode} \(s\).*inputs and results"):
        api.compile(module_text(lines + "  ROOT r = f32[4] negate(a)").encode())
    with pytest.raises(NeuronSimError, match=rf"{opcode}-done"):
        api.compile(module_text(f"ROOT d = f32[4] {opcode}-done(a)").encode())
