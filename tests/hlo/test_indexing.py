"""pad, slices at computed places, gather and scatter (R5): the twin's places, XLA's bits."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from tests.hlo.single import assignment, binary, computation, module_of, ours, theirs, words
from tests.support.parameters import each_of

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidModel
from neuronsim.hlo.module import Computation, Module
from neuronsim.ops import ArrayType, Bits, GatherDimensions, ScatterDimensions
from neuronsim.reference import indexing as twin

F32, S32, BF16 = dtypes.float32, dtypes.int32, dtypes.bfloat16
INDEX_TYPES = [dtypes.int32, dtypes.uint32, dtypes.int8, dtypes.uint8, dtypes.int64, dtypes.uint64]
MOVED_TYPES = [
    dtypes.int32, dtypes.float32, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.int8, dtypes.boolean,
    dtypes.uint64, dtypes.float64, dtypes.complex64, dtypes.complex128,
]  # fmt: skip


def random_bits(rng: np.random.Generator, dtype: DType, dims: tuple[int, ...]) -> Bits:
    """All bit patterns, NaN payloads among them."""
    if dtype is dtypes.boolean:
        return Bits(np.asarray(rng.integers(0, 2, dims, np.uint8)).view(np.bool_), dtype)
    raw = rng.integers(0, 256, (*dims, dtype.itemsize), np.uint8)
    return Bits(raw.view(dtype.storage).reshape(dims), dtype)


def random_indices(rng: np.random.Generator, dtype: DType, dims: tuple[int, ...], limit: int) -> Bits:
    """Most are inside, some just outside, some far away."""
    info = np.iinfo(dtype.storage)
    near = rng.integers(-3, limit + 3, dims)
    far = rng.choice(np.array([info.min, info.max], dtype.storage), dims)
    inside = np.clip(near, info.min, info.max).astype(dtype.storage)
    return Bits(np.asarray(np.where(rng.random(dims) < 0.1, far, inside)), dtype)


def by_position(x: Bits) -> dict[tuple[int, ...], int]:
    return {at: int(v) for at, v in np.ndenumerate(x.data)}


def subset(rng: np.random.Generator, of: list[int], most: int) -> list[int]:
    count = int(rng.integers(0, min(most, len(of)) + 1))
    return [int(a) for a in rng.choice(of, count, replace=False)]


def random_dims(rng: np.random.Generator, rank: int, largest: int = 5) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, largest + 1, rank))


def index_dims(
    rng: np.random.Generator, dims: tuple[int, ...], mapped: list[int], batching: list[int]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The indices' shape, their batching dimensions and that of the index vectors."""
    batch = [int(n) for n in rng.integers(1, 7, int(rng.integers(0, 3)))]
    places = sorted(int(p) for p in rng.integers(0, len(batch) + 1, len(batching)))
    for n, (place, axis) in enumerate(zip(places, batching, strict=True)):
        batch.insert(place + n, dims[axis])
    vector = int(rng.integers(0, len(batch) + 1))
    indices_batching = [p + n + (p + n >= vector) for n, p in enumerate(places)]
    if len(mapped) == 1 and vector == len(batch) and rng.random() < 0.5:
        return tuple(batch), tuple(indices_batching), vector  # scalars, not vectors of one
    batch.insert(vector, len(mapped))
    return tuple(batch), tuple(indices_batching), vector


def random_gather(
    rng: np.random.Generator, dtype: DType, index_type: DType
) -> tuple[Module, list[Bits]]:
    rank = int(rng.integers(1, 5))
    dims = random_dims(rng, rank)
    axes = list(range(rank))
    batching = sorted(subset(rng, axes, 1))
    mapped = subset(rng, [a for a in axes if a not in batching], rank)
    collapsed = sorted(subset(rng, [a for a in axes if a not in batching], 2))
    sizes = [int(rng.integers(rng.random() > 0.05, n + 1)) for n in dims]
    for a in axes:
        if a in batching or a in collapsed:
            sizes[a] = 1
        elif a not in mapped and rng.random() < 0.7:
            sizes[a] = dims[a]
    shape, indices_batching, vector = index_dims(rng, dims, mapped, batching)
    result_rank = len(shape) - (vector < len(shape)) + rank - len(batching) - len(collapsed)
    offsets = rng.choice(result_rank, rank - len(batching) - len(collapsed), replace=False)
    d = GatherDimensions(
        tuple(sorted(int(a) for a in offsets)), tuple(collapsed), tuple(mapped), tuple(batching),
        indices_batching, vector,
    )  # fmt: skip
    x = random_bits(rng, dtype, dims)
    indices = random_indices(rng, index_type, shape, max(dims))
    attributes = {"gather_dimensions": d, "slice_sizes": tuple(sizes), "indices_are_sorted": False}
    return module_of("gather", [x.type, indices.type], attributes), [x, indices]


def gather_of(x: Bits, indices: Bits, d: GatherDimensions, *sizes: int) -> np.ndarray:
    attributes = {"gather_dimensions": d, "slice_sizes": sizes}
    return ours(module_of("gather", [x.type, indices.type], attributes), [x, indices])[0]


def test_gather_takes_the_twins_elements() -> None:
    for seed in range(120):
        rng = np.random.default_rng([110, seed])
        dtype, index_type = MOVED_TYPES[seed % len(MOVED_TYPES)], INDEX_TYPES[seed % len(INDEX_TYPES)]
        module, (x, indices) = random_gather(rng, dtype, index_type)
        (found,) = ours(module, [x, indices])
        root = module.root
        assert root.array.dims == found.shape[: len(root.array.dims)]
        listed, source = by_position(indices), words(x.data)
        for at in twin.positions(root.array.dims):
            place = twin.gather_source(
                at, x.data.shape, listed, root.attributes["slice_sizes"],
                **asdict(root.attributes["gather_dimensions"]),
            )  # fmt: skip
            np.testing.assert_array_equal(found[at], source[place])


def test_gather_of_embeddings_is_the_table_at_the_clamped_indices() -> None:
    table = Bits(np.arange(20, dtype=np.float32).reshape(5, 4), F32)
    ids = Bits(np.array([[3, -1], [7, 0]], np.int32), S32)
    found = gather_of(table, ids, GatherDimensions((2,), (0,), (0,), index_vector_dim=2), 1, 4)
    np.testing.assert_array_equal(found.view(np.float32), table.data[[[3, 0], [4, 0]]])


@pytest.mark.parametrize("row", [4, 8, 16])
def test_gather_of_more_than_the_caches_hold(row: int) -> None:
    """Rows of 16, 32 and 64 bytes, which are written past the caches."""
    rng = np.random.default_rng(111)
    table = random_bits(rng, F32, (1000, row))
    ids = Bits(rng.integers(0, 1000, (1 << 21) // row + 77).astype(np.int32), S32)
    found = gather_of(table, ids, GatherDimensions((1,), (0,), (0,), index_vector_dim=1), 1, row)
    np.testing.assert_array_equal(words(found), words(table.data)[ids.data])


@pytest.mark.parametrize("row", [1, 2, 3])
def test_gather_of_short_rows_from_beyond_the_caches(row: int) -> None:
    """They are asked for before they are read."""
    rng = np.random.default_rng(112)
    table = random_bits(rng, F32, (1 << 17, row))
    ids = Bits(rng.integers(0, 1 << 17, 777).astype(np.int32), S32)
    found = gather_of(table, ids, GatherDimensions((1,), (0,), (0,), index_vector_dim=1), 1, row)
    np.testing.assert_array_equal(words(found), words(table.data)[ids.data])


@pytest.mark.parametrize("count", [1, 3, 4, 300])
def test_gather_of_slices_that_are_no_rows(count: int) -> None:
    """Many slices are moved a row of theirs at a time: all channels of pixels, and windows."""
    rng = np.random.default_rng([113, count])
    image = random_bits(rng, F32, (5, 9, 11))
    at = Bits(rng.integers(0, (9, 11), (count, 2)).astype(np.int32), S32)
    y, x = at.data[:, 0], at.data[:, 1]
    channels = GatherDimensions((1,), (1, 2), (1, 2), index_vector_dim=1)
    found = gather_of(image, at, channels, 5, 1, 1)
    np.testing.assert_array_equal(words(found), words(image.data)[:, y, x].T)
    first = GatherDimensions((0,), (1, 2), (1, 2), index_vector_dim=1)
    found = gather_of(image, at, first, 5, 1, 1)
    np.testing.assert_array_equal(words(found), words(image.data)[:, y, x])
    windows = GatherDimensions((1, 2, 3), (), (1, 2), index_vector_dim=1)
    found = gather_of(image, at, windows, 5, 2, 3)
    for n in range(count):
        top, left = min(y[n], 7), min(x[n], 8)
        expected = words(image.data)[:, top : top + 2, left : left + 3]
        np.testing.assert_array_equal(words(found)[n], expected)


def test_gather_of_large_slices_that_are_no_rows() -> None:
    rng = np.random.default_rng(114)
    image = random_bits(rng, F32, (200, 300))
    at = Bits(rng.integers(0, 100, (5, 2)).astype(np.int32), S32)
    windows = GatherDimensions((1, 2), (), (0, 1), index_vector_dim=1)
    found = gather_of(image, at, windows, 100, 180)
    for n, (top, left) in enumerate(at.data):
        expected = words(image.data)[top : top + 100, left : left + 180]
        np.testing.assert_array_equal(words(found)[n], expected)


def test_indices_are_walked_in_as_few_dimensions_as_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last dimension of one element, as take_along_axis gives it, had the core find places one by
    one.
    """
    walks: list[list[tuple[int, ...]]] = []
    for name, at in (("gather", 3), ("scatter_rows", 3)):
        real = getattr(_core, name)

        def note(*given: Any, real: Any = real, at: int = at) -> Any:
            walks.append([row[:1] for row in given[at]])
            return real(*given)

        monkeypatch.setattr(_core, name, note)
    x = Bits(np.arange(12, dtype=np.float32).reshape(4, 3), F32)
    at = Bits(np.arange(40, dtype=np.int32).reshape(2, 5, 4, 1) % 3, S32)
    batched = GatherDimensions((), (1,), (1,), (0,), (2,), 4)
    found = gather_of(x, at, batched, 1, 1).view(np.float32)
    np.testing.assert_array_equal(found, x.data[np.arange(4)[:, None], at.data])
    updates = Bits(np.ones((2, 5, 4, 1), np.float32), F32)
    d = ScatterDimensions((), (1,), (1,), (0,), (2,), 4)
    module = scatter_of(d, binary("add", "add", F32), x, at, updates)
    expected = x.data.copy()
    np.add.at(expected, (np.arange(4)[:, None], at.data), 1)
    np.testing.assert_array_equal(ours(module, [x, at, updates])[0].view(np.float32), expected)
    assert walks == [[(10,), (4,)]] * 2


def test_gather_of_an_empty_batch_reads_nothing() -> None:
    batched = GatherDimensions((), (), (), (0,), (0,), 1)
    collapsed = GatherDimensions((), (0,), (0,), index_vector_dim=1)
    for d, indices in ((batched, (0, 0)), (collapsed, (0, 1))):
        x, starts = Bits(np.zeros(0, np.float32), F32), Bits(np.zeros(indices, np.int32), S32)
        assert gather_of(x, starts, d, 0).shape == (0,)


# ---- scatter -------------------------------------------------------------------------------------


def random_scatter(
    rng: np.random.Generator, dtype: DType, index_type: DType, how: str
) -> tuple[Module, list[Bits]]:
    rank = int(rng.integers(1, 4))
    dims = random_dims(rng, rank, 4)
    axes = list(range(rank))
    batching = sorted(subset(rng, axes, 1))
    others = [a for a in axes if a not in batching]
    mapped = subset(rng, others, rank) or others[:1]
    inserted = sorted(subset(rng, others, 2))
    window = [
        int(rng.integers(1, n + 1)) for a, n in enumerate(dims) if a not in (*batching, *inserted)
    ]
    shape, indices_batching, vector = index_dims(rng, dims, mapped, batching)
    batch = [n for a, n in enumerate(shape) if a != vector]
    update_rank = len(batch) + len(window)
    window_dims = sorted(int(a) for a in rng.choice(update_rank, len(window), replace=False))
    rest, inner = iter(batch), iter(window)
    update_dims = tuple(next(inner) if a in window_dims else next(rest) for a in range(update_rank))
    d = ScatterDimensions(
        tuple(window_dims), tuple(inserted), tuple(mapped), tuple(batching), indices_batching, vector
    )
    x, updates = random_bits(rng, dtype, dims), random_bits(rng, dtype, update_dims)
    indices = random_indices(rng, index_type, shape, max(dims))
    body = assignment("update", dtype) if how == "assign" else binary("update", how, dtype)
    return scatter_of(d, body, x, indices, updates), [x, indices, updates]


def scatter_of(d: ScatterDimensions, body: Computation, *inputs: Bits) -> Module:
    attributes = {"scatter_dimensions": d, "indices_are_sorted": False, "unique_indices": False}
    return module_of("scatter", [x.type for x in inputs], attributes, [body])


def slow_scatter(module: Module, inputs: list[Bits], step: Any) -> np.ndarray:
    """The twin's, on words; of complex numbers on the numbers of the words' rows."""
    x, indices, updates = inputs
    listed = by_position(indices)
    d = asdict(module.root.attributes["scatter_dimensions"])
    old, new = words(x.data), words(updates.data)
    operand = {at: old[at] for at in twin.positions(x.data.shape)}
    pairs = [
        (twin.scatter_target(at, x.data.shape, listed, updates.data.shape, **d), new[at])
        for at in twin.positions(updates.data.shape)
    ]
    found = twin.scatter(operand, pairs, step)
    return np.array(list(found.values()), old.dtype).reshape(old.shape)


@each_of("seed", range(120))
def test_scatter_R5_assigns_at_the_twins_places(seed: int) -> None:
    """Bits move, NaN payloads and all; the last update of a place stays."""
    rng = np.random.default_rng([112, seed])
    dtype, index_type = MOVED_TYPES[seed % len(MOVED_TYPES)], INDEX_TYPES[seed % len(INDEX_TYPES)]
    module, inputs = random_scatter(rng, dtype, index_type, "assign")
    (found,) = ours(module, inputs)
    np.testing.assert_array_equal(found, slow_scatter(module, inputs, lambda old, new: new))


@each_of("seed", range(60))
def test_scatter_R5_E8_adds_at_the_twins_places(seed: int) -> None:
    rng = np.random.default_rng([113, seed])
    module, inputs = random_scatter(rng, dtypes.uint16, INDEX_TYPES[seed % len(INDEX_TYPES)], "add")
    (found,) = ours(module, inputs)
    expected = slow_scatter(module, inputs, lambda a, u: np.uint16((int(a) + int(u)) & 0xFFFF))
    np.testing.assert_array_equal(found, expected)


@each_of("dtype", [F32, S32])
@each_of("row", [1, 7, 8, 16, 25])
def test_scatter_R5_E8_adds_rows_of_every_length(dtype: DType, row: int) -> None:
    """One after the other, whole rows at the same place among them, and some at no place."""
    rng = np.random.default_rng([114, row])
    x, updates = (random_bits(rng, dtype, (n, row)) for n in (9, 300))
    if dtype is F32:  # without NaN, whose payload no sum keeps
        x, updates = (Bits(rng.standard_normal(v.data.shape, np.float32), F32) for v in (x, updates))
    starts = Bits(rng.integers(-1, 10, (300, 1)).astype(np.int32), S32)
    d = ScatterDimensions((1,), (0,), (0,), index_vector_dim=1)
    module = scatter_of(d, binary("a", "add", dtype), x, starts, updates)
    expected = x.data.copy()
    for at, update in zip(starts.data[:, 0], updates.data, strict=True):
        if 0 <= at < 9:
            expected[at] += update
    np.testing.assert_array_equal(ours(module, [x, starts, updates])[0].view(dtype.storage), expected)


def test_scatter_R5_skips_windows_that_are_partly_outside() -> None:
    x = Bits(np.zeros(6, np.int32), S32)
    starts = Bits(np.array([[4], [-1], [3]], np.int32), S32)
    updates = Bits(np.arange(1, 10, dtype=np.int32).reshape(3, 3), S32)
    d = ScatterDimensions((1,), (), (0,), index_vector_dim=1)
    module = scatter_of(d, binary("a", "add", S32), x, starts, updates)
    assert ours(module, [x, starts, updates])[0].tolist() == [0, 0, 0, 7, 8, 9]


@each_of("how", ["add", "assign"])
@each_of(
    ("dims", "inserted", "mapped", "updates"),
    [
        ((0,), (0,), (), (2,)),
        ((0, 3), (0,), (), (2, 3)),
        ((0, 3), (0,), (0,), (2, 3)),
        ((0, 3), (0,), (1,), (2, 1)),
        ((0, 3), (0, 1), (1,), (2,)),
        ((3, 0), (1,), (0,), (2, 1)),
        ((3, 0), (), (0,), (2, 1, 0)),
        ((0, 0), (0, 1), (), (2,)),
        ((2, 0, 3), (1,), (2,), (2, 1, 2)),
    ],
)
@each_of("dtype", [S32, dtypes.float64], ids=str)  # in the core, and on the host
def test_scatter_R5_has_no_place_in_an_array_without_elements(
    dtype: DType, how: str, dims: tuple[int, ...], inserted: tuple[int, ...], mapped: tuple[int, ...],
    updates: tuple[int, ...],
) -> None:  # fmt: skip
    """An inserted dimension of length 0, indexed or not: XLA leaves every update out too."""
    rng = np.random.default_rng(5)
    d = ScatterDimensions(tuple(range(1, len(updates))), inserted, mapped, index_vector_dim=1)
    starts = Bits(np.zeros((2, len(mapped)), np.int32), S32)
    inputs = [Bits(np.zeros(dims, dtype.storage), dtype), starts]
    inputs.append(Bits(rng.integers(1, 9, updates).astype(dtype.storage), dtype))
    body = binary("a", "add", dtype) if how == "add" else assignment("a", dtype)
    module = scatter_of(d, body, *inputs)
    (found,) = ours(module, inputs)
    assert found.shape == dims
    np.testing.assert_array_equal(found, theirs(module, inputs)[0])


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.complex64, dtypes.complex128])
def test_scatter_H1_adds_in_the_hosts_types(dtype: DType) -> None:
    x = Bits(np.zeros(3, dtype.storage), dtype)
    places = Bits(np.array([1, 1, 2, 5], np.int32), S32)
    updates = Bits(np.array([1, 2**-40, 3, 4], dtype.storage), dtype)
    d = ScatterDimensions((), (0,), (0,), index_vector_dim=1)
    module = scatter_of(d, binary("a", "add", dtype), x, places, updates)
    expected = np.array([0, 1 + 2**-40, 3], dtype.storage)
    np.testing.assert_array_equal(ours(module, [x, places, updates])[0], words(expected))


def test_scatter_R5_of_several_arrays() -> None:
    """The larger key wins and takes its companion along."""
    greater = {"comparison_direction": "GT", "comparison_type": ""}
    steps = [
        ("compare", dtypes.boolean, (2, 0), greater),
        ("select", S32, (4, 2, 0), {}),
        ("select", F32, (4, 3, 1), {}),
    ]
    body = computation("larger", [S32, F32, S32, F32], steps, [5, 6])
    keys = Bits(np.zeros(3, np.int32), S32), Bits(np.array([5, 9, 7, -1], np.int32), S32)
    values = Bits(np.zeros(3, np.float32), F32), Bits(np.array([1, 2, 3, 4], np.float32), F32)
    places = Bits(np.array([0, 0, 0, 2], np.int32), S32)
    inputs = [keys[0], values[0], places, keys[1], values[1]]
    d = ScatterDimensions((), (0,), (0,), index_vector_dim=1)
    found = ours(scatter_of(d, body, *inputs), inputs)
    assert found[0].tolist() == [9, 0, 0]
    assert found[1].view(np.float32).tolist() == [2, 0, 0]


# ---- pad and slices ------------------------------------------------------------------------------


def random_pad(rng: np.random.Generator, dtype: DType) -> tuple[Module, list[Bits]]:
    dims = random_dims(rng, int(rng.integers(0, 4)), 6)
    padding = []
    for n in dims:
        interior = int(rng.integers(0, 3))
        spread = (n - 1) * (interior + 1) + 1
        low = int(rng.integers(-3, 4))
        padding.append((low, max(int(rng.integers(-3, 4)), -spread - low), interior))
    x, value = random_bits(rng, dtype, dims), random_bits(rng, dtype, ())
    return module_of("pad", [x.type, value.type], {"padding": tuple(padding)}), [x, value]


@each_of("seed", range(80))
def test_pad_places_the_twins_elements(seed: int) -> None:
    module, (x, value) = random_pad(np.random.default_rng([115, seed]), MOVED_TYPES[seed % 10])
    (found,) = ours(module, [x, value])
    for at in twin.positions(module.root.array.dims):
        source = twin.pad_source(at, x.data.shape, module.root.attributes["padding"])
        expected = words(value.data) if source is None else words(x.data)[source]
        np.testing.assert_array_equal(found[at], expected if found[at].shape else expected.reshape(()))


def random_slice(
    rng: np.random.Generator, dtype: DType, index_type: DType, as_vector: bool
) -> tuple[list[Bits], list[Bits], tuple[int, ...]]:
    """The array, where the slice begins, its sizes."""
    dims = random_dims(rng, int(rng.integers(1, 4)), 6)
    sizes = tuple(int(rng.integers(0, n + 1)) for n in dims)
    vector = random_indices(rng, index_type, (len(dims),), max(dims))
    starts = [vector] if as_vector else [Bits(n, index_type) for n in np.split(vector.data, len(dims))]
    starts = starts if as_vector else [Bits(b.data.reshape(()), index_type) for b in starts]
    return [random_bits(rng, dtype, dims)], starts, sizes


@each_of("as_vector", [False, True])
@each_of("seed", range(40))
def test_dynamic_slices_begin_at_the_twins_start(seed: int, as_vector: bool) -> None:
    rng = np.random.default_rng([117, seed])
    dtype = MOVED_TYPES[seed % 10]
    (x,), starts, sizes = random_slice(rng, dtype, INDEX_TYPES[seed % 6], as_vector)
    listed = [int(n) for b in starts for n in b.data.reshape(-1)]
    begin = twin.slice_start(listed, x.data.shape, sizes)
    inside = tuple(slice(at, at + n) for at, n in zip(begin, sizes, strict=True))
    types = [b.type for b in starts]
    module = module_of("dynamic-slice", [x.type, *types], {"dynamic_slice_sizes": sizes})
    np.testing.assert_array_equal(ours(module, [x, *starts])[0], words(x.data[inside]))
    update = random_bits(rng, dtype, sizes)
    expected = x.data.copy()
    expected[inside] = update.data
    module = module_of("dynamic-update-slice", [x.type, update.type, *types], {})
    before = x.data.tobytes()
    np.testing.assert_array_equal(ours(module, [x, update, *starts])[0], words(expected))
    assert x.data.tobytes() == before


def test_dynamic_slice_of_a_scalar_has_no_start() -> None:
    x = Bits(np.array(7, np.int32), S32)
    module = module_of("dynamic-slice", [x.type], {"dynamic_slice_sizes": ()})
    assert ours(module, [x])[0] == 7


# ---- what is refused -----------------------------------------------------------------------------

X, I1, U = ArrayType(F32, (4, 5)), ArrayType(S32, (3, 1)), ArrayType(F32, (3, 5))
ADD, TWO_SIZES = binary("a", "add", F32), {"dynamic_slice_sizes": (1, 1)}
GOOD_SCATTER: dict[str, Any] = {
    "update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,)
}  # fmt: skip


def gathered(**change: Any) -> Module:
    own = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,)}
    own = {"index_vector_dim": 1, **own, **change}
    sizes, indices = own.pop("slice_sizes", (1, 5)), own.pop("indices", I1)
    attributes = {"gather_dimensions": GatherDimensions(**own), "slice_sizes": sizes}
    return module_of("gather", [X, indices], attributes)


def scattered(**change: Any) -> Module:
    own = {"index_vector_dim": 1, **GOOD_SCATTER, **change}
    updates, indices = own.pop("updates", U), own.pop("indices", I1)
    body = own.pop("body", ADD)
    attributes = {"scatter_dimensions": ScatterDimensions(**own)}
    return module_of("scatter", [X, indices, updates], attributes, [body])


def test_control_a_gather_and_a_scatter_that_fit_are_taken() -> None:
    assert (gathered().root.opcode, scattered().root.opcode) == ("gather", "scatter")


@each_of(
    ("change", "match"),
    [
        ({"index_vector_dim": 3}, "no index vectors"),
        ({"index_vector_dim": -1}, "no index vectors"),
        ({"start_index_map": (0, 1)}, "index vectors of 1"),
        ({"start_index_map": (2,)}, "indexed dimensions"),
        ({"collapsed_slice_dims": (1,)}, "5 long along dimension 1"),
        ({"collapsed_slice_dims": (0, 0)}, "dropped dimensions"),
        ({"collapsed_slice_dims": ()}, "slices of 2 dimensions"),
        ({"offset_dims": (2,)}, "offset_dims"),
        ({"offset_dims": (0, 1)}, "offset_dims"),
        ({"slice_sizes": (0, 5)}, "slices hold none"),
        ({"slice_sizes": (1, 6)}, "does not fit"),
        ({"slice_sizes": (1,)}, "does not fit"),
        ({"slice_sizes": (-1, 5)}, "does not fit"),
        ({"operand_batching_dims": (1,)}, "batching dimensions"),
        ({"operand_batching_dims": (0,), "start_indices_batching_dims": (0,)}, "dropped and batching"),
        ({"operand_batching_dims": (1,), "start_indices_batching_dims": (0,)}, "not one batch"),
        ({"operand_batching_dims": (1,), "start_indices_batching_dims": (1,)}, "batching dimensions"),
        ({"indices": ArrayType(F32, (3, 1))}, "not integers"),
        ({"indices": ArrayType(dtypes.boolean, (3, 1))}, "not integers"),
    ],
)  # fmt: skip
def test_gather_refuses(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        gathered(**change)


@each_of(
    ("change", "match"),
    [
        ({"index_vector_dim": 3}, "no index vectors"),
        ({"scatter_dims_to_operand_dims": ()}, "index vectors of 1"),
        ({"scatter_dims_to_operand_dims": (0, 0)}, "index vectors of 1"),
        ({"inserted_window_dims": (3,)}, "dropped dimensions"),
        ({"inserted_window_dims": ()}, "not windows"),
        ({"update_window_dims": (0,)}, "not windows"),
        ({"update_window_dims": (2,)}, "update_window_dims"),
        ({"updates": ArrayType(F32, (3, 6))}, "longer than dimension 1"),
        ({"updates": ArrayType(F32, (2, 5))}, "not windows"),
        ({"updates": ArrayType(BF16, (3, 5))}, "takes"),
        ({"indices": ArrayType(F32, (3, 1))}, "not integers"),
        ({"body": binary("a", "add", S32)}, "takes"),
        ({"body": computation("a", [F32, F32], [], [0, 1])}, "gives"),
        ({"body": computation("a", [F32], [], [0])}, "takes"),
    ],
)
def test_scatter_refuses(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        scattered(**change)


def test_scatter_refuses_arrays_that_do_not_go_together() -> None:
    d = {"scatter_dimensions": ScatterDimensions(index_vector_dim=1, **GOOD_SCATTER)}
    for operands, match in (
        ([X], "as many updates"),
        ([X, I1], "as many updates"),
        ([X, ArrayType(F32, (4, 4)), I1, U, U], "arrays of different shapes"),
        ([X, X, I1, U, ArrayType(F32, (3, 4))], "updates of different shapes"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            module_of("scatter", operands, d, [ADD])
    with pytest.raises(InvalidArgument, match="applies 1 computations, and 2"):
        module_of("scatter", [X, I1, U], d, [ADD, binary("b", "add", F32)])


@each_of(
    ("opcode", "operands", "attributes", "match"),
    [
        ("pad", [X, ArrayType(S32, ())], {"padding": ((0, 0, 0),) * 2}, "does not pad"),
        ("pad", [X, ArrayType(F32, (1,))], {"padding": ((0, 0, 0),) * 2}, "does not pad"),
        ("pad", [X, ArrayType(F32, ())], {"padding": ((0, 0, 0),)}, "has 2 dimensions"),
        ("pad", [X, ArrayType(F32, ())], {"padding": ((0, 0, -1),) * 2}, "leaves"),
        ("pad", [X, ArrayType(F32, ())], {"padding": ((-3, -2, 0),) * 2}, "leaves -1"),
        ("dynamic-slice", [X, ArrayType(S32, ())], TWO_SIZES, "begins at 2"),
        ("dynamic-slice", [X, ArrayType(S32, (3,))], TWO_SIZES, "begins at 2"),
        ("dynamic-slice", [X, ArrayType(F32, (2,))], TWO_SIZES, "not integers"),
        ("dynamic-slice", [X, ArrayType(S32, (2,))], {"dynamic_slice_sizes": (1, 6)}, "does not fit"),
        ("dynamic-update-slice", [X], {}, "takes an array"),
        ("dynamic-update-slice", [X, ArrayType(S32, (1, 1)), ArrayType(S32, (2,))], {}, "update"),
        ("dynamic-update-slice", [X, ArrayType(F32, (1, 6)), ArrayType(S32, (2,))], {}, "does not fit"),
        ("dynamic-update-slice", [X, ArrayType(F32, (1,)), ArrayType(S32, (2,))], {}, "does not fit"),
    ],
)  # fmt: skip
def test_pad_and_slices_refuse(
    opcode: str, operands: list[ArrayType], attributes: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidArgument, match=match):
        module_of(opcode, operands, attributes)


def test_wrong_result_is_an_invalid_model() -> None:
    padding = {"padding": ((1, 1, 0), (0, 0, 0))}
    module = module_of("pad", [X, ArrayType(F32, ())], padding, result=ArrayType(F32, (5, 5)))
    zeros = [Bits(np.zeros(t.dims, np.float32), F32) for t in (X, ArrayType(F32, ()))]
    with pytest.raises(InvalidModel, match=r"give float32\[6,5\], the file says float32\[5,5\]"):
        ours(module, zeros)
