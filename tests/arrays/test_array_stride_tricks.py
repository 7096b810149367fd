"""Views of `lib.stride_tricks`: NumPy's on the same bits, inside of their memory."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pytest
from tests.support.words import assert_same

import neuronsim as np
from neuronsim.errors import InvalidArgument, InvalidIndex, UnsupportedType

pytestmark = pytest.mark.isa_independent

TRICKS, NUMPYS = np.lib.stride_tricks, numpy.lib.stride_tricks


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64"])
def test_windows_are_numpys(dtype: str) -> None:
    x = numpy.arange(40).reshape(5, 8).astype(dtype)
    for shape, axis in (((2, 3), None), (4, 1), (2, 0), ((2, 2), (0, 0)), ((), ()), (5, -2)):
        expected = NUMPYS.sliding_window_view(x, shape, axis)
        assert_same(TRICKS.sliding_window_view(np.asarray(x), shape, axis), expected)
        assert_same(NUMPYS.sliding_window_view(np.asarray(x), shape, axis), expected)
    for shape, axis in ((9, 1), ((1, 2, 3), None), (-1, 0)):
        with pytest.raises(InvalidArgument, match="sliding_window_view of float32"):
            TRICKS.sliding_window_view(np.zeros((5, 8)), shape, axis)


def test_windows_are_views() -> None:
    x = np.zeros(5, np.bfloat16)
    windows = TRICKS.sliding_window_view(x, 2)
    x[1] = 3
    assert windows.tolist() == [[0, 3], [3, 0], [0, 0], [0, 0]]
    with pytest.raises(InvalidArgument, match="read-only"):
        windows[0] = 1
    TRICKS.sliding_window_view(x, 2, writeable=True)[0, 0] = 7
    assert x[0].item() == 7


def test_strided_views_write_through() -> None:
    x = np.asarray([1, 2, 3, 4, 5, 6], np.bfloat16)
    view = TRICKS.as_strided(x[1:], (2, 2), (4, 2))
    assert view.tolist() == [[2, 3], [4, 5]]
    view[1, 0] = 9
    assert x[3].item() == 9
    assert TRICKS.as_strided(x).tolist() == x.tolist()
    assert TRICKS.as_strided(x[::-1], 3, -2).tolist() == [6, 5, 9]
    assert TRICKS.as_strided(x[4:], (3,), (-4,)).tolist() == [5, 3, 1]  # x has these bytes
    assert TRICKS.as_strided(x, (0, 100), (8, 8)).shape == (0, 100)
    assert not TRICKS.as_strided(x, writeable=False).flags.writeable


@pytest.mark.parametrize(("shape", "strides"), [((7,), (2,)), ((2, 2), (10, 4)), ((2,), (-2,))])
def test_strided_views_stay_in_the_memory(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    with pytest.raises(InvalidIndex, match="leaves the memory of bfloat16"):
        TRICKS.as_strided(np.zeros(6, np.bfloat16), shape, strides)


def test_wrong_strides_are_refused() -> None:
    x = np.zeros(6)
    for shape, strides in (((2,), (3,)), ((2, 2), (4,)), ((-1,), (4,))):
        with pytest.raises(InvalidArgument):
            TRICKS.as_strided(x, shape, strides)
    with pytest.raises(UnsupportedType, match="traced"):
        np.compile(lambda v: TRICKS.as_strided(v, (2,), (4,)), x)


def test_windows_of_a_traced_array_are_recorded() -> None:
    x = np.asarray([1.0, 2.0, 3.0, 5.0])
    program = np.compile(lambda v: TRICKS.sliding_window_view(v, 2).sum(-1), x)
    assert program(x).tolist() == [3, 5, 8]


def test_the_module_is_imported_as_numpys() -> None:
    code = "from neuronsim.lib.stride_tricks import as_strided, sliding_window_view"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match=r"neuronsim\.lib has no 'stride_trick' \(did you mean"):
        getattr(np.lib, "stride_trick")  # noqa: B009
