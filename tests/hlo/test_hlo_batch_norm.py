"""Batch norms in a graph against XLA, within the rounding of their terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.hlo.single import of_arrays, run_on_host
from tests.hlo.xla import run_by_xla
from tests.support.parameters import each_of

from neuronsim import asarray, dtypes
from neuronsim.hlo.module import Shape, TupleShape

OPERANDS = {
    "batch-norm-training": ("x", "weight", "bias"),
    "batch-norm-inference": ("x", "weight", "bias", "mean", "variance"),
    "batch-norm-grad": ("x", "weight", "mean", "variance", "grad"),
}
CASES = [((8, 3, 5, 5), 1), ((7, 9), 1), ((3, 600), 0), ((2, 4, 4, 6), 3)]
EPS = 2.0**-24


def by_neuronsim(
    opcode: str, arrays: dict[str, np.ndarray], epsilon: float, feature: int, field: str
) -> list[np.ndarray]:
    operands = [asarray(arrays[n]) for n in OPERANDS[opcode]]
    x, own = (Shape(dtypes.float32, arrays[n].shape) for n in ("x", "weight"))
    shape = x if opcode == "batch-norm-inference" else TupleShape((x, own, own))
    module = of_arrays("norm", opcode, shape, *operands, epsilon=epsilon, feature_index=feature)
    found: Any = run_on_host(module, *operands, batch_norm=field)
    return [np.asarray(f) for f in (found if isinstance(found, tuple) else (found,))]


def by_xla(
    opcode: str, arrays: dict[str, np.ndarray], epsilon: float, feature: int
) -> list[np.ndarray]:
    names = OPERANDS[opcode]
    shapes = {n: f"f32[{','.join(map(str, a.shape))}]" for n, a in arrays.items()}
    lines = [f"{n} = {shapes[n]} parameter({i})" for i, n in enumerate(names)]
    own = shapes["weight"]
    result = shapes["x"] if opcode == "batch-norm-inference" else f"({shapes['x']}, {own}, {own})"
    call = f"{opcode}({', '.join(names)}), epsilon={epsilon}, feature_index={feature}"
    body = "\n".join([*lines, f"ROOT r = {result} {call}"])
    return run_by_xla(f"HloModule m\nENTRY main {{\n{body}\n}}", *(arrays[n] for n in names))


def exact(
    opcode: str, arrays: dict[str, np.ndarray], epsilon: float, feature: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each result in float64 with the sum of the sizes of the terms that it is made of."""
    x = arrays["x"].astype(np.float64)
    axes = tuple(d for d in range(x.ndim) if d != feature)
    own = [n if d == feature else 1 for d, n in enumerate(x.shape)]
    a = {n: v.astype(np.float64).reshape(own if v.ndim == 1 else v.shape) for n, v in arrays.items()}
    epsilon = float(np.float32(epsilon))
    n = x.size // x.shape[feature]
    flat = lambda v: v.reshape(-1)  # noqa: E731
    if opcode == "batch-norm-training":
        a["mean"], a["variance"] = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    spread = a["variance"] + epsilon
    # One pass takes the variance from mean x^2, and so does all that is divided by it.
    one_pass = (x * x).mean(axes, keepdims=True) / spread if opcode == "batch-norm-training" else 1
    scale = np.abs(a["weight"]) / np.sqrt(spread)
    if opcode != "batch-norm-grad":
        value = (x - a["mean"]) / np.sqrt(spread) * a["weight"] + a["bias"]
        size = (np.abs(x) + np.abs(a["mean"]) + np.sqrt(spread)) * scale * one_pass + np.abs(a["bias"])
        found = [(value, size)]
        if opcode == "batch-norm-training":
            sizes = np.abs(x).mean(axes, keepdims=True), (x * x).mean(axes, keepdims=True)
            found += [(flat(a["mean"]), flat(sizes[0])), (flat(a["variance"]), flat(sizes[1]))]
        return found
    centred, grad = x - a["mean"], a["grad"]
    reach = np.abs(x) + np.abs(a["mean"])
    total = (grad * centred).sum(axes, keepdims=True)
    sizes = (np.abs(grad) * reach).sum(axes, keepdims=True)
    of_x = scale * np.sign(a["weight"]) / n
    of_x = of_x * (n * grad - grad.sum(axes, keepdims=True) - total * centred / spread)
    size = n * np.abs(grad) + np.abs(grad).sum(axes, keepdims=True) + sizes * reach / spread
    return [
        (of_x, size * scale / n),
        (flat(total / np.sqrt(spread)), flat(sizes / np.sqrt(spread))),
        (flat(grad.sum(axes)), flat(np.abs(grad).sum(axes))),
    ]


@each_of(("shape", "feature"), CASES, ids=str)
@each_of("opcode", OPERANDS)
def test_batch_norm_R7_and_xla_agree_but_for_rounding(
    opcode: str, shape: tuple[int, ...], feature: int
) -> None:
    rng = np.random.default_rng([len(opcode), *shape])
    own = (shape[feature],)
    draw = lambda dims: rng.standard_normal(dims).astype(np.float32)  # noqa: E731
    arrays = {n: draw(own) for n in ("weight", "bias", "mean")}
    arrays |= {"x": draw(shape) + 2, "grad": draw(shape), "variance": np.abs(draw(own)) + 0.5}
    arrays = {n: arrays[n] for n in OPERANDS[opcode]}
    n = arrays["x"].size // shape[feature]
    theirs = by_xla(opcode, arrays, 1e-3, feature)
    expected = exact(opcode, arrays, 1e-3, feature)
    for field in ("two_pass", "xla"):
        ours = by_neuronsim(opcode, arrays, 1e-3, feature, field)
        for mine, their, (value, size) in zip(ours, theirs, expected, strict=True):
            # n additions, and eight operations around them.
            bound = (n + 8) * EPS * size
            assert mine.shape == their.shape == value.shape
            assert (np.abs(mine - value) <= bound).all()
            assert (np.abs(their - value) <= bound).all()
