"""Rule M5: convolution against the dot of its matrix of patches and against the twin."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from neuronsim import _core, dtypes, nn, ops, processor
from neuronsim.arrays.conversion import asarray
from neuronsim.dtypes import DTYPES
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.ops import ConvolutionDimensions, WindowDimension
from neuronsim.profiles import Profile
from neuronsim.reference import sums
from neuronsim.reference.formats import FORMATS
from tests.support.draws import random_words
from tests.support.evaluation import evaluate, evaluate_dot
from tests.support.processors import check_everywhere
from tests.support.words import FLOATS, Words, word_type

NARROW = FLOATS[2:]
Product = Callable[[str, Words, str, Words], Words]
ONE = 0x3F800000
INF, NAN = 0x7F800000, 0x7FC00000


# ---- one convolution -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Convolution:
    """What is convolved how. Arrays here are in the plain order: the image is [batch, spatial...,
    feature], the kernel [spatial..., input feature, output feature], the result [batch, spatial...,
    output feature]; `numbers` is the order in which the operation sees them.
    """

    batch: int
    image: tuple[int, ...]
    features: int  # of the kernel: those of one feature group
    outputs: int
    window: tuple[WindowDimension, ...]
    feature_groups: int = 1
    batch_groups: int = 1
    numbers: ConvolutionDimensions | None = None

    @property
    def groups(self) -> int:
        return self.feature_groups * self.batch_groups

    @property
    def image_shape(self) -> tuple[int, ...]:
        return (self.batch, *self.image, self.features * self.feature_groups)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        return (*(w.size for w in self.window), self.features, self.outputs)

    @property
    def places(self) -> tuple[int, ...]:
        """XLA's rule: as many windows as lie in the dilated and padded axis."""
        found = []
        for n, w in zip(self.image, self.window, strict=True):
            axis = np.repeat(np.arange(n), w.base_dilation)[: max((n - 1) * w.base_dilation + 1, 0)]
            length = axis.size + w.padding[0] + w.padding[1]
            found.append(len(range(0, length - (w.size - 1) * w.window_dilation, w.stride)))
        return tuple(found)

    @property
    def attributes(self) -> dict[str, Any]:
        return {
            "window": self.window,
            "dimension_numbers": self.numbers or plain_numbers(len(self.window)),
            "feature_group_count": self.feature_groups,
            "batch_group_count": self.batch_groups,
        }


def plain_numbers(spatial: int) -> ConvolutionDimensions:
    """The plain order: b01f_01io->b01f."""
    inner, outer = tuple(range(spatial)), tuple(range(1, spatial + 1))
    last = spatial + 1
    return ConvolutionDimensions(0, last, outer, spatial, last, inner, 0, last, outer)


def numbers_of(spatial: int, lhs: Any, rhs: Any, out: Any) -> ConvolutionDimensions:
    """Dimension numbers from three permutations of range(spatial + 2), each listed as in the plain
    order.
    """
    a, b, c = ([int(n) for n in p] for p in (lhs, rhs, out))
    return ConvolutionDimensions(
        a[0], a[-1], tuple(a[1:-1]), b[-2], b[-1], tuple(b[:spatial]), c[0], c[-1], tuple(c[1:-1])
    )


def run(c: Convolution, a: str, x: Words, b: str, y: Words, **more: Any) -> Words:
    """The operation on operands in the plain order; its result in the plain order."""
    d: ConvolutionDimensions = c.attributes["dimension_numbers"]
    lhs, rhs = x.transpose(np.argsort(d.input)), y.transpose(np.argsort(d.kernel))
    if c.numbers is not None:  # an order of its own lies so in memory, else it is a view
        lhs, rhs = np.ascontiguousarray(lhs), np.ascontiguousarray(rhs)
    found: Words = evaluate("convolution", (a, lhs), (b, rhs), **c.attributes, **more)
    return found.transpose(d.output)


def im2col(x: Words, window: tuple[WindowDimension, ...], places: tuple[int, ...]) -> Words:
    """The matrix of patches: a row for each image and output position, along it the positions of the
    window in row-major order and at each its features. Padding and holes are +0 (M5).
    """
    sizes = tuple(w.size for w in window)
    # One more position along each axis: the zero of what the image does not have.
    padded = np.pad(x, ((0, 0), *((0, 1) for _ in window), (0, 0)))
    read = []
    for axis, (w, count, n) in enumerate(zip(window, places, x.shape[1:-1], strict=True)):
        dilated = np.arange(count)[:, None] * w.stride - w.padding[0]
        index, hole = np.divmod(dilated + np.arange(w.size) * w.window_dilation, w.base_dilation)
        index = np.where((hole == 0) & (index >= 0) & (index < n), index, n)
        shape = [1] * (2 * len(window))
        shape[axis], shape[axis + len(window)] = index.shape
        read.append(index.reshape(shape))
    patches = padded[(slice(None), *read)]
    return patches.reshape(x.shape[0] * math.prod(places), math.prod(sizes) * x.shape[-1])


def by_dot(
    c: Convolution, a: str, x: Words, b: str, y: Words, product: Product | None = None, **more: Any
) -> Words:
    """The oracle: for each group the dot (M2) of its matrix of patches and its part of the kernel, or
    another product of them.
    """
    product = product or partial(evaluate_dot, **{"dtype": None} | more)
    y = np.flip(y, tuple(i for i, w in enumerate(c.window) if w.reversal))
    batch, outputs = c.batch // c.batch_groups, c.outputs // c.groups
    parts = []
    for group in range(c.groups):
        part = x
        if c.batch_groups > 1:
            part = x[group * batch : (group + 1) * batch]
        if c.feature_groups > 1:
            part = x[..., group * c.features : (group + 1) * c.features]
        rows = im2col(part, c.window, c.places)
        columns = y[..., group * outputs : (group + 1) * outputs].reshape(rows.shape[1], outputs)
        parts.append(product(a, rows, b, columns).reshape(batch, *c.places, outputs))
    return np.concatenate(parts, axis=-1)


def check(c: Convolution, a: str, x: Words, b: str, y: Words, **more: Any) -> Words:
    """The operation is the dot of its patches."""
    expected = by_dot(c, a, x, b, y, **more)
    np.testing.assert_array_equal(run(c, a, x, b, y, **more), expected, err_msg=str(c))
    return expected


def by_twin(c: Convolution, a: str, x: Words, b: str, y: Words, result: str) -> Words:
    image = {(p[0], p[1:-1], p[-1]): int(v) for p, v in np.ndenumerate(x)}
    kernel = {(p[:-2], p[-2], p[-1]): int(v) for p, v in np.ndenumerate(y)}
    window = [
        sums.WindowAxis(w.size, w.stride, w.padding[0], w.base_dilation, w.window_dilation, w.reversal)
        for w in c.window
    ]
    out = np.zeros((c.batch // c.batch_groups, *c.places, c.outputs), word_type(result))
    for at in np.ndindex(*out.shape):
        out[at] = sums.convolution(
            *(a, b, result, image, kernel, window, (at[0], at[1:-1], at[-1])),
            batch=c.batch,
            outputs=c.outputs,
            features=c.features,
            feature_groups=c.feature_groups,
            batch_groups=c.batch_groups,
        )
    return out


# ---- random ones ---------------------------------------------------------------------------------


def random_convolution(rng: np.random.Generator, top: int = 6) -> Convolution:
    """Up to three spatial dimensions of everything that HLO allows; a few dimensions are zero."""
    c = any_convolution(rng, top)
    while 0 in c.places and rng.random() < 0.97:
        c = any_convolution(rng, top)
    return c


def any_convolution(rng: np.random.Generator, top: int) -> Convolution:
    def integer(low: int, high: int) -> int:
        return int(rng.integers(low, high, endpoint=True))

    spatial = int(rng.choice([0, 1, 1, 2, 2, 2, 3]))
    longest = top if spatial < 3 else top - 2
    window = tuple(
        WindowDimension(
            size=integer(1, 3),
            stride=integer(1, 3),
            padding=(integer(-1, 2), integer(-1, 2)),
            base_dilation=int(rng.choice([1, 1, 2, 3])),
            window_dilation=int(rng.choice([1, 1, 2])),
            reversal=bool(rng.random() < 0.3),
        )
        for _ in range(spatial)
    )
    groups, kind = integer(2, 3), rng.choice(["one", "one", "feature", "depthwise", "batch"])
    c = Convolution(
        batch=integer(1, 2) * (groups if kind == "batch" else 1),
        image=tuple(integer(1, longest) for _ in range(spatial)),
        features=1 if kind == "depthwise" else integer(1, 4),
        outputs=integer(1, 3) * (1 if kind == "one" else groups),
        window=window,
        feature_groups=groups if kind in ("feature", "depthwise") else 1,
        batch_groups=groups if kind == "batch" else 1,
        numbers=numbers_of(spatial, *(rng.permutation(spatial + 2) for _ in range(3))),
    )
    if rng.random() < 0.05:
        c = dataclasses.replace(c, **{str(rng.choice(["batch", "features", "outputs"])): 0})
    if spatial and rng.random() < 0.05:
        c = dataclasses.replace(c, image=(0, *c.image[1:]))
    return c


def random_types(rng: np.random.Generator, seed: int) -> tuple[str, str, str]:
    a, b = (str(t) for t in rng.choice(NARROW if seed % 3 else FLOATS[:2], 2))
    if seed % 17 == 0:  # M1: other pairs take the lattice type first
        a, b = "float32", str(rng.choice(["bfloat16", "float16"]))
    return a, b, str(rng.choice(["float32", *FLOATS]))


def operands_of(c: Convolution, rng: np.random.Generator, a: str, b: str, mode: str = "any") -> Any:
    """Random words between the names of their types."""
    x, y = random_words(rng, a, c.image_shape, mode), random_words(rng, b, c.kernel_shape, mode)
    return a, x, b, y


def test_convolution_M5_equals_the_dot_of_its_patches(restored_processor: None) -> None:
    for seed in range(1000):
        rng = np.random.default_rng([5, seed])
        c = random_convolution(rng)
        a, b, result = random_types(rng, seed)
        mode = ["near", "any", "near", "special"][seed % 4]
        operands = operands_of(c, rng, a, b, mode)
        more = {"dtype": DTYPES[result]}
        if seed % 10 == 9:
            more["profile"] = Profile(subnormals="flush", accumulate="sequential")
        expected = by_dot(c, *operands, **more)
        isas = processor.available_isas()
        processor.set_isa(isas[seed % len(isas)])
        np.testing.assert_array_equal(run(c, *operands, **more), expected, err_msg=str(c))


@pytest.mark.parametrize("seed", range(100))
def test_convolution_M5_equals_the_twin(seed: int) -> None:
    rng = np.random.default_rng([6, seed])
    c = random_convolution(rng, top=4)
    a, b, result = random_types(rng, 1 if seed % 17 == 0 else seed)
    mode = ["near", "any", "special"][seed % 3]
    operands = operands_of(c, rng, a, b, mode)
    found = run(c, *operands, dtype=DTYPES[result])
    np.testing.assert_array_equal(found, by_twin(c, *operands, result), err_msg=str(c))


@pytest.mark.parametrize("isa", processor.available_isas())
@pytest.mark.parametrize("seed", range(60))
def test_convolution_M5_M2_holes_are_left_out_where_no_bit_changes(
    seed: int, isa: str, restored_processor: None
) -> None:
    """As many features as make the tiles of M2 whole positions of the window, parts of them or neither;
    Inf among the weights, by which a hole gives NaN; phases without a position.
    """
    rng = np.random.default_rng([61, seed])
    spatial = int(rng.integers(1, 3))
    window = tuple(
        WindowDimension(
            size=int(rng.integers(1, 6)),
            padding=(int(rng.integers(-1, 3)), int(rng.integers(-1, 4))),
            base_dilation=int(rng.integers(1, 4)),
            reversal=bool(rng.random() < 0.4),
        )
        for _ in range(spatial)
    )
    groups, kind = 2, rng.choice(["one", "one", "feature", "batch"])
    c = Convolution(
        batch=groups if kind == "batch" else 1,
        image=tuple(rng.integers(6, 70 if spatial == 1 else 12, spatial).tolist()),
        features=int(rng.choice([1, 16, 32, 48, 64, 128, 256])),
        outputs=groups * int(rng.integers(8, 24)),
        window=window,
        feature_groups=groups if kind == "feature" else 1,
        batch_groups=groups if kind == "batch" else 1,
        numbers=numbers_of(spatial, *(rng.permutation(spatial + 2) for _ in range(3))),
    )
    a, b, result = random_types(rng, seed)
    operands = operands_of(c, rng, a, b, "near")
    if seed % 5 == 4 and operands[3].size:
        operands[3].flat[rng.integers(operands[3].size)] = FORMATS[b].nan_bits
    more = {"dtype": DTYPES[result]}
    if seed % 6 == 5:
        more["profile"] = Profile(accumulate="sequential")
    expected = by_dot(c, *operands, **more)
    processor.set_isa(isa)
    np.testing.assert_array_equal(run(c, *operands, **more), expected, err_msg=str(c))


@pytest.mark.parametrize("isa", processor.available_isas())
def test_convolution_M5_holes_alone_are_zero_in_every_group(isa: str, restored_processor: None) -> None:
    """All outputs but two read nothing but holes; what lay in their memory is gone."""
    processor.set_isa(isa)
    x, w = np.ones((1, 2, 512), np.float32), np.ones((1, 256, 4096), np.float32)
    found = np.full((1, 65, 4096), 7, np.float32)
    code, numerics = _core.DTYPES.index("float32"), ops.numerics(Profile())
    shape = ([(1, 1, 0, 64, 1, False)], 2, 1)
    sums = ("fma", code, 128)
    call = _core.Convolution((code, None), (code, None), *shape, code, sums, numerics)
    call.on(*(a.view(np.uint32) for a in (x, w, found))).run()
    expected = np.zeros((1, 65, 4096), np.float32)
    expected[:, ::64] = 256
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("isa", processor.available_isas())
def test_convolution_M5_C4_a_tile_of_holes_makes_a_flushed_sum_positive(
    isa: str, restored_processor: None
) -> None:
    c = Convolution(1, (80,), 128, 8, (WindowDimension(4, base_dilation=2),))
    x, y = np.ones(c.image_shape, np.float32), np.zeros(c.kernel_shape, np.float32)
    y[0, 0], y[2, 0] = 1.5 * 2.0**-126, -1.75 * 2.0**-126
    operands = ("float32", x.view(np.uint32), "float32", y.view(np.uint32))
    processor.set_isa(isa)
    flush = Profile(subnormals="flush")
    found = run(c, *operands, dtype=dtypes.float32, profile=flush)
    np.testing.assert_array_equal(found, by_dot(c, *operands, dtype=dtypes.float32, profile=flush))
    assert (found[0, ::2] == 0).all()  # of the bits


# ---- larger than every block of a kernel ---------------------------------------------------------


def square(
    n: int, size: int, features: int, outputs: int, stride: int = 1, groups: int = 1, batch: int = 1
) -> Convolution:
    """A layer as networks have it: a square image, the padding that keeps its size."""
    w = WindowDimension(size, stride, (size // 2, size // 2))
    return Convolution(batch, (n, n), features, outputs, (w, w), groups)


def row(n: int, w: WindowDimension, features: int, outputs: int, **more: Any) -> Convolution:
    return Convolution(1, (n,), features, outputs, (w,), **more)


W = WindowDimension
LARGE = [
    *(("float32", square(n, 3, 17, 33)) for n in (7, 14, 15, 28, 29)),
    *(("bfloat16", square(n, 3, 32, 32)) for n in (7, 14, 28)),
    *(("float32", square(n, 1, f, o)) for n, f, o in ((14, 129, 65), (7, 256, 97), (28, 64, 31))),
    *(("float16", square(n, 3, 15, 34, stride=2)) for n in (14, 28, 29, 31)),
    *(("tfloat32", square(n, 5, 6, 16)) for n in (13, 28)),
    ("float32", square(28, 7, 3, 64, stride=2)),
    ("bfloat16", square(30, 7, 3, 33, stride=2, batch=2)),
    ("float32", square(7, 3, 160, 40)),
    ("bfloat16", square(7, 3, 128, 65)),
    ("float8_e4m3", square(14, 3, 43, 35)),
    ("float8_e5m2", square(9, 3, 65, 67, batch=3)),
    ("float8_e3m4", square(16, 2, 33, 48)),
    # Depthwise, with multipliers, and groups of odd sizes.
    *(("float32", square(n, 3, 1, 48, groups=48)) for n in (7, 14, 28)),
    ("bfloat16", square(14, 3, 1, 66, groups=33)),
    ("float32", square(15, 5, 1, 105, groups=35)),
    ("float16", square(14, 3, 8, 72, groups=4)),
    ("float32", square(9, 3, 45, 99, groups=3)),
    # One and three spatial dimensions; few pixels of many features and the other way round.
    ("float32", row(301, W(9, 1, (4, 4)), 31, 37)),
    ("bfloat16", row(1000, W(16, 4), 8, 33)),
    ("float32", row(1, W(1), 1000, 130)),
    ("float32", row(515, W(3, 1, (2, 0), 1, 5), 1, 1)),
    ("float32", Convolution(1, (6, 15, 7), 11, 33, (W(3, 1, (1, 1)), W(3, 2, (1, 0)), W(2, 1)))),
    ("float16", Convolution(2, (5, 5, 17), 7, 9, (W(2), W(3), W(3, 1, (1, 1))))),
    ("float32", Convolution(130, (), 300, 45, ())),
    # Dilations, crops and reversal on rows longer than a block.
    ("float32", row(40, W(4, 1, (2, 3), 2), 34, 36)),
    ("bfloat16", row(75, W(3, 2, (-3, -5), 3, 2, True), 50, 33)),
    ("float32", Convolution(1, (15, 17), 21, 33, (W(3, 1, (2, 2), 2, 1, True), W(3, 1, (1, 1), 1, 2)))),
    ("float32", Convolution(6, (10, 29), 9, 66, (W(3, 1, (1, 1)), W(3, 1, (1, 1))), 1, 3)),
]


@pytest.mark.parametrize(("type_name", "c"), LARGE, ids=lambda v: v if isinstance(v, str) else "")
def test_convolution_M5_larger_than_every_block(
    type_name: str, c: Convolution, restored_processor: None
) -> None:
    rng = np.random.default_rng(c.outputs * sum(c.image_shape))
    operands = operands_of(c, rng, type_name, type_name, "near")
    expected = by_dot(c, *operands, dtype=dtypes.float32)
    check_everywhere(lambda: run(c, *operands, dtype=dtypes.float32), expected, threads=(1, 2))


@pytest.mark.parametrize("width", range(2, 14))
def test_convolution_M5_rows_of_two_lines(width: int, restored_processor: None) -> None:
    """Register blocks reach over the ends of lines, of images and of planes."""
    for at, image in enumerate([(5, width), (3, 2, width)]):
        rng = np.random.default_rng([width, at])
        window = tuple(W(int(rng.integers(1, 4)), 1, (1, 1)) for _ in image[1:])
        # So many features that the product is not a small one, which has blocks of its own.
        c = Convolution(3, image, 40 + at, 33, (*window, W(3, 1 + width % 2, (1, 1))))
        a, b, result = random_types(rng, 1 + at)
        operands = operands_of(c, rng, a, b, "near")
        run_here = partial(run, c, *operands, dtype=DTYPES[result])
        check_everywhere(run_here, by_dot(c, *operands, dtype=DTYPES[result]), threads=(1, 2))


# ---- one noun, one test --------------------------------------------------------------------------


def draw(c: Convolution, mode: str = "near") -> tuple[str, Words, str, Words]:
    """float32 operands of a convolution whose sums show their order."""
    found: tuple[str, Words, str, Words] = operands_of(
        c, np.random.default_rng([7, 0]), "float32", "float32", mode
    )
    return found


BASIC = Convolution(2, (6, 7), 5, 4, (W(3, 1, (1, 1)), W(2, 1, (0, 1))))


def test_convolution_M5_order_shows() -> None:
    # Control: features before positions, or positions column-major, are other sums.
    c = Convolution(1, (6, 6), 5, 4, (W(3), W(3)))
    a, x, b, y = draw(c)
    found = run(c, a, x, b, y)
    patches = im2col(x, c.window, c.places).reshape(-1, 3, 3, 5)
    same = []
    for order in itertools.permutations(range(3)):
        rows = patches.transpose(0, *(i + 1 for i in order)).reshape(-1, 45)
        columns = y.transpose(*order, 3).reshape(45, 4)
        product = evaluate_dot(a, rows, b, columns)
        same.append(np.array_equal(product.reshape(found.shape), found))
    assert same == [True, *[False] * 5]


def test_convolution_M5_padding_is_counted_zeros() -> None:
    c = Convolution(2, (4, 5), 3, 4, (W(3, 1, (2, 1)), W(2, 1, (0, 3))))
    a, x, b, y = draw(c, mode="special")
    bare = Convolution(2, (7, 8), 3, 4, (W(3), W(2)))
    padded = np.pad(x, ((0, 0), (2, 1), (0, 3), (0, 0)))
    np.testing.assert_array_equal(run(c, a, x, b, y), run(bare, a, padded, b, y))


@pytest.mark.parametrize("weight", [INF, INF | 1 << 31, NAN])
def test_convolution_M5_weights_that_are_not_finite_meet_padding(weight: int) -> None:
    # 0 * Inf is NaN, at the border and in holes, where XLA skips it.
    y = np.array([ONE, ONE, weight], np.uint32).reshape(3, 1, 1)
    x = np.full((1, 3, 1), ONE, np.uint32)
    padded = run(row(3, W(3, 1, (1, 1)), 1, 1), "float32", x, "float32", y)
    assert padded.ravel().tolist() == [weight, weight, NAN]
    holes = run(row(3, W(3, 1, (0, 0), 2), 1, 1), "float32", x, "float32", y)
    assert holes.ravel().tolist() == [weight, NAN, weight]


def test_convolution_M5_negative_padding_crops() -> None:
    c = Convolution(1, (7, 8), 3, 4, (W(2, 1, (-2, -1)), W(3, 2, (-1, 2), 2)))
    a, x, b, y = draw(c)
    # Low padding of -1 crops one place of the dilated axis: the first element, not its hole.
    bare = Convolution(1, (4, 8), 3, 4, (W(2), W(3, 2, (-1, 2), 2)))
    found = run(c, a, x, b, y)
    np.testing.assert_array_equal(found, run(bare, a, x[:, 2:6], b, y))
    dilated = np.zeros((1, 4, 15, 3), np.uint32)
    dilated[:, :, ::2] = x[:, 2:6]
    cropped = np.pad(dilated[:, :, 1:], ((0, 0), (0, 0), (0, 2), (0, 0)))
    last = Convolution(1, (4, 16), 3, 4, (W(2), W(3, 2)))
    np.testing.assert_array_equal(found, run(last, a, cropped, b, y))


def test_convolution_M5_base_dilation() -> None:
    c = Convolution(2, (4, 5), 3, 4, (W(3, 1, (1, 0), 2), W(2, 2, (0, 2), 3)))
    a, x, b, y = draw(c, mode="special")
    dilated = np.zeros((2, 7, 13, 3), np.uint32)
    dilated[:, ::2, ::3] = x
    bare = Convolution(2, (7, 13), 3, 4, (W(3, 1, (1, 0)), W(2, 2, (0, 2))))
    np.testing.assert_array_equal(run(c, a, x, b, y), run(bare, a, dilated, b, y))


def test_convolution_M5_window_dilation() -> None:
    c = Convolution(2, (9, 8), 3, 4, (W(3, 1, (1, 0), 1, 3), W(2, 1, (0, 2), 1, 2)))
    a, x, b, y = draw(c)
    spread = np.zeros((7, 3, 3, 4), np.uint32)
    spread[::3, ::2] = y
    bare = Convolution(2, (9, 8), 3, 4, (W(7, 1, (1, 0)), W(3, 1, (0, 2))))
    # Terms x * 0 change no sum of finite values, and there are fewer than 128.
    found = run(c, a, x, b, y)
    np.testing.assert_array_equal(found, run(bare, a, x, b, spread))


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=2)))
def test_convolution_M5_reversal_changes_the_weight_read(flags: tuple[bool, bool]) -> None:
    a, x, b, y = operands = draw(BASIC)
    pairs = zip(BASIC.window, flags, strict=True)
    window = tuple(dataclasses.replace(w, reversal=r) for w, r in pairs)
    found = run(dataclasses.replace(BASIC, window=window), *operands)
    flipped = np.flip(y, [i for i, r in enumerate(flags) if r])
    np.testing.assert_array_equal(found, run(BASIC, a, x, b, flipped))
    assert np.array_equal(found, run(BASIC, *operands)) == (flags == (False, False))


def test_convolution_M5_reversal_keeps_the_order() -> None:
    # Control: the same terms walked from the window's other end are other sums.
    c = row(20, W(9, reversal=True), 3, 2)
    a, x, b, y = draw(c)
    found = run(c, a, x, b, y)
    patches = im2col(x, c.window, c.places).reshape(-1, 9, 3)[:, ::-1].reshape(-1, 27)
    other = evaluate_dot(a, patches, b, y.reshape(27, 2))
    assert np.any(found.ravel() != other.ravel())


CHANNELS_FIRST = numbers_of(2, (0, 2, 3, 1), (2, 3, 1, 0), (0, 2, 3, 1))


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize(
    "window",
    [
        (W(3, 1, (1, 1)), W(3, 1, (1, 1))),
        (W(3, 2, (1, 1)), W(3, 2, (0, 1))),
        (W(3, 3, (2, 0)), W(2, 2, (-1, 3), base_dilation=2)),
        (W(2, 2, (0, 3), base_dilation=3), W(3, 4, (5, 1), base_dilation=6)),
        (W(3, 1, (4, 4), window_dilation=3), W(2, 3, (1, 0), window_dilation=2)),
        (W(1, 7), W(1, 1 << 31)),
    ],
)
def test_convolution_M5_depthwise_on_planes(
    window: tuple[WindowDimension, ...], multiplier: int
) -> None:
    c = Convolution(2, (11, 19), 1, 5 * multiplier, window, 5, numbers=CHANNELS_FIRST)
    check(c, *draw(c, mode="special"))


def square_depthwise(rng: np.random.Generator, at: int) -> Convolution:
    """Windows that are squares of neighbours, at strides 1 and 2: what is read line by line."""
    size, stride = 3 + 2 * (at % 2), 1 + at // 2 % 2
    padding = [tuple(int(n) for n in rng.integers(-1, size + 1, 2)) for _ in range(2)]
    image = (int(rng.integers(size, 12)), int(rng.choice([5, 7, 8, 14, 15, 16, 17, 33, 40])))
    groups, multiplier = int(rng.choice([2, 5, 9])), int(rng.choice([1, 1, 1, 3]))
    if at % 8 == 4:  # more than are computed at a time
        size, stride, padding, image, groups, multiplier = 3, 1, [(1, 1), (1, 1)], (11, 40), 13, 2
    window = tuple(W(size, stride, p, reversal=bool(rng.random() < 0.2)) for p in padding)
    outputs = groups * multiplier
    c = Convolution(1 + at % 3 // 2, image, 1, outputs, window, groups, numbers=CHANNELS_FIRST)
    return square_depthwise(rng, at) if 0 in c.places else c


def test_convolution_M5_depthwise_on_lines(restored_processor: None) -> None:
    for at in range(24):
        rng = np.random.default_rng([23, at])
        c = square_depthwise(rng, at)
        a, b, result = random_types(rng, 1 + at)
        operands = operands_of(c, rng, a, b, ["near", "special", "any"][at % 3])
        more = {"dtype": DTYPES[result]}
        check_everywhere(
            partial(run, c, *operands, **more), by_dot(c, *operands, **more), threads=(1, 2)
        )


@pytest.mark.parametrize(
    ("image", "window", "outputs"),
    [
        ((23, 37), (W(3, 2, (1, 1)), W(3, 2, (1, 0))), 33),
        ((40, 60), (W(3, 1, (1, 1)), W(3, 1, (1, 1))), 70),  # several bands
        ((17, 21), (W(7, 2, (3, 3)), W(7, 2, (3, 3), reversal=True)), 16),  # two tiles
        ((9, 30), (W(2, 1, (2, -1), window_dilation=3), W(5, 3, (0, 4), base_dilation=2)), 5),
        ((3, 7, 9), (W(2, 1, (0, 1)), W(3, 2, (1, 1)), W(3, 1, (1, 1))), 20),
        ((300,), (W(9, 4, (4, 4)),), 40),
    ],
)
def test_convolution_M5_of_few_channels_on_planes(
    image: tuple[int, ...], window: tuple[WindowDimension, ...], outputs: int, isa: str, threads: int
) -> None:
    rank = len(image)
    first = (0, *range(2, rank + 2), 1)
    numbers = numbers_of(rank, first, (*range(2, rank + 2), 1, 0), first)
    c = Convolution(2, image, 3, outputs, window, numbers=numbers)
    operands = draw(c, mode="special" if rank == 3 else "near")
    for result in ("float32", "bfloat16"):
        check(c, *operands, dtype=DTYPES[result])


def test_convolution_M5_strides_over_pixels(isa: str, threads: int) -> None:
    """Windows of one element whose strides leave gaps between the elements that are read."""
    for at in range(16):
        rng = np.random.default_rng([24, at])
        image = (int(rng.integers(1, 12)), int(rng.integers(2, 40)))
        window = tuple(W(1, int(rng.integers(2, 4)), (-int(rng.integers(2)), 0)) for _ in range(2))
        groups = 1 + at % 2
        c = Convolution(2, image, 5, 4 * groups, window, groups, numbers=CHANNELS_FIRST)
        a, b, result = random_types(rng, 1 + at)
        check(c, *operands_of(c, rng, a, b, "any"), dtype=DTYPES[result])


@pytest.mark.parametrize("type_name", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(1, 700, 400), (1, 3, 100_000)])
def test_convolution_M5_depthwise_on_planes_in_bands(
    shape: tuple[int, ...], type_name: str, restored_processor: None
) -> None:
    # Larger than what is held of a plane: small integers, whose sums are exact in any order.
    rng = np.random.default_rng(1)
    x = rng.integers(-2, 3, (*shape[:1], 2, *shape[1:])).astype(np.float32)
    w = rng.integers(-2, 3, (2, 1, 3, 3)).astype(np.float32)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    parts = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    expected = np.einsum("nchwij,cij->nchw", parts, w[:, 0])
    operands = asarray(x, type_name), asarray(w, type_name)
    check_everywhere(
        lambda: np.asarray(nn.conv(*operands, padding=1, groups=2)).astype(np.float32), expected
    )


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize(
    ("groups", "batch_groups"),
    [(1, 1), (3, 1), (1, 2), (6, 1)],
    ids=["one", "groups", "batch", "depthwise"],
)
def test_convolution_M5_windows_that_reach_far_are_gathered(
    type_name: str, groups: int, batch_groups: int
) -> None:
    # An image that held one output's window would take gigabytes.
    far = 40_000
    window = (W(2, 1, (far, 0), window_dilation=far), W(3, 2, (far, far + 2), window_dilation=far))
    c = Convolution(2, (3, 5), 6 // groups, 12, window, groups, batch_groups)
    check(c, *operands_of(c, np.random.default_rng(groups), type_name, type_name, "near"))


@pytest.mark.parametrize("mode", ["near", "special"])
def test_convolution_C4_flushed_subnormals(mode: str) -> None:
    a, x, b, y = draw(BASIC, mode=mode)
    x = np.where(np.arange(x.size).reshape(x.shape) % 3 == 0, x & 0x807FFFFF, x).astype(np.uint32)
    y = np.where(y & 1, y | 0x7E000000, y).astype(np.uint32)  # large, so that subnormals show
    check(BASIC, a, x, b, y, profile=Profile(subnormals="flush"))


@pytest.mark.parametrize("result", ["bfloat16", "float8_e4m3"])
def test_convolution_S2_draws_by_the_place_in_the_result(result: str) -> None:
    numbers = numbers_of(2, (3, 0, 2, 1), (0, 3, 1, 2), (2, 0, 3, 1))
    c = dataclasses.replace(BASIC, features=2, outputs=6, feature_groups=2, numbers=numbers)
    a, x, b, y = draw(c)
    setting = ops.Setting(Profile(rounding="stochastic"), 7, "0/main/c/")
    lhs, rhs = x.transpose(np.argsort(numbers.input)), y.transpose(np.argsort(numbers.kernel))
    operands = ((a, lhs), (b, rhs))
    dtype = DTYPES[result]
    found = evaluate("convolution", *operands, **c.attributes, dtype=dtype, setting=setting)
    exact = evaluate("convolution", *operands, **c.attributes)
    drawn = evaluate("convert", ("float32", exact), dtype=dtype, setting=setting)
    np.testing.assert_array_equal(found, drawn)
    assert np.any(found != evaluate("convert", ("float32", exact), dtype=dtype))


# ---- integers and bool (M7) ----------------------------------------------------------------------


def test_convolution_M7_operands_take_the_results_type() -> None:
    x = np.array([200, 3], np.uint8).reshape(1, 2, 1)  # int8: -56, 3
    found = run(row(2, W(2), 1, 1), "int8", x, "int8", x.reshape(2, 1, 1), dtype=dtypes.int32)
    assert found.view(np.int32).tolist() == [[[56 * 56 + 9]]]


# ---- nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_name", ["float32", "bfloat16", "int32", "bool"])
def test_convolution_M5_zero_sized_dimensions(type_name: str) -> None:
    rng = np.random.default_rng(9)

    def of(**changes: Any) -> Words:
        c = dataclasses.replace(BASIC, **changes)
        return run(c, *operands_of(c, rng, type_name, type_name))

    assert of(batch=0).shape == (0, 6, 7, 4)
    assert of(outputs=0).shape == (2, 6, 7, 0)
    assert of(outputs=0, feature_groups=3).shape == (2, 6, 7, 0)
    no_terms = of(features=0)  # K = 0 gives +0 (M2)
    assert no_terms.shape == (2, 6, 7, 4)
    assert not no_terms.any()
    assert of(image=(0, 7)).shape == (2, 0, 7, 4)
    padded = of(image=(0, 7), window=(W(2, 1, (2, 1)), W(2, 1, (0, 1))))
    assert padded.shape == (2, 2, 7, 4)  # XLA: an empty axis is padded like another
    assert of(image=(2, 7), window=(W(4), W(2))).shape == (2, 0, 6, 4)


# ---- bad input is refused before any work --------------------------------------------------------


def infer(c: Convolution, lhs: str = "float32", rhs: str = "float32", **changes: Any) -> ops.ArrayType:
    types = [
        ops.ArrayType(DTYPES[lhs], changes.pop("lhs_dims", c.image_shape)),
        ops.ArrayType(DTYPES[rhs], changes.pop("rhs_dims", c.kernel_shape)),
    ]
    return ops.by_name("convolution").infer(types, {**c.attributes, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lhs_dims": (2, 6, 7, 6)}, "input has 6 features, the kernel reads 5 in each of 1"),
        ({"feature_group_count": 2}, "kernel reads 5 in each of 2 feature groups"),
        ({"lhs_dims": (2, 6, 7, 15), "feature_group_count": 3}, "3 groups do not divide the output"),
        ({"lhs_dims": (3, 6, 7, 5), "batch_group_count": 2}, "2 groups do not divide the batch, 3"),
        ({"lhs_dims": (9, 6, 7, 5), "batch_group_count": 3}, "3 groups do not divide the output"),
        ({"feature_group_count": 2, "batch_group_count": 2}, "one of them 1"),
        ({"feature_group_count": 0}, "positive"),
        ({"batch_group_count": -1}, "positive"),
        ({"feature_group_count": True}, "positive"),
        ({"lhs_dims": (2, 6, 5)}, "needs 4 in the input"),
        ({"rhs_dims": (3, 2, 5)}, "needs 4 in the kernel"),
        ({"rhs_dims": (3, 3, 5, 4)}, r"the kernel is \(3, 3\), its window"),
        ({"window": BASIC.window[:1]}, "a window of 1 dimensions needs 3 in the input"),
        ({"window": (W(0), W(2))}, "from 1 to"),
        ({"window": (W(3, 0), W(2))}, "from 1 to"),
        ({"window": (W(3, 1, (0, 0), 0), W(2))}, "from 1 to"),
        ({"window": (W(3, 1, (0, 0), 1, -1), W(2))}, "from 1 to"),
        ({"window": (W(3, 1, (1 << 40, 0)), W(2))}, "padding"),
        ({"window": (3, 2)}, "WindowDimension"),
        (
            {"dimension_numbers": numbers_of(2, (0, 1, 2, 2), (0, 1, 2, 3), (0, 1, 2, 3))},
            "the input, each listed once",
        ),
        (
            {"dimension_numbers": numbers_of(2, (0, 1, 2, 3), (0, 1, 2, 4), (0, 1, 2, 3))},
            "the kernel, each listed once",
        ),
        (
            {"dimension_numbers": numbers_of(2, (0, 1, 2, 3), (0, 1, 2, 3), (-1, 1, 2, 0))},
            "the output, each listed once",
        ),
        ({"dimension_numbers": plain_numbers(3)}, "needs 4 in the input"),
    ],
)
def test_convolution_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        infer(BASIC, **changes)


@pytest.mark.parametrize(
    ("lhs", "rhs", "changes"),
    [
        ("float32", "int32", {}),
        ("float64", "float64", {}),
        ("complex64", "complex64", {}),
        ("float8_e4m3fn", "bfloat16", {}),
        ("float32", "float32", {"dtype": dtypes.int32}),
        ("int8", "int8", {"dtype": dtypes.float32}),
    ],
)
def test_convolution_of_types_without_products_is_refused(
    lhs: str, rhs: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedType, match=r"convolution of|no common type"):
        infer(BASIC, lhs, rhs, **changes)


def test_convolution_whose_sizes_leave_64_bits_is_refused() -> None:
    far = W(1, 1, (1 << 31, 1 << 31))
    three = Convolution(1, (1, 1, 1), 1, 1, (far, far, far))
    with pytest.raises(InvalidArgument, match="elements"):
        infer(three)
    with pytest.raises(InvalidArgument, match="elements"):
        infer(dataclasses.replace(three, batch=0))  # the other lengths are indexed all the same
    dilated = Convolution(0, (1 << 61,), 1, 1, (W(1, 1, (0, 0), 4),))
    with pytest.raises(InvalidArgument, match="places"):
        infer(dilated)


def test_reversed_window_of_a_reduction_is_refused() -> None:
    x, zero = (ops.ArrayType(dtypes.float32, dims) for dims in ((4,), ()))
    attributes = {"window": (W(2, reversal=True),), "reducer": "add"}
    with pytest.raises(InvalidArgument, match="not reversed"):
        ops.by_name("reduce_window").infer([x, zero], attributes)
