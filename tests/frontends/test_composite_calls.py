"""Rows without an opcode as composite calls: the row runs here, the body in XLA, to the same values."""

from __future__ import annotations

import inspect
from typing import Any

import numpy
import pytest

import neuronsim as np
from neuronsim import api
from neuronsim.frontends.composite_calls import FORMULAS, with_composite_calls, with_rows
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent

X = numpy.linspace(-3, 3, 24, dtype="f4").reshape(4, 6)
Y = numpy.float32(0.5) * X[::-1] + 1
NORMS = {
    "softmax": lambda x: np.nn.softmax(x, axis=0),
    "log_softmax": lambda x: np.nn.log_softmax(x),
    "layer_norm": lambda x: np.nn.layer_norm(x, np.asarray(Y[0]), np.asarray(Y[1])),
    "rms_norm": lambda x: np.nn.rms_norm(x, np.asarray(Y[0])),
    "var": lambda x: np.var(x, axis=(0, 1), correction=1),
    "mean in bfloat16": lambda x: np.mean(x.astype("bfloat16"), axis=1).astype("float32"),
}


def function_of(name: str) -> Any:
    """A function that is one row; logarithms are of positive numbers."""
    if name in NORMS:
        return NORMS[name]
    count = len(inspect.signature(FORMULAS[name]).parameters)

    def call(x: Any) -> Any:
        from neuronsim.frontends.primitives import apply

        first = np.abs(x) + 0.1 if name.startswith("log") and count == 1 else x
        found = apply(name, *(first, np.asarray(Y))[:count])
        return found.astype("float32")

    return call


def module_of(name: str) -> Any:
    return api.read_model(function_of(name), api.ModelInputs(example_args=(X,), composites="kept"))


def composites_of(module: Any) -> list[str]:
    found = [i for c in module.computations for i in c.instructions if i.attributes.get("is_composite")]
    return [i.attributes["frontend_attributes"]["composite.name"] for i in found]


def custom_calls(module: Any) -> list[Any]:
    entry = module.entry_computation
    return [i.attributes for i in entry.instructions if i.opcode == "custom-call"]


@pytest.mark.parametrize("name", [*FORMULAS, *NORMS])
def test_the_row_runs_here_and_the_body_elsewhere(name: str) -> None:
    pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")
    from tests.executor.xla import execute

    module = module_of(name)
    written = with_composite_calls(module)
    assert composites_of(written) == [f"neuronsim.{name.split()[0]}"]
    verify(written)
    expected = np.asarray(api.compile(module, auto_cast="none")(X))
    for read in (proto.from_bytes(proto.to_bytes(written)), parse.from_text(text.to_text(written))):
        assert composites_of(read) == composites_of(written)
        assert custom_calls(with_rows(read)) == custom_calls(module)
        assert np.asarray(api.compile(read, auto_cast="none")(X)).tolist() == expected.tolist()
    (elsewhere,) = execute(written, [np.asarray(X).bits])
    numpy.testing.assert_allclose(elsewhere, numpy.asarray(expected), 1e-5, 1e-6)


def test_a_composite_of_jax_that_names_a_row_runs_it() -> None:
    jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `jax`)")

    def softplus(x: Any) -> Any:
        return x * 0  # which is not what the row gives

    row = jax.lax.composite(softplus, name="neuronsim.softplus")
    found = np.compile(lambda x: row(x) + 1, X, auto_cast="none")(X)
    assert np.asarray(found).tolist() == (np.softplus(np.asarray(X)) + 1).tolist()
    for name in ("neuronsim.softmax", "neuronsim.nothing", "neuronsim.add", "my.softplus"):
        other = jax.lax.composite(softplus, name=name)  # of other attributes, or none of the rows
        assert not np.asarray(np.compile(lambda x, f=other: f(x) + 0, X, auto_cast="none")(X)).any()


def test_what_plans_cast_stays_cast_in_the_file() -> None:
    program = np.compile(NORMS["softmax"], X, composites="kept", auto_cast="all")
    written = with_composite_calls(program.module)
    assert composites_of(written) == ["neuronsim.softmax"]
    body = next(c for c in written.computations if c.name.startswith("neuronsim.softmax"))
    both = body.parameters[0], body.by_name[body.root]
    assert [i.array.dtype.name for i in both] == ["bfloat16", "bfloat16"]
    read = api.compile(written, auto_cast="none")
    assert np.asarray(read(X)).tolist() == np.asarray(program(X)).tolist()


def test_a_module_without_rows_of_neuronsims_is_written_as_it_is() -> None:
    module = api.read_model(lambda x: np.tanh(x) + np.nn.gelu(x), api.ModelInputs(example_args=(X,)))
    assert with_composite_calls(module) is module
    assert with_rows(module) is module
