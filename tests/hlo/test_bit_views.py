"""bitcast-convert, bitcast and the sizes of dimensions: what reads an operand's bits and shape."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.hlo.single import module_of, ours, theirs

from neuronsim import dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidModel, UnsupportedOperator, UnsupportedType
from neuronsim.hlo.module import Computation, Instruction, Module, Shape
from neuronsim.hlo.verify import verify
from neuronsim.ops import ArrayType, Bits

F32, S32 = dtypes.float32, dtypes.int32
WHOLE = [
    dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.float8_e5m2, dtypes.int8, dtypes.uint8,
    dtypes.int16, dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float64,
]  # fmt: skip


def cast(source: DType, target: DType, data: np.ndarray) -> tuple[Module, list[Bits]]:
    x = Bits(data.view(source.storage), source)
    parameter = ArrayType(source, data.shape)
    wide, narrow = max(source.itemsize, target.itemsize), min(source.itemsize, target.itemsize)
    dims = data.shape
    if source.itemsize > target.itemsize:
        dims = (*dims, wide // narrow)
    elif source.itemsize < target.itemsize:
        dims = dims[:-1]
    return module_of("bitcast-convert", [parameter], {}, result=ArrayType(target, dims)), [x]


def operand(source: DType, target: DType, rng: np.random.Generator) -> np.ndarray:
    last = max(target.itemsize // source.itemsize, 1)
    dims = (3, 2, last) if target.itemsize > source.itemsize else (3, 2)
    raw = rng.integers(0, 256, (*dims, source.itemsize), np.uint8)
    return raw.view(f"u{source.itemsize}")[..., 0]


def test_bitcast_convert_keeps_the_bytes() -> None:
    for source, target in list(itertools.product(WHOLE, WHOLE)):
        data = operand(source, target, np.random.default_rng(120))
        module, inputs = cast(source, target, data)
        (found,) = ours(module, inputs)
        assert found.tobytes() == data.tobytes()
        (turned,) = ours(module, [Bits(np.asfortranarray(inputs[0].data), source)])
        assert turned.tobytes() == data.tobytes()


PAIRS = [
    (dtypes.float32, dtypes.uint8), (dtypes.uint16, dtypes.uint64), (dtypes.bfloat16, dtypes.int16),
    (dtypes.int8, dtypes.float32), (dtypes.uint32, dtypes.float32),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda t: t.name)
def test_bitcast_convert_peer_xla(source: DType, target: DType) -> None:
    data = operand(source, target, np.random.default_rng(121))
    module, inputs = cast(source, target, data)
    assert ours(module, inputs)[0].tobytes() == theirs(module, inputs)[0].tobytes()


@pytest.mark.parametrize(
    "odd", [dtypes.boolean, dtypes.complex64, dtypes.tfloat32], ids=lambda t: t.name
)
def test_bitcast_convert_refuses_types_that_are_not_all_bit_patterns(odd: DType) -> None:
    for a, b in ((odd, dtypes.uint32), (dtypes.uint32, odd)):
        with pytest.raises(UnsupportedType, match="bitcast-convert"):
            verify(module_of("bitcast-convert", [ArrayType(a, (4,))], {}, result=ArrayType(b, (4,))))
    same = ArrayType(odd, (4,))
    verify(module_of("bitcast-convert", [same], {}, result=same))


def test_bitcast_convert_refuses_a_last_dimension_of_another_length() -> None:
    for dims in ((4, 3), (), (2,)):
        module = module_of(
            "bitcast-convert", [ArrayType(dtypes.uint8, dims)], {}, result=ArrayType(F32, dims)
        )
        with pytest.raises(InvalidModel, match="last dimension"):
            verify(module)


def bitcast(source: Shape, target: Shape) -> Module:
    x = Instruction("x", "parameter", source, (), {"number": 0})
    y = Instruction("y", "bitcast", target, ("x",))
    return Module("bitcast", "main", (Computation("main", (x, y), "y"),))


def test_bitcast_is_a_reshape_of_row_major_arrays() -> None:
    x = Bits(np.arange(6, dtype=np.float32).reshape(2, 3), F32)
    for layouts in ((None, None), ((1, 0), (1, 0))):
        module = bitcast(Shape(F32, (2, 3), layouts[0]), Shape(F32, (3, 2), layouts[1]))
        assert ours(module, [x])[0].shape == (3, 2)
        assert ours(module, [x])[0].tobytes() == x.data.tobytes()
    assert ours(bitcast(Shape(F32, (2, 3)), Shape(S32, (6,))), [x])[0].tobytes() == x.data.tobytes()


def test_bitcast_refuses_other_layouts_and_sizes() -> None:
    for a, b in (((0, 1), None), (None, (0, 1))):
        with pytest.raises(UnsupportedOperator, match="layout"):
            verify(bitcast(Shape(F32, (2, 3), a), Shape(F32, (3, 2), b)))
    for target in (Shape(F32, (5,)), Shape(dtypes.bfloat16, (12,))):
        with pytest.raises(InvalidModel, match="not the memory"):
            verify(bitcast(Shape(F32, (2, 3)), target))


def test_dimension_sizes_are_static() -> None:
    x, two, three = (
        Bits(np.zeros((2, 3), np.float32), F32),
        *(Bits(np.array(n, np.int32), S32) for n in (2, 3)),
    )
    module = module_of("get-dimension-size", [x.type], {"dimensions": (1,)})
    assert ours(module, [x])[0] == 3
    module = module_of("set-dimension-size", [x.type, three.type], {"dimensions": (1,)})
    assert ours(module, [x, three])[0].shape == (2, 3)
    with pytest.raises(UnsupportedOperator, match="static"):
        ours(module, [x, two])
    with pytest.raises(InvalidArgument, match="int32 scalar"):
        module_of("set-dimension-size", [x.type, x.type], {"dimensions": (1,)})
    for opcode, operands in (
        ("get-dimension-size", [x.type]),
        ("set-dimension-size", [x.type, two.type]),
    ):
        with pytest.raises(InvalidArgument, match="dimensions"):
            module_of(opcode, operands, {"dimensions": (2,)})
