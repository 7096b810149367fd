"""Data files and mappings: what is read, what is refused, and how samples meet the model's batch."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.graphs import module_of, parameter
from tests.support.parameters import each_of

from neuronsim import api, dtypes, ops
from neuronsim.errors import InvalidData, NeuronSimError
from neuronsim.hlo.module import Instruction, Shape, TupleShape
from neuronsim.tuning.dataset import (
    Dataset,
    batches,
    bind_inputs,
    load_batches,
    load_dataset,
    output_shapes,
    outputs_of_samples,
    read_npz,
    reject_nan,
    run_batches,
)

F32 = dtypes.float32
BATCH = Shape(F32, (4, 3))
DIGITS = Path(__file__).parents[2] / "examples" / "digits"


DOUBLE = module_of(parameter("x.1", BATCH), Instruction("y", "add", BATCH, ("x.1", "x.1")))
SUM = module_of(
    parameter("a.1", BATCH), parameter("b.2", BATCH, 1), Instruction("y", "add", BATCH, ("a.1", "b.2"))
)


TABLE = Shape(F32, (5, 3))
PICKED = module_of(  # no input has the axis of the other
    parameter("table", TABLE),
    parameter("row", Shape(F32, (3,)), 1),
    Instruction("rows", "broadcast", TABLE, ("row",), {"dimensions": (1,)}),
    Instruction("y", "add", TABLE, ("table", "rows")),
)


def runs(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {"table": rng.random((n, 5, 3), np.float32), "row": rng.random((n, 3), np.float32)}


def samples(n: int) -> np.ndarray:
    return np.arange(3 * n, dtype=np.float32).reshape(n, 3)


# ---- reading -------------------------------------------------------------------------------------


def test_a_mapping_gives_inputs_labels_and_count() -> None:
    data = load_dataset({"x": [[1.0, 2.0]] * 5, "labels": [0, 1, 2, 3, 4]})
    assert data.count == 5
    assert list(data.inputs) == ["x"]
    assert data.labels is not None
    assert (data.labels.dtype, data.labels.tolist()) == (np.int64, [0, 1, 2, 3, 4])
    assert data.source == "memory"


def test_the_argument_labels_wins_over_the_key() -> None:
    data = load_dataset({"x": samples(2), "labels": [0, 0]}, labels=np.array([7, 8], np.uint8))
    assert data.labels is not None
    assert data.labels.tolist() == [7, 8]


def test_an_npz_file_gives_the_same_as_its_arrays(tmp_path: Path) -> None:
    arrays = {"x": samples(3), "labels": np.array([2, 0, 1])}
    np.savez_compressed(tmp_path / "d.npz", **arrays)
    assert load_dataset(tmp_path / "d.npz").fingerprint == load_dataset(arrays).fingerprint
    assert load_dataset(str(tmp_path / "d.npz")).source == str(tmp_path / "d.npz")


@pytest.mark.parametrize(
    "other",
    [
        {"y": samples(2)},
        {"x": samples(2).astype(np.float64)},
        {"x": samples(2).reshape(2, 3, 1)},
        {"x": samples(2) + 1},
        {"x": samples(2), "labels": [0, 1]},
    ],
    ids=["name", "type", "shape", "value", "labels"],
)
def test_the_fingerprint_tells_data_apart(other: dict[str, Any]) -> None:
    assert load_dataset({"x": samples(2)}).fingerprint != load_dataset(other).fingerprint


@each_of(
    ("data", "message"),
    [
        ({}, "no input arrays"),
        ({"labels": [1]}, "no input arrays"),
        ({"x": np.float32(1)}, "leading axis is samples, but 'x' has no axis"),
        ({"x": np.zeros((0, 3))}, "no samples"),
        ({"x": samples(2), "y": samples(3)}, r"lengths are \{'x': 2, 'y': 3\}"),
        ({"x": samples(2), "labels": [1]}, "2 samples have 1 labels"),
        ({"x": samples(2), "labels": 1}, "class numbers"),
        ({"x": samples(2), "labels": ["a", "b"]}, "class numbers"),
        ({"x": ["a", "b"]}, "no number"),
        ({"x": np.array([None, 1], object)}, "no number"),
        ({"x": np.array(["2020-01-01"], "M8[D]")}, "no number"),
        ({"x": [[1.0], [2.0, 3.0]]}, "x"),
    ],
    ids=lambda v: "" if isinstance(v, dict) else v,
)
def test_data_that_cannot_be_samples_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        load_dataset(data)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0, 2.0], [3.0, np.nan]], r"NaN at \[1, 1\]"),
        (np.array([1j * np.nan]), "NaN"),
        (np.array([1, np.nan], dtypes.bfloat16.numpy), r"NaN at \[1\]"),
    ],
)
def test_nan_is_refused_where_figures_are_made(x: Any, message: str) -> None:
    dataset = load_dataset({"x": x})  # `run` takes it
    with pytest.raises(InvalidData, match=message):
        reject_nan(dataset)


def test_infinities_are_data() -> None:
    assert load_dataset({"x": [np.inf, -np.inf]}).count == 2


# ---- damaged files -------------------------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink(missing_ok=True)


def folder(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(500))


def truncated(path: Path) -> None:
    np.savez(path, x=samples(50))
    path.write_bytes(path.read_bytes()[:300])


def single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, samples(2))


def pickled(path: Path) -> None:
    np.savez(path, x=np.array([{"a": 1}], object))


def pickle_stream(path: Path) -> None:
    path.write_bytes(b"\x80\x04]\x94.")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (missing, "No such file"),
        (folder, "Is a directory"),
        (empty, "numpy.savez"),
        (garbage, "numpy.savez"),
        (truncated, "numpy.savez"),
        (single_array, "single array"),
        (pickled, "plain arrays"),
        (pickle_stream, "plain arrays"),
    ],
)
def test_files_that_are_no_npz_are_refused(
    write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "d.npz"
    write(path)
    with pytest.raises(InvalidData, match=message):
        read_npz(path)


def test_the_array_of_a_type_that_there_is_not_is_named(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, x=np.zeros(2), names=np.array(["a", "b"]))
    with pytest.raises(InvalidData, match="cannot load 'names': dtype"):
        read_npz(path)


def test_damaged_archives_are_read_or_refused_but_never_crash(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).random(50))
    whole, rng = path.read_bytes(), random.Random(2)
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(NeuronSimError):  # some mutations leave a good file
            load_dataset(path)


# ---- names ---------------------------------------------------------------------------------------


def test_a_sole_input_may_be_called_x() -> None:
    module = module_of(parameter("images.1", BATCH), Instruction("y", "negate", BATCH, ("images.1",)))
    for key in ("x", "images", "images.1"):
        assert list(bind_inputs(module, {key: samples(4)})) == ["images"]


def test_inputs_bind_by_short_and_by_full_name() -> None:
    for keys in (("a", "b"), ("b.2", "a.1"), ("a.1", "b")):
        bound = bind_inputs(SUM, {k: samples(4) + n for n, k in enumerate(keys)})
        assert sorted(bound) == ["a", "b"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("a",), "lack the model's inputs b"),
        (("x",), "have an array 'x'; the model's inputs are a, b"),
        (("a", "b", "aa"), r"array 'aa' \(did you mean 'a'\?\)"),
        (("a", "a.1", "b"), "a"),
    ],
    ids=["missing", "x for one of two", "too many", "one input twice"],
)
def test_names_that_do_not_fit_are_listed(keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        bind_inputs(SUM, dict.fromkeys(keys, samples(4)))


# ---- batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "counted"), [(1, [1]), (3, [3]), (4, [4]), (5, [4, 1]), (8, [4, 4]), (11, [4, 4, 3])]
)
def test_batches_have_the_models_size_and_count_each_sample_once(n: int, counted: list[int]) -> None:
    data = load_dataset({"x": samples(n)})
    found = batches(DOUBLE, data)
    assert [c for _, c in found] == counted
    assert all(inputs["x"].shape == (4, 3) for inputs, _ in found)
    kept = np.concatenate([inputs["x"][:c] for inputs, c in found])
    assert np.array_equal(kept, samples(n))
    assert len(found) == len(counted)
    assert (found.filler is None) == (counted[-1] == 4)


def test_the_last_batch_repeats_its_last_sample() -> None:
    _, (inputs, counted) = batches(DOUBLE, load_dataset({"x": samples(5)}))
    assert counted == 1
    assert (inputs["x"] == samples(5)[-1]).all()


def test_padding_never_reaches_the_outputs() -> None:
    program = api.compile(DOUBLE, auto_cast="none")
    (output,) = run_batches(program, DOUBLE, load_dataset({"x": samples(5)}))
    assert np.array_equal(output, 2 * samples(5))


def test_progress_is_reported_after_each_batch() -> None:
    done: list[int] = []
    program = api.compile(DOUBLE, auto_cast="none")
    run_batches(program, DOUBLE, load_dataset({"x": samples(9)}), done.append)
    assert done == [1, 2, 3]


def test_a_sample_has_the_same_bits_wherever_it_stands_D1() -> None:
    # D1: the batch that a sample ran in changes no bit.
    model = DIGITS / "model.hlo.pb"
    program = api.compile(model, auto_cast="all", auto_cast_type="bf16")
    x = read_npz(DIGITS / "test.npz")["x"][:70]
    (together,) = run_batches(program, program.model, Dataset({"x": x}, None, "test"))
    for i in (0, 1, 63, 64, 69):
        (alone,) = run_batches(program, program.model, Dataset({"x": x[i : i + 1]}, None, "test"))
        assert alone.tobytes() == together[i : i + 1].tobytes()


def test_several_and_nested_outputs_come_in_order() -> None:
    inner = Instruction("t", "tuple", TupleShape((BATCH,)), ("n",))
    outer = Instruction("r", "tuple", TupleShape((BATCH, inner.shape)), ("x", "t"))
    module = module_of(parameter("x", BATCH), Instruction("n", "negate", BATCH, ("x",)), inner, outer)
    program = api.compile(module, auto_cast="none")
    first, second = run_batches(program, module, load_dataset({"x": samples(6)}))
    assert np.array_equal(first, samples(6))
    assert np.array_equal(second, -samples(6))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": np.zeros((5, 2))}, r"samples of 'x' are \[2\], the model takes \[3\]"),
        ({"x": np.zeros(5)}, r"are \[\]"),
        ({"x": np.zeros((5, 3, 1))}, r"are \[3, 1\]"),
    ],
)
def test_samples_of_another_shape_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        list(batches(DOUBLE, load_dataset(data)))


@pytest.mark.parametrize(
    "shapes", [(Shape(F32), BATCH), (Shape(F32, (2, 3)), BATCH)], ids=["scalar", "two lengths"]
)
def test_models_without_a_common_axis_of_samples_are_refused(shapes: tuple[Shape, Shape]) -> None:
    parameters = [parameter(n, s, i) for i, (n, s) in enumerate(zip("ab", shapes, strict=True))]
    module = module_of(*parameters, Instruction("y", "negate", BATCH, ("b",)))
    data = load_dataset({"a": samples(4), "b": samples(4)})
    with pytest.raises(InvalidData, match=r"no common leading axis.*--input-value a=0"):
        list(batches(module, data))


def test_an_axis_of_runs_gives_each_run_its_inputs_whole() -> None:
    data = runs(4)
    found = batches(PICKED, load_dataset(data))
    assert found.are_runs
    assert found.filler is None
    assert not any(outputs_of_samples(PICKED, found))
    assert [s.dims for s in output_shapes(PICKED, found.are_runs)] == [(1, 5, 3)]
    for n, (inputs, counted) in enumerate(found):
        assert counted == 1
        assert all(np.array_equal(inputs[name], data[name][n]) for name in data)
    program = api.compile(PICKED, auto_cast="none")
    (output,) = run_batches(program, PICKED, load_dataset(data))
    assert np.array_equal(output, data["table"] + data["row"][:, None])


def test_an_axis_of_runs_is_that_of_labels_too() -> None:
    given = load_batches(PICKED, runs(4), np.zeros((4, 5), np.int64))
    assert given.are_runs
    assert len(given.inputs) == given.count == 4


def test_an_axis_of_runs_is_of_all_inputs() -> None:
    data = runs(4) | {"row": np.zeros((4, 1, 3), np.float32)}
    with pytest.raises(InvalidData, match="give each input an axis more, of runs"):
        batches(PICKED, load_dataset(data))


def test_outputs_without_the_axis_of_samples_are_refused() -> None:
    flat = Shape(F32, (12,))
    module = module_of(parameter("x", BATCH), Instruction("y", "reshape", flat, ("x",)))
    with pytest.raises(InvalidData, match="padding"):
        run_batches(lambda x: x, module, load_dataset({"x": samples(5)}))


@pytest.mark.parametrize("dims", [(), (3,)], ids=["scalar", "no samples"])
def test_the_output_that_has_no_samples_is_named(dims: tuple[int, ...]) -> None:
    literal = ops.Bits(np.zeros(dims, np.float32), F32)
    beside = Instruction("loss", "constant", Shape(F32, dims), (), {"literal": literal})
    both = TupleShape((BATCH, beside.array))
    root = Instruction("out", "tuple", both, ("y", "loss"))
    module = module_of(parameter("x", BATCH), Instruction("y", "negate", BATCH, ("x",)), beside, root)
    message = rf"output 1 of the model, loss \({re.escape(str(beside.array.type))}\).*root \(out\)"
    with pytest.raises(InvalidData, match=message):
        run_batches(lambda x: x, module, load_dataset({"x": samples(5)}))
