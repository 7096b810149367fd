"""Applying a plan: a module with converts, as few bytes of them as can be."""
