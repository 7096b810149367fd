"""Graphs of ATen run node by node on arrays, traced or known."""

from __future__ import annotations

import math
import operator as python_operators
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neuronsim.arrays.array_object import Array
from neuronsim.dtypes import DType
from neuronsim.errors import (
    REFUSALS,
    InvalidModel,
    NeuronSimError,
    OutOfMemory,
    UnknownValue,
    UnsupportedOperator,
    first_few,
)
from neuronsim.frontends import lax
from neuronsim.frontends.recorder import in_scope
from neuronsim.frontends.torch import operators as _rows  # noqa: F401 (which fill the table)
from neuronsim.frontends.torch.belonging import is_tensor
from neuronsim.frontends.torch.places import Place, Places
from neuronsim.frontends.torch.table import OPERATORS, Function, Node
from neuronsim.frontends.torch.tensors import dtype_of, require_torch, to_array

# What says how memory lies, and where, which arrays here do not have.
_OF_MEMORY = frozenset(
    {"device", "generator", "layout", "memory_format", "non_blocking", "out", "pin_memory"}
)
_MISFITS = (*REFUSALS, ArithmeticError, AssertionError, LookupError)


@dataclass(frozen=True)
class Context:
    """What a program's nodes have in common: where they come from, and what precedes their names."""

    places: Places = field(default_factory=Places)
    prefix: str = ""


def _of_numbers(target: Any) -> Callable[..., Any] | None:
    """What a node calls of Python's numbers, as sizes are; None of operators of tensors."""
    module = getattr(target, "__module__", None)
    if module in ("_operator", "math", "builtins"):
        return target  # type: ignore[no-any-return]
    return _SYMBOLIC.get(getattr(target, "__name__", ""))


_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "sym_float": float, "sym_int": int, "sym_max": max, "sym_min": min, "sym_not": lambda x: not x,
    "sym_ite": lambda b, x, y: x if b else y, "sym_sum": sum, "_sym_sqrt": math.sqrt,
    "trunc": math.trunc,
}  # fmt: skip


def missing_operators(graph_module: Any) -> dict[str, list[Any]]:
    """The operators of a graph and of those inside it that have no row, and their nodes; what a
    decomposition made of one of ATen is called as that one.
    """
    found: dict[str, list[Any]] = {}
    for graph in graphs_of(graph_module):
        for n in _needed(graph):
            if n.op == "call_function" and not _is_read(_called_by(n)):
                name = str(_called_by(n))
                whole = n.meta.get("original_aten") if name.startswith("prims.") else None
                found.setdefault(str(whole or name), []).append(n)
    return found


def graphs_of(graph_module: Any) -> list[Any]:
    """The graph of a module and those of its submodules."""
    modules = (m for m in graph_module.modules() if hasattr(m, "graph"))
    return [m.graph for m in modules]


def _called_by(n: Any) -> Any:
    """The operator of a node; where export orders it among others, the one that is ordered."""
    return n.args[1] if _is_ordered(n) else n.target


def _is_read(target: Any) -> bool:
    name = str(target)
    rows = name in OPERATORS or name in HIGHER_ORDER or name in _CHECKS
    return rows or _of_numbers(target) is not None


_FASTPATH = ", which torch.backends.mha.set_fastpath_enabled(False) spells out"
_OF_DATA = ", whose result is as long as data say: use torch.where, or sums of a mask"
_WAYS = {
    "_transformer_encoder_layer_fwd": _FASTPATH,
    "_native_multi_head_attention": _FASTPATH,
    **dict.fromkeys(("masked_select", "bincount", "unique_consecutive", "_unique2"), _OF_DATA),
    "linalg_ldl_factor_ex": ", in the place of which torch.linalg.lu_factor is read",
    "flex_attention": ", which torch.nn.functional.scaled_dot_product_attention with a mask spells out",
}
_COMPLEX = " A Trn1 has no complex numbers: compute with their real and imaginary parts."


def _is_complex(n: Any) -> bool:
    """Whether a node gives or takes complex numbers."""
    values = [v for x in (n, *n.all_input_nodes) if is_tensor(v := x.meta.get("val"))]
    return any(v.dtype.is_complex for v in values)


def check_operators(graph_module: Any, places: Places) -> None:
    """Raises UnsupportedOperator that lists every operator that has no row, and where it is."""
    missing = missing_operators(graph_module)
    if not missing:
        return
    listed = []
    for name, nodes in sorted(missing.items()):
        where = list(dict.fromkeys(places.of(n).text for n in nodes))
        way = _WAYS.get(name.split(".")[1] if "." in name else name, "")
        listed.append(f"{name} ({first_few(where, 3)}){way}")
    why = _COMPLEX if any(_is_complex(n) for nodes in missing.values() for n in nodes) else ""
    raise UnsupportedOperator(
        f"the model has operators that neuronsim does not read: {'; '.join(listed)}. "
        "docs/torch_operators.md lists those that it does: write the model without them, or compute "
        f"them outside.{why}"
    )


# ---- running ---------------------------------------------------------------------------------------


def run_graph(graph_module: Any, inputs: Sequence[Any], context: Context) -> Any:
    """What a graph gives for its inputs: arrays, and numbers where it takes sizes."""
    values: dict[Any, Any] = {}
    given = iter(inputs)
    nodes = _needed(graph_module.graph)
    last_use = _last_uses(nodes)
    for n in nodes:
        if n.op == "placeholder":
            values[n] = next(given)
        elif n.op == "get_attr":
            values[n] = _attribute(graph_module, n.target)
        elif n.op == "call_function":
            values[n] = _run_node(n, values, context)
        elif n.op == "output":
            return _resolved(n.args[0], values)
        else:
            raise InvalidModel(f"{n.name}: a node {n.op!r} is none of a program of torch.export")
        for dead in last_use.get(n, ()):
            values.pop(dead, None)
    raise InvalidModel("the program has no output")


def _needed(graph: Any) -> list[Any]:
    """The inputs, and the nodes that a result depends on: what only checks of values read, as a model
    asks whether it is given as many images as places for them, would have to be known.
    """
    needed: set[Any] = set()
    for n in reversed(list(graph.nodes)):
        if n in needed or n.op in ("placeholder", "output"):
            needed |= {n, *n.all_input_nodes}
    return [n for n in graph.nodes if n in needed]


def _last_uses(nodes: Sequence[Any]) -> dict[Any, list[Any]]:
    """Which values nobody reads after each node."""
    found: dict[Any, list[Any]] = {}
    seen: set[Any] = set()
    for n in reversed(nodes):
        for read in n.all_input_nodes:
            if read not in seen:
                seen.add(read)
                found.setdefault(n, []).append(read)
    return found


def _attribute(graph_module: Any, path: str) -> Any:
    found = graph_module
    for part in path.split("."):
        found = getattr(found, part)
    return to_array(found) if is_tensor(found) else found


def _resolved(x: Any, values: Mapping[Any, Any]) -> Any:
    """An argument: values in the place of nodes, types in that of PyTorch's."""
    torch = require_torch()
    if isinstance(x, torch.fx.Node):
        return values[x]
    if isinstance(x, torch.dtype):
        return dtype_of(x)
    if isinstance(x, list | tuple):
        return [_resolved(v, values) for v in x]
    if isinstance(x, dict):
        return {k: _resolved(v, values) for k, v in x.items()}
    return x


def _types(n: Any) -> tuple[DType | None, ...]:
    """The types of a node's results, as export states them."""
    stated = n.meta.get("val")
    several = stated if isinstance(stated, list | tuple) else (stated,)
    return tuple(dtype_of(v.dtype, n.name) if is_tensor(v) else None for v in several)


def _results_read(n: Any) -> frozenset[int]:
    """Which of a node's results are read: of one that gives several, those that are taken."""
    taken = {u.args[1] for u in n.users if _is_element(u) and not all(map(_is_ordered, u.users))}
    others = any(not _is_element(u) for u in n.users)
    return frozenset(taken | ({0} if others else set()))


def _is_element(n: Any) -> bool:
    return n.target is python_operators.getitem


def _is_ordered(n: Any) -> bool:
    """Whether a node is a check, which is left out."""
    return str(n.target) == "with_effects"


def _memory(n: Any) -> tuple[tuple[int, ...], int] | None:
    """The strides and the offset of a node's first argument, as export states them in numbers."""
    first = n.args[0] if n.args else None
    stated = first.meta.get("val") if isinstance(first, require_torch().fx.Node) else None
    if stated is None or not is_tensor(stated) or stated.layout is not require_torch().strided:
        return None
    strides, offset = tuple(stated.stride()), stated.storage_offset()
    return (strides, offset) if all(isinstance(v, int) for v in (*strides, offset)) else None


def _run_node(n: Any, values: Mapping[Any, Any], context: Context) -> Any:
    args = [_resolved(a, values) for a in n.args]
    keywords = {k: _resolved(v, values) for k, v in n.kwargs.items() if k not in _OF_MEMORY}
    own = _of_numbers(n.target)
    if own is not None and not any(isinstance(a, Array) for a in args):
        return own(*args, **keywords)
    name = str(n.target)
    row = OPERATORS.get(name) or HIGHER_ORDER.get(name)
    place = context.places.of(n)
    if row is None:
        raise UnsupportedOperator(f"{place.text}: neuronsim does not read {name}")

    def run_subgraph(graph_module: Any, inputs: Sequence[Any]) -> Any:
        return run_graph(graph_module, inputs, Context(context.places, f"{context.prefix}{n.name}."))

    node = Node(name, n.name, _types(n), _results_read(n), run_subgraph, _memory(n))
    with in_scope(context.prefix + place.scope(n.name), place.metadata(name)):
        return _called(row, node, args, keywords, place)


def _called(
    row: Function, node: Node, args: Sequence[Any], keywords: Mapping[str, Any], place: Place
) -> Any:
    """What a row gives, in the type that export states."""
    try:
        found = row(node, *args, **keywords)
    except UnknownValue as error:
        error.reader = error.reader or f"{place.text} ({node.target})"
        raise
    except NeuronSimError as error:
        if place.text in str(error):
            raise
        raise type(error)(f"{place.text} ({node.target}): {error}") from error
    except MemoryError as error:
        raise OutOfMemory(f"{place.text} ({node.target}): {error}") from error
    except _MISFITS as error:
        text = f"{place.text} ({node.target}): its arguments do not fit: {error}"
        raise InvalidModel(text) from error
    if isinstance(found, Array) and node.dtypes and node.dtypes[0] not in (None, found.dtype):
        return found.astype(node.dtypes[0])
    return found


# ---- operators that run graphs ---------------------------------------------------------------------


def _cond(node: Node, predicate: Any, yes: Any, no: Any, operands: Sequence[Any] = ()) -> Any:
    run = node.run_subgraph
    assert run is not None
    if isinstance(predicate, bool):
        return run(yes if predicate else no, operands)
    return lax.cond(predicate, lambda *xs: run(yes, xs), lambda *xs: run(no, xs), *operands)


def _while_loop(
    node: Node, condition: Any, body: Any, carried: Sequence[Any], more: Sequence[Any] = ()
) -> Any:
    run = node.run_subgraph
    assert run is not None
    return lax.while_loop(
        lambda xs: _sole(run(condition, [*xs, *more])),
        lambda xs: list(run(body, [*xs, *more])),
        list(carried),
    )


def _sole(found: Any) -> Any:
    return found[0] if isinstance(found, list) else found


def _under_mode(node: Node, *arguments: Any) -> Any:
    """What a mode says comes before the graph, and changes nothing here."""
    assert node.run_subgraph is not None
    place = next(n for n, a in enumerate(arguments) if hasattr(a, "graph"))
    return node.run_subgraph(arguments[place], arguments[place + 1 :])


def _with_effects(node: Node, token: Any, check: Any, *args: Any, **keywords: Any) -> tuple[Any]:
    """What export orders by tokens are checks of values, which a program does not make: a matrix
    without a decomposition gives NaN.
    """
    return (token,)


# Checks that give nothing, which export calls by way of `with_effects`.
_CHECKS = frozenset({"aten._linalg_check_errors.default"})
HIGHER_ORDER: dict[str, Function] = {
    "cond": _cond,
    "with_effects": _with_effects,
    "while_loop": _while_loop,
    "wrap_with_set_grad_enabled": _under_mode,
    "wrap_with_autocast": _under_mode,
}
