"""The harness of `neuronsim bench`: kernels timed against peers, alternately, in one run.

An absolute time says little on a shared machine; a ratio measured in one run does. See `measure`.
"""

from neuronsim.bench.kernels import kernel_names as kernel_names
from neuronsim.bench.layer import Layer as Layer, parse_layer as parse_layer
from neuronsim.bench.measure import (
    SETTLE_SECONDS as SETTLE_SECONDS,
    Measurement as Measurement,
    alternate as alternate,
    measure as measure,
)
from neuronsim.bench.memory import MemoryUse as MemoryUse, measure_memory as measure_memory
from neuronsim.bench.peers import PEERS as PEERS, timer as timer
