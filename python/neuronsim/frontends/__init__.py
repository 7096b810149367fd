"""From models as people have them to `hlo.Module`: one recorder, and a door for each form."""

# What traced arrays do is attached to them by these.
from neuronsim.frontends import numpy_functions as numpy_functions
from neuronsim.frontends import rows as rows
