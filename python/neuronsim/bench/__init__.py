"""The harness of `neuronsim bench`: kernels timed against peers, alternately, in one run.

An absolute time says little on a shared machine; a ratio measured in one run does. See `measure`.
"""

from neuronsim.bench.kernels import kernel_names
from neuronsim.bench.layer import Layer, parse_layer
from neuronsim.bench.measure import SETTLE_SECONDS, Measurement, alternate, measure
from neuronsim.bench.memory import MemoryUse, measure_memory
from neuronsim.bench.peers import PEERS, timer
