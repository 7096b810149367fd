"""Writing a plan's quantizations as plain HLO (rules Q): quantizing is divide, round-nearest-even,
clamp, convert and add; a product is a dot or convolution of bytes with an int32 result. Float8 is
divided, clamped and converted, and its products have float32 results (Q6).

A clean module shares what its readers quantize alike; what was quantized and dequantized is quantized
again by the same scale as the bytes that it was (Q2), also behind operations that move or order values.
The literal one has each reader quantize for itself. They compute the same bits.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Container, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from neuronsim import dtypes, ops
from neuronsim.casting.conversions import UNROUNDED
from neuronsim.casting.decisions.biases import Bias, integer_bias, result_axis
from neuronsim.casting.decisions.quantization import Quantization, last_sums_below
from neuronsim.casting.decisions.record import Decision
from neuronsim.dtypes import DType
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.instruction_settings import REASON
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Shape,
    fresh_name,
    graph_computations,
    simple_reducer,
)

# The operations that move elements of bytes as they move what these stand for: of some only operands.
_MOVES = frozenset({"reshape", "transpose", "broadcast", "slice", "reverse", "copy"})
_REORDERS = _MOVES - {"slice"}  # of all elements: none is quantized that nobody reads
_JOINS = frozenset({"concatenate", "maximum", "minimum"})  # of operands of one quantization


def write_quantizations(
    module: FlatModule,
    decisions: Mapping[str, Decision],
    biases: Mapping[str, Bias],
    *,
    clean: bool,
    requantize: str = "float32",
) -> FlatModule:
    """The module with the quantizations of these decisions written out; `biases` are those that the
    sums of products take, before any cast, `requantize` is the profile's field (Q3).
    """
    shared = _Shared(module, biases, requantize)
    found = {}
    for c in graph_computations(module):
        if any(i.name in decisions for i in c.instructions):
            found[c.name] = _Writer(c, decisions, shared, clean).run()
    computations = tuple(found.get(c.name, c) for c in module.computations)
    return FlatModule(
        dataclasses.replace(module, computations=(*shared.reducers.values(), *computations))
    )


class _Shared:
    """Names, and the computations of int32 sums and of maxima of bytes, each made once."""

    def __init__(self, module: FlatModule, biases: Mapping[str, Bias], requantize: str) -> None:
        self.biases, self.requantize = biases, requantize
        self.by_name = module.by_name
        self.taken = {i.name for i in module.instructions} | set(module.by_name)
        self.reducers: dict[tuple[str, DType], Computation] = {}

    def reducer(self, opcode: str, dtype: DType) -> str:
        key = opcode, dtype
        if key not in self.reducers:
            shape = Shape(dtype)
            names = [fresh_name(f"{opcode}_{dtype.name}.{n}", self.taken) for n in ("x", "y", "z")]
            body = (
                Instruction(names[0], "parameter", shape, (), {"number": 0}),
                Instruction(names[1], "parameter", shape, (), {"number": 1}),
                Instruction(names[2], opcode, shape, (names[0], names[1])),
            )
            name = fresh_name(f"{opcode}_{dtype.name}", self.taken)
            self.reducers[key] = Computation(name, body, names[2])
        return self.reducers[key].name


class _Writer:
    """Builds one computation anew in one pass over the old."""

    def __init__(
        self, computation: Computation, decisions: Mapping[str, Decision], shared: _Shared, clean: bool
    ) -> None:
        self.old, self.decisions, self.shared, self.clean = computation, decisions, shared, clean
        self.body: dict[str, Instruction] = {}
        self.quantized: dict[tuple[str, Quantization], str] = {}
        self.users = computation.users()
        self.widened: dict[str, str] = {}  # float32 forms that are made for bytes
        # What float32 values are known to be: bytes, dequantized. Made where a reader takes the bytes.
        self.bytes: dict[str, tuple[Quantization, Callable[[], str]]] = {}

    def run(self) -> Computation:
        for i in self.old.instructions:
            if i.name in self.body:
                continue  # an addition that is made in the sums of a product
            d = self.decisions.get(i.name)
            if d is None:
                self._emit(i)
                if self.clean:
                    self._follow(i)
            elif any(d.quantized_operands):
                self._product(i, d)
            else:
                self._result(i, d)
        named = () if self.clean else self.shared.biases
        return Computation(self.old.name, _without_dead(self.body, self.old, named), self.old.root)

    # ---- instructions ------------------------------------------------------------------------------

    def _emit(self, i: Instruction) -> str:
        self.body[i.name] = i
        return i.name

    def _make(
        self,
        name: str,
        opcode: str,
        dtype: DType,
        operands: Sequence[str],
        dims: Any = None,
        **attributes: Any,
    ) -> str:
        """A new instruction, over the dimensions of its first operand unless others are given."""
        shape = Shape(dtype, self.body[operands[0]].array.dims if dims is None else tuple(dims))
        fresh = fresh_name(name, self.shared.taken)
        return self._emit(Instruction(fresh, opcode, shape, tuple(operands), attributes))

    def _constant(self, name: str, array: Any, dtype: DType) -> str:
        literal = ops.Bits(np.asarray(array).astype(dtype.numpy).view(dtype.storage), dtype)
        shape = Shape(dtype, literal.data.shape)
        fresh = fresh_name(name, self.shared.taken)
        return self._emit(Instruction(fresh, "constant", shape, (), {"literal": literal}))

    def _spread(
        self, name: str, numbers: Any, dtype: DType, dims: Sequence[int], axis: int | None
    ) -> str:
        """Numbers beside an array: one, or one for each index of an axis; equal ones are one."""
        array = np.asarray(numbers)
        if array.size == 1 or (array == array.flat[0]).all():
            scalar = self._constant(name, array.flat[0], dtype)
            return self._make(f"{name}.spread", "broadcast", dtype, [scalar], dims, dimensions=())
        assert axis is not None
        vector = self._constant(name, array.reshape(-1), dtype)
        return self._make(f"{name}.spread", "broadcast", dtype, [vector], dims, dimensions=(axis,))

    # ---- borders -----------------------------------------------------------------------------------

    def _quantize(self, name: str, q: Quantization, reader: str) -> str:
        """The name of the bytes of a float32 value (Q1)."""
        if self.clean and name in self.bytes and self.bytes[name][0] == q:
            return self.bytes[name][1]()
        key = name, q
        if key in self.quantized and self.clean:
            return self.quantized[key]
        i = self.body[name]
        new = f"{name}.to_{q.type.name}" if self.clean else f"{name}.to_{q.type.name}.{reader}"
        source, moves = self._before_moves(name, q)
        if moves:
            found = self._quantize(source, q, reader)
            for move in reversed(moves):
                found = self._moved(move, q, [found])
        elif i.opcode == "constant":
            literal = i.attributes["literal"]
            found = self._constant(new, q.quantized(ops.numbers(literal)), q.type)
        else:
            found = self._quantize_value(name, new, q)
        self.quantized[key] = found
        return found

    def _before_moves(self, name: str, q: Quantization) -> tuple[str, list[Instruction]]:
        """The float32 value before moves whose results are read in these bytes alone, and the moves,
        the last one first: bytes are moved in their place. Widening of what was moved goes before them.
        """
        passed: set[str] = set()
        moves: list[Instruction] = []
        at = self.body[name]
        while self.clean and q.axis is None and (at.opcode in _REORDERS or _widens(at, self.body)):
            users = self.users.get(at.name, ())
            if not all(u.name in passed or self._reads_bytes(u, at.name, q) for u in users):
                break
            passed.add(at.name)
            moves += [at] if at.opcode in _REORDERS else []
            at = self.body[at.operands[0]]
        if not moves or self.old.root in passed:
            return name, []
        if at.array.dtype is dtypes.float32:
            return at.name, moves
        if at.opcode == "convert":  # widened at once it would be a cast of a cast
            return name, []
        if at.name not in self.widened:
            self.widened[at.name] = self._make(f"{at.name}.wide", "convert", dtypes.float32, [at.name])
        return self.widened[at.name], moves

    def _reads_bytes(self, u: Instruction, name: str, q: Quantization) -> bool:
        """Whether an instruction reads another's values quantized so."""
        d = self.decisions.get(u.name)
        by = d.quantized_operands if d is not None else ()
        return bool(by) and all(b == q for o, b in zip(u.operands, by, strict=True) if o == name)

    def _quantize_value(self, name: str, new: str, q: Quantization) -> str:
        dims = self.body[name].array.dims
        scale = self._spread(
            f"{new}.scale", np.array(q.scale, np.float32), dtypes.float32, dims, q.axis
        )
        ratio = self._make(f"{new}.ratio", "divide", dtypes.float32, [name, scale])
        return self._to_bytes(ratio, new, q)

    def _to_bytes(
        self, ratio: str, new: str, q: Quantization, settle: Callable[[str], str] | None = None
    ) -> str:
        """The nearest integers plus the zero points, as bytes; the zero point of NaN (Q1). The int32
        numbers before the zero points go through `settle`.
        """
        f32, dims = dtypes.float32, self.body[ratio].array.dims
        low, high = q.limits
        zero = np.array(q.zero_point, np.int32)
        nearest = ratio
        if not q.is_float:
            nearest = self._make(f"{new}.nearest", "round-nearest-even", f32, [ratio])
        least = self._spread(f"{new}.least", np.float32(low - zero), f32, dims, q.axis)
        most = self._spread(f"{new}.most", np.float32(high - zero), f32, dims, q.axis)
        inside = self._make(f"{new}.inside", "clamp", f32, [least, nearest, most], dims)
        if q.is_symmetric and settle is None:
            return self._make(new, "convert", q.type, [inside])
        whole = self._make(f"{new}.whole", "convert", dtypes.int32, [inside])
        whole = whole if settle is None else settle(whole)
        moved = self._spread(f"{new}.zero", zero, dtypes.int32, dims, q.axis)
        total = self._make(f"{new}.moved", "add", dtypes.int32, [whole, moved])
        return self._make(new, "convert", q.type, [total])

    def _dequantize(self, data: str, q: Quantization, i: Instruction, reason: str) -> None:
        """The float32 values that bytes stand for (Q2), under an instruction's name."""
        dims = i.array.dims
        centred = data
        if not q.is_symmetric:
            wide = self._make(f"{i.name}.wide", "convert", dtypes.int32, [data])
            zero = self._spread(
                f"{i.name}.zero", np.array(q.zero_point, np.int32), dtypes.int32, dims, q.axis
            )
            centred = self._make(f"{i.name}.centred", "subtract", dtypes.int32, [wide, zero])
        value = self._make(f"{i.name}.value", "convert", dtypes.float32, [centred])
        scale = self._spread(
            f"{i.name}.scale", np.array(q.scale, np.float32), dtypes.float32, dims, q.axis
        )
        stated = {"frontend_attributes": {REASON: reason}}
        found = Instruction(i.name, "multiply", i.shape, (value, scale), stated, i.metadata)
        self._emit(found)
        self.bytes[i.name] = q, lambda: data

    def _result(self, i: Instruction, d: Decision) -> None:
        """An instruction whose float32 result is quantized."""
        assert d.quantized_result is not None
        raw = self._emit(i.replace(name=fresh_name(i.name + UNROUNDED, self.shared.taken)))
        data = self._quantize(raw, d.quantized_result, i.name)
        self._dequantize(data, d.quantized_result, i, d.reason)

    # ---- products ----------------------------------------------------------------------------------

    def _product(self, i: Instruction, d: Decision) -> None:
        """Q3, Q4, Q7: the sums in int32, less the zero points', by the product of the scales; with a
        bias under its addition's name.
        """
        lhs, rhs = d.quantized_operands
        assert lhs is not None
        assert rhs is not None
        a = self._quantize(i.operands[0], lhs, f"{i.name}.0")
        b = self._quantize(i.operands[1], rhs, f"{i.name}.1")
        if lhs.is_float:
            own = _plain(i)
            sums = self._make(f"{i.name}.sums", i.opcode, dtypes.float32, [a, b], i.array.dims, **own)
        elif i.opcode == "dot":
            sums = self._dot(i, a, b, lhs, rhs)
        else:
            sums = self._convolution(i, a, b, lhs)
        axis = result_axis(i, rhs.axis, [self.old.by_name[o].array.dims for o in i.operands])
        factor = np.array(lhs.scale, np.float32) * np.array(
            rhs.scale, np.float32
        )  # each step rounded, as Q3 has it
        if d.bias:
            if not self.clean:  # where every instruction has its own name's value
                self._scale(i, sums, factor, axis, d.reason)
            sums = self._biased(i, sums, self.shared.biases[i.name], lhs, rhs)
            i = self.old.by_name[d.bias]
        q = d.quantized_result
        if q is None:
            self._scale(i, sums, factor, axis, d.reason)
            return
        factor = factor / np.float32(q.scale[0])
        operands = self._scaling(i, sums, factor, axis)
        ratio = self._make(f"{i.name}.ratio", "multiply", dtypes.float32, operands)
        settle = None
        if self.shared.requantize == "exact" and not (lhs.is_float or q.is_float):
            exact = [Fraction(lhs.scale[0]) * Fraction(s) / Fraction(q.scale[0]) for s in rhs.scale]
            settle = functools.partial(self._settled, i, sums, exact, q, axis)
        data = self._to_bytes(ratio, f"{i.name}.to_{q.type.name}", q, settle)
        self._dequantize(data, q, i, d.reason)

    def _scale(self, i: Instruction, sums: str, factor: Any, axis: int | None, reason: str) -> None:
        """Sums by the product of the scales, under an instruction's name."""
        operands, stated = self._scaling(i, sums, factor, axis), {REASON: reason}
        attributes = {"frontend_attributes": stated}
        self._emit(Instruction(i.name, "multiply", i.shape, operands, attributes, i.metadata))

    def _scaling(self, i: Instruction, sums: str, factor: Any, axis: int | None) -> tuple[str, str]:
        """The sums in float32, and the factors beside them."""
        wide = sums
        if self.body[sums].array.dtype is dtypes.int32:
            wide = self._make(f"{i.name}.sums.f32", "convert", dtypes.float32, [sums])
        return wide, self._spread(f"{i.name}.scale", factor, dtypes.float32, i.array.dims, axis)

    def _biased(
        self, i: Instruction, sums: str, bias: Bias, lhs: Quantization, rhs: Quantization
    ) -> str:
        """Q7: the sums with a bias. A clean module takes it and the zero point's part of weights, the
        same modulo 2^32, in one step.
        """
        by, integers = integer_bias(bias, lhs, rhs)
        at = by.axis if bias.axis is None else bias.axis
        taken, last = -integers.reshape(-1), self.body[sums]
        if self.clean and last.opcode == "subtract":
            spread = self.body[last.operands[1]]
            part = self.body[spread.operands[0]]
            if part.opcode == "constant" and spread.attributes["dimensions"] in ((at,), ()):
                taken = taken + ops.numbers(part.attributes["literal"])
                sums = last.operands[0]
        less = self._spread(f"{i.name}.bias", taken, dtypes.int32, i.array.dims, at)
        return self._make(f"{i.name}.biased", "subtract", dtypes.int32, [sums, less])

    def _settled(
        self, i: Instruction, sums: str, ratios: Sequence[Fraction], q: Quantization,
        axis: int | None, whole: str,
    ) -> str:  # fmt: skip
        """Q3, `exact`: the nearest integers to the sums times the exact ratios, from those by float32,
        which are at most one off: the sums at which each integer begins and ends decide.
        """
        s32, dims = dtypes.int32, i.array.dims
        low, high = (v - q.zero_point[0] for v in q.limits)
        table = last_sums_below(ratios, low)
        ends = self._constant(f"{i.name}.ends", table.reshape(-1), s32)
        starts = np.arange(len(ratios)) * table.shape[1] - low
        place = self._spread(f"{i.name}.place", starts, s32, dims, axis)
        dimensions = ops.GatherDimensions((), (0,), (0,), index_vector_dim=len(dims))
        ones = self._spread(f"{i.name}.one", 1, s32, dims, None)
        begin = self._make(f"{i.name}.at", "add", s32, [whole, place])
        beyond_it = self._make(f"{i.name}.next", "add", s32, [begin, ones])
        for at, direction, opcode in ((begin, "LE", "subtract"), (beyond_it, "GT", "add")):
            end = self._make(
                f"{i.name}.end", "gather", s32, [ends, at], dims, gather_dimensions=dimensions,
                slice_sizes=(1,), indices_are_sorted=False,
            )  # fmt: skip
            beyond = self._make(
                f"{i.name}.beyond",
                "compare",
                dtypes.boolean,
                [sums, end],
                comparison_direction=direction,
            )
            moved = self._make(f"{i.name}.moved", "convert", s32, [beyond])
            whole = self._make(f"{i.name}.settled", opcode, s32, [whole, moved])
        least, most = (
            self._spread(f"{i.name}.{n}", v, s32, dims, None)
            for n, v in (("least", low), ("most", high))
        )
        return self._make(f"{i.name}.whole", "clamp", s32, [least, whole, most], dims)

    def _dot(self, i: Instruction, a: str, b: str, lhs: Quantization, rhs: Quantization) -> str:
        s32, dims = dtypes.int32, i.array.dims
        d: ops.DotDimensions = i.attributes["dot_dimensions"]
        kept = {k: v for k, v in i.attributes.items() if k == "dot_dimensions"}
        sums = self._make(f"{i.name}.sums", "dot", s32, [a, b], dims, **kept)
        depth = math.prod(self.body[a].array.dims[n] for n in d.lhs_contracting)
        free_lhs = d.free_lhs(len(self.body[a].array.dims))
        free_rhs = d.free_rhs(len(self.body[b].array.dims))
        if not lhs.is_symmetric:
            places = {n: at for at, n in enumerate(d.rhs_batch)}
            places |= {n: len(d.rhs_batch) + len(free_lhs) + at for at, n in enumerate(free_rhs)}
            more = -depth * rhs.zero_point[0]
            sums = self._less(i, sums, b, d.rhs_contracting, places, lhs.zero_point[0], more, "rhs")
        if not rhs.is_symmetric:
            places = {n: at for at, n in enumerate(d.lhs_batch)}
            places |= {n: len(d.lhs_batch) + at for at, n in enumerate(free_lhs)}
            sums = self._less(i, sums, a, d.lhs_contracting, places, rhs.zero_point[0], 0, "lhs")
        return sums

    def _less(
        self,
        i: Instruction,
        sums: str,
        data: str,
        summed: Sequence[int],
        places: Mapping[int, int],
        zero: int,
        more: int,
        side: str,
    ) -> str:
        """The sums less `zero` times (what the other side's bytes are along the summed axes, plus
        `more`); `places` says where its other axes are in the result.
        """
        s32, shape, name = dtypes.int32, self.body[data].array, f"{i.name}.{side}"
        rest = [n for n in range(len(shape.dims)) if n not in summed]
        dims = [shape.dims[n] for n in rest]
        taken = self._zeros_times(name, data, tuple(summed), dims, zero, more)
        at = tuple(places[n] for n in rest)
        if at != tuple(sorted(at)):  # a broadcast keeps the order of axes
            order = tuple(int(n) for n in np.argsort(at))
            turned = [dims[n] for n in order]
            taken = self._make(f"{name}.turned", "transpose", s32, [taken], turned, dimensions=order)
            at = tuple(sorted(at))
        spread = self._make(
            f"{name}.taken.spread", "broadcast", s32, [taken], i.array.dims, dimensions=at
        )
        return self._make(f"{name}.left", "subtract", s32, [sums, spread])

    def _zeros_times(
        self, name: str, data: str, summed: tuple[int, ...], dims: list[int], zero: int, more: int
    ) -> str:
        """`zero` times (the sums of bytes along some axes, plus `more`); of weights known at once."""
        s32, i = dtypes.int32, self.body[data]
        if i.opcode == "constant":
            sums = ops.numbers(i.attributes["literal"]).astype(np.int64).sum(summed)
            wrapped = ((sums + more) * zero + (1 << 31)) % (1 << 32) - (1 << 31)
            return self._constant(f"{name}.taken", wrapped, s32)
        wide = self._make(f"{name}.wide", "convert", s32, [data])
        start = self._constant(f"{name}.start", 0, s32)
        reducer = (self.shared.reducer("add", s32),)
        total = self._make(
            f"{name}.sum", "reduce", s32, [wide, start], dims, dimensions=summed, called=reducer
        )
        if more:
            extra = self._spread(f"{name}.more", more, s32, dims, None)
            total = self._make(f"{name}.total", "add", s32, [total, extra])
        by = self._spread(f"{name}.zero", zero, s32, dims, None)
        return self._make(f"{name}.taken", "multiply", s32, [total, by])

    def _convolution(self, i: Instruction, a: str, b: str, lhs: Quantization) -> str:
        """What pads is 0, the zero point: it is written in front of the convolution of bytes."""
        s32 = dtypes.int32
        n: ops.ConvolutionDimensions = i.attributes["dimension_numbers"]
        window = tuple(i.attributes["window"])
        named = ("window", "dimension_numbers", "feature_group_count", "batch_group_count")
        attributes = {k: v for k, v in i.attributes.items() if k in named}
        if not lhs.is_symmetric:
            dims = list(self.body[a].array.dims)
            padding = [(0, 0, 0)] * len(dims)
            for axis, w in zip(n.input_spatial, window, strict=True):
                padding[axis] = (*w.padding, w.base_dilation - 1)
                dims[axis] = (
                    w.padding[0] + w.padding[1] + max(0, (dims[axis] - 1) * w.base_dilation + 1)
                )
            if any(p != (0, 0, 0) for p in padding):
                fill = self._constant(f"{i.name}.padding", lhs.zero_point[0], lhs.type)
                a = self._make(
                    f"{i.name}.padded", "pad", lhs.type, [a, fill], dims, padding=tuple(padding)
                )
            bare = tuple(dataclasses.replace(w, padding=(0, 0), base_dilation=1) for w in window)
            attributes = {**attributes, "window": bare}
        sums = self._make(f"{i.name}.sums", "convolution", s32, [a, b], i.array.dims, **attributes)
        if lhs.is_symmetric:
            return sums
        summed = (n.kernel_input_feature, *n.kernel_spatial)
        places = {n.kernel_output_feature: n.output_feature}
        return self._less(i, sums, b, sorted(summed), places, lhs.zero_point[0], 0, "rhs")

    # ---- what moves bytes --------------------------------------------------------------------------

    def _follow(self, i: Instruction) -> None:
        """Notes that an instruction gives dequantized bytes, because it moves or orders such."""
        if not isinstance(i.shape, Shape) or i.shape.dtype is not dtypes.float32 or i.called[1:]:
            return
        known = [self.bytes.get(o) for o in i.operands]
        first = known[0] if known else None
        if first is None or first[0].axis is not None:
            return
        q = first[0]
        inputs = [k[1] for k in known if k is not None and k[0] == q]
        if q.is_float and i.opcode not in (*_MOVES, "concatenate"):
            return  # floats of 8 bits are ordered by no engine
        if i.opcode in _MOVES or (i.opcode in _JOINS and len(inputs) == len(known)):
            taken = inputs[: len(known)] if i.opcode in _JOINS else inputs[:1]
            self._know(i, q, lambda: self._moved(i, q, [make() for make in taken]))
        elif i.opcode == "maximum" and self._is_zero(i.operands[1]):
            self._know(i, q, lambda: self._rectified(i, q, inputs[0]()))
        elif i.opcode == "reduce-window" and self._is_maximum(i):
            self._know(i, q, lambda: self._pooled(i, q, inputs[0]()))

    def _know(self, i: Instruction, q: Quantization, make: Callable[[], str]) -> None:
        made: list[str] = []

        def once() -> str:
            if not made:
                made.append(make())
            return made[0]

        self.bytes[i.name] = q, once

    def _moved(self, i: Instruction, q: Quantization, operands: list[str]) -> str:
        name = f"{i.name}.{q.type.name}"
        return self._make(name, i.opcode, q.type, operands, i.array.dims, **_plain(i))

    def _is_zero(self, name: str) -> bool:
        """Whether an array is 0 everywhere."""
        i = self.body[name]
        source = self.body[i.operands[0]] if i.opcode == "broadcast" else i
        return source.opcode == "constant" and not np.any(ops.numbers(source.attributes["literal"]))

    def _rectified(self, i: Instruction, q: Quantization, data: str) -> str:
        """max(x, 0): the bytes from the zero point on."""
        if q.zero_point[0] == q.limits[0]:
            return data
        floor = self._spread(f"{i.name}.floor", q.zero_point[0], q.type, i.array.dims, None)
        return self._make(f"{i.name}.{q.type.name}", "maximum", q.type, [data, floor])

    def _is_maximum(self, i: Instruction) -> bool:
        """Whether windows without an element are none, and the others have a maximum."""
        start = self.body[i.operands[1]]
        if simple_reducer(self.shared.by_name[i.called[0]]) != "maximum" or start.opcode != "constant":
            return False
        return bool(np.all(np.isneginf(ops.numbers(start.attributes["literal"]))))

    def _pooled(self, i: Instruction, q: Quantization, data: str) -> str:
        start = self._constant(f"{i.name}.start", q.limits[0], q.type)
        attributes = {**_plain(i), "called": (self.shared.reducer("maximum", q.type),)}
        name = f"{i.name}.{q.type.name}"
        return self._make(name, "reduce-window", q.type, [data, start], i.array.dims, **attributes)


def _widens(i: Instruction, body: Mapping[str, Instruction]) -> bool:
    """Whether an instruction gives float32 of a narrower float, which has the same value."""
    if i.opcode != "convert" or i.array.dtype is not dtypes.float32:
        return False
    return body[i.operands[0]].array.dtype.exponent_bits > 0


def _plain(i: Instruction) -> dict[str, Any]:
    return {k: v for k, v in i.attributes.items() if k != "frontend_attributes"}


def _without_dead(
    body: Mapping[str, Instruction], old: Computation, named: Container[str]
) -> tuple[Instruction, ...]:
    """The instructions without new ones that nobody reads, and without old ones that lost their only
    readers, but for those that are `named`.
    """
    read = {old.root}
    were_read = {o for i in old.instructions for o in i.operands}
    kept: list[Instruction] = []
    for i in reversed(list(body.values())):
        was_dead = i.name in named or (i.name in old.by_name and i.name not in were_read)
        if i.name in read or i.opcode == "parameter" or was_dead:
            kept.append(i)
            read.update(i.operands)
    return tuple(reversed(kept))
