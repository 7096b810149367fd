"""neuronsim.nn: layers, activations, pools and losses equal the slow twin's steps, bit for bit (R7)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import of_words, table

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType
from neuronsim.reference import composites
from neuronsim.reference.elementwise import FLOAT
from neuronsim.reference.formats import convert, from_float
from neuronsim.reference.sums import dot, reduce_float

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.device and t.kind == "float"]


def drawn(t: DType, *shape: int, seed: int = 0) -> np.Array:
    return normal(t, shape, seed)


def words(x: np.Array) -> Any:
    """The storage words of an array, as the twin takes them, in nested lists."""
    return table(x).tolist()


def wide(t: DType, word: int) -> int:
    return convert(t.name, "float32", word)


def rounded(t: DType, word: int) -> int:
    return convert("float32", t.name, word)


def add(a: int, b: int) -> int:
    return FLOAT["add"](a, b)


def sums_to(elements: Sequence[int]) -> int:
    return reduce_float("add", "float32", list(elements), 0)


def number(x: float) -> int:
    return from_float("float32", x)


# ---- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_linear_M2_equals_the_twin_with_one_rounding_after_the_bias(t: DType) -> None:
    x, w, b = drawn(t, 2, 3, 140), drawn(t, 4, 140, seed=1), drawn(t, 4, seed=2)
    for bias in (None, b):
        found = np.nn.linear(x, w, bias)
        assert (found.dtype, found.shape) == (t, (2, 3, 4))
        for n, m, o in itertools.product(range(2), range(3), range(4)):
            total = dot(t.name, t.name, "float32", words(x)[n][m], words(w)[o])
            if bias is not None:
                total = add(total, wide(t, words(b)[o]))
            assert words(found)[n][m][o] == rounded(t, total)


def test_linear_rounds_once() -> None:
    """Control: the sum 1 + 2^-8 alone rounds to 1, and with the bias 2^-8 to 1 + 2^-7."""
    x, w = np.asarray([1.0, 2.0**-8], "bfloat16"), np.ones((1, 2), dtype="bfloat16")
    bias = np.asarray([2.0**-8], "bfloat16")
    assert np.nn.linear(x, w, bias).tolist() == [1 + 2**-7]
    assert (np.nn.linear(x, w) + bias).tolist() == [1.0]


def test_linear_takes_mixed_types_lists_and_integers() -> None:
    x, w = drawn(np.bfloat16, 2, 3), drawn(np.bfloat16, 4, 3, seed=1)
    assert np.nn.linear(x, w, [1.0, 2.0, 3.0, 4.0]).dtype is np.float32
    assert np.nn.linear(x, drawn(np.float16, 4, 3)).dtype is np.float32
    assert np.nn.linear([1, 2], [[3, 4]], [5]).tolist() == [16.0]
    assert np.nn.linear(drawn(np.float64, 2, 3), drawn(np.float64, 4, 3)).dtype is np.float64
    assert np.nn.linear(np.zeros((0, 3)), np.zeros((4, 3)), np.ones(4)).shape == (0, 4)


def attention_by_the_twin(
    t: DType,
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float,
    added: Any = None,
    kept: Callable[[int, int], bool] = lambda i, j: True,
) -> list[list[int]]:
    out = []
    for i, q in enumerate(query):
        scores = []
        for j, k in enumerate(key):
            score = FLOAT["multiply"](dot(t.name, t.name, "float32", q, k), number(scale))
            if added is not None:
                score = add(score, wide(t, added[i][j]))
            scores.append(score if kept(i, j) else number(-math.inf))
        weights = [rounded(t, w) for w in composites.softmax("float32", scores)]
        columns = zip(*value, strict=True)
        out.append([dot(t.name, t.name, t.name, weights, list(column)) for column in columns])
    return out


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_attention_R7_equals_the_twins_steps(t: DType) -> None:
    q, k, v = drawn(t, 4, 6), drawn(t, 5, 6, seed=1), drawn(t, 5, 3, seed=2)
    mask, bias = numpy.arange(20).reshape(4, 5) % 3 != 1, drawn(t, 4, 5, seed=3)
    own = {"scale": 1 / math.sqrt(6)}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, own),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"is_causal": True}, {**own, "kept": lambda i, j: j <= i}),
        ({"mask": mask}, {**own, "kept": lambda i, j: bool(mask[i, j])}),
        ({"mask": bias}, {**own, "added": words(bias)}),
        ({"mask": bias, "is_causal": True}, {**own, "added": words(bias), "kept": lambda i, j: j <= i}),
    ]
    for given, twins in cases:
        found = np.nn.attention(q, k, v, **given)
        assert found.dtype is t
        assert words(found) == attention_by_the_twin(t, words(q), words(k), words(v), **twins)


def test_attention_broadcasts_its_batch() -> None:
    q, k, v = drawn(np.bfloat16, 2, 3, 4, 8), drawn(np.bfloat16, 3, 5, 8), drawn(np.bfloat16, 3, 5, 8)
    found = np.nn.attention(q, k, v, is_causal=True)
    assert found.shape == (2, 3, 4, 8)
    for n, h in itertools.product(range(2), range(3)):
        one = np.nn.attention(q[n, h], k[h], v[h], is_causal=True)
        assert words(found[n, h]) == words(one)


def test_attention_without_any_key_is_nan() -> None:
    x = np.ones((2, 3))
    nothing = np.asarray([[True, True], [False, False]])
    found = numpy.isnan(numpy.asarray(np.nn.attention(x, x, x, nothing)))
    assert found.tolist() == [[False] * 3, [True] * 3]


def test_embedding_E6_moves_the_bits_of_rows() -> None:
    for t in DTYPES.values():
        table = np.asarray([[0, 1], [1, 0], [1, 1]], dtype=t)
        found = np.nn.embedding([[2, 0], [1, 1]], table)
        assert (found.dtype, found.shape) == (t, (2, 2, 2))
        assert found.tolist() == numpy.asarray(table.tolist())[[[2, 0], [1, 1]]].tolist()


def test_one_hot_marks_classes() -> None:
    assert np.nn.one_hot([[0, 2]], 3).tolist() == [[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]
    assert np.nn.one_hot(1, 3, "float8_e4m3").dtype is np.float8_e4m3
    assert np.nn.one_hot([5, -1], 2).tolist() == [[0, 0], [0, 0]]
    assert np.nn.one_hot(numpy.zeros(0, int), 2).shape == (0, 2)


# ---- activations ---------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -2.5, 7.0]


def activation_by_the_twin(name: str, x: int) -> int:
    """The float32 word before the one rounding."""
    zero, positive = number(0.0), is_positive(x)
    if name == "leaky_relu":
        return x if positive else FLOAT["multiply"](x, number(0.01))
    if name == "elu":
        return x if positive else FLOAT["multiply"](FLOAT["expm1"](x), number(1.5))
    if name == "hard_sigmoid":
        inner = FLOAT["minimum"](FLOAT["maximum"](add(x, number(3.0)), zero), number(6.0))
        return FLOAT["divide"](inner, number(6.0))
    if name == "relu6":
        return FLOAT["minimum"](FLOAT["maximum"](x, zero), number(6.0))
    if name == "hardtanh":
        return FLOAT["minimum"](FLOAT["maximum"](x, number(-1.0)), number(1.0))
    if name == "logsigmoid":
        return FLOAT["negative"](FLOAT["softplus"](FLOAT["negative"](x)))
    return FLOAT[name](x)


def is_positive(word: int) -> bool:
    return 0 < word <= 0x7F800000


ARGUMENTS: dict[str, dict[str, Any]] = {"elu": {"alpha": 1.5}}
ACTIVATIONS = ["leaky_relu", "elu", "hard_sigmoid", "relu6", "hardtanh", "logsigmoid", "tanh"]


@each_of("t", FLOATS, ids=str)
@each_of("name", ACTIVATIONS)
def test_activation_equals_the_twins_steps(name: str, t: DType) -> None:
    x = np.asarray([*SPECIAL, *numpy.random.default_rng(0).standard_normal(40)], dtype=t)
    found = getattr(np.nn, name)(x, **ARGUMENTS.get(name, {}))
    assert found.dtype is t
    expected = [rounded(t, activation_by_the_twin(name, wide(t, w))) for w in words(x)]
    values = numpy.asarray(found.tolist())
    twins = of_words(expected, t)
    is_nan = numpy.isnan(values)
    assert is_nan.tolist() == numpy.isnan(numpy.asarray(twins.tolist())).tolist()
    assert [w for w, n in zip(words(found), is_nan, strict=True) if not n] == [
        w for w, n in zip(expected, is_nan, strict=True) if not n
    ]


def test_activations_of_integers_and_host_types() -> None:
    assert np.nn.relu6([-1, 3, 9]).tolist() == [0, 3, 6]
    assert np.nn.relu6([-1, 3, 9]).dtype is np.int64
    assert np.nn.leaky_relu([-2, 4], 0.5).dtype is np.float32
    x = np.asarray([-1.5, 2.0], dtype="float64")
    assert np.nn.elu(x).tolist() == [math.expm1(-1.5), 2.0]
    assert np.nn.leaky_relu(x).tolist() == [-1.5 * 0.01, 2.0]


# ---- convolutions and pools ----------------------------------------------------------------------


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_conv_and_bias_M5_round_once(t: DType) -> None:
    x, w, b = drawn(t, 1, 3, 9), drawn(t, 2, 3, 2, seed=1), drawn(t, 2, seed=2)
    found = np.nn.conv1d(x, w, b, stride=2, dilation=3)
    assert found.shape == (1, 2, 3)
    data, kernel = words(x)[0], words(w)
    for o, p in itertools.product(range(2), range(3)):
        lhs = [data[c][2 * p + 3 * k] for k in range(2) for c in range(3)]  # feature last: M5
        rhs = [kernel[o][c][k] for k in range(2) for c in range(3)]
        total = add(dot(t.name, t.name, "float32", lhs, rhs), wide(t, words(b)[o]))
        assert words(found)[0][o][p] == rounded(t, total)


def test_conv_of_one_two_and_three_axes_is_conv() -> None:
    for spatial, function in enumerate((np.nn.conv1d, np.nn.conv2d, np.nn.conv3d), 1):
        x, w = drawn(np.bfloat16, 2, 4, *(5,) * spatial), drawn(np.bfloat16, 6, 2, *(3,) * spatial)
        given = {"stride": 2, "padding": 1, "groups": 2}
        assert words(function(x, w, **given)) == words(np.nn.conv(x, w, **given))
        assert words(function(x, w, np.zeros(6, dtype="bfloat16"), **given)) == words(
            np.nn.conv(x, w, **given)
        )
        with pytest.raises(InvalidArgument, match=f"conv{spatial}d"):
            function(x[0], w)
        with pytest.raises(InvalidArgument, match="6 channels"):
            function(x, w, np.zeros(3), **given)


def scattered(
    x: numpy.ndarray, w: numpy.ndarray, stride: int, padding: int, more: int, dilation: int, groups: int
) -> numpy.ndarray:
    """The docstring's words: each element times the kernel, added `stride` apart, and cut."""
    batch, channels, n = x.shape
    _, outer, k = w.shape
    full = numpy.zeros((batch, groups * outer, (n - 1) * stride + dilation * (k - 1) + 1 + more))
    for b, c, i in itertools.product(range(batch), range(channels), range(n)):
        group = c // (channels // groups)
        for o, j in itertools.product(range(outer), range(k)):
            full[b, group * outer + o, i * stride + j * dilation] += x[b, c, i] * w[c, o, j]
    return full[:, :, padding : full.shape[2] - padding]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("stride", "padding", "more", "dilation"), [(1, 0, 0, 1), (2, 1, 1, 1), (3, 2, 2, 2)]
)
def test_conv_transpose_scatters(
    stride: int, padding: int, more: int, dilation: int, groups: int
) -> None:
    """Small integers, which are exact in every order."""
    rng = numpy.random.default_rng(0)
    x, w = rng.integers(-4, 5, (2, 4, 5)).astype(float), rng.integers(-4, 5, (4, 3, 3)).astype(float)
    bias = rng.integers(-4, 5, 3 * groups).astype(float)
    found = np.nn.conv_transpose(
        *(np.asarray(a, dtype="bfloat16") for a in (x, w, bias)),
        *(stride, padding, more, groups, dilation),
    )
    expected = scattered(x, w, stride, padding, more, dilation, groups) + bias[:, None]
    assert found.dtype is np.bfloat16
    numpy.testing.assert_array_equal(numpy.asarray(found.tolist()), expected)


def test_conv_transpose_has_two_axes() -> None:
    assert np.nn.conv_transpose(IMAGE, KERNEL, stride=(1, 2)).shape == (1, 1, 4, 6)


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_pools_R4_equal_the_twin(t: DType) -> None:
    x = drawn(t, 1, 2, 7)
    padded = [[None, *row, None] for row in words(x)[0]]
    own = {"size": 3, "stride": 2, "padding": 1}
    top, average = np.nn.max_pool(x, **own), np.nn.avg_pool(x, **own)
    without = np.nn.avg_pool(x, **own, count_include_pad=False)
    assert top.shape == average.shape == without.shape == (1, 2, 4)
    for c, p in itertools.product(range(2), range(4)):
        group = [wide(t, w) for w in padded[c][2 * p : 2 * p + 3] if w is not None]
        most = group[0]
        for w in group[1:]:
            most = FLOAT["maximum"](most, w)
        assert words(top)[0][c][p] == rounded(t, most)
        for found, count in ((average, 3), (without, len(group))):
            mean = FLOAT["divide"](sums_to(group), number(float(count)))
            assert words(found)[0][c][p] == rounded(t, mean)


def test_pools_have_the_size_as_stride() -> None:
    x = np.asarray(numpy.arange(16).reshape(1, 1, 4, 4))
    assert np.nn.max_pool(x, 2).tolist() == [[[[5, 7], [13, 15]]]]
    assert np.nn.max_pool(x, 2).dtype is np.int64
    assert np.nn.avg_pool(x, (2, 4)).tolist() == [[[[3.5], [11.5]]]]


# ---- norms and losses ----------------------------------------------------------------------------


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_group_norm_R7_equals_the_twin(t: DType) -> None:
    x, weight, bias = drawn(t, 2, 4, 5), drawn(t, 4, seed=1), drawn(t, 4, seed=2)
    assert np.nn.group_norm(np.zeros((0, 4, 3)), 2).shape == (0, 4, 3)
    found = np.nn.group_norm(x, 2, weight, bias, epsilon=1e-3)
    plain = np.nn.group_norm(x, 2, epsilon=1e-3)
    for n, g in itertools.product(range(2), range(2)):
        row = [wide(t, w) for c in (2 * g, 2 * g + 1) for w in words(x)[n][c]]
        normal = composites.layer_norm("float32", row, epsilon=1e-3)
        for c, i in itertools.product((0, 1), range(5)):
            channel, value = 2 * g + c, normal[5 * c + i]
            assert words(plain)[n][channel][i] == rounded(t, value)
            value = FLOAT["multiply"](value, wide(t, words(weight)[channel]))
            value = add(value, wide(t, words(bias)[channel]))
            assert words(found)[n][channel][i] == rounded(t, value)


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_losses_R7_equal_the_twin(t: DType) -> None:
    x, y = drawn(t, 3, 5), drawn(t, 3, 5, seed=1)
    pairs = zip(itertools.chain(*words(x)), itertools.chain(*words(y)), strict=True)
    differences = [FLOAT["subtract"](wide(t, a), wide(t, b)) for a, b in pairs]
    squares = [FLOAT["multiply"](d, d) for d in differences]
    check_reductions(t, lambda how: np.nn.mse_loss(x, y, how), squares)
    target = [4, 0, 2]
    losses = [
        FLOAT["negative"](composites.log_softmax("float32", [wide(t, w) for w in row])[c])
        for row, c in zip(words(x), target, strict=True)
    ]
    check_reductions(t, lambda how: np.nn.cross_entropy(x, target, how), losses)
    check_reductions(t, lambda how: np.nn.cross_entropy(x.T, target, how, axis=0), losses)


def check_reductions(t: DType, loss: Callable[[Any], np.Array], wides: list[int]) -> None:
    assert numpy.ravel(words(loss("none"))).tolist() == [rounded(t, w) for w in wides]
    assert words(loss("sum")) == rounded(t, sums_to(wides))
    assert words(loss("mean")) == rounded(t, FLOAT["divide"](sums_to(wides), number(len(wides))))


# ---- errors --------------------------------------------------------------------------------------

IMAGE, KERNEL = np.ones((1, 2, 3, 3)), np.ones((2, 1, 2, 2))
ROWS, SQUARE = np.ones((2, 3)), np.ones((4, 4))


@each_of(
    ("call", "error", "said"),
    [
        (lambda: np.nn.linear(ROWS, ROWS[0]), InvalidArgument, "outputs, inputs"),
        (lambda: np.nn.linear(ROWS, SQUARE), InvalidArgument, "contract"),
        (lambda: np.nn.attention(ROWS, ROWS[0], ROWS), InvalidArgument, "key"),
        (lambda: np.nn.attention(ROWS, np.ones((2, 4)), ROWS), NeuronSimError, None),
        (lambda: np.nn.attention(ROWS, ROWS, ROWS, scale="1"), InvalidArgument, "scale"),
        (lambda: np.nn.embedding([3], np.ones((3, 2))), IndexError, None),
        (lambda: np.nn.one_hot([0.5], 2), InvalidArgument, "integers"),
        (lambda: np.nn.elu(ROWS, alpha="a"), InvalidArgument, "alpha"),
        (lambda: np.nn.elu(np.zeros(2, dtype="float8_e4m3fn")), UnsupportedType, None),
        (lambda: np.nn.conv_transpose(IMAGE, KERNEL[0]), InvalidArgument, "conv_transpose"),
        (lambda: np.nn.conv_transpose(IMAGE, KERNEL, groups=3), InvalidArgument, "groups"),
        (lambda: np.nn.conv_transpose(IMAGE, KERNEL, stride=(1, 2, 3)), InvalidArgument, "stride"),
        (lambda: np.nn.max_pool([1.0], 2), InvalidArgument, "batch, channel"),
        (lambda: np.nn.avg_pool(IMAGE, (2, 2, 2)), InvalidArgument, "size"),
        (lambda: np.nn.group_norm(np.ones((2, 4)), 3), InvalidArgument, "3 groups"),
        (lambda: np.nn.group_norm(np.ones((2, 4)), 2, np.ones(3)), InvalidArgument, "weight"),
        (lambda: np.nn.mse_loss(ROWS, ROWS, "average"), InvalidArgument, "mean, sum or none"),
        (lambda: np.nn.cross_entropy(ROWS, [0]), InvalidArgument, "one class"),
        (lambda: np.nn.cross_entropy(ROWS, [0.5, 1.0]), InvalidArgument, "one class"),
        (lambda: np.nn.cross_entropy(ROWS, [0, 3]), IndexError, None),
    ],
)
def test_layers_and_losses_say_what_they_need(
    call: Callable[[], Any], error: type[Exception], said: str | None
) -> None:
    with pytest.raises(error, match=said):
        call()


# ---- a third party, within tolerance -------------------------------------------------------------


def test_layers_are_torchs_within_tolerance() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    rng = numpy.random.default_rng(0)
    x, q = rng.standard_normal((2, 4, 9)), rng.standard_normal((2, 3, 5, 8))
    w, b, v = rng.standard_normal((6, 2, 3)), rng.standard_normal(6), rng.standard_normal((2, 3, 5, 8))
    wt, logits, target = rng.standard_normal((4, 3, 3)), rng.standard_normal((5, 7)), [1, 0, 6, 3, 3]
    names = {n: getattr(np.nn, n) for n in ACTIVATIONS}
    x, q, w, b, v, wt = (a.astype(numpy.float32) for a in (x, q, w, b, v, wt))
    cases: list[tuple[Any, Any]] = [
        (np.nn.conv1d(x, w, b, 2, 1, 1, 2), functional.conv1d(*tensors(torch, x, w, b), 2, 1, 1, 2)),
        (
            np.nn.conv_transpose(x, wt, None, 2, 1, 1, 2),
            functional.conv_transpose1d(*tensors(torch, x, wt), None, 2, 1, 1, 2),
        ),
        (
            np.nn.attention(q, v, v, is_causal=True),
            functional.scaled_dot_product_attention(*tensors(torch, q, v, v), is_causal=True),
        ),
        (np.nn.avg_pool(x, 3, 2, 1), functional.avg_pool1d(*tensors(torch, x), 3, 2, 1)),
        (np.nn.max_pool(x, 3, 2, 1), functional.max_pool1d(*tensors(torch, x), 3, 2, 1)),
        (np.nn.group_norm(x, 2), functional.group_norm(*tensors(torch, x), 2)),
        (
            np.nn.cross_entropy(logits, target),
            functional.cross_entropy(*tensors(torch, logits), torch.tensor(target)),
        ),
        (np.nn.mse_loss(x, x * 2), functional.mse_loss(*tensors(torch, x, x * 2))),
        *(
            (function(np.asarray(x)), getattr(functional, torch_name(name))(*tensors(torch, x)))
            for name, function in names.items()
        ),
    ]
    for ours, theirs in cases:
        numpy.testing.assert_allclose(numpy.asarray(ours), theirs.numpy(), rtol=1e-5, atol=1e-5)


def torch_name(name: str) -> str:
    return {"hard_sigmoid": "hardsigmoid"}.get(name, name)


def tensors(torch: Any, *arrays: numpy.ndarray) -> list[Any]:
    return [torch.tensor(a) for a in arrays]
