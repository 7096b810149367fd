"""Every public function of arrays, traced: it has the eager bits, or says that it needs values and what
to do; no error of another library, and no other result.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
from tests.support.parameters import each_of

import neuronsim as np
from neuronsim.errors import NeuronSimError, UnknownValue
from neuronsim.frontends.functions import is_array
from neuronsim.frontends.pytrees import flatten, unflatten
from neuronsim.ops import WindowDimension

pytestmark = [
    pytest.mark.isa_independent,
    pytest.mark.filterwarnings("ignore"),  # of domains: the arguments are any numbers
]

DRAW = numpy.random.default_rng(0)
X, Y = (np.asarray(DRAW.standard_normal((3, 4)), "float32") for _ in range(2))
SQUARE = np.asarray(DRAW.standard_normal((4, 4)), "float32")
S = SQUARE @ SQUARE.T + 4 * np.eye(4)
V = np.sort(np.asarray(DRAW.standard_normal(5), "float32"))
N = np.asarray(DRAW.integers(0, 3, (3, 4)), "int32")
K, I, M = np.asarray([2, 0, 1, 3, 2]), np.asarray([2, 0]), X > 0
U8 = np.asarray([1, 2, 255], "uint8")

# Arguments, the first of which that fit a function are given to it.
ARGUMENTS: list[tuple[Any, ...]] = [
    (X,),
    (X, Y),
    (abs(X) + 0.5,),
    (N,),
    (N, N),
    (M,),
    (V,),
    (V, V),
    (K,),
    (S,),
    (S, S),
    (S, S[0]),
    (X, 1),
    (M, X),
    (M, X, Y),
    (X, M),
    (V, K),
    (X, I),
    (X, I, V[:2]),
    (X, I, 0),
    ([X, Y],),
    (K % 2, [V, V]),
    (X, [M], [lambda a: -a]),
    (X, 0, 1),
    (V, V, V),
    (X, (4, 3)),
    (X, (1, 0)),
    (X, (4,)),
    (X, "bfloat16"),
    (N, (9, 9)),
    ((N, N), (9, 9)),
    (N, S),
    (X[None], S[None, :3, :2]),
    (X[None, None], S[None, None, :2, :2]),
    (X[None, None], 2),
    (X[None, None, None], S[None, None, None, :2, :2]),
    ([M], [X]),
    (X, V[:4], V[4]),
    ("ij,jk->ik", X, S),
    (lambda a: a * 2, X),
    (lambda a: a * 2, 0, X),
    (X[:, :3], Y[:, :3]),
    ([S, S],),
    (S, 3),
    (np.reshape(S, (2, 2, 4)), 2),
    (X, I[:0] + I[1], 1),
    (U8,),
]
OWN: dict[str, tuple[Any, ...]] = {
    "einsum": ("ij,jk->ik", X, S),
    "lax.cond": (M[0, 0], lambda a: a + 1, lambda a: a * 2, X),
    "lax.dynamic_slice": (X, (I[1], I[0]), (2, 2)),
    "lax.dynamic_update_slice": (X, Y[:2, :2], (I[1], I[0])),
    "lax.dynamic_update_slice_in_dim": (X, Y[:2], I[1], 0),
    "lax.fori_loop": (0, 3, lambda i, a: a * 2, X),
    "lax.scan": (lambda c, a: (c + a, a * c), X[0], X),
    "lax.switch": (K[0], [lambda a: a, lambda a: -a, lambda a: a * 2], X),
    "lax.while_loop": (lambda a: np.sum(a) < 9, lambda a: a * a + 1, X),
    "nn.cross_entropy": (X, N[:, 0]),
    "polyfit": (V, V, 1),
    "put_along_axis": (X, N[:, :1], Y[:, :1], 1),
    "apply_over_axes": (np.sum, X, [0]),
    "broadcast_to": (V, (2, 5)),
    "full": ((2, 3), V[0]),
    "nn.one_hot": (N, 3),
    "reduce_window": (X, "add", [WindowDimension(2)] * 2),
    "searchsorted": (V, X),
}
# What has no array among its arguments, or gives none: settings, types, texts, files, models, numbers
# of Python, which read values.
OTHERS = """
    allclose arange array2string array_equal array_equiv array_repr array_str available_isas
    bartlett base_repr bfloat16_products binary_repr blackman blame broadcast_shapes calibrate
    can_cast common_type compile cost cost_ladder current_profile default_dtype diag_indices
    dtype errstate export_onnx eye fft.fftfreq fft.rfftfreq finfo fix float32_rules
    format_float_positional format_float_scientific fromfunction genfromtxt get_printoptions
    geterr geterrcall hamming hanning identity iinfo isa iscomplexobj isdtype isfortran
    isrealobj isscalar issubdtype iterable jit kaiser linalg.lstsq lint list_cache load loadtxt
    mask_indices may_share_memory min_scalar_type ndenumerate ndim num_threads plan printoptions
    promote_types quantize result_type save savetxt savez savez_compressed seed_rounding
    set_bfloat16_products set_default_dtype set_isa set_num_threads set_printoptions seterr
    seterrcall shape shares_memory size tri tril_indices triu_indices tune use_profile
    write_report
"""
MODULES = {"": np, "nn.": np.nn, "linalg.": np.linalg, "fft.": np.fft, "lax.": np.lax}
CALLS = 3  # of one function


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for prefix, module in MODULES.items():
        for name in sorted(dir(module)):
            found = getattr(module, name)
            if name[0] != "_" and callable(found) and not inspect.isclass(found):
                yield prefix + name, found


FUNCTIONS = {name: f for name, f in functions() if name not in OTHERS.split()}


def leaves(x: Any) -> list[Any]:
    return list(flatten(x)[0])


def bits(x: Any) -> Any:
    found, tree = flatten(x)
    return tree, [(str(a.dtype), a.shape, numpy.asarray(a).tobytes()) for a in found]


def outcome(function: Callable[..., Any], arguments: Any) -> Any:
    """The result, or what a function that gives None has written into."""
    given = unflatten(
        flatten(arguments)[1], [np.copy(a) if is_array(a) else a for a in leaves(arguments)]
    )
    found = function(*given)
    return [a for a in leaves(given) if is_array(a)] if found is None else found


def calls(name: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Arguments that a function takes, and what it gives: arrays."""
    for arguments in [OWN[name]] if name in OWN else ARGUMENTS:
        try:
            found = outcome(FUNCTIONS[name], arguments)
        except (NeuronSimError, TypeError, ValueError, AttributeError, LookupError):
            continue
        if leaves(found) and all(map(is_array, leaves(found))):
            yield arguments, bits(found)


@each_of("name", FUNCTIONS)
def test_each_function_traces_or_says_what_it_needs(name: str) -> None:
    given = list(itertools.islice(calls(name), CALLS))
    assert given, "none of ARGUMENTS fits: give it its OWN, or list it among the OTHERS"
    for arguments, expected in given:
        tree = flatten(arguments)[1]
        others = leaves(arguments)

        def traced(*arrays: Any, tree: Any = tree, others: Any = others) -> Any:
            left = iter(arrays)
            return outcome(
                FUNCTIONS[name], unflatten(tree, [next(left) if is_array(a) else a for a in others])
            )

        try:
            found = bits(np.jit(traced)(*filter(is_array, others)))
        except UnknownValue as error:
            assert "known when the program runs and not before: use" in str(error)  # noqa: PT017
        except NeuronSimError as error:
            assert "trn1 has no" in str(error) or "HLO has no" in str(error), error  # noqa: PT017
        else:
            assert found == expected


def test_the_others_are_names() -> None:
    assert set(OTHERS.split()) <= {name for name, _ in functions()}
