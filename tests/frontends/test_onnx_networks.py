"""ONNX's convolutions, pools, norms, resizes, samplers and recurrent networks: traced as eager, and
right by ONNX's own evaluator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_cases import BFLOAT16, Case, check, check_traced_as_eager, floats, ints, run
from tests.support.parameters import each_of

from neuronsim.errors import InvalidModel, UnsupportedOperator

IMAGE = floats(2, 4, 7, 6)
W = floats(6, 2, 3, 2, seed=1)
BIAS = floats(6, seed=2)
LINE = floats(2, 3, 9)
CHANNELS = [floats(4, seed=n) for n in (1, 2, 3)]
VARIANCE = abs(floats(4, seed=4)) + 1

CONVOLUTIONS = [
    Case("Conv", [IMAGE, W, BIAS], 1, {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}),
    Case("Conv", [IMAGE, W, BIAS], 3, {"group": 2, "dilations": [2, 1], "auto_pad": "SAME_LOWER"}),
    Case("Conv", [IMAGE, W], 1, {"group": 2, "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("Conv", [LINE, floats(5, 3, 4)], 1, {"auto_pad": "VALID"}),
    Case("ConvTranspose", [IMAGE, floats(4, 3, 3, 2), floats(3)], 1,
         {"strides": [2, 3], "pads": [1, 0, 0, 1], "output_padding": [1, 0]}),
    Case("ConvTranspose", [IMAGE, floats(4, 3, 3, 2)], 1,
         {"strides": [2, 2], "output_shape": [15, 12]}),
    Case("ConvTranspose", [LINE, floats(3, 2, 4)], 1, {"auto_pad": "SAME_UPPER", "strides": [2]}),
]  # fmt: skip

POOLS = [
    *(
        Case(name, [IMAGE], 1, {"kernel_shape": [3, 2], "strides": [2, 2], **more})
        for name in ("MaxPool", "AveragePool", "LpPool")
        for more in (
            {"pads": [1, 0, 0, 1]},
            {"ceil_mode": 1, "pads": [1, 1, 1, 1]},
            {"dilations": [2, 3]},
            {"auto_pad": "SAME_UPPER"},
        )
    ),
    Case("AveragePool", [IMAGE], 1, {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0],
         "count_include_pad": 1, "ceil_mode": 1, "strides": [2, 2]}),
    Case("GlobalAveragePool", [IMAGE]),
    Case("GlobalMaxPool", [IMAGE]),
    Case("GlobalLpPool", [IMAGE], 1, {"p": 3},
         wanted=(abs(IMAGE) ** 3).sum((2, 3), keepdims=True) ** np.float32(1 / 3)),
    Case("MaxUnpool", [floats(1, 1, 2, 2), ints([[[5, 7], [13, 15]]]).reshape(1, 1, 2, 2)], 2,
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("LRN", [floats(4, 4, 2, 2)], 1, {"size": 3, "alpha": 0.1}),
]  # fmt: skip

NORMS = [
    Case("BatchNormalization", [IMAGE, *CHANNELS, VARIANCE]),
    Case("BatchNormalization", [IMAGE, *CHANNELS, VARIANCE], 5, {"epsilon": 1e-2}, 14),
    Case("BatchNormalization", [IMAGE, *CHANNELS, VARIANCE], 5, {"training_mode": 1}, outputs=3),
    Case("InstanceNormalization", [IMAGE, *CHANNELS[:2]]),
    Case("GroupNormalization", [IMAGE, *CHANNELS[:2]], 3, {"num_groups": 2}),
    Case("GroupNormalization", [IMAGE, *(c[:2] for c in CHANNELS[:2])], 3, {"num_groups": 2}, 18),
    Case("LayerNormalization", [LINE, floats(9), floats(9, seed=1)], 3, outputs=3),
    Case("LayerNormalization", [LINE, floats(3, 9)], 1, {"axis": 1}),
    Case("LayerNormalization", [LINE, floats(3, 9), floats(9)], 3, {"axis": 2}),
    Case("RMSNormalization", [LINE, floats(9)], 2),
    Case("RMSNormalization", [LINE.astype(np.float16), floats(9).astype(np.float16)], 2),
]

SCALES = [np.float32([]), np.float32([1, 1, 2.5, 0.6])]
RESIZES = [
    *(
        Case("Resize", [IMAGE, *SCALES], 1, {"mode": mode, "coordinate_transformation_mode": at})
        for mode in ("nearest", "linear", "cubic")
        for at in ("half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric")
    ),
    *(
        Case("Resize", [IMAGE, None, None, ints(5, 9)], 1,
             {"axes": [2, 3], "nearest_mode": rounding})
        for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ),
    *(
        Case("Resize", [IMAGE, *SCALES], 1, {"mode": mode, **more})
        for mode in ("linear", "cubic")
        for more in ({"antialias": 1}, {"exclude_outside": int(mode == "cubic")})
    ),
    Case("Resize", [IMAGE, None, np.float32([1, 1, 2, 3])]),
    Case("Resize", [IMAGE, None, None, ints(2, 4, 9, 9)], 1,
         {"keep_aspect_ratio_policy": "not_larger", "mode": "linear"}),
    Case("Resize", [IMAGE, np.float32([0, 0, 0.2, 0.1, 1, 1, 0.8, 1.2]), None, ints(2, 4, 5, 5)], 1,
         {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear",
          "extrapolation_value": 3.0}),
    Case("Resize", [IMAGE, np.float32([1, 1, 2, 2])], 1, {"mode": "nearest"}, 10,
         wanted=IMAGE.repeat(2, 2).repeat(2, 3)),
    # The middle of a symmetric grid is exact.
    Case("Resize", [np.float32(range(7)), None, np.float32([1.7])], 1,
         {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": "ceil"},
         wanted=np.float32([1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6])),
    Case("Upsample", [IMAGE, np.float32([1, 1, 2, 2])], 1, {"mode": "nearest"}, 9,
         wanted=IMAGE.repeat(2, 2).repeat(2, 3)),
    Case("Upsample", [IMAGE], 1, {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 1.0]}, 7,
         wanted=IMAGE.repeat(2, 2)),
]  # fmt: skip

GRID = np.random.default_rng(5).uniform(-1.4, 1.4, (2, 3, 4, 2)).astype(np.float32)
ROIS = np.float32([[0.5, 1, 4, 5.5], [1, 0, 3, 3]])
SAMPLES = [
    *(
        Case("GridSample", [IMAGE, GRID], 2,
             {"mode": mode, "padding_mode": padding, "align_corners": corners})
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
        for corners in (0, 1)
        if (mode, padding) != ("cubic", "border")  # ONNX's evaluator has it unlike PyTorch
    ),
    Case("AffineGrid", [floats(2, 2, 3), ints(2, 1, 4, 5)], 1, {"align_corners": 1}),
    Case("AffineGrid", [floats(2, 3, 4), ints(2, 1, 2, 3, 4)]),
    *(
        Case("RoiAlign", [IMAGE, ROIS, ints(1, 0)], 3,
             {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "mode": mode})
        for mode in ("avg", "max")
    ),
    Case("RoiAlign", [IMAGE, ROIS, ints(1, 0)], 1, {"output_height": 2, "output_width": 2}, 16),
    Case("DeformConv", [floats(1, 2, 5, 5), floats(3, 2, 2, 2), floats(1, 8, 4, 4) / 2, floats(3),
         abs(floats(1, 4, 4, 4))], 5, {"kernel_shape": [2, 2], "pads": [0, 0, 0, 0]}),
]  # fmt: skip

HEADS = [floats(2, 2, 4, 3, seed=n) for n in range(3)]
BODIES = [  # operators that are run by ONNX's own body
    Case("Attention", HEADS, 3, {"is_causal": 1}),
    Case("Attention", [*HEADS, np.tri(4, dtype=bool)], 3, {"scale": 0.3, "softcap": 2.0}),
    Case("RotaryEmbedding", [floats(1, 2, 3, 4), floats(5, 2), floats(5, 2, seed=1),
         ints([0, 3, 1])], 3),
    Case("LinearAttention", [floats(1, 3, 4, seed=n) for n in range(3)], 3,
         {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}, 27, 2),
    Case("CausalConvWithState", [floats(1, 3, 5), floats(3, 1, 2)], 2, {}, 27, 2),
    Case("TensorScatter", [floats(2, 1, 5, 3), floats(2, 1, 2, 3), ints(3, 0)], 3),
    Case("TensorScatter", [floats(2, 1, 5, 3), floats(2, 1, 2, 3), ints(4, 1)], 3,
         {"mode": "circular"}),
]  # fmt: skip


def recurrent(op: str, gates: int, steps: int, directions: int, **attributes: Any) -> Case:
    """A layer of 3 inputs and 2 units over 2 samples."""
    x = floats(steps, 2, 3)
    weights = [floats(directions, gates * 2, n, seed=n) for n in (3, 2)]
    bias = floats(directions, 2 * gates * 2, seed=7)
    state = [floats(directions, 2, 2, seed=8 + n) for n in range(2 if op == "LSTM" else 1)]
    direction = attributes.pop("direction", "bidirectional" if directions == 2 else "forward")
    given = {"hidden_size": 2, "direction": direction, **attributes}
    return Case(op, [x, *weights, bias, None, *state], 1, given, outputs=1 + len(state))


def by_steps(case: Case) -> list[Any]:
    """The outputs of a layer in float64, one step at a time, by ONNX's formulas and the functions
    sigmoid and tanh.
    """
    x, w, r, b, _, *state = (None if v is None else v.astype(np.float64) for v in case.inputs)
    found, last = [], []
    for n in range(w.shape[0]):
        backwards = case.attributes["direction"] == "reverse" or n == 1
        carry, column = [s[n] for s in state], []
        for given in x[::-1] if backwards else x:
            carry = _step(case, given, carry, w[n], r[n], b[n])
            column.append(carry[0])
        found.append(np.stack(column[::-1] if backwards else column))
        last.append(carry)
    return [np.stack(found, 1), *(np.stack(s) for s in zip(*last, strict=True))]


def _step(case: Case, x: Any, state: list[Any], w: Any, r: Any, b: Any) -> list[Any]:
    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    h = state[0]
    gates = len(w) // 2
    parts = [
        [x @ w[k : k + 2].T + b[k : k + 2], r[k : k + 2].T, b[2 * gates + k : 2 * gates + k + 2]]
        for k in range(0, 2 * gates, 2)
    ]
    if case.op_type == "RNN":
        ((own, u, more),) = parts
        return [np.tanh(own + h @ u + more)]
    if case.op_type == "LSTM":
        i, o, f, g = (own + h @ u + more for own, u, more in parts)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]
    z, r_ = (sigmoid(own + h @ u + more) for own, u, more in parts[:2])
    own, u, more = parts[2]
    after = case.attributes.get("linear_before_reset")
    new = np.tanh(own + (r_ * (h @ u + more) if after else (r_ * h) @ u + more))
    return [(1 - z) * new + z * h]


LAYERS = [
    recurrent(op, gates, steps, directions, **more)
    for op, gates, more in (
        ("LSTM", 4, {}),
        ("GRU", 3, {}),
        ("GRU", 3, {"linear_before_reset": 1}),
        ("RNN", 1, {}),
    )
    for steps, directions in ((1, 1), (5, 2), (20, 2))
] + [recurrent("LSTM", 4, 20, 1, direction="reverse")]


@each_of("case", [*CONVOLUTIONS, *POOLS, *NORMS, *RESIZES, *SAMPLES, *BODIES], ids=str)
def test_traced_as_eager_and_right(case: Case) -> None:
    check(case, 1e-3)


@each_of("case", LAYERS, ids=str)
def test_recurrent_layers(case: Case) -> None:
    for found, wanted in zip(check_traced_as_eager(case), by_steps(case), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_a_sample_that_ends_keeps_its_state(op: str) -> None:
    """As if it were alone and shorter, backwards too."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    case = recurrent(op, gates, 5, 2)
    lengths = np.int32([3, 5])
    given = [*case.inputs[:4], lengths, *case.inputs[5:]]
    whole = run(Case(op, given, 5, case.attributes, outputs=case.outputs))
    alone = [x[:, :1] if n in (0, 5, 6) else x for n, x in enumerate(case.inputs)]
    alone[0] = alone[0][:3]
    short = run(Case(op, alone, 1, case.attributes, outputs=case.outputs))
    np.testing.assert_array_equal(whole[0][:3, :, :1], short[0])
    assert not whole[0][3:, :, 0].any()
    for found, wanted in zip(whole[1:], short[1:], strict=True):
        np.testing.assert_array_equal(found[:, :1], wanted)


@pytest.mark.parametrize("order", [0, 1])
def test_places_of_maxima(order: int) -> None:
    attributes = {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "storage_order": order}
    case = Case("MaxPool", [IMAGE], 1, attributes, outputs=2)
    values, places = check_traced_as_eager(case)
    whole = np.swapaxes(IMAGE, 2, 3) if order else IMAGE
    np.testing.assert_array_equal(whole.reshape(-1)[places], values)


def test_max_roi_pool() -> None:
    """The region's rows 1 to 4 and columns 0 to 2, in two bins each way that overlap."""
    rois = np.float32([[1, 0, 2, 4, 8]])
    attributes = {"pooled_shape": [2, 2], "spatial_scale": 0.5}
    (found,) = check_traced_as_eager(Case("MaxRoiPool", [IMAGE, rois], 2, attributes))
    x = IMAGE[1]
    bins = [[x[:, a:b, c:d].max((1, 2)) for c, d in ((0, 2), (1, 3))] for a, b in ((1, 3), (3, 5))]
    np.testing.assert_array_equal(found, np.array(bins).transpose(2, 0, 1)[None])


def test_batch_first() -> None:
    case = recurrent("GRU", 3, 4, 2)
    turned = [np.swapaxes(x, 0, 1) if n in (0, 5) else x for n, x in enumerate(case.inputs)]
    found = run(Case("GRU", turned, 1, {**case.attributes, "layout": 1}, outputs=2))
    y, h = run(case)
    np.testing.assert_array_equal(found[0], y.transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(found[1], np.swapaxes(h, 0, 1))


def test_bfloat16() -> None:
    """Sums are in float32, rounded once."""
    narrow = [x.astype(BFLOAT16) for x in (IMAGE, W, BIAS)]
    wide = Case("Conv", [x.astype(np.float32) for x in narrow], 3, {"group": 2})
    (found,) = run(Case("Conv", narrow, 3, {"group": 2}))
    assert found.dtype == BFLOAT16
    np.testing.assert_array_equal(found, run(wide)[0].astype(BFLOAT16))


@pytest.mark.parametrize(
    "case",
    [
        Case("Conv", [IMAGE, W], 1, {"auto_pad": "SAME"}),
        Case("Resize", [IMAGE, *SCALES], 1, {"mode": "area"}),
        Case("GridSample", [IMAGE, GRID], 1, {"padding_mode": "wrap"}),
        Case("MaxPool", [IMAGE], 1, {"kernel_shape": [2]}),
        recurrent("RNN", 1, 2, 1, activations=["Cube"]),
        recurrent("RNN", 1, 2, 1, direction="sideways"),
    ],
    ids=str,
)
def test_what_it_does_not_take_is_an_error_of_the_node(case: Case) -> None:
    with pytest.raises((InvalidModel, UnsupportedOperator), match=r"node \("):
        run(case)
