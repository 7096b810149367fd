"""The report page: its answers, its plots' data, hostile names, its size; in a headless browser too."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from neuronsim import api, cli
from neuronsim.errors import InvalidData
from neuronsim.hlo.parse import from_text
from neuronsim.report_page.charts import figures
from neuronsim.report_page.documents import gather
from neuronsim.report_page.graph import graph_document
from neuronsim.report_page.instruction_rows import instruction_table
from neuronsim.report_page.node_data import node_data
from neuronsim.report_page.scopes import scope_tree
from neuronsim.report_page.summary import answers

pytestmark = [pytest.mark.isa_independent, pytest.mark.usefixtures("restored_settings")]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = str(DIGITS / "model.hlo.pb"), str(DIGITS / "test.npz")
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
        "kept": [{"name": name, "opcode": "reduce", "scope": "net/norm", "source": "", "type": "f32"}],
        "moved": 0,
        "held_out_loss": 0.002,
        "within": True,
        "plan": {"decisions": {name: {"output": "float32", "reason": "kept"}}},
    }
    return {
        "schema": "neuronsim.tune/2",
        "model": "net.onnx",
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
        "evidence": {"largest": 1e6},
        "keep_float32": [name],
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
    return {"schema": "neuronsim.graph/1", "model": "net.onnx", "instructions": found}


def cost_document() -> dict[str, Any]:
    return json.loads(api.cost(MODEL, auto_cast="all").to_json())


# ---- what it says --------------------------------------------------------------------------------


def test_the_first_answers_are_the_setting_its_cost_and_the_change() -> None:
    found = answers(gather([tune_document(), blame_document()]))
    assert [a["question"] for a in found] == [
        *("Which setting?", "What does it cost me?", "What do I change?")
    ]
    assert found[0]["head"] == "plan-1"
    assert found[1]["head"] == "2.22x faster"
    assert "accuracy 99.90 %, float32's 100.00 %" in found[1]["lines"]
    assert found[2]["head"] == "keep 1 instructions in float32"
    assert found[2]["lines"][0] == "under all/fp16, dot.1 is to blame: overflow"


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
    assert found[1]["head"] == "1 instructions"
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
    assert ladder["x"] == pytest.approx([100.0, 40.0])
    assert plans["text"] == ["plan-1"]
    assert len(front["x"]) == 3
    events = [x for trace in made["timeline"]["data"] for x in trace["x"]]
    assert len(events) == len(cost["timeline"])
    assert made["depth"]["data"][0]["y"] == [0.9, 0.8]
    assert made["ranges"]["layout"]["xaxis"]["title"]["text"].endswith("the range of float16")


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


def test_a_cause_is_shown_among_its_neighbours_with_its_evidence() -> None:
    page = report(blame_document(), graph())
    text = words(page)
    for part in ("overflow", "net.py:12", "two-pass variance", "error rewritten", "largest", "1e+06"):
        assert part in text
    near = page[page.index('class="graph"') : page.index("Keep in float32")]
    assert near.index("parameter") < near.index('class="self"') < near.index("add.2")


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


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from neuronsim.errors import InvalidArgument
    from neuronsim.report_page import page

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(page.importlib, "import_module", absent)
    with pytest.raises(InvalidArgument, match=r"pip install 'neuronsim\[report\]'"):
        page.report_html([tune_document()])


# ---- commands ------------------------------------------------------------------------------------


def test_report_writes_a_page_of_real_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    met, page = str(tmp_path / "met.json"), tmp_path / "page.html"
    words_ = ["run", MODEL, "--inputs", DATA, "--observe", "full", "--auto-cast", "all"]
    assert cli.main([*words_, "--auto-cast-type", "fp16", "--json", met]) == 0
    assert cli.main(["report", met, "--model", MODEL, "--auto-cast", "all", "--output", str(page)]) == 0
    assert f"wrote {page}" in capsys.readouterr().out
    text = words(page.read_text())
    assert "reduce_sum.64 is the first that is not finite" in text
    assert MODEL in text
    data = page.read_text().partition('id="page-data">')[2].partition("</script>")[0]
    assert sorted(json.loads(data)["plots"]) == ["ranges", "timeline"]


def test_run_writes_its_page(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    page = tmp_path / "run.html"
    words_ = ["run", MODEL, "--inputs", DATA, "--observe", "counts", "--report", str(page)]
    assert cli.main(words_) == 0
    assert MODEL in words(page.read_text())


def test_node_data_for_model_explorer_has_the_names_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "blame.json"
    path.write_text(json.dumps(blame_document()))
    output = tmp_path / "nodes.json"
    assert cli.main(["report", str(path), "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert found["results"] == {"net/norm": {"value": 0.99}, "net/out": {"value": 0.01}}
    assert [s["stop"] for s in found["gradient"]] == [0.0, 0.5, 1.0]
    with pytest.raises(InvalidData, match="node data needs"):
        node_data([tune_document()])


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
    page.focus("#theme")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") != scheme
    context.close()
