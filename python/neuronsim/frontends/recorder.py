"""The recorder: rows of the op table become instructions of computations.

>>> recorder = Recorder("double")
>>> x = recorder.parameter("x", ops.ArrayType(dtypes.float32, (2,)))
>>> doubled = recorder.record(ops.by_name("add"), [x, x], {})
>>> recorder.finish((doubled,)).root.opcode
'add'
"""

from __future__ import annotations

import gc
import os
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, UnsupportedType, users_line
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    AnyShape,
    Computation,
    Instruction,
    Metadata,
    Module,
    Shape,
    TupleShape,
    fresh_name,
    live_instructions,
)

# What the row takes and an instruction's shape or operands say.
_OF_SHAPE = frozenset({"dims", "dtype", "results", "result", "reducer", "computations"})


@dataclass(eq=False, slots=True)
class Value:
    """What an instruction gives: its name in the recorder's computation, and its type."""

    recorder: Recorder
    name: str
    shape: AnyShape

    @property
    def type(self) -> ops.ArrayType:
        """The type of a value that is an array."""
        assert isinstance(self.shape, Shape)
        return self.shape.type


@dataclass(frozen=True)
class Scope:
    """Where instructions come from: what they are named after, and their metadata."""

    name: str = ""
    metadata: Metadata = field(default_factory=Metadata)


@dataclass(frozen=True)
class Adopted:
    """An array that was known until a traced value was written into it: its storage before, and where
    that was.
    """

    array: weakref.ref[Any]
    storage: Any
    line: tuple[str, int]


@dataclass
class _Shared:
    """What the recorders of one module's computations have in common."""

    names: set[str] = field(default_factory=set)  # of instructions
    computations: dict[str, Computation] = field(default_factory=dict)
    reducers: dict[tuple[str, DType], str] = field(default_factory=dict)
    scope: Scope = Scope()
    adopted: list[Adopted] = field(default_factory=list)
    keeps_composites: bool = False  # as calls of their names, not spelled out


_recording: ContextVar[Recorder | None] = ContextVar("recording", default=None)


class Recorder:
    """A computation while it is recorded; `outer` is that in whose loop or branch it will run. Values
    of outer computations that it reads become its captures.
    """

    def __init__(self, name: str, outer: Recorder | None = None) -> None:
        self.name, self.outer = name, outer
        self.shared: _Shared = outer.shared if outer else _Shared()
        self.instructions: list[Instruction] = []
        self.parameters: list[Instruction] = []
        self._parameter_names: list[str] = []
        self.captures: dict[Value, Value] = {}  # of the outer recorder: the value here
        self._constants: dict[Any, tuple[Any, Value, Callable[[], Any]]] = {}
        self._by_name: dict[str, Instruction] = {}
        self._values: dict[str, Value] = {}

    # ---- values ----------------------------------------------------------------------------------

    def parameter(self, name: str, of: ops.ArrayType) -> Value:
        """The next parameter; the module's shape keeps its name as it is."""
        number, shape = len(self.parameters), _shape(of)
        made = Instruction(self._name(name), "parameter", shape, (), {"number": number})
        self.parameters.append(made)
        self._parameter_names.append(name)
        return self._valued(Value(self, made.name, shape))

    def _valued(self, value: Value) -> Value:
        self._values[value.name] = value
        return value

    def constant(self, bits: ops.Bits) -> Value:
        """A constant, one for all uses of an array as long as it is not written. What nobody can write
        is not copied.
        """
        data = bits.data
        key = data.tobytes() if data.size == 1 else (data.ctypes.data, data.strides)
        known = self._constants.get((bits.type, key))
        # Memory that was free again holds another array, though it may be of the same bytes.
        if known is not None and known[2]() is not None and _same_bytes(known[0], data):
            return known[1]
        kept = data.copy() if _can_be_written(data) else np.ascontiguousarray(data)
        kept = kept.reshape(data.shape)
        value = self.add("constant", _shape(bits.type), (), {"literal": ops.Bits(kept, bits.dtype)})
        self._constants[bits.type, key] = (kept, value, _alive(kept if data.size == 1 else data))
        return value

    def named_constant(self, name: str, bits: ops.Bits) -> Value:
        """A constant of its own, named so: weights, which others may take the place of."""
        literal = {"literal": ops.Bits(bits.data.copy(), bits.dtype)}
        made = Instruction(self._name(name), "constant", _shape(bits.type), (), literal)
        return self._appended(made)

    def producer(self, value: Value) -> Instruction | None:
        """The instruction that gave a value of this computation."""
        return self._by_name.get(value.name) if value.recorder is self else None

    def operand(self, instruction: Instruction, number: int) -> Value:
        """What an instruction of this computation reads."""
        return self._values[instruction.operands[number]]

    def sources(self, value: Value) -> list[str]:
        """The parameters of the entry computation that a value depends on, in their order."""
        found, pending = {value.name}, [value.name]
        everywhere = {i.name: i for r in self._chain() for i in r.instructions}
        captured = {v.name: o.name for r in self._chain() for o, v in r.captures.items()}
        while pending:
            name = pending.pop()
            operands = everywhere[name].operands if name in everywhere else ()
            for o in (*operands, *filter(None, [captured.get(name)])):
                if o not in found:
                    found.add(o)
                    pending.append(o)
        return [p.name for r in self._chain() for p in r.parameters if p.name in found]

    def _chain(self) -> list[Recorder]:
        return [self, *(self.outer._chain() if self.outer else ())]

    def add(
        self,
        opcode: str,
        shape: AnyShape,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> Value:
        """One instruction, as it is given."""
        scope, kind = self.shared.scope, opcode.replace("-", "_")
        name = self._name(f"{scope.name}.{kind}" if scope.name else kind)
        named = tuple(self._here(v).name for v in operands)
        metadata = scope.metadata if scope.metadata != Metadata() else _metadata_of_line()
        return self._appended(Instruction(name, opcode, shape, named, dict(attributes or {}), metadata))

    def _appended(self, made: Instruction) -> Value:
        self.instructions.append(made)
        self._by_name[made.name] = made
        return self._valued(Value(self, made.name, made.shape))

    def record(self, op: ops.Op, operands: Sequence[Value], attributes: ops.Attributes) -> Value:
        """The instruction of a row: by its opcode, or a custom call of its name."""
        stated = attributes.get("result")
        given = {k: v for k, v in attributes.items() if k != "result"}
        result = op.infer([v.type for v in operands], given) if stated is None else stated
        shape = _result_shape(result)
        if not op.opcode:
            return self.add("custom-call", shape, operands, _custom_call(op, operands, given))
        own = {k: v for k, v in given.items() if k not in _OF_SHAPE}
        if op.direction is not None:
            order = {"comparison_type": "TOTALORDER"} if op.total_order else {}
            own |= {"comparison_direction": op.direction, **order}
        if "reducer" in given:
            own["called"] = (self.reducer(given["reducer"], operands[0].type.dtype),)
        return self.add(op.opcode, shape, operands, own)

    def element(self, value: Value, index: int) -> Value:
        """One of the arrays of a tuple."""
        assert isinstance(value.shape, TupleShape)
        return self.add(
            "get-tuple-element", value.shape.elements[index], (value,), {"tuple_index": index}
        )

    def reducer(self, name: str, dtype: DType) -> str:
        """The computation that applies a row to two scalars, or with "second" gives the second of them,
        as a scatter does that overwrites.
        """
        known = self.shared.reducers.get((name, dtype))
        if known is None:

            def applied(x: Value, y: Value) -> Value:
                if name == "second":
                    return y
                op = ops.by_name(name)
                on_bool = op.on_bool if dtype is dtypes.boolean else None
                return y.recorder.record(ops.by_name(on_bool) if on_bool else op, (x, y), {})

            known = self.scalar_computation(f"{name}_{dtype.name}", (dtype, dtype), applied)
            self.shared.reducers[name, dtype] = known
        return known

    def scalar_computation(
        self, name: str, types: Sequence[DType], function: Callable[[Value, Value], Value]
    ) -> str:
        """The computation that a function of two scalars of these types records."""
        inner = Recorder(name)
        inner.shared = _Shared(names=self.shared.names)
        pair = zip("xy", types, strict=True)
        first, second = (inner.parameter(n, ops.ArrayType(t, ())) for n, t in pair)
        with recording(inner):
            found = function(first, second)
        return self.keep(inner.computation(found))

    def placeholder(self, name: str, of: ops.ArrayType) -> Value:
        """A value that will be an element of the parameter of a loop or a branch (`keep_region`)."""
        return self._valued(Value(self, self._name(name), _shape(of)))

    def capture(self, value: Value) -> Value:
        """What stands for a value of an outer computation here."""
        return self._here(value)

    def keep_region(self, elements: Sequence[Value], root: Value) -> str:
        """Adds the computation that takes one tuple of these elements, and gives its name."""
        shape = TupleShape(tuple(v.shape for v in elements))
        state = Instruction(self._name("state"), "parameter", shape, (), {"number": 0})
        taken = [
            Instruction(v.name, "get-tuple-element", v.shape, (state.name,), {"tuple_index": n})
            for n, v in enumerate(elements)
        ]
        whole = Computation(self.name, (state, *taken, *self.instructions), self._here(root).name)
        return self.keep(_live(whole))

    def keep(self, computation: Computation) -> str:
        """Adds a computation of the module, and gives its name."""
        names = {*self.shared.computations, self._chain()[-1].name}  # the entry's, which comes last
        name = fresh_name(computation.name, names)
        named = Computation(name, computation.instructions, computation.root)
        self.shared.computations[name] = named
        return name

    def name_last(self, name: str) -> None:
        """Names the last instruction, which none has read yet, after the scope that made it."""
        wanted = _legal(name)
        if not self.instructions or wanted in self.shared.names:
            return
        last = self.instructions[-1]
        if last.opcode == "constant" or not last.name.startswith(f"{wanted}."):
            return
        value = self._values.pop(last.name)
        del self._by_name[last.name]
        self.shared.names.add(wanted)
        value.name = wanted
        self.instructions[-1] = self._by_name[wanted] = last.replace(name=wanted)
        self._valued(value)

    def _name(self, wanted: str) -> str:
        """A name that no instruction of the module has yet, of letters that HLO's text takes."""
        return fresh_name(_legal(wanted), self.shared.names)

    def _here(self, value: Value) -> Value:
        """The value in this computation: itself, or what stands for it as a capture."""
        if value.recorder is self:
            return value
        if self.outer is None or not value.recorder.encloses(self):
            raise InvalidArgument(
                f"the array {value.name!r} was traced in {value.recorder.name!r} and is used outside "
                "of it: give it back as a result, or make it an argument"
            )
        known = self.captures.get(value)
        if known is None:
            known = self._valued(Value(self, self._name(f"{value.name}.captured"), value.shape))
            self.captures[value] = known
        return known

    def encloses(self, other: Recorder | None) -> bool:
        """Whether `other` is this recorder, or one inside it."""
        while other is not None and other is not self:
            other = other.outer
        return other is self

    # ---- computations ----------------------------------------------------------------------------

    def computation(self, root: Value) -> Computation:
        """What was recorded and the root depends on; it has no captures."""
        whole = Computation(self.name, (*self.parameters, *self.instructions), self._here(root).name)
        return _live(whole)

    def finish(self, results: Sequence[Value], *, as_tuple: bool = False) -> Module:
        """The module whose entry computation this is."""
        if not results:
            raise InvalidArgument(f"{self.name} returns no array: there is nothing to compute")
        root = self.tuple(results) if as_tuple or len(results) != 1 else results[0]
        entry = self.computation(root)
        computations = (*self.shared.computations.values(), entry)
        names = tuple(self._parameter_names)
        return inline_calls(Module(self.name, entry.name, computations, names))

    def tuple(self, values: Sequence[Value]) -> Value:
        """A tuple of values."""
        return self.add("tuple", TupleShape(tuple(v.shape for v in values)), values)


def _alive(data: Any) -> Callable[[], Any]:
    """What gives the array that has the memory of another one, or None once that is gone."""
    while isinstance(data.base, np.ndarray):
        data = data.base
    return weakref.ref(data) if data.base is None else lambda: data  # a file's, say, stays


def restore_adopted(recorder: Recorder, results: Sequence[Any]) -> None:
    """Gives arrays that traced values were written into, and that outlive the trace, their values back.
    Raises InvalidArgument if there is one that is none of the results.
    """
    adopted, recorder.shared.adopted = recorder.shared.adopted, []
    if any(_outlives(a, results) for a in adopted):
        gc.collect()  # what only cycles keep does not outlive it
    kept = [a for a in adopted if _outlives(a, results)]
    for a in reversed(adopted):
        array = a.array()
        if array is not None:
            array._data = a.storage
    if kept:
        file, line = kept[0].line
        raise InvalidArgument(
            f"{os.path.basename(file)}:{line}: a traced value is written into an array that the "
            "function did not make, or that outlives it: return the new values instead"
        )


def _outlives(a: Adopted, results: Sequence[Any]) -> bool:
    array = a.array()
    return array is not None and not any(array is r for r in results)


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """What is applied to traced arrays inside the block is recorded by this recorder."""
    token = _recording.set(recorder)
    try:
        yield recorder
    finally:
        _recording.reset(token)


def current_recorder() -> Recorder | None:
    """The innermost recorder that records."""
    return _recording.get()


def active_recorder() -> Recorder:
    """The same; raises InvalidArgument where none does."""
    found = _recording.get()
    if found is None:
        raise InvalidArgument(
            "a traced array is used after its trace: give it back as a result of the function that is "
            "compiled, and keep no other hold of it"
        )
    return found


@contextmanager
def in_scope(name: str, metadata: Metadata) -> Iterator[None]:
    """Instructions inside the block are named after `name` and have this metadata."""
    recorder = current_recorder()
    if recorder is None:
        yield
        return
    before = recorder.shared.scope
    recorder.shared.scope = Scope(name, metadata)
    try:
        yield
        recorder.name_last(name)
    finally:
        recorder.shared.scope = before


def _live(c: Computation) -> Computation:
    """What the root depends on, and the parameters."""
    live = live_instructions(c)
    kept = (i for i in c.instructions if i.name in live or i.opcode == "parameter")
    return Computation(c.name, tuple(kept), c.root)


def _same_bytes(a: Any, b: Any) -> bool:
    if (a.ctypes.data, a.strides, a.shape) == (b.ctypes.data, b.strides, b.shape):
        return True
    words = f"V{a.itemsize}"
    return bool(
        np.array_equal(np.ascontiguousarray(a).view(words), np.ascontiguousarray(b).view(words))
    )


def _can_be_written(data: Any) -> bool:
    while isinstance(data, np.ndarray):
        if data.flags.writeable:
            return True
        data = data.base
    return False


def _legal(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "_"


def _metadata_of_line() -> Metadata:
    file, line = users_line()
    return Metadata(source_file=file, source_line=line)


def _shape(of: ops.ArrayType) -> Shape:
    if of.dtype is dtypes.tfloat32:
        raise UnsupportedType(
            "HLO has no tfloat32: give float32, and let flags cast (--auto-cast-type tf32)"
        )
    return Shape(of.dtype, of.dims)


def _result_shape(result: ops.Result) -> AnyShape:
    if isinstance(result, ops.ArrayType):
        return _shape(result)
    return TupleShape(tuple(map(_shape, result)))


def _custom_call(
    op: ops.Op, operands: Sequence[Value], attributes: Mapping[str, Any]
) -> dict[str, Any]:
    if op.name == "lapack":  # which XLA's own targets are
        target, config = ops.lapack_call(operands[0].type.dtype, attributes)
        return {"custom_call_target": target, "backend_config": config}
    own = {k: v for k, v in attributes.items() if k not in _OF_SHAPE or k == "reducer"}
    config = ops.own_configuration(own) if own else b""
    known = next((t for t in op.custom_calls if t.startswith("AwsNeuron")), None)
    target = known if known and not own else ops.OWN_PREFIX + op.name  # AWS's compiler has that one
    return {"custom_call_target": target, "backend_config": config}
