"""A convolution layer in one word, such as 64k7x7s2p3: what its input's shape does not say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neuronsim.errors import InvalidArgument

_WORD = re.compile(r"(\d+)k(\d+(?:x\d+)*)(?:s(\d+))?(?:p(\d+))?(?:d(\d+))?(?:g(\d+))?(w?)", re.ASCII)
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Layer:
    """How many output features a convolution has, its kernel's lengths, and the stride, the padding at
    either end and the dilation of every axis; `groups` of features see only each other. With `packed`
    the weights were rounded and packed before, as a compiled program and onnxruntime keep them.

    >>> str(Layer(32, (3, 3), stride=2, padding=1, groups=32))
    '32k3x3s2p1g32'
    """

    features: int
    kernel: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    packed: bool = False

    def __str__(self) -> str:
        usual = (("s", self.stride, 1), ("p", self.padding, 0), ("d", self.dilation, 1))
        word = f"{self.features}k{'x'.join(map(str, self.kernel))}"
        word += "".join(f"{k}{n}" for k, n, u in (*usual, ("g", self.groups, 1)) if n != u)
        return word + "w" * self.packed

    def weight_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The weights (features, channels of a group, kernel) for an input (batch, channels, lengths).

        Raises InvalidArgument if the layer does not fit the input.

        >>> parse_layer("8k3s2p1g2").weight_shape((1, 4, 10))
        (8, 2, 3)
        """
        if len(shape) != len(self.kernel) + 2:
            raise InvalidArgument(
                f"convolution takes BATCHxCHANNELSx{'x'.join('LENGTH' for _ in self.kernel)} for the "
                f"layer {self}, not {shape}"
            )
        if shape[1] % self.groups or self.features % self.groups:
            raise InvalidArgument(
                f"{self.groups} groups do not divide {shape[1]} channels and {self.features} features"
            )
        return (self.features, shape[1] // self.groups, *self.kernel)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The result (batch, features, lengths) for an input.

        Raises InvalidArgument if the kernel is longer than the padded input.

        >>> parse_layer("64k7x7s2p3").output_shape((1, 3, 224, 224))
        (1, 64, 112, 112)
        """
        rooms = [
            n + 2 * self.padding - self.dilation * (k - 1) - 1
            for n, k in zip(shape[2:], self.kernel, strict=True)
        ]
        if min(rooms) < 0:
            raise InvalidArgument(f"the kernel of the layer {self} is longer than the input {shape}")
        return (shape[0], self.features, *(room // self.stride + 1 for room in rooms))


def parse_layer(word: str) -> Layer:
    """The layer of a word: FEATURESkKERNEL, then as needed sSTRIDE, pPADDING, dDILATION, gGROUPS,
    and w for packed weights.

    >>> parse_layer("256k5p2")
    Layer(features=256, kernel=(5,), stride=1, padding=2, dilation=1, groups=1, packed=False)
    """
    found = _WORD.fullmatch(word)
    numbers = [] if found is None else [int(n) for n in re.findall(r"\d+", word)]
    if found is None or max(numbers) > _LONGEST:
        raise InvalidArgument(
            f"a layer is a word such as 64k7x7s2p3 (features, kernel, then as needed stride, padding, "
            f"dilation d2, groups g32, packed weights w), not {word!r}"
        )
    stride, padding, dilation, groups = (
        int(text or usual) for text, usual in zip(found.groups()[2:6], (1, 0, 1, 1), strict=True)
    )
    kernel = tuple(int(n) for n in found[2].split("x"))
    if min(int(found[1]), *kernel, stride, dilation, groups) < 1:
        raise InvalidArgument(
            f"features, kernel, stride, dilation and groups are at least 1, in {word!r}"
        )
    return Layer(int(found[1]), kernel, stride, padding, dilation, groups, bool(found[7]))
