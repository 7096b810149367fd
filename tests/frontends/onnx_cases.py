"""Models of one node: run with traced inputs, with known ones, and by ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neuronsim
from neuronsim.frontends.onnx.model import to_module

onnx = pytest.importorskip("onnx")

NEWEST = 24


@dataclass(frozen=True)
class Case:
    """A node: its inputs, None of those that are left out; how many of the first are traced; its
    attributes, the version of the operator set and how many outputs it has.
    """

    op_type: str
    inputs: Sequence[Any]
    traced: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)
    version: int = NEWEST
    outputs: int = 1
    wanted: Any = None  # the first output, of what ONNX's evaluator does not take
    domain: str = ""

    def __str__(self) -> str:
        shown = ",".join(
            f"{k}={v}" for k, v in self.attributes.items() if isinstance(v, int | float | str | list)
        )
        shapes = "x".join(str(np.shape(x)).replace(" ", "") for x in self.inputs if x is not None)
        return f"{self.op_type}-{self.version}({shapes},{shown})"

    @property
    def model(self) -> Any:
        """The model of the node; skips the test where the installed onnx is older."""
        if not self.domain and self.version > onnx.defs.onnx_opset_version():
            pytest.skip(f"onnx {onnx.__version__} has no version {self.version} of the operator set")
        given = {f"x{n}": np.asarray(x) for n, x in enumerate(self.inputs) if x is not None}
        names = [f"x{n}" if x is not None else "" for n, x in enumerate(self.inputs)]
        outputs = [f"y{n}" for n in range(self.outputs)]
        node = onnx.helper.make_node(
            self.op_type, names, outputs, name="node", domain=self.domain, **self.attributes
        )
        inputs = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for name, x in given.items()
        ]
        graph = onnx.helper.make_graph(
            [node], "graph", inputs, [onnx.helper.make_empty_tensor_value_info(o) for o in outputs]
        )
        opsets = [onnx.helper.make_opsetid(self.domain, self.version)]
        return onnx.helper.make_model(graph, opset_imports=opsets)

    @property
    def values(self) -> dict[str, Any]:
        """The inputs by name."""
        return {f"x{n}": np.asarray(x) for n, x in enumerate(self.inputs) if x is not None}


def run(case: Case, *, known: bool = False) -> list[Any]:
    """The outputs of the compiled model; with `known` of one whose inputs are all known."""
    traced = {} if known else {k: v for k, v in case.values.items() if int(k[1:]) < case.traced}
    rest = {k: v for k, v in case.values.items() if k not in traced}
    shapes = {k: v.shape for k, v in traced.items()}
    module = to_module(case.model, input_shapes=shapes, input_values=rest)
    program = neuronsim.compile(module, auto_cast="none", target="host")
    found = program(*traced.values())
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def expected(case: Case) -> list[Any]:
    """The outputs by ONNX's own evaluator."""
    if case.wanted is not None:
        return [case.wanted]
    from onnx.reference import ReferenceEvaluator  # which takes long to load

    return list(ReferenceEvaluator(case.model).run(None, case.values))


def check_traced_as_eager(case: Case) -> list[Any]:
    """Both have the same bits, which are the outputs."""
    found = run(case)
    for traced, eager in zip(found, run(case, known=True), strict=True):
        assert traced.dtype == eager.dtype
        assert traced.shape == eager.shape
        assert traced.tobytes() == eager.tobytes()
    return found


def check(case: Case, of_16_bits: float = 1e-5) -> None:
    """Traced and eager outputs are the same, and what ONNX's evaluator gives: within 1e-5, or another
    tolerance where the first input is of 16 bits.
    """
    is_narrow = len(case.inputs) > 0 and np.asarray(case.inputs[0]).itemsize == 2
    tolerance = of_16_bits if is_narrow else 1e-5
    with np.errstate(all="ignore"):
        outputs = zip(check_traced_as_eager(case), expected(case), strict=True)
    for found, wanted in outputs:
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        if found.dtype.kind in "biu":
            np.testing.assert_array_equal(found, wanted)
        else:
            wide = np.float64
            np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), tolerance, tolerance)


def floats(*dims: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(dims).astype(dtype)


BFLOAT16 = ml_dtypes.bfloat16


def ints(*values: Any) -> Any:
    """Integers as ONNX takes them for shapes."""
    return np.array(values, np.int64)
