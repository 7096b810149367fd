"""Makes hardest.npz: for each function of one variable (E3) the float32 inputs whose exact values lie
nearest to a boundary between two roundings, with their correctly rounded results.

    python -m tests.data.hardest [NAME ...]

Needs gmpy2 and a C++ compiler; a minute or less for a function. Names already in the file are kept.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.core import mpfr
from tests.core.screening import Screening, Words

from neuronsim.reference.functions import ONE_VARIABLE

FILE = Path(__file__).with_name("hardest.npz")
COUNT = 1000
SIGN = 1 << 31


def word(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


# Words of the magnitudes to search. Below 2^-30 these functions are x, x/2, 1, 1/2 or another constant
# but for a last bit that is far from a tie, or they tie with their whole neighbourhood (gelu of
# subnormals, tests of their own); above 2^8 those that saturate have done so.
SMALLEST = word(2.0**-30)
SATURATING = (SMALLEST, word(2.0**8))
TO_THE_END = (SMALLEST, word(np.inf))
SMALL = word(2.0**-12)
ANY_BINADE = ["log", "log2", "log10"]
MAGNITUDES = {
    **dict.fromkeys(ANY_BINADE, (1, word(np.inf))),
    **dict.fromkeys(["log1p", "sin", "cos", "tan", "atan", "asinh", "acosh"], TO_THE_END),
    # The other binades repeat these.
    **dict.fromkeys(["sqrt", "rsqrt"], (word(1), word(4))),
    "reciprocal": (word(1), word(2)),
    "cbrt": (word(1), word(8)),
}


def hardest(screening: Screening, name: str) -> tuple[Words, Words]:
    """The hardest inputs in ascending order of their words, and the results."""
    first, end = MAGNITUDES.get(name, SATURATING)
    f = ONE_VARIABLE[name]  # an odd or even one has each hard case twice
    signs = [0] if f.parity or f.domain[0] >= 0 else [0, SIGN]
    size = len(signs) * (end - first)
    # Of random values this many lie so near, relative to them: a spacing is 2^-23.5 of a value.
    distance = 4 * COUNT / size * 2.0**-24.5
    while True:
        found = [screening.near_ties(name, first | s, (end - 1) | s, distance) for s in signs]
        candidates = np.concatenate(found)
        distances = np.array([mpfr.distance(name, w) for w in candidates.tolist()])
        chosen = limited(candidates, np.argsort(distances, kind="stable"), name, size >> 23)
        # All within 2^23 times the relative distance have been found, in spacings.
        if len(chosen) == COUNT and distances[chosen[-1]] < distance * 2.0**23:
            break
        distance *= 4
    words = np.sort(candidates[chosen])
    results = np.array([mpfr.result(name, w) for w in words.tolist()], np.uint32)
    print(
        f"{name}: {len(words)} of {len(candidates)} within 2^{np.log2(distance):.1f}, the nearest"
        f" {distances.min():.2g} and the last {distances[chosen[-1]]:.2g} spacings from a tie"
    )
    return words, results


def limited(candidates: Words, order: npt.NDArray[np.int64], name: str, binades: int) -> list[int]:
    """The first of the order but for structured families: at most a fifth is of one binade, if there
    are as many, or so small that two terms of a series are all there is to it.
    """
    most = max(COUNT // 5, -(-COUNT // binades))
    per_binade = dict.fromkeys(range(512), 0)
    small, chosen = 0, []
    for place in order.tolist():
        word = int(candidates[place])
        is_small = word % SIGN < SMALL and name not in ANY_BINADE
        if per_binade[word >> 23] == most or (is_small and small == COUNT // 5):
            continue
        per_binade[word >> 23] += 1
        small += is_small
        chosen.append(place)
        if len(chosen) == COUNT:
            break
    return chosen


def main(names: list[str]) -> None:
    data = dict(np.load(FILE)) if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        screening = Screening(Path(folder))
        for name in names or mpfr.FUNCTIONS:
            if name in data:
                continue
            start = time.perf_counter()
            data[name] = np.stack(hardest(screening, name))
            np.savez_compressed(FILE, allow_pickle=False, **data)
            print(f"    {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
