"""What type checkers know of neuronsim.nn; written by `python python/make_stub.py`."""

from neuronsim.arrays.activations import (
    elu as elu, gelu as gelu, hard_sigmoid as hard_sigmoid, hardtanh as hardtanh,
    leaky_relu as leaky_relu, logsigmoid as logsigmoid, mish as mish, relu as relu, relu6 as relu6,
    sigmoid as sigmoid, silu as silu, softplus as softplus, tanh as tanh,
)
from neuronsim.arrays.convolution import (
    conv as conv, conv1d as conv1d, conv2d as conv2d, conv3d as conv3d,
    conv_transpose as conv_transpose,
)
from neuronsim.arrays.layers import (
    attention as attention, embedding as embedding, linear as linear, one_hot as one_hot,
)
from neuronsim.arrays.losses import cross_entropy as cross_entropy, mse_loss as mse_loss
from neuronsim.arrays.normalization import (
    batch_norm as batch_norm, group_norm as group_norm, layer_norm as layer_norm,
    log_softmax as log_softmax, logsumexp as logsumexp, rms_norm as rms_norm, softmax as softmax,
)
from neuronsim.arrays.pooling import avg_pool as avg_pool, max_pool as max_pool
