"""Calls of one operator of ATen: by PyTorch, on known arrays, and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import numpy as np
import pytest

import neuronsim
from neuronsim.arrays.array_object import Array
from neuronsim.frontends.recorder import Recorder, recording
from neuronsim.frontends.torch.graph import Context, run_graph
from neuronsim.frontends.torch.tensors import to_array
from neuronsim.frontends.tracer import traced_bits, value_of

torch = pytest.importorskip("torch")


@dataclass(frozen=True)
class Case:
    """An overload by its name, its arguments, and which of its results are looked at."""

    target: str
    args: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    results: tuple[int, ...] = (0,)
    known: tuple[int, ...] = ()  # tensors, by their number, whose values must be known
    rtol: float = 1e-5
    atol: float = 1e-6

    def __str__(self) -> str:
        shown = [
            f"{str(x.dtype)[6:]}{list(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)
            for x in (*self.args, *self.keywords.values())
        ]
        return f"{self.target}({','.join(shown)})".replace(" ", "")[:120]

    @property
    def overload(self) -> Any:
        """What is called."""
        space, name, overload = self.target.split(".")
        return getattr(getattr(getattr(torch.ops, space), name), overload)

    @property
    def tensors(self) -> list[Any]:
        """The tensors among the arguments, in lists too."""
        found = []
        for x in (*self.args, *self.keywords.values()):
            found += [
                t for t in (x if isinstance(x, list | tuple) else [x]) if isinstance(t, torch.Tensor)
            ]
        return found

    def expected(self) -> list[Any]:
        """What PyTorch gives."""
        args = [x.clone() if isinstance(x, torch.Tensor) else x for x in self.args]
        found = self.overload(*args, **self.keywords)
        several = list(found) if isinstance(found, list | tuple) else [found]
        return [several[n] for n in self.results]

    def graph(self) -> Any:
        """The graph of the call, as export has it."""
        graph = torch.fx.Graph()
        nodes = {}
        for n, t in enumerate(self.tensors):
            nodes[id(t)] = graph.placeholder(f"x{n}")

        def placed(x: Any) -> Any:
            if isinstance(x, torch.Tensor):
                return nodes[id(x)]
            return [placed(v) for v in x] if isinstance(x, list | tuple) else x

        args = tuple(placed(x) for x in self.args)
        node = graph.call_function(
            self.overload, args, {k: placed(v) for k, v in self.keywords.items()}
        )
        found = self.overload(
            *(x.clone() if isinstance(x, torch.Tensor) else x for x in self.args), **self.keywords
        )
        node.meta["val"] = found
        if isinstance(found, list | tuple):
            graph.output([graph.call_function(getitem, (node, n)) for n in self.results])
        else:
            graph.output([node])
        return torch.fx.GraphModule({}, graph)

    def eager(self) -> list[Any]:
        """What the row gives for known arrays."""
        return list(run_graph(self.graph(), [to_array(t) for t in self.tensors], Context()))


def compiled(cases: Sequence[Case]) -> list[list[Any]]:
    """What the rows' instructions give, in one program without casts, on 64-bit integers as a device
    has them (C7).
    """
    recorder = Recorder("main")
    arrays, values, counts = [], [], []
    with recording(recorder):
        for case in cases:
            given: list[Any] = []
            for n, x in enumerate(map(to_array, case.tensors)):
                if n in case.known:
                    given.append(x)
                else:
                    arrays.append(x)
                    value = recorder.parameter(f"x{len(arrays)}", x.bits.type)
                    given.append(Array(traced_bits(value)))
            found = run_graph(case.graph(), given, Context())
            values += [value_of(x.bits) for x in found]
            counts.append(len(found))
        module = recorder.finish(values, as_tuple=True)
    profile = neuronsim.current_profile().replace(int64="truncate")
    program: Any = neuronsim.compile(module, auto_cast="none", target="host", profile=profile)
    result = program(*arrays)
    results = iter(result)
    return [[next(results) for _ in range(count)] for count in counts]


def check_all(case: Case, found: Sequence[Any]) -> None:
    """The results of a case as PyTorch's, whose call is in the message of what fails."""
    expected = case.expected()
    assert len(found) == len(expected), str(case)
    for x, wanted in zip(found, expected, strict=True):
        check(x, wanted, case.rtol, case.atol, str(case))


def check(found: Any, expected: Any, rtol: float, atol: float, what: str = "") -> None:
    """Equal in type and shape, and in values as nearly as said; of NaN at the same places."""
    if not isinstance(expected, torch.Tensor):
        assert found == expected, what
        return
    assert found.dtype.name == str(expected.dtype).removeprefix("torch."), what
    assert tuple(found.shape) == tuple(expected.shape), what
    wide = np.asarray(found.astype("float64") if found.dtype.kind == "float" else found)
    narrow = expected.to(torch.float64) if expected.is_floating_point() else expected
    narrow = narrow.resolve_conj().numpy()
    np.testing.assert_allclose(wide, narrow, rtol, atol, err_msg=what)
