"""Modules of any size, each large in one respect, and what is done with modules: for `bench.planning`
and the tests of growth. The arrays are small; `n` counts what a function's name says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.application.apply import apply_plan
from neuronsim.casting.lint import lint
from neuronsim.casting.plans import casts, explain
from neuronsim.casting.plans.plan import Plan, make_plan
from neuronsim.casting.policies import POLICIES
from neuronsim.casting.policies.calibration import make_calibration
from neuronsim.executor.compile import compile_module
from neuronsim.hlo import conformance, parse, proto, text
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    graph_computations,
    make_computation,
    make_module,
)
from neuronsim.hlo.verify import verify
from neuronsim.profiles import default_profile
from neuronsim.targets import find_release, find_target
from neuronsim.tuning.cost import estimate

F32 = dtypes.float32
SCALAR = Shape(F32)
ROW = Shape(F32, (4,))
SQUARE = Shape(F32, (4, 4))
COUNT = Shape(dtypes.int32)
FLAG = Shape(dtypes.boolean)
PRODUCT = ops.DotDimensions(lhs_contracting=(1,), rhs_contracting=(0,))


def parameter(name: str, shape: AnyShape = ROW, number: int = 0) -> Instruction:
    return Instruction(name, "parameter", shape, (), {"number": number})


def made(
    name: str, opcode: str, *operands: str, shape: AnyShape = ROW, **attributes: object
) -> Instruction:
    return Instruction(name, opcode, shape, operands, attributes)


def constant(name: str, value: float, dtype: dtypes.DType = F32) -> Instruction:
    literal = ops.Bits(np.array(value, dtype.storage), dtype)
    return Instruction(name, "constant", Shape(dtype), (), {"literal": literal})


def module_of(*instructions: Instruction, others: Iterable[Computation] = ()) -> Module:
    entry = make_computation("main", instructions, instructions[-1].name)
    return make_module("large", "main", (*others, entry))


def adding(name: str = "sum") -> Computation:
    """A reducer."""
    a, b = parameter(f"{name}.a", SCALAR), parameter(f"{name}.b", SCALAR, 1)
    return make_computation(
        name, (a, b, made(f"{name}.y", "add", a.name, b.name, shape=SCALAR)), f"{name}.y"
    )


def taken(name: str, source: str, index: int, shape: AnyShape = ROW) -> Instruction:
    return made(name, "get-tuple-element", source, shape=shape, tuple_index=index)


def less(name: str, a: str, b: str) -> Instruction:
    attributes = {"comparison_direction": "LT", "comparison_type": ""}
    return Instruction(name, "compare", FLAG, (a, b), attributes)


def product(name: str, a: str, b: str) -> Instruction:
    attributes = {"dot_dimensions": PRODUCT, "algorithm": ""}
    return Instruction(name, "dot", SQUARE, (a, b), attributes)


def negation(name: str, opcode: str = "negate") -> Computation:
    """A computation of one function."""
    x = parameter(f"{name}.x")
    return make_computation(name, (x, made(f"{name}.y", opcode, x.name)), f"{name}.y")


def goes_on(name: str, carried: AnyShape, trips: int = 3) -> Computation:
    """The condition of a loop whose first array counts the trips."""
    body = (
        parameter(f"{name}.p", carried),
        taken(f"{name}.n", f"{name}.p", 0, COUNT),
        constant(f"{name}.trips", trips, dtypes.int32),
        less(f"{name}.y", f"{name}.n", f"{name}.trips"),
    )
    return make_computation(name, body, f"{name}.y")


def counted(name: str) -> tuple[Instruction, Instruction]:
    """The next number of trips, after `{name}.n`."""
    return (
        constant(f"{name}.one", 1, dtypes.int32),
        made(f"{name}.next", "add", f"{name}.n", f"{name}.one", shape=COUNT),
    )


def loop(
    name: str,
    carried: TupleShape,
    count: int,
    own: Iterable[Instruction],
    given: Iterable[str],
    trips: int = 3,
) -> tuple[Computation, Computation]:
    """The body and condition of a loop that carries its trips and `count` rows."""
    rows = (taken(f"{name}.x{n}", f"{name}.p", n + 1) for n in range(count))
    root = made(f"{name}.y", "tuple", f"{name}.next", *given, shape=carried)
    body = (
        parameter(f"{name}.p", carried),
        taken(f"{name}.n", f"{name}.p", 0, COUNT),
        *counted(name),
        *rows,
        *own,
        root,
    )
    return make_computation(name, body, root.name), goes_on(f"{name}.goes_on", carried, trips)


def looped(
    carried: TupleShape,
    start: Iterable[Instruction],
    given: Iterable[str],
    called: tuple[Computation, Computation],
    *,
    rows: int = 1,
    others: Iterable[Computation] = (),
) -> Module:
    """A loop from zero and what is given, of a body and a condition; its result is the first `rows`."""
    elements = carried.elements[1 : rows + 1]
    taken_out = [taken(f"r{k}", "w", k + 1, shape) for k, shape in enumerate(elements)]
    if rows > 1:
        names = (i.name for i in taken_out)
        taken_out.append(made("y", "tuple", *names, shape=TupleShape(tuple(elements))))
    return module_of(
        constant("zero", 0, dtypes.int32),
        *start,
        made("start", "tuple", "zero", *given, shape=carried),
        made("w", "while", "start", shape=carried, called=tuple(c.name for c in called)),
        *taken_out,
        others=(*others, *called),
    )


def carried_arrays(n: int) -> Module:
    """A loop that carries rows: one half is changed, the other only passed on."""
    shape = TupleShape((COUNT, *[ROW] * n))
    changed = [made(f"body.z{k}", "negate", f"body.x{k}") for k in range(0, n, 2)]
    given = [f"body.x{k}" if k % 2 else f"body.z{k}" for k in range(n)]
    start = [parameter(f"a{k}", ROW, k) for k in range(n)]
    called = loop("body", shape, n, changed, given)
    return looped(shape, start, (i.name for i in start), called, rows=n)


def rotated_arrays(n: int) -> Module:
    """A loop that hands each of its rows to the next place."""
    shape = TupleShape((COUNT, *[ROW] * n))
    called = loop("body", shape, n, (), [f"body.x{(k + 1) % n}" for k in range(n)])
    return looped(shape, [parameter("a")], ["a"] * n, called)


def carried_casts(n: int, *, rotated: bool = False) -> Module:
    """A loop that multiplies each of its matrices, which a setting casts; `rotated` gives each to the
    next place.
    """
    shape = TupleShape((COUNT, SQUARE, *[SQUARE] * n))
    own = [taken(f"body.x{k}", "body.p", k + 1, SQUARE) for k in range(n + 1)]
    own += [product(f"body.z{k}", f"body.x{k}", f"body.x{n}") for k in range(n)]
    given = [f"body.z{(k + rotated) % n}" for k in range(n)]
    start = [parameter(f"a{k}", SQUARE, k) for k in range(n + 1)]
    called = loop("body", shape, 0, own, (*given, f"body.x{n}"))
    return looped(shape, start, (i.name for i in start), called)


def rotated_casts(n: int) -> Module:
    """The same, where the matrices rotate."""
    return carried_casts(n, rotated=True)


def rotated_scalars(n: int) -> Module:
    """A loop that hands each of its integers to the one before it, and computes the last of its rows;
    it goes on as the first says.
    """
    shape = TupleShape((COUNT, ROW, *[COUNT] * n))
    own = [taken("body.x", "body.p", 1)]
    own += [taken(f"body.s{k}", "body.p", k + 2, COUNT) for k in range(1, n)]
    own += [
        constant("body.zero", 0),
        made(
            "body.sum", "reduce", "body.x", "body.zero", shape=SCALAR, dimensions=(0,), called=("sum",)
        ),
        made("body.last", "convert", "body.sum", shape=COUNT),
    ]
    given = ["body.x", *(f"body.s{k}" for k in range(1, n)), "body.last"]
    body, _ = loop("body", shape, 0, own, given)
    condition = make_computation(
        "goes_on",
        (
            parameter("goes_on.p", shape),
            taken("goes_on.s", "goes_on.p", 2, COUNT),
            constant("goes_on.three", 3, dtypes.int32),
            less("goes_on.y", "goes_on.s", "goes_on.three"),
        ),
        "goes_on.y",
    )
    given = ("a", *["zero"] * n)
    return looped(shape, [parameter("a")], given, (body, condition), others=(adding(),))


def instructions(n: int) -> Module:
    """Products, reduces, functions and sums in one computation."""
    body = [parameter("x0", SQUARE), parameter("w", SQUARE, 1), constant("zero", 0)]
    x = "x0"
    for k in range(n // 5):
        body += [
            product(f"d{k}", x, "w"),
            made(f"m{k}", "reduce", f"d{k}", "zero", dimensions=(1,), called=("sum",)),
            made(f"b{k}", "broadcast", f"m{k}", shape=SQUARE, dimensions=(0,)),
            made(f"s{k}", "subtract", f"d{k}", f"b{k}", shape=SQUARE),
            made(f"e{k}", "exponential", f"s{k}", shape=SQUARE),
        ]
        x = f"e{k}"
    return module_of(*body, others=(adding(),))


def called_computations(n: int) -> Module:
    """Calls, one after the other, of as many computations."""
    others = [negation(f"f{k}") for k in range(n)]
    calls = [made(f"y{k}", "call", f"y{k - 1}" if k else "x", called=(f"f{k}",)) for k in range(n)]
    return module_of(parameter("x"), *calls, others=others)


def one_called_computation(n: int) -> Module:
    """Calls of one computation."""
    other = negation("f")
    calls = [made(f"y{k}", "call", f"y{k - 1}" if k else "x", called=("f",)) for k in range(n)]
    return module_of(parameter("x"), *calls, others=(other,))


def reducers(n: int) -> Module:
    """Reduces, each with a reducer of its own."""
    body = [parameter("x0"), constant("zero", 0)]
    for k in range(n):
        body.append(
            made(f"s{k}", "reduce", f"x{k}", "zero", shape=SCALAR, dimensions=(0,), called=(f"sum{k}",))
        )
        body.append(made(f"x{k + 1}", "broadcast", f"s{k}", dimensions=()))
    return module_of(*body, others=[adding(f"sum{k}") for k in range(n)])


def parameters(n: int) -> Module:
    """A sum of all parameters, one after the other."""
    body = [parameter(f"a{k}", ROW, k) for k in range(n)]
    sums = [made(f"s{k}", "add", f"s{k - 1}" if k > 1 else "a0", f"a{k}") for k in range(1, n)]
    return module_of(*body, *sums)


def chain(n: int) -> Module:
    """One function after the other."""
    opcodes = ("negate", "exponential", "tanh")
    steps = [made(f"x{k}", opcodes[k % 3], f"x{k - 1}") for k in range(1, n)]
    return module_of(parameter("x0"), *steps)


def moved(n: int) -> Module:
    """A value that is transposed and reshaped again and again, then multiplied."""
    steps = [
        made(f"x{k}", "transpose", f"x{k - 1}", shape=SQUARE, dimensions=(1, 0)) for k in range(1, n)
    ]
    last = product("y", steps[-1].name, steps[-1].name)
    return module_of(parameter("x0", SQUARE), *steps, last)


def converted(n: int) -> Module:
    """A value that is converted to bfloat16 and back again and again."""
    low = Shape(dtypes.bfloat16, (4,))
    steps = [made(f"x{k}", "convert", f"x{k - 1}", shape=low if k % 2 else ROW) for k in range(1, n)]
    return module_of(parameter("x0"), *steps)


def ladder(n: int) -> Module:
    """Each value is made of the two before it."""
    body = [parameter("x0"), parameter("x1", ROW, 1)]
    body += [made(f"x{k}", "add", f"x{k - 1}", f"x{k - 2}") for k in range(2, n)]
    return module_of(*body)


def doubled(n: int) -> Module:
    """Each value is made of the one before it twice."""
    steps = [made(f"x{k}", "add", f"x{k - 1}", f"x{k - 1}") for k in range(1, n)]
    return module_of(parameter("x0"), *steps)


def products(n: int) -> Module:
    """Products one after the other."""
    steps = [product(f"x{k}", f"x{k - 1}", "w") for k in range(1, n)]
    return module_of(parameter("x0", SQUARE), parameter("w", SQUARE, 1), *steps)


def readers(n: int) -> Module:
    """One value that many read."""
    body = [made(f"y{k}", "tanh", "e") for k in range(n)]
    root = made("y", "tuple", *(i.name for i in body), shape=TupleShape((ROW,) * n))
    return module_of(parameter("x"), made("e", "exponential", "x"), *body, root)


def summed_readers(n: int) -> Module:
    """One value with many readers, whose results are added up."""
    body = [parameter("x"), made("e", "exponential", "x"), made("s0", "negate", "e")]
    body += [made(f"s{k}", "add", f"s{k - 1}", "e") for k in range(1, n)]
    return module_of(*body)


def wide_tuple(n: int) -> Module:
    """A tuple of all that was computed, taken apart again."""
    shape = TupleShape((ROW,) * n)
    body = [parameter("x"), *(made(f"v{k}", "negate", "x") for k in range(n))]
    body.append(made("t", "tuple", *(f"v{k}" for k in range(n)), shape=shape))
    body += [taken(f"g{k}", "t", k) for k in range(n)]
    body.append(made("y", "tuple", *(f"g{k}" for k in range(n)), shape=shape))
    return module_of(*body)


def pairs_in_tuple(n: int) -> Module:
    """A tuple of pairs, taken apart again."""
    pair = TupleShape((ROW, ROW))
    body = [parameter("x"), *(made(f"p{k}", "tuple", "x", "x", shape=pair) for k in range(n))]
    body.append(made("t", "tuple", *(f"p{k}" for k in range(n)), shape=TupleShape((pair,) * n)))
    body += [taken(f"g{k}", "t", k, pair) for k in range(n)]
    body += [taken(f"v{k}", f"g{k}", 1) for k in range(n)]
    body.append(made("y", "tuple", *(f"v{k}" for k in range(n)), shape=TupleShape((ROW,) * n)))
    return module_of(*body)


def constants(n: int) -> Module:
    """Constants, of which each is added to what the others gave."""
    body = [parameter("x0")]
    for k in range(n):
        body += [
            constant(f"c{k}", k % 7),
            made(f"b{k}", "broadcast", f"c{k}", dimensions=()),
            made(f"x{k + 1}", "add", f"x{k}", f"b{k}"),
        ]
    return module_of(*body)


def folded(n: int) -> Module:
    """A chain on a constant."""
    return module_of(
        constant("x0", 1), *(made(f"x{k}", "negate", f"x{k - 1}", shape=SCALAR) for k in range(1, n))
    )


def conditional_results(n: int) -> Module:
    """A conditional that gives many arrays."""
    shape = TupleShape((ROW,) * n)
    branches = []
    for name, opcode in (("yes", "negate"), ("no", "tanh")):
        body = [parameter(f"{name}.p", shape)]
        body += [taken(f"{name}.x{k}", f"{name}.p", k) for k in range(n)]
        body += [made(f"{name}.z{k}", opcode, f"{name}.x{k}") for k in range(n)]
        body.append(made(f"{name}.y", "tuple", *(f"{name}.z{k}" for k in range(n)), shape=shape))
        branches.append(make_computation(name, body, f"{name}.y"))
    return module_of(
        parameter("which", FLAG),
        *(parameter(f"a{k}", ROW, k + 1) for k in range(n)),
        made("t", "tuple", *(f"a{k}" for k in range(n)), shape=shape),
        made("c", "conditional", "which", "t", "t", shape=shape, called=("yes", "no")),
        *(taken(f"r{k}", "c", k) for k in range(n)),
        made("y", "tuple", *(f"r{k}" for k in range(n)), shape=shape),
        others=branches,
    )


def branches(n: int) -> Module:
    """A conditional of many branches."""
    others = [negation(f"f{k}") for k in range(n)]
    chosen = made("y", "conditional", "which", *["x"] * n, called=tuple(f"f{k}" for k in range(n)))
    return module_of(parameter("which", COUNT), parameter("x", ROW, 1), chosen, others=others)


def conditionals(n: int) -> Module:
    """Conditionals one after the other, of two computations."""
    others = [negation(name, op) for name, op in (("yes", "negate"), ("no", "tanh"))]
    body = [parameter("which", FLAG), parameter("x0", ROW, 1)]
    body += [
        made(f"x{k}", "conditional", "which", f"x{k - 1}", f"x{k - 1}", called=("yes", "no"))
        for k in range(1, n + 1)
    ]
    return module_of(*body, others=others)


def loops(n: int) -> Module:
    """Loops one after the other, each with computations of its own."""
    shape = TupleShape((COUNT, ROW))
    body = [constant("zero", 0, dtypes.int32), parameter("x0")]
    others: list[Computation] = []
    for k in range(n):
        others += loop(
            f"body{k}", shape, 1, (made(f"body{k}.z", "negate", f"body{k}.x0"),), (f"body{k}.z",)
        )
        body += [
            made(f"t{k}", "tuple", "zero", f"x{k}", shape=shape),
            made(f"w{k}", "while", f"t{k}", shape=shape, called=(f"body{k}", f"body{k}.goes_on")),
            taken(f"x{k + 1}", f"w{k}", 1),
        ]
    return module_of(*body, others=others)


def loops_of_one_body(n: int) -> Module:
    """Loops one after the other, all with one body and condition."""
    shape = TupleShape((COUNT, ROW))
    body = [constant("zero", 0, dtypes.int32), parameter("x0")]
    for k in range(n):
        body += [
            made(f"t{k}", "tuple", "zero", f"x{k}", shape=shape),
            made(f"w{k}", "while", f"t{k}", shape=shape, called=("body", "body.goes_on")),
            taken(f"x{k + 1}", f"w{k}", 1),
        ]
    return module_of(
        *body, others=loop("body", shape, 1, (made("body.z", "negate", "body.x0"),), ("body.z",))
    )


def nested_loops(n: int) -> Module:
    """A loop inside a loop; both carry the rows, of which the inner one changes one half."""
    shape = TupleShape((COUNT, *[ROW] * n))
    changed = [made(f"inner.z{k}", "tanh", f"inner.x{k}") for k in range(0, n, 2)]
    given = [f"inner.x{k}" if k % 2 else f"inner.z{k}" for k in range(n)]
    inside = [
        constant("outer.zero", 0, dtypes.int32),
        made("outer.t", "tuple", "outer.zero", *(f"outer.x{k}" for k in range(n)), shape=shape),
        made("outer.w", "while", "outer.t", shape=shape, called=("inner", "inner.goes_on")),
        *(taken(f"outer.r{k}", "outer.w", k + 1) for k in range(n)),
    ]
    called = loop("outer", shape, n, inside, [f"outer.r{k}" for k in range(n)])
    inner = loop("inner", shape, n, changed, given)
    return looped(shape, [parameter("a")], ["a"] * n, called, others=inner)


def conjunction(n: int) -> Module:
    """A loop whose condition joins what it compares again and again."""
    shape = TupleShape((COUNT, ROW))
    first = goes_on("first", shape)
    joined = [made("and0", "and", "first.y", "first.y", shape=FLAG)]
    joined += [made(f"and{k}", "and", f"and{k - 1}", f"and{k - 1}", shape=FLAG) for k in range(1, n)]
    condition = make_computation("goes_on", (*first.instructions, *joined), joined[-1].name)
    body, _ = loop("body", shape, 1, (made("body.z", "negate", "body.x0"),), ("body.z",))
    return looped(shape, [parameter("x")], ["x"], (body, condition))


def operands(n: int) -> Module:
    """A concatenate of many operands."""
    body = [parameter("x"), *(made(f"v{k}", "tanh", "x") for k in range(n))]
    shape, names = Shape(F32, (4 * n,)), (f"v{k}" for k in range(n))
    return module_of(*body, made("y", "concatenate", *names, shape=shape, dimensions=(0,)))


def sorted_operands(n: int) -> Module:
    """A sort of many operands by the first."""
    shape = TupleShape((ROW,) * n)
    order = [parameter(f"p{k}", SCALAR, k) for k in range(2 * n)]
    order.append(less("less", "p0", "p1"))
    body = [parameter(f"x{k}", ROW, k) for k in range(n)]
    by_first = {"dimensions": (0,), "is_stable": False, "called": ("order",)}
    y = made("y", "sort", *(i.name for i in body), shape=shape, **by_first)
    return module_of(*body, y, others=(make_computation("order", order, "less"),))


def scalar_chain(n: int) -> Module:
    """A map whose computation is a long chain."""
    steps = [made(f"p{k}", "negate", f"p{k - 1}", shape=SCALAR) for k in range(1, n)]
    other = make_computation("f", (parameter("p0", SCALAR), *steps), f"p{n - 1}")
    return module_of(
        parameter("x"), made("y", "map", "x", dimensions=(0,), called=("f",)), others=(other,)
    )


def same_names(n: int) -> Module:
    """A computation that many loops' text would name alike."""
    others = [Computation(f"f{k}", (parameter("x"), made("y", "tanh", "x")), "y") for k in range(n)]
    body = [parameter("which", COUNT), parameter("x", ROW, 1)]
    body += [made("y", "conditional", "which", *["x"] * n, called=tuple(f"f{k}" for k in range(n)))]
    return module_of(*body, others=others)


def barriers(n: int) -> Module:
    """Barriers around a tuple, one after the other, and as many tokens."""
    shape = TupleShape((ROW,) * 4)
    body = [parameter("x"), made("t0", "tuple", "x", "x", "x", "x", shape=shape)]
    body += [made(f"t{k}", "opt-barrier", f"t{k - 1}", shape=shape) for k in range(1, n)]
    return module_of(*body, taken("y", f"t{n - 1}", 2))


def aliases(n: int) -> Module:
    """Results that take the memory of the parameters."""
    shape = TupleShape((ROW,) * n)
    body = [parameter(f"a{k}", ROW, k) for k in range(n)]
    body += [made(f"v{k}", "negate", f"a{k}") for k in range(n)]
    body.append(made("y", "tuple", *(f"v{k}" for k in range(n)), shape=shape))
    entry = make_computation("main", body, "y")
    listed = tuple(((k,), k, (), "MAY_ALIAS") for k in range(n))
    return make_module("large", "main", (entry,), input_output_alias=listed)


# ---- modules that nest ---------------------------------------------------------------------------

Kind = Literal["call", "conditional", "while"]


def nested(kind: Kind, depth: int, *, twice: bool = False) -> Module:
    """Calls, conditionals or loops inside each other; `twice` names the next computation twice, so that
    2^depth instructions are executed.
    """
    pair = TupleShape((COUNT, ROW))
    others = [negation("level0")]
    levels = depth + (kind == "while")  # the innermost loop needs a body too
    for n in range(1, levels):
        name, below = f"level{n}", f"level{n - 1}"
        x, y, z = f"{name}.x", f"{name}.y", f"{name}.z"
        if kind == "while":
            inside = _looped(name, f"{name}.x0", below) if n > 1 else (made(z, "negate", f"{name}.x0"),)
            others += loop(name, pair, 1, inside, (inside[-1].name,))
            continue
        body = [parameter(x), *_applied(kind, y, x, below, below if twice else "level0")]
        if kind == "call" and twice:
            body.append(made(z, "call", y, called=(below,)))
        others.append(make_computation(name, body, body[-1].name))
    top = f"level{levels - 1}"
    if kind == "while":
        return module_of(parameter("x"), *_looped("main", "x", top), others=others)
    return module_of(parameter("x"), *_applied(kind, "y", "x", top, "level0"), others=others)


def _looped(name: str, x: str, body: str) -> tuple[Instruction, ...]:
    pair = TupleShape((COUNT, ROW))
    return (
        constant(f"{name}.zero", 0, dtypes.int32),
        made(f"{name}.t", "tuple", f"{name}.zero", x, shape=pair),
        made(f"{name}.w", "while", f"{name}.t", shape=pair, called=(body, f"{body}.goes_on")),
        taken(f"{name}.r", f"{name}.w", 1),
    )


def _applied(kind: Kind, name: str, x: str, first: str, second: str) -> tuple[Instruction, ...]:
    if kind == "call":
        return (made(name, "call", x, called=(first,)),)
    which = constant(f"{name}.which", 1, dtypes.boolean)
    return (which, made(name, "conditional", which.name, x, x, called=(first, second)))


def nested_reducer(depth: int) -> Module:
    """A reduce whose computation calls, each level twice: 2^depth additions."""
    others = [adding("level0")]
    for n in range(1, depth):
        a, b = parameter(f"a{n}", SCALAR), parameter(f"b{n}", SCALAR, 1)
        below = {"called": (f"level{n - 1}",)}
        one = made(f"c{n}", "call", a.name, b.name, shape=SCALAR, **below)
        two = made(f"d{n}", "call", one.name, b.name, shape=SCALAR, **below)
        others.append(make_computation(f"level{n}", (a, b, one, two), two.name))
    called = (f"level{depth - 1}",)
    y = made("y", "reduce", "x", "zero", shape=SCALAR, dimensions=(0,), called=called)
    return module_of(parameter("x"), constant("zero", 0), y, others=others)


CASES: dict[str, Callable[[int], Module]] = {
    f.__name__: f
    for f in (
        *(carried_arrays, rotated_arrays, carried_casts, rotated_casts, rotated_scalars),
        *(nested_loops, conjunction, instructions, called_computations, one_called_computation),
        *(reducers, parameters, chain, moved, converted, ladder, doubled, products, readers),
        *(summed_readers, wide_tuple, pairs_in_tuple, constants, folded, conditional_results, branches),
        *(conditionals, loops, loops_of_one_body, operands, sorted_operands, scalar_chain, same_names),
        *(barriers, aliases),
    )
}


# ---- what is done with a module ------------------------------------------------------------------

Work = tuple[str, Callable[[], object]]


def work_on(module: Module) -> Iterator[Work]:
    """What is done with a module, in an order where each can use what those before it gave."""
    target, release, profile = find_target("trn1"), find_release("2.26"), default_profile()
    made_so_far: dict[str, Any] = {}

    def keep(name: str, run: Callable[[], object]) -> Work:
        def kept() -> object:
            made_so_far[name] = found = run()
            return found

        return name, kept

    yield keep("to_bytes", lambda: proto.to_bytes(module))
    yield "from_bytes", lambda: proto.from_bytes(made_so_far["to_bytes"])
    yield keep("to_text", lambda: text.to_text(module, dialect="short"))
    yield "from_text", lambda: parse.from_text(made_so_far["to_text"])
    yield "verify", lambda: verify(module)
    yield "inline_calls", lambda: inline_calls(module)
    yield "conformance", lambda: conformance.check(module, release, target)
    for name in ("tvm/float16", "tensorflow/bfloat16", "all/bf16"):
        yield keep(f"plan {name}", lambda name=name: make_plan(module, POLICIES[name], target))  # type: ignore[misc]
    plan: Plan = made_so_far["plan all/bf16"]
    yield "plan to JSON and back", lambda: Plan.from_json(plan.to_json())
    yield "diff", lambda: plan.diff(made_so_far["plan tvm/float16"])
    yield keep("apply", lambda: apply_plan(module, plan))
    yield "apply literally", lambda: apply_plan(module, plan, clean=False)
    planned: Module = made_so_far["apply"]
    yield "explain", lambda: explain.lines(module, plan)
    yield "casts", lambda: casts.casts(module, planned, plan)
    yield "lint", lambda: lint(module, plan, target, profile=profile)
    yield "estimate", lambda: estimate(planned, 0, target)
    yield keep("compile", lambda: compile_module(planned, profile, target))
    yield "record", lambda: made_so_far["compile"].recording()
    yield "op by op", lambda: made_so_far["compile"].op_by_op
    yield "calibration", lambda: make_calibration(module, [_met(module)])


_HANDS_ON = ("tuple", "get-tuple-element", "while", "conditional", "constant", "opt-barrier")


def _met(module: Module) -> dict[str, ops.Statistics]:
    """What a run of a module could have met."""
    graphs = graph_computations(inline_calls(module))
    made_here = (i for c in graphs for i in c.instructions if i.opcode not in _HANDS_ON)
    met = ops.Statistics(1, 0, 0, 0, 0, 1.0, 1.0, {0: 1})
    return {i.name: met for i in made_here if i.opcode != "parameter"}
