"""The device of the array API standard: there is one, which the host's memory and processor emulate.

>>> TRN1, str(TRN1), TRN1 == Device("trn1")
(neuronsim.Device('trn1'), 'trn1', True)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuronsim.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Device:
    """The device that arrays are on: "trn1". Their bits lie in the host's memory; of host types
    (`DType.device` says which) NumPy computes them (H1).
    """

    name: str = "trn1"

    def __post_init__(self) -> None:
        if self.name != "trn1":
            raise InvalidArgument(
                f"there is no device {self.name!r}: arrays are on 'trn1', which this processor emulates"
            )

    def __repr__(self) -> str:
        return f"neuronsim.Device({self.name!r})"

    def __str__(self) -> str:
        return self.name


TRN1 = Device()


def check_device(device: Any) -> Device:
    """The device that `device=` names: the only one, by itself, its name or None; raises
    InvalidArgument for any other.
    """
    if device is None or isinstance(device, Device):
        return TRN1
    if not isinstance(device, str):
        raise InvalidArgument(f"a device is a neuronsim.Device or its name, not {device!r}")
    return Device(device)
