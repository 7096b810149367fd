"""Calibration: what every instruction's values are in a float32 run, counted again in plain Python."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from tests.support.hlo_text import text_module
from tests.support.places import DIGITS, NETWORKS

import neuronsim
from neuronsim import api, dtypes, ops
from neuronsim.casting.plans.plan import load_plan
from neuronsim.casting.policies.calibration import (
    SCHEMA,
    Calibration,
    load_calibration,
    make_calibration,
    share_rounded_to_zero,
)
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import Module, Shape, graph_computations

pytestmark = pytest.mark.isa_independent  # what is tested counts values in NumPy

LOOP = text_module(
    """x = f32[2] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[2]) tuple(zero, x)
  end = (s32[], f32[2]) while(start), condition=is_low, body=add_one
  kept = (s32[], f32[2]) opt-barrier(end)
  ROOT last = f32[2] get-tuple-element(kept), index=1""",
    """
add_one {
  s = (s32[], f32[2]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  v = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] add(n, one)
  doubled = f32[2] add(v, v)
  ROOT next = (s32[], f32[2]) tuple(m, doubled)
}
is_low {
  s = (s32[], f32[2]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT less = pred[] compare(n, three), direction=LT
}
""",
)
BRANCHES = text_module(
    """x = f32[2] parameter(0)
  no = pred[] constant(false)
  ROOT y = f32[2] conditional(no, x, x), true_computation=small, false_computation=large""",
    "small { p = f32[2] parameter(0)  ROOT r = f32[2] negate(p) }\n"
    "large { k = f32[2] parameter(0)  ROOT q = f32[2] add(k, k) }",
)


def counted(values: npt.NDArray[np.float32]) -> ops.Statistics:
    """Statistics of float32 values, one Python number after the other."""
    numbers = [abs(float(v)) for v in values.reshape(-1)]
    usual = [n for n in numbers if 0 < n < math.inf]
    exponents: Counter[int] = Counter()
    for n in usual:
        p, q = n.as_integer_ratio()  # q is a power of two
        exponents[(p - 1).bit_length() - (q.bit_length() - 1)] += 1
    return ops.Statistics(
        len(numbers),
        sum(map(math.isnan, numbers)),
        sum(map(math.isinf, numbers)),
        numbers.count(0.0),
        sum(n < 2.0**-126 for n in usual),
        min(usual, default=0.0),
        max(usual, default=0.0),
        dict(exponents),
    )


@pytest.fixture(scope="module")
def digits() -> Calibration:
    return neuronsim.calibrate(DIGITS / "model.hlo.pb", DIGITS / "test.npz")


def calibrated(module: Module, x: Any) -> Calibration:
    return neuronsim.calibrate(module, {"x": np.asarray(x, np.float32)})


def floats_of(module: Module) -> set[str]:
    """The instructions that give one array of floats."""
    return {
        i.name
        for c in graph_computations(module)
        for i in c.instructions
        if isinstance(i.shape, Shape) and i.shape.dtype.kind == "float"
    }


def test_every_float_instruction_has_values(digits: Calibration) -> None:
    module = inline_calls(api.read_model(DIGITS / "model.hlo.pb"))
    floats = floats_of(module)
    assert digits.values.keys() == floats
    assert {i.opcode for i in module.entry_computation.instructions if i.name in floats} >= {
        *("parameter", "constant", "dot", "reduce", "exponential")
    }


def test_all_batches_are_counted_and_not_what_fills_the_last_one_up(digits: Calibration) -> None:
    x = np.load(DIGITS / "test.npz")["x"].astype(np.float32)
    assert len(x) % 64 != 0
    sums = (x.reshape(len(x), -1) ** 2).sum(1)  # integers: exact
    assert digits.values["reduce_sum.64"] == counted(sums)
    assert sums.min() > 65504
    assert digits.values["x.1"] == counted(x)


def test_what_is_made_of_a_whole_batch_is_never_counted_below_none() -> None:
    """The batch of one sample alone, by which what fills up is taken out, has another mean."""
    module = text_module(
        """x = f32[4,3] parameter(0)
        zero = f32[] constant(0)
        sum = f32[3] reduce(x, zero), dimensions={0}, to_apply=add
        four = f32[3] constant({4, 4, 4})
        mean = f32[3] divide(sum, four)
        means = f32[4,3] broadcast(mean), dimensions={1}
        ROOT y = f32[4,3] subtract(x, means)"""
    )
    values = calibrated(module, np.random.default_rng(0).standard_normal((6, 3))).values
    assert values["x"].elements == 18
    for s in values.values():
        counts = (s.nan, s.infinite, s.zero, *s.exponents.values())
        assert min(counts) >= 0
        assert sum(counts) == s.elements


def test_constants_have_the_values_of_the_file(digits: Calibration) -> None:
    module = inline_calls(api.read_model(DIGITS / "model.hlo.pb"))
    constants = [i for i in module.entry_computation.instructions if i.opcode == "constant"]
    floats = [i for i in constants if i.array.dtype is dtypes.float32]
    assert len(floats) > 5
    for i in floats:
        assert digits.values[i.name] == counted(i.attributes["literal"].data)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, 0.5, 2.0**-149, 1e-40, 3.4e38, -1.0, -1.5],
        [0.0, -0.0, math.inf, -math.inf, math.nan],
        [],
        np.random.default_rng(3).normal(size=200) ** 9,
    ],
)
def test_statistics_count_each_element(values: Any) -> None:
    array = np.asarray(values, np.float32)
    assert ops.statistics(ops.Bits(array, dtypes.float32)) == counted(array)


def test_statistics_add_up() -> None:
    rng = np.random.default_rng(4)
    parts = [(rng.normal(size=50) ** 5).astype(np.float32) for _ in range(3)]
    found = [ops.statistics(ops.Bits(p, dtypes.float32)) for p in parts]
    total = found[0] + found[1] + found[2]  # type: ignore[operator]
    assert total == counted(np.concatenate(parts))


def test_values_that_a_loop_carries_are_those_before_and_after_each_trip() -> None:
    found = calibrated(LOOP, [1.0, 3.0]).values
    start, trips = np.float32([1, 3]), np.float32([2, 6, 4, 12, 8, 24])
    assert found["x"] == counted(start)
    assert found["doubled"] == counted(trips)
    both = counted(np.concatenate([start, trips]))
    assert [found[name] for name in ("v", "last")] == [both, both]
    assert not {"n", "s", "start", "end", "m"} & found.keys()


def test_a_branch_that_is_not_taken_has_no_values_of_its_own() -> None:
    found = calibrated(BRANCHES, [1.0, 3.0]).values
    assert found["q"] == found["y"] == counted(np.float32([2, 6]))
    assert found["k"] == found["x"]
    assert "r" not in found


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_every_float_of_a_network_with_loops_has_values(name: str) -> None:
    program = neuronsim.compile(NETWORKS / f"{name}.hlo.pb", auto_cast="none")
    module = inline_calls(program.model)
    assert any(i.opcode == "while" for i in module.entry_computation.instructions)
    inputs = {n: np.zeros(t.dims, t.dtype.numpy) for n, t in program.inputs.items()}
    program(**inputs, observe="full")
    run = {n: ops.Statistics(**s) for n, s in program.diagnostics["statistics"].items()}
    for p, x in zip(program.model.parameters, inputs.values(), strict=True):
        run |= {p.name: counted(x)} if x.dtype == np.float32 else {}
    handed_on = floats_of(module) - run.keys()
    found = make_calibration(program.model, [run]).values
    assert floats_of(module) <= found.keys()
    assert any("get-tuple-element" in n for n in handed_on)


def test_each_result_of_an_instruction_counts() -> None:
    module = text_module("""x = f32[2] parameter(0)
        y = f32[2] exponential(x)
        t = (f32[2], f32[2]) tuple(x, y)
        a = f32[2] get-tuple-element(t), index=0
        b = f32[2] get-tuple-element(t), index=1
        ROOT c = f32[2] add(a, b)""")
    found = calibrated(module, [1.0, 2.0]).values
    assert (found["a"], found["b"]) == (found["x"], found["y"])
    assert found["a"] != found["b"]


# ---- the share that a type makes zero ---------------------------------------------------------------

FORMATS = [
    *(dtypes.float16, dtypes.bfloat16, dtypes.float8_e5m2, dtypes.float8_e4m3, dtypes.float8_e3m4),
    dtypes.tfloat32,
]


def becomes_zero(values: npt.NDArray[np.float32], dtype: DType) -> npt.NDArray[np.bool_]:
    """What ml_dtypes rounds to zero; tfloat32 by integers."""
    if dtype is dtypes.tfloat32:
        bits = values.view(np.uint32) & np.uint32(0x7FFFFFFF)
        return np.asarray(bits + 0xFFF + (bits >> 13 & 1) < 1 << 13)
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(dtype.numpy).astype(np.float32) == 0)


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda t: t.name)
def test_share_that_becomes_zero_is_exact_C1(dtype: DType) -> None:
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    least = np.arange(1 << 16, dtype=np.uint32)
    bits = np.concatenate([least, *(high | low for low in (0, 1, 0x7FFF, 0x8000, 0xFFFF))])
    values = bits.view(np.float32)
    values = values[np.isfinite(values) & (values != 0)]
    lost = becomes_zero(values, dtype)
    assert 0 < lost.sum() < lost.size
    for exponent in (*range(-149, -120), *range(-30, 3)):  # each binade with its borders
        near = values[np.abs(np.log2(np.abs(values.astype(np.float64))) - exponent) <= 1]
        s = ops.statistics(ops.Bits(near, dtypes.float32))
        assert s is not None
        assert share_rounded_to_zero(s, dtype) == becomes_zero(near, dtype).mean()


@pytest.mark.parametrize("bits", [(5, 10), (6, 9), (4, 3), (8, 7), (8, 12)], ids=str)
def test_share_of_an_open_format_counts_what_is_just_below_its_least_value_C9(
    bits: tuple[int, int],
) -> None:
    dtype = dtypes.float_format(*bits)
    least_normal = dtype.smallest_normal
    step = 2.0 ** -(bits[1] + 2)
    near = np.float32(least_normal) * np.linspace(2.0**-9, 1 - 1.01 * step, 4099, dtype=np.float32)
    above = np.float32(least_normal) * np.linspace(1.01, 9, 1001, dtype=np.float32)
    values = np.concatenate([near, -above])
    fractions, exponents = np.frexp(values.astype(np.float64))
    rounded = np.ldexp(np.rint(fractions * 2.0 ** (bits[1] + 1)), exponents - bits[1] - 1)
    lost = np.abs(rounded) < least_normal
    if bits[0] == 8:  # float32's exponent: it has subnormals
        lost = np.abs(values.astype(np.float64)) <= least_normal * 2.0 ** -(bits[1] + 1)
    assert share_rounded_to_zero(counted(values), dtype) == lost.mean()
    just_below = counted(np.float32([least_normal * (1 - step / 2)]))
    assert share_rounded_to_zero(just_below, dtype) == (bits[0] < 8)  # it becomes the least value


def test_share_leaves_zeros_out_and_inf_in() -> None:
    s = counted(np.float32([0, 0, 1e-30, 1, np.inf, np.nan]))
    assert share_rounded_to_zero(s, dtypes.float16) == 1 / 4
    assert share_rounded_to_zero(counted(np.float32([0, 0])), dtypes.float16) == 0
    assert ml_dtypes.finfo(ml_dtypes.bfloat16).smallest_subnormal < 1e-30
    assert share_rounded_to_zero(s, dtypes.bfloat16) == 0


# ---- files and errors -------------------------------------------------------------------------------


def test_json_round_trip(digits: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(digits.to_json())
    assert json.loads(path.read_text())["schema"] == SCHEMA
    assert load_calibration(path) == digits


def test_another_module_is_an_error(digits: Calibration) -> None:
    digits.check(api.read_model(DIGITS / "model.hlo.pb"))
    with pytest.raises(InvalidArgument, match=r"was made for 'jit_classify' .*, not for module 'm'"):
        digits.check(LOOP)


def test_damaged_files_say_all_that_is_wrong(tmp_path: Path) -> None:
    body = json.loads(calibrated(LOOP, [1.0, 3.0]).to_json())
    body["values"]["x"] |= {"elements": -1, "smallest": "little", "exponents": {"one": 2}}
    body["values"]["x"]["larges"] = body["values"]["x"].pop("largest")
    body["valeus"] = 3
    with pytest.raises(InvalidArgument) as caught:
        Calibration.from_json(json.dumps(body))
    for part in (
        "'valeus' is unknown (did you mean 'values'?)",
        "values of 'x': elements is -1",
        "smallest is 'little'",
        "exponents is {'one': 2}",
        "'larges' is unknown (did you mean 'largest'?)",
        "largest is missing",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", "{}", '{"schema": "neuronsim.plan/3"}', "3"])
def test_other_files_are_no_calibration(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match="not a calibration"):
        load_calibration(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot read the calibration"):
        load_calibration(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match="it is not UTF-8 text"):
        load_calibration(tmp_path / "binary.json")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"exponents": {"-40": 10**400}}, "do not add up"),
        ({"elements": 9}, "of elements: 9, nan, infinite and zero: 0 and exponents: 2 do not add up"),
        ({"zero": 5}, "zero: 5 and exponents: 2 do not add up"),
        ({"smallest": 4.0}, "smallest: 4 is more than largest: 3"),
        ({"largest": 5.0}, "largest: 5 is not among those that exponents count"),
        ({"smallest": 0.5}, "smallest: 0.5 is not among those that exponents count"),
        ({"smallest": 0.0}, "smallest: 0 is not among those that exponents count"),
        ({"subnormal": 3}, "subnormal: 3 are more than exponents: 2"),
        ({"exponents": {"0": 1, "02": 1}}, "each written once as a plain integer"),
    ],
    ids=["huge", "few", "zero", "order", "largest", "smallest", "none", "subnormal", "exponents"],
)
def test_statistics_that_contradict_themselves_are_refused(
    changed: dict[str, Any], said: str, tmp_path: Path
) -> None:
    body = json.loads(calibrated(LOOP, [1.0, 3.0]).to_json())
    s = body["values"]["x"]
    assert s["exponents"] == {"0": s["elements"] // 2, "2": s["elements"] // 2}
    s |= {"elements": 2, "exponents": {"0": 1, "2": 1}} | changed
    path = tmp_path / "c.json"
    path.write_text(json.dumps(body))
    with pytest.raises(InvalidArgument, match="values of 'x': ") as caught:
        load_calibration(path)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_counts_of_any_size_have_a_share() -> None:
    body = json.loads(calibrated(LOOP, [1.0, 3.0]).to_json())
    body["values"]["x"] |= {"elements": 10**400 + 1, "exponents": {"-40": 10**400, "2": 1}}
    body["values"]["x"] |= {"smallest": 2.0**-40}
    s = Calibration.from_json(json.dumps(body)).values["x"]
    assert share_rounded_to_zero(s, dtypes.float16) == 1


def test_a_calibration_of_instructions_that_the_module_lacks_is_refused() -> None:
    found = calibrated(LOOP, [1.0, 3.0])
    values = {f"x{n}": found.values["x"] for n in range(20_000)}
    wrong = Calibration(found.module, found.fingerprint, values)
    with pytest.raises(InvalidArgument, match=r"no instruction 'x0'.*; and 19970 more") as caught:
        wrong.check(LOOP)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("load", [load_calibration, load_plan], ids=["calibration", "plan"])
def test_devices_folders_and_huge_files_are_not_read(
    load: Callable[[str | Path], object], tmp_path: Path
) -> None:
    for path in ("/dev/zero", tmp_path):
        with pytest.raises(InvalidArgument, match="it is no regular file"):
            load(path)
    huge = tmp_path / "huge.json"
    with open(huge, "wb") as file:
        file.truncate((1 << 30) + 1)  # without blocks on the disk
    with pytest.raises(InvalidArgument, match="it has more than 1073741824 bytes"):
        load(huge)


def test_progress_is_told_and_can_interrupt() -> None:
    told: list[tuple[int, int]] = []
    data = {"x": np.ones(5, np.float32)}
    found = neuronsim.calibrate(LOOP, data, progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert found.values["x"].elements == 5

    def interrupt(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        neuronsim.calibrate(LOOP, data, progress=interrupt)


def test_data_that_do_not_fit_are_errors() -> None:
    with pytest.raises(InvalidData, match="NaN"):
        calibrated(LOOP, [1.0, math.nan])
    with pytest.raises(InvalidData):
        neuronsim.calibrate(LOOP, {"y": np.ones(2), "z": np.ones(2)})


def test_without_a_run_only_the_constants_have_values() -> None:
    module = text_module("""x = f32[] parameter(0)
        half = f32[] constant(0.5)
        ROOT y = f32[] add(x, half)""")
    assert make_calibration(module, []).values == {"half": counted(np.float32([0.5]))}
