"""nn.conv: its formula, layouts and errors. The bits are rule M5's: tests/core/test_convolution.py."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.arrays.convolution import conv
from neuronsim.errors import InvalidArgument, UnsupportedType


def by_formula(
    x: numpy.ndarray,
    w: numpy.ndarray,
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    groups: int,
) -> numpy.ndarray:
    """The docstring's sum on small integers, which are exact, channels first."""
    low_high = [(0, 0), (0, 0), *padding]
    x = numpy.pad(x, low_high)
    spans = [(n - 1) * d + 1 for n, d in zip(w.shape[2:], dilation, strict=True)]
    places = [(n - s) // t + 1 for n, s, t in zip(x.shape[2:], spans, stride, strict=True)]
    y = numpy.zeros((x.shape[0], w.shape[0], *places))
    for n, o, *p in numpy.ndindex(*y.shape):
        first = o // (w.shape[0] // groups) * w.shape[1]
        for c, *t in numpy.ndindex(*w.shape[1:]):
            at = [a * s + b * d for a, s, b, d in zip(p, stride, t, dilation, strict=True)]
            y[(n, o, *p)] += x[(n, first + c, *at)] * w[(o, c, *t)]
    return y


def small(*shape: int) -> numpy.ndarray:
    size = int(numpy.prod(shape))
    return ((numpy.arange(size) * 7919) % 11 - 5).reshape(shape).astype(numpy.float32)


@each_of("layout", ["channels_first", "channels_last"])
@each_of("groups", [1, 2])
@each_of("spatial", [0, 1, 2, 3])
def test_conv_follows_its_formula(spatial: int, groups: int, layout: Any) -> None:
    x = small(2, 4, *(6, 5, 4)[:spatial])
    w = small(6, 4 // groups, *(2, 3, 2)[:spatial])
    stride, dilation = (2, 1, 3)[:spatial], (1, 2, 1)[:spatial]
    padding = ((1, 2), (0, 1), (2, 0))[:spatial]
    expected = by_formula(x, w, stride, padding, dilation, groups)
    if layout == "channels_last":
        x, w = numpy.moveaxis(x, 1, -1), numpy.moveaxis(w, (0, 1), (-1, -2))
        expected = numpy.moveaxis(expected, 1, -1)
    y = conv(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout)
    assert y.dtype is np.float32
    numpy.testing.assert_array_equal(numpy.asarray(y), expected)


def test_one_number_stands_for_every_axis() -> None:
    x, w = small(1, 2, 7, 6), small(3, 2, 2, 3)
    for one, each in itertools.product((2, numpy.int64(2)), ((2, 2), [2, 2])):
        y, z = (conv(x, w, stride=n, padding=n, dilation=n, base_dilation=n) for n in (one, each))
        assert y.tolist() == z.tolist()
    pairs = conv(x, w, padding=[[1, 1], (2, 2)])
    assert pairs.tolist() == conv(x, w, padding=(1, 2)).tolist()


def test_negative_padding_crops() -> None:
    x, w = small(1, 2, 7), small(3, 2, 2)
    assert conv(x, w, padding=[(-2, -1)]).tolist() == conv(x[..., 2:6], w).tolist()


def test_base_dilation_puts_zeros_between_the_elements() -> None:
    x, w = small(1, 2, 3), small(3, 2, 2)
    dilated = numpy.zeros((1, 2, 5), numpy.float32)
    dilated[..., ::2] = x
    assert conv(x, w, base_dilation=2).tolist() == conv(dilated, w).tolist()


def test_types_are_the_lattices_or_the_one_asked_for() -> None:
    x, w = small(1, 2, 3), small(3, 2, 2)
    half = np.asarray(x, dtype=np.bfloat16)
    assert conv(half, half[:, :, :2]).dtype is np.bfloat16
    assert conv(half, np.asarray(w, dtype=np.float16)).dtype is np.float32
    assert conv(half, half[:, :, :2], dtype="float32").dtype is np.float32
    counted = conv(x.astype(numpy.int32), w)  # M1: integers beside floats become floats
    assert counted.dtype is np.float32
    assert counted.tolist() == conv(x, w).tolist()
    assert conv(x.astype(numpy.int8), w.astype(numpy.int8), dtype=np.int32).dtype is np.int32


def test_padding_of_weights_that_are_not_finite_is_seen_M5() -> None:
    w = numpy.array([[[numpy.inf, 1.0]]], numpy.float32)
    y = conv(numpy.ones((1, 1, 2), numpy.float32), w, padding=1)
    numpy.testing.assert_array_equal(numpy.asarray(y), [[[numpy.nan, numpy.inf, numpy.inf]]])


@each_of(
    ("x", "w", "options", "message"),
    [
        ((1, 2, 5), (3, 2, 2, 2), {}, "as many spatial axes"),
        ((5,), (2,), {}, "two axes for batch and channels"),
        ((1, 3, 5), (3, 2, 2), {}, "input has 3 features"),
        ((1, 4, 5), (3, 2, 2), {"groups": 2}, "2 groups do not divide the output features, 3"),
        ((1, 2, 5), (3, 2, 2), {"stride": (1, 2)}, "stride"),
        ((1, 2, 5), (3, 2, 2), {"stride": [(1, 2)]}, "stride"),
        ((1, 2, 5), (3, 2, 2), {"padding": [(1, 2, 3)]}, "padding"),
        ((1, 2, 5), (3, 2, 2), {"stride": 0}, "from 1 to"),
        ((1, 2, 5), (3, 2, 2), {"dilation": -1}, "from 1 to"),
        ((1, 2, 5), (3, 2, 2), {"groups": 0}, "positive"),
        ((1, 2, 5), (3, 2, 2), {"layout": "NCHW"}, "channels_first or channels_last"),
    ],
)
def test_bad_arguments_are_named(
    x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        conv(small(*x), small(*w), **options)


def test_float64_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="convolution of float64"):
        conv(numpy.ones((1, 1, 3)), numpy.ones((1, 1, 2)))
