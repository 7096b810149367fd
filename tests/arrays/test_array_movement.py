"""Data movement: NumPy's shapes, and no bit changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import neuronsim as np
from neuronsim.errors import UnsupportedType

pytestmark = pytest.mark.isa_independent


def test_complex_to_real_is_refused_C6() -> None:
    with pytest.raises(UnsupportedType, match="real part"):
        np.asarray([1j]).astype("float32")
    assert np.asarray([1.5]).astype("complex64").tolist() == [1.5 + 0j]


@pytest.mark.parametrize(
    "transposed",
    [
        lambda x: x.T,
        lambda x: x.mT,
        lambda x: x.transpose(),
        lambda x: np.permute_dims(x, (1, 0)),
        lambda x: np.matrix_transpose(x),
        lambda x: np.swapaxes(x, 0, 1),
        lambda x: np.moveaxis(x, 0, 1),
    ],
)
def test_A3_every_transpose_is_the_same(transposed: Callable[[np.Array], np.Array]) -> None:
    x = np.asarray([[1.0, -0.0], [numpy.inf, 2.0]])
    view = transposed(x)
    assert view.tobytes() == x.bits.data.T.tobytes()
    view[0, 0] = 7.0
    assert x[0, 0] == 7.0
    with np.use_profile(transpose="tensor_engine"):
        moved = transposed(x)
    # M8: the infinity in row 1 makes NaN of what shares its product, and -0 becomes +0.
    assert numpy.isnan(numpy.asarray(moved)[0, 0])
    assert not numpy.signbit(numpy.asarray(moved)[1, 0])
