"""The report page: its answers, its plots' data, hostile names, its size; in a headless browser too."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.commands import Commands
from tests.support.places import DATA, MODEL

import neuronsim
from neuronsim import api, reports
from neuronsim.cli import tuning
from neuronsim.cli.arguments import SAME_MODEL, SAME_RELEASE
from neuronsim.errors import InvalidData
from neuronsim.hlo import proto
from neuronsim.hlo.fingerprint import fingerprint
from neuronsim.hlo.parse import from_text
from neuronsim.report_page.charts import figures
from neuronsim.report_page.documents import check_model, gather
from neuronsim.report_page.graph import graph_document
from neuronsim.report_page.instruction_rows import instruction_table
from neuronsim.report_page.magnitudes import histograms
from neuronsim.report_page.node_data import node_data
from neuronsim.report_page.scopes import scope_tree
from neuronsim.report_page.summary import ASKED, ASKED_ALONE, answers
from neuronsim.setups import ModelInputs

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]

OWN = "0123456789abcdef"  # the fingerprint of the model of the documents here
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>"


def rung(name: str, microseconds: float, error: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "flags": f"--auto-cast {name}",
        "top1": 1.0 - error,
        "relative_error": error,
        "max_error": error,
        "not_finite": 0,
        "weight_bytes": 1000,
        "estimated_seconds": microseconds * 1e-6,
        "estimated_speedup": 100 / microseconds,
        "loss": error,
        **more,
    }


def tune_document(name: str = "dot.1") -> dict[str, Any]:
    plan = {
        "figures": rung("plan-1", 45.0, 0.001),
        "base": "all/fp16",
        "kept": [
            {"name": name, "opcode": "reduce", "scope": "net/norm", "source": "", "type": "float32"}
        ],
        "moved": 0,
        "held_out_loss": 0.002,
        "within": True,
        "plan": {"decisions": {name: {"output": "float32", "reason": "kept"}}},
    }
    return {
        "schema": "neuronsim.tune/2",
        "model": "net.onnx",
        "fingerprint": OWN,
        "data": "x.npz",
        "samples": 64,
        "metric": "top1",
        "tolerance": 0.01,
        "target": "trn1",
        "recommended": "none",
        "chosen": "plan-1",
        "flag_line": "--auto-cast none",
        "rungs": [
            rung("none", 100.0, 0.0),
            rung("all/fp16", 40.0, 0.9, not_finite=5, relative_error=None),
        ],
        "plans": [plan],
        "notes": ["a note"],
    }


def magnitudes_document(
    name: str, operand: int | None, lowest: int, counts: list[int], **more: int
) -> dict[str, Any]:
    body = {"instruction": name, "operand": operand, "lowest": lowest, "counts": counts}
    return body | {"zeros": 0, "not_finite": 0, "beyond": 0, "vanishing": 0} | more


def blame_document(name: str = "dot.1", scope: str = "net/norm") -> dict[str, Any]:
    figures_of = {"error": 0.9, "worst_sample": 1.0, "not_finite": 5, "differing": 0.0, "top1": 0.1}
    cause = {
        "instruction": name,
        "opcode": "reduce",
        "kind": "overflow",
        "share": 0.99,
        "bits": 11.0,
        "said": "values up to 1e6 leave float16",
        "advice": "scale before the sum",
        "scope": scope,
        "source": "net.py:12",
        "evidence": {"largest": 1e6, "top": 65504.0, "least": 2.0**-14, "digits": 11},
        "keep_float32": [name],
        "type": "float16",
        "magnitudes": [
            magnitudes_document(name, None, 17, [1, 2], zeros=1, beyond=3),
            magnitudes_document("mul.1", 0, 13, [4, 2]),
        ],
        "computing": 1,
        "before": figures_of,
        "after": {**figures_of, "error": 0.001},
        "rewrite": "two-pass variance",
        "rewritten": {**figures_of, "error": 0.002},
    }
    instructions = [
        {"name": name, "opcode": "reduce", "scope": scope, "own": 0.99, "relative_error": 0.9},
        {"name": "add.2", "opcode": "add", "scope": "net/out", "own": 0.01, "relative_error": 0.8},
    ]
    return {
        "schema": "neuronsim.blame/1",
        "model": "net.onnx",
        "fingerprint": OWN,
        "setting": "all/fp16",
        "data": "x.npz",
        "samples": 64,
        "lowered": figures_of,
        "float32_top1": 0.97,
        "causes": [cause],
        "instructions": instructions,
        "scopes": {"net": 1.0, scope: 0.99, "net/out": 0.01},
        "notes": [],
    }


def graph(count: int = 3, name: str = "dot.1") -> dict[str, Any]:
    first = {"name": "x", "opcode": "parameter", "type": "float32[4]", "operands": []}
    own = {"name": name, "opcode": "reduce", "type": "float32[4]", "operands": ["x"]}
    found = [first, own]
    for n in range(count):
        found.append(
            {
                "name": f"add.{n + 2}",
                "opcode": "add",
                "type": "float32[4]",
                "operands": [found[-1]["name"]],
                "op_name": f"net/layer_{n % 12}/add",
                "decided": "bfloat16",
                "reason": "A2: all/bf16 rounds operands and result",
            }
        )
    about = {"schema": "neuronsim.graph/1", "model": "net.onnx", "fingerprint": OWN}
    return about | {"instructions": found}


def cost_document() -> dict[str, Any]:
    return json.loads(reports.cost(MODEL, auto_cast="all").to_json()) | {"fingerprint": OWN}


# ---- what it says --------------------------------------------------------------------------------


def test_the_first_answers_are_the_setting_its_cost_and_the_change() -> None:
    found = answers(gather([tune_document(), blame_document()]))
    assert [a["question"] for a in found] == [
        *("Which setting?", "What does it cost me?", "What do I change?")
    ]
    assert found[0]["head"] == "all/fp16 with 1 in float32"
    assert found[0]["paste"] == ['export NEURON_CC_FLAGS="--auto-cast none"']
    assert found[1]["head"] == "0.1 points of accuracy, for 2.22x the speed"
    assert "accuracy 99.90 %, float32's 100.00 %" in found[1]["lines"]
    assert found[2]["head"] == "keep 1 instruction wider, by a policy"
    assert found[2]["lines"] == [
        "all/fp16 fails, at net/norm (net.py:12) by overflow. Repair: scale before the sum",
        "net: norm",
    ]
    assert found[2]["paste"] == [
        "neuronsim fix net.onnx --data x.npz --base all/fp16 --output policy.toml"
    ]


def test_the_fix_line_of_the_page_carries_what_the_printed_one_does() -> None:
    carried = (*SAME_MODEL, "calibration", *SAME_RELEASE, *tuning._SAME_QUESTION)
    assert {f"--{name.replace('_', '-')}" for name in carried} == ASKED | ASKED_ALONE
    line = "neuronsim tune net.onnx --data x.npz --metric cosine --lower-is-better --quantize=mse"
    (paste,) = answers(gather([tune_document(), blame_document()], command=line))[2]["paste"]
    assert "--metric cosine --lower-is-better --quantize=mse --output policy.toml" in paste


def test_a_setting_of_flags_needs_no_change_of_the_model() -> None:
    document = tune_document() | {"chosen": "", "recommended": "all/tf32", "plans": []}
    document["rungs"].append(rung("all/tf32", 80.0, 0.0))
    alone, blamed = (answers(gather([document, *more])) for more in ((), (blame_document(),)))
    assert alone[0]["head"] == "all/tf32"
    assert alone[1]["head"] == "no accuracy, for 1.25x the speed"
    assert {a[2]["head"] for a in (alone, blamed)} == {"nothing but the flags"}
    assert alone[2]["lines"] == ["not within the tolerance: all/fp16; `neuronsim blame` says why"]
    assert blamed[2]["lines"][1].startswith("all/fp16 fails, at net/norm")


def test_blame_alone_answers_with_its_cause() -> None:
    found = answers(gather([blame_document()]))
    assert found[2]["head"] == "dot.1: overflow"
    assert found[2]["lines"] == ["values up to 1e6 leave float16", "scale before the sum"]


def test_a_run_that_was_observed_alone_answers_with_the_first_that_is_not_finite() -> None:
    met = {
        "schema": "neuronsim.observation/1",
        "casts": "--auto-cast all",
        "data": "x.npz",
        "instructions": [
            {
                "name": "exp.1",
                "opcode": "exponential",
                "counts": {"overflow": 3},
                "origin": {"index": [0], "value": "inf", "operands": []},
            }
        ],
    }
    found = answers(gather([met]))
    assert found[1]["head"] == "1 instruction"
    assert found[2]["head"] == "exp.1 is the first that is not finite"


def test_every_plot_has_the_documents_figures() -> None:
    cost = cost_document()
    met = {
        "schema": "neuronsim.observation/1",
        "instructions": [
            {
                "name": "a",
                "opcode": "add",
                "type": "float16[4]",
                "statistics": {"smallest": 0.001, "largest": 60000.0},
            }
        ],
    }
    made = figures(gather([tune_document(), blame_document(), cost, met, graph()]))
    assert sorted(made) == ["depth", "pareto", "ranges", "timeline"]
    ladder, plans, front = made["pareto"]["data"]
    assert ladder["x"] == pytest.approx([40.0, 100.0])
    assert plans["text"] == ["plan-1"]
    assert len(front["x"]) == 3
    events = [x for trace in made["timeline"]["data"] for x in trace["x"]]
    assert len(events) == len(cost["timeline"])
    assert made["depth"]["data"][0]["y"] == [0.9, 0.8]
    assert made["ranges"]["layout"]["xaxis"]["title"]["text"].endswith("the range of float16")


def test_error_by_depth_is_in_the_programs_order_with_crosses_at_the_causes() -> None:
    document = blame_document()
    document["instructions"].reverse()  # blame has the gravest first, a program another order
    (trace,) = figures(gather([document, graph()]))["depth"]["data"]
    assert trace["text"] == ["dot.1", "add.2"]
    assert trace["marker"]["symbol"] == ["x", "circle"]


def test_the_timeline_has_each_engines_instructions_from_their_start() -> None:
    events = cost_document()["timeline"]
    traces = figures(gather([cost_document()]))["timeline"]["data"]
    assert {t["name"] for t in traces} == {e["engine"] for e in events}
    for t in traces:
        own = [e for e in events if e["engine"] == t["name"]]
        assert t["base"] == pytest.approx([1e6 * e["start"] for e in own])
        assert t["text"] == [e["instruction"] for e in own]


def test_names_of_the_plot_lie_on_no_other_name() -> None:
    document = tune_document()
    document["rungs"] += [rung("near", 41.0, 0.89), rung("same", 41.0, 0.89), rung("next", 42.0, 0.88)]
    ladder = figures(gather([document]))["pareto"]["data"][0]
    assert "near, same" in ladder["text"]
    crowded = [p for p, x in zip(ladder["textposition"], ladder["x"], strict=True) if x < 43]
    assert len(crowded) == len(set(crowded)) == 3


def test_the_ladders_table_marks_the_setting_to_use_and_those_that_fail() -> None:
    page = report(tune_document() | {"chosen": "", "recommended": "none"})
    rows = re.findall(r'<tr class="(\w*)"><th scope="row">([^<]+)</th>', page)
    assert rows == [("chosen", "none"), ("failing", "all/fp16"), ("", "plan-1")]
    text = words(page)
    assert "setting accuracy relative error max error not finite" in text
    assert "all/fp16 10.00 % not finite 0.9 5 0.001 40 us 2.50x" in text


def test_what_the_plan_keeps_wider_has_scope_source_and_error_alone() -> None:
    document = tune_document()
    document["plans"][0]["kept"][0] |= {"source": "net.py:7", "error": 0.25}
    text = words(report(document))
    assert "What the plan keeps wider Of all/fp16 these compute in a wider type" in text
    assert "dot.1 reduce float32 net/norm net.py:7 0.25" in text


def test_the_data_the_release_and_the_command_that_reproduces_it() -> None:
    document = tune_document() | {"data_fingerprint": "f00d", "release": "SDK 2.26"}
    text = words(report(document, command="neuronsim tune net.onnx --data x.npz"))
    end = text[text.index("Data and reproduction") :]
    for part in ("x.npz", "f00d", "SDK 2.26", "held-out loss 0.002", "neuronsim tune net.onnx --data"):
        assert part in end


def test_the_front_leaves_out_what_another_beats() -> None:
    document = tune_document()
    document["rungs"].append(rung("worse", 120.0, 0.5))
    front = figures(gather([document]))["pareto"]["data"][-1]
    assert 120.0 not in [round(x) for x in front["x"]]


def test_the_tree_of_scopes_has_sums_and_own_errors() -> None:
    tree = scope_tree(gather([blame_document()]))["scopes"]
    assert tree[0]["name"] == "net"
    assert tree[0]["figure"] == "100 %"
    assert [(n["name"], n["figure"]) for n in tree[0]["children"]] == [("norm", "99 %"), ("out", "1 %")]


def test_the_table_has_every_instruction_with_what_is_known_of_it() -> None:
    table = instruction_table(gather([tune_document(), blame_document(), graph(5)]))
    by_name = {r["cells"][0]: r for r in table["rows"]}
    assert list(by_name)[:3] == ["x", "dot.1", "add.2"]
    assert {"kept in float32", "to blame", "computes in float32"} == set(by_name["dot.1"]["kinds"])
    assert "computes in bfloat16" in table["filters"]


def test_a_cause_is_shown_with_its_evidence_and_rewrite() -> None:
    text = words(report(blame_document(), graph()))
    assert "overflow dot.1 reduce, float16 net/norm net.py:12" in text
    assert "Rewritten as two-pass variance, the error becomes 0.002" in text
    assert "largest value 1e+06 largest of float16 6.55e+04" in text
    assert "outputs' error 0.9, kept 0.001" in text
    assert "Or keep in float32: dot.1" in text


def test_a_rewrite_that_does_not_help_is_no_advice() -> None:
    document = blame_document()
    document["causes"][0]["rewritten"]["error"] = 0.8
    page = report(document)
    assert '<p class="below">Rewritten as two-pass variance, the error stays 0.8' in page


def test_neighbours_of_an_instruction_are_those_that_it_reads_and_that_read_it() -> None:
    table = instruction_table(gather([blame_document(), graph()]))
    by_name = {r["cells"][0]: r for r in table["rows"]}
    assert [r["cells"][0] for r in table["rows"]] == ["x", "dot.1", "add.2", "add.3", "add.4"]
    assert by_name["dot.1"]["reads"] == [0]
    assert by_name["add.2"]["reads"] == [1]
    assert (by_name["dot.1"]["good"], by_name["add.3"]["good"]) == (0, None)
    page = report(blame_document(), graph())
    assert '<div class="graph" data-node="dot.1">' in page
    assert '<div class="graph" data-node' not in report(
        blame_document()
    )  # without the model there is no graph


def test_statistics_of_a_cause_are_a_histogram_against_its_types_range() -> None:
    """float16's largest power of two is 15: the three values of 2^16 and more are lost."""
    found = histograms(blame_document()["causes"][0])
    assert [row["name"] for row in found["rows"]] == ["mul.1", "dot.1"]
    operand, result = (row["columns"] for row in found["rows"])
    assert [c["height"] for c in operand] == [100, 50, 0, 0, 0, 0]
    assert [c["height"] for c in result] == [0, 0, 0, 0, 50, 100]
    assert [c["lost"] for c in result] == [False, False, False, True, True, True]
    assert (found["least"], found["most"]) == ("8.19e+03", "5.24e+05")
    (mark,) = found["marks"]
    assert mark == {"at": 50.0, "text": "65504, float16's largest value"}
    text = words(report(blame_document()))
    assert "dot.1 result, 4 values, 3 overflow in float16, 1 are 0" in text


def test_a_histogram_of_a_cancellation_marks_the_types_step() -> None:
    """Terms near 256 have steps of 2 in bfloat16: a result of less is one of a step or none."""
    cause = {
        "kind": "cancellation",
        "type": "bfloat16",
        "evidence": {"digits": 8, "top": 3.3e38, "least": 1e-38},
        "magnitudes": [
            magnitudes_document("sub", None, -1, [5, 5, 5]),
            magnitudes_document("a", 0, 8, [15]),
        ],
    }
    found = histograms(cause)
    assert [m["text"] for m in found["marks"]] == ["2, bfloat16's step at the largest operand"]
    operand, result = found["rows"]
    assert not any(c["lost"] for c in operand["columns"])
    assert [c["lost"] for c in result["columns"] if c["height"]] == [True, True, False]


def test_a_wide_histogram_joins_powers_of_two() -> None:
    document = magnitudes_document("x", None, -120, [1] * 240)
    (row,) = histograms({"kind": "nan", "magnitudes": [document]})["rows"]
    assert len(row["columns"]) == 48
    assert {c["height"] for c in row["columns"]} == {100}


def test_source_lines_are_shown_of_models_that_were_traced_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "traced_net", raising=False)
    code = "import neuronsim as np\n\n\ndef net(x):\n    return np.exp(x) + 1\n"
    (tmp_path / "traced_net.py").write_text(code)
    page = tmp_path / "page.html"
    shapes = {"x": (4, 4)}
    module = api.read_model("traced_net:net", ModelInputs(input_shapes=shapes))
    document = blame_document("exponential") | {"fingerprint": fingerprint(module)}
    options = {"input_shapes": shapes, "auto_cast": "all"}
    reports.write_report(page, [document], model="traced_net:net", **options)
    assert "return np.exp(x) + 1" in page.read_text()
    # What a file says of its sources is not read: it could name any file of this machine.
    assert any(i.metadata.source_line == 5 for i in module.entry_computation.instructions)
    (tmp_path / "net.hlo.pb").write_bytes(proto.to_bytes(module))
    for model in (module, str(tmp_path / "net.hlo.pb")):
        reports.write_report(page, [document], model=model, auto_cast="all")
        assert "traced_net.py:5" in page.read_text()
        assert "return np.exp" not in page.read_text()


def report(*documents: Mapping[str, Any], command: str = "neuronsim report") -> str:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    from neuronsim.report_page.page import report_html

    return report_html(documents, command=command)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.found.append(data)


def words(page: str) -> str:
    parser = _Text()
    parser.feed(page)
    return " ".join(" ".join(parser.found).split())


def test_the_page_is_self_contained_and_small() -> None:
    page = report(tune_document(), blame_document(), cost_document(), graph(3000))
    assert len(page.encode()) < 6_000_000
    shell = page[: page.index("<script type=")]
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", shell)
    assert "default-src 'none'" in shell
    assert "neuronsim report" in words(page)


def test_no_string_of_a_hostile_model_is_markup() -> None:
    documents = (tune_document(HOSTILE), blame_document(HOSTILE, HOSTILE), graph(2, HOSTILE))
    for d in documents:
        d["model"] = HOSTILE
    page = report(*documents, command=f"neuronsim report {HOSTILE}")
    parser = _Text()
    parser.feed(page)
    assert "img" not in parser.tags
    assert parser.tags.count("script") == 3  # the data, Plotly and the page's own
    assert HOSTILE in " ".join(parser.found)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "a report needs a document"),
        ([{"schema": "neuronsim.plan/1"}], "not neuronsim.plan/1"),
        ([{}], "a document without a schema"),
        ([{"schema": "neuronsim.cost/1"}] * 2, "two are of cost"),
    ],
)
def test_documents_that_are_none_are_refused(documents: list[dict[str, str]], message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        gather(documents)


@pytest.mark.parametrize(
    "document",
    [
        {"schema": "neuronsim.tune/2", "rungs": 5},
        {"schema": "neuronsim.tune/2", "rungs": [{"name": "none"}]},
        {"schema": "neuronsim.blame/1", "causes": 7, "instructions": 7},
        {"schema": "neuronsim.cost/1", "settings": [{}]},
        {"schema": "neuronsim.observation/1", "instructions": 3},
    ],
    ids=lambda d: "-".join(d),
)
def test_a_damaged_document_is_refused_by_its_schema(document: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    match = re.escape(f"({document['schema']}) has not the form")
    with pytest.raises(InvalidData, match=match):
        reports.write_report(tmp_path / "page.html", [document])
    if "instructions" in document:
        with pytest.raises(InvalidData, match=match):
            node_data([document])


def test_counts_beyond_float64_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    document = blame_document()
    document["causes"][0]["magnitudes"][0]["counts"] = [1e308, 1e308]
    with pytest.raises(InvalidData, match="has not the form"):
        reports.write_report(tmp_path / "page.html", [document])


def alike(opcode: str) -> str:
    """A model whose instructions have the names of another's."""
    return f"HloModule m\nENTRY e {{ x = f32[4] parameter(0)\n ROOT r = f32[4] {opcode}(x) }}"


@pytest.mark.parametrize("command", ["tune", "blame", "run", "cost", "cost --auto-cast all"])
def test_figures_of_another_model_are_refused(command: str, tmp_path: Path, commands: Commands) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    own, other, data = tmp_path / "net.hlo", tmp_path / "other" / "net.hlo", tmp_path / "x.npz"
    other.parent.mkdir()
    own.write_text(alike("exponential"))
    # Every named instruction is in both, with its opcode.
    other.write_text(alike("exponential").replace("ROOT r", "s = f32[4] sine(x)\n ROOT r"))
    np.savez(data, x=np.ones((4, 4), np.float32))
    made = tmp_path / "made.json"
    name, *setting = command.split()
    more = {"tune": ["--data", data], "blame": ["--data", data, "--auto-cast", "all"]}
    more["run"] = ["--inputs", data, "--observe", "full", "--auto-cast", "all"]
    commands.ok(name, own, *more.get(name, []), *setting, "--json", made)
    page = tmp_path / "page.html"
    said = " ".join(commands.refused("report", made, "--model", other, "--output", page).split())
    kind = "observation" if name == "run" else name
    assert re.search(rf"the figures of neuronsim\.{kind}/\d are of another model \(\S", said)
    assert "Give the model as it was measured" in said
    renamed = own.rename(tmp_path / "copy.hlo")
    commands.ok("report", made, "--model", renamed, "--auto-cast", "all", "--output", page)


def test_figures_of_no_known_model_are_refused() -> None:
    given = graph_document(from_text(alike("sine")), None, "net.onnx")
    older = {"schema": "neuronsim.tune/2", "model": "net.onnx", "rungs": []}
    with pytest.raises(InvalidData, match=r"of another model \(net.onnx, fingerprint none\)"):
        check_model(gather([older, given]))


def test_a_file_that_is_no_json_is_named(commands: Commands, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_text('{"schema": ')
    said = commands.refused("report", cut, "--output", tmp_path / "nodes.json")
    assert f"{cut} holds no document of neuronsim's" in said.replace("\n", " ")


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from neuronsim.errors import InvalidArgument
    from neuronsim.report_page import page

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(page.importlib, "import_module", absent)
    with pytest.raises(InvalidArgument, match=r"pip install 'neuronsim\[report\]'"):
        page.report_html([tune_document()])


# ---- commands ------------------------------------------------------------------------------------


def test_report_writes_a_page_of_real_documents(tmp_path: Path, commands: Commands) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    met, page = str(tmp_path / "met.json"), tmp_path / "page.html"
    words_ = ["run", MODEL, "--inputs", DATA, "--observe", "full", "--auto-cast", "all"]
    commands.ok(*words_, "--auto-cast-type", "fp16", "--json", met)
    flags = ["--auto-cast", "all", "--auto-cast-type", "fp16"]
    given = ["report", met, "--model", MODEL, *flags, "--sdk", "2.25", "--output", str(page)]
    assert f"wrote {page}" in commands.ok(*given)
    text = words(page.read_text())
    assert " ".join(["neuronsim", *given]) in text  # how it is made again
    assert "reduce_sum.64 is the first that is not finite" in text
    assert MODEL in text
    data = page.read_text().partition('id="page-data">')[2].partition("</script>")[0]
    assert sorted(json.loads(data)["plots"]) == ["ranges", "timeline"]


def test_the_page_of_tune_has_the_cause_of_what_fails(tmp_path: Path, commands: Commands) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    path = tmp_path / "tune.html"
    words_ = ["tune", MODEL, "--data", DATA, "--strategy", "ladder", "--report", str(path)]
    assert f"the page is {path}" in commands.ok(*words_)
    page = path.read_text()
    text = words(page)
    assert "Which setting? all/bf16" in text
    assert "overflow reduce_sum.64 reduce, float16" in text
    assert "reduce_sum.64 result, 64 values, 64 overflow in float16" in text
    assert 'data-node="reduce_sum.64"' in page


def test_run_writes_its_page(tmp_path: Path, commands: Commands) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    page = tmp_path / "run.html"
    words_ = ["run", MODEL, "--inputs", DATA, "--observe", "counts", "--report", str(page)]
    commands.ok(*words_)
    assert MODEL in words(page.read_text())


def test_node_data_for_model_explorer_has_the_names_of_the_source(
    tmp_path: Path, commands: Commands
) -> None:
    path = tmp_path / "blame.json"
    path.write_text(json.dumps(blame_document()))
    output = tmp_path / "nodes.json"
    commands.ok("report", str(path), "--output", str(output))
    found = json.loads(output.read_text())
    assert found["results"] == {"net/norm": {"value": 0.99}, "net/out": {"value": 0.01}}
    assert [s["stop"] for s in found["gradient"]] == [0.0, 0.5, 1.0]
    with pytest.raises(InvalidData, match="node data needs"):
        node_data([tune_document()])


def test_node_data_has_the_names_of_model_explorers_own_nodes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    builder = pytest.importorskip("model_explorer.node_data_builder")
    adapter = pytest.importorskip("model_explorer.pytorch_exported_program_adapter_impl")
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(network, (torch.zeros(4, 8),), strict=False), path)
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    result = neuronsim.blame(path, {"input": x}, auto_cast="all")
    made = json.loads(node_data([json.loads(result.to_json())]))
    fields = {f.name for f in dataclasses.fields(builder.GraphNodeData)}
    assert made.keys() <= fields
    for row, of in (
        (made["gradient"][0], builder.GradientItem),
        ({"value": 1}, builder.NodeDataResult),
    ):
        assert of(**row)
    program = torch.export.load(path)
    read = adapter.PytorchExportedProgramAdapterImpl(program, {"const_element_count_limit": 4})
    nodes = {n.id for n in read.convert()["graphs"][0].nodes}
    assert {"linear", "gelu", "layer_norm"} <= made["results"].keys() <= nodes
    assert sum(r["value"] for r in made["results"].values()) == pytest.approx(1.0)


def test_node_data_of_onnx_has_the_names_of_the_files_nodes(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    made = [
        onnx.helper.make_node("Mul", ["x", "x"], ["s"], name="net/square"),
        onnx.helper.make_node("Tanh", ["s"], ["y"], name="net/tanh"),
    ]
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 8]) for n in ("x", "y"))
    path = tmp_path / "net.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(made, "g", [x], [y])), path)
    data = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    result = neuronsim.blame(path, data, auto_cast="all")
    found = json.loads(node_data([json.loads(result.to_json())]))["results"]
    assert found.keys() == {"net/square", "net/tanh"}


def test_the_graph_document_has_decisions_and_operands() -> None:
    module = from_text(
        "HloModule m\nENTRY main {\n  x = f32[4] parameter(0)\n"
        '  ROOT y = f32[4] tanh(x), metadata={op_name="net/tanh"}\n}'
    )
    made = graph_document(module, api.plan(module, auto_cast="all"), "m.hlo")
    y = made["instructions"][-1]
    assert (y["operands"], y["op_name"], y["decided"]) == (["x"], "net/tanh", "bfloat16")
    assert y["reason"].startswith("A2")


# ---- in a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_in_a_browser(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    documents = (
        tune_document(HOSTILE),
        blame_document(HOSTILE, HOSTILE),
        cost_document(),
        graph(3000, HOSTILE),
    )
    path = tmp_path / "page.html"
    path.write_text(report(*documents))
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    told: list[str] = []
    asked: list[str] = []
    page.on("console", lambda m: told.append(m.text))
    page.on("pageerror", lambda e: told.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    measuring = context.new_cdp_session(page)
    measuring.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri())
    metrics = {m["name"]: m["value"] for m in measuring.send("Performance.getMetrics")["metrics"]}
    assert metrics["TaskDuration"] < 3.0  # seconds of processor time: others may keep it busy
    assert told == []
    assert asked == [path.as_uri()]
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    for plot in ("pareto", "depth", "timeline"):
        page.locator(f"#plot-{plot}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#plot-{plot} .main-svg")
        drawn = page.evaluate(f"document.getElementById('plot-{plot}').data.map(t => t.x.length)")
        assert min(drawn) > 0
    # Filter and search by the keyboard alone.
    page.keyboard.press("/")
    page.keyboard.type("add.2999")
    assert page.inner_text("#count") == "1 of 3002 instructions"
    assert page.inner_text("#instructions tbody th") == "add.2999"
    page.keyboard.press("Escape")
    assert page.inner_text("#count") == "3002 of 3002 instructions"
    page.focus("#filter")
    page.keyboard.type("kept")
    assert page.inner_text("#count") == "1 of 3002 instructions"
    # The graph: around the cause, then around a row of the table, and on by a click.
    self_of = "#{} .self"
    assert page.inner_text(self_of.format("cause-1")).startswith(HOSTILE)
    assert page.locator("#cause-1 .graph path").count() >= 2
    page.keyboard.press("Home")
    page.focus("#search")
    page.keyboard.type("add.2000")
    page.focus("#instructions tbody button")
    page.keyboard.press("Enter")
    assert page.inner_text(self_of.format("around")).startswith("add.2000")
    page.click("#around button:has-text('add.2001')")
    assert page.inner_text(self_of.format("around")).startswith("add.2001")
    assert page.locator("#around .levels button").count() == 5
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.focus("#theme")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    # On paper: no buttons, light, and every plot is drawn.
    page.emulate_media(media="print")
    assert not page.is_visible("#theme")
    assert page.is_visible("#cause-1 .levels button")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    context.close()
