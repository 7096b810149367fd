"""The linalg extension: decompositions are NumPy's float64 results rounded once (H1), norms and powers
float32 steps (R7), products the main namespace's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from numpy.linalg import LinAlgError
from rounded_once import check, exact
from tests.support.parameters import each_of
from tests.support.words import FLOATS, word_list

import neuronsim as np
from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedType
from neuronsim.reference import elementwise, formats, sums

linalg = np.linalg

TYPES = (*FLOATS, "float64", "complex64", "complex128")


def matrices(dtype: str, shape: tuple[int, ...] = (2, 3, 3), seed: int = 0) -> np.Array:
    """Well-conditioned ones."""
    rng = numpy.random.default_rng(seed)
    x = rng.standard_normal(shape) + 3 * numpy.eye(*shape[-2:])
    if dtype.startswith("complex"):
        return np.asarray((x + 1j * rng.standard_normal(shape)).astype(dtype))
    return np.asarray(x, dtype=dtype)


def symmetric(dtype: str, seed: int = 0) -> np.Array:
    """Positive definite ones."""
    x = numpy.asarray(exact(matrices(dtype, seed=seed)))
    found = x @ x.conj().swapaxes(-1, -2) / 4 + 2 * numpy.eye(3)
    lower = numpy.tril(found, -1)
    diagonal = numpy.real(found) * numpy.eye(3)
    return np.asarray(lower + lower.conj().swapaxes(-1, -2) + diagonal).astype(dtype)


def real(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def complex_of(dtype: str) -> str:
    return "complex128" if dtype in ("float64", "complex128") else "complex64"


# ---- decompositions (H1) -----------------------------------------------------------------------------


@pytest.mark.isa_independent
@each_of("dtype", TYPES)
def test_H1_functions_of_matrices_are_rounded_once(dtype: str) -> None:
    x = matrices(dtype)
    wide = exact(x)
    for name in ("inv", "det"):
        check(getattr(linalg, name)(x), getattr(numpy.linalg, name)(wide), dtype)
    cut = 3 * np.finfo(real(dtype)).eps
    check(linalg.pinv(x), numpy.linalg.pinv(wide, rtol=cut), dtype)
    for name in ("svdvals", "cond"):
        check(getattr(linalg, name)(x), getattr(numpy.linalg, name)(wide), real(dtype))
    for p in (1, -2, "fro"):
        check(linalg.cond(x, p), numpy.linalg.cond(wide, p), real(dtype))
    check(linalg.eigvals(x), numpy.linalg.eigvals(wide), complex_of(dtype))
    sign, logarithm = numpy.linalg.slogdet(wide)
    found = linalg.slogdet(x)
    check(found.sign, sign, dtype)
    check(found.logabsdet, logarithm, real(dtype))
    b = matrices(dtype, seed=1)
    check(linalg.solve(x, b), numpy.linalg.solve(wide, exact(b)), dtype)
    if dtype == "bfloat16":  # the control: float32 would be something else
        assert linalg.inv(x).tobytes() != linalg.inv(x.astype("float32")).tobytes()


@pytest.mark.isa_independent
@each_of("dtype", TYPES)
def test_H1_factors_are_rounded_once_and_give_the_matrix_back(dtype: str) -> None:
    x, s = matrices(dtype), symmetric(dtype)
    wide, eps = exact(x), np.finfo(real(dtype)).eps

    def near(product: Any, of: Any) -> None:
        bound = 16 * float(eps) * numpy.abs(of).max()
        assert numpy.abs(product - of).max() <= bound

    q, r = linalg.qr(x)
    check(q, numpy.linalg.qr(wide)[0], dtype)
    near(exact(q) @ exact(r), wide)
    u, values, vh = linalg.svd(x)
    check(values, numpy.linalg.svd(wide)[1], real(dtype))
    near(exact(u) * exact(values)[:, None] @ exact(vh), wide)
    roots, vectors = linalg.eigh(s)
    check(roots, numpy.linalg.eigh(exact(s))[0], real(dtype))
    check(vectors, numpy.linalg.eigh(exact(s))[1], dtype)
    check(linalg.eigvalsh(s), numpy.linalg.eigvalsh(exact(s)), real(dtype))
    near(exact(vectors) * exact(roots)[:, None] @ exact(vectors).conj().swapaxes(1, 2), exact(s))
    lower, upper = linalg.cholesky(s), linalg.cholesky(s, upper=True)
    check(lower, numpy.linalg.cholesky(exact(s)), dtype)
    assert (exact(upper) == exact(lower).conj().swapaxes(1, 2)).all()
    near(exact(lower) @ exact(upper), exact(s))
    roots, vectors = linalg.eig(x)
    assert roots.dtype.name == vectors.dtype.name == complex_of(dtype)
    near(wide @ exact(vectors), exact(vectors) * exact(roots)[:, None])


@pytest.mark.isa_independent
def test_solve_takes_a_vector_only_of_one_axis() -> None:
    a = matrices("float32", (4, 2, 2))
    b = np.asarray(numpy.arange(4.0).reshape(2, 2), dtype="float32")
    assert linalg.solve(a, b[0]).shape == (4, 2)
    assert linalg.solve(a, b).shape == (4, 2, 2)
    check(linalg.solve(a, b), numpy.linalg.solve(exact(a), exact(b)), "float32")
    assert linalg.solve(a[:1], matrices("float32", (3, 2, 5))).shape == (3, 2, 5)
    assert linalg.solve(a, b.astype("bfloat16")).dtype is np.float32
    assert linalg.solve(a.astype("bfloat16"), [1, 2]).dtype is np.bfloat16
    assert linalg.solve(np.asarray([[2, 0], [0, 4]]), np.asarray([1, 1])).tolist() == [0.5, 0.25]


@pytest.mark.isa_independent
def test_integers_are_of_the_default_float_type() -> None:
    x = np.asarray([[2, 1], [1, 2]])
    for name in ("inv", "det", "cholesky", "svdvals", "eigvalsh", "pinv", "cond"):
        assert getattr(linalg, name)(x).dtype is np.float32
    assert linalg.eigvals(x).dtype is np.complex64
    assert linalg.vector_norm(x).dtype is linalg.matrix_norm(x).dtype is np.float32


@pytest.mark.isa_independent
def test_tolerances_are_of_the_arrays_type() -> None:
    x = numpy.diag([1.0, 0.02, 1e-4])
    ranks = {"float8_e4m3": 1, "bfloat16": 1, "float16": 2, "tfloat32": 2, "float32": 3, "float64": 3}
    for dtype, rank in ranks.items():
        # 3 eps of the type: 0.375, 0.023, 0.0029, 0.0029, 3.6e-7, 6.7e-16.
        assert linalg.matrix_rank(np.asarray(x, dtype=dtype)).tolist() == rank
        assert numpy.count_nonzero(exact(linalg.pinv(np.asarray(x, dtype=dtype)))) == rank
    stack = np.asarray(numpy.stack([x, x]))
    assert linalg.matrix_rank(stack, rtol=np.asarray([0.5, 1e-3])).tolist() == [1, 2]
    assert linalg.matrix_rank(stack, rtol=0.5).tolist() == [1, 1]
    for few in (0.0, 2.0, [0.0, -0.0], [0.0, 1.0], [0.0, math.nan], []):
        assert linalg.matrix_rank(np.asarray(few, "bfloat16")).item() == numpy.linalg.matrix_rank(few)
    assert linalg.matrix_rank(stack, 1e-3, hermitian=True).tolist() == [2, 2]
    assert linalg.matrix_rank(stack * 4, tol=0.09).tolist() == [1, 1]
    assert linalg.matrix_rank(stack).dtype is np.int64
    kept = linalg.pinv(stack, rtol=np.asarray([0.5, 1e-3]))
    assert numpy.count_nonzero(exact(kept), axis=(1, 2)).tolist() == [1, 2]
    assert linalg.pinv(stack, 0.5).tobytes() == linalg.pinv(stack, rtol=0.5).tobytes()


@pytest.mark.isa_independent
def test_least_squares() -> None:
    a, b = matrices("bfloat16", (5, 2), 3), matrices("bfloat16", (5, 3), 4)
    found = linalg.lstsq(a, b)
    expected = numpy.linalg.lstsq(exact(a), exact(b), rcond=None)
    for i in (0, 1, 3):
        check(found[i], expected[i], "bfloat16")
    assert (found[2], type(found[2])) == (2, int)
    assert linalg.lstsq(a, b[:, 0])[0].shape == (2,)
    assert linalg.lstsq(np.asarray([[1.0, 0.0], [0.0, 0.01]]), np.ones(2), rcond=0.1)[2] == 1


@pytest.mark.isa_independent
@each_of(
    ("call", "said"),
    [
        (lambda: linalg.inv(np.zeros((2, 2))), r"inv of float32\[2,2\]: Singular"),
        (lambda: linalg.solve(np.zeros((2, 2)), np.ones(2)), "Singular"),
        (lambda: linalg.cholesky(np.zeros((2, 2))), "positive definite"),
        (lambda: linalg.inv(np.ones((2, 3))), "square"),
        (lambda: linalg.det(np.ones((2, 3))), "square"),
        (lambda: linalg.eigh(np.ones((2, 3))), "square"),
        (lambda: linalg.matrix_power(np.ones((2, 3)), 2), "of one length"),
        (lambda: linalg.svd(np.ones(3)), "two-dimensional"),
        (lambda: linalg.eigvals(np.full((2, 2), math.inf)), "infs or NaNs"),
        (lambda: linalg.svd(np.full((2, 2), math.nan)), "no decomposition"),
    ],
)
def test_what_matrices_lack_is_numpys_error_and_ours(call: Callable[[], Any], said: str) -> None:
    assert linalg.LinAlgError is numpy.linalg.LinAlgError
    for kind in (numpy.linalg.LinAlgError, InvalidArgument, NeuronSimError, ValueError):
        with pytest.raises(kind, match=said):
            call()


@pytest.mark.isa_independent
@each_of(
    ("call", "said"),
    [
        (lambda x: linalg.qr(x, mode="raw"), "mode is"),
        (lambda x: linalg.matrix_norm(x, ord=3), "ord is"),
        (lambda x: linalg.matrix_norm(x, ord=True), "ord is"),
        (lambda x: linalg.matrix_norm(x[0]), "at least 2 axes"),
        (lambda x: linalg.matrix_norm(np.zeros((3, 0)), ord=-1), "no elements"),
        (lambda x: linalg.matrix_norm(np.zeros((3, 0)), ord=-2), "zero-size"),
        (lambda x: linalg.vector_norm(x, ord="fro"), "is a number"),
        (lambda x: linalg.vector_norm(np.zeros(0), ord=-math.inf), "no elements"),
        (lambda x: linalg.norm(np.ones((2, 2, 2)), 2), "of the order 2"),
        (lambda x: linalg.norm(x[0], "fro"), "of the order 'fro'"),
        (lambda x: linalg.outer(x, x), "both have one axis"),
        (lambda x: linalg.multi_dot([x]), "two arrays or more"),
        (lambda x: linalg.multi_dot([x, x[0], x]), "needs matrices"),
        (lambda x: linalg.matrix_power(x, 1.5), "n is an integer"),
        (lambda x: linalg.solve(x, np.ones(3)), "solve of"),
        (lambda x: linalg.lstsq(x, x, rcond="a"), "rcond is a number"),
        (lambda x: linalg.vector_norm(x.astype("float8_e4m3fn")), "float8_e4m3fn"),
        (lambda x: linalg.matrix_norm(x.astype("float8_e4m3fn"), ord=1), "float8_e4m3fn"),
        (lambda x: linalg.matrix_power(x.astype("float8_e4m3fn"), 3), "float8_e4m3fn"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(UnsupportedType if said == "float8_e4m3fn" else InvalidArgument, match=said):
        call(np.ones((2, 2)))


# NumPy's own singular values of this matrix never end.
ENDLESS = [[-3.5, math.inf, 0, -0.0, -3.5], [-3, 1, 0.5, 1.5, 1], [-3, -1, 0.5, 0, -0.0]]
DECOMPOSED: dict[str, Callable[[Any], Any]] = {
    "svd": linalg.svd,
    "singular values alone": lambda x: linalg.svd(x, compute_uv=False),
    "svdvals": linalg.svdvals,
    "pinv": linalg.pinv,
    "matrix_rank": linalg.matrix_rank,
    "lstsq": lambda x: linalg.lstsq(x, np.ones(3)),
    "lstsq of the right side": lambda x: linalg.lstsq(np.eye(3), x[:, 1]),
    "cond": linalg.cond,
    "cond of order 2": lambda x: linalg.cond(x, -2),
    "nuclear norm": lambda x: linalg.matrix_norm(x, ord="nuc"),
    "norm of order 2": lambda x: linalg.norm(x, 2),
    "eigh": lambda x: linalg.eigh(x[:, :3]),
    "eigvalsh": lambda x: linalg.eigvalsh(x[:, :3]),
}


@pytest.mark.isa_independent
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", DECOMPOSED)
def test_what_is_not_finite_is_not_decomposed(name: str, value: float) -> None:
    x = np.asarray([np.asarray(ENDLESS), np.ones((3, 5))] if name == "svdvals" else ENDLESS)
    x[..., 0, 1] = value
    with pytest.raises(LinAlgError, match="an element is Inf or NaN"):
        DECOMPOSED[name](x)


@pytest.mark.isa_independent
def test_nan_stays_where_numpy_lets_it() -> None:
    x = np.asarray([[1.0, 2.0], [3.0, math.nan]], "bfloat16")
    assert numpy.isnan(exact(linalg.inv(x))).all()
    assert numpy.isnan(exact(linalg.det(x)))
    assert word_list(linalg.matrix_norm(x)) == [0x7FC0]


# ---- norms (R7) --------------------------------------------------------------------------------------


def folded(row: list[int], reducer: str = "add") -> int:
    start = formats.from_float("float32", {"add": 0.0, "maximum": 0.0, "minimum": math.inf}[reducer])
    return sums.reduce_float(reducer, "float32", row, start)


def power(x: int, p: float) -> int:
    return elementwise.FLOAT["power"](x, formats.from_float("float32", p))


@each_of("dtype", FLOATS)
@each_of("order", [3, 0.5, -1, 0, -2.5, 1, math.inf, -math.inf])
def test_R7_vector_norms_equal_the_twins_steps(dtype: str, order: float) -> None:
    x = np.asarray(numpy.random.default_rng(5).uniform(-2, 2, (2, 40)), dtype=dtype)
    if order == 0:
        x = np.where(x > 0, x, np.asarray(0, dtype))
    wide = numpy.array(word_list(x.astype("float32"))).reshape(2, 40).tolist()
    expected = []
    for row in wide:
        absolute = [w & 0x7FFFFFFF for w in row]
        if order == 0:
            total = formats.from_float("float32", sum(w != 0 for w in absolute))
        elif order in (1, math.inf, -math.inf):
            total = folded(absolute, {1: "add", math.inf: "maximum", -math.inf: "minimum"}[order])
        else:
            total = power(folded([power(w, order) for w in absolute]), 1 / order)
        expected.append(formats.convert("float32", dtype, total))
    found = linalg.vector_norm(x, axis=1, ord=order)
    assert (found.dtype.name, word_list(found)) == (dtype, expected)
    assert linalg.vector_norm(x, axis=-1, ord=order, keepdims=True).shape == (2, 1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_R7_matrix_norms_are_of_sums_in_float32(dtype: str) -> None:
    x = np.asarray(numpy.random.default_rng(6).uniform(-2, 2, (3, 4)), dtype=dtype)
    wide = numpy.array(word_list(x.astype("float32"))).reshape(3, 4) & 0x7FFFFFFF
    lines = {-2: wide.T.tolist(), -1: wide.tolist()}
    for order, axis, reducer in (
        (1, -2, "maximum"),
        (-1, -2, "minimum"),
        (math.inf, -1, "maximum"),
        (-math.inf, -1, "minimum"),
    ):
        total = folded([folded(line) for line in lines[axis]], reducer)
        assert word_list(linalg.matrix_norm(x, ord=order)) == [formats.convert("float32", dtype, total)]
    squares = folded([elementwise.multiply(w, w) for w in wide.reshape(-1).tolist()])
    root = formats.convert("float32", dtype, elementwise.FLOAT["sqrt"](squares))
    assert word_list(linalg.matrix_norm(x)) == word_list(linalg.norm(x)) == [root]
    for order in ("nuc", 2, -2):
        check(linalg.matrix_norm(x, ord=order), numpy.linalg.norm(exact(x), order), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_norms_are_near_numpys(dtype: str) -> None:
    x = matrices(dtype, (2, 3, 4), 7)
    wide = exact(x)
    tolerance = {"rtol": 1e-5 if "float32" in real(dtype) else 1e-13}
    for order in (None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        for axis in ((0, 1), (2, 0), (-1, -2)):
            for keepdims in (False, True):
                found = linalg.norm(x, order, axis, keepdims)
                expected = numpy.linalg.norm(wide, order, axis, keepdims)
                assert (found.dtype.name, found.shape) == (real(dtype), expected.shape)
                numpy.testing.assert_allclose(exact(found), expected, **tolerance)
    for order in (None, 0, 1, 2, 3, -1, 0.5, math.inf, -math.inf):
        found, expected = linalg.norm(x, order, 1), numpy.linalg.norm(wide, order, 1)
        numpy.testing.assert_allclose(exact(found), expected, **tolerance)
        order = 2 if order is None else order
        for axis in (None, (0, 2), (2, 0)):
            found = linalg.vector_norm(x, axis=axis, ord=order, keepdims=True)
            expected = numpy.linalg.vector_norm(wide, axis=axis, ord=order, keepdims=True)
            assert (found.dtype.name, found.shape) == (real(dtype), expected.shape)
            numpy.testing.assert_allclose(exact(found), expected, **tolerance)


def test_R7_sums_of_a_matrix_norm_are_not_rounded() -> None:
    x = np.asarray([[200, 1], [200, 1]], "float8_e4m3")
    with np.use_profile(fp8_overflow="nan"):
        assert linalg.matrix_norm(x, ord=-1).item() == 2
        assert numpy.isnan(linalg.matrix_norm(x, ord=1).item())


def test_norms_of_nothing_are_numpys() -> None:
    for order in ("fro", "nuc", 1, 2, math.inf):
        for shape in ((0, 3), (3, 0), (0, 0)):
            assert linalg.matrix_norm(np.zeros(shape), ord=order).item() == 0
    for order in (0, 1, 2, 3, math.inf):
        assert linalg.vector_norm(np.zeros((2, 0)), axis=1, ord=order).tolist() == [0, 0]
    assert linalg.vector_norm(np.zeros(0), ord=-1).item() == math.inf
    assert linalg.norm(np.zeros((0, 3)), -1).item() == 0


# ---- powers and chains -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_R7_powers_and_chains_are_rounded_once(dtype: str) -> None:
    x = np.asarray(numpy.random.default_rng(9).uniform(-1, 1, (5, 5)), dtype=dtype)
    wide = x.astype("float32")
    square = wide @ wide
    for n, expected in (
        (1, wide),
        (2, square),
        (3, wide @ square),
        (5, wide @ (square @ square)),
        (7, (wide @ square) @ (square @ square)),
    ):
        assert linalg.matrix_power(x, n).tobytes() == expected.astype(dtype).tobytes()
        assert linalg.matrix_power(x, n).dtype.name == dtype
    chain = (wide @ wide) @ wide[0]
    assert linalg.multi_dot([x, x, x[0]]).tobytes() == chain.astype(dtype).tobytes()
    if dtype == "bfloat16":  # the control: rounded after each product it is something else
        assert linalg.matrix_power(x, 3).tobytes() != (x @ x @ x).tobytes()
        assert linalg.multi_dot([x, x, x]).tobytes() != (x @ x @ x).tobytes()


def test_powers_of_integers_inverses_and_stacks() -> None:
    a = numpy.array([[[1, 2], [3, 4]], [[0, 1], [1, 1]]])
    for dtype in ("int8", "int64", "float64", "complex128"):
        for n in (0, 1, 2, 5):
            found = linalg.matrix_power(np.asarray(a).astype(dtype), n)
            assert found.dtype.name == dtype
            assert found.tolist() == numpy.linalg.matrix_power(a.astype(dtype), n).tolist()
    inverse = linalg.matrix_power(np.asarray(a), -2)
    numpy.testing.assert_allclose(exact(inverse), numpy.linalg.matrix_power(a, -2), rtol=1e-5)
    assert inverse.dtype is np.float32
    assert linalg.matrix_power(np.zeros((2, 0, 0)), 3).shape == (2, 0, 0)
    x = np.asarray(a, dtype="bfloat16")
    assert linalg.matrix_power(x, 1) is x  # as numpy.linalg's is
    out = np.asarray(numpy.zeros((2, 2)))
    assert linalg.multi_dot([a[0], a[1]], out=out) is out
    assert out.tolist() == (a[0] @ a[1]).tolist()
    assert linalg.multi_dot([np.asarray(a[0]), np.asarray([0.5, 1.0])]).dtype is np.float32
