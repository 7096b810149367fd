"""Modules and functions of tensors as programs of torch.export, decomposed as far as the table of
operators asks.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import operator
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neuronsim.errors import InvalidArgument, NeuronSimError, UnsupportedOperator, UnsupportedType
from neuronsim.frontends.torch import operators as _rows  # noqa: F401 (which fill the table)
from neuronsim.frontends.torch.belonging import is_module, is_tensor
from neuronsim.frontends.torch.caches import register_caches
from neuronsim.frontends.torch.places import Places, users_line_of
from neuronsim.frontends.torch.result_shapes import knowing_shapes
from neuronsim.frontends.torch.silence import is_of_torch, quietly
from neuronsim.frontends.torch.structures import leaves_of
from neuronsim.frontends.torch.table import OPERATORS
from neuronsim.frontends.torch.tensors import part_of_torch, require_torch
from neuronsim.frontends.torch.value_checks import without_value_checks


class DataDependent(NeuronSimError):
    """A model's Python asks for the values of tensors, which are known when it runs and not before."""


class _Anchors(frozenset[tuple[str, str]]):
    """Frames of a stack that PyTorch keeps beside those of `forward`: all of some files."""

    files: frozenset[str] = frozenset()

    def __contains__(self, frame: object) -> bool:
        return super().__contains__(frame) or (isinstance(frame, tuple) and frame[0] in self.files)


@contextlib.contextmanager
def _telling_lines(model: Any) -> Iterator[None]:
    """With the lines of functions in the files of a model's classes, or of the function that it is:
    PyTorch tells by itself those of methods `forward` alone.
    """
    proxies = part_of_torch("fx.proxy")
    before = getattr(proxies, "_STACK_TRACE_ANCHORS", None)
    if before is None:  # a PyTorch that tells other lines
        yield
        return
    anchors = _Anchors(before)
    anchors.files = frozenset(_files_of(model))
    proxies._STACK_TRACE_ANCHORS = anchors
    try:
        yield
    finally:
        proxies._STACK_TRACE_ANCHORS = before


def _files_of(model: Any) -> Iterator[str]:
    """Those that the classes of a model's modules, or a function, are written in."""
    written = [type(m) for m in model.modules()] if is_module(model) else [inspect.unwrap(model)]
    for x in dict.fromkeys(written):
        if not is_of_torch(getattr(x, "__module__", None) or ""):
            with contextlib.suppress(TypeError, OSError):  # of C, or typed in
                yield inspect.getfile(x)


def export(
    model: Any, args: Sequence[Any], keywords: Mapping[str, Any] | None = None
) -> tuple[Any, Places]:
    """The program of a module, or of a function of tensors, for example arguments, decomposed; and
    where its nodes come from.

    Raises UnsupportedOperator for what torch.export does not trace, DataDependent where Python asks for
    a tensor's values, each at the line of the user's.
    """
    torch = require_torch()
    if isinstance(model, torch.jit.ScriptModule):
        raise UnsupportedOperator(
            f"{type(model).__name__} is TorchScript, whose source torch.export does not trace: give "
            "the torch.nn.Module that it was made of"
        )
    module = model if is_module(model) else _wrapped(model)
    register_caches(model)
    args, keywords = _apart((tuple(args), dict(keywords or {})))
    said = io.StringIO()  # PyTorch prints the whole graph of an export that fails
    try:
        with _tracing(), contextlib.redirect_stderr(said), _telling_lines(model):
            program = torch.export.export(module, args, keywords, strict=False)
            found = None if _is_without_arguments(program) else _decomposed(program)
        sys.stderr.write(said.getvalue())
    except Exception as error:
        if not _differentiates(error):
            raise _refusal(error, model) from error
        found = None
    return found or decomposed(_export_step(model, args, keywords))


@contextlib.contextmanager
def _tracing() -> Iterator[None]:
    """While PyTorch traces: without what it says and what it checks, with the shapes that it does not
    know, and leaving no transform of functions open.
    """
    with quietly(), knowing_shapes(), without_value_checks(), _closing_transforms():
        yield


@contextlib.contextmanager
def _closing_transforms() -> Iterator[None]:
    """With the levels of `torch.func` closed that a trace which fails leaves open: any other export
    would be taken for a part of that one.
    """
    levels = part_of_torch("_C._functorch")
    forward = part_of_torch("autograd.forward_ad")
    depth, level = levels.get_dynamic_layer_stack_depth(), forward._current_level
    try:
        yield
    except BaseException:
        levels.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if level < 0:  # that of the C++ is not always that of the Python
            with contextlib.suppress(RuntimeError):  # none is open
                part_of_torch("_C")._exit_dual_level(level=0)
            forward._current_level = level
        raise


def _apart(arguments: Any) -> Any:
    """Arguments with a tensor of its own in each place: one that stands in two, or that the model has
    otherwise too, torch.export takes for one value.
    """
    torch = require_torch()

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return x.detach().requires_grad_(x.requires_grad) if x.is_leaf else x.view_as(x)

    return part_of_torch("utils._pytree").tree_map(own, arguments)


def _wrapped(function: Any) -> Any:
    """A function of tensors as a module."""
    torch = require_torch()

    class Wrapped(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, *args: Any, **keywords: Any) -> Any:
            return function(*args, **keywords)

    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(function)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        names = signature.parameters.values()
        first = [
            p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.kind is p.POSITIONAL_ONLY else p for p in names
        ]
        Wrapped.forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own.replace(kind=own.POSITIONAL_OR_KEYWORD), *first]
        )
    Wrapped.__name__ = getattr(function, "__name__", "function")
    return Wrapped()


def with_aliases(module: Any, aliases: Mapping[Any, int]) -> Any:
    """The module with parameters or buffers that take the values of results, by their numbers, after
    each call; those are then no results. A sole result that is left is returned as it is.

    Raises InvalidArgument for tensors that are none of the module's, and numbers that are no result's.
    """
    owned = [*module.named_parameters(), *module.named_buffers()] if is_module(module) else []
    names = {name: n for t, n in aliases.items() for name, own in owned if own is t}
    if len(names) != len(aliases):
        raise InvalidArgument(
            "input_output_aliases: each tensor is a parameter or a buffer of the module that is traced"
        )
    run = module.forward

    @functools.wraps(run)
    def forward(*args: Any, **keywords: Any) -> Any:
        results = leaves_of(run(*args, **keywords))
        for name, number in names.items():
            if number not in range(len(results)):
                raise InvalidArgument(
                    f"input_output_aliases: {number!r} is none of the results 0 to {len(results) - 1}"
                )
            operator.attrgetter(name)(aliased).detach().copy_(results[number])
        left = [x for n, x in enumerate(results) if n not in aliases.values()]
        return left[0] if len(left) == 1 else tuple(left)

    aliased = copy.copy(module)  # which has the same parameters and buffers
    aliased.forward = forward
    return aliased


def _is_without_arguments(program: Any) -> bool:
    """Whether torch.export wrote a gradient down with the examples in the place of the arguments, as
    tensors that are no more: some of its decompositions crash on those.
    """
    is_wrapped = part_of_torch("_C._functorch").is_functorch_wrapped_tensor
    return any(is_wrapped(t) for t in program.constants.values() if is_tensor(t))


def _differentiates(error: Exception) -> bool:
    """Whether torch.export failed at gradients that the model itself takes, which it does not trace."""
    text = str(error)
    return any(
        phrase in text
        for phrase in (
            "fake tensor in the exported program constant's list",
            "TensorWrapper",
            "data pointer of Tensor that doesn't have storage",
            "view functorch tensor",
            "functorch transforms",
            "torch.func",
            "does not require grad",
            "has no attribute 'constant'",
            "Nested forward mode AD",
        )
    )


def _export_step(model: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """The program of a step that takes gradients: traced by make_fx with its parameters as arguments,
    and exported as the graph of operators that it is, forward and backward.
    """
    torch = require_torch()
    make_fx = part_of_torch("fx.experimental.proxy_tensor").make_fx
    if keywords:
        raise InvalidArgument("a step that takes gradients is given its arguments by position")
    state: dict[str, Any] = {}
    if is_module(model):
        named = (*model.named_parameters(), *model.named_buffers())
        state = {name: t.detach().clone().requires_grad_(t.requires_grad) for name, t in named}

    def run(state: Any, *given: Any) -> Any:
        if not is_module(model):
            return model(*given)
        # A step may update its parameters in place: what it is called with stays as it is.
        return torch.func.functional_call(model, state, given)

    try:
        exporting = part_of_torch("_export.utils")._compiling_state_context()  # as models ask
        attention = part_of_torch("nn.attention")
        products = attention.sdpa_kernel(attention.SDPBackend.MATH)  # not one fused operator
        with _tracing(), exporting, products:
            traced = make_fx(run, tracing_mode="real")(state, *args)
            return torch.export.export(_holding(traced, state), tuple(args), strict=False)
    except Exception as error:
        raise _refusal(error, model) from error


def _holding(traced: Any, state: Mapping[str, Any]) -> Any:
    """A traced graph as a module that has its first argument, a dict of parameters."""
    torch = require_torch()

    class Step(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.traced = traced
            for name, t in state.items():
                self.register_buffer(_flat(name), t.detach())

        def forward(self, *given: Any) -> Any:
            return self.traced({name: getattr(self, _flat(name)) for name in state}, *given)

    return Step()


def _flat(name: str) -> str:
    return name.replace(".", "__")


# ---- errors ----------------------------------------------------------------------------------------

_BY_VALUES = re.compile(
    r"data-dependent|Could not guard on|GuardOnDataDependent|unbacked|_local_scalar_dense|"
    r"value that depends on tensor|Tensor.item|is not tracked with proxy|but got FakeTensor",
    re.IGNORECASE,
)
_UNKNOWN_STRUCTURE = re.compile(r"(Found|Unsupported input type) <class '([^']+)'>")


def _refusal(error: Exception, model: Any) -> NeuronSimError:
    """The error of ours for one of torch.export: at the user's line, with the first thing it says."""
    if isinstance(error, NeuronSimError):
        return error
    text = str(error)
    stack = "".join(traceback.format_tb(error.__traceback__))
    file, line = users_line_of(stack)
    inner = users_line_of(text)
    file, line = inner if inner[1] else (file, line)
    where = f"{file.rpartition('/')[2]}:{line}: " if line else ""
    name = getattr(model, "__name__", type(model).__name__)
    said = next((s.strip() for s in text.splitlines() if s.strip()), type(error).__name__)
    if _BY_VALUES.search(f"{type(error).__name__} {text}"):
        if f"quantization{os.sep}fake_quantize.py" in stack:
            return DataDependent(
                f"{where}{name} has modules FakeQuantize, whose Python asks a tensor whether they "
                "observe: prepare the model with FusedMovingAvgObsFakeQuantize, as "
                "get_default_qat_qconfig does"
            )
        return DataDependent(
            f"{where}{name} asks for the values of a tensor, or takes a shape from them; they are "
            f"known when the program runs and not before ({said}): use torch.where or torch.cond, or a "
            "size that does not depend on data"
        )
    unknown = _UNKNOWN_STRUCTURE.search(text)
    if unknown:
        verb, kind = "gives" if unknown[1] == "Found" else "takes", unknown[2].rpartition(".")[2]
        return UnsupportedType(
            f"{where}{name} {verb} an object of {kind}, and PyTorch does not know which tensors that "
            f"holds: say it by torch.export.register_dataclass({kind}) of a dataclass, by "
            "torch.utils._pytree.register_pytree_node of another class, or use tuples and dicts"
        )
    if "torch.classes.quantized" in text:
        return UnsupportedOperator(
            f"{where}{name} has weights that torch.ao packed as it quantized them, which torch.export "
            "does not trace: give the model of before, and quantize it (neuronsim.quantize, torchao)"
        )
    if "data is not allocated" in text and "ctc_loss" in stack:
        return UnsupportedOperator(
            f"{where}torch.export does not trace {name}: a mean of ctc_loss by lengths that are lists: "
            "give input_lengths and target_lengths as tensors"
        )
    if isinstance(error, TypeError) and ("argument" in text or "positional" in text):
        return InvalidArgument(f"{where}{name}: {said}")
    return UnsupportedOperator(f"{where}torch.export does not trace {name}: {said}")


# ---- decompositions --------------------------------------------------------------------------------


def decomposed(program: Any) -> tuple[Any, Places]:
    """The program in operators that have rows, as far as PyTorch has decompositions of the others: what
    has a row stays. With where its inner nodes come from.
    """
    try:
        with _tracing():
            return _decomposed(program)
    except Exception as error:
        raise _refusal(error, program) from error


def _decomposed(program: Any) -> tuple[Any, Places]:
    places = Places.of_program(program.graph_module)
    with _views_that_copy(program.graph_module):
        try:
            found = program.run_decompositions(decompositions())
        except Exception:
            # One of those that PyTorch does not use by itself fails: without them the model is read, or
            # it can be said what of it is not.
            found = program.run_decompositions(_without_rows(_default_decompositions()))
    _name_parts(found.graph_module)
    return found, places


def _name_parts(graph_module: Any) -> None:
    """Has the graphs call `real` and `imag` what export spells as an element of the view of both."""
    aten = require_torch().ops.aten
    parts = aten.real.default, aten.imag.default
    for graph in (m.graph for m in graph_module.modules() if hasattr(m, "graph")):
        for n in graph.nodes:
            if n.target is not aten.select.int or n.args[0].target is not aten.view_as_real.default:
                continue
            whole, axis, place = n.args
            if axis in (-1, whole.meta["val"].ndim - 1):
                n.target, n.args = parts[place], whole.args


@contextlib.contextmanager
def _views_that_copy(graph_module: Any) -> Iterator[None]:
    """A program's views as reshapes, which copy where a decomposition leaves elements in another order
    than the operator that it spells out.
    """
    aten = require_torch().ops.aten
    graphs = [m.graph for m in graph_module.modules() if hasattr(m, "graph")]
    views = [n for g in graphs for n in g.nodes if n.target is aten.view.default]
    for n in views:
        n.target = aten.reshape.default
    try:
        yield
    finally:
        for n in views:
            n.target = aten.view.default


def _default_decompositions() -> dict[Any, Any]:
    return dict(require_torch().export.default_decompositions())


def _without_rows(found: Mapping[Any, Any]) -> dict[Any, Any]:
    return {t: f for t, f in found.items() if str(t) not in OPERATORS}


# What makes a tensor that Python wrote down one of the graph: spelled out it would run on that one.
_LIFTING = frozenset({"aten.lift.default", "aten.lift_fresh.default"})


def decompositions() -> dict[Any, Any]:
    """PyTorch's own decompositions of operators that have no row."""
    found = _default_decompositions()
    for target, function in part_of_torch("_decomp").decomposition_table.items():
        if hasattr(target, "_schema") and target not in found and str(target) not in _LIFTING:
            found[target] = function
    return _without_rows(found)
