"""What was made of constants, by the memory in which they lie: products that read the same weights
share their packing, and so do compilations that are given the same store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from neuronsim.executor.memory import address
from neuronsim.ops import Bits

T = TypeVar("T")


@dataclass
class KnownConstants:
    """Values made of constants. Beyond `limit` bytes it begins anew.

    >>> import numpy as np
    >>> from neuronsim.dtypes import float32
    >>> x = Bits(np.ones(4, np.float32), float32)
    >>> known = KnownConstants()
    >>> a, b = (known.of("doubled", x, lambda: x.data * 2) for _ in range(2))
    >>> a is b, len(known)
    (True, 1)
    """

    limit: int = 1 << 62
    _found: dict[Hashable, tuple[Any, Bits]] = field(default_factory=dict)
    _held: int = 0

    def __len__(self) -> int:
        return len(self._found)

    def of(self, what: Hashable, constant: Bits, make: Callable[[], T]) -> T:
        """What `make` gives of a constant the first time that `what` is asked of it."""
        data = constant.data
        place = address(data), data.shape, data.strides, constant.dtype
        key = (what, place)
        if key not in self._found:
            made = make()
            if self._held + data.nbytes > self.limit:
                self._found.clear()
                self._held = 0
            # The constant is kept, so that no other lies in its place.
            self._found[key] = made, constant
            self._held += data.nbytes
        found: T = self._found[key][0]
        return found
