"""The harness of `neuronsim bench`: kernels timed against peers, alternately, in one process.

An absolute time says little on a shared machine; a ratio measured in one run does. See `measure`.
"""

from neuronsim.bench.kernels import kernel_names
from neuronsim.bench.measure import Measurement, measure
from neuronsim.bench.peers import PEERS

__all__ = ["PEERS", "Measurement", "kernel_names", "measure"]
