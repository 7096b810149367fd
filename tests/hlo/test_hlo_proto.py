"""`HloModuleProto` in and out: what is written is what was read."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from tests.hlo.messages import message_of, reread
from tests.support.graphs import constant as constant_of
from tests.support.graphs import inst, module_of, parameter, reducer
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.dtypes import DTYPES, DType
from neuronsim.errors import InvalidModel
from neuronsim.hlo import fields, proto, wire
from neuronsim.hlo.module import Instruction, Metadata, Module, Shape, TupleShape
from neuronsim.hlo.verify import verify

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits" / "model.hlo.pb"
HLO_TYPES = [t for t in DTYPES.values() if t is not dtypes.tfloat32]


def constant(data: np.ndarray, dtype: DType, layout: tuple[int, ...] | None = None) -> Instruction:
    literal = ops.Bits(data.view(dtype.storage), dtype)
    return Instruction("c", "constant", Shape(dtype, data.shape, layout), (), {"literal": literal})


def literal_of(module: Module) -> np.ndarray:
    return module.root.attributes["literal"].data


def comparable(module: Module) -> list[object]:
    """Everything that a module says, with literals as bytes (== on arrays is elementwise)."""
    found: list[object] = [module.name, module.entry, module.parameter_names]
    for c in module.computations:
        found.append((c.name, c.root))
        for i in c.instructions:
            attributes = {
                k: (v.type, v.data.tobytes()) if isinstance(v, ops.Bits) else v
                for k, v in i.attributes.items()
            }
            found.append((i.name, i.opcode, i.shape, i.operands, attributes, i.metadata, i.unread))
    return found


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "m.hlo.pb").write_bytes(b"")
    with pytest.raises(InvalidModel, match=r"m\.hlo\.pb: .* it is empty"):
        proto.read(tmp_path / "m.hlo.pb")


def test_example_survives_reading_and_writing() -> None:
    first = proto.read(EXAMPLE)
    second = proto.from_bytes(proto.to_bytes(first))
    verify(second)
    assert comparable(second) == comparable(first)
    assert proto.to_bytes(second) == proto.to_bytes(first)


def test_example_is_what_the_script_exported() -> None:
    module = proto.read(EXAMPLE)
    assert module.input_names() == ("x",)
    assert module.parameters[0].array.type == ops.ArrayType(dtypes.float32, (64, 8, 8))
    assert module.root.array.type == ops.ArrayType(dtypes.float32, (64, 10))
    assert any(
        i.metadata.op_name.endswith("dot_general") for i in module.entry_computation.instructions
    )


def test_written_file_is_read_again(tmp_path: Path) -> None:
    module = proto.read(EXAMPLE)
    proto.write(module, tmp_path / "copy.hlo.pb")
    assert comparable(proto.read(tmp_path / "copy.hlo.pb")) == comparable(module)


def test_bytes_do_not_depend_on_the_process() -> None:
    code = (
        "import hashlib, sys; from neuronsim.hlo import proto;"
        "print(hashlib.sha256(proto.to_bytes(proto.read(sys.argv[1]))).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(EXAMPLE)], capture_output=True, text=True, check=True
    )
    here = hashlib.sha256(proto.to_bytes(proto.read(EXAMPLE))).hexdigest()
    assert run.stdout.strip() == here


# ---- literals ----------------------------------------------------------------------------------


def every_kind_of_bits(dtype: DType) -> np.ndarray:
    """Words with every bit pattern of a byte in every byte: negative, NaN, Inf and subnormal too."""
    if dtype is dtypes.boolean:
        return np.array([[True, False, True], [False, False, True]])
    size = dtype.itemsize
    ramp = np.arange(256, dtype=np.uint8)
    words = np.stack([np.roll(ramp, 37 * n) for n in range(size)], axis=1)
    return np.ascontiguousarray(words).reshape(-1).view(dtype.storage).reshape(4, 64)


@each_of("dtype", HLO_TYPES, ids=lambda t: t.name)
def test_literal_of_every_type_keeps_its_bits(dtype: DType) -> None:
    data = every_kind_of_bits(dtype)
    read = proto.from_bytes(proto.to_bytes(module_of(constant(data, dtype))))
    assert read.root.array.type == ops.ArrayType(dtype, data.shape)
    assert literal_of(read).tobytes() == data.tobytes()


@each_of("dtype", HLO_TYPES, ids=lambda t: t.name)
@each_of("dims", [(), (0,), (2, 0, 3), (1,)], ids=str)
def test_scalar_and_empty_literals(dtype: DType, dims: tuple[int, ...]) -> None:
    data = np.ones(dims, dtype.storage)
    read = proto.from_bytes(proto.to_bytes(module_of(constant(data, dtype))))
    assert literal_of(read).shape == dims
    assert literal_of(read).tobytes() == data.tobytes()


@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.int64, dtypes.uint64], ids=lambda t: t.name)
def test_integer_literals_at_the_ends_of_the_type(dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    data = np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype.numpy)
    read = proto.from_bytes(proto.to_bytes(module_of(constant(data, dtype))))
    assert literal_of(read).tolist() == data.tolist()


def test_negative_32_bit_literal_may_be_written_as_ten_byte_varint() -> None:
    # protobuf writers sign-extend int32; readers must take the low 32 bits.
    message = message_of(module_of(constant(np.array([-2, 7], np.int32), dtypes.int32)))
    literal = message["computations"][0]["instructions"][0]["literal"]
    literal["s32s"] = b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x07"
    assert literal_of(reread(message)).tolist() == [-2, 7]


def test_tfloat32_has_no_element_type_in_hlo_C9() -> None:
    with pytest.raises(InvalidModel, match="tfloat32"):
        proto.to_bytes(module_of(constant(np.zeros(2, np.float32), dtypes.tfloat32)))


def in_layout(data: np.ndarray, minor_to_major: tuple[int, ...]) -> np.ndarray:
    """The elements in the order in which they lie in memory under an XLA layout."""
    return np.ascontiguousarray(data.transpose(tuple(reversed(minor_to_major)))).ravel()


@pytest.mark.parametrize("layout", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)], ids=str)
def test_literal_in_any_layout_is_read_by_its_own_layout(layout: tuple[int, ...]) -> None:
    data = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    message = message_of(module_of(constant(data, dtypes.float32)))
    literal = message["computations"][0]["instructions"][0]["literal"]
    literal["shape"]["layout"]["minor_to_major"] = list(layout)
    literal["f32s"] = in_layout(data, layout).tobytes()
    assert literal_of(reread(message)).tolist() == data.tolist()


def test_layout_of_an_instruction_is_kept_and_moves_no_element() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    module = module_of(constant(data, dtypes.float32, layout=(0, 1)))
    read = proto.from_bytes(proto.to_bytes(module))
    assert read.root.array.layout == (0, 1)
    assert literal_of(read).tolist() == data.tolist()


def test_literal_elements_may_come_in_several_pieces() -> None:
    # A packed field that occurs twice is the concatenation of both (protobuf's rule).
    data = np.arange(4, dtype=np.float32)
    raw = proto.to_bytes(module_of(constant(data, dtypes.float32)))
    whole = b"\x42\x10" + data.tobytes()
    split = b"\x42\x08" + data[:2].tobytes() + b"\x42\x08" + data[2:].tobytes()
    assert raw.count(whole) == 1
    message = wire.read_message(memoryview(whole), fields.LITERAL)
    pieces = wire.read_message(memoryview(split), fields.LITERAL)
    assert message["f32s"].tolist() == pieces["f32s"].tolist() == data.tolist()


# ---- attributes, tuples, names -------------------------------------------------------------------


def test_attributes_metadata_and_tuples_survive() -> None:
    vector, pair = Shape(dtypes.int32, (6,)), Shape(dtypes.int32, (2,))
    mask = Shape(dtypes.boolean, (6,))
    origin = Metadata("reduce_max", "jit(f)/reduce_max", "f.py", 12)
    at_axis_0 = {"dimensions": (0,)}
    order = {"comparison_direction": "LE", "comparison_type": "SIGNED"}
    module = module_of(
        parameter("x", (2, 6), dtype=dtypes.int32),
        constant_of("low", -5, dtypes.int32),
        Instruction("r", "reduce", vector, ("x", "low"), {**at_axis_0, "called": ("top",)}, origin),
        inst("s", "slice", pair, "r", slice=((1, 5, 2),)),
        inst("t", "reverse", vector, "r", **at_axis_0),
        inst("le", "compare", mask, "r", "t", **order),
        inst("one", "tuple", TupleShape((mask,)), "le"),
        inst("all", "tuple", TupleShape((pair, TupleShape((mask,)))), "s", "one"),
        others=(reducer("top", "maximum", dtypes.int32),),
    )
    read = proto.from_bytes(proto.to_bytes(module))
    verify(read)
    # Parameter names are the instructions' where the module did not have its own.
    assert read.parameter_names == ("x",)
    assert comparable(read)[3:] == comparable(module)[3:]


@each_of(
    ("names", "short"),
    [
        (("x.1", "mask.2"), ("x", "mask")),
        (("x", "y.z"), ("x", "y.z")),
        (("x.1", "x.2"), ("x.1", "x.2")),
        ((".7",), (".7",)),
        # `x.1.2` without its number is the full name of its neighbour: data could mean either.
        (("x.1.2", "x.1"), ("x.1.2", "x")),
    ],
)
def test_input_names_drop_the_number_that_xla_adds(
    names: tuple[str, ...], short: tuple[str, ...]
) -> None:
    module = module_of(*(parameter(n, (), k) for k, n in enumerate(names)))
    assert module.input_names() == short


# ---- what the reader does not know ---------------------------------------------------------------


def test_unread_fields_of_an_instruction_are_written_back() -> None:
    message = message_of(module_of(constant(np.ones(2, np.float32), dtypes.float32)))
    extra = b"\x92\x06\x03abc" + b"\x98\x06\x2a"  # fields 98 (bytes) and 99 (varint)
    message["computations"][0]["instructions"][0]["unread"] = extra
    read = reread(message)
    assert read.root.unread == extra
    assert message_of(read)["computations"][0]["instructions"][0]["unread"] == extra


def test_known_fields_that_are_no_attribute_of_the_opcode_are_written_back() -> None:
    # `infeed` is not executed and has no attributes here, but writing must not take its axis.
    message = message_of(module_of(constant(np.ones((2, 3), np.float32), dtypes.float32)))
    instructions = message["computations"][0]["instructions"]
    ident = instructions[0]["id"] + 1
    instructions.append(
        {
            "name": "transformed",
            "opcode": "infeed",
            "shape": instructions[0]["shape"],
            "dimensions": [1],
            "id": ident,
            "operand_ids": [instructions[0]["id"]],
        }
    )
    message["computations"][0]["root_id"] = ident
    again = message_of(reread(message))
    assert again["computations"][0]["instructions"][1]["dimensions"] == [1]


def wrapped_in_hlo_proto(module: bytes, rest: bytes = b"") -> bytes:
    """`HloProto`: the module is field 1."""
    inside = {1: wire.Field("module", "bytes")}
    return wire.write_message({"module": module}, inside) + rest


def test_hlo_proto_around_the_module_is_opened() -> None:
    inner = EXAMPLE.read_bytes()
    outer = wrapped_in_hlo_proto(inner)
    assert comparable(proto.from_bytes(outer)) == comparable(proto.from_bytes(inner))


def test_hlo_proto_with_a_buffer_assignment_is_opened() -> None:
    # XLA's dumps of compiled modules carry field 3, which in an HloModuleProto holds computations.
    buffers = b"\x0a\x04\x08\x01\x10\x02"  # logical_buffers {id: 1, size: 2}
    outer = wrapped_in_hlo_proto(EXAMPLE.read_bytes(), b"\x1a" + bytes([len(buffers)]) + buffers)
    assert proto.from_bytes(outer).name == proto.read(EXAMPLE).name


def test_ids_need_not_be_dense_nor_in_order() -> None:
    message = message_of(module_of(constant(np.ones(2, np.float32), dtypes.float32)))
    computation = message["computations"][0]
    first = computation["instructions"][0]
    user = {"name": "y", "opcode": "negate", "shape": first["shape"], "id": 3, "operand_ids": [2**40]}
    first["id"] = 2**40
    computation["instructions"] = [user, first]  # the user is listed before its operand
    computation["root_id"] = 3
    module = reread(message)
    verify(module)
    assert [i.name for i in module.entry_computation.instructions] == ["c", "y"]


def test_weights_are_not_copied_for_each_message_around_them() -> None:
    size = 1 << 24
    module = module_of(constant(np.ones(size, np.uint8), dtypes.uint8))
    tracemalloc.start()
    try:
        data = proto.to_bytes(module)
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()
    assert literal_of(proto.from_bytes(data)).tobytes() == literal_of(module).tobytes()
