"""The JSON documents of commands, as a report reads them: which there are, what all say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from neuronsim.errors import InvalidData

Document: TypeAlias = Mapping[str, Any]

# The documents that a report reads, by the name that stands in their `schema` before the version.
KINDS = {
    "neuronsim.tune": "tune",
    "neuronsim.blame": "blame",
    "neuronsim.observation": "observation",
    "neuronsim.cost": "cost",
    "neuronsim.graph": "graph",
}


@dataclass(frozen=True)
class Documents:
    """At most one document of each kind, and the line that made the report."""

    tune: Document = field(default_factory=dict)
    blame: Document = field(default_factory=dict)
    observation: Document = field(default_factory=dict)
    cost: Document = field(default_factory=dict)
    graph: Document = field(default_factory=dict)
    command: str = ""

    @property
    def model(self) -> str:
        """The model's name, by the first document that has one."""
        return next((str(d["model"]) for d in self.each() if d.get("model")), "model")

    def each(self) -> tuple[Document, ...]:
        """The documents that are there."""
        found = (self.graph, self.observation, self.cost, self.blame, self.tune)
        return tuple(d for d in found if d)


def gather(documents: Iterable[Document], command: str = "") -> Documents:
    """Documents by their kinds. Raises InvalidData for one that a report cannot read, for two of
    a kind, and where there is none.
    """
    found: dict[str, Document] = {}
    for d in documents:
        schema = str(d.get("schema", "")) if isinstance(d, Mapping) else ""
        kind = KINDS.get(schema.partition("/")[0])
        if kind is None:
            raise InvalidData(
                f"a report reads what tune, blame, run --observe and cost write with --json, not "
                f"{schema or 'a document without a schema'}"
            )
        if kind in found:
            raise InvalidData(f"a report reads one document of each kind, and two are of {kind}")
        found[kind] = d
    if not found:
        raise InvalidData("a report needs a document: the JSON of tune, blame, run --observe or cost")
    return Documents(**found, command=command)


def check_model(found: Documents) -> None:
    """Raises InvalidData for figures of another model than that of the graph, by their fingerprints."""
    if not found.graph:
        return
    own = found.graph.get("fingerprint")
    for d in found.each():
        if d.get("fingerprint") == own:
            continue
        raise InvalidData(
            f"the figures of {d['schema']} are of another model ({d['model']}, fingerprint "
            f"{d.get('fingerprint', 'none')}) than the one given ({found.graph['model']}, fingerprint "
            f"{own}); another batch, shape or weight is another model. Give the model as it was "
            "measured, or measure again"
        )


@contextmanager
def read_as_written(found: Documents) -> Iterator[None]:
    """What reads documents as their commands write them. Raises InvalidData where one is not so: what a
    user has in a file may be another's, or changed.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        kinds = ", ".join(str(d["schema"]) for d in found.each())
        raise InvalidData(
            f"a document that is given ({kinds}) has not the form in which its command writes it: "
            f"{type(error).__name__}: {error}"
        ) from error


def rows(d: Document, name: str) -> Sequence[Mapping[str, Any]]:
    """A document's list of records; empty where it has none."""
    found = d.get(name) or ()
    return [x for x in found if isinstance(x, Mapping)]
