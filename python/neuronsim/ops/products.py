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
    Op,
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


def _accumulation(
    lhs: DType, rhs: DType, depth: int, result: DType, attributes: Attributes, profile: Profile
) -> Accumulation:
    """The sums of a dot or convolution of these operands (M6); integers have no choice (M7)."""
    accumulate: DType | None = attributes.get("accumulate")
    if dot_kind(result) == "integer":
        if accumulate is not None:
            raise UnsupportedType(
                f"a product in {result.name} does not sum in {accumulate.name} (M7): leave the type out"
            )
        return _PSUM128
    return accumulation(lhs, rhs, depth, accumulate, profile)


def _side(
    x: Bits,
    attributes: Attributes,
    setting: Setting,
    tile: str,
    fused: tuple[_core.Chain, DType] | None,
) -> _Side:
    """An operand of a product. The attribute `cast` has float32 rounded to that type first (A1)."""
    cast: DType | None = attributes.get("cast")
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
    free_x = [i for i in range(x.ndim) if i not in d.lhs_batch + d.lhs_contracting]
    free_y = [i for i in range(y.ndim) if i not in d.rhs_batch + d.rhs_contracting]
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
    a = _side(lhs, e.attributes, e.setting, "lhs", fusion.lhs)
    b = _side(rhs, e.attributes, e.setting, "rhs", fusion.rhs)
    make = _dot_kernel if e.op.name == "dot" else _convolution_kernel
    return make(a, b, e, output, fusion)


def _dot_kernel(
    a: _Side, b: _Side, e: Evaluation, output: BitsArray, fusion: Fusion
) -> tuple[_core.Product, _Arrays]:
    attributes, result, profile = e.attributes, e.result, e.setting.profile
    d: DotDimensions = attributes["dot_dimensions"]
    depth = math.prod([a.data.shape[i] for i in d.lhs_contracting])
    free_lhs, free_rhs, order_lhs, order_rhs = _dot_axes(d, a.data.ndim, b.data.ndim)
    how = _accumulation(a.dtype, b.dtype, depth, result.dtype, attributes, profile)
    sides = (a.code, free_lhs, a.chain), (b.code, free_rhs, b.chain)
    product = product_kernel(*sides, len(d.lhs_batch), result.dtype, how, profile, fusion)
    arrays = a.data.transpose(order_lhs), b.data.transpose(order_rhs), output, _terms(fusion, result)
    return product, arrays


_KernelSide: TypeAlias = tuple[int, int, _core.Chain | None]
_Sums: TypeAlias = tuple[str, int, int]


def product_kernel(
    a: _KernelSide,
    b: _KernelSide,
    batch: int,
    result: DType,
    how: Accumulation,
    profile: Profile,
    fusion: Fusion = NO_FUSION,
) -> _core.Product:
    """A product of sides of these types and dimensions; those that take in nothing are kept."""
    fixed = (a, b, batch, core_code(result, "dot"), how.core)
    if fusion is NO_FUSION:
        return _plain_product(*fixed, profile)
    return _core.Product(*fixed, numerics(profile), *_fused(fusion))


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


# What the columns of a right operand are packed by: the left operand's type, the array, its side, and
# how many dimensions are of the batch; then the sums, the numerics and the rows of the products.
_Packing: TypeAlias = tuple[int, BitsArray, _KernelSide, int, _Sums, _core.Numerics, int]


def pack_columns(
    op: Op, lhs: DType, rhs: Bits, attributes: Attributes, setting: Setting, result: ArrayType
) -> _core.PackedColumns | None:
    """A constant right operand packed for many products with left operands of the type `lhs` that give
    `result`; None where the core would not use it.
    """
    packing = _packing(op, lhs, rhs, attributes, setting, result, None)
    return None if packing is None else _core.PackedColumns(*packing)


def pack_in_run(
    e: Evaluation, fusion: Fusion, most_rows: float = math.inf
) -> tuple[_core.PackedColumns, Callable[[BitsArray], _core.Call]] | None:
    """How the columns of a dot's right operand lie, and what packs them into memory of so many bytes in
    a run, for the products that follow; None where it would gain nothing, or they have more rows.
    """
    lhs = e.operands[0].dtype if fusion.lhs is None else fusion.lhs[1]
    if e.op.name != "dot":
        return None
    packing = _packing(e.op, lhs, e.operands[1], e.attributes, e.setting, e.result, fusion.rhs)
    if packing is None or packing[-1] > most_rows:
        return None
    columns = _core.PackedColumns(*packing, packs=False)
    # One row by large columns that lie side by side reads them as quickly where they lie.
    _, data, (_, free, chain), batch, *_, rows = packing
    adjacent = free > 0 and data.strides[batch + free - 1] == data.itemsize
    if rows == 1 and chain is None and adjacent and columns.nbytes > _LARGE_BYTES:
        return None
    return columns, partial(columns.on, *packing[1:4])


def _packing(
    op: Op,
    lhs: DType,
    rhs: Bits,
    attributes: Attributes,
    setting: Setting,
    result: ArrayType,
    fused: tuple[_core.Chain, DType] | None,
) -> _Packing | None:
    """How `pack_columns` and `pack_in_run` pack; `fused` computes the right operand's elements."""
    kind = dot_kind(result.dtype)
    if dot_kind(lhs) != kind or dot_kind(rhs.dtype) != kind:
        return None
    if kind == "integer" and not is_fusible(result.dtype, setting.profile):
        return None
    if op.name == "dot":
        d: DotDimensions = attributes["dot_dimensions"]
        free = [i for i in range(rhs.data.ndim) if i not in d.rhs_contracting + d.rhs_batch]
        data = rhs.data.transpose((*d.rhs_batch, *free, *d.rhs_contracting))
        counts = (len(free), len(d.rhs_batch))
        depth = math.prod(rhs.data.shape[i] for i in d.rhs_contracting)
    elif (
        attributes["feature_group_count"] * attributes["batch_group_count"] > 1
        or _leaves_holes_out(attributes, rhs, result)
        or _runs_over_places(attributes, result)
    ):
        return None
    else:
        n: ConvolutionDimensions = attributes["dimension_numbers"]
        reversed_axes = tuple(i for i, v in enumerate(attributes["window"]) if v.reversal)
        data = np.moveaxis(np.flip(rhs.data.transpose(n.kernel), reversed_axes), -1, 0)
        counts, depth = (1, 0), math.prod(data.shape[1:])
    cast: DType | None = attributes.get("cast")
    if cast is not None and lhs is dtypes.float32:
        lhs = cast
    side = _side(Bits(data, rhs.dtype), attributes, setting, "rhs", fused)
    how = _accumulation(lhs, side.dtype, depth, result.dtype, attributes, setting.profile)
    if how.order != "fma" or how.dtype is not dtypes.float32:
        return None
    if kind == "float" and op.name != "dot" and data.shape[-1] % 2:
        lhs = dtypes.float32  # the core does not hold an odd number of features in pairs
    columns = math.prod(data.shape[: sum(counts)])
    rows = result.size // max(columns, 1)
    if op.name == "dot" and max(rows, columns, depth) <= _TINY:
        return None
    columns_of = core_code(lhs, op.name), side.data, (side.code, counts[0], side.chain), counts[1]
    return *columns_of, how.core, numerics(setting.profile), rows


_LARGE_BYTES = 2 << 20  # what no second cache holds beside other things
_FEW_ROWS = 256  # for which packing takes as long as the products that are left out
_FEW_PLACES = 64  # which would leave much of the last vectors empty


def _leaves_holes_out(attributes: Attributes, rhs: Bits, result: ArrayType) -> bool:
    """Whether the core multiplies an input with holes phase by phase of its outputs, each by columns of
    its own, which many rows pay for (measured).
    """
    n: ConvolutionDimensions = attributes["dimension_numbers"]
    window: Sequence[WindowDimension] = attributes["window"]
    shape, tile = rhs.data.shape, _PSUM128.tile
    features = max(shape[n.kernel_input_feature], 1)
    fills_tiles = features % tile == 0 or tile % features == 0
    rows = result.size // max(shape[n.kernel_output_feature], 1)
    has_phases = all(d.stride == d.window_dilation == 1 for d in window if d.base_dilation > 1)
    has_holes = any(d.base_dilation > 1 for d in window)
    return has_holes and has_phases and fills_tiles and rows > _FEW_ROWS


def _runs_over_places(attributes: Attributes, result: ArrayType) -> bool:
    """Whether the vectors of a convolution run over the places of an image, whose channels come first:
    the core takes each pixel's channels as they lie, and the weights as the rows.
    """
    n: ConvolutionDimensions = attributes["dimension_numbers"]
    window: Sequence[WindowDimension] = attributes["window"]
    bare = all(w == WindowDimension(1, w.stride) for w in window)
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
    free_lhs = tuple(i for i in range(lhs_rank) if i not in d.lhs_contracting + d.lhs_batch)
    free_rhs = tuple(i for i in range(rhs_rank) if i not in d.rhs_contracting + d.rhs_batch)
    return (
        len(free_lhs),
        len(free_rhs),
        (*d.lhs_batch, *free_lhs, *d.lhs_contracting),
        (*d.rhs_batch, *free_rhs, *d.rhs_contracting),
    )


def _convolution_kernel(
    x: _Side, w: _Side, e: Evaluation, output: BitsArray, fusion: Fusion
) -> tuple[_core.Convolution, _Arrays]:
    attributes, result, profile = e.attributes, e.result, e.setting.profile
    window: Sequence[WindowDimension] = attributes["window"]
    d: ConvolutionDimensions = attributes["dimension_numbers"]
    rows = [
        (v.size, v.stride, v.padding[0], v.base_dilation, v.window_dilation, v.reversal) for v in window
    ]
    kernel = w.data.transpose(d.kernel)
    depth = math.prod(kernel.shape[:-1])
    how = _accumulation(x.dtype, w.dtype, depth, result.dtype, attributes, profile)
    convolution = _core.Convolution(
        (x.code, x.chain),
        (w.code, w.chain),
        rows,
        attributes["feature_group_count"],
        attributes["batch_group_count"],
        core_code(result.dtype, "convolution"),
        how.core,
        numerics(profile),
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
    sides = (code, moved.ndim - 1, None), (code, 1, None)
    product = product_kernel(*sides, 0, x.dtype, _PSUM128, setting.profile)
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
