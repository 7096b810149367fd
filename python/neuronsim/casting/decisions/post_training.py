"""Post-training quantization: which products of a module read integers, and by which scales.

A recipe says what and how; `find_sites` which arrays have to be seen, `tapped` is the module that gives
them, and `quantized_plan` decides from what was seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuronsim import dtypes
from neuronsim.casting.decisions.biases import Bias, channel_axes, find_biases, why_not
from neuronsim.casting.decisions.quantization import FLOATS, TYPES, Quantization, quantization_of
from neuronsim.casting.decisions.record import Decision
from neuronsim.casting.policies.ranges import METHODS, Seen, check_method
from neuronsim.dtypes import DType
from neuronsim.errors import InvalidArgument, InvalidData, first_few, nearest
from neuronsim.hlo.inlining import FlatModule
from neuronsim.hlo.module import (
    Computation,
    Instruction,
    Module,
    Shape,
    TupleShape,
    fresh_name,
    graph_computations,
    is_named,
)
from neuronsim.records import check_fields

PRODUCTS = ("dot", "convolution")
INT8_FAMILY = "int8"
_FLOAT8 = {dtypes.float8_e4m3: "fp8_e4m3", dtypes.float8_e5m2: "fp8_e5m2"}
FAMILIES = (INT8_FAMILY, *_FLOAT8.values())  # of schemes: with these their settings' names begin
_LISTED = 8  # products that an error names
_MOVES = frozenset({"reshape", "transpose", "broadcast", "slice", "reverse", "copy", "convert"})


@dataclass(frozen=True)
class Recipe:
    """How a model is quantized: the method of calibration (`ranges.METHODS`), the types, whether the
    ranges of activations are symmetric, whether weights have a scale for each channel, or whether they
    alone are stored quantized; which operations read bytes, by opcode, and which instructions do not,
    by patterns of their names, alone or as `computation/name`, or of `op_name`. Convolutions read int8,
    XLA's have one type; where one of the types is a float8 both are. A `bias` is added in float32, or
    as int32 to the sums (Q7).
    """

    method: str = "minmax"
    activations: DType = dtypes.int8
    weights: DType = dtypes.int8
    bias: DType = dtypes.float32
    symmetric: bool = False
    per_channel: bool = True
    weight_only: bool = False
    percentile: float = 99.999
    operations: tuple[str, ...] = PRODUCTS
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        check_method(self.method)
        for name in ("activations", "weights"):
            if getattr(self, name) not in TYPES:
                known = ", ".join(t.name for t in TYPES)
                raise InvalidArgument(
                    f"{name} are quantized to one of {known}, not {getattr(self, name)}"
                )
        if self.activations in FLOATS or self.weights in FLOATS:
            if self.activations is not self.weights:
                raise InvalidArgument(
                    "products of float8 read one type: give activations and weights the same"
                )
        elif self.weights is not dtypes.int8:
            raise InvalidArgument("weights are symmetric, so int8 (Q5)")
        if self.bias not in (dtypes.float32, dtypes.int32):
            raise InvalidArgument(f"a bias is float32 or int32, not {self.bias}")
        if self.bias is dtypes.int32 and (self.weight_only or self.family != INT8_FAMILY):
            raise InvalidArgument(
                "a bias in int32 is added to sums in int32: products of float8, or of weights that "
                "alone are quantized, have none"
            )
        if not 50 < self.percentile <= 100:
            raise InvalidArgument(f"a percentile above 50, up to 100, not {self.percentile}")
        unknown = [o for o in self.operations if o not in PRODUCTS]
        if unknown:
            raise InvalidArgument(f"operations that read integers are {PRODUCTS}, not {unknown}")

    @property
    def family(self) -> str:
        """The type of its products, as settings are called by it: of bytes, int8."""
        return _FLOAT8.get(self.weights, INT8_FAMILY)

    @property
    def name(self) -> str:
        """What plans call it."""
        how = "weights only" if self.weight_only else self.method
        return f"{self.family} ({how}{', by channel' if self.per_channel else ''})"

    @property
    def setting(self) -> str:
        """What a setting with it is called: the type of its products, and the rest of the scheme."""
        words = [w for w in self.scheme.split(",") if w != self.family]
        return f"{self.family}/{','.join(words)}"

    @property
    def scheme(self) -> str:
        """The words that `find_recipe` reads; operations and exclusions are not among them."""
        cut = f":{self.percentile:g}" if self.method == "percentile" else ""
        stated = [word for word, changes in _WORDS.items() if changes.items() <= vars(self).items()]
        return ",".join(["weights" if self.weight_only else self.method + cut, *stated])


_WORDS: Mapping[str, Mapping[str, Any]] = {
    "uint8": {"activations": dtypes.uint8},
    "symmetric": {"symmetric": True},
    "per-tensor": {"per_channel": False},
    "int32-bias": {"bias": dtypes.int32},
    **{n: {"activations": t, "weights": t} for t, n in _FLOAT8.items()},
}


def find_recipe(scheme: str | Recipe) -> Recipe:
    """The recipe of a scheme in words: a method of calibration, or `weights` for these alone, and how,
    with commas between; a percentile's share follows a colon.

    >>> find_recipe("percentile:99.9,uint8,per-tensor").scheme
    'percentile:99.9,uint8,per-tensor'

    Raises InvalidArgument for other words, with the nearest.
    """
    if isinstance(scheme, Recipe):
        return scheme
    if not isinstance(scheme, str):
        raise InvalidArgument(f"a scheme is a text such as 'minmax,uint8', or a Recipe, not {scheme!r}")
    found: dict[str, Any] = {}
    stated: dict[str, str] = {}  # by which word each field is
    for word in filter(None, (w.strip() for w in scheme.split(","))):
        name, colon, share = word.partition(":")
        changes: Mapping[str, Any]
        if name in METHODS and (not colon or name == "percentile"):
            changes = {"method": name, **({"percentile": _share(share)} if colon else {})}
        elif word in _WORDS:
            changes = _WORDS[word]
        elif word == "weights":
            changes = {"weight_only": True}
        else:
            known = (*METHODS, "weights", *_WORDS)
            raise InvalidArgument(
                f"{word!r} says nothing of how to quantize{nearest(word, known)}: there are "
                f"{', '.join(known)}, and percentile:99.9 for a share"
            )
        other = next((stated[n] for n, x in changes.items() if found.get(n, x) != x), None)
        if other is not None:
            raise InvalidArgument(f"the scheme {scheme!r} says {other} and {word}: give one of them")
        found |= changes
        stated |= dict.fromkeys(changes, word)
    of_activations = next((stated[n] for n in ("method", "symmetric") if n in stated), None)
    if "weight_only" in found and (of_activations or stated.get("activations") == "uint8"):
        raise InvalidArgument(
            f"the scheme {scheme!r} says weights, of which alone nothing is calibrated, and "
            f"{of_activations or 'uint8'}, which is of activations: give one of them"
        )
    return Recipe(**found)


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"a percentile is a number such as 99.9, not {text!r}") from None


@dataclass(frozen=True)
class Site:
    """A product and where its operands come from: whether each is known before the program runs."""

    product: Instruction
    known: tuple[bool, bool]
    channels: int | None  # the axis of the right operand that the result has
    bias: Bias | None = None  # that its sums may take


def find_sites(module: FlatModule, recipe: Recipe) -> tuple[list[Site], dict[str, str]]:
    """The products of the entry computation that the recipe quantizes, and why others are not. Raises
    InvalidArgument for an exclusion that is of no product.
    """
    sites: list[Site] = []
    kept: dict[str, str] = {}
    _check_exclusions(module, recipe)
    for c in graph_computations(module):
        known = known_names(c)
        biases = find_biases(c, c.by_name) if recipe.bias is dtypes.int32 else {}
        for i in c.instructions:
            if i.opcode not in PRODUCTS:
                continue
            types = [c.by_name[o].array.dtype for o in i.operands] + [i.array.dtype]
            if any(t is not dtypes.float32 for t in types):
                continue
            why = _why_kept(i, c, module, recipe, known)
            if why:
                kept[i.name] = why
                continue
            sides = (i.operands[0] in known, i.operands[1] in known)
            sites.append(Site(i, sides, channel_axis(i, c), biases.get(i.name)))
    return sites, kept


def _check_exclusions(module: FlatModule, recipe: Recipe) -> None:
    """A product that was to stay as it is would be quantized where a pattern is misspelt."""
    products = [
        (c, i) for c in graph_computations(module) for i in c.instructions if i.opcode in PRODUCTS
    ]
    for pattern in recipe.exclude:
        if any(is_named(c, i, pattern) for c, i in products):
            continue
        names = [i.name for _, i in products]
        scopes = [i.metadata.op_name for _, i in products if i.metadata.op_name]
        raise InvalidArgument(
            f"exclude (--exclude) {pattern!r} names no product of {module.name!r}"
            f"{nearest(pattern, (*names, *scopes))}: there are {first_few(names, _LISTED)}"
            if names
            else f"exclude (--exclude) {pattern!r} names no product: {module.name!r} has none"
        )


def _why_kept(
    i: Instruction, c: Computation, module: Module, recipe: Recipe, known: frozenset[str]
) -> str:
    if i.opcode not in recipe.operations:
        return f"{i.opcode} is not among the operations that are quantized"
    for pattern in recipe.exclude:
        if is_named(c, i, pattern):
            return f"excluded by {pattern!r}"
    if c.name != module.entry:
        return "it runs in a loop or a branch, whose values are not calibrated"
    if i.attributes.get("algorithm"):
        return "it states an algorithm of its own"
    if recipe.weight_only and i.operands[1] not in known:
        return "its right operand is no weight"
    if i.operands[0] in known and i.operands[1] in known:
        return "it is computed before the program runs"
    return ""


def known_names(c: Computation) -> frozenset[str]:
    """What is known before a program runs: constants, and what moves them."""
    found: set[str] = set()
    for i in c.instructions:
        if not isinstance(i.shape, Shape):
            continue
        moved = i.opcode in _MOVES and all(o in found for o in i.operands)
        if i.opcode == "constant" or moved:
            found.add(i.name)
    return frozenset(found)


def channel_axis(i: Instruction, c: Computation) -> int | None:
    """The axis of a product's right operand that may have scales: the result has it too."""
    axes = channel_axes(i, len(c.by_name[i.operands[1]].array.dims))
    return axes[0] if len(axes) == 1 else None


def seen_arrays(sites: Iterable[Site], recipe: Recipe) -> tuple[str, ...]:
    """The names of the arrays whose values a calibration has to see: the operands, each once."""
    taken: dict[str, None] = {}
    for s in sites:
        for n, name in enumerate(s.product.operands):
            if n == 1 or not recipe.weight_only:
                taken[name] = None
    return tuple(taken)


def tapped(module: FlatModule, names: Sequence[str]) -> Module:
    """The module with these arrays of the entry computation as its results."""
    entry = module.entry_computation
    shapes = tuple(entry.by_name[n].shape for n in names)
    taken = {i.name for i in module.instructions}
    root = Instruction(fresh_name("taps", taken), "tuple", TupleShape(shapes), tuple(names))
    read, kept = {root.name}, []
    for i in reversed((*entry.instructions, root)):
        if i.name in read or i.opcode == "parameter":
            kept.append(i)
            read.update(i.operands)
    body = Computation(entry.name, tuple(reversed(kept)), root.name)
    computations = tuple(body if c.name == entry.name else c for c in module.computations)
    return dataclasses.replace(
        module, computations=computations, input_output_alias=(), entry_layout=None
    )


@dataclass
class SeenArray:
    """What calibration saw of an array: of weights the values themselves, else what `Seen` keeps."""

    activation: Seen
    weights: np.ndarray | None = None


def decisions_of(
    sites: Sequence[Site], seen: Mapping[str, SeenArray], recipe: Recipe
) -> dict[str, Decision]:
    """The decisions on these products. Raises InvalidData for an array without a finite value."""
    found: dict[str, Decision] = {}
    quantizations: dict[str, Quantization] = {}

    convolved = {s.product.operands[0] for s in sites if s.product.opcode == "convolution"}

    def activation(name: str) -> Quantization:
        if name not in quantizations:
            s = seen[name].activation
            if s.low > s.high:
                raise InvalidData(
                    f"{name} had no finite value while it was calibrated: look for where its Inf or "
                    "NaN comes from, or exclude its readers"
                )
            dtype = (
                dtypes.int8
                if recipe.activations is dtypes.uint8 and name in convolved
                else recipe.activations
            )
            quantizations[name] = quantization_of(*s.range(), dtype, symmetric=recipe.symmetric)
        return quantizations[name]

    for s in sites:
        left, right = s.product.operands
        weights = seen[right].weights if s.known[1] else None
        by = weight_quantization(weights, s, recipe) if weights is not None else activation(right)
        if recipe.weight_only:
            found[right] = Decision(
                dtypes.float32, dtypes.float32, dtypes.float32,
                f"{recipe.name} stores the weights of {s.product.name} so", quantized_result=by,
            )  # fmt: skip
            continue
        addition, why = _bias(s, activation(left), by)
        found[s.product.name] = Decision(
            dtypes.float32, dtypes.float32, dtypes.float32, _reason(s, seen, recipe) + why,
            quantized_operands=(activation(left), by), bias=addition,
        )  # fmt: skip
    return found


def _bias(s: Site, lhs: Quantization, rhs: Quantization) -> tuple[str, str]:
    """The addition whose bias the sums of a product take, or why they do not take the one there is."""
    if s.bias is None:
        return "", ""
    name, why = s.bias.addition.name, why_not(s.bias, lhs, rhs)
    return ("", f"; the bias of {name} stays float32: {why}") if why else (name, "")


def weight_quantization(weights: np.ndarray, site: Site, recipe: Recipe) -> Quantization:
    """Symmetric scales of weights; a channel of zeros takes the scale 1, what is not finite counts as
    the largest finite weight.
    """
    finite = np.where(np.isfinite(weights), weights, 0).astype(np.float32)
    axis = site.channels if recipe.per_channel else None
    if axis is None:
        return quantization_of(
            finite.min(initial=0), finite.max(initial=0), recipe.weights, symmetric=True
        )
    others = tuple(n for n in range(finite.ndim) if n != axis)
    low, high = finite.min(others, initial=0), finite.max(others, initial=0)
    return quantization_of(low, high, recipe.weights, symmetric=True, axis=axis)


def _reason(site: Site, seen: Mapping[str, SeenArray], recipe: Recipe) -> str:
    left = seen[site.product.operands[0]].activation
    low, high = left.range()
    text = f"{recipe.name}: it read values from {low:.6g} to {high:.6g}"
    if (low, high) != (left.low, left.high):
        text += f" of {left.low:.6g} to {left.high:.6g}"
    return f"{text}, {left.left_out} not finite" if left.left_out else text
