"""Blame: which instructions move a model's outputs under a plan, and why (docs/blame.md)."""
