"""What JAX lowers, as modules; what it has no rule for, by name and by the user's line."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from neuronsim.errors import InvalidArgument, InvalidModel, UnsupportedOperator
from neuronsim.frontends.jax.belonging import FAMILY
from neuronsim.frontends.jax.stablehlo import computation
from neuronsim.hlo import proto
from neuronsim.hlo.module import Module

PLATFORM = "neuron"
_BY_LAPACK = ", or compile jax.jit(f).lower(...) for target 'host', which JAX lowers for a CPU"
# What runs on the host or is written for one kind of device, and how to do without.
_ELSEWHERE = {
    "pallas_call": "a kernel of Pallas for GPUs and TPUs: call the function of arrays that it is",
    "debug_print": "jax.debug.print: leave it out, or return the values",
    "debug_callback": "jax.debug.callback: leave it out, or return the values",
    "io_callback": "a call of Python on the host: return the values and call it outside",
    "pure_callback": "a call of Python on the host: write it in jax.numpy, or call it outside",
    "eigh": f"eigenvalues: compute them on the host{_BY_LAPACK}",
    "eig": f"eigenvalues: compute them on the host{_BY_LAPACK}",
    "svd": f"a singular value decomposition: compute it on the host{_BY_LAPACK}",
    "schur": "a Schur decomposition: compute it on the host",
    "hessenberg": "a Hessenberg decomposition: compute it on the host",
    "tridiagonal": "a tridiagonal decomposition: compute it on the host",
}


def trace(jax: Any, jitted: Any, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """What JAX traces of a jitted function, or lowers at once where it cannot do one without the other.

    Raises InvalidModel for a function whose steps depend on the values of its arrays, InvalidArgument
    for an argument that is no array.
    """
    of_values = (
        *(jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError),
        *(jax.errors.TracerArrayConversionError, jax.errors.TracerIntegerConversionError),
    )
    step = jitted.trace if hasattr(jitted, "trace") else jitted.lower
    try:
        return step(*args, **keywords)
    except of_values as error:
        first = str(error).partition("\n")[0]
        raise InvalidModel(
            f"{users_line(error)}the function needs the values of an array that JAX traces, which are "
            f"known when the program runs and not before: use jnp.where, jax.lax.cond or "
            f"jax.lax.while_loop, or make the argument static; {first}"
        ) from error
    except TypeError as error:
        said = ("not a valid JAX type", "Error interpreting argument", "Non-hashable static")
        if any(text in str(error) for text in said):
            first = str(error).partition("\n")[0]
            raise InvalidArgument(f"{first}: give arrays, numbers, or pytrees of them") from error
        raise


def lower(traced: Any, platforms: Sequence[str] = (PLATFORM,)) -> Any:
    """What JAX lowers of what it traced. Raises UnsupportedOperator with all of what it has no rule
    for, and where that is.
    """
    if not hasattr(traced, "lower"):
        return traced
    try:
        return traced.lower(lowering_platforms=tuple(platforms))
    except (NotImplementedError, ValueError) as error:
        named = re.search(r"primitive '([\w-]+)'", str(error))
        missing = {named.group(1)} if named else set()
        places = list(_places(traced.jaxpr, missing | set(_ELSEWHERE)))
        if not places:
            raise UnsupportedOperator(f"JAX cannot lower the function: {error}") from error
        listed = "; ".join(dict.fromkeys(f"{line}{name} ({why})" for name, line, why in places))
        raise UnsupportedOperator(
            f"JAX has operators here that no Neuron device runs: {listed}"
        ) from error


def as_module(lowered: Any, *, refine: bool = False) -> Module:
    """The module that JAX lowered; `refine` as for `stablehlo.computation`."""
    if hasattr(lowered, "runtime_executable"):  # compiled
        (compiled,) = lowered.runtime_executable().hlo_modules()
        return proto.from_bytes(compiled.as_serialized_hlo_module_proto())
    buffer = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(buffer)
    made = computation(buffer.getvalue(), refine=refine)
    return proto.from_bytes(made.as_serialized_hlo_module_proto())


def users_line(error: BaseException) -> str:
    """The innermost line of an error that is not in a library of JAX's, as `file:line: `."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        root = frame.f_globals.get("__name__", "").partition(".")[0]
        if root not in FAMILY | {"neuronsim"}:
            found = f"{Path(frame.f_code.co_filename).name}:{line}: "
    return found


def _places(jaxpr: Any, names: set[str], outer: str = "") -> Iterator[tuple[str, str, str]]:
    """The equations of these primitives in a jaxpr and in those inside it: the primitive, the user's
    line, and what it is. A jaxpr of a library's own function has the line that calls it, `outer`.
    """
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name, line = equation.primitive.name, _line_of(equation) or outer
        if name in names:
            yield name, line, _ELSEWHERE.get(name, "it has no rule for such devices")
            continue
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                    yield from _places(inner, names, line)


def _line_of(equation: Any) -> str:
    found = equation.source_info.traceback
    frames = traceback.extract_tb(found.as_python_traceback()) if found is not None else []
    libraries = [
        os.path.dirname(m.__file__) + os.sep
        for n in (*FAMILY, "neuronsim")
        if (m := sys.modules.get(n)) is not None and m.__file__
    ]
    for frame in reversed(frames):
        if not frame.filename.startswith(tuple(libraries)):
            return f"{Path(frame.filename).name}:{frame.lineno}: "
    return ""
