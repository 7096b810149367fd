"""The slow twin (D3): the rules of `docs/numerics.md` in Python integers and fractions, to be read.

Every function takes and returns storage bits as Python integers. Nothing here shares code or tables
with the fast path, so that the two can be tested against each other.
"""
