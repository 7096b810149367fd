"""The command `neuronsim`. Every error is one paragraph on stderr and exit status 2; a reader that
leaves before the end is none.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from collections.abc import Sequence

from neuronsim.cli import blaming, costing, executing, lint, measuring, plans, reporting, tuning
from neuronsim.cli.arguments import parse
from neuronsim.cli.output import check_outputs, print_error, print_warning, standard_streams
from neuronsim.errors import FlagWarning, InvalidArgument, NeuronSimError
from neuronsim.processor import check_environment, pinned

# In the order of --help.
COMMANDS = (
    tuning.declare_commands,
    blaming.declare_commands,
    executing.declare_commands,
    plans.declare_commands,
    costing.declare_cost,
    reporting.declare_report,
    measuring.declare_bench,
    lint.declare_commands,
)


@pinned
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = argparse.Namespace(status=0, writing=[])
    is_closed = sys.stdout is None
    with standard_streams():
        try:
            if is_closed:
                raise InvalidArgument("standard output is closed: redirect it, to /dev/null at least")
            _run_command(sys.argv[1:] if arguments is None else arguments, options)
        except NeuronSimError as error:
            if getattr(error, "errno", None) == errno.EPIPE:  # the reader has what it wanted
                return int(options.status)
            print_error(str(error))
            return 2
        except KeyboardInterrupt:
            begun, journal = ", ".join(options.writing), getattr(options, "journal", None)
            kept = "nothing was written"
            if journal and os.path.exists(journal):
                kept = f"what ended before is in {journal}"
            print_error(
                f"interrupted as it wrote {begun}: no regular file is half written"
                if begun
                else f"interrupted; {kept}"
            )
            return 130
    return int(options.status)


def _run_command(arguments: Sequence[str], options: argparse.Namespace) -> None:
    """Run a command; `options` then has its `status`, and the files that it was `writing`."""
    try:
        check_environment()
        options.words = list(arguments)
        parse(COMMANDS, arguments, options)
        with warnings.catch_warnings():
            warnings.simplefilter("always", FlagWarning)
            warnings.showwarning = print_warning
            check_outputs(options)
            options.run(options)
    finally:  # also after --help, which ends the process
        sys.stdout.flush()
