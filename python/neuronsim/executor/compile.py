"""From a verified, planned module to steps: calls inlined, constants folded, chains grouped.

The values are those of evaluating instruction by instruction (D2): a chain rounds every result as its
instruction is typed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from neuronsim import _core, dtypes, ops
from neuronsim.executor.compilation import Compilation
from neuronsim.executor.counting import CountedLoop, counted_loops
from neuronsim.executor.diagnostics import Diagnostics, Observe
from neuronsim.executor.evaluate import evaluate_step
from neuronsim.executor.fusion import Fuser
from neuronsim.executor.grouping import chain_step, find_chains
from neuronsim.executor.known_constants import KnownConstants
from neuronsim.executor.merging import merge_chains
from neuronsim.executor.repeats import merge_repeats
from neuronsim.executor.schedule import Schedule
from neuronsim.executor.steps import (
    Action,
    Arrays,
    Call,
    Conditional,
    Count,
    Region,
    Step,
    While,
    all_steps,
    stored_bytes,
)
from neuronsim.executor.target_checks import check_target
from neuronsim.hlo.array_sources import ARRANGES, array_sources, literals, passed_on
from neuronsim.hlo.inlining import inline_calls
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    live_instructions,
)
from neuronsim.hlo.opcodes import VARIES, row, row_attributes
from neuronsim.ops import ArrayType, Bits
from neuronsim.profiles import Profile
from neuronsim.targets import Target

# A loop of at most so many trips with at most so many instructions is unrolled.
MAX_TRIPS, MAX_UNROLLED = 8, 128
# A constant expression is folded if its value is this small, or not much larger than its operands.
SMALL_ELEMENTS = 1 << 16
MAX_LINE = 1 << 21  # elements of an iota


def compile_module(
    module: Module,
    profile: Profile,
    target: Target,
    *,
    op_by_op: bool = False,
    known: KnownConstants | None = None,
) -> Schedule:
    """The schedule of a verified module; `op_by_op` makes each instruction a step of its own, so that
    all their results can be observed. With a store `known` the schedule shares what is made of weights
    with others, and says nothing of what their conversion meets. Raises NeuronSimError for what the
    target cannot run.
    """
    flat = inline_calls(module)
    flat, repeats = (flat, {}) if op_by_op else merge_repeats(flat, profile)
    check_target(flat, target)
    counted = {} if op_by_op else counted_loops(flat)
    keeps = profile.int64 == "truncate" and _keeps_64_bits(flat)
    shared = Compilation(flat, profile, op_by_op, counted, keeps)
    if known is not None:
        shared.known, shared.shares = known, True
    entry = flat.entry_computation
    inputs = tuple((p.name, p.array.type) for p in entry.parameters)
    shared.types |= dict(inputs)
    arguments = {n: (p.name,) for n, p in enumerate(entry.parameters)}
    region = _Compiler(shared, entry, "", arguments).run()
    shared.diagnostics.repeat(repeats)
    read = {name for s in all_steps(region.steps) for name in s.reads} | set(region.results)
    return Schedule(
        inputs=inputs,
        constants={name: value for name, value in shared.constants.items() if name in read},
        steps=region.steps,
        results=tuple((name, shared.types[name]) for name in region.results),
        shape=flat.root.shape,
        profile=profile,
        isa=_core.isa(),
        again=lambda each: compile_module(module, profile, target, op_by_op=each),
        donated=_donated(flat, tuple(shared.types[name] for name in region.results)),
        opcodes={i.name: i.opcode for i in flat.instructions},
        repeats=repeats,
        keeps_64_bits=keeps,
        of_constants=shared.diagnostics,
    )


def _keeps_64_bits(module: Module) -> bool:
    """Whether an instruction gives 64-bit integers as they are, words that are no numbers (C7)."""
    return any(
        i.opcode in ops.OPCODES
        and row(i).name in ops.KEEPS_64_BITS
        and any(shape.dtype in ops.TRUNCATED for shape in i.shape.arrays())
        # A bitcast to the same type is a reshape.
        and not (i.opcode == "bitcast" and c.by_name[i.operands[0]].array.dtype is i.array.dtype)
        for c in module.computations
        for i in c.instructions
    )


def _donated(module: Module, results: Sequence[ArrayType]) -> dict[int, int]:
    """For results, by number, the parameters whose memory the module's aliases let them take."""
    found: dict[int, int] = {}
    taken: set[int] = set()
    for path, parameter, inside, _ in module.input_output_alias:
        number = path[0] if path else 0
        if len(path) > 1 or inside or number >= len(results) or parameter >= len(module.parameters):
            continue
        same = module.parameters[parameter].array.type == results[number]
        if same and parameter not in taken:
            taken.discard(found.get(number, -1))
            found[number] = parameter
            taken.add(parameter)
    return found


_RESHAPE = ops.by_opcode("reshape", {})
# What operations of bools leave as it is.
_NEUTRAL = {"bitwise_and": True, "bitwise_or": False}

# A loop with one of these has trips: what they do depends on the trip's number, or they are long.
_STAYS = VARIES | {"while", "conditional", "custom-call", "dot", "convolution"}


class _Compiler:
    """The steps of one computation whose parameters are these arrays."""

    def __init__(
        self,
        shared: Compilation,
        computation: Computation,
        prefix: str,
        arguments: Mapping[int, tuple[str, ...]],
    ) -> None:
        self.shared, self.profile = shared, shared.profile
        self.constants, self.types = shared.constants, shared.types
        self.computation, self.prefix, self.arguments = computation, prefix, arguments
        self.sources = array_sources(computation)
        self.values: dict[str, tuple[str, ...]] = {}  # the arrays of each instruction
        self.steps: list[Step] = []

    def run(self, changing: Sequence[str] = ()) -> Region:
        """The computation as a region; of a loop's body `changing` are the arrays that trips change."""
        c = self.computation
        live = live_instructions(c)
        chains = {} if self.shared.op_by_op else find_chains(c, self.shared, live)
        for i in c.instructions:
            if i.name in live:
                self._add(i, chains)
        results = self.values[c.root]
        steps = self.steps
        if not self.shared.op_by_op:
            steps = Fuser(self.shared, steps, results, in_loop=bool(changing)).run()
            steps = merge_chains(steps, results, self.profile, changing)
        return Region(tuple(steps), results)

    def _add(self, i: Instruction, chains: Mapping[str, Sequence[Instruction]]) -> None:
        if i.opcode in ARRANGES:
            self.values[i.name] = tuple(self.values[s.name][n] for s, n in self.sources[i.name])
            return
        operands = [self.values[o] for o in i.operands]
        match i.opcode:
            case "parameter":
                self.values[i.name] = self.arguments[int(i.attributes["number"])]
            case "constant":
                self._add_constants(i)
            case "while":
                self._add_while(i, _joined(operands))
            case "conditional":
                self._add_conditional(i, operands)
            case _:
                self._add_operation(i, _joined(operands), chains)

    def _define(self, i: Instruction) -> Arrays:
        """Names and types of the arrays that an instruction gives."""
        name = f"{self.prefix}{i.name}"
        if isinstance(i.shape, Shape):
            pairs: Arrays = ((name, i.shape.type),)
        else:
            pairs = tuple((f"{name}#{n}", s.type) for n, s in enumerate(i.shape.arrays()))
        self.types |= dict(pairs)
        self.values[i.name] = tuple(n for n, _ in pairs)
        return pairs

    def _add_constants(self, i: Instruction) -> None:
        for (name, _), value in zip(self._define(i), literals(i.attributes["literal"]), strict=True):
            self.constants[name] = value
            if self.profile.int64 == "truncate":
                self.constants[name], changed = ops.truncate_constant(value)
                if changed:
                    self.shared.diagnostics.add_count("int64_truncated", i.name, changed)

    def _add_operation(
        self, i: Instruction, operands: tuple[str, ...], chains: Mapping[str, Sequence[Instruction]]
    ) -> None:
        results = self._define(i)
        attributes = row_attributes(self.shared.module, i)
        call = Call(row(i), attributes, i.result, self.shared.profile_of(i))
        if not self.shared.op_by_op and self._is_operand(call, operands):
            call, operands = replace(call, op=_RESHAPE, attributes={}), operands[:1]
        step = self._step(i, call, operands, results)
        if self._folds(i, step, call.profile):
            self._fold(step)
        elif i.name not in chains:
            self.steps.append(step)
        elif chains[i.name][-1] is i:
            self.steps.append(chain_step(self.computation, chains[i.name], self.values, self.shared))

    def _is_operand(self, call: Call, operands: tuple[str, ...]) -> bool:
        """Whether a reduction gives its operand: the and of single bools with true, by which JAX asks
        whether an index of one number is inside, or the or with false.
        """
        initial = _NEUTRAL.get(call.attributes.get("reducer", ""))
        if call.op.name != "reduce" or initial is None or len(operands) != 2:
            return False
        t, start = self.types[operands[0]], self.constants.get(operands[1])
        is_bool = t.dtype is dtypes.boolean and start is not None and start.data.item() is initial
        return is_bool and all(t.dims[d] == 1 for d in call.attributes["dimensions"])

    def _step(self, i: Instruction, action: Action, operands: tuple[str, ...], results: Arrays) -> Step:
        return Step(i.name, self.computation.name, action, operands, results, (i.name,))

    def _folds(self, i: Instruction, step: Step, profile: Profile) -> bool:
        if i.opcode in VARIES or any(o not in self.constants for o in step.operands):
            return False
        if i.opcode == "broadcast":
            return True  # a view
        if i.opcode == "iota":  # a view of a line
            return step.results[0][1].size == 0 or max(i.array.dims) <= MAX_LINE
        if profile.rounding == "stochastic":
            return False  # each call draws its own words (S2)
        held = sum(stored_bytes(self.constants[o]) for o in step.operands)
        size = sum(t.size for _, t in step.results)
        bytes_ = sum(t.nbytes for _, t in step.results)
        return size <= SMALL_ELEMENTS or bytes_ <= 2 * held

    def _fold(self, step: Step) -> None:
        arrays = [self.constants[o] for o in step.operands]
        call = step.action
        is_convert = isinstance(call, Call) and call.op.opcode == "convert"
        if is_convert and self.shared.shares and arrays[0].dtype.kind == "float":
            what = ("convert", step.results[0][1].dtype, self.shared.profile)
            self.constants[step.output] = self.shared.known.of(
                what, arrays[0], lambda: self._folded(step, arrays)[0]
            )
            return
        for (name, _), value in zip(step.results, self._folded(step, arrays), strict=True):
            self.constants[name] = value

    def _folded(self, step: Step, arrays: Sequence[Bits]) -> Sequence[Bits]:
        observe: Observe = "full" if self.shared.op_by_op else "counts"
        setting = ops.Setting(self.profile)
        found = evaluate_step(step, arrays, setting, self.shared.diagnostics, observe=observe)
        for value in found:
            value.data.flags.writeable = False
        return found

    def _add_while(self, i: Instruction, initial: tuple[str, ...]) -> None:
        unrolled = self._unrolled(i, initial)
        if unrolled is not None:
            self.steps += unrolled.steps
            self.values[i.name] = unrolled.results
            return
        body, condition = (self.shared.module.by_name[name] for name in i.called)
        counted = self.shared.counted.get(i.name)
        if counted is not None:
            body = counted.body
        results = self._define(i)
        kept = passed_on(body, array_sources(body))
        carried = [n for n in range(len(initial)) if n not in kept]
        # What the body only passes on is the same array in every trip.
        arrays = [x if n in kept else results[n][0] for n, x in enumerate(initial)]
        self.values[i.name] = tuple(arrays)
        path = f"{self.prefix}{i.name}/"
        states = tuple(results[n][0] for n in carried)
        counters: list[str] = []
        if counted is None:
            compiler = _Compiler(self.shared, condition, f"{path}{condition.name}/", {0: tuple(arrays)})
            asked: Region | Count = replace(compiler.run(), parameters=states)
        else:
            asked = self._count(i, counted, results, path)
            counters = [name for name, *_ in asked.counters]
            for n, name in zip(counted.counters, counters, strict=True):
                arrays[n] = name
        inner = _Compiler(self.shared, body, f"{path}{body.name}/", {0: tuple(arrays)})
        region = inner.run((*states, *counters))
        given_on = tuple(region.results[n] for n in carried)
        action = While(asked, Region(region.steps, given_on, states))
        starts = tuple(initial[n] for n in carried)
        self.steps.append(self._step(i, action, starts, tuple(results[n] for n in carried)))

    def _count(self, i: Instruction, loop: CountedLoop, results: Arrays, path: str) -> Count:
        """The counters of a loop; the values that they end with are constants."""
        arrays, counters = list(self.values[i.name]), []
        for n, (start, step) in loop.counters.items():
            last, t = results[n]
            number = np.array(start + loop.trips * step, t.dtype.numpy)
            self.constants[last] = Bits(np.full(t.dims, number).view(t.dtype.storage), t.dtype)
            arrays[n], name = last, f"{path}counter#{n}"
            self.types[name] = t
            counters.append((name, t, start, step))
        self.values[i.name] = tuple(arrays)
        return Count(loop.trips, tuple(counters))

    def _unrolled(self, i: Instruction, initial: tuple[str, ...]) -> Region | None:
        """The trips of a loop one after the other, if they are few, known and short: of each other's
        chains they make one, and what they compute of the trip's number is folded.
        """
        body, condition = (self.shared.module.by_name[name] for name in i.called)
        if self.shared.op_by_op or not self._unrolls(body):
            return None
        arrays, steps = initial, list[Step]()
        met = Diagnostics()  # which counts only if the loop is unrolled to its end

        def run(c: Computation, trip: int) -> Region:
            shared = replace(self.shared, diagnostics=Diagnostics())
            path = f"{self.prefix}{i.name}/{trip}/{c.name}/"
            region = _Compiler(shared, c, path, {0: arrays}).run()
            met.add(shared.diagnostics.without(_of_constants(c) if trip else frozenset()))
            return region

        for trip in range(MAX_TRIPS + 1):
            goes_on = self.constants.get(run(condition, trip).results[0])
            if goes_on is None:
                return None
            if not goes_on.data.any():
                self.shared.diagnostics.add(met)
                return Region(tuple(steps), arrays)
            region = run(body, trip)
            arrays = region.results
            steps += region.steps
        return None

    def _unrolls(self, body: Computation) -> bool:
        """Whether a loop's body is short, and no trip has random words of its own (S2)."""
        own = (c for i in body.instructions if i.called for c in i.called)
        others = [self.shared.module.by_name[name] for name in own]
        return (
            len(body.instructions) <= MAX_UNROLLED
            and self.profile.rounding == "nearest_even"
            and not any(i.opcode in _STAYS for i in body.instructions)
            and all(self.shared.profile_of(i) is self.profile for i in body.instructions)
            and all(self._unrolls(c) for c in others)
        )

    def _add_conditional(self, i: Instruction, operands: Sequence[tuple[str, ...]]) -> None:
        results = self._define(i)
        branches = []
        for n, name in enumerate(i.called):
            branch = self.shared.module.by_name[name]
            prefix = f"{self.prefix}{i.name}/{n}.{name}/"
            arguments = {0: operands[n + 1]} if branch.parameters else {}
            branches.append(_Compiler(self.shared, branch, prefix, arguments).run())
        self.steps.append(self._step(i, Conditional(tuple(branches)), operands[0], results))


def _of_constants(c: Computation) -> frozenset[str]:
    """The instructions of constants alone, which the trips of an unrolled loop have in common."""
    found = set[str]()
    for i in c.instructions:
        if i.opcode != "parameter" and all(o in found for o in i.operands):
            found.add(i.name)
    return frozenset(found)


def _joined(operands: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The arrays of all operands."""
    return tuple(name for names in operands for name in names)
