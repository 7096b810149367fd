"""Policies: their records, named ones and files; their rules, and the calibration that rules ask for.

>>> policy = find_policy("tensorflow/bfloat16")
>>> policy.low, policy.propagate, "mean" in policy.lists["follow"]
(neuronsim.bfloat16, 'allow_paths', True)
>>> find_policy("tvm/float16").accumulate, find_policy("all/bf16").reasons["constant"]
(neuronsim.float16, "A2: {policy} converts constants to {low} once: their readers' copies are {low}")
"""

from __future__ import annotations

import dataclasses

from neuronsim.casting.policies.named import POLICIES
from neuronsim.casting.policies.policy import Policy, Rule
from neuronsim.errors import InvalidArgument, nearest


def find_policy(name: str) -> Policy:
    """The policy of this name. Raises InvalidArgument with the nearest and the known ones.

    >>> find_policy("modelopt/bfloat16").keep_output_type
    False
    """
    if name not in POLICIES:
        raise InvalidArgument(
            f"unknown policy {name!r}{nearest(name, POLICIES)}: neuronsim knows {', '.join(POLICIES)}"
        )
    return POLICIES[name]


def with_rules(policy: Policy, *rules: Rule) -> Policy:
    """A policy with further rules, which win over those that it has.

    >>> keep = Rule("the first layer stays", "never", name=("dot.1",))
    >>> len(with_rules(find_policy("modelopt/float16"), keep).rules)
    3
    """
    return dataclasses.replace(policy, rules=(*policy.rules, *rules))
