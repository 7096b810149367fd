"""Instructions by the exact twins of `neuronsim.reference`: Python integers, one element at a time.

Floats travel as their words, integers as their values; NumPy only holds and moves them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from tests.support.interpreter import Value, leaves

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.hlo.module import Computation, Instruction, Module, simple_reducer
from neuronsim.hlo.opcodes import row
from neuronsim.reference import elementwise as e
from neuronsim.reference import formats, indexing, order, sums, windows

Elements = np.ndarray  # of Python integers
Position = tuple[int, ...]


def decoded(x: ops.Bits) -> Elements:
    """The elements as Python integers: words of floats, values of integers and bool."""
    data = np.ascontiguousarray(x.data).reshape(x.data.shape)
    words = data.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "float" else data
    found = np.empty(words.shape, object)
    found[...] = words.astype(object)
    return found


def encoded(elements: Elements, t: ops.ArrayType) -> ops.Bits:
    kind = f"u{t.dtype.itemsize}" if t.dtype.kind == "float" else t.dtype.storage
    data = np.array([int(v) for v in elements.reshape(-1)], kind).reshape(t.dims)
    return ops.Bits(data.view(t.dtype.storage), t.dtype)


def apply(
    module: Module, i: Instruction, operands: tuple[ops.Bits, ...], setting: ops.Setting
) -> tuple[ops.Bits, ...]:
    """An instruction's results (`Apply`) to nearest even, under the profile's field of R3."""
    types = (i.result,) if isinstance(i.result, ops.ArrayType) else i.result
    evaluate = EVALUATE.get(i.opcode, _elementwise)
    x = [decoded(o) for o in operands]
    found = evaluate(module, i, operands, x, setting)
    results = found if isinstance(found, tuple) else (found,)
    return tuple(encoded(r, t) for r, t in zip(results, types, strict=True))


def _is_signed(t: DType) -> bool:
    return t.kind == "signed"


# ---- elementwise ---------------------------------------------------------------------------------


@lru_cache(1 << 18)
def scalar(name: str, operand: DType, result: DType, words: tuple[int, ...]) -> int:
    """A row's elementwise operation on one element of each operand (E1, E6 to E8)."""
    if name == "select":
        return words[1] if words[0] else words[2]
    if operand.kind == "float":
        if name in e.PREDICATE:
            return int(e.PREDICATE[name](_wide(operand, words[0])))
        plain = name.removesuffix("_total_order")
        if plain in e.COMPARISON:
            if plain == name:
                return int(e.compare(plain, *(_wide(operand, w) for w in words)))
            return int(e.compare_total_order(plain, *(_at_the_top(operand, w) for w in words)))
        if name in ("negative", "abs"):
            sign = formats.FORMATS[operand.name].sign_bit
            return words[0] ^ sign if name == "negative" else words[0] & ~sign
        found = e.FLOAT[name](*(_wide(operand, w) for w in words))
        return formats.convert("float32", result.name, e.NAN if _is_nan(found) else found)
    if name in e.COMPARISON:
        return int(e.COMPARISON[name](*words))
    if operand is dtypes.boolean:
        return e.BOOL[name](*words)
    if name in e.INTEGER_BITS:
        return _wrapped(e.INTEGER_BITS[name](*words, operand.bits), operand)
    return _wrapped(e.INTEGER[name](*words), operand)


def _wide(t: DType, word: int) -> int:
    return formats.convert(t.name, "float32", word)


def _at_the_top(t: DType, word: int) -> int:
    """A word of 32 bits that TOTALORDER has in the place of this one, with its payload (E7)."""
    return word << (32 - 8 * t.itemsize)


def _is_nan(word: int) -> bool:
    return formats.decode("float32", word).kind == "nan"


def _wrapped(value: int, t: DType) -> int:
    return formats.wrap(value, bits=t.bits, signed=_is_signed(t))


@lru_cache(1 << 18)
def converted(value: int, source: DType, target: DType) -> int:
    """C1 to C6."""
    if source is target:
        return value
    if source.kind == "float" and target.kind == "float":
        return formats.convert(source.name, target.name, value)
    if source.kind == "float":
        if target is dtypes.boolean:
            x = formats.decode(source.name, value)
            return int(x.kind != "finite" or x.magnitude != 0)
        return formats.float_to_integer(source.name, value, bits=target.bits, signed=_is_signed(target))
    if target.kind == "float":
        return formats.integer_to_float(target.name, value, bits=source.bits)
    return int(value != 0) if target is dtypes.boolean else _wrapped(value, target)


def _elementwise(
    module: Module,
    i: Instruction,
    operands: Sequence[ops.Bits],
    x: list[Elements],
    setting: ops.Setting,
) -> Elements:
    op, dims = row(i), i.array.dims
    repeated = [np.broadcast_to(v, dims).reshape(-1) for v in x]
    found = [scalar(op.name, operands[-1].dtype, i.array.dtype, w) for w in zip(*repeated, strict=True)]
    return _array(found, dims)


def _array(values: Sequence[int], dims: Sequence[int]) -> Elements:
    found = np.empty(len(values), object)
    found[:] = values
    return found.reshape(tuple(dims))


def _convert(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    source, target = operands[0].dtype, i.array.dtype
    return _array([converted(v, source, target) for v in x[0].reshape(-1)], i.array.dims)


# ---- movement ------------------------------------------------------------------------------------


def _broadcast(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    found = np.empty(i.array.dims, object)
    for at in indexing.positions(i.array.dims):
        found[at] = x[0][tuple(at[d] for d in i.attributes["dimensions"])]
    return found


def _reshape(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    return x[0].reshape(i.array.dims)


def _transpose(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    return x[0].transpose(i.attributes["dimensions"])


def _reverse(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    return np.asarray(np.flip(x[0], i.attributes["dimensions"]), object)


def _slice(module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any) -> Elements:
    return x[0][(..., *(slice(*r) for r in i.attributes["slice"]))]


def _concatenate(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    return np.concatenate(x, i.attributes["dimensions"][0])


def _iota(module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any) -> Elements:
    (axis,) = i.attributes["dimensions"]
    places = indexing.positions(i.array.dims)
    return _array([converted(at[axis], dtypes.int64, i.array.dtype) for at in places], i.array.dims)


def _pad(module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any) -> Elements:
    found = np.empty(i.array.dims, object)
    for at in indexing.positions(i.array.dims):
        source = indexing.pad_source(at, x[0].shape, i.attributes["padding"])
        found[at] = x[1][()] if source is None else x[0][source]
    return found


def _starts(values: Sequence[Elements]) -> list[int]:
    return [n for v in values for n in v.reshape(-1)]


def _dynamic_slice(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    sizes = i.attributes["dynamic_slice_sizes"]
    start = indexing.slice_start(_starts(x[1:]), x[0].shape, sizes)
    return x[0][(..., *(slice(at, at + n) for at, n in zip(start, sizes, strict=True)))]


def _dynamic_update_slice(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    start = indexing.slice_start(_starts(x[2:]), x[0].shape, x[1].shape)
    found = x[0].copy()
    found[tuple(slice(at, at + n) for at, n in zip(start, x[1].shape, strict=True))] = x[1]
    return found


def _by_place(x: Elements) -> dict[Position, int]:
    return {at: x[at] for at in indexing.positions(x.shape)}


def _gather(module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any) -> Elements:
    d: ops.GatherDimensions = i.attributes["gather_dimensions"]
    indices = _by_place(x[1])
    found = np.empty(i.array.dims, object)
    for at in indexing.positions(i.array.dims):
        found[at] = x[0][
            indexing.gather_source(
                *(at, x[0].shape, indices, i.attributes["slice_sizes"]),
                offset_dims=d.offset_dims,
                collapsed_slice_dims=d.collapsed_slice_dims,
                start_index_map=d.start_index_map,
                operand_batching_dims=d.operand_batching_dims,
                start_indices_batching_dims=d.start_indices_batching_dims,
                index_vector_dim=d.index_vector_dim,
            )
        ]
    return found


def _scatter(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    d: ops.ScatterDimensions = i.attributes["scatter_dimensions"]
    operand, indices, updates = x
    places = _by_place(indices)
    listed = (
        (
            indexing.scatter_target(
                *(at, operand.shape, places, updates.shape),
                update_window_dims=d.update_window_dims,
                inserted_window_dims=d.inserted_window_dims,
                scatter_dims_to_operand_dims=d.scatter_dims_to_operand_dims,
                input_batching_dims=d.input_batching_dims,
                scatter_indices_batching_dims=d.scatter_indices_batching_dims,
                index_vector_dim=d.index_vector_dim,
            ),
            updates[at],
        )
        for at in indexing.positions(updates.shape)
    )
    computed = indexing.scatter(_by_place(operand), listed, _of_two(module, i.called[0]))
    return _placed(computed, operand.shape)


def _placed(found: Mapping[Position, int], dims: Sequence[int]) -> Elements:
    return _array([found[at] for at in indexing.positions(dims)], dims)


# ---- computations of scalars ---------------------------------------------------------------------


def _called(module: Module, name: str, arguments: Sequence[int]) -> list[int]:
    """A computation of scalars on one element of each parameter, each instruction as it is typed."""
    computation: Computation = module.by_name[name]
    values: dict[str, list[int]] = {}
    for i in computation.instructions:
        read = [values[o] for o in i.operands]
        if i.opcode == "parameter":
            values[i.name] = [arguments[i.attributes["number"]]]
        elif i.opcode == "constant":
            values[i.name] = [int(decoded(i.attributes["literal"])[()])]
        elif i.opcode == "tuple":
            values[i.name] = [v for r in read for v in r]
        elif i.opcode == "get-tuple-element":
            values[i.name] = [read[0][i.attributes["tuple_index"]]]
        elif i.opcode == "call":
            values[i.name] = _called(module, i.called[0], [v for r in read for v in r])
        elif i.opcode == "convert":
            source = computation.by_name[i.operands[0]].array.dtype
            values[i.name] = [converted(read[0][0], source, i.array.dtype)]
        else:
            operand = computation.by_name[i.operands[-1]].array.dtype
            words = tuple(r[0] for r in read)
            values[i.name] = [scalar(row(i).name, operand, i.array.dtype, words)]
    return values[computation.root]


def _of_two(module: Module, name: str) -> Callable[[int, int], int]:
    return lambda a, b: _called(module, name, [a, b])[0]


# ---- reductions ----------------------------------------------------------------------------------


def _reduced(
    module: Module,
    i: Instruction,
    dtype: DType,
    elements: list[int],
    initial: int,
    setting: ops.Setting,
) -> int:
    """One output of a reduction by one array (R2, R3)."""
    reducer = simple_reducer(module.by_name[i.called[-1]])
    if reducer is None:
        return windows.fold(_of_two(module, i.called[-1]), initial, elements)
    name = ops.by_opcode(reducer, {}).name if reducer in ops.OPCODES else reducer
    if dtype.kind != "float":
        function = e.BOOL[name] if dtype is dtypes.boolean else e.INTEGER[name]
        return int(converted(sums.reduce_integer(function, elements, initial), dtypes.int64, dtype))
    narrow = dtype.bits <= 16 and name in ("add", "multiply")
    off = setting.profile.mixed_precision_accumulation == "off"
    return sums.reduce_float(name, dtype.name, elements, initial, round_tiles=off and narrow)


def _reduce(
    module: Module,
    i: Instruction,
    operands: Sequence[ops.Bits],
    x: list[Elements],
    setting: ops.Setting,
) -> Elements | tuple[Elements, ...]:
    axes = sorted(i.attributes["dimensions"])
    dims = x[0].shape
    kept = [d for d in range(len(dims)) if d not in axes]
    outputs = list(itertools.product(*(range(dims[d]) for d in kept)))
    count = len(x) // 2

    def elements(v: Elements, at: Position) -> list[int]:
        found = []
        for inner in itertools.product(*(range(dims[d]) for d in axes)):
            place = dict(zip((*kept, *axes), (*at, *inner), strict=True))
            found.append(v[tuple(place[d] for d in range(len(dims)))])
        return found

    shape = [dims[d] for d in kept]
    if count == 1:
        dtype, initial = operands[0].dtype, x[1][()]
        return _array(
            [_reduced(module, i, dtype, elements(x[0], at), initial, setting) for at in outputs], shape
        )
    results = []
    for at in outputs:
        acc = [v[()] for v in x[count:]]
        for several in zip(*(elements(v, at) for v in x[:count]), strict=True):
            acc = _called(module, i.called[0], [*acc, *several])
        results.append(acc)
    return tuple(_array([r[n] for r in results], shape) for n in range(count))


def _axes(i: Instruction) -> list[sums.WindowAxis]:
    return [
        sums.WindowAxis(w.size, w.stride, w.padding[0], w.base_dilation, w.window_dilation, w.reversal)
        for w in i.attributes["window"]
    ]


def _reduce_window(
    module: Module,
    i: Instruction,
    operands: Sequence[ops.Bits],
    x: list[Elements],
    setting: ops.Setting,
) -> Elements:
    window, found = _axes(i), []
    for at in indexing.positions(i.array.dims):
        places = windows.reduced_elements(x[0].shape, window, i.array.dims, at)
        elements = [x[0][p] for p in places]
        found.append(_reduced(module, i, operands[0].dtype, elements, x[1][()], setting))
    return _array(found, i.array.dims)


def _select_and_scatter(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> Elements:
    select, computation = (_of_two(module, name) for name in i.called)
    found = windows.select_and_scatter(
        *(_by_place(x[0]), x[0].shape, _axes(i), _by_place(x[1]), x[1].shape, x[2][()]),
        lambda a, b: bool(select(a, b)),
        computation,
    )
    return _placed(found, x[0].shape)


# ---- products and order --------------------------------------------------------------------------


def _dot(
    module: Module, i: Instruction, operands: Sequence[ops.Bits], x: list[Elements], setting: Any
) -> Elements:
    d: ops.DotDimensions = i.attributes["dot_dimensions"]
    sides = []
    for v, batch, contracting in (
        (x[0], d.lhs_batch, d.lhs_contracting),
        (x[1], d.rhs_batch, d.rhs_contracting),
    ):
        free = [a for a in range(v.ndim) if a not in batch + contracting]
        moved = v.transpose(*batch, *free, *contracting)
        groups, rows = (math.prod(v.shape[a] for a in axes) for axes in (batch, free))
        depth = math.prod(v.shape[a] for a in contracting)
        sides.append(moved.reshape(groups, rows, depth))
    lhs, rhs = sides
    found = []
    for group in range(lhs.shape[0]):
        for left in lhs[group]:
            found += [_product(operands, i, list(left), list(right)) for right in rhs[group]]
    return _array(found, i.array.dims)


def _product(operands: Sequence[ops.Bits], i: Instruction, left: list[int], right: list[int]) -> int:
    a, b, result = operands[0].dtype, operands[1].dtype, i.array.dtype
    if result is dtypes.boolean:
        return sums.dot_bool(left, right)
    if result.kind != "float":
        return sums.dot_integer(left, right, bits=result.bits, signed=_is_signed(result))
    return sums.dot(a.name, b.name, result.name, left, right)


def _convolution(
    module: Module, i: Instruction, operands: Sequence[ops.Bits], x: list[Elements], setting: Any
) -> Elements:
    d: ops.ConvolutionDimensions = i.attributes["dimension_numbers"]
    lhs, rhs = x[0].transpose(d.input), x[1].transpose(d.kernel)
    image = {(p[0], p[1:-1], p[-1]): lhs[p] for p in indexing.positions(lhs.shape)}
    kernel = {(p[:-2], p[-2], p[-1]): rhs[p] for p in indexing.positions(rhs.shape)}
    found = np.empty(i.array.dims, object)
    for at in indexing.positions(i.array.dims):
        n, *place, feature = (at[a] for a in d.output)
        left, right = sums.convolution_terms(
            *(image, kernel, _axes(i), (n, tuple(place), feature)),
            batch=lhs.shape[0],
            outputs=rhs.shape[-1],
            features=rhs.shape[-2],
            feature_groups=i.attributes["feature_group_count"],
            batch_groups=i.attributes["batch_group_count"],
        )
        found[at] = _product(operands, i, left, right)
    return found


def _sort(
    module: Module, i: Instruction, operands: Any, x: list[Elements], setting: Any
) -> tuple[Elements, ...]:
    (axis,) = i.attributes["dimensions"]
    lines = [np.moveaxis(v, axis, -1) for v in x]
    results = [np.empty(v.shape, object) for v in lines]
    for at in indexing.positions(lines[0].shape[:-1]):
        rows = list(zip(*(v[at] for v in lines), strict=True))

        def first(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
            return bool(
                _called(module, i.called[0], [v for pair in zip(a, b, strict=True) for v in pair])[0]
            )

        sorted_rows = [rows[n] for n in order.merge_order(rows, first)]
        for n, r in enumerate(results):
            r[at] = [values[n] for values in sorted_rows]
    return tuple(np.moveaxis(r, -1, axis) for r in results)


def _topk(
    module: Module, i: Instruction, operands: Sequence[ops.Bits], x: list[Elements], setting: Any
) -> tuple[Elements, Elements]:
    """E10: TOTALORDER descending, or ascending, equal keys by lower index."""
    dtype = operands[0].dtype
    dims = (*x[0].shape[:-1], i.attributes["k"])
    values, numbers = np.empty(dims, object), np.empty(dims, object)
    for at in indexing.positions(dims[:-1]):
        line = list(x[0][at])
        keys = [e.total_order(_at_the_top(dtype, v)) if dtype.kind == "float" else v for v in line]
        sign = -1 if i.attributes.get("largest", True) else 1
        chosen = sorted(range(len(line)), key=lambda n, k=keys, s=sign: s * k[n])[: dims[-1]]  # type: ignore[misc]
        values[at], numbers[at] = [line[n] for n in chosen], chosen
    return values, numbers


EVALUATE: dict[str, Callable[..., Any]] = {
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "convert": _convert,
    "convolution": _convolution,
    "copy": lambda module, i, operands, x, setting: x[0],
    "dot": _dot,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "pad": _pad,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "reshape": _reshape,
    "reverse": _reverse,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "slice": _slice,
    "sort": _sort,
    "topk": _topk,
    "transpose": _transpose,
}


def words(value: Value) -> list[bytes]:
    """The storage bytes of every array of a value."""
    return [leaf.data.tobytes() for leaf in leaves(value)]
