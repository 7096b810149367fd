"""From models as people have them to `hlo.Module`: one recorder, and a door for each form."""

# What traced arrays do is attached to them by these.
from neuronsim.frontends import numpy_functions as _numpy_functions
from neuronsim.frontends import rows as _rows

__all__: list[str] = []
