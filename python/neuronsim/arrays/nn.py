"""`neuronsim.nn`: what networks are made of, each function with the formula whose bits it gives.

>>> from neuronsim.arrays.conversion import asarray
>>> softmax(asarray([0.0, 0.0], dtype="bfloat16"))
Array([0.5, 0.5], dtype=bfloat16)
"""

from neuronsim.arrays import activations, convolution, layers, losses, normalization, pooling
from neuronsim.arrays.absent_names import refuse
from neuronsim.arrays.activations import *  # noqa: F403
from neuronsim.arrays.convolution import *  # noqa: F403
from neuronsim.arrays.layers import *  # noqa: F403
from neuronsim.arrays.losses import *  # noqa: F403
from neuronsim.arrays.normalization import *  # noqa: F403
from neuronsim.arrays.pooling import *  # noqa: F403

__all__ = [
    name
    for chapter in (activations, convolution, layers, losses, normalization, pooling)
    for name in chapter.__all__
]

__getattr__ = refuse("numpy.nn", __all__)
__dir__ = __all__.copy
