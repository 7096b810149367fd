"""Policies as files, in TOML or JSON by their suffix (docs/policy_files.md).

>>> policy = parse_policy('''
... schema = "neuronsim.policy/1"
... name = "mine"
... base = "all/fp16"
... [[rule]]
... reason = "its sums leave float16"
... category = "never"
... operation = ["reduce-add"]
... ''', "toml")
>>> policy.low, policy.rules[0].operation
(neuronsim.float16, ('reduce-add',))
>>> parse_policy(policy_to_json(policy), "json") == policy
True
"""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from neuronsim import json_documents
from neuronsim.casting.fields import (
    KINDS,
    Kind,
    count,
    float_type,
    joined,
    magnitude,
    one_of,
    read_fields,
    read_text,
    shown,
    text,
    texts,
)
from neuronsim.casting.policies import find_policy
from neuronsim.casting.policies.operations import unknown_names
from neuronsim.casting.policies.policy import Category, Policy, Rounding, Rule
from neuronsim.casting.policies.rules import compile_regex
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidArgument, nearest
from neuronsim.processor import pinned
from neuronsim.records import readers

SCHEMA = "neuronsim.policy/1"
MAX_BYTES = 1 << 17
MAX_KEY_PARTS = 200
MAX_BASES = 16  # files that build on each other
Format: TypeAlias = Literal["toml", "json"]
_SUFFIXES: Mapping[str, Format] = {".toml": "toml", ".json": "json"}
_CATEGORIES: tuple[Category, ...] = get_args(Category)


# The numbers of operands and of results.
_Slots: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class _Lists:
    """What a file says of the lists, for every low type or for one: those that it states anew, and what
    it adds to and removes from each.
    """

    stated: Mapping[Category, tuple[str, ...]] = field(default_factory=dict)
    added: Mapping[Category, tuple[str, ...]] = field(default_factory=dict)
    removed: Mapping[Category, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Document:
    """One file: fields of the policy as it states them, and what needs its base's."""

    place: str
    folder: Path
    base: str
    fields: Mapping[str, Any]
    lists: Sequence[tuple[str, DType | None, _Lists]]  # the key, and the low type that it is for
    rules: tuple[Rule, ...]
    reasons: Mapping[str, str]
    float32_slots: Mapping[str, _Slots]


@pinned
def load_policy(source: str | Path) -> Policy:
    """The policy of a `.toml` or `.json` file, or of a name (`policies.find_policy`).

    Raises InvalidArgument with all problems: unknown keys and values with the nearest match and the
    accepted ones, by file and key; for a file that cannot be read, and for one whose base is itself.
    """
    if isinstance(source, str) and not _is_file_name(source):
        return find_policy(source)
    path = Path(source)
    problems: list[str] = []
    return _build(_read_file(path, problems), path, problems)


@pinned
def parse_policy(source: str, form: Format) -> Policy:
    """The policy that a text holds, as `load_policy` reads it from a file in this folder."""
    problems: list[str] = []
    return _build(_document(_parse(source, form, "the policy"), "", Path(), problems), None, problems)


@pinned
def policy_to_json(policy: Policy) -> str:
    """The whole policy as JSON that `load_policy` reads; it needs no base."""
    return json.dumps(_body(policy), indent=1) + "\n"


def policy_to_toml(policy: Policy) -> str:
    """The same as TOML."""
    return toml_text(_body(policy))


def toml_text(body: Mapping[str, Any]) -> str:
    """What a policy's file says, as TOML."""
    tables = [(n, v) for n, v in body.items() if isinstance(v, dict)]
    lines = [f"{n} = {_toml(v)}" for n, v in body.items() if n != "rule" and not isinstance(v, dict)]
    for name, table in tables:
        lines += ["", f"[{name}]", *(f"{_toml(n)} = {_toml(v)}" for n, v in table.items())]
    for rule in body["rule"]:
        lines += ["", "[[rule]]", *(f"{n} = {_toml(v)}" for n, v in rule.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML has it: names in lists stand in lines of their own."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_toml(n)} = {_toml(v)}' for n, v in value.items())} }}"
    if isinstance(value, list | tuple) and len(value) > 1 and isinstance(value[0], str):
        return "\n".join(["[", *(f"  {_toml(v)}," for v in value), "]"])
    return json.dumps(value, ensure_ascii=False)


def _body(policy: Policy) -> dict[str, Any]:
    """What a file says of a whole policy."""
    body: dict[str, Any] = {"schema": SCHEMA, "lists": {}, "rule": []}
    for f in dataclasses.fields(Policy):
        if f.name in _FIELDS:
            body[f.name] = _stated(f.name, getattr(policy, f.name))
    body["lists"] = {category: sorted(listed) for category, listed in policy.lists.items()}
    body["reasons"] = dict(policy.reasons)
    body["float32_slots"] = {
        name: dict(zip(_SLOTS, slots, strict=True)) for name, slots in policy.float32_slots.items()
    }
    for rule in policy.rules:
        given = {f.name: getattr(rule, f.name) for f in dataclasses.fields(Rule)}
        usual = {f.name: f.default for f in dataclasses.fields(Rule)}
        body["rule"].append({n: _stated(n, v) for n, v in given.items() if v != usual[n]})
    return body


# ---- the keys ------------------------------------------------------------------------------------

# TOML has no null: what a field says where it names no type.
_ABSENT = {"low": "none", "relayout": "none", "product_output": "low"}


def _stated(name: str, value: Any) -> Any:
    """A field of a policy or rule as files have it."""
    if value is None:
        return _ABSENT[name]
    return value.name if isinstance(value, DType) else value


def _type_or(word: str) -> Kind:
    def read(value: Any) -> DType | None:
        if value == word:
            return None
        try:
            return float_type(value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{word!r} or {error}") from error

    return read


def _share(value: Any) -> float:
    if magnitude(value) >= 1:
        raise InvalidArgument("a share from 0 to below 1")
    return magnitude(value)


def _regex(value: Any) -> str:
    compile_regex(text(value))
    return str(value)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument("a table")
    return value


def _numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise InvalidArgument("a list of numbers")
    return tuple(map(count, value))


def _tables(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise InvalidArgument("a list of tables")
    return value


_OWN_TABLES = ("lists", "float32_slots", "rules", "reasons")
_FIELDS: Mapping[str, Kind] = {
    **{n: kind for n, kind in readers(Policy, KINDS).items() if n not in _OWN_TABLES},
    **{name: _type_or(word) for name, word in _ABSENT.items()},
}
_KEYS: Mapping[str, Kind] = {
    **_FIELDS,
    "schema": one_of(SCHEMA),
    "base": text,
    "lists": _table,
    "reasons": _table,
    "float32_slots": _table,
    "rule": _tables,
}
_RULE: Mapping[str, Kind] = {
    **readers(Rule, KINDS),
    "rounding": one_of(*filter(None, get_args(Rounding))),
    "regex": _regex,
    "underflow_above": _share,
}
_SLOTS: Mapping[str, Kind] = {"operands": _numbers, "results": _numbers}
_DECIDES = ("category", "low", "accumulate", "output", "rounding")


# ---- reading -------------------------------------------------------------------------------------


def _is_file_name(name: str) -> bool:
    return Path(name).suffix in _SUFFIXES


def _read_file(path: Path, problems: list[str]) -> _Document:
    form = _SUFFIXES.get(path.suffix)
    if form is None:
        raise InvalidArgument(f"{path} is no policy: its name must end in {' or '.join(_SUFFIXES)}")
    source = read_text(path, "policy", MAX_BYTES)
    return _document(_parse(source, form, str(path)), f"{path}: ", path.parent, problems)


def _parse(source: str, form: Format, what: str) -> Any:
    try:
        if form == "toml":
            _check_keys(source)
            return tomllib.loads(source)
        return json_documents.parse(source)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and InvalidArgument are ValueErrors
        raise InvalidArgument(f"{what} is no {form.upper()}: {error}") from error


def _check_keys(source: str) -> None:
    """Raises ValueError for keys of so many parts that tomllib, whose time is their square, hangs."""
    for number, line in enumerate(source.splitlines(), start=1):
        is_header = line.lstrip().startswith("[")
        keys = [line] if is_header else line.split("=")[:-1]
        if any(key.count(".") > MAX_KEY_PARTS for key in keys):
            raise ValueError(f"a key of more than {MAX_KEY_PARTS} parts (at line {number})")


def _document(body: Any, place: str, folder: Path, problems: list[str]) -> _Document:
    found = read_fields(body, _KEYS, place, problems, ("schema", "name"))
    base = found.pop("base", "")
    lists = _read_lists(found.pop("lists", {}), f"{place}lists", problems)
    given = found.pop("reasons", {})
    reasons = read_fields(given, dict.fromkeys(given, text), f"{place}reasons.", problems)
    slots = {}
    for name, table in found.pop("float32_slots", {}).items():
        read = read_fields(table, _SLOTS, f"{place}float32_slots.{name}.", problems)
        problems += [f"{place}float32_slots: {p}" for p in unknown_names([name])]
        slots[name] = (read.get("operands", ()), read.get("results", ()))
    rules = []
    for number, table in enumerate(found.pop("rule", ()), start=1):
        where = f"{place}rule {number}: "
        read = read_fields(table, _RULE, where, problems, ("reason",))
        if isinstance(table, dict) and not any(name in table for name in _DECIDES):
            problems.append(f"{where}it decides nothing: state {', '.join(_DECIDES[:-1])} or rounding")
        exact = [o for o in read.get("operation", ()) if not set(o) & set("*?[")]
        problems += [f"{where}operation: {p}" for p in unknown_names(exact)]
        rules.append(Rule(**{"reason": "", **read}))
    fields = {name: value for name, value in found.items() if name in _FIELDS}
    return _Document(place, folder, base, fields, lists, tuple(rules), reasons, slots)


def _read_lists(
    body: Mapping[str, Any], where: str, problems: list[str]
) -> list[tuple[str, DType | None, _Lists]]:
    """The tables `lists` and `lists.bfloat16` and so on, the general one first."""
    types = {n for n in body if n not in (*_CATEGORIES, "add", "remove") and _is_float_name(n)}
    own = {name: value for name, value in body.items() if name not in types}
    general = _lists_of(own, where, problems, more=_FLOAT_NAMES)
    found: list[tuple[str, DType | None, _Lists]] = [(where, None, general)]
    for name in types:
        place = f"{where}.{name}"
        found.append((place, float_type(name), _lists_of(body[name], place, problems)))
    return found


_FLOAT_NAMES = sorted(t.name for t in DTYPES.values() if t.kind == "float" and t.device)


def _is_float_name(name: str) -> bool:
    try:
        float_type(name)
    except InvalidArgument:
        return False
    return True


def _lists_of(body: Any, where: str, problems: list[str], more: Iterable[str] = ()) -> _Lists:
    """What one table says of the lists; `more` are keys that another place reads."""
    categories: dict[str, Kind] = dict.fromkeys(_CATEGORIES, texts)
    tables = dict.fromkeys(("add", "remove", *more), _table)
    stated = read_fields(body, {**categories, **tables}, f"{where}.", problems)
    added, removed = (
        read_fields(stated.get(key, {}), categories, f"{where}.{key}.", problems)
        for key in ("add", "remove")
    )
    found = [{c: listed[c] for c in _CATEGORIES if c in listed} for listed in (stated, added, removed)]
    for key, listed in (("", found[0]), (".add", found[1])):
        seen: dict[str, str] = {}
        for category, names in listed.items():
            problems += [f"{where}{key}.{category}: {p}" for p in unknown_names(names)]
            for name in dict.fromkeys(names):
                if seen.setdefault(name, category) != category:
                    problems.append(f"{where}{key} has {name!r} as {seen[name]} and as {category}")
    return _Lists(*found)


# ---- from files to a policy ----------------------------------------------------------------------


def _build(document: _Document, path: Path | None, problems: list[str]) -> Policy:
    """The policy of a document: its bases' and its own statements, one after the other."""
    chain, policy = _bases(document, path, problems)
    for d in chain:  # lists may differ by the type that results
        policy = dataclasses.replace(policy, low=d.fields.get("low", policy.low))
    for d in chain:
        policy = dataclasses.replace(
            policy,
            **{name: value for name, value in d.fields.items() if name != "low"},
            lists=_changed_lists(policy, d, problems),
            rules=(*policy.rules, *d.rules),
            reasons={**policy.reasons, **d.reasons},
            float32_slots={**policy.float32_slots, **d.float32_slots},
        )
    if problems:
        raise InvalidArgument(f"the policy cannot be read: {joined(problems)}")
    return policy


def _bases(
    document: _Document, path: Path | None, problems: list[str]
) -> tuple[list[_Document], Policy]:
    """The documents from the one that names no other file to the given one, and the policy below."""
    chain = [document]
    seen = [] if path is None else [os.path.realpath(path)]
    policy = Policy("")
    try:
        while _is_file_name(chain[0].base):
            file = os.path.realpath(chain[0].folder / chain[0].base)
            if file in seen:
                raise InvalidArgument("it is built on itself")
            if len(seen) >= MAX_BASES:
                raise InvalidArgument(f"it builds on more than {MAX_BASES} files")
            seen.append(file)
            chain.insert(0, _read_file(Path(file), problems))
        if chain[0].base:
            policy = find_policy(chain[0].base)
    except ValueError as error:  # InvalidArgument, or a path with characters that none has
        problems.append(f"{chain[0].place}base is {shown(chain[0].base)}: {error}")
    return chain, policy


def _changed_lists(
    policy: Policy, document: _Document, problems: list[str]
) -> dict[Category, frozenset[str]]:
    """The lists after a document's changes for the policy's low type. An operation is in one list: what
    is stated or added leaves the others.
    """
    lists = {category: set(listed) for category, listed in policy.lists.items()}

    def put(names: Iterable[str], category: Category) -> None:
        for listed in lists.values():
            listed.difference_update(names)
        lists.setdefault(category, set()).update(names)

    for where, dtype, change in document.lists:
        if dtype not in (None, policy.low):
            continue
        for category in change.stated:
            lists[category] = set()
        for category, names in (*change.stated.items(), *change.added.items()):
            put(names, category)
        for category, names in change.removed.items():
            known = lists.get(category, set())
            problems += [
                f"{where}.remove.{category} has {shown(n)}, which is not in that list"
                f"{nearest(n[:100], known)}"
                for n in names
                if n not in known
            ]
            known.difference_update(names)
    return {category: frozenset(listed) for category, listed in lists.items()}
