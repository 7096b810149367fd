"""Writes docs/cost-model.md: what the cost model assumes, from the data that the command prints.

python docs/make_cost_model.py
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from neuronsim.tuning.assumptions import ASSUMPTIONS, Assumption

HEAD = """# The cost model
`neuronsim tune` ranks settings by an estimated time on one NeuronCore, and `neuronsim cost MODEL` prints it alone,
without data: for every setting of AWS's table, or with a setting (`--auto-cast all`, `--policy`, `--plan`) instruction
by instruction. `--json` has all figures and the timeline of the engines; `neuronsim cost --assumptions` prints this page's
list. Nothing in it is fitted to a measurement: it was made without a device, from what AWS publishes. Read it as an
order of settings with its reasons, not as a time.

Three figures enclose the truth as far as the assumptions hold. `estimated` lets engines work one after another, with
the memory beside them; the timeline lets an instruction start when its operands are there and its engine is free;
`least` is the roofline: the busiest engine, or all bytes of the device memory at its bandwidth. Where the estimates of
two neighbours in AWS's table contradict its order, the command says so and what takes more time.

What costs are made of, in Python: `neuronsim.cost(model, ...)` and `neuronsim.cost_ladder(model)` give `CostReport`s;
`neuronsim.tuning.marginal_costs.marginal_costs(module, target)` gives what each instruction costs in each type, with the
casts at its borders; `neuronsim.tuning.engine_formulas` has AWS's formulas and the peaks that follow from them.

Sources: *estimated instruction cost* is in the docstrings of `general/nki/api/nki/isa/__init__.py` of
[aws-neuron-sdk](https://github.com/aws-neuron/aws-neuron-sdk) at v2.25.0; the
[architecture guide](https://awsdocs-neuron.readthedocs-hosted.com/en/latest/nki/arch/trainium_inferentia2_arch.html) and the
hardware pages (`about-neuron/arch/neuron-hardware/`: `neuron-core-v2`, `trainium`, `inferentia2`, `neuron-core-v1`,
`inferentia`) are AWS's documentation of Neuron.

## Documented
What AWS says, and its page.
"""
CHOSEN = """
## Chosen
What AWS does not say, and the model needs.
"""


def page() -> str:
    """The page."""
    documented = [_item(a) for a in ASSUMPTIONS if a.documented]
    chosen = [_item(a) for a in ASSUMPTIONS if not a.documented]
    return HEAD + "".join(documented) + CHOSEN + "".join(chosen)


def _item(a: Assumption) -> str:
    text = f"- **{a.subject}.** {a.text} *({a.source})*"
    return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("cost-model.md").write_text(page())
