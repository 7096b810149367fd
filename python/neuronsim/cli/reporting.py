"""`neuronsim report`: one page of what commands found."""

from __future__ import annotations

import argparse

from neuronsim import json_documents, reports
from neuronsim.casting.fields import read_text
from neuronsim.cli.arguments import Declare, add_casts, add_model, casts, given_for_compiling
from neuronsim.cli.output import PAGES, command_line, write
from neuronsim.errors import InvalidArgument, InvalidData
from neuronsim.report_page.node_data import node_data
from neuronsim.tables import say

MOST_BYTES = 1 << 28


def declare_report(declare: Declare) -> None:
    report = declare(
        "report",
        _report,
        "Write one self-contained HTML page of what tune, blame, run --observe and cost found.",
    )
    report.add_argument(
        "documents", nargs="+", metavar="JSON", help="what these commands wrote with --json"
    )
    report.writes(
        "--output",
        "the .html to write; or .json, node data for Model Explorer",
        required=True,
        forms=(*PAGES, ".json"),
    )
    add_model(report, name="--model")
    add_casts(report)
    report.tell(
        "examples",
        (
            "neuronsim report tune.json blame.json --output report.html",
            "neuronsim report tune.json --model model.onnx --auto-cast all --output report.html",
        ),
    )


def _report(options: argparse.Namespace) -> None:
    given = given_for_compiling(options)
    if options.model is None and given:
        raise InvalidArgument(
            f"{', '.join(given)} is about a model: give it by --model, or leave it out"
        )
    documents = [read_document(path) for path in options.documents]
    if options.output.endswith(".json"):
        write(options, options.output, node_data(documents) + "\n")
        say(f"wrote {options.output}")
        return
    setting = casts(options) if options.model is not None else {}
    options.writing.append(options.output)
    reports.write_report(
        options.output, documents, model=options.model, command=command_line(options), **setting
    )
    say(f"wrote {options.output}")


def read_document(path: str) -> dict[str, object]:
    """What a command wrote with --json. Raises InvalidData for another file."""
    text = read_text(path, "document of neuronsim's", MOST_BYTES)
    try:
        found = json_documents.parse(text)
    except InvalidArgument as error:
        raise InvalidData(f"{path} holds no document of neuronsim's: {error}") from error
    if not isinstance(found, dict):
        raise InvalidData(f"{path} holds no document of neuronsim's: it is no JSON object")
    return found
