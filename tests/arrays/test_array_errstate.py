"""NumPy's errstate on arrays: which elements count, what each mode does, who sees it, what it costs."""

from __future__ import annotations

import asyncio
import contextvars
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import FloatingPointException, InvalidArgument, NeuronSimError
from neuronsim.profiles import Profile, current_profile

pytestmark = pytest.mark.isa_independent

FLOATS = [t for t in DTYPES.values() if t.device and t.kind == "float"]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = np.geterr(), np.geterrcall()
    yield
    np.seterr(**before[0])
    np.seterrcall(before[1])


def messages(function: Callable[[], Any]) -> list[str]:
    """What a call warns of under all="warn"."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        function()
    assert all(w.category is RuntimeWarning for w in caught)
    return [str(w.message) for w in caught]


def array(t: DType, *values: float) -> np.Array:
    return np.asarray(list(values), dtype=t)


# ---- what counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_overflow_and_underflow_say_how_many_of_what(t: DType) -> None:
    large, small = np.finfo(t).max, np.finfo(t).smallest_subnormal
    x = array(t, large, 1.0, small, 0.0, -large)
    assert messages(lambda: x * array(t, 2, 2, 2, 2, 2)) == [
        f"multiply: 2 of 5 {t} elements overflowed to Inf (C3)"
    ]
    assert messages(lambda: x * array(t, 0.25, 1, 0.25, 0.25, 1)) == [
        f"multiply: 1 of 5 {t} elements underflowed to zero (C4)"
    ]
    assert messages(lambda: x + x * 0) == []


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_division_and_invalid_say_how_many_of_what(t: DType) -> None:
    x, zero = array(t, 1.0, -1.0, 0.0, 2.0), array(t, 0.0, -0.0, 0.0, 2.0)
    assert messages(lambda: x / zero) == [
        f"divide: 2 of 4 {t} elements divided by zero (E2)",
        f"divide: 1 of 4 {t} elements became NaN (E6)",
    ]
    assert messages(lambda: np.log(np.asarray([0.0, -1.0, 1.0], dtype=t))) == [
        f"log: 1 of 3 {t} elements divided by zero (E2)",
        f"log: 1 of 3 {t} elements became NaN (E6)",
    ]


def test_operands_that_are_infinite_or_nan_make_no_exception() -> None:
    x = np.asarray([np.inf, np.nan, -np.inf])
    assert messages(lambda: (x * 2, np.exp(x), np.sqrt(np.abs(x)), -x, x.astype("bfloat16"))) == []
    moved = (lambda: x[::-1], lambda: x.reshape(3, 1), lambda: np.maximum(x, 0))
    assert [messages(f) for f in (*moved, lambda: np.where(x > 0, x, 0))] == [[]] * 4


def test_conversions_count() -> None:
    x = np.asarray([70000.0, 1e-9, 1.0, np.nan])
    assert messages(lambda: x.astype("float16")) == [
        "convert: 1 of 4 float16 elements overflowed to Inf (C3)",
        "convert: 1 of 4 float16 elements underflowed to zero (C4)",
    ]
    assert messages(lambda: x.astype("int8")) == [
        "convert: 2 of 4 int8 elements saturated, or were NaN (C6)"
    ]
    with np.use_profile(fp8_overflow="saturate"):
        assert messages(lambda: array(np.float32, 300.0, 240.0).astype("float8_e4m3")) == [
            "convert: 1 of 2 float8_e4m3 elements saturated (C3, fp8_overflow='saturate')"
        ]
    assert messages(lambda: np.asarray(1e300)) == [
        "convert: 1 of 1 float32 elements overflowed to Inf (C3)"
    ]


def test_products_reductions_and_composites_count() -> None:
    x = array(np.float16, 60000.0, 3.0)
    assert messages(lambda: x @ x) == ["dot: 1 of 1 float16 elements overflowed to Inf (C3)"]
    wide = np.asarray([[3e38, 3e38], [1.0, 2.0]])
    assert messages(lambda: np.sum(wide, axis=1)) == [
        "reduce: 1 of 2 float32 elements overflowed to Inf (C3)"
    ]
    assert messages(lambda: np.nn.softmax(np.asarray([np.inf, 1.0]))) == [
        "softmax: 2 of 2 float32 elements became NaN (E6)"
    ]
    assert messages(lambda: np.mean(x)) == []  # R7: the sum is float32's


def test_counts_are_numpys_where_it_has_the_type() -> None:
    """float32 over special values: each kind that NumPy reports of a whole array, ours does too."""
    with numpy.errstate(all="ignore"):
        special = numpy.array([0, -0.0, 1, -1, 3e38, -3e38, 1e-30, numpy.inf], numpy.float32)
    x, y = (a.ravel() for a in numpy.meshgrid(special, special))
    keys = {"divide by zero": "divided", "overflow": "overflowed", "invalid value": "became NaN"}
    for name in ("add", "subtract", "multiply", "divide"):
        kinds: list[str] = []
        with numpy.errstate(all="call", call=lambda kind, flags, seen=kinds: seen.append(kind)):
            getattr(numpy, name)(x, y)
        found = " ".join(messages(lambda n=name: getattr(np, n)(np.asarray(x), np.asarray(y))))
        for kind, word in keys.items():
            assert (kind in kinds) is (word in found), (name, kind)


# ---- what each mode does -------------------------------------------------------------------------


def test_warnings_point_at_the_users_line() -> None:
    x = np.asarray([1.0, 0.0])
    calls = [
        lambda: x / 0,
        lambda: np.divide(x, 0),
        lambda: numpy.log(x),
        lambda: np.nn.softmax(np.asarray([np.inf])),
        lambda: np.asarray(1e300),
        lambda: x.astype("float64").astype("float32") / 0,
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
            warnings.simplefilter("always")
            call()
        assert caught
        assert {w.filename for w in caught} == {__file__}
        assert {w.lineno for w in caught} == {call.__code__.co_firstlineno}


def test_ignore_is_the_default() -> None:
    assert set(np.geterr().values()) == {"ignore"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.asarray([1.0]) / 0


def test_raise_is_neuronsims_and_pythons_error() -> None:
    x = array(np.float16, 65504.0)
    with np.errstate(over="raise"):
        with pytest.raises(FloatingPointError, match=r"multiply: 1 of 1 float16 .*over='raise'"):
            x * 2
        with pytest.raises(NeuronSimError):
            x * 2
        x / 0  # another kind
    assert issubclass(FloatingPointException, NeuronSimError)


def test_call_gets_numpys_kinds_and_flags() -> None:
    ours: list[tuple[str, int]] = []
    numpys: list[tuple[str, int]] = []
    x, y = [1.0, 0.0, 1e38], [0.0, 0.0, 1e-20]
    with np.errstate(all="call", call=lambda *given: ours.append(given)):
        np.asarray(x) / np.asarray(y)
    with numpy.errstate(all="call", call=lambda *given: numpys.append(given)):
        numpy.array(x, numpy.float32) / numpy.array(y, numpy.float32)
    assert sorted(ours) == sorted(numpys)
    assert np.geterrcall() is None


def test_log_and_print_write(capsys: pytest.CaptureFixture[str]) -> None:
    text = io.StringIO()
    with np.errstate(divide="log", call=text):
        np.asarray([1.0]) / 0
    expected = "Warning: divide: 1 of 1 float32 elements divided by zero (E2)\n"
    assert text.getvalue() == expected
    with np.errstate(divide="print"):
        np.asarray([1.0]) / 0
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("mode", ["call", "log"])
def test_a_mode_without_its_receiver_says_so(mode: Any) -> None:
    with np.errstate(divide=mode), pytest.raises(InvalidArgument, match="seterrcall"):
        np.asarray([1.0]) / 0


def test_seterr_changes_and_returns() -> None:
    before = np.seterr(all="warn", over="raise")
    assert set(before.values()) == {"ignore"}
    assert np.geterr() == {"divide": "warn", "over": "raise", "under": "warn", "invalid": "warn"}
    assert np.seterr(divide="ignore")["divide"] == "warn"
    assert list(np.geterr()) == list(numpy.geterr())
    np.seterr(**before)
    assert np.geterr() == before

    def receive(kind: str, flags: int) -> None: ...

    assert np.seterrcall(receive) is None
    assert np.seterrcall(None) is receive


def test_mistakes_name_what_is_known() -> None:
    with pytest.raises(ValueError, match="did you mean 'warn'"):
        np.seterr(divide="wran")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="write"):
        np.seterrcall(3)
    with pytest.raises(TypeError, match="foo"):
        np.errstate(foo="warn")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="all"), np.errstate(all="no"):  # type: ignore[arg-type]
        pass
    assert set(np.geterr().values()) == {"ignore"}
    assert np.geterrcall() is None


# ---- who sees it ---------------------------------------------------------------------------------


def test_errstate_nests_decorates_and_ends() -> None:
    @np.errstate(divide="raise")
    def divided() -> None:
        np.asarray([1.0]) / 0

    with np.errstate(over="warn"):
        with np.errstate(divide="call", call=print):
            assert np.geterr()["over"] == "warn"
            assert np.geterrcall() is print
        assert np.geterr()["divide"] == "ignore"
    for _ in range(2):
        with pytest.raises(FloatingPointError):
            divided()
    assert set(np.geterr().values()) == {"ignore"}


def test_profiles_and_error_handling_do_not_touch_each_other() -> None:
    with np.errstate(over="raise"):
        with np.use_profile(divide="reciprocal_multiply") as inner:
            assert inner == current_profile() == Profile(divide="reciprocal_multiply")
            with pytest.raises(FloatingPointError):
                np.asarray([3e38]) * 2
            np.seterr(over="ignore", divide="raise")
        assert np.geterr()["divide"] == "raise"  # seterr holds beyond the profile's block
        assert current_profile() == Profile()
        with pytest.raises(FloatingPointError):
            np.asarray([1.0]) / 0
    assert current_profile().handling is None
    with np.use_profile(subnormals="flush"):
        with np.errstate(all="raise"):
            assert current_profile().subnormals == "flush"
        assert current_profile() == Profile(subnormals="flush")


def test_threads_tasks_and_contexts_have_their_own() -> None:
    seen: list[dict[str, Any]] = []
    with np.errstate(all="raise"):
        thread = threading.Thread(target=lambda: seen.append(np.geterr()))
        thread.start()
        thread.join()
        copied = contextvars.copy_context()
    assert set(seen[0].values()) == {"ignore"}
    assert set(copied.run(np.geterr).values()) == {"raise"}

    async def run(mode: Any) -> str:
        with np.errstate(over=mode):
            await asyncio.sleep(0)
            return np.geterr()["over"]

    async def main() -> list[str]:
        return await asyncio.gather(run("warn"), run("raise"))

    assert asyncio.run(main()) == ["warn", "raise"]


# ---- no bit and no cost --------------------------------------------------------------------------


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_no_bit_changes(t: DType) -> None:
    rng = numpy.random.default_rng(0)
    x = np.asarray(rng.standard_normal(100) * 100, dtype=t)
    y = np.asarray(rng.standard_normal(100), dtype=t)

    def results() -> list[bytes]:
        found = [x + y, x / y, np.exp(x), np.sum(x), x @ y, np.nn.softmax(x), x.astype("float8_e4m3")]
        return [r.tobytes() for r in found]

    with np.errstate(all="call", call=lambda *given: None):
        observed = results()
    assert observed == results()


def test_stochastic_rounding_draws_the_same_words_S2() -> None:
    x = np.asarray([1 + 1 / 300] * 500)

    def results() -> list[bytes]:
        with np.use_profile(rounding="stochastic", seed=3):
            return [x.astype("bfloat16").tobytes(), (x * x).astype("float16").tobytes()]

    with np.errstate(all="raise"):
        observed = results()
    assert observed == results()


def test_off_is_nothing_to_ask_for() -> None:
    """Nothing is observed, and the profile is the very instance that has the programs."""
    plain = current_profile()
    with np.errstate(all="warn"):
        handled = current_profile()
        assert handled == plain
        assert handled is not plain
        with np.errstate(all="ignore"):
            assert current_profile() is plain
        assert current_profile() is handled
    assert current_profile() is plain
