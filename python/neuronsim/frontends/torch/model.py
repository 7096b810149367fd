"""A program of torch.export as a module, for shapes and values of its inputs.

docs/torch.md lists the operators.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuronsim import dtypes, ops
from neuronsim.arrays.array_object import Array
from neuronsim.arrays.conversion import asarray
from neuronsim.errors import (
    InvalidArgument,
    InvalidModel,
    UnknownValue,
    UnsupportedType,
    nearest,
)
from neuronsim.frontends.calls import Calls
from neuronsim.frontends.recorder import Recorder, recording
from neuronsim.frontends.torch.belonging import is_tensor
from neuronsim.frontends.torch.exporting import DataDependent
from neuronsim.frontends.torch.graph import Context, check_operators, run_graph
from neuronsim.frontends.torch.places import Places
from neuronsim.frontends.torch.structures import Layout, calls_of, structure_of
from neuronsim.frontends.torch.tensors import dtype_of, require_torch, to_array
from neuronsim.frontends.tracer import traced_bits, value_of
from neuronsim.hlo.module import Module

_Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class OpenInputs:
    """What a program leaves open of its inputs: lengths by the inputs' names, values of inputs that are
    known, the first axis where nothing else says it, and the shapes of data without their first axis.
    """

    shapes: _Shapes = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 1
    samples: _Shapes = field(default_factory=dict)


@dataclass(frozen=True)
class Recorded:
    """A program as a module, and how it is called as the model is: which constants its parameters and
    buffers are (`weights`, by their names in the state dict), and the values of those that the module
    takes and gives (`state`), after its own inputs and results; what else it writes and nobody is given
    (`dropped`).
    """

    module: Module
    calls: Calls
    weights: Mapping[str, str]
    state: Mapping[str, Array]
    dropped: tuple[str, ...]
    results: Layout


def to_module(
    program: Any,
    places: Places,
    open_inputs: OpenInputs,
    *,
    name: str = "main",
    composites: str = "formulas",
    keeps_state: bool = False,
) -> Recorded:
    """The module of a program that is decomposed (`exporting.decomposed`). Its parameters and buffers
    are constants, but with `keeps_state` those that it writes, which become inputs and results.

    Raises UnsupportedOperator, UnsupportedType, InvalidModel, or InvalidArgument for inputs that it
    does not have, or whose shape or value must be known.
    """
    check_operators(program.graph_module, places)
    recorder = Recorder(name)
    recorder.shared.keeps_composites = composites == "kept"
    with recording(recorder):
        inputs = _Inputs(program, open_inputs, recorder, keeps_state)
        try:
            found = run_graph(program.graph_module, inputs.given, Context(places))
        except UnknownValue as error:
            raise _of_inputs(error) from error
        return _finished(program, recorder, inputs, found, keeps_state=keeps_state)


_ITEMS = ("(aten.item.default)", "(aten._local_scalar_dense.default)")


def _of_inputs(error: UnknownValue) -> DataDependent:
    names, reader = error.value.recorder.sources(error.value), error.reader or "a node"
    listed = ", ".join(map(repr, names))
    depend = f"depend on the input {listed}" if names else "are drawn while it runs"
    say = (
        f"say them with input_values={{{names[0]!r}: ...}}"
        if names
        else "use torch.where or torch.cond"
    )
    if reader.endswith(_ITEMS):
        return DataDependent(
            f"{reader} makes a Python number of values that {depend}: compute with the tensor of one "
            f"element itself, without .item(), float() or int(), or {say}"
        )
    of = "data" if names else "them"
    return DataDependent(
        f"{reader} decides shapes or steps of the program by values that {depend}: {say}, or use a "
        f"size that does not depend on {of}"
    )


def _finished(
    program: Any, recorder: Recorder, inputs: _Inputs, found: Sequence[Any], *, keeps_state: bool
) -> Recorded:
    kinds = require_torch().export.graph_signature.OutputKind
    own: list[Any] = []
    after: dict[str, Any] = {}
    dropped = []
    for spec, x in zip(program.graph_signature.output_specs, found, strict=True):
        if _writes_state(spec):
            after[spec.target] = x
        elif spec.kind is kinds.USER_INPUT_MUTATION:
            dropped.append(spec.target)
        elif spec.kind is not kinds.TOKEN:
            own.append(x)
    if not keeps_state:
        dropped += list(after)
        after = {}
    tensors = [x for x in own if isinstance(x, Array)]
    if not tensors and not after:
        raise UnsupportedType("the model returns no tensor: there is nothing to compute")
    results = [value_of(x.bits) for x in (*tensors, *after.values())]
    spec = program.call_spec.out_spec
    if spec.num_leaves != len(own):  # of a joint graph, which gives gradients too
        spec = structure_of(tuple(own))
    module = recorder.finish(results, as_tuple=len(own) != 1 or not spec.is_leaf())
    there = {i.name for i in module.instructions}
    weights = {name: constant for name, constant in inputs.weights.items() if constant in there}
    layout = Layout(
        spec,
        tuple(None if isinstance(x, Array) else x for x in own),
        tuple(isinstance(x, Array) for x in own),
        tuple(name for name in inputs.weights if name not in weights),
    )
    calls = calls_of(program, inputs.numbers, inputs.known, layout)
    state = {n: inputs.state[n] for n in after}
    return Recorded(module, calls, weights, state, tuple(dropped), layout)


def _writes_state(spec: Any) -> bool:
    """Whether an output of a program is the next value of a buffer or a parameter."""
    return spec.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")


class _Inputs:
    """The arguments of a program's graph, in their order."""

    def __init__(
        self, program: Any, open_inputs: OpenInputs, recorder: Recorder, keeps_state: bool
    ) -> None:
        self.program, self.open, self.recorder = program, open_inputs, recorder
        self.weights: dict[str, str] = {}
        self.state: dict[str, Array] = {}
        self.symbols: dict[Any, int] = {}
        # Of the leaves of the user's arguments: the numbers of the inputs that they are, and values.
        self.numbers: list[int | None] = []
        self.known: dict[int, Any] = {}
        kinds = require_torch().export.graph_signature
        self.written = {
            s.target for s in program.graph_signature.output_specs if keeps_state and _writes_state(s)
        }
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        pairs = list(zip(nodes, program.graph_signature.input_specs, strict=True))
        self.user = [(n, s) for n, s in pairs if s.kind is kinds.InputKind.USER_INPUT]
        self._check_names([n.name for n, _ in self.user])
        self._bind()
        taken = {n: self._argument(n, s) for n, s in self.user}
        number = itertools.count()
        for place, (n, _) in enumerate(self.user):
            is_given, is_fixed = is_tensor(n.meta.get("val")), n.name in self.open.values
            self.numbers.append(next(number) if is_given and not is_fixed else None)
            if not is_given:
                self.known[place] = taken[n]
        self.given = [taken[n] if n in taken else self._own(n, s, kinds.InputKind) for n, s in pairs]

    def _check_names(self, names: Sequence[str]) -> None:
        for name in (*self.open.shapes, *self.open.values):
            if name not in names:
                raise InvalidArgument(
                    f"the model has no input {name!r}{nearest(name, names)}: it has {', '.join(names)}"
                )

    # ---- the user's ------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Learns the lengths that the program leaves open, from shapes and values that are given, then
        data, then the batch.
        """
        tensors = [(n.name, n.meta["val"]) for n, _ in self.user if is_tensor(n.meta.get("val"))]
        for name, val in tensors:
            if name in self.open.shapes or name in self.open.values:
                known = self.open.values.get(name)
                dims = self.open.shapes.get(name) or asarray(known).shape
                self._learn(name, val.shape, tuple(dims))
        for name, val in tensors:
            if len(self.open.samples.get(name, ())) == len(val.shape) - 1 and name in self.open.samples:
                self._learn(name, val.shape, (None, *self.open.samples[name]))
        for name, val in tensors:
            if val.shape and not isinstance(val.shape[0], int):
                symbol = _symbol(val.shape[0])
                if symbol is not None and symbol not in self.symbols:
                    self._learn(name, val.shape[:1], (self.open.batch,))

    def _learn(self, name: str, declared: Sequence[Any], dims: Sequence[int | None]) -> None:
        shown = [str(d) for d in declared]
        if len(declared) != len(dims):
            raise InvalidArgument(f"the input {name!r} is {shown}, and {list(dims)} is given")
        for at, (d, n) in enumerate(zip(declared, dims, strict=True)):
            if n is None:
                continue
            symbol = _symbol(d)
            if isinstance(d, int) and d != n:
                raise InvalidArgument(
                    f"the input {name!r} is {shown}, and {list(dims)} is given: export it with a "
                    f"dynamic shape ({{{name!r}: {{{at}: torch.export.Dim.AUTO}}}}) to take others"
                )
            if symbol is None:
                continue
            if self.symbols.setdefault(symbol, n) != n:
                raise InvalidArgument(
                    f"the inputs' dimension {symbol} is both {self.symbols[symbol]} and {n}"
                )
            self._check_range(name, at, symbol, n)

    def _check_range(self, name: str, at: int, symbol: Any, n: int) -> None:
        allowed = self.program.range_constraints.get(symbol)
        if allowed is not None and not allowed.lower <= n <= allowed.upper:
            raise InvalidArgument(
                f"dimension {at} of the input {name!r} ({symbol}) is {n}, and the program was exported "
                f"for {allowed.lower} to {allowed.upper}"
            )

    def _dims(self, name: str, val: Any) -> tuple[int, ...]:
        dims = []
        for at, d in enumerate(val.shape):
            if isinstance(d, int):
                dims.append(d)
                continue
            found = d.node.expr.subs(self.symbols)
            if not found.is_Integer:
                shown = ",".join([*map(str, dims), "N", *["..."] * (len(val.shape) > at + 1)])
                raise InvalidArgument(
                    f"dimension {at} of the input {name!r} ({d}) is not known: say it with "
                    f"input_shapes={{{name!r}: ({shown})}}, on the command line "
                    f"--input-shape {name}={shown}"
                )
            dims.append(int(found))
        return tuple(dims)

    def _argument(self, n: Any, spec: Any) -> Any:
        val = n.meta.get("val")
        if not is_tensor(val):
            if type(val).__name__ in ("SymInt", "SymFloat", "SymBool"):
                return self._number(n)
            return getattr(spec.arg, "value", val)
        dtype = dtype_of(val.dtype, f"the input {n.name!r}")
        if n.name in self.open.values:
            return asarray(self.open.values[n.name], dtype)
        dims = self._dims(n.name, val)
        ops.check_dims(f"the input {n.name!r}", dims)
        return Array(traced_bits(self.recorder.parameter(n.name, ops.ArrayType(dtype, dims))))

    def _number(self, n: Any) -> Any:
        if n.name not in self.open.values:
            raise InvalidArgument(
                f"the input {n.name!r} is a number that decides what the program is: say it with "
                f"input_values={{{n.name!r}: ...}}, on the command line --input-value {n.name}=..."
            )
        return asarray(self.open.values[n.name]).tolist()

    # ---- the model's -----------------------------------------------------------------------------

    def _own(self, n: Any, spec: Any, kinds: Any) -> Any:
        if spec.kind is kinds.CONSTANT_TENSOR:
            return to_array(self.program.constants[spec.target])
        if spec.kind is kinds.TOKEN:
            return None
        if spec.kind not in (kinds.PARAMETER, kinds.BUFFER):
            raise UnsupportedType(f"the model takes {n.name!r}, which is no tensor ({spec.kind.name})")
        stored = self.program.state_dict
        tensor = (
            stored[spec.target] if spec.target in stored else self.program.constants.get(spec.target)
        )
        if not is_tensor(tensor):
            raise InvalidModel(f"the program has no value of {spec.target!r}")
        array = to_array(tensor)
        if array.dtype is dtypes.float64 and all(_quantizes(u) for u in n.users):
            array = array.astype(dtypes.float32)  # scales, which quantizers compute in float32
        if spec.target in self.written:
            self.state[spec.target] = array.copy()
            return Array(traced_bits(self.recorder.parameter(spec.target, array.bits.type)))
        value = self.recorder.named_constant(spec.target, array.bits)
        self.weights[spec.target] = value.name
        return Array(traced_bits(value))


def _quantizes(n: Any) -> bool:
    return str(n.target).startswith("quantized_decomposed.")


def _symbol(d: Any) -> Any:
    """The symbol of a dimension that is one; None of numbers and of expressions."""
    expression = getattr(getattr(d, "node", None), "expr", None)
    return expression if expression is not None and expression.is_Symbol else None
