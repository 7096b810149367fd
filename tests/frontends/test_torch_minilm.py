"""all-MiniLM-L6-v2 through PyTorch's door."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import neuronsim

torch = pytest.importorskip("torch")

from tests.frontends.torch_minilm import minilm  # noqa: E402
from tests.support.minilm import CONFIG, find_weights, mask, tokens  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.isa_independent,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def network() -> Any:
    find_weights()
    return minilm()


@pytest.fixture(scope="module")
def program(network: Any) -> Any:
    return neuronsim.compile(
        network, torch.from_numpy(tokens()), torch.from_numpy(mask()), auto_cast="none"
    )


def test_it_equals_eager_float32(network: Any, program: Any) -> None:
    with torch.no_grad():
        expected = network(torch.from_numpy(tokens()), torch.from_numpy(mask())).numpy()
    np.testing.assert_allclose(np.asarray(program(tokens(), mask())), expected, 0, 1e-5)


COMPUTING = {
    "dot": 8, "exponential": 1, "rsqrt": 2, "divide": 5, "reduce": 6, "subtract": 3, "add": 13,
    "multiply": 8, "custom-call": 1,
}  # fmt: skip


def test_its_layers_are_planned_alike(program: Any) -> None:
    """Under all/bf16 every step of products, softmax, layer norm and GELU takes and gives bfloat16."""
    planned = neuronsim.plan(program.model, auto_cast="all", auto_cast_type="bf16")
    for n in range(CONFIG.layers):
        prefix = f"encoder.layer.{n}."
        own = [i for i in program.model.entry_computation.instructions if i.name.startswith(prefix)]
        steps = [
            i for i in own if i.opcode in COMPUTING and i.shape.arrays()[0].dtype.name == "float32"
        ]
        assert Counter(i.opcode for i in steps) == COMPUTING
        decisions = [planned.decisions[i.name] for i in steps]
        assert {(d.operand.name, d.output.name) for d in decisions if d.operand and d.output} == {
            ("bfloat16", "bfloat16")
        }


def test_instructions_say_where_they_come_from(program: Any) -> None:
    found = program.model.entry_computation.by_name
    dot = next(
        i for i in found.values() if i.opcode == "dot" and "layer.3.attention.self.key" in i.name
    )
    assert dot.metadata.op_name.startswith("encoder/layer/3/attention/self/key/")
    assert dot.metadata.source_file.endswith("torch_minilm.py")
    assert dot.metadata.source_line
