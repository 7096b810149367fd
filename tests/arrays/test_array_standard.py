"""Every function of the array API standard against array_api_strict, over drawn arguments; what differs
stands in deviations.toml with its reason.
"""

from __future__ import annotations

import inspect
import math
import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from standard_cases import ALL, ARRAY, CASES, FFT, FUNCTION_OF, LINALG, REFLECTED, Case, Name
from tests.support.parameters import some

import neuronsim
from neuronsim.reference import elementwise as twin
from neuronsim.reference import functions

strict = pytest.importorskip("array_api_strict")

pytestmark = pytest.mark.isa_independent

KINDS = ("accepts", "close", "complex", "default", "mixed", "refuses", "specials", "values", "zeros")
DEVIATIONS: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("deviations.toml").read_text(encoding="utf-8")
)["deviation"]
SPACES: dict[str, tuple[Any, Any, dict[str, Case]]] = {
    "": (strict, neuronsim, CASES),
    "linalg": (strict.linalg, neuronsim.linalg, LINALG),
    "fft": (strict.fft, neuronsim.fft, FFT),
    "array": (type(strict.ones(1)), neuronsim.Array, ARRAY),
}
EVERY = [(space, name) for space, (_, _, cases) in SPACES.items() for name in cases]


# What stands for NumPy's function of the name in a deviation of the kind "complex".
NUMPYS: dict[str, Any] = {
    "expm1": lambda x: numpy.expm1(x) + 0.0,
    "reciprocal": lambda x: numpy.where(x == 0, numpy.divide(1, x), numpy.reciprocal(x)),
}


def found_in(holder: Any, name: str) -> Any:
    """A function of a namespace; a method or attribute of a class as a function of its array."""
    attribute = getattr(holder, name)
    if isinstance(attribute, property):
        return attribute.fget
    if name != "__setitem__":
        return attribute

    def with_item_set(x: Any, key: Any, value: Any) -> Any:
        attribute(x, key, value)
        return x

    return with_item_set


def allowed(kind: str, name: str, arguments: Any) -> bool:
    """Whether deviations.toml lists this kind of difference for the function and these arguments."""
    shown = ", ".join(f"{k}={v!r}" for k, v in arguments[1].items())
    names = {name, FUNCTION_OF.get(name, name)}
    return any(
        d["kind"] == kind and names & set(d["functions"]) and d.get("arguments", "") in shown
        for d in DEVIATIONS
    )


def kinds_of(value: Any) -> set[str]:
    """The kinds of types in arguments: bool, integer, float, complex; int32 and uint64 differ too."""
    if isinstance(value, tuple | list):
        return set().union(*map(kinds_of, value))
    if isinstance(value, Name) and value.name in ALL:
        value = numpy.empty(0, value.name)
    if not isinstance(value, numpy.ndarray):
        return set()
    return {"uint64" if value.dtype == numpy.uint64 else value.dtype.kind.replace("u", "i")}


def given_to(xp: Any, value: Any) -> Any:
    """A drawn argument as a namespace takes it."""
    if isinstance(value, Name):
        return getattr(xp, value.name)
    if isinstance(value, numpy.ndarray):
        # A copy: what one library does to it is not what the other one sees.
        return xp.asarray(value.copy())
    if isinstance(value, tuple | list):
        return type(value)(given_to(xp, v) for v in value)
    return value


def outcome(xp: Any, function: Any, arguments: Any) -> Any:
    """The result, or the error."""
    args, named = arguments
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = function(
                *(given_to(xp, a) for a in args), **{k: given_to(xp, v) for k, v in named.items()}
            )
        except Exception as error:
            return error
    return TypeError(function) if result is NotImplemented else result


def plain(value: Any) -> Any:
    """A result in NumPy's and Python's types: arrays as ndarrays, dtypes as their names."""
    if isinstance(value, neuronsim.Array):
        return numpy.asarray(value)
    if hasattr(value, "_array"):
        return numpy.asarray(value._array)
    if isinstance(value, neuronsim.DType):
        return Name(value.name)
    if hasattr(value, "_np_dtype"):
        return Name(numpy.dtype(value._np_dtype).name)
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return value


def as_default(result: Any, arguments: Any) -> Any:
    """A result of strict in neuronsim's default type, unless the arguments say a type."""
    named = arguments[1].get("dtype")
    given = any(isinstance(a, numpy.ndarray) for a in arguments[0])
    if given or named is not None:
        return result
    return result.astype(
        {"f": numpy.float32, "c": numpy.complex64}.get(result.dtype.kind, result.dtype)
    )


def same_bits(a: Any, b: Any) -> bool:
    """Equal values, zeros by their sign; any NaN equals any other."""
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    if a.dtype.kind != "f":
        return bool((a == b).all())
    nan = numpy.isnan(a) & numpy.isnan(b)
    return bool((nan | ((a == b) & (numpy.signbit(a) == numpy.signbit(b)))).all())


def with_plain_zeros(value: Any) -> Any:
    """Arrays, or a list of them, whose zeros are +0."""
    if isinstance(value, list):
        return [with_plain_zeros(v) for v in value]
    return numpy.where(value == 0, numpy.zeros_like(value), value)


def arrays_in(arguments: Any) -> list[Any]:
    return [numpy.asarray(a) for a in arguments[0] if not isinstance(a, Name | str | list | tuple)]


def twin_value(name: str, operands: Sequence[Any]) -> Any:
    """The slow twin's float32 result of one element."""
    row = {"pow": "power", "round": "rint", "abs": "absolute"}.get(name, name)
    words = [int(o.view(numpy.uint32)) for o in operands]
    found = functions.FUNCTIONS.get(row) or getattr(twin, row)
    return numpy.uint32(found(*words)).view(numpy.float32)


def check_elementwise(name: str, found: Any, expected: Any, arguments: Any) -> None:
    """float32: within 4 ulp of NumPy's, and the correctly rounded value; all else exact."""
    if found.dtype != numpy.float32:
        assert same_bits(found, expected), (name, found, expected)
        return
    with numpy.errstate(all="ignore"):
        near = numpy.abs(found.astype(float) - expected.astype(float)) <= 4 * numpy.spacing(
            numpy.abs(expected)
        ).astype(float)
    equal = (numpy.isnan(found) & numpy.isnan(expected)) | (found == expected) | near
    assert equal.all(), (name, found, expected)
    if same_bits(found, expected):
        return
    operands = numpy.broadcast_arrays(*(numpy.asarray(a, numpy.float32) for a in arrays_in(arguments)))
    for position in numpy.ndindex(found.shape):
        if not same_bits(found[position], expected[position]):
            exact = twin_value(name, [numpy.float32(o[position]) for o in operands])
            assert same_bits(found[position], exact), (name, position, arguments)


def check_sum(name: str, found: Any, expected: Any, arguments: Any, product: bool) -> None:
    """Within n eps of the sum of magnitudes, or of the product; integers exact."""
    if found.dtype.kind not in "fc":
        assert same_bits(found, expected), (name, found, expected)
        return
    operands = arrays_in(arguments)
    count = max((o.size for o in operands), default=1) + 1
    eps = float(numpy.finfo(found.dtype).eps)
    scale: Any = math.prod(float(numpy.abs(o).astype(float).max(initial=1)) for o in operands)
    scale = numpy.abs(expected).astype(float) if product else scale * count
    bound = 4 * count * eps * scale + 1e-37
    with numpy.errstate(all="ignore"):
        near = numpy.abs(found - expected) <= bound
    same = (numpy.isnan(found) & numpy.isnan(expected)) | (found == expected)
    assert (near | same).all(), (name, found, expected)


def check_close(name: str, found: Any, expected: Any) -> None:
    if found.dtype.kind not in "fc":
        assert same_bits(found, expected), (name, found, expected)
        return
    eps = float(numpy.finfo(found.dtype).eps)
    scale = float(numpy.abs(expected[numpy.isfinite(expected)]).max(initial=1))
    numpy.testing.assert_allclose(found, expected, rtol=64 * eps, atol=64 * eps * scale, err_msg=name)


def check(name: str, found: Any, expected: Any, case: Case, arguments: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list), (name, found)
        assert len(found) == len(expected), (name, found)
        for own, other in zip(found, expected, strict=True):
            check(name, own, other, case, arguments)
        return
    if not isinstance(expected, numpy.ndarray):
        assert found == expected, (name, arguments, found, expected)
        assert type(found) is type(expected), (name, found, expected)
        return
    assert isinstance(found, numpy.ndarray), (name, found)
    assert found.dtype == expected.dtype, (name, arguments, found.dtype, expected.dtype)
    assert found.shape == expected.shape, (name, arguments, found.shape, expected.shape)
    if case.rule == "exact":
        assert same_bits(found, expected), (name, arguments, found, expected)
    elif case.rule == "elementwise":
        check_elementwise(name, found, expected, arguments)
    elif case.rule in ("sum", "product"):
        check_sum(name, found, expected, arguments, case.rule == "product")
    elif case.rule == "close":
        check_close(name, found, expected)


def test_every_function_of_the_standard_has_a_case() -> None:
    not_functions = {"finfo", "iinfo", "empty", "empty_like", "from_dlpack", "bool", "fft", "linalg"}
    not_functions |= {"to_device"}  # whose devices are others
    own = {"Device", "ArrayAPIStrictFlags"}  # array_api_strict's, not the standard's
    for space, (xp, _, cases) in SPACES.items():
        names = {
            n for n in getattr(xp, "__all__", dir(xp)) if not n.startswith("_") and "flags" not in n
        }
        callables = {n for n in names if inspect.isfunction(getattr(xp, n, None))}
        assert callables - not_functions - own - set(cases) == set(), space


def compare(space: str, name: str, examples: int) -> None:
    """Draws arguments for a function and compares what both libraries make of them."""
    other, own, cases = SPACES[space]
    case, compared, refused = cases[name], 0, 0

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(case.arguments)
    def agree(arguments: Any) -> None:
        nonlocal compared, refused
        expected = outcome(strict, found_in(other, name), arguments)
        found = outcome(neuronsim, found_in(own, name), arguments)
        if isinstance(expected, Exception):
            refused += 1
            accepts = isinstance(found, Exception) or allowed("accepts", name, arguments)
            assert accepts, (name, arguments, f"strict: {expected!r}", found)
            return
        if len(kinds_of(arguments[0])) > 1 and allowed("mixed", name, arguments):
            return
        if isinstance(found, Exception):
            assert allowed("refuses", name, arguments), (name, arguments, found)
            return
        compared += 1
        if allowed("values", name, arguments):
            return
        theirs = plain(expected)
        if isinstance(theirs, numpy.ndarray) and allowed("default", name, arguments):
            theirs = as_default(theirs, arguments)
        if allowed("complex", name, arguments) and theirs.dtype.kind == "c":
            numpys = outcome(numpy, NUMPYS.get(name, getattr(numpy, name)), arguments)
            theirs = numpy.where(numpy.isnan(arguments[0][0]), theirs, numpys)
        ours = plain(found)
        if allowed("specials", name, arguments):
            operands = numpy.broadcast_arrays(*arrays_in(arguments))
            finite = numpy.all([numpy.isfinite(x) for x in operands], axis=0)
            theirs = numpy.where(finite, theirs, ours)
        if allowed("close", name, arguments) and theirs.dtype.kind == "c":
            check_close(name, ours, theirs)
            return
        if allowed("zeros", name, arguments):
            ours, theirs = with_plain_zeros(ours), with_plain_zeros(theirs)
        ordered = (arguments[0][::-1], {}) if name in REFLECTED else arguments
        check(FUNCTION_OF.get(name, name), ours, theirs, case, ordered)

    agree()
    # Otherwise the arguments are no test; of shapes there is one set.
    assert compared > (examples // 10 if name != "broadcast_shapes" else 0)


@pytest.mark.parametrize("examples", some([10, 2000], 1))
@pytest.mark.parametrize(("space", "name"), EVERY, ids=lambda v: v or "main")
def test_agrees_with_array_api_strict(space: str, name: str, examples: int) -> None:
    compare(space, name, examples)


@pytest.mark.parametrize(("space", "name"), EVERY, ids=lambda v: v or "main")
def test_signature_is_the_standards(space: str, name: str) -> None:
    other, own, _ = SPACES[space]
    mine = list(inspect.signature(found_in(own, name)).parameters.values())
    by_name = {p.name: p for p in mine}
    for position, theirs in enumerate(inspect.signature(found_in(other, name)).parameters.values()):
        if theirs.kind is theirs.KEYWORD_ONLY:
            assert theirs.name in by_name, theirs
            assert by_name[theirs.name].kind in (theirs.KEYWORD_ONLY, theirs.POSITIONAL_OR_KEYWORD)
            check_default(by_name[theirs.name], theirs)
            continue
        if theirs.kind is theirs.VAR_POSITIONAL:
            assert mine[position].kind is theirs.VAR_POSITIONAL
            continue
        parameter = mine[position]
        assert parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if theirs.kind is theirs.POSITIONAL_OR_KEYWORD:
            assert (parameter.name, parameter.kind) == (theirs.name, theirs.kind)
        check_default(parameter, theirs)


def check_default(own: inspect.Parameter, theirs: inspect.Parameter) -> None:
    """NumPy gives defaults to more, which no call of the standard's form can tell."""
    assert theirs.default is theirs.empty or own.default == theirs.default or theirs.name == "device"
    assert theirs.default is theirs.empty or own.default is not own.empty, theirs


def test_deviations_name_functions_and_reasons() -> None:
    names = {name for _, name in EVERY}
    for deviation in DEVIATIONS:
        assert deviation["kind"] in KINDS
        assert set(deviation["functions"]) <= names, deviation
        assert len(deviation["reason"]) > 20


def test_a_wrong_function_is_found() -> None:
    """The control: sums that lose an element, and a type that is too wide."""
    x = numpy.array([1.0, 2.0, 3.0], numpy.float32)
    arguments = ((x,), {})
    with pytest.raises(AssertionError):
        check("sum", numpy.float32(3), numpy.array(6, numpy.float32), CASES["sum"], arguments)
    with pytest.raises(AssertionError):
        check("exp", numpy.exp(x.astype(float)), numpy.exp(x), CASES["exp"], arguments)
    with pytest.raises(AssertionError):
        check(
            "exp",
            numpy.nextafter(numpy.exp(x), numpy.float32(9)),
            numpy.exp(x),
            CASES["exp"],
            arguments,
        )
