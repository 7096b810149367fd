"""Every document of JSON is checked as it is read: each field by its type and range."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import operator
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuronsim import api, json_documents
from neuronsim.casting.flags import CastSettings
from neuronsim.casting.flags.io_config import check_io_config
from neuronsim.casting.plans.plan import Plan, load_plan
from neuronsim.casting.policies import find_policy
from neuronsim.casting.policies.calibration import Calibration, load_calibration
from neuronsim.casting.policies.policy_file import load_policy, policy_to_json
from neuronsim.errors import InvalidArgument, NeuronSimError
from neuronsim.hlo import proto
from neuronsim.hlo.cache import FLAGS_FILE, MODULE_FILE, cached_flags
from neuronsim.profiles import Profile
from neuronsim.program import load as load_program
from neuronsim.setups import CastRequest, find_setup
from neuronsim.targets import Release

MODEL = Path(__file__).parents[1] / "examples" / "digits" / "model.hlo.pb"
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1 << 70, 10**400, 0.5, -1e300, "", "x", "\ud800", "a\0b"),
    *([], [0], ["x"], [[]], {}, {"x": 1}, {"x": "x"}),
)

pytestmark = pytest.mark.isa_independent


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every part of a document, with the keys that lead there; of lists the first element."""
    yield at, document
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*at, key))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*at, 0))


def replaced(document: Any, at: tuple[Any, ...], *value: Any) -> Any:
    """A copy with this part of that value, or without it."""
    if not at:
        return value[0]
    changed = copy.deepcopy(document)
    holder = functools.reduce(operator.getitem, at[:-1], changed)
    if value:
        holder[at[-1]] = value[0]
    else:
        del holder[at[-1]]
    return changed


def json_type(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "null")


def check_types(
    document: Any, read: Callable[[str], object], alike: tuple[tuple[str, str], ...] = ()
) -> None:
    """Each part, replaced by each value: refused if that is of another type, and else no crash."""
    read(json.dumps(document))
    for at, original in places(document):
        for value in VALUES:
            types = (json_type(original), json_type(value))
            text = json.dumps(replaced(document, at, value))
            try:
                read(text)
            except NeuronSimError:
                continue
            assert types[0] == types[1] or types in alike, (at, value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "p.nsim"
    api.compile(TWO_STEPS, flags="--auto-cast all --verbose info").save(path)
    return path


TWO_STEPS = b"""HloModule m
ENTRY main { x = f32[2] parameter(0)  e = f32[2] exponential(x)  ROOT y = f32[2] add(e, x) }
"""


def with_member(saved: Path, name: str, text: str, to: Path) -> None:
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(to, "w") as changed:
        for member in archive.namelist():
            content = text.encode() if member == name else archive.read(member)
            changed.writestr(zipfile.ZipInfo(member), content)


@pytest.mark.parametrize("member", ["program.json", "plan.json"])
def test_fields_of_a_saved_program(member: str, saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        document = json.loads(archive.read(member))
    path, x = tmp_path / "changed.nsim", np.ones(2, np.float32)

    def read(text: str) -> None:
        with_member(saved, member, text, path)
        program = load_program(path)
        program(x)
        assert program.conformance is not None
        assert program.setup.casts + program.setup.compiler
        program.save(tmp_path / "again.nsim")

    check_types(document, read)
    for at, _ in places(document):
        if not at or not isinstance(at[-1], str) or member != "program.json":
            continue
        if at[0] != "given" or len(at) == 1:
            with_member(saved, member, json.dumps(replaced(document, at)), path)
            with pytest.raises(NeuronSimError, match=at[-1]):
                load_program(path)


@pytest.mark.parametrize("record", [CastSettings, Release, Profile], ids=lambda r: r.__name__)
def test_a_saved_program_checks_every_field_of_its_records(
    record: type[Any], saved: Path, tmp_path: Path
) -> None:
    part = {CastSettings: "settings", Release: "release", Profile: "profile"}[record]
    with zipfile.ZipFile(saved) as archive:
        document = json.loads(archive.read("program.json"))
    names = [f.name for f in dataclasses.fields(record) if f.init and f.name != "handling"]
    assert set(document[part]) == set(names)
    document[part] = {name: {"wrong": 1} for name in names}
    with_member(saved, "program.json", json.dumps(document), tmp_path / "p.nsim")
    with pytest.raises(NeuronSimError) as raised:
        load_program(tmp_path / "p.nsim")
    for name in names[:30]:
        assert f"{part}: {name} is {{'wrong': 1}}, not " in str(raised.value)


@pytest.mark.parametrize("field", ["auto_cast_type", "relayout"])
def test_settings_are_refused_in_memory_as_in_a_file(field: str) -> None:
    settings = CastSettings("all", "bf16", True)
    with pytest.raises(InvalidArgument, match=rf"{field} is 'bf17', not one of .*did you mean 'bf16'"):
        dataclasses.replace(settings, **{field: "bf17"})


def test_fields_of_a_plan() -> None:
    module = api.read_model(MODEL)
    plan = json.loads(api.plan(module, auto_cast="all").to_json())
    plan["decisions"] = dict(list(plan["decisions"].items())[:2])
    first = next(iter(plan["decisions"].values()))
    first |= {"float32_operands": [0], "float32_results": [0], "rounding": "stochastic"}
    first |= {"relayout": "bfloat16", "saturate_infinity": True}
    plan["kept"] = {"x": "why"}
    check_types(plan, Plan.from_json)


def test_fields_of_a_calibration() -> None:
    found = api.calibrate(TWO_STEPS, {"x": np.ones(2, np.float32)})
    check_types(json.loads(found.to_json()), Calibration.from_json)


def test_fields_of_a_policy(tmp_path: Path) -> None:
    document = json.loads(policy_to_json(find_policy("tvm/float16")))
    document["lists"] = {name: listed[:1] for name, listed in document["lists"].items()}
    document["reasons"] = {"x": "why"}
    document["rule"] = [{"reason": "r", "category": "never", "name": ["x"], "above": 2.5}]
    path = tmp_path / "p.json"

    def read(text: str) -> None:
        path.write_text(text)
        load_policy(path)

    check_types(document, read, alike=(("list", "text"), ("text", "list")))


def test_fields_of_an_io_config() -> None:
    module = proto.from_bytes(TWO_STEPS)
    document = {"inputs": {"x": [[2], "float32"]}, "outputs": ["y"]}
    check_types(document, lambda text: check_io_config(" " + text, module))
    for x in ([[True], "float32"], [[1.0], "float32"]):
        one = proto.from_bytes(TWO_STEPS.replace(b"f32[2]", b"f32[1]"))
        with pytest.raises(NeuronSimError, match="input 'x' is"):
            check_io_config(json.dumps({"inputs": {"x": x}, "outputs": ["y"]}), one)


def test_fields_of_the_flags_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / MODULE_FILE).touch()

    def read(text: str) -> None:
        (tmp_path / FLAGS_FILE).write_text(text)
        find_setup(CastRequest(tmp_path))

    check_types(["--auto-cast=all", "-O1"], read)
    assert cached_flags(tmp_path / "none") == []


HOSTILE = {
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"schema":' * 100_000,
    "deep inside": b'{"schema": "neuronsim.plan/3", "decisions": ' + b"[" * 100_000,
    "closed": b"[" * 100_000 + b"]" * 100_000,
    "a huge integer": b'{"schema": ' + b"9" * 100_000 + b"}",
    "NaN": b'{"schema": NaN}',
    "Infinity": b'{"schema": -Infinity}',
    "a key twice": b'{"schema": "neuronsim.plan/3", "schema": "neuronsim.plan/2"}',
    "not UTF-8": b'{"schema": "\xff"}',
    "UTF-16": '{"schema": 1}'.encode("utf-16"),
    "a mark": b"\xef\xbb\xbf{}",
    "a null": b"{\0}",
    "nothing": b"",
    "half": b'{"schema": ',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_refused(name: str, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(HOSTILE[name])
    for read in (load_plan, load_calibration, load_policy):
        with pytest.raises(InvalidArgument):
            read(path)
    path.rename(tmp_path / FLAGS_FILE)
    with pytest.raises(NeuronSimError):
        cached_flags(tmp_path)
    module = proto.from_bytes(TWO_STEPS)
    with pytest.raises(NeuronSimError):
        check_io_config(str(tmp_path / FLAGS_FILE), module)
    for member in ("program.json", "plan.json"):
        text = HOSTILE[name].decode("latin1")
        with_member(saved, member, text, tmp_path / "p.nsim")
        with pytest.raises(NeuronSimError):
            load_program(tmp_path / "p.nsim")


def test_keys_stand_once_and_numbers_are_jsons() -> None:
    assert json_documents.parse('{"a": [1, 2.5, null, true, "x"]}') == {"a": [1, 2.5, None, True, "x"]}
    for text in ('{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 1}}]', "NaN", "[Infinity]", "[-Infinity]"):
        with pytest.raises(InvalidArgument, match=r"stands there twice|no number of JSON"):
            json_documents.parse(text)
