"""The standard's constants, and NumPy's `euler_gamma`: Python floats, weak beside arrays (C8)."""

from __future__ import annotations

from math import e, inf, nan, pi

__all__ = ["e", "euler_gamma", "inf", "nan", "newaxis", "pi"]

# Euler's constant, to the nearest float64 (OEIS A001620 has the digits).
euler_gamma = 0.57721566490153286060
newaxis = None
