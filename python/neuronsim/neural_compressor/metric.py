"""Built-in metrics under the name of Neural Compressor.

>>> METRICS("tensorflow")["topk"](k=5).build()
{'topk': {'k': 5}}
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from neuronsim.errors import InvalidArgument, nearest
from neuronsim.neural_compressor.evaluation import BUILT_IN
from neuronsim.neural_compressor.loaders import Metric

__all__ = ["METRICS", "Metric"]


class METRICS(dict[str, Callable[..., Metric]]):
    """The metrics that are built in, by name: `METRICS("tensorflow")["topk"](k=1)`; they do not depend
    on the framework. Raises InvalidArgument for one that there is not.
    """

    def __init__(self, framework: str = "") -> None:
        super().__init__({name: partial(Metric, None, name) for name in BUILT_IN})

    def __missing__(self, name: str) -> Callable[..., Metric]:
        raise InvalidArgument(
            f"there is no metric {name}{nearest(name, self)}: built in are {', '.join(self)}; for "
            "others give an object with update, reset and result, or an eval_func"
        )
