"""Why a plan decides what it decides: the text, and what a table says of it.

>>> follows = by_policy("tvm/float16", it(Reason("follows dot.3 and dot.4", "follows its inputs")))
>>> reason = follows.then(by_rule("long sums", "elements in each sum: 768 > 512"))
>>> print(reason)
tvm/float16: it follows dot.3 and dot.4; long sums (elements in each sum: 768 > 512)
>>> reason.short
'follows its inputs; long sums'
>>> told(str(reason), "tvm/float16").short == reason.short
True
"""

from __future__ import annotations

import re


class Reason(str):
    """A text; `short` leaves out the policy's name, those of neighbours and, where that ends the text,
    the `fact` that a rule measured.
    """

    short: str
    fact: str

    def __new__(cls, text: str, short: str | None = None, fact: str = "") -> Reason:
        made = super().__new__(cls, text)
        made.short = text if short is None else short
        made.fact = fact
        return made

    def then(self, more: str, by: str = "; ") -> Reason:
        """The reason with more after it."""
        other = more if isinstance(more, Reason) else Reason(more)
        return Reason(f"{self}{by}{other}", f"{self.short}{self.fact}{by}{other.short}", other.fact)


def by_policy(policy: str, what: str) -> Reason:
    """What a policy says."""
    return Reason(f"{policy}: {what}", what.short if isinstance(what, Reason) else what)


def by_rule(reason: str, fact: str) -> Reason:
    """What a rule says, and the fact that made it match."""
    # What an op_name says, jit(f)/dot, tells instructions apart: tables have it too.
    if "(" in fact and not fact.startswith("float("):
        return Reason(f"{reason} ({fact})")
    return Reason(f"{reason} ({fact})", reason, f" ({fact})")


def stated(template: str, policy: str, **values: str) -> Reason:
    """A text in which `{policy}` is the policy's name, and other words in braces are the values."""
    short = template.removeprefix("{policy}: ").replace(" {policy} ", " ")
    texts = [template, short]
    for name, value in {"policy": policy, **values}.items():
        texts = [t.replace(f"{{{name}}}", value) for t in texts]
    return Reason(*texts)


def it(how: str) -> Reason:
    """How propagation reached an instruction."""
    return Reason(f"it {how}", how.short if isinstance(how, Reason) else f"it {how}")


# How propagation says that it reached an instruction, by names, and what tables say of all such.
SPREADS = {
    "follows": "follows its inputs",
    "is between": "is between products",
    "leads to or from": "moves or selects what is low",
    "is read only by": "is read only by what is low",
    "is read by": "is read by what is low",
}


def spread(how: str, names: str) -> Reason:
    """How propagation reached an instruction: a key of SPREADS."""
    return Reason(f"{how} {names}", SPREADS[how])


_FACT = re.compile(r" \((?:it|its|the|elements|\w+(?:\(\d+,\d+\))? makes) [^()]*\)$")


def told(reason: str, policy: str) -> Reason:
    """The reason itself; or one of a text from a plan's file, or by hand, which has nothing else."""
    if isinstance(reason, Reason):
        return reason
    fact = _FACT.search(reason)
    text = _FACT.sub("", reason).removeprefix(f"{policy}: ").replace(f" {policy} ", " ")
    parts = (
        next((short for how, short in SPREADS.items() if p.startswith(f"it {how} ")), p)
        for p in text.split("; ")
    )
    return Reason(reason, "; ".join(parts), fact.group() if fact else "")
