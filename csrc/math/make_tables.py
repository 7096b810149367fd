"""Writes tables.h: 2^(j/16) as an unevaluated sum of two float64, and ln 2 / 16 in two parts.

Usage: python csrc/math/make_tables.py > csrc/math/tables.h
"""

from __future__ import annotations

from decimal import Decimal, getcontext

getcontext().prec = 60
STEPS = 16
# The high part keeps 38 bits, so that its product with a multiple below 2^15 is exact.
HIGH_BITS = 38


def main() -> None:
    powers = [Decimal(2) ** (Decimal(j) / STEPS) for j in range(STEPS)]
    high = [float(p) for p in powers]
    low = [float(p - Decimal(h)) for p, h in zip(powers, high, strict=True)]
    step = Decimal(2).ln() / STEPS
    scale = Decimal(2) ** (HIGH_BITS + 4)  # ln 2 / 16 is just above 2^-5
    step_high = float(Decimal(int(step * scale)) / scale)
    step_low = float(step - Decimal(step_high))

    def rows(values: list[float]) -> str:
        return "\n".join(f"    {v.hex()}," for v in values)

    print("// Written by make_tables.py; do not edit.\n")
    print(f"inline constexpr double power_high[{STEPS}] = {{\n{rows(high)}\n}};")
    print(f"inline constexpr double power_low[{STEPS}] = {{\n{rows(low)}\n}};")
    print(f"inline constexpr double step_high = {step_high.hex()};")
    print(f"inline constexpr double step_low = {step_low.hex()};")
    print(f"inline constexpr double steps_per_unit = {float(1 / step).hex()};")


if __name__ == "__main__":
    main()
