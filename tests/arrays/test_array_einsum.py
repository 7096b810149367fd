"""einsum: subscripts as NumPy's, values by the twin (M2, M4, E2, R2, R7)."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from tests.support.draws import normal
from tests.support.parameters import each_of
from tests.support.words import FLOATS, table, word_list

import neuronsim as np
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.reference import elementwise, formats, sums

OTHERS = ("int8", "uint8", "int64", "uint64", "float64", "complex64")


SUBSCRIPTS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("ba,cb", [(2, 3), (4, 2)]),
    ("Ba,aB->B", [(2, 3), (3, 2)]),
    (" i j , j -> i ", [(2, 3), (3,)]),
    ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]),
    ("iii->i", [(3, 3, 3)]),
    ("iji->j", [(3, 2, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ba", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij->j", [(2, 3)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,j->ji", [(3,), (4,)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,ji->ij", [(3, 4), (4, 3)]),
    ("ij,ij", [(3, 4), (3, 4)]),
    ("ij,j->i", [(1, 4), (4,)]),
    ("ij,ij->i", [(1, 3), (2, 3)]),
    (",ij->ij", [(), (2, 3)]),
    (",", [(), ()]),
    ("i,->", [(3,), ()]),
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
    ("bij,kjb->kbi", [(2, 3, 4), (5, 4, 2)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...ij,jk", [(2, 3, 4), (4, 2)]),
    ("i...->...", [(3, 4)]),
    ("...i->i...", [(2, 3, 4)]),
    ("...,...", [(2, 3), (3,)]),
    ("ij,k->j", [(2, 3), (4,)]),
    ("ij,kl->", [(2, 3), (2, 2)]),
    ("iij,jk->ik", [(3, 3, 2), (2, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 5)]),
    ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
    ("ij,jk", [(0, 4), (4, 5)]),
    ("ij,jk", [(3, 0), (0, 5)]),
    ("ij->j", [(0, 5)]),
]


@each_of(("subscripts", "shapes"), SUBSCRIPTS, ids=lambda v: str(v))
def test_subscripts_are_numpys(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    rng = numpy.random.default_rng(0)
    arrays = [rng.integers(0, 3, shape) for shape in shapes]
    expected = np.asarray(numpy.einsum(subscripts, *arrays))
    for dtype in (*FLOATS, *OTHERS):
        found = np.einsum(subscripts, *(np.asarray(a).astype(dtype) for a in arrays))
        assert (found.shape, found.dtype.name) == (expected.shape, dtype)
        assert found.tolist() == expected.astype(dtype).tolist()


def test_lists_of_labels() -> None:
    a, b = numpy.arange(6.0).reshape(2, 3), numpy.arange(12.0).reshape(3, 4)
    for lists in (
        (a, [0, 1], b, [1, 2], [2, 0]),
        (a, [5, 1], b, [1, 2]),
        (a, (0, 1), b, (1, 2), ()),
        (a, [..., 1], b, [1, 2], [..., 2]),
        (a, [..., 1]),
    ):
        own = [np.asarray(v) if isinstance(v, numpy.ndarray) else v for v in lists]
        assert np.einsum(*own).tolist() == numpy.einsum(*lists).tolist()


def test_views_and_out_and_optimize() -> None:
    a = numpy.arange(24).reshape(4, 6) % 5
    x = np.asarray(a).astype("bfloat16")
    found = np.einsum("ij,kj->ik", x[::2, ::-1], x[1::2], optimize="greedy")
    assert found.tolist() == numpy.einsum("ij,kj->ik", a[::2, ::-1], a[1::2]).tolist()
    out = np.asarray(numpy.zeros((4, 4)))
    assert np.einsum("ij,kj->ik", x, x, out=out) is out
    assert out.tolist() == (a @ a.T).tolist()


@each_of(
    ("operands", "said"),
    [
        (("ij,jk", (2, 2)), "subscripts of 2 arrays, and there are 1"),
        (("ij->ii", (2, 2)), "label 'i' twice"),
        (("ij->k", (2, 2)), "which no array has"),
        (("i.j", (2, 2)), "not letters"),
        (("i->j->k", (2,)), "not letters"),
        (("......", (2,)), "not letters"),
        (("ijk", (2, 2)), "does not name the 2 axes"),
        (("i", (2, 2)), "does not name the 2 axes"),
        (("...ijk", (2, 2)), "does not name the 2 axes"),
        (("ij,jk", (2, 3), (4, 5)), "label 'j' differ in length"),
        (("ii", (1, 3)), "label 'i' differ in length"),
        (("...i->i", (2, 3)), "needs the ellipsis"),
        ((), "needs subscripts"),
    ],
    ids=str,
)
def test_wrong_subscripts_are_refused(operands: tuple[Any, ...], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        np.einsum(*(np.ones(v) if isinstance(v, tuple) else v for v in operands))


@pytest.mark.parametrize("labels", [["i"], 3, [0.5]])
def test_wrong_lists_of_labels_are_refused(labels: Any) -> None:
    with pytest.raises(InvalidArgument, match="list of integers"):
        np.einsum(np.ones(2), labels)
    with pytest.raises(InvalidArgument, match="more than one"):
        np.einsum(np.ones(2), [..., ...])


@pytest.mark.parametrize("dtype", FLOATS)
def test_M4_two_arrays_are_one_product_rounded_once(dtype: str) -> None:
    a, b = normal(dtype, (2, 12, 13), 1), normal(dtype, (13, 12, 3), 2)
    # The labels that are summed, in the order in which the first array has them.
    rows = table(a).reshape(2, -1).tolist()
    columns = table(b).transpose(2, 1, 0).reshape(3, -1).tolist()
    expected = [sums.dot(dtype, dtype, dtype, r, c) for r in rows for c in columns]
    assert word_list(np.einsum("xij,jiy->xy", a, b)) == expected
    wide = [sums.dot(dtype, dtype, "float32", r, c) for r in rows for c in columns]
    assert word_list(np.einsum("xij,jiy->xy", a, b, dtype="float32")) == wide


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3", "float32"])
def test_R7_three_arrays_are_rounded_once(dtype: str) -> None:
    a, b, c = (normal(dtype, (3, 30), seed) for seed in (1, 2, 3))
    first = [
        [sums.dot(dtype, dtype, "float32", r, s) for s in table(b).tolist()] for r in table(a).tolist()
    ]
    third = table(c.astype("float32")).T.tolist()
    expected = [sums.dot("float32", "float32", dtype, r, s) for r in first for s in third]
    found = np.einsum("ij,kj,kl->il", a, b, c)
    assert (found.dtype.name, word_list(found)) == (dtype, expected)
    if dtype == "bfloat16":  # the control: rounded in between it is something else
        assert word_list(np.einsum("ij,kj->ik", a, b) @ c) != expected


def test_R7_a_label_of_one_array_alone_is_summed_first() -> None:
    a, b = normal("bfloat16", (700, 5), 4), normal("bfloat16", (5,), 5)
    columns = table(a.astype("float32")).T.tolist()
    totals = [sums.reduce_float("add", "float32", column, 0) for column in columns]
    other = word_list(b.astype("float32"))
    expected = [sums.dot("float32", "float32", "bfloat16", totals, other)]
    assert word_list(np.einsum("ij,j->", a, b)) == expected
    assert word_list(np.einsum("ij->j", a)) == word_list(np.sum(a, axis=0))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_E2_products_without_a_sum_are_multiplications(dtype: str) -> None:
    a, b = normal(dtype, (4,), 6), normal(dtype, (5,), 7)
    wide = [word_list(v.astype("float32")) for v in (a, b)]
    products = [elementwise.multiply(u, v) for u in wide[0] for v in wide[1]]
    expected = [formats.convert("float32", dtype, w) for w in products]
    assert word_list(np.einsum("i,j->ij", a, b)) == expected
    assert word_list(np.einsum("i,j->ij", a, b, dtype="float32")) == products
    zero = np.asarray([-0.0], dtype)
    assert numpy.signbit(np.einsum("i,i->i", zero, np.asarray([1.0], dtype)).item())


def test_M7_integers_wrap_and_bool_is_or() -> None:
    x = np.asarray([100, 100, 100], "int8")
    assert np.einsum("i->", x).item() == 300 - 256
    assert np.einsum("i,i->", x, x).item() == numpy.einsum("i,i->", *[numpy.full(3, 100, "i1")] * 2)
    assert np.einsum("i,i->", x, x, dtype="int32").item() == 30000
    assert np.einsum("i->", x, dtype="int32").item() == 300
    assert np.einsum("i->", np.asarray([True, True])).tolist() is True


def test_mixed_types_and_dtype() -> None:
    a, b = np.asarray([1.5, 2.0], "bfloat16"), np.asarray([1, 2], "int32")
    assert np.einsum("i,i->", a, b).dtype is np.bfloat16
    assert np.einsum("i,i->", a, np.asarray([1.0, 2.0], "float16")).dtype is np.float32
    assert np.einsum("i,i->", a, b, dtype="float64").item() == 5.5
    assert np.einsum("i,i->", b, b, dtype="float16").dtype is np.float16
    assert np.einsum("i,i->", a, [1j, 0]).item() == 1.5j
    assert np.einsum(",i->i", 2, a).dtype is np.bfloat16
    with pytest.raises(UnsupportedType, match="is not rounded to int32"):
        np.einsum("i,i->", a, a, dtype="int32")
    with pytest.raises(UnsupportedType, match="float8_e4m3fn"):
        np.einsum("i,i->", a.astype("float8_e4m3fn"), a.astype("float8_e4m3fn"))
