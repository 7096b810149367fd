"""The standard's constants, and NumPy's `euler_gamma`: Python floats, weak beside arrays (C8); and
NumPy's `True_` and `False_`: read-only bool arrays without axes.
"""

from __future__ import annotations

from math import e, inf, nan, pi

from neuronsim.arrays.conversion import asarray

__all__ = ["False_", "True_", "e", "euler_gamma", "inf", "nan", "newaxis", "pi"]

# Euler's constant, to the nearest float64 (OEIS A001620 has the digits).
euler_gamma = 0.57721566490153286060
newaxis = None
True_, False_ = asarray(True), asarray(False)
True_.setflags(write=False)
False_.setflags(write=False)
