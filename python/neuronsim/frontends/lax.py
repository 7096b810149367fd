"""Loops and branches whose conditions and trip counts are arrays: `neuronsim.lax`.

On arrays that are known they run as Python's; traced they become HLO's while and conditional. The names
and arguments are those of `jax.lax`.

>>> from neuronsim.arrays.conversion import asarray
>>> fori_loop(0, 3, lambda i, x: x * 2, asarray(1.0))
Array(8., dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from neuronsim import arrays as np
from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import InvalidArgument, UnsupportedType
from neuronsim.frontends.pytrees import LEAF, Tree, flatten, unflatten
from neuronsim.frontends.recorder import Recorder, Value, active_recorder, current_recorder, recording
from neuronsim.frontends.tracer import is_traced, traced_bits, value_of
from neuronsim.hlo.module import TupleShape

__all__ = [
    "cond", "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim", "dynamic_update_slice",
    "dynamic_update_slice_in_dim", "fori_loop", "map", "scan", "switch", "while_loop",
]  # fmt: skip

__dir__ = __all__.copy


def _is_traced(x: Any) -> bool:
    return isinstance(x, Array) and is_traced(x.bits)


def _arrays(tree: Any) -> tuple[list[Array], Tree]:
    leaves, structure = flatten(tree)
    return [asarray(x) for x in leaves], structure


def _strong(tree: Any) -> Any:
    """The same with arrays in the place of Python's numbers, which loops and branches take as such."""
    leaves, structure = _arrays(tree)
    return unflatten(structure, leaves)


def _array(value: Value) -> Array:
    return Array(traced_bits(value))


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`while cond_fun(val): val = body_fun(val)`, from `init_val`; `val` keeps its types and shapes."""
    init_val = _strong(init_val)
    if current_recorder() is None:
        val = init_val
        while bool(asarray(cond_fun(val))):
            val = _strong(body_fun(val))
        return val
    start, tree = _arrays(init_val)
    # A condition that is known decides here, as it does outside of a trace.
    decided = asarray(cond_fun(init_val))
    if not is_traced(decided.bits) and not any(_is_traced(x) for x in start):
        val = init_val
        while not is_traced((test := asarray(cond_fun(val))).bits):
            if not bool(test):
                return val
            val = _strong(body_fun(val))
        start, tree = _arrays(val)
    found = _record_while(cond_fun, body_fun, start, tree)
    return unflatten(tree, found)


def _record_while(
    condition: Callable[[Any], Any], body: Callable[[Any], Any], start: Sequence[Array], tree: Tree
) -> list[Array]:
    outer = active_recorder()
    carried = [value_of(x.bits) for x in start]
    types = [v.type for v in carried]

    def test(arrays: list[Array]) -> list[Array]:
        found = asarray(condition(unflatten(tree, arrays)))
        if found.dtype is not dtypes.boolean or found.shape:
            raise UnsupportedType(f"a loop's condition is one bool, not {found.bits.type}")
        return [found]

    def step(arrays: list[Array]) -> list[Array]:
        found, after = _arrays(body(unflatten(tree, arrays)))
        if after != tree:
            raise InvalidArgument("a loop's body returns what it takes, in the same tuples and dicts")
        return _as_types(found, types)

    tests, steps = _Region(outer, "condition", types, test), _Region(outer, "body", types, step)
    captured = list(dict.fromkeys([*tests.captures, *steps.captures]))
    shape = TupleShape(tuple(v.shape for v in (*carried, *captured)))
    called = (steps.keep(captured, "state"), tests.keep(captured, "one"))
    loop = outer.add("while", shape, [outer.tuple([*carried, *captured])], {"called": called})
    return [_array(outer.element(loop, n)) for n in range(len(carried))]


def _as_types(found: Sequence[Array], types: Sequence[ops.ArrayType]) -> list[Array]:
    """The arrays, which have these types; Python's numbers take them."""
    for x, t in zip(found, types, strict=True):
        if x.bits.type != t:
            raise UnsupportedType(f"a loop's body makes {x.bits.type} of {t}: convert it with astype")
    return list(found)


class _Region:
    """A computation of a loop or a branch, which takes one tuple: its arrays, then what it captures."""

    def __init__(
        self,
        outer: Recorder,
        name: str,
        types: Sequence[ops.ArrayType],
        function: Callable[[list[Array]], list[Array]],
    ) -> None:
        self.recorder = Recorder(f"{outer.name}.{name}", outer)
        self.types = types
        with recording(self.recorder):
            self.values = [self.recorder.placeholder(name, t) for t in types]
            results = function([_array(v) for v in self.values])
            # Captured too: a result may be a value around the computation as it is.
            self.results = [self.recorder.capture(value_of(x.bits)) for x in results]

    @property
    def captures(self) -> list[Value]:
        """The values around the computation that it reads."""
        return list(self.recorder.captures)

    def keep(self, captured: Sequence[Value], gives: Literal["state", "results", "one"]) -> str:
        """Adds the computation to the module. It gives the whole tuple that it takes, changed; a tuple
        of its results; or its one result.
        """
        inner = self.recorder
        with recording(inner):
            for v in captured:
                inner.capture(v)
            inside = [inner.captures[v] for v in captured]
            elements = [*self.values, *inside]
            results = [*self.results, *inside] if gives == "state" else self.results
            root = self.results[0] if gives == "one" else inner.tuple(results)
            return inner.keep_region(elements, root)


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` if `pred` holds, else `false_fun(*operands)`; both give the same types."""
    test = asarray(pred)
    if test.shape:
        raise UnsupportedType(f"a branch is taken by one bool, not by {test.bits.type}")
    if not is_traced(test.bits):
        return _strong((true_fun if bool(test) else false_fun)(*_strong(operands)))
    if test.dtype is not dtypes.boolean:
        test = np.not_equal(test, 0)
    return _record_branches(test, (true_fun, false_fun), operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index outside is the nearest one."""
    place = asarray(index)
    if place.shape or place.dtype.kind not in ("signed", "unsigned"):
        raise UnsupportedType(f"a branch is chosen by one integer, not by {place.bits.type}")
    if not branches:
        raise InvalidArgument("switch needs a branch")
    if not is_traced(place.bits):
        return _strong(branches[max(0, min(int(place), len(branches) - 1))](*_strong(operands)))
    return _record_branches(
        np.clip(place.astype(dtypes.int64), 0, len(branches) - 1).astype(dtypes.int32),
        branches,
        operands,
    )


def _record_branches(
    chosen: Array, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    outer = active_recorder()
    given, tree = _arrays(tuple(operands))
    trees: list[Tree] = []

    def run(function: Callable[..., Any]) -> Callable[[list[Array]], list[Array]]:
        def body(arrays: list[Array]) -> list[Array]:
            found, after = _arrays(function(*unflatten(tree, arrays)))
            trees.append(after)
            return found

        return body

    values = [value_of(x.bits) for x in given]
    types = [v.type for v in values]
    regions = [_Region(outer, f"branch_{n}", types, run(f)) for n, f in enumerate(branches)]
    results = [[v.type for v in r.results] for r in regions]
    if any(t != trees[0] for t in trees) or any(r != results[0] for r in results):
        raise UnsupportedType(
            "the branches give different types: "
            + " and ".join(", ".join(str(t) for t in r) or "nothing" for r in results)
        )
    if not results[0]:
        return unflatten(trees[0], [])
    captured = list(dict.fromkeys(v for r in regions for v in r.captures))
    called = tuple(r.keep(captured, "results") for r in regions)
    shape = TupleShape(tuple(v.shape for v in regions[0].results))
    state = outer.tuple([*values, *captured])
    found = outer.add(
        "conditional", shape, [value_of(chosen.bits), *[state] * len(regions)], {"called": called}
    )
    return unflatten(trees[0], [_array(outer.element(found, n)) for n in range(len(results[0]))])


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """`for i in range(lower, upper): val = body_fun(i, val)`, from `init_val`."""
    low, high = asarray(lower), asarray(upper)
    if current_recorder() is None:
        val = _strong(init_val)
        for i in range(int(low), int(high)):
            val = _strong(body_fun(asarray(i, low.dtype), val))
        return val
    start, tree = _arrays(init_val)
    if not is_traced(high.bits):  # which the condition then says by itself
        last = high.astype(low.dtype)
        return _record_loop(
            lambda s: s[0] < last,
            lambda s: (s[0] + 1, body_fun(s[0], s[1])),
            (low, unflatten(tree, start)),
        )[1]
    state = (low, high.astype(low.dtype), unflatten(tree, start))
    _, _, found = _record_loop(
        lambda s: s[0] < s[1], lambda s: (s[0] + 1, s[1], body_fun(s[0], s[2])), state
    )
    return found


def _record_loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
    start, tree = _arrays(state)
    return unflatten(tree, _record_while(condition, body, start, tree))


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`carry, y = f(carry, x)` for each `x` along the first axis of the arrays `xs`; the last carry and
    the `y`s stacked.
    """
    arrays, tree = _arrays(xs)
    lengths = {a.shape[0] for a in arrays if a.ndim} | ({length} if length is not None else set())
    if len(lengths) != 1 or any(not a.ndim for a in arrays):
        raise InvalidArgument(
            f"scan over arrays of the lengths {sorted(lengths)}: they have one length"
        )
    (n,) = lengths
    order = range(n)[::-1] if reverse else range(n)

    def piece(i: Any) -> Any:
        return unflatten(tree, [a[i] if isinstance(i, int) else _line(a, i) for a in arrays])

    if n == 0:
        raise InvalidArgument("scan over arrays of length 0: nothing says what it stacks")
    carry, ytree = _strong(init), LEAF
    rows: list[list[Array]] = []
    while len(rows) < n:
        kept = [np.copy(x) for x in _arrays(carry)[0]]  # which the step may write
        after, y = f(carry, piece(order[len(rows)]))
        after = _strong(after)
        ys, ytree = _arrays(y)
        before, found = _arrays(carry)[0], _arrays(after)[0]
        alike = [x.bits.type for x in before] == [x.bits.type for x in found]
        if alike and any(_is_traced(x) for x in (*found, *ys)):
            carry = unflatten(_arrays(carry)[1], kept)
            break  # as all steps from here on; what this one recorded nobody reads
        carry = after
        rows.append(ys)
    if len(rows) == n:
        rows = rows[::-1] if reverse else rows
        return carry, unflatten(ytree, [np.stack(column) for column in zip(*rows, strict=True)])
    buffers = [np.broadcast_to(np.zeros((), dtype=y.dtype), (n, *y.shape)) for y in ys]
    for at, row in zip(order, rows, strict=False):
        buffers = [
            _with_line(b, asarray(at, dtypes.int32), y) for b, y in zip(buffers, row, strict=True)
        ]

    def body(i: Any, state: Any) -> Any:
        at = n - 1 - i if reverse else i
        new, y = f(state[0], piece(at))
        lines = zip(state[1], _arrays(y)[0], strict=True)
        return new, [_with_line(buffer, at, line) for buffer, line in lines]

    first, last = (asarray(k, dtypes.int32) for k in (len(rows), n))
    carry, stacked = fori_loop(first, last, body, (carry, buffers))
    return carry, unflatten(ytree, stacked)


def _line(x: Array, at: Array) -> Array:
    """The element at a place along the first axis, which is in it."""
    return np.reshape(_part(x, _of_line(x, at), (1, *x.shape[1:])), x.shape[1:])


def _with_line(x: Array, at: Array, line: Array) -> Array:
    """The array with an element at a place along the first axis replaced."""
    return _with_part(x, np.reshape(line, (1, *x.shape[1:])), _of_line(x, at))


def _of_line(x: Array, at: Array) -> list[Array]:
    return [at, *[asarray(0, at.dtype)] * (x.ndim - 1)]


def map(f: Callable[[Any], Any], xs: Any) -> Any:  # noqa: A001 (jax.lax's name)
    """`f` of each element along the first axis, stacked."""
    return scan(lambda carry, x: (carry, f(x)), (), xs)[1]


# ---- slices at computed places -----------------------------------------------------------------------


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[int]) -> Array:
    """The block of these lengths that begins at a place for each axis. A place below 0 counts from the
    end; a block that would reach beyond the array is moved into it.

    >>> dynamic_slice(np.asarray([1.0, 2.0, 3.0]), [-1], (2,)).tolist()
    [2.0, 3.0]
    """
    x = asarray(operand)
    return _part(x, _starts(x, start_indices), tuple(slice_sizes))


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Array:
    """The array with the block that begins there replaced by `update`; places are as `dynamic_slice`'s.

    >>> dynamic_update_slice(np.asarray([1.0, 2.0, 3.0]), np.asarray([0.0]), [1]).tolist()
    [1.0, 0.0, 3.0]
    """
    x = asarray(operand)
    return _with_part(x, asarray(update, x.dtype), _starts(x, start_indices))


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Array:
    """The slice of a length along one axis that begins at a place."""
    x = asarray(operand)
    at = _axis(x, axis)
    sizes = tuple(slice_size if d == at else n for d, n in enumerate(x.shape))
    return _part(x, _starts_along(x, start_index, at), sizes)


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Array:
    """The array with the slice along one axis that begins at a place replaced by `update`."""
    x = asarray(operand)
    return _with_part(x, asarray(update, x.dtype), _starts_along(x, start_index, _axis(x, axis)))


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Array:
    """The slice of length 1 at a place along one axis, which `keepdims` false takes away."""
    found = dynamic_slice_in_dim(operand, index, 1, axis)
    if keepdims:
        return found
    at = _axis(found, axis)
    return Array(np.reshape(found, (*found.shape[:at], *found.shape[at + 1 :])).bits)


def _axis(x: Array, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise InvalidArgument(f"axis {axis} of {x.bits.type}")
    return axis % x.ndim


def _starts(x: Array, given: Any) -> list[Array]:
    """A place for each axis: of a sequence of integers, or of one array of them."""
    places = [given[n] for n in range(len(given))]
    if len(places) != x.ndim:
        raise InvalidArgument(f"{len(places)} places of a slice of {x.bits.type}: one for each axis")
    pairs = zip(places, x.shape, strict=True)
    return [_place(p, n) for p, n in pairs]


def _starts_along(x: Array, place: Any, axis: int) -> list[Array]:
    own = _place(place, x.shape[axis])
    return [own if d == axis else asarray(0, own.dtype) for d in range(x.ndim)]


def _place(given: Any, length: int) -> Array:
    place = asarray(given)
    if place.shape or place.dtype.kind not in ("signed", "unsigned"):
        raise UnsupportedType(f"a slice begins at an integer, not at {place.bits.type}")
    place = place.astype(dtypes.int32)
    if not _is_traced(place):
        return place if int(place) >= 0 else place + length
    return Array(np.where(place < 0, place + length, place).bits)


def _part(x: Array, starts: Sequence[Array], sizes: tuple[int, ...]) -> Array:
    bits = [x.bits, *(s.bits for s in starts)]
    return Array(ops.apply("dynamic_slice", bits, dynamic_slice_sizes=sizes))


def _with_part(x: Array, update: Array, starts: Sequence[Array]) -> Array:
    return Array(ops.apply("dynamic_update_slice", [x.bits, update.bits, *(s.bits for s in starts)]))
