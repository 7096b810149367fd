"""AWS's order of settings on networks above 1 GFLOP, and what is said where estimates contradict it."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tests.support.parameters import each_of

from neuronsim import reports
from neuronsim.hlo.module import Module
from neuronsim.hlo.parse import from_text
from neuronsim.tuning.cost import Estimate
from neuronsim.tuning.cost_order import SETTINGS_BY_SPEED, disagreements

pytestmark = pytest.mark.isa_independent

NONE = "--auto-cast none"


@functools.cache
def ladder(text: str) -> dict[str, Estimate]:
    """The estimates of a module under AWS's settings, by the flags."""
    return {r.setting: r.estimate for r in reports.cost_ladder(from_text(text))}


def flags(scope: str, cast_type: str) -> str:
    return f"--auto-cast {scope} --auto-cast-type {cast_type}"


class Network:
    """A network in HLO text, layer by layer on x[rows, width]."""

    def __init__(self, rows: int, width: int) -> None:
        self.lines = [f"x = f32[{rows},{width}] parameter(0)"]
        self.constants: list[str] = []
        self.rows, self.width, self.last = rows, width, "x"

    def add(self, text: str, width: int | None = None, *, dims: str = "") -> str:
        """An instruction `text` of the last width, or of another one or other dimensions."""
        name = f"i{len(self.lines)}"
        shape = dims or f"{self.rows},{width or self.width}"
        self.lines.append(f"{name} = f32[{shape}] {text}")
        return name

    def product(self, width: int) -> None:
        weights = self.add(f"parameter({self._parameters()})", dims=f"{self.width},{width}")
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        self.last = self.add(f"dot({self.last}, {weights}), {dims}", width)
        self.width = width

    def _parameters(self) -> int:
        return sum("parameter(" in line for line in self.lines)

    def unary(self, opcode: str) -> None:
        self.last = self.add(f"{opcode}({self.last})")

    def residual(self, inside: Iterator[None]) -> None:
        before = self.last, self.width
        for _ in inside:
            pass
        if self.width != before[1]:
            self.product(before[1])
        self.last = self.add(f"add({self.last}, {before[0]})")

    def norm(self) -> None:
        """X - mean x, as a row's."""
        zero = self.add("constant(0)", dims="")
        self.lines[-1] = f"{zero} = f32[] constant(0)"
        total = self.add(
            f"reduce({self.last}, {zero}), dimensions={{1}}, to_apply=sum", dims=str(self.rows)
        )
        wide = self.add(f"broadcast({total}), dimensions={{0}}")
        centred = self.add(f"subtract({self.last}, {wide})")
        square = self.add(f"multiply({centred}, {centred})")
        self.last = self.add(f"divide({centred}, {square})")

    def text(self) -> str:
        body = "\n  ".join([*self.lines[:-1], "ROOT " + self.lines[-1]])
        add = "sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"
        return f"HloModule network\n{add}\nENTRY main {{\n  {body}\n}}"


def drawn(seed: int) -> str:
    """A network above 1 GFLOP."""
    draw = random.Random(seed)
    network = Network(draw.choice([64, 128, 1024, 4096]), draw.choice([128, 512, 2048]))
    flops = 0.0

    def layer() -> Iterator[None]:
        nonlocal flops
        for _ in range(draw.randint(1, 3)):
            width = draw.choice([96, 256, 1000, 2048])
            flops += 2 * network.rows * network.width * width
            network.product(width)
            for opcode in draw.sample(["tanh", "exponential", "negate", "abs", "logistic"], 2):
                network.unary(opcode)
            yield

    while flops < 1.2e9:
        if draw.random() < 0.5:
            network.norm()
        network.residual(layer())
    return network.text()


@each_of("seed", range(12))
def test_networks_above_a_gigaflop_keep_awss_order(seed: int) -> None:
    found = ladder(drawn(seed))
    assert found[NONE].flops > 1e9
    for cast_type in ("tf32", "fp16", "bf16"):
        scopes = [NONE, flags("matmult", cast_type), flags("all", cast_type)]
        for slower, faster in pairwise(scopes):
            assert found[slower].seconds >= found[faster].seconds * (1 - 1e-9)
    for scope in ("matmult", "all"):
        for slower, faster in pairwise([flags(scope, t) for t in ("tf32", "fp16", "bf16")]):
            assert found[slower].seconds >= found[faster].seconds * (1 - 1e-9)
    none, narrow = found[NONE], found[flags("all", "bf16")]
    assert none.bound == "memory" or none.seconds > narrow.seconds  # and not by ties alone


@each_of("seed", range(12))
def test_the_bounds_enclose_the_estimate(seed: int) -> None:
    for r in reports.cost_ladder(from_text(drawn(seed))):
        least, between, most = (r.estimate.overlapped_seconds, r.timeline.seconds, r.estimate.seconds)
        assert least <= between * (1 + 1e-12)
        assert between <= most * (1 + 1e-12)


CASTS = """HloModule casts
ENTRY main {
  x = f32[128,64] parameter(0)
  w = f32[64,1] parameter(1)
  y = f32[128,1] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[128,64] tanh(x)
  ROOT r = (f32[128,1], f32[128,64]) tuple(y, t)
}"""


def test_a_disagreement_is_told_with_its_reason() -> None:
    # A product of one column gains less than the copies of its operands, which are inputs, take.
    found = ladder(CASTS)
    ordered = [(name, found[name]) for name in SETTINGS_BY_SPEED["neuronx-cc"]]
    told = disagreements(ordered)
    first = told[0]
    assert (first.slower, first.faster) == (NONE, flags("matmult", "tf32"))
    assert first.because[0][0] == "casts"
    assert first.seconds == pytest.approx(
        found[first.faster].seconds - found[first.slower].seconds, rel=1e-12
    )
    assert str(first).startswith(
        "AWS's table has --auto-cast matmult --auto-cast-type tf32 faster than --auto-cast none; here "
    )
    assert "casts take " in str(first)


def test_ties_and_awss_order_are_no_disagreements() -> None:
    found = ladder(CASTS)
    same = [("a", found[NONE]), ("b", found[NONE])]
    slower = [("a", found[flags("matmult", "tf32")]), ("b", found[NONE])]
    assert disagreements(same) == disagreements(slower) == ()


def module_of_inputs() -> Module:
    return from_text("HloModule none\nENTRY main {\n  ROOT x = f32[8] parameter(0)\n}")


def test_a_model_that_computes_nothing_has_no_disagreement() -> None:
    found = reports.cost_ladder(module_of_inputs())
    assert disagreements([(r.setting, r.estimate) for r in found]) == ()


@pytest.mark.parametrize(
    "line",
    [
        "m = f32[128,128] maximum(t, z)",
        "m = f32[128,128] select(c, t, z)",
        "m = f32[128,128] negate(t)",
    ],
)
def test_products_of_rounded_values_that_were_chosen_take_one_pass(line: str) -> None:
    text = f"""HloModule chosen
ENTRY main {{
  x = f32[128,128] parameter(0)
  k = f32[] constant(0)
  z = f32[128,128] broadcast(k), dimensions={{}}
  c = pred[128,128] compare(x, z), direction=GT
  t = f32[128,128] tanh(x)
  {line}
  ROOT y = f32[128,128] dot(m, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
    found = ladder(text)
    for cast_type in ("tf32", "fp16", "bf16"):
        for scope in ("matmult", "all"):
            tensor = found[flags(scope, cast_type)].by_engine["tensor"]
            assert tensor == pytest.approx((100 + 128) / 2.8e9)
    assert found[NONE].by_engine["tensor"] == pytest.approx((100 + 4 * 128) / 2.8e9)
