"""Matrix products and convolutions: rules M1 to M8."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from neuronsim import _core, dtypes
from neuronsim.dtypes import DType
from neuronsim.errors import OutOfMemory, UnsupportedOperator, UnsupportedType
from neuronsim.ops.chains import (
    CONVERT,
    FLOAT32,
    core_code,
    is_host,
    make_chain,
    numerics,
    run_chain,
)
from neuronsim.ops.elementwise import converted
from neuronsim.ops.product_types import dot_kind
from neuronsim.ops.rows import (
    ArrayType,
    Attributes,
    Bits,
    BitsArray,
    ConvolutionDimensions,
    DotDimensions,
    Evaluation,
    Setting,
    WindowDimension,
    check_dims,
    empty,
    run_call,
)
from neuronsim.processor import interruptible
from neuronsim.profiles import Profile, kept_with_profile

# What a product or a simple reduction may sum in (M6, R1).
ACCUMULATE_TYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


class Accumulation(NamedTuple):
    """How a matrix product adds up, as the core takes it: `fma` is M2 with tiles of this length,
    `exact`, `product_bf16` and `pairs` are M6's; every step's float32 result is rounded to `dtype`.
    """

    order: Literal["fma", "exact", "product_bf16", "pairs"] = "fma"
    dtype: DType = dtypes.float32
    tile: int = 128  # the depth of the tensor engine's array (M2)

    @property
    def core(self) -> tuple[str, int, int]:
        """As the core takes it."""
        return self.order, core_code(self.dtype, "an accumulate type"), self.tile


@dataclass(frozen=True)
class Fusion:
    """What a compiled program runs as part of a product: a program for each operand that computes its
    elements while they are packed, with their type; the right operand packed before; and an epilogue,
    whose inputs are the rounded sums and further arrays over the product's own dimensions.
    """

    lhs: tuple[_core.Chain, DType] | None = None
    rhs: tuple[_core.Chain, DType] | None = None
    packed: _core.PackedColumns | None = None
    epilogue: tuple[_core.Chain, DType] | None = None
    terms: tuple[BitsArray, ...] = ()

    def result(self, product: ArrayType) -> ArrayType:
        """What the product and its epilogue give."""
        return product if self.epilogue is None else ArrayType(self.epilogue[1], product.dims)


NO_FUSION = Fusion()
_PSUM128 = Accumulation()


def accumulation(
    lhs: DType, rhs: DType, depth: int, accumulate: DType | None, profile: Profile
) -> Accumulation:
    """The sums of a product of floats: by the profile's field and the plan's accumulate type (M6).

    Raises UnsupportedType or UnsupportedOperator for a combination that M6 does not have.

    >>> accumulation(dtypes.bfloat16, dtypes.bfloat16, 300, None, Profile(accumulate="sequential")).tile
    300
    """
    field, dtype = profile.accumulate, accumulate or dtypes.float32
    if field == "psum128" and dtype is dtypes.float32:
        return _PSUM128
    if dtype not in ACCUMULATE_TYPES:
        raise UnsupportedType(
            f"a product sums in {dtype.name}: choose float32, float16 or bfloat16 (M6)"
        )
    if field == "product_bf16" and max(lhs.bits, rhs.bits) > 16:
        raise UnsupportedType(
            f"accumulate='product_bf16' (M6) is for operands of 16 bits or fewer, not {lhs.name} and "
            f"{rhs.name}: cast them to bfloat16, or choose another value"
        )
    steps_of_fma = field in ("psum128", "sequential")
    if dtype is not dtypes.float32 and not steps_of_fma:
        raise UnsupportedOperator(
            f"a product that sums in {dtype.name} under accumulate={field!r}: M6 rounds fma results "
            "and PSUM additions to that type, which psum128 and sequential have: take one of them"
        )
    draws = field in ("exact", "product_bf16") or dtype is not dtypes.float32
    if profile.rounding == "stochastic" and draws:
        raise UnsupportedOperator(
            f"a product with accumulate={field!r} that sums in {dtype.name} under stochastic rounding: "
            "S2 has no words for its roundings: sum in float32, or round to nearest"
        )
    if field == "psum128":
        return Accumulation(dtype=dtype)
    if field == "sequential":
        return Accumulation(dtype=dtype, tile=max(depth, 1))
    if field == "pairs":
        return Accumulation("pairs", tile=max(depth, 1))
    return Accumulation("exact" if field == "exact" else "product_bf16")


class _Side(NamedTuple):
    """One operand of a product for the core: its data, their type, and the chain that computes its
    elements while they are packed, of the type `dtype`.
    """

    data: BitsArray
    code: int
    chain: _core.Chain | None
    dtype: DType


def _accumulation(e: Evaluation, lhs: DType, rhs: DType, depth: int) -> Accumulation:
    """The sums of a dot or convolution of these types (M6); integers have no choice (M7)."""
    accumulate: DType | None = e.attributes.get("accumulate")
    result: DType = e.result.dtype
    if dot_kind(result) == "integer":
        if accumulate is not None:
            raise UnsupportedType(
                f"a product in {result.name} does not sum in {accumulate.name} (M7): leave the type out"
            )
        return _PSUM128
    return accumulation(lhs, rhs, depth, accumulate, e.setting.profile)


def _side(e: Evaluation, x: Bits, tile: str, fused: tuple[_core.Chain, DType] | None) -> _Side:
    """An operand of a product. The attribute `cast` has float32 rounded to that type first (A1)."""
    cast: DType | None = e.attributes.get("cast")
    setting = e.setting
    code = core_code(x.dtype, "a product")
    if fused is not None:
        return _Side(x.data, code, *fused)
    if cast is None or x.dtype is not dtypes.float32 or cast is x.dtype:
        return _Side(x.data, code, None, x.dtype)
    cast_code = core_code(cast, "a cast")
    program = make_chain((code,), ((CONVERT, cast_code, (0,)),), (1,), setting.profile)
    if not program.draws:
        return _Side(x.data, code, program, cast)
    rounded = run_chain(
        program, [x.data], [ArrayType(cast, x.data.shape)], setting.seed, [setting.identifier(tile)]
    )
    return _Side(rounded[0], cast_code, None, cast)


def goes_via_float32(result: DType, attributes: Attributes, profile: Profile) -> bool:
    """Whether a product of integers does (M7); to bool it is the or of ands in any case."""
    return (
        profile.int_dot == "via_float32"
        and result is not dtypes.boolean
        and dot_kind(result) == "integer"
        and attributes.get("accumulate") is None
    )


def is_fusible(result: DType, profile: Profile) -> bool:
    """Whether a product that gives this type takes in programs and packed columns: of floats, and of
    integers that are computed modulo 2^32 (M7).
    """
    if dot_kind(result) != "integer":
        return result.exponent_bits > 0 and result.device
    return result is not dtypes.boolean and result.bits <= 32 and profile.int_dot == "exact"


def _evaluate_via_float32(e: Evaluation) -> BitsArray:
    """A product of integers as one of float32, rounded to the nearest and saturated (M7)."""
    floats = [converted(x, dtypes.float32, e.setting) for x in e.operands]
    wide = ArrayType(dtypes.float32, e.result.dims)
    own = {name: value for name, value in e.attributes.items() if name != "cast"}
    total = e.op.evaluate_array(floats, own, wide, e.setting)
    back = (_core.CONVERT_NEAREST, core_code(e.result.dtype, e.op.label), (0,))
    program = make_chain((FLOAT32,), (back,), (1,), e.setting.profile)
    return run_chain(program, [total], [e.result])[0]


def host_product(x: Any, y: Any, d: DotDimensions) -> Any:
    """H1: the product by NumPy's matmul, of ndarrays of one type."""
    free_x, free_y = d.free_lhs(x.ndim), d.free_rhs(y.ndim)
    batch = [x.shape[i] for i in d.lhs_batch]
    rows, columns = [x.shape[i] for i in free_x], [y.shape[i] for i in free_y]
    check_dims("a product", (*batch, *rows, *columns))
    depth = math.prod(x.shape[i] for i in d.lhs_contracting)
    left = x.transpose((*d.lhs_batch, *free_x, *d.lhs_contracting))
    right = y.transpose((*d.rhs_batch, *d.rhs_contracting, *free_y))
    matrices = left.reshape(math.prod(batch), math.prod(rows), depth)
    with np.errstate(all="ignore"):
        panel = right.reshape(math.prod(batch), depth, math.prod(columns))
        found = interruptible(matrices.size * panel.shape[-1], np.matmul, matrices, panel)
    return found.reshape((*batch, *rows, *columns))


def evaluate_product(e: Evaluation, fusion: Fusion = NO_FUSION) -> BitsArray:
    """A dot or a convolution, with what is fused into it; its result is the product's own type."""
    if e.op.name == "dot" and is_host(e.result.dtype):
        lhs, rhs = (x.data for x in e.operands)
        found: BitsArray = host_product(lhs, rhs, e.attributes["dot_dimensions"])
        return found
    if goes_via_float32(e.result.dtype, e.attributes, e.setting.profile):
        return _evaluate_via_float32(e)
    try:
        output = empty(fusion.result(e.result))
        call = bind_product(e, output, fusion)
        call.run(e.setting.seed, [e.setting.identifier()] if call.draw_count else [])
    except MemoryError as error:
        what = f"{e.op.name} of {e.operands[0].type} and {e.operands[1].type} to {e.result}"
        raise OutOfMemory(f"{what}: there is not as much memory") from error
    return output


def bind_product(
    e: Evaluation, output: BitsArray, fusion: Fusion, columns: BitsArray | None = None
) -> _core.Call:
    """A dot or a convolution as a call that stores into `output`. `columns` is where an earlier call
    packs those of the right operand of a dot.
    """
    kernel, arrays = _kernel(e, output, fusion)
    return kernel.on(*arrays, columns) if isinstance(kernel, _core.Product) else kernel.on(*arrays)


def is_few(e: Evaluation, fusion: Fusion) -> bool:
    """Whether the core computes a product as a step of a loop's trip, on operands as they lie."""
    plain = replace(fusion, packed=None, epilogue=None, terms=())
    return bind_product(e, empty(e.result), plain).is_few


# What a product's kernel is bound to: both sides, the output, and what its epilogue takes.
_Arrays: TypeAlias = tuple[BitsArray, BitsArray, BitsArray, list[BitsArray]]


def _kernel(
    e: Evaluation, output: BitsArray, fusion: Fusion
) -> tuple[_core.Product | _core.Convolution, _Arrays]:
    """The kernel of a dot or a convolution, and its arrays."""
    lhs, rhs = e.operands
    a = _side(e, lhs, "lhs", fusion.lhs)
    b = _side(e, rhs, "rhs", fusion.rhs)
    make = _dot_kernel if e.op.name == "dot" else _convolution_kernel
    return make(a, b, e, output, fusion)


def _dot_kernel(
    a: _Side, b: _Side, e: Evaluation, output: BitsArray, fusion: Fusion
) -> tuple[_core.Product, _Arrays]:
    result, profile = e.result, e.setting.profile
    d: DotDimensions = e.attributes["dot_dimensions"]
    depth = math.prod([a.data.shape[i] for i in d.lhs_contracting])
    free_lhs, free_rhs, order_lhs, order_rhs = _dot_axes(d, a.data.ndim, b.data.ndim)
    sums = _accumulation(e, a.dtype, b.dtype, depth).core
    sides = (a.code, free_lhs, a.chain), (b.code, free_rhs, b.chain)
    fixed = (*sides, len(d.lhs_batch), core_code(result.dtype, "dot"), sums)
    if fusion is NO_FUSION:
        product = _plain_product(*fixed, profile)
    else:
        product = _core.Product(*fixed, numerics(profile), *_fused(fusion))
    arrays = a.data.transpose(order_lhs), b.data.transpose(order_rhs), output, _terms(fusion, result)
    return product, arrays


_KernelSide: TypeAlias = tuple[int, int, _core.Chain | None]
_Sums: TypeAlias = tuple[str, int, int]


@kept_with_profile
def _plain_product(
    a: _KernelSide, b: _KernelSide, batch: int, result: int, sums: _Sums, profile: Profile
) -> _core.Product:
    return _core.Product(a, b, batch, result, sums, numerics(profile))


def _fused(fusion: Fusion) -> tuple[_core.PackedColumns | None, _core.Chain | None]:
    return fusion.packed, fusion.epilogue[0] if fusion.epilogue else None


def _terms(fusion: Fusion, result: ArrayType) -> list[BitsArray]:
    return [np.broadcast_to(t, result.dims) for t in fusion.terms]


def with_terms(fusion: Fusion, terms: Sequence[BitsArray]) -> Fusion:
    """The fusion with the arrays that its epilogue reads."""
    return replace(fusion, terms=tuple(terms)) if terms else fusion


class _Packing(NamedTuple):
    """What the columns of a right operand are packed by, as the core takes it: the left operand's type,
    the array, of whose dimensions so many are of the batch, and the rows of the products.
    """

    lhs: int
    data: BitsArray
    side: _KernelSide
    batch: int
    sums: _Sums
    numerics: _core.Numerics
    rows: int


def pack_columns(e: Evaluation, fusion: Fusion = NO_FUSION) -> _core.PackedColumns | None:
    """A constant right operand packed for many products with left operands such as this one, of which
    only the type counts; None where the core would not use it.
    """
    packing = _packing(e, fusion)
    return None if packing is None else _core.PackedColumns(*packing)


def pack_in_run(
    e: Evaluation, fusion: Fusion, most_rows: float = math.inf
) -> tuple[_core.PackedColumns, Callable[[BitsArray], _core.Call]] | None:
    """How the columns of a dot's right operand lie, and what packs them into memory of so many bytes in
    a run, for the products that follow; None where it would gain nothing, or they have more rows.
    """
    if e.op.name != "dot":
        return None
    packing = _packing(e, fusion)
    if packing is None or packing.rows > most_rows:
        return None
    columns = _core.PackedColumns(*packing, packs=False)
    # One row by large columns that lie side by side reads them as quickly where they lie.
    data, (_, free, chain), batch = packing.data, packing.side, packing.batch
    adjacent = free > 0 and data.strides[batch + free - 1] == data.itemsize
    if packing.rows == 1 and chain is None and adjacent and columns.nbytes > _LARGE_BYTES:
        return None
    return columns, partial(columns.on, data, packing.side, batch)


def left_type(e: Evaluation, fusion: Fusion) -> DType:
    """The type of a product's left operand, as what is fused computes it."""
    return e.operands[0].dtype if fusion.lhs is None else fusion.lhs[1]


def _packing(e: Evaluation, fusion: Fusion) -> _Packing | None:
    """How `pack_columns` and `pack_in_run` pack."""
    lhs, rhs, profile = left_type(e, fusion), e.operands[1].dtype, e.setting.profile
    is_dot, kind = e.op.name == "dot", dot_kind(e.result.dtype)
    if dot_kind(lhs) != kind or dot_kind(rhs) != kind:
        return None
    if kind == "integer" and not is_fusible(e.result.dtype, profile):
        return None
    found = _dot_columns(e) if is_dot else _convolution_columns(e)
    if found is None:
        return None
    data, free, batch = found
    columns, depth = math.prod(data.shape[: batch + free]), math.prod(data.shape[batch + free :])
    cast: DType | None = e.attributes.get("cast")
    if cast is not None and lhs is dtypes.float32:
        lhs = cast
    side = _side(e, Bits(data, rhs), "rhs", fusion.rhs)
    how = _accumulation(e, lhs, side.dtype, depth)
    if how.order != "fma" or how.dtype is not dtypes.float32:
        return None
    if kind == "float" and not is_dot and data.shape[-1] % 2:
        lhs = dtypes.float32  # the core does not hold an odd number of features in pairs
    rows = e.result.size // max(columns, 1)
    if is_dot and max(rows, columns, depth) <= _TINY:
        return None
    code, kernel_side = core_code(lhs, e.op.name), (side.code, free, side.chain)
    return _Packing(code, side.data, kernel_side, batch, how.core, numerics(profile), rows)


# The columns of a right operand with the depth last, and how many dimensions are free and of the batch.
_Columns: TypeAlias = tuple[BitsArray, int, int]


def _dot_columns(e: Evaluation) -> _Columns:
    lhs, rhs = (x.data for x in e.operands)
    d: DotDimensions = e.attributes["dot_dimensions"]
    _, free, _, order = _dot_axes(d, lhs.ndim, rhs.ndim)
    return rhs.transpose(order), free, len(d.rhs_batch)


def _convolution_columns(e: Evaluation) -> _Columns | None:
    """None where the core would not use them."""
    groups = e.attributes["feature_group_count"] * e.attributes["batch_group_count"]
    if groups > 1 or _leaves_holes_out(e) or _runs_over_places(e):
        return None
    n: ConvolutionDimensions = e.attributes["dimension_numbers"]
    reversed_axes = tuple(i for i, v in enumerate(e.attributes["window"]) if v.reversal)
    kernel = e.operands[1].data.transpose(n.kernel)
    return np.moveaxis(np.flip(kernel, reversed_axes), -1, 0), 1, 0


_LARGE_BYTES = 2 << 20  # what no second cache holds beside other things
_FEW_ROWS = 256  # for which packing takes as long as the products that are left out
_FEW_PLACES = 64  # which would leave much of the last vectors empty


def _leaves_holes_out(e: Evaluation) -> bool:
    """Whether the core multiplies an input with holes phase by phase of its outputs, each by columns of
    its own, which many rows pay for (measured).
    """
    n: ConvolutionDimensions = e.attributes["dimension_numbers"]
    window: Sequence[WindowDimension] = e.attributes["window"]
    shape, tile = e.operands[1].data.shape, _PSUM128.tile
    features = max(shape[n.kernel_input_feature], 1)
    fills_tiles = features % tile == 0 or tile % features == 0
    rows = e.result.size // max(shape[n.kernel_output_feature], 1)
    has_phases = all(d.stride == d.window_dilation == 1 for d in window if d.base_dilation > 1)
    has_holes = any(d.base_dilation > 1 for d in window)
    return has_holes and has_phases and fills_tiles and rows > _FEW_ROWS


def _runs_over_places(e: Evaluation) -> bool:
    """Whether the vectors of a convolution run over the places of an image, whose channels come first:
    the core takes each pixel's channels as they lie, and the weights as the rows.
    """
    n: ConvolutionDimensions = e.attributes["dimension_numbers"]
    window: Sequence[WindowDimension] = e.attributes["window"]
    bare = all(w == WindowDimension(1, w.stride) for w in window)
    result: ArrayType = e.result
    last = len(result.dims) - 1
    if not bare or not window or n.output_spatial[-1] != last or n.input_spatial[-1] != last:
        return False
    return math.prod(result.dims[d] for d in n.output_spatial) >= _FEW_PLACES


_TINY = 16  # rows, columns and depth of products that the core computes without panels


@lru_cache(4096)
def _dot_axes(
    d: DotDimensions, lhs_rank: int, rhs_rank: int
) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """How many axes of either side are free, and each side's order for the core: batch, free and
    contracting axes. The contraction index is row-major as the dot lists them (M2).
    """
    free_lhs, free_rhs = d.free_lhs(lhs_rank), d.free_rhs(rhs_rank)
    return (
        len(free_lhs),
        len(free_rhs),
        (*d.lhs_batch, *free_lhs, *d.lhs_contracting),
        (*d.rhs_batch, *free_rhs, *d.rhs_contracting),
    )


def _convolution_kernel(
    x: _Side, w: _Side, e: Evaluation, output: BitsArray, fusion: Fusion
) -> tuple[_core.Convolution, _Arrays]:
    attributes, result = e.attributes, e.result
    window: Sequence[WindowDimension] = attributes["window"]
    d: ConvolutionDimensions = attributes["dimension_numbers"]
    rows = [
        (v.size, v.stride, v.padding[0], v.base_dilation, v.window_dilation, v.reversal) for v in window
    ]
    kernel = w.data.transpose(d.kernel)
    depth = math.prod(kernel.shape[:-1])
    convolution = _core.Convolution(
        (x.code, x.chain),
        (w.code, w.chain),
        rows,
        attributes["feature_group_count"],
        attributes["batch_group_count"],
        core_code(result.dtype, "convolution"),
        _accumulation(e, x.dtype, w.dtype, depth).core,
        numerics(e.setting.profile),
        *_fused(fusion),
        attributes.get("padding_value", 0),
    )
    terms = [t.transpose(d.output) for t in _terms(fusion, result)]
    return convolution, (x.data.transpose(d.input), kernel, output.transpose(d.output), terms)


def transpose_on_tensor_engine(
    x: Bits, axes: Sequence[int], relayout: DType, setting: Setting, *, saturate_infinity: bool = False
) -> BitsArray:
    """A transpose as multiplications with the identity (M8): values round to the relayout type, and
    each block of 128 along the axis that becomes minor-most is a product by M2. `saturate_infinity`
    makes infinities of the relayout type its largest finite values first.
    """
    values = converted(x, relayout, setting)
    words = values.data
    if saturate_infinity:
        words = _finite(values)
    moved = words.transpose(axes)
    ones = Bits(np.eye(_PSUM128.tile, dtype=np.float32), dtypes.float32)
    identity = converted(ones, relayout, setting).data
    depth, code = moved.shape[-1], core_code(relayout, "a transpose")
    output = empty(ArrayType(x.dtype, moved.shape))
    sides, result = ((code, moved.ndim - 1, None), (code, 1, None)), core_code(x.dtype, "a transpose")
    product = _plain_product(*sides, 0, result, _PSUM128.core, setting.profile)
    for start in range(0, depth, len(identity)):
        size = min(len(identity), depth - start)
        block = moved[..., start : start + size]
        part = empty(ArrayType(x.dtype, block.shape))
        run_call(product.on(block, identity[:size, :size], part), setting)
        output[..., start : start + size] = part
    return output


def _finite(x: Bits) -> BitsArray:
    """The words with the largest finite value of the type for Inf."""
    t = x.dtype
    words = x.data.view(f"u{t.itemsize}")
    unit = 1 << (8 * t.itemsize - t.bits)
    infinity = ((1 << t.exponent_bits) - 1) * unit << t.mantissa_bits
    magnitude = words & words.dtype.type((1 << (8 * t.itemsize - 1)) - 1)
    found = np.where(magnitude == infinity, words - words.dtype.type(unit), words)
    return np.asarray(found, words.dtype).view(t.storage)
