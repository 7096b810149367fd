"""Convolution in HLO: files, text, the verifier, and XLA's own modules executed (M5)."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from tests.hlo.messages import message_of, reread
from tests.support.graphs import inst, module_of, parameter

from neuronsim import api, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidModel, UnsupportedType
from neuronsim.hlo import proto, text
from neuronsim.hlo.module import Instruction, Module
from neuronsim.hlo.verify import verify
from neuronsim.ops import ConvolutionDimensions, WindowDimension

F32, S32 = dtypes.float32, dtypes.int32
NHWC = ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
EVERYTHING = (WindowDimension(3, 2, (1, -2), 2, 1, True), WindowDimension(2, 1, (0, 3), 1, 3, False))


def convolution(dims: tuple[int, ...], dtype: DType = F32, **changes: Any) -> Instruction:
    attributes = {
        "window": EVERYTHING,
        "dimension_numbers": NHWC,
        "feature_group_count": 2,
        "batch_group_count": 1,
    }
    return inst("c", "convolution", dims, "x", "w", dtype=dtype, **attributes | changes)


X, KERNEL = parameter("x", (2, 9, 8, 6)), parameter("w", (3, 2, 3, 4), 1)
RESULT = (2, 7, 8, 4)


# ---- files and text ------------------------------------------------------------------------------


def test_every_attribute_survives_writing_and_reading() -> None:
    module = module_of(X, KERNEL, convolution(RESULT))
    read = proto.from_bytes(proto.to_bytes(module))
    verify(read)
    assert read.root == module.root
    assert proto.to_bytes(read) == proto.to_bytes(module)


def test_counts_that_a_file_leaves_out_are_one() -> None:
    whole = parameter("w", (3, 2, 6, 4), 1)
    one = {"feature_group_count": 1, "batch_group_count": 1}
    module = module_of(X, whole, convolution(RESULT, **one))
    message = message_of(module)
    for i in message["computations"][0]["instructions"]:
        i.pop("feature_group_count", None)
        i.pop("batch_group_count", None)
    assert reread(message).root == module.root


def test_window_of_a_reduce_window_survives() -> None:
    dimension = {"size": 3, "stride": 1, "window_dilation": 2, "base_dilation": 1}
    i = {
        "name": "y",
        "opcode": "reduce-window",
        "id": 1,
        "shape": {"element_type": 11},
        "window": {"dimensions": [dimension]},
        "called_computation_ids": [1],
    }
    x = {"name": "x", "opcode": "parameter", "id": 2, "shape": {"element_type": 11}}
    top = {"name": "top", "instructions": [x], "root_id": 2, "id": 1}
    module = {"computations": [{"name": "main", "instructions": [i], "root_id": 1}, top]}
    module |= {"entry_computation_name": "main"}
    read = reread(module)
    assert read.root.attributes["window"] == (WindowDimension(3, window_dilation=2),)
    assert proto.from_bytes(proto.to_bytes(read)).root == read.root


@pytest.mark.parametrize(
    ("changes", "printed"),
    [
        (
            {},
            "window={size=3x2 stride=2x1 pad=1_-2x0_3 lhs_dilate=2x1 rhs_dilate=1x3 rhs_reversal=1x0}, "
            "dim_labels=b01f_01io->b01f, feature_group_count=2",
        ),
        (
            {"window": (WindowDimension(3, 1, (1, 1)),) * 2, "feature_group_count": 1},
            "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        ),
        (
            {
                "window": (WindowDimension(4),),
                "dimension_numbers": ConvolutionDimensions(1, 0, (2,), 2, 0, (1,), 2, 1, (0,)),
                "feature_group_count": 1,
                "batch_group_count": 3,
            },
            "window={size=4}, dim_labels=fb0_o0i->0fb, batch_group_count=3",
        ),
        (
            {
                "window": (),
                "dimension_numbers": ConvolutionDimensions(0, 1, (), 1, 0, (), 0, 1, ()),
                "feature_group_count": 1,
            },
            "dim_labels=bf_oi->bf",
        ),
    ],
)
def test_attributes_are_printed_as_xla_prints_them(changes: dict[str, Any], printed: str) -> None:
    line = text.format_instruction(convolution(RESULT, **changes))
    assert line == f"%c = f32[2,7,8,4]{{3,2,1,0}} convolution(%x, %w), {printed}"


# ---- the verifier --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (convolution((2, 7, 8, 5)), "its operands give"),
        (convolution(RESULT, feature_group_count=3), "3 feature groups"),
        (convolution(RESULT, feature_group_count=2, batch_group_count=2), "one of them 1"),
        (convolution(RESULT, feature_group_count=-2), "positive"),
        (convolution(RESULT, window=EVERYTHING[:1]), "needs 3 in the input"),
        (convolution(RESULT, window=(WindowDimension(3, 0), EVERYTHING[1])), "from 1 to"),
        (convolution(RESULT, window=(WindowDimension(2), EVERYTHING[1])), "the kernel is"),
        (
            convolution(RESULT, dimension_numbers=dataclasses.replace(NHWC, output_batch=3)),
            "the output, each listed once",
        ),
        (convolution(RESULT).replace(operands=("x",)), "takes 2 operands"),
    ],
)
def test_convolution_that_contradicts_itself_is_refused_by_name(bad: Instruction, message: str) -> None:
    with pytest.raises(InvalidModel, match=rf"NCC_EVRF064\] main/c \(convolution\): .*{message}"):
        module_of(X, KERNEL, bad)


def test_convolution_of_types_without_products_is_refused_by_name() -> None:
    kernel = parameter("w", (3, 2, 3, 4), 1, S32)
    with pytest.raises(UnsupportedType, match=r"main/c \(convolution\): .* of float32 and int32"):
        module_of(X, kernel, convolution(RESULT))


# ---- XLA's own modules ---------------------------------------------------------------------------

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 9, 8), (4, 3, 3, 2), {}),
    "strides and padding": (
        (2, 3, 9, 8),
        (4, 3, 3, 2),
        {"window_strides": (2, 3), "padding": [(1, 2), (0, 1)]},
    ),
    "negative padding": ((2, 3, 9, 8), (4, 3, 3, 2), {"padding": [(-1, 2), (0, -3)]}),
    "both dilations": (
        (2, 3, 9, 8),
        (4, 3, 3, 2),
        {"padding": [(1, 0), (2, -1)], "lhs_dilation": (2, 3), "rhs_dilation": (3, 1)},
    ),
    "feature groups": ((2, 6, 9, 8), (4, 3, 3, 2), {"feature_group_count": 2}),
    "depthwise": ((2, 6, 9, 8), (12, 1, 3, 2), {"feature_group_count": 6}),
    "batch groups": ((6, 3, 9, 8), (4, 3, 3, 2), {"batch_group_count": 2}),
    "one dimension": (
        (2, 11, 3),
        (4, 3, 5),
        {"window_strides": (2,), "dimension_numbers": ("NWC", "WIO", "NWC")},
    ),
    "three dimensions": ((1, 4, 5, 6, 2), (2, 3, 2, 2, 5), {"dimension_numbers": ("NDHWC",) * 2}),
    "no dimension": ((4, 3), (5, 3), {}),
    "odd order": ((3, 9, 2, 8), (3, 4, 2, 3), {"dimension_numbers": ("CHNW", "IOWH", "WNCH")}),
    "narrow to float32": (
        (2, 3, 9, 8),
        (4, 3, 3, 2),
        {"dtype": "bfloat16", "preferred_element_type": "float32"},
    ),
    "integers": ((2, 3, 9, 8), (4, 3, 3, 2), {"dtype": "int32"}),
}


@pytest.fixture(params=CASES)
def jax_case(request: pytest.FixtureRequest) -> tuple[Module, Any, list[np.ndarray], np.ndarray]:
    """A convolution of jax as neuronsim reads it, XLA's text of it, operands, and XLA's result on
    the CPU.
    """
    jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")
    lhs, rhs, options = CASES[request.param]
    options = dict(options)
    dtype = options.pop("dtype", "float32")
    spatial = len(lhs) - 2
    options.setdefault("window_strides", (1,) * spatial)
    options.setdefault("padding", [(0, 0)] * spatial)
    numbers = options.get("dimension_numbers")
    if numbers is not None and len(numbers) == 2:
        options["dimension_numbers"] = (numbers[0], "DHWIO", numbers[0])
    rng = np.random.default_rng(1)
    values = [np.round(rng.standard_normal(s) * 8) / 8 for s in (lhs, rhs)]
    operands = [np.asarray(v, jax.numpy.dtype(dtype)) for v in values]

    def f(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, **options)

    lowered = jax.jit(f).lower(*operands).compiler_ir("hlo")
    module = proto.from_bytes(lowered.as_serialized_hlo_module_proto())
    verify(module)
    return module, lowered.as_hlo_text(), operands, np.asarray(jax.jit(f)(*operands))


def test_jax_files_survive_and_print_as_xla_prints_them(jax_case: Any) -> None:
    module, xla_text, _, _ = jax_case
    again = proto.from_bytes(proto.to_bytes(module))
    assert again.root == module.root
    assert proto.to_bytes(again) == proto.to_bytes(module)
    (theirs,) = re.findall(r"convolution\(.*?\), (.*)", xla_text)
    ours = text.format_instruction(module.root)
    assert ours.partition("), ")[2].partition(", metadata=")[0] == theirs.partition(", metadata=")[0]


def test_xla_reads_what_is_written(jax_case: Any) -> None:
    xla = pytest.importorskip("jaxlib._hlo")
    module = jax_case[0]
    as_file = xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module))
    as_text = xla.hlo_module_from_text(text.to_text(module))
    for peer in (as_file, as_text):
        read = proto.from_bytes(peer.as_serialized_hlo_module_proto())
        assert read.root.attributes == module.root.attributes
        assert read.root.shape == module.root.shape


def test_execution_agrees_with_xla(jax_case: Any) -> None:
    module, _, operands, theirs = jax_case
    ours = np.asarray(api.compile(module, auto_cast="none")(*operands))
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if theirs.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs)
        return
    # At most 75 terms of size 1 to 10, added in another order.
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_gradients_of_a_convolution_agree_with_xla() -> None:
    """What a training step makes of it: reversed kernels, base dilation, other dimension numbers."""
    jax = pytest.importorskip("jax", reason="the peer jax is not installed (extra `peers`)")
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((4, 9, 8, 6), (3, 2, 1, 12)))

    def loss(x: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=6
        )
        return (y * y).sum()

    for argument in (0, 1):
        step = jax.jit(jax.grad(loss, argument))
        data = step.lower(x, w).compiler_ir("hlo").as_serialized_hlo_module_proto()
        module = proto.from_bytes(data)
        opcodes = [i.opcode for c in module.computations for i in c.instructions]
        assert opcodes.count("convolution") == 2
        ours = np.asarray(api.compile(module, auto_cast="none")(x, w))
        np.testing.assert_allclose(ours, np.asarray(step(x, w)), rtol=1e-4, atol=1e-4)
