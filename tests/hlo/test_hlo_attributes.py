"""Every attribute of every opcode: protobuf and both dialects of text, alone and by way of XLA."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.hlo.messages import bytes_of, message_of
from tests.hlo.xla import hlo, through_file, through_text
from tests.support.parameters import each_of

from neuronsim import dtypes, ops
from neuronsim.errors import InvalidModel, NeuronSimError
from neuronsim.hlo import parse, proto, text
from neuronsim.hlo.module import Instruction, Module, Shape, TupleShape
from neuronsim.hlo.opcodes import ATTRIBUTES, NOTED

pytestmark = pytest.mark.isa_independent  # nothing here is computed by the kernels

F32 = dtypes.float32

# Computations that the lines below call, and the parameters that they read.
PREAMBLE = """\
HloModule attributes

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT above = pred[] compare(a, b), direction=GE
}

step {
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  v = f32[4] get-tuple-element(s), index=1
  ROOT t = (s32[], f32[4]) tuple(next, v)
}

more {
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT below = pred[] compare(n, five), direction=LT
}

same {
  ROOT a = f32[] parameter(0)
}

ENTRY main {
  x = f32[4,4]{1,0} parameter(0)
  v = f32[4]{0} parameter(1)
  s = f32[] parameter(2)
  p = pred[] parameter(3)
  n = s32[] parameter(4)
  i = s32[2,1]{1,0} parameter(5)
  st = (s32[], f32[4]{0}) parameter(6)
  u = u64[2]{0} parameter(7)
  image = f32[1,4,4,2]{3,2,1,0} parameter(8)
  kernel = f32[2,2,2,6]{3,2,1,0} parameter(9)
  batch = f32[3,4,4]{2,1,0} parameter(10)
  rows = f32[2,4]{1,0} parameter(11)
  bi = s32[3,2]{1,0} parameter(12)
  c = c64[4,4]{1,0} parameter(13)
"""

DIMS = ops.WindowDimension
GROUPS = ((0, 1), (2, 3))
# Of a collective that states neither.
BY_REPLICA = {"channel_id": 0, "use_global_device_ids": False}

# The opcode's line as XLA prints it in the short dialect, and the attributes that it means.
LINES: list[tuple[str, dict[str, Any]]] = [
    ("s32[4,2]{1,0} iota(), iota_dimension=1", {"dimensions": (1,)}),
    ("f32[4]{0} get-tuple-element(st), index=1", {"tuple_index": 1}),
    ("f32[] call(s, s), to_apply=add", {"called": ("add",)}),
    ("f32[] fusion(s), kind=kLoop, calls=same", {"fusion_kind": "kLoop", "called": ("same",)}),
    ("f32[4]{0} map(v), dimensions={0}, to_apply=same", {"dimensions": (0,), "called": ("same",)}),
    ("(s32[], f32[4]{0}) while(st), condition=more, body=step", {"called": ("step", "more")}),
    (
        "f32[] conditional(p, s, s), true_computation=same, false_computation=same",
        {"called": ("same", "same")},
    ),
    (
        "f32[] conditional(n, s, s, s), branch_computations={same, same, same}",
        {"called": ("same", "same", "same")},
    ),
    (
        'f32[4,4]{1,0} custom-call(x), custom_call_target="Aws\\"Gelu", backend_config="\\001\\n\\377"',
        {"custom_call_target": 'Aws"Gelu', "backend_config": b"\x01\n\xff"},
    ),
    (
        'f32[] custom-call(s, s), custom_call_target="f", called_computations={add}',
        {"custom_call_target": "f", "backend_config": b"", "called": ("add",)},
    ),
    ("f32[4,2,4]{2,1,0} broadcast(x), dimensions={0,2}", {"dimensions": (0, 2)}),
    ("f32[4]{0} broadcast(s), dimensions={}", {"dimensions": ()}),
    ("f32[4,4]{0,1} transpose(x), dimensions={1,0}", {"dimensions": (1, 0)}),
    ("f32[4,4]{1,0} reverse(x), dimensions={1}", {"dimensions": (1,)}),
    ("f32[8,4]{1,0} concatenate(x, x), dimensions={0}", {"dimensions": (0,)}),
    ("s32[] get-dimension-size(x), dimensions={1}", {"dimensions": (1,)}),
    ("f32[7,4]{1,0} pad(x, s), padding=0_3x2_-2", {"padding": ((0, 3, 0), (2, -2, 0))}),
    ("f32[9,5]{1,0} pad(x, s), padding=1_1_1x0_1_0", {"padding": ((1, 1, 1), (0, 1, 0))}),
    (
        "f32[1,2]{1,0} dynamic-slice(x, n, n), dynamic_slice_sizes={1,2}",
        {"dynamic_slice_sizes": (1, 2)},
    ),
    (
        "f32[2,4]{1,0} gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,4}, indices_are_sorted=true",
        {
            "gather_dimensions": ops.GatherDimensions((1,), (0,), (0,), (), (), 1),
            "slice_sizes": (1, 4),
            "indices_are_sorted": True,
        },
    ),
    (
        "f32[3,4]{1,0} gather(batch, bi), offset_dims={1}, collapsed_slice_dims={1}, "
        "start_index_map={0,1}, operand_batching_dims={}, start_indices_batching_dims={}, "
        "index_vector_dim=1, slice_sizes={1,1,4}",
        {},
    ),
    (
        "f32[4,4]{1,0} scatter(x, i, rows), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, indices_are_sorted=true, "
        "unique_indices=true, to_apply=add",
        {
            "scatter_dimensions": ops.ScatterDimensions((1,), (0,), (0,), (), (), 1),
            "indices_are_sorted": True,
            "unique_indices": True,
            "called": ("add",),
        },
    ),
    ("f32[4]{0} reduce(x, s), dimensions={1}, to_apply=add", {"dimensions": (1,), "called": ("add",)}),
    (
        "f32[1,3,2,2]{3,2,1,0} reduce-window(image, s), "
        "window={size=1x2x2x1 stride=1x1x2x1 pad=0_0x0_1x0_0x0_0 rhs_dilate=1x2x1x1}, to_apply=add",
        {
            "window": (DIMS(1), DIMS(2, padding=(0, 1), window_dilation=2), DIMS(2, 2), DIMS(1)),
            "called": ("add",),
        },
    ),
    (
        "f32[4]{0} select-and-scatter(v, rows4, s), window={size=2 stride=2}, select=ge, scatter=add",
        {"window": (DIMS(2, 2),), "called": ("ge", "add")},
    ),
    (
        "f32[4,4]{1,0} sort(x), dimensions={1}, is_stable=true, to_apply=ge",
        {"dimensions": (1,), "is_stable": True, "called": ("ge",)},
    ),
    ("(f32[4,2]{1,0}, s32[4,2]{1,0}) topk(x), k=2, largest=true", {"k": 2, "largest": True}),
    ("(f32[4,1]{1,0}, s32[4,1]{1,0}) topk(x), k=1, largest=false", {"k": 1, "largest": False}),
    (
        "f32[4,4]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        "algorithm=dot_bf16_bf16_f32_x3",
        {"dot_dimensions": ops.DotDimensions((1,), (0,)), "algorithm": "ALG_DOT_BF16_BF16_F32_X3"},
    ),
    (
        "f32[3,4,4]{2,1,0} dot(batch, batch), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_batch_dims={0}, rhs_contracting_dims={1}",
        {"dot_dimensions": ops.DotDimensions((2,), (1,), (0,), (0,)), "algorithm": ""},
    ),
    (
        "f32[1,3,3,6]{3,2,1,0} convolution(image, kernel), window={size=2x2 rhs_reversal=1x1}, "
        "dim_labels=b01f_01io->b01f",
        {
            "window": (DIMS(2, reversal=True), DIMS(2, reversal=True)),
            "dimension_numbers": ops.ConvolutionDimensions(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)),
            "feature_group_count": 1,
            "batch_group_count": 1,
        },
    ),
    ("f32[2,2]{1,0} slice(x), slice={[0:2:1], [1:4:2]}", {"slice": ((0, 2, 1), (1, 4, 2))}),
    (
        "pred[4,4]{1,0} compare(x, x), direction=LT, type=TOTALORDER",
        {"comparison_direction": "LT", "comparison_type": "TOTALORDER"},
    ),
    ("pred[] compare(n, n), direction=NE", {"comparison_direction": "NE", "comparison_type": "SIGNED"}),
    (
        "f32[4,4]{1,0} reduce-precision(x), exponent_bits=8, mantissa_bits=10",
        {"exponent_bits": 8, "mantissa_bits": 10},
    ),
    (
        "(f32[4,4]{1,0}, f32[4]{0}, f32[4]{0}) batch-norm-training(x, v, v), epsilon=0.25, "
        "feature_index=1",
        {"epsilon": 0.25, "feature_index": 1},
    ),
    (
        "f32[4,4]{1,0} batch-norm-inference(x, v, v, v, v), epsilon=0.001, feature_index=1",
        {"epsilon": float(np.float32(0.001)), "feature_index": 1},
    ),
    (
        "(f32[4,4]{1,0}, f32[4]{0}, f32[4]{0}) batch-norm-grad(x, v, v, v, x), epsilon=0, "
        "feature_index=0",
        {"epsilon": 0.0, "feature_index": 0},
    ),
    ("f32[4]{0} rng(s, s), distribution=rng_normal", {"distribution": "RNG_NORMAL"}),
    ("f32[4]{0} rng(s, s), distribution=rng_uniform", {"distribution": "RNG_UNIFORM"}),
    (
        "(u64[2]{0}, u32[3]{0}) rng-bit-generator(u), algorithm=rng_philox",
        {"rng_algorithm": "RNG_PHILOX"},
    ),
    (
        "(u64[2]{0}, u32[3]{0}) rng-bit-generator(u), algorithm=rng_default",
        {"rng_algorithm": "RNG_DEFAULT"},
    ),
    ("u64[2]{0} rng-get-and-update-state(), delta=4096", {"delta": 4096}),
    (
        "f32[4,4]{1,0} all-reduce(x), channel_id=1, replica_groups={{0,1},{2,3}}, "
        "use_global_device_ids=true, to_apply=add",
        {"called": ("add",), "replica_groups": GROUPS, "channel_id": 1, "use_global_device_ids": True},
    ),
    (
        "f32[4,4]{1,0} all-reduce(x), replica_groups={}, to_apply=add",
        {"called": ("add",), "replica_groups": (), **BY_REPLICA},
    ),
    (
        "f32[2,4]{1,0} reduce-scatter(x), replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=add",
        {"dimensions": (0,), "called": ("add",), "replica_groups": GROUPS, **BY_REPLICA},
    ),
    (
        "f32[8,4]{1,0} all-gather(x), replica_groups={{0,1},{2,3}}, dimensions={0}",
        {"dimensions": (0,), "replica_groups": GROUPS, **BY_REPLICA},
    ),
    (
        "f32[4,4]{1,0} all-to-all(x), channel_id=2, replica_groups={{0,1},{2,3}}, dimensions={1}",
        {"dimensions": (1,), "replica_groups": GROUPS, "channel_id": 2},
    ),
    (
        "(f32[4]{0}, f32[4]{0}) all-to-all(v, v), replica_groups={{0,1}}",
        {"dimensions": (), "replica_groups": ((0, 1),), "channel_id": 0},
    ),
    (
        "f32[4]{0} collective-permute(v), channel_id=3, source_target_pairs={{0,1},{1,0}}",
        {"source_target_pairs": ((0, 1), (1, 0)), "channel_id": 3},
    ),
    (
        "f32[4]{0} collective-broadcast(v), channel_id=4, replica_groups={{1,0}}",
        {"replica_groups": ((1, 0),), "channel_id": 4},
    ),
    (
        "f32[4,4]{1,0} all-reduce-start(x), replica_groups={{0,1},{2,3}}, to_apply=add",
        {"called": ("add",), "replica_groups": GROUPS, **BY_REPLICA},
    ),
    (
        "(f32[4,4]{1,0}, f32[8,4]{1,0}) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}",
        {"dimensions": (0,), "replica_groups": ((0, 1),), **BY_REPLICA},
    ),
    (
        "(f32[4]{0}, f32[4]{0}, u32[], u32[]) collective-permute-start(v), "
        "source_target_pairs={{0,1},{1,0}}",
        {"source_target_pairs": ((0, 1), (1, 0)), "channel_id": 0},
    ),
    ("(f32[4]{0}, f32[4]{0}, u32[]) copy-start(v)", {}),
    (
        "(((s32[], f32[4]{0})), (s32[], f32[4]{0}), u32[]) async-start(st), calls=step",
        {"called": ("step",)},
    ),
    ("c64[4,4]{1,0} fft(c), fft_type=FFT, fft_length={4,4}", {"fft_type": "FFT", "fft_length": (4, 4)}),
    ("c64[4,3]{1,0} fft(x), fft_type=RFFT, fft_length={4}", {"fft_type": "RFFT", "fft_length": (4,)}),
    ("f32[4,4]{1,0} cholesky(x), lower=true", {"lower": True}),
    ("f32[4,4]{1,0} cholesky(x)", {"lower": False}),
    (
        "f32[4,4]{1,0} triangular-solve(x, x), left_side=true, lower=true, unit_diagonal=true, "
        "transpose_a=ADJOINT",
        {"triangular_solve_options": ops.TriangularOptions(True, True, True, "ADJOINT")},
    ),
    (
        "f32[4,4]{1,0} triangular-solve(x, x), transpose_a=NO_TRANSPOSE",
        {"triangular_solve_options": ops.TriangularOptions()},
    ),
    ("token[] after-all()", {}),
    ("(s32[], f32[4]{0}) opt-barrier(st)", {}),
]
READS_ANOTHER = {"rows4": "  rows4 = f32[2]{0} slice(v), slice={[0:2]}\n"}
IDS = [f"{re.findall(r' ([a-z-]+)[(]', line)[0]}-{n}" for n, (line, _) in enumerate(LINES)]


def source(line: str) -> str:
    extra = "".join(definition for name, definition in READS_ANOTHER.items() if name in line)
    return f"{PREAMBLE}{extra}  ROOT y = {line}\n}}\n"


def comparable(value: Any) -> Any:
    """An attribute, literals as bytes (== on arrays is elementwise)."""
    if isinstance(value, ops.Bits):
        return value.type, value.data.tobytes()
    if isinstance(value, tuple):
        return tuple(map(comparable, value))
    return value


def meaning(module: Module) -> dict[str, Any]:
    """Everything that a module says, whatever the order in which it lists what does not depend on
    another.
    """
    found: dict[str, Any] = {
        "name": module.name,
        "entry": module.entry,
        "aliases": module.input_output_alias,
        "shape": module.program_shape,
    }
    for c in module.computations:
        found[f"root of {c.name}"] = c.root
        for i in c.instructions:
            attributes = {k: comparable(v) for k, v in i.attributes.items()}
            found[f"{c.name}/{i.name}"] = (i.opcode, i.shape, i.operands, attributes, i.metadata)
    return found


def test_every_opcode_with_attributes_has_a_line() -> None:
    # set-dimension-size gives a dynamic shape, which is refused; the rest is in every module above.
    tested = {parse.from_text(source(line)).root.opcode for line, _ in LINES}
    assert set(ATTRIBUTES) - tested == {"parameter", "constant", "set-dimension-size"}


@each_of(("line", "attributes"), LINES, ids=IDS)
def test_text_gives_the_attributes(line: str, attributes: dict[str, Any]) -> None:
    root = parse.from_text(source(line)).root
    assert {**root.attributes, **attributes} == root.attributes
    carried = {a for a in ATTRIBUTES.get(root.opcode, ()) if (root.opcode, a) not in NOTED}
    assert set(root.attributes) - {"called"} == carried - {"called"}


@each_of(("line", "attributes"), LINES, ids=IDS)
def test_line_is_printed_as_it_was_read(line: str, attributes: dict[str, Any]) -> None:
    module = parse.from_text(source(line))
    printed = text.to_text(module, dialect="short")
    expected = line.replace(", operand_batching_dims={}, start_indices_batching_dims={}", "")
    assert f"  ROOT y = {expected}\n" in printed


@each_of("line", [line for line, _ in LINES], ids=IDS)
@each_of("dialect", ["long", "short"])
def test_text_survives_printing_and_reading(line: str, dialect: text.Dialect) -> None:
    module = parse.from_text(source(line))
    assert meaning(parse.from_text(text.to_text(module, dialect=dialect))) == meaning(module)


@each_of("line", [line for line, _ in LINES], ids=IDS)
def test_protobuf_survives_writing_and_reading(line: str) -> None:
    module = parse.from_text(source(line))
    data = proto.to_bytes(module)
    assert meaning(proto.from_bytes(data)) == meaning(module)
    assert proto.to_bytes(proto.from_bytes(data)) == data


# ---- by way of XLA -------------------------------------------------------------------------------


@pytest.fixture
def xla() -> Any:
    return hlo()


@pytest.mark.parametrize("line", [line for line, _ in LINES], ids=IDS)
def test_xla_reads_and_prints_the_same_line(xla: Any, line: str) -> None:
    module = parse.from_text(source(line))
    for peer in (
        xla.hlo_module_from_text(text.to_text(module, dialect="short")),
        xla.hlo_module_from_text(text.to_text(module, dialect="long")),
        xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module)),
    ):
        assert meaning(proto.from_bytes(peer.as_serialized_hlo_module_proto())) == meaning(module)
        printed = peer.to_string(xla.HloPrintOptions.short_parsable())
        printed = printed.replace(", api_version=API_VERSION_UNSPECIFIED", "")
        expected = text.to_text(module, dialect="short").rpartition("ROOT ")[2].partition("\n")[0]
        assert f"  ROOT {expected}\n" in printed


def print_options(xla: Any) -> dict[str, Any]:
    """Everything that changes what XLA prints, one at a time; names and constants are kept."""
    changes: dict[str, dict[str, bool]] = {
        "default": {},
        "operand_shapes": {"print_operand_shape": True},
        "no_percent": {"print_percent": False},
        "no_signature": {"print_program_shape": False},
        "no_metadata": {"print_metadata": False},
        "no_backend_config": {"print_backend_config": False},
        "no_control_dependencies": {"print_control_dependencies": False},
        "operand_shapes_without_percent": {"print_operand_shape": True, "print_percent": False},
    }
    found = {"short_parsable": xla.HloPrintOptions.short_parsable()}
    for name, options in changes.items():
        found[name] = xla.HloPrintOptions()
        found[name].print_large_constants = True
        for option, value in options.items():
            setattr(found[name], option, value)
    return found


def test_every_dialect_of_xla_is_read(xla: Any) -> None:
    for line, _ in LINES:
        module = parse.from_text(source(line))
        peer = xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module))
        for name, options in print_options(xla).items():
            if name == "no_backend_config" and "backend_config" in line:
                continue
            read = parse.from_text(peer.to_string(options))
            assert meaning(read) == meaning(module), name


def test_canonical_text_with_computations_in_place_of_their_names_is_read(xla: Any) -> None:
    for line, attributes in LINES:
        module = parse.from_text(source(line))
        peer = xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(module))
        read = parse.from_text(peer.to_string(xla.HloPrintOptions.canonical()))
        called = [i.opcode for n in read.root.called for i in read.by_name[n].instructions]
        named = attributes.get("called", ())
        assert called == [i.opcode for n in named for i in module.by_name[n].instructions]


def test_text_without_layouts_means_row_major(xla: Any) -> None:
    options = xla.HloPrintOptions()
    options.include_layout_in_shapes = False
    line = "f32[4,4]{1,0} negate(x)"
    peer = xla.hlo_module_from_text(source(line))
    assert parse.from_text(peer.to_string(options)).root.shape == Shape(F32, (4, 4))


# ---- replica groups ------------------------------------------------------------------------------

IOTA = "f32[4,4]{1,0} all-reduce(x), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=add"


def test_iota_replica_groups_are_read_as_plain_groups(xla: Any) -> None:
    groups = ((0, 2, 4, 6), (1, 3, 5, 7))
    assert parse.from_text(source(IOTA)).root.attributes["replica_groups"] == groups
    peer = xla.hlo_module_from_text(source(IOTA))
    read = proto.from_bytes(peer.as_serialized_hlo_module_proto())
    assert read.root.attributes["replica_groups"] == groups


def all_reduce_message(**changes: Any) -> bytes:
    line = "f32[4,4]{1,0} all-reduce(x), replica_groups={}, to_apply=add"
    message = message_of(parse.from_text(source(line)))
    message["computations"][-1]["instructions"][-1].update(changes)
    return bytes_of(message)


def test_collective_device_list_is_read() -> None:
    plain = {"replica_groups": [{"replica_ids": [0, 1]}, {"replica_ids": [2, 3]}]}
    iota = {"num_replica_groups": 2, "num_devices_per_group": 2, "iota_reshape_dims": [4]}
    for devices in (plain, {"iota": {**iota, "iota_transpose_perm": [0]}}):
        root = proto.from_bytes(all_reduce_message(collective_device_list=devices)).root
        assert root.attributes["replica_groups"] == GROUPS


def mesh_groups(sizes: list[int], axes: list[dict[str, Any]], **of_mesh: Any) -> Any:
    mesh = {"axes": [{"name": f"a{n}", "size": size} for n, size in enumerate(sizes)], **of_mesh}
    listed = {"mesh": mesh, "axes": axes}
    root = proto.from_bytes(all_reduce_message(mesh_axes_replica_group_list=listed)).root
    return root.attributes["replica_groups"]


def part(before: int, size: int) -> dict[str, Any]:
    """A part of the first axis of a mesh."""
    return {"mesh_axis_index": 0, "sub_axis_info": {"pre_size": before, "size": size}}


def test_replica_groups_by_mesh_axes_are_read_as_plain_groups() -> None:
    """As XLA's partitioner writes them (jaxlib 0.10), and expands them itself."""
    first, second = {"mesh_axis_index": 0}, {"mesh_axis_index": 1}
    assert mesh_groups([2, 2], [second]) == GROUPS
    assert mesh_groups([2, 2], [first]) == ((0, 2), (1, 3))
    assert mesh_groups([2, 2], [second, first]) == ((0, 1, 2, 3),)
    transposed = {"reshape_dims": [2, 4], "transpose_perm": [1, 0]}
    assert mesh_groups([4, 1, 2], [first], iota=transposed) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert mesh_groups([2, 2], [second], device_ids=[3, 1, 0, 2]) == ((3, 1), (0, 2))
    half = part(1, 2)
    assert mesh_groups([8], [half]) == ((0, 4), (1, 5), (2, 6), (3, 7))
    inner = part(4, 2)
    assert mesh_groups([8], [half, inner]) == ((0, 1, 4, 5), (2, 3, 6, 7))


@pytest.mark.parametrize(
    ("sizes", "axes", "of_mesh", "why"),
    [
        ([], [], {}, "axes of 1 and more"),
        ([1 << 40, 1 << 40], [{}], {}, "65536 devices are read"),
        ([0, 4], [{}], {}, "axes of 1 and more"),
        ([2, -2], [{}], {}, "axes of 1 and more"),
        ([2, 2], [{"mesh_axis_index": 2}], {}, "no part of it"),
        ([2, 2], [{"mesh_axis_index": -1}], {}, "no part of it"),
        ([8], [part(3, 2)], {}, "no part of it"),
        ([8], [part(0, 2)], {}, "no part of it"),
        ([8], [part(1, 4), part(2, 4)], {}, "overlap"),
        ([8], [part(1, 4), part(1, 2)], {}, "overlap"),
        ([8], [{}, {}], {}, "overlap"),
        ([6], [part(1, 2), part(3, 2)], {}, "overlap"),
        ([2, 2], [{}], {"device_ids": [0, 1]}, "which has 2 devices"),
        ([2, 2], [{}], {"iota": {"reshape_dims": [3]}}, "contradict themselves"),
    ],
)
def test_mesh_axes_that_contradict_themselves_are_refused(
    sizes: list[int], axes: list[dict[str, Any]], of_mesh: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidModel, match=rf"replica groups.*{why}"):
        mesh_groups(sizes, axes, **of_mesh)


@pytest.mark.parametrize(
    ("groups", "devices", "dims", "permutation"),
    [
        (1 << 40, 1 << 40, [1 << 40, 1 << 40], []),
        (1 << 10, 1 << 10, [1 << 20], []),
        (2, 2, [3], []),
        (2, 2, [2, 2], [0, 0]),
        (2, 2, [2, 2], [0, 1, 2]),
        (-1, -4, [4], []),
        (0, 4, [], []),
    ],
)
def test_iota_replica_groups_that_cannot_be(
    groups: int, devices: int, dims: list[int], permutation: list[int]
) -> None:
    iota = {"num_replica_groups": groups, "num_devices_per_group": devices}
    iota |= {"iota_reshape_dims": dims, "iota_transpose_perm": permutation}  # type: ignore[dict-item]
    with pytest.raises(InvalidModel, match="replica groups"):
        proto.from_bytes(all_reduce_message(iota_collective_device_list=iota))


# ---- what is kept without being an attribute -----------------------------------------------------


def test_precision_of_operands_is_kept_beside_the_algorithm(xla: Any) -> None:
    line = (
        "f32[4,4]{1,0} dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        "operand_precision={high,highest}, algorithm=dot_bf16_bf16_f32"
    )
    first = proto.from_bytes(xla.hlo_module_from_text(source(line)).as_serialized_hlo_module_proto())
    second = proto.from_bytes(proto.to_bytes(first))
    assert second.root.attributes["algorithm"] == "ALG_DOT_BF16_BF16_F32"
    assert second.root.unread == first.root.unread != b""
    peer = xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(second))
    assert "operand_precision={high,highest}" in peer.to_string()


def test_composite_call_keeps_its_name_and_attributes(xla: Any) -> None:
    line = (
        "f32[] call(s, s), to_apply=add, is_composite=true, frontend_attributes={"
        'composite.attributes={x = 1 : i32},composite.name="my.thing",composite.version="1"}'
    )
    first = proto.from_bytes(xla.hlo_module_from_text(source(line)).as_serialized_hlo_module_proto())
    peer = xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(first))
    assert (
        'is_composite=true, frontend_attributes={composite.attributes={x = 1 : i32},composite.name="my'
        in (peer.to_string())
    )
    assert parse.from_text(source(line)).root.attributes["called"] == ("add",)


def test_control_dependencies_are_dropped_with_their_ids(xla: Any) -> None:
    line = "f32[4]{0} negate(v), control-predecessors={x}"
    peer = xla.hlo_module_from_text(source(line))
    read = proto.from_bytes(peer.as_serialized_hlo_module_proto())
    written = xla.HloModule.from_serialized_hlo_module_proto(proto.to_bytes(read))
    assert "control-predecessors" in peer.to_string()
    assert "control-predecessors" not in written.to_string()
    assert parse.from_text(source(line)).root.operands == ("v",)


# ---- tuples, tokens, aliases ---------------------------------------------------------------------


def test_tuple_constants_survive(xla: Any) -> None:
    line = "(f32[2]{0}, (s32[], pred[2]{0})) constant(( {1.5, -0.0}, ( 3, {1, 0} ) ))"
    module = parse.from_text(source(line))
    vector, (scalar, mask) = module.root.attributes["literal"]
    assert vector.data.tolist() == [1.5, 0.0]
    assert np.signbit(vector.data).tolist() == [False, True]
    assert (scalar.data.tolist(), mask.data.tolist()) == (3, [True, False])
    assert meaning(proto.from_bytes(proto.to_bytes(module))) == meaning(module)
    assert meaning(through_file(module)) == meaning(module)
    assert meaning(parse.from_text(text.to_text(module))) == meaning(module)


def test_token_is_not_an_empty_tuple(xla: Any) -> None:
    module = parse.from_text(source("token[] after-all()"))
    assert module.root.shape == TupleShape((), is_token=True)
    empty = parse.from_text(source("() tuple()"))
    assert empty.root.shape == TupleShape(())
    for m in (module, empty):
        assert through_file(m).root.shape == m.root.shape


ALIASED = """\
HloModule aliased, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {1}, must-alias) }, \
entry_computation_layout={((f32[2,3]{0,1}, f32[2]{0}), f32[2,3]{0,1})->(f32[2,3]{0,1}, f32[2]{0})}

ENTRY main {
  t = (f32[2,3]{1,0}, f32[2]{0}) parameter(0)
  x = f32[2,3]{1,0} parameter(1)
  v = f32[2]{0} get-tuple-element(t), index=1
  ROOT y = (f32[2,3]{1,0}, f32[2]{0}) tuple(x, v)
}
"""


def test_aliases_and_entry_layout_survive(xla: Any) -> None:
    module = parse.from_text(ALIASED)
    assert module.input_output_alias == (((0,), 1, (), "MAY_ALIAS"), ((1,), 0, (1,), "MUST_ALIAS"))
    assert module.program_shape[0][1] == Shape(F32, (2, 3), (0, 1))
    assert text.to_text(module, dialect="short") == ALIASED
    assert meaning(proto.from_bytes(proto.to_bytes(module))) == meaning(module)
    for read in (through_text(module), through_file(module)):
        assert meaning(read) == meaning(module)


def test_entry_layout_of_other_types_is_not_kept() -> None:
    module = parse.from_text(ALIASED.replace("->(f32[2,3]{0,1}", "->(f32[3,3]{0,1}"))
    assert module.entry_layout is None


# ---- attributes that contradict ------------------------------------------------------------------


@each_of(
    ("line", "message"),
    [
        ("f32[4,4] transpose(x), dimensions={1,0}, direction=LT", "has no attribute 'direction'"),
        ("f32[4,4] transpose(x), dimension={1,0}", "did you mean 'dimensions'"),
        ("f32[4] reduce(x, s), dimensions={1}", "calls no computation"),
        ("f32[4] rng(s, s), distribution=rng_gamma", "rng_gamma"),
        ("f32[4] rng(s, s)", "needs the attribute 'distribution'"),
        ("f32[4,4] pad(x, s), padding=1_2_3_4x0_0", "not of the form"),
        (
            "f32[1,3,3,6] convolution(image, kernel), window={size=2x2}, dim_labels=b01f_01io->b0ff",
            "once",
        ),
        ("f32[4] collective-permute(v), source_target_pairs={{0,1,2}}", "pairs"),
        ("f32[4,4] all-reduce(x), replica_groups=mesh['a'=2]{'a'}, to_apply=add", "replica groups"),
        ("f32[1,3,2,2] reduce-window(image, s), window={size=1x2 stride=1}, to_apply=add", "different"),
        ("f32[4,4] call(x), to_apply=missing", "'missing' does not exist"),
        ("f32[4,4] negate(missing)", "'missing' is no instruction"),
        ("f32[4,4] constant({...})", "elided"),
        ("(f32[4,4], s32[]) constant({...})", "elided"),
        ("f32[<=4] negate(v)", "NCC_EMOD025"),
        ("f32[4,4] triangular-solve(x, x), transpose_a=TWICE", "'TWICE' is not one of NO_TRANSPOSE"),
        ("f32[4] fft(v), fft_type=DCT, fft_length={4}", "'DCT' is not one of fft"),
        ("f32[4] fft(v), fft_length={4}", "needs the attribute 'fft_type'"),
        ("f8e4m3fnuz[4] convert(v)", "NCC_EVRF005"),
        ("s4[4] convert(v)", "NCC_ESPP004"),
    ],
)
def test_text_that_contradicts_itself_is_refused_with_its_line(line: str, message: str) -> None:
    with pytest.raises(NeuronSimError, match=message):
        parse.from_text(source(line))


def test_error_names_line_and_column() -> None:
    with pytest.raises(InvalidModel, match=r"line 3, column 16: a shape is expected, not 'negate"):
        parse.from_text("HloModule m\nENTRY e {\n  ROOT y.1 =   negate(y) }")


def test_instruction_of_an_opcode_that_is_not_known_is_read() -> None:
    line = "c64[4]{0} transform(v), transform_type=FFT, length={4}"
    root = parse.from_text(source(line)).root
    assert root == Instruction("y", "transform", Shape(dtypes.complex64, (4,)), ("v",))
