"""The code blocks and the yaml of the document "Mixed Precision", with nothing changed but the import,
the names of files and what it leaves out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim.dtypes import bfloat16

pytestmark = pytest.mark.isa_independent
MODEL = "examples/digits/model.hlo.pb"
DATA = "examples/digits/test.npz"
COUNT = 192


@pytest.fixture(scope="module")
def digits() -> dict[str, np.ndarray]:
    with np.load(DATA) as data:
        return {n: data[n][:COUNT] for n in data.files}


def accuracy(program: Any, data: dict[str, np.ndarray]) -> float:
    parts = [np.asarray(program(data["x"][n : n + 64])) for n in range(0, COUNT, 64)]
    return float((np.concatenate(parts).argmax(-1) == data["labels"]).mean())


def float32_count(program: Any) -> int:
    """Arithmetic in float32 in the planned module."""
    return sum(
        i.opcode in ("dot", "add", "multiply", "exponential") and i.array.dtype is neuronsim.float32
        for i in program.module.entry_computation.instructions
    )


def test_convert_as_many_nodes_as_possible(digits: Any) -> None:
    from neuronsim.neural_compressor.experimental import MixedPrecision

    converter = MixedPrecision()
    converter.precisions = "bf16"
    converter.model = MODEL
    optimized_model = converter()

    expected = neuronsim.compile(MODEL, auto_cast="all", auto_cast_type="bf16")
    assert optimized_model.plan.decisions == expected.plan.decisions
    assert float32_count(optimized_model) == float32_count(expected) < 10
    x = digits["x"][:64]
    assert np.asarray(optimized_model(x)).tobytes() == np.asarray(expected(x)).tobytes()


YAML = f"""
model:
  name: resnet50_v1
  framework: tensorflow

mixed_precision:
  precisions: 'bf16'

evaluation:
  accuracy:
    dataloader:
      batch_size: 64
      dataset:
        npz:
          root: {DATA}
    metric:
      topk: 1
"""


def test_tune_accuracy_by_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits: Any) -> None:
    pytest.importorskip("yaml")
    from neuronsim.neural_compressor.experimental import MixedPrecision

    conf = tmp_path / "conf.yaml"
    conf.write_text(YAML)
    converter = MixedPrecision(str(conf))
    converter.model = MODEL
    output_model = converter()

    assert output_model.tune_result is not None
    assert output_model.tune_result.metric == "top1"
    assert output_model.tune_result.samples == 597
    exact = neuronsim.compile(MODEL, auto_cast="none")
    assert accuracy(output_model, digits) >= accuracy(exact, digits) * 0.99 - 1e-9


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_users_own_dataloader_and_metric(digits: Any, precision: str) -> None:
    class Metric:
        def __init__(self) -> None:
            self.reset()

        def update(self, sample: Any) -> None:
            predictions, label = sample
            self.right += int((np.argmax(predictions, axis=-1) == label).sum())
            self.count += len(label)

        def reset(self) -> None:
            self.right = self.count = 0

        def result(self) -> float:
            return self.right / self.count

    class Dataset:
        def __init__(self) -> None:
            self.images, self.labels = digits["x"], digits["labels"]

        def getitem(self, index: int) -> Any:
            return self.images[index], self.labels[index]

        def __length__(self) -> int:
            return len(self.labels)

    from neuronsim.neural_compressor.experimental import MixedPrecision, common

    dataset = Dataset()
    converter = MixedPrecision()
    converter.metric = Metric()
    converter.precisions = precision
    converter.eval_dataloader = common.DataLoader(dataset)
    converter.model = MODEL
    output_model = converter()

    exact = neuronsim.compile(MODEL, auto_cast="none")
    whole = neuronsim.compile(MODEL, auto_cast="all", auto_cast_type=precision)
    floor = accuracy(exact, digits) * 0.99 - 1e-9
    assert accuracy(output_model, digits) >= floor
    # float16 everywhere finds next to nothing; the search leaves float32 where that is needed.
    assert (accuracy(whole, digits) >= floor) == (precision == "bf16")
    assert float32_count(output_model) <= float32_count(whole) + 5


def test_yaml_switches_bfloat16_off(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    from neuronsim.neural_compressor.experimental import MixedPrecision

    whole = neuronsim.plan(MODEL, auto_cast="all", auto_cast_type="bf16")
    names = [n for n in whole.decisions if n.startswith("dot_general")][:2]
    assert all(whole.decisions[n].operand is bfloat16 for n in names)
    off = "{'activation': {'dtype': ['fp32']}, 'weight': {'dtype': ['fp32']}}"
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "mixed_precision:\n  precisions: 'bf16'\n  op_wise: {\n"
        + ",\n".join(f"    '{n}': {off}" for n in names)
        + "\n  }\n"
    )
    converter = MixedPrecision(str(conf))
    converter.model = MODEL
    found = converter().plan
    assert not set(names) & set(found.decisions)
    assert set(found.decisions) == set(whole.decisions) - set(names)
    assert "op_wise allows" in found.explain(names[0])
