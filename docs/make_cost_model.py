"""Writes the lists of docs/cost-model.md: what the cost model assumes, as the command prints it.

python docs/make_cost_model.py
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from neuronsim.tuning.assumptions import ASSUMPTIONS, Assumption

PAGE = Path(__file__).with_name("cost-model.md")
DOCUMENTED = """## Documented
What AWS says, and its page.
"""
CHOSEN = """
## Chosen
What AWS does not say, and the model needs.
"""


def page(text: str) -> str:
    """The page with its lists of assumptions made anew."""
    head = text.partition(DOCUMENTED)[0]
    documented = [_item(a) for a in ASSUMPTIONS if a.documented]
    chosen = [_item(a) for a in ASSUMPTIONS if not a.documented]
    return head + DOCUMENTED + "".join(documented) + CHOSEN + "".join(chosen)


def _item(a: Assumption) -> str:
    text = f"- **{a.subject}.** {a.text} *({a.source})*"
    return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
