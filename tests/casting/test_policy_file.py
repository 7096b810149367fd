"""Policy files: what they state, what they inherit, and all that can be wrong with one."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.places import ROOT

from neuronsim import dtypes
from neuronsim.casting.plans.plan import Plan
from neuronsim.casting.policies import POLICIES, find_policy
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.casting.policies.policy_file import (
    _FIELDS,
    _KEYS,
    _RULE,
    MAX_BASES,
    MAX_BYTES,
    SCHEMA,
    load_policy,
    parse_policy,
    policy_to_json,
    policy_to_toml,
)
from neuronsim.errors import InvalidArgument

pytestmark = pytest.mark.isa_independent  # the kernels' bits are not the subject

DOCUMENT = ROOT / "docs" / "policy_files.md"
HEAD = f'schema = "{SCHEMA}"\nname = "x"\n'
FULL = Policy(
    "full",
    dtypes.float_format(6, 9),
    {
        "always": frozenset({"dot", "reduce-add"}),
        "follow": frozenset({"add"}),
        "never": frozenset(),
        "clear": frozenset({"movement"}),
    },
    default="follow",
    propagate="allow_paths",
    accumulate=dtypes.bfloat16,
    product_output=dtypes.float16,
    sources_follow=True,
    float32_slots={"batch-norm-training": ((1, 2), (1, 2)), "batch-norm-grad": ((1,), ())},
    keep_output_type=False,
    relayout=dtypes.float16,
    saturate_infinity=True,
    unlisted="error",
    include_wins=True,
    rules=(
        Rule("r1", "never", name=("dot.*", "x")),
        Rule(
            *("r2", "clear", dtypes.float16, dtypes.float32, dtypes.tfloat32, "stochastic"),
            *(("dot",), ("a*",), r"d\d+", "*/s", 0.0, 1e-30, 3, 0.25, 1e9),
        ),
    ),
    reasons={"dot": "because"},
)


def toml(text: str, tmp_path: Path, name: str = "p.toml") -> Path:
    path = tmp_path / name
    path.write_text(HEAD + text)
    return path


def problems_of(text: str, form: str = "toml") -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse_policy(text, form)  # type: ignore[arg-type]
    return str(caught.value)


# ---- round trips -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [FULL, Policy("empty"), *POLICIES.values()], ids=lambda p: p.name)
def test_json_and_toml_round_trip(policy: Policy, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(policy_to_json(policy))
    assert load_policy(path) == policy
    path = tmp_path / "p.toml"
    path.write_text(policy_to_toml(policy))
    assert load_policy(path) == policy


def test_every_field_of_a_policy_and_of_a_rule_is_a_key() -> None:
    own = {"lists", "rules", "reasons", "float32_slots"}
    assert {f.name for f in dataclasses.fields(Policy)} - own == set(_FIELDS)
    assert own - {"rules"} | {"rule"} <= set(_KEYS)
    assert {f.name for f in dataclasses.fields(Rule)} == set(_RULE)
    usual = {f.name: f.default for f in dataclasses.fields(Rule)}
    assert all(getattr(FULL.rules[1], name) != default for name, default in usual.items())


def test_toml_says_the_same_as_json() -> None:
    text = """
        schema = "neuronsim.policy/1"
        name = "both"
        low = "float16"
        relayout = "none"
        product_output = "low"
        lists.always = ["dot", "dot"]
        lists.never = "exponential"
        float32_slots.batch-norm-training.results = [1]
        rule = [{reason = "r", category = "never", name = "dot.1", above = 3}]
    """
    expected = Policy(
        "both",
        dtypes.float16,
        {"always": frozenset({"dot"}), "never": frozenset({"exponential"})},
        float32_slots={"batch-norm-training": ((), (1,))},
        rules=(Rule("r", "never", name=("dot.1",), above=3.0),),
    )
    assert parse_policy(text, "toml") == expected
    assert parse_policy(policy_to_json(expected), "json") == expected


# ---- bases and lists ---------------------------------------------------------------------------------


def test_a_name_is_a_policy() -> None:
    assert load_policy("all/fp16") is find_policy("all/fp16")
    with pytest.raises(InvalidArgument, match="did you mean 'all/fp16'"):
        load_policy("all/fp61")


def test_what_is_not_stated_is_the_bases(tmp_path: Path) -> None:
    base = find_policy("matmult/bf16")
    same = load_policy(toml('base = "matmult/bf16"', tmp_path))
    assert same == dataclasses.replace(base, name="x")
    assert load_policy(toml("", tmp_path)) == Policy("x")
    changed = load_policy(toml('base = "matmult/bf16"\nproduct_output = "low"', tmp_path))
    assert (base.product_output, changed.product_output) == (dtypes.float32, None)


def test_rules_and_reasons_follow_the_bases(tmp_path: Path) -> None:
    toml(
        'low = "float16"\nreasons = {dot = "a", add = "b"}\n'
        '[[rule]]\nreason = "first"\ncategory = "never"',
        tmp_path,
        "base.toml",
    )
    own = 'base = "base.toml"\nreasons.dot = "c"\n[[rule]]\nreason = "second"\nlow = "bfloat16"'
    found = load_policy(toml(own, tmp_path))
    assert found.reasons == {"dot": "c", "add": "b"}
    assert found.rules == (Rule("first", "never"), Rule("second", low=dtypes.bfloat16))


def test_bases_are_beside_their_file(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    toml('low = "float16"', tmp_path / "a", "base.toml")
    (tmp_path / "a" / "b" / "middle.json").write_text(
        json.dumps({"schema": SCHEMA, "name": "m", "base": "../base.toml", "default": "clear"})
    )
    found = load_policy(toml('base = "a/b/middle.json"', tmp_path))
    assert found == Policy("x", dtypes.float16, default="clear")


def test_an_operation_is_in_one_list(tmp_path: Path) -> None:
    toml('lists = {always = ["dot", "add", "tanh"], never = ["log"]}', tmp_path, "base.toml")
    text = """base = "base.toml"
    lists.follow = ["tanh"]
    lists.add.never = ["add", "power"]
    lists.remove.always = ["dot"]
    """
    assert load_policy(toml(text, tmp_path)).lists == {
        "always": frozenset(),
        "follow": {"tanh"},
        "never": {"log", "add", "power"},
    }
    stated = load_policy(toml('base = "base.toml"\nlists.always = ["log"]', tmp_path))
    assert stated.lists == {"always": {"log"}, "never": frozenset()}


PER_TYPE = """
lists.always = ["dot"]
lists.never = ["exponential"]
[lists.float16]
add.never = ["reduce-add"]
[lists.bfloat16]
never = ["subtract"]
remove.always = ["dot"]
[lists."float(6,9)"]
add.clear = ["dot"]
"""


@pytest.mark.parametrize(
    ("low", "expected"),
    [
        ("float16", {"always": {"dot"}, "never": {"exponential", "reduce-add"}}),
        ("bfloat16", {"always": frozenset(), "never": {"subtract"}}),
        ("float(6,9)", {"always": frozenset(), "never": {"exponential"}, "clear": {"dot"}}),
        ("float8_e4m3", {"always": {"dot"}, "never": {"exponential"}}),
        ("none", {"always": {"dot"}, "never": {"exponential"}}),
    ],
)
def test_lists_may_differ_by_the_low_type_that_results(
    low: str, expected: dict[str, set[str]], tmp_path: Path
) -> None:
    toml('low = "float16"\n' + PER_TYPE, tmp_path, "base.toml")
    found = load_policy(toml(f'base = "base.toml"\nlow = "{low}"', tmp_path))
    assert found.lists == expected
    assert load_policy(tmp_path / "base.toml").lists["never"] == {"exponential", "reduce-add"}


# ---- the document ------------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def test_the_documents_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "digits.toml").write_text(blocks("toml")[0])
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(blocks("python")[0], scope)
    policy: Policy = scope["policy"]
    assert policy.lists["never"] == {"exponential", "rsqrt", "divide"}
    assert (policy.low, policy.product_output) == (dtypes.float16, dtypes.float32)
    assert parse_policy(scope["text"], "json") == policy
    plan: Plan = scope["program"].plan
    assert "reduce_sum.64" not in plan.decisions
    reason = "long sums (it is dot; elements in each sum: 768 > 512)"
    assert plan.decisions["dot_general.19"].reason.endswith(reason)
    assert reason in " ".join(DOCUMENT.read_text().split())
    assert plan.decisions["dot_general.19"].operand is dtypes.bfloat16
    data = dict(np.load("examples/digits/test.npz"))
    batches = [np.resize(data["x"][n : n + 64], (64, 8, 8)) for n in range(0, len(data["x"]), 64)]
    logits = np.concatenate([np.asarray(scope["program"](x=x)) for x in batches])
    found = (logits[: len(data["x"])].argmax(1) == data["labels"]).mean()
    assert f"with this plan {found:.2%}".replace("%", " %") in " ".join(DOCUMENT.read_text().split())


def test_the_document_names_every_key() -> None:
    text = DOCUMENT.read_text()
    assert [k for k in {*_KEYS, *_RULE} - {"rule"} if f"`{k}" not in text] == []


# ---- errors ------------------------------------------------------------------------------------------


def test_all_problems_are_told_at_once_with_their_places() -> None:
    text = """
    schema = "neuronsim.policy/1"
    name = 3
    base = "all/fp61"
    low = "bf61"
    defualt = "never"
    default = "alway"
    unlisted = "wran"
    accumulate = "int8"
    keep_output_type = "yes"
    [lists]
    always = ["dot", "log", "expp"]
    never = ["log", 4]
    neve = []
    bfloat61 = {}
    [lists.remove]
    clear = ["add"]
    [lists.float16]
    add.never = 3
    [float32_slots]
    dot = {operands = [-1], result = [0]}
    [float32_slots.dto]
    results = [0]
    [[rule]]
    reason = "a"
    categroy = "never"
    operation = ["reduce-ad", "reduce-ad*"]
    [[rule]]
    category = "maybe"
    rounding = "up"
    low = "float8_e4m3fn"
    regex = "("
    above = nan
    underflow_above = 1
    depth_above = 2.5
    constant_above = -1
    """
    told = problems_of(text)
    for problem in (
        "name is 3, not a text",
        "base is 'all/fp61'",
        "did you mean 'all/fp16'",
        "low is 'bf61', not 'none' or a float type",
        "did you mean 'bfloat16'",
        "'defualt' is unknown (did you mean 'default'?)",
        "default is 'alway', not one of 'always', 'follow', 'never', 'clear' (did you mean 'always'?)",
        "unlisted is 'wran', not one of 'ignore', 'warn', 'error' (did you mean 'warn'?)",
        "accumulate is 'int8', not a float type of the device",
        "keep_output_type is 'yes', not true or false",
        "lists.never is ['log', 4], not a text",
        "lists.always: 'expp' is no operation (did you mean",
        "float32_slots: 'dto' is no operation (did you mean 'dot'?)",
        "rule 1: operation: 'reduce-ad' is no operation (did you mean 'reduce-add'?)",
        "lists.'neve' is unknown (did you mean 'never'?)",
        "lists.'bfloat61' is unknown (did you mean 'bfloat16'?)",
        "lists.remove.clear has 'add', which is not in that list",
        "lists.float16.add.never is 3, not a text or a list of texts",
        "float32_slots.dot.operands is [-1], not an integer from 0 on",
        "float32_slots.dot.'result' is unknown (did you mean 'results'?)",
        "rule 1: 'categroy' is unknown (did you mean 'category'?)",
        "rule 1: it decides nothing",
        "rule 2: reason is missing",
        "rule 2: category is 'maybe', not one of",
        "rule 2: rounding is 'up', not one of 'nearest_even', 'stochastic'",
        "rule 2: low is 'float8_e4m3fn', not a float type of the device",
        "rule 2: regex is '(', not a regular expression",
        "rule 2: above is nan, not a finite number",
        "rule 2: underflow_above is 1, not a share",
        "rule 2: depth_above is 2.5, not an integer",
        "rule 2: constant_above is -1, not a finite number",
    ):
        assert problem in told
    assert parse_policy('schema = "neuronsim.policy/1"\nname = "x"', "toml") == Policy("x")


def test_a_key_like_none_is_told_with_all() -> None:
    told = problems_of('name = "mine"\n[[rule]]\nreason = "x"\nzzz = ["exponential"]\n')
    assert "rule 1: 'zzz' is unknown: known are reason, category, " in told
    assert ", operation, " in told


def test_one_operation_in_two_lists_is_a_problem() -> None:
    told = problems_of(HEAD + 'lists.always = ["dot"]\nlists.never = ["dot"]')
    assert "lists has 'dot' as always and as never" in told
    told = problems_of(HEAD + 'lists.add = {follow = ["dot"], clear = ["dot"]}')
    assert "lists.add has 'dot' as follow and as clear" in told


def test_removed_names_are_in_the_list() -> None:
    told = problems_of(HEAD + 'lists.always = ["power"]\nlists.remove.always = ["powre"]')
    assert "'powre', which is not in that list (did you mean 'power'?)" in told


def test_problems_of_a_base_name_its_file(tmp_path: Path) -> None:
    toml("low = 3", tmp_path, "base.toml")
    with pytest.raises(InvalidArgument, match=r"p.toml: default is 4.*base.toml: low is 3"):
        load_policy(toml('base = "base.toml"\ndefault = 4', tmp_path))


def test_a_base_that_is_itself_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"base is './p.toml': it is built on itself"):
        load_policy(toml('base = "./p.toml"', tmp_path))
    toml('base = "p.toml"', tmp_path, "q.toml")
    with pytest.raises(InvalidArgument, match=r"q.toml: base is 'p.toml': it is built on itself"):
        load_policy(toml('base = "q.toml"', tmp_path))


def test_bases_are_not_endless(tmp_path: Path) -> None:
    for n in range(MAX_BASES):
        toml(f'base = "{n + 1}.toml"' if n < MAX_BASES - 1 else "", tmp_path, f"{n}.toml")
    assert load_policy(tmp_path / "0.toml").name == "x"
    with pytest.raises(InvalidArgument, match=f"more than {MAX_BASES} files"):
        load_policy(toml('base = "0.toml"', tmp_path))


def test_a_base_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"base is 'none.toml': cannot read the policy"):
        load_policy(toml('base = "none.toml"', tmp_path))


HOSTILE = {
    "deep.json": "[" * 100_000,
    "deep_objects.json": '{"a":' * 20_000,
    "deep.toml": HEAD + "x = " + "[" * 100_000,
    "dots.toml": HEAD + ".".join("a" * 60_000) + " = 1",
    "dotted_table.toml": HEAD + "[" + ".".join("a" * 60_000) + "]",
    "dotted_inline.toml": HEAD + "x = {" + ".".join("a" * 60_000) + " = 1}",
    "keys.toml": HEAD + "\n".join(f"k{n} = 1" for n in range(10_000)),
    "rules.toml": HEAD + "[[rule]]\n" * 12_000,
    "hexadecimal.toml": HEAD + f"[[rule]]\nreason = 'a'\nlow = 'float16'\nabove = 0x{'f' * 90_000}",
    "digits.json": '{"name": ' + "9" * 90_000 + "}",
    "regex.toml": HEAD + f"[[rule]]\nreason = 'a'\nlow = 'float16'\nregex = '{'(' * 20_000}'",
    "repetition.toml": HEAD + "[[rule]]\nreason = 'a'\nlow = 'float16'\nregex = 'a{9999999999999}'",
    "huge.toml": "#" * (MAX_BYTES + 1),
    "surrogate.json": '{"schema": "neuronsim.policy/1", "name": "\\ud800", "base": "\\ud800.toml"}',
    "null_byte.json": '{"schema": "neuronsim.policy/1", "name": "x", "base": "a\\u0000.toml"}',
    "infinite.json": '{"schema": "neuronsim.policy/1", "name": "x", "rule": [{"above": Infinity}]}',
    "twice.json": '{"schema": "neuronsim.policy/1", "schema": "neuronsim.policy/1", "name": "x"}',
    "list.json": "[]",
    "null.json": "null",
    "empty.json": "",
    "empty.toml": "",
    "other.json": '{"schema": "neuronsim.plan/3", "name": "x"}',
    "kinds.json": json.dumps(dict.fromkeys(_KEYS, 3)),
    "objects.json": json.dumps({name: {} for name in _KEYS}),
    "lists.json": json.dumps({name: [None] for name in _KEYS}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_quickly(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    start = time.process_time()
    with pytest.raises(InvalidArgument):
        load_policy(path)
    assert time.process_time() - start < 5


def test_files_that_are_no_text_or_no_files(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00" * 9)
    (tmp_path / "folder.toml").mkdir()
    for name, why in (
        ("binary.toml", "not UTF-8"),
        ("folder.toml", "no regular file"),
        ("none.json", "no such file"),
        ("a\0.toml", "no such file"),
        ("policy.yaml", r"must end in .toml or .json"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            load_policy(tmp_path / name)


def test_long_lines_of_names_are_no_attack() -> None:
    names = [f"dot.{n}" for n in range(1000)]
    text = HEAD + "[[rule]]\nreason = 'many'\nlow = 'float16'\nname = [\n" + ", ".join(map(repr, names))
    assert parse_policy(text + "\n]", "toml").rules[0].name == tuple(names)
