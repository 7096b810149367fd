"""QLinearMatMul and QLinearConv as programs run them, the sums' bytes made behind the product (Q3, Q4):
random shapes, layouts and strides on every instruction set, against sums of integers in int64 and
NumPy's float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.support.parameters import each_of

import neuronsim as ns
from neuronsim import processor
from neuronsim.arrays import nn
from neuronsim.frontends.onnx.operators.quantization import integer_product, requantized
from neuronsim.program import CompiledProgram

KINDS = [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)]


def bytes_of(sums: Any, factors: Any, zero: int, to: Any) -> Any:
    """Q3: each step in float32, as NumPy rounds it."""
    info = np.iinfo(to)
    nearest = np.rint(sums.astype(np.int32).astype(np.float32) * factors)
    return (np.clip(nearest, info.min - zero, info.max - zero).astype(int) + zero).astype(to)


def drawn(rng: np.random.Generator, kind: Any, shape: Any) -> Any:
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max + 1, shape).astype(kind)


def scales(rng: np.random.Generator, count: int, depth: int) -> Any:
    return (rng.random(count) * 0.02 / max(depth, 1) ** 0.5).astype(np.float32) + np.float32(1e-4)


def check_everywhere(program: CompiledProgram, x: Any, expected: Any, at: Any) -> None:
    for number, isa in enumerate(processor.available_isas()):
        processor.set_isa(isa)
        processor.set_num_threads(1 + number % 2)
        np.testing.assert_array_equal(np.asarray(program(x)), expected, err_msg=f"{isa} {at}")


@each_of("seed", range(24))
def test_requantized_products_Q3_Q4(seed: int, restored_processor: None) -> None:
    rng = np.random.default_rng([36, seed])
    a, b = KINDS[seed % 4]
    batch = [int(rng.integers(1, 4))] if seed % 3 == 0 else []
    rows, depth, columns = (int(rng.choice([1, 3, 14, 33, 64, 130])) for _ in range(3))
    x, w = drawn(rng, a, (*batch, rows, depth)), drawn(rng, b, (*batch, depth, columns))
    a_zero, zero = int(drawn(rng, a, ())), int(rng.integers(0, 256))
    by = scales(rng, columns if seed % 2 else 1, depth)
    b_zero = drawn(rng, b, ()) if seed % 5 == 0 else b(0)

    def model(x: Any) -> Any:
        sums = integer_product(x, ns.asarray(a(a_zero)), ns.asarray(w), ns.asarray(b_zero))
        one = ns.asarray(np.float32(1))
        return requantized(sums, one, ns.asarray(by), one, ns.asarray(np.uint8(zero)))

    program = ns.compile(model, x, auto_cast="none")
    sums = (x.astype(np.int64) - a_zero) @ (w.astype(np.int64) - int(b_zero))
    check_everywhere(program, x, bytes_of(sums, by, zero, np.uint8), (seed, x.shape, w.shape))


AROUND = ((0, 0), (0, 0), (1, 2), (2, 1))


@each_of(
    ("value", "around", "padding", "groups", "is_fused"),
    [
        (np.uint8(200), AROUND, 0, 1, True),
        (np.uint8(200), AROUND, 0, 8, True),
        (np.int8(-77), AROUND, 0, 2, True),
        (np.int8(-77), AROUND, 0, 8, True),
        (np.int8(0), AROUND, 1, 1, True),
        (np.int8(-77), AROUND, 1, 8, False),  # beside zeros
        (np.uint8(3), ((0, 0), (0, 8), (1, 1), (1, 1)), 0, 1, False),
        (np.float32(0), AROUND, 1, 1, True),
        (np.float32(0), AROUND, -1, 8, True),
        (np.float32(-0.0), AROUND, 0, 8, False),
        (np.float32(1.5), AROUND, 0, 8, False),
    ],
)
def test_a_pad_runs_as_a_convolutions_padding_D2_M5_Q4(
    value: Any, around: Any, padding: int, groups: int, is_fused: bool, restored_processor: None
) -> None:
    rng = np.random.default_rng(groups)
    x = rng.integers(0, 127, (2, 8, 9, 18)).astype(value.dtype)
    w = rng.integers(-9, 9, (16, sum(around[1], 8) // groups, 3, 3))
    kind = ns.float32 if value.dtype == np.float32 else ns.int32
    weights = ns.asarray(w.astype(np.float32 if kind is ns.float32 else np.int8))

    def model(x: Any) -> Any:
        image = ns.pad(x, around, constant_values=value)
        return nn.conv(image, weights, padding=padding, groups=groups, dtype=kind)

    program = ns.compile(model, x, auto_cast="none")
    assert is_fused != any(t.opcodes == ("pad",) for t in program.timings(x))
    expected = np.asarray(model(ns.asarray(x)))
    check_everywhere(program, x, expected, (value, groups))


def convolved(x: Any, w: Any, stride: int, padding: int, groups: int) -> Any:
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    views = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))
    views, parts = views[:, :, ::stride, ::stride], []
    for v, kernel in zip(np.split(views, groups, 1), np.split(w, groups), strict=True):
        parts.append(np.moveaxis(np.tensordot(v, kernel, ((1, 4, 5), (1, 2, 3))), -1, 1))
    return np.concatenate(parts, 1)


@each_of("features_last", [False, True])
@each_of("seed", range(18))
def test_requantized_convolutions_Q3_Q4(
    seed: int, features_last: bool, restored_processor: None
) -> None:
    """Of whole words of channels and of few, one pixel and windows, strides, groups and depthwise ones;
    the channels first, as ONNX has them, or last.
    """
    rng = np.random.default_rng([37, seed])
    a, b = KINDS[seed % 4]
    groups = [1, 1, 6, 2, 1, 40][seed % 6]
    own = 1 if groups > 2 else int(rng.choice([3, 4, 8, 64]))
    features = groups * int(rng.choice([1, 2])) if groups > 1 else int(rng.choice([5, 32, 70]))
    size, window = [(1, 1), (9, 3), (7, 1), (12, 3), (30, 1), (13, 5)][seed % 6]
    size = max(size, window + 3)
    stride, padding = int(rng.integers(1, 3)), int(rng.integers(0, 2)) if window > 1 else 0
    x = drawn(rng, a, (2, groups * own, size, size + 3))
    w = drawn(rng, b, (features, own, window, window))
    a_zero, zero = int(drawn(rng, a, ())), int(rng.integers(0, 256))
    bias = rng.integers(-5000, 5000, features).astype(np.int32)
    by = scales(rng, features, own * window**2)
    sums = convolved(x.astype(np.int64) - a_zero, w.astype(np.int64), stride, padding, groups)
    sums = sums + bias.reshape(-1, 1, 1)
    taken = a_zero * w.astype(np.int64).sum((1, 2, 3)) - bias

    def model(x: Any) -> Any:
        image = ns.moveaxis(x, -1, 1) if features_last else x
        around = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
        image = ns.pad(image, around, constant_values=a(a_zero)) if padding else image
        found = nn.conv(image, ns.asarray(w), stride=stride, groups=groups, dtype=ns.int32)
        found = ns.subtract(found, ns.asarray(taken.astype(np.int32).reshape(-1, 1, 1)))
        one, factors = ns.asarray(np.float32(1)), ns.asarray(by.reshape(-1, 1, 1))
        found = requantized(found, one, factors, one, ns.asarray(np.uint8(zero)))
        return ns.moveaxis(found, 1, -1) if features_last else found

    expected = bytes_of(sums, by.reshape(-1, 1, 1), zero, np.uint8)
    if features_last:
        x, expected = np.ascontiguousarray(np.moveaxis(x, 1, -1)), np.moveaxis(expected, 1, -1)
    program = ns.compile(model, x, auto_cast="none")
    check_everywhere(program, x, expected, (seed, x.shape, w.shape, stride, padding))
