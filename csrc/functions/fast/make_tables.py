"""Writes tables.h: the constants of the functions of rule E3, each polynomial with its error bound.

Usage: python csrc/functions/fast/make_tables.py > csrc/functions/fast/tables.h (needs mpmath)

The polynomials interpolate in Chebyshev nodes. The bound of each is the largest relative error of the
rounded coefficients, evaluated exactly, between the nodes; the evaluation in float64 adds to it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import mpmath as mp

mp.mp.prec = 400
Real = Any  # an mpmath number
SAMPLES = 400
NEGLIGIBLE = mp.mpf(2) ** -100


def continued(f: Callable[[Real], Real], at_zero: Real) -> Callable[[Real], Real]:
    """The function with its limit at zero, near which the formula would cancel."""
    return lambda x: f(x) if abs(x) > NEGLIGIBLE else at_zero


def interpolate(
    f: Callable[[Real], Real], low: Real, high: Real, degree: int, centre: Real
) -> list[float]:
    """The coefficients, in powers of (x - centre), of the polynomial through f at Chebyshev nodes."""
    half, middle = (high - low) / 2, (high + low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * degree + 2)) for k in range(degree + 1)]
    matrix = mp.matrix([[(x - centre) ** j for j in range(degree + 1)] for x in nodes])
    solved = mp.lu_solve(matrix, mp.matrix([f(x) for x in nodes]))
    return [float(c) for c in solved]


def relative_error(
    f: Callable[[Real], Real],
    coefficients: Sequence[float],
    low: Real,
    high: Real,
    centre: Real,
    whole: Callable[[Real, Real], Real] = lambda x, p: p,
) -> Real:
    """The largest error of whole(x, polynomial) relative to whole(x, f)."""
    worst = mp.mpf(0)
    for i in range(SAMPLES + 1):
        x = low + (high - low) * i / SAMPLES
        exact = whole(x, f(x))
        if exact != 0:
            p = whole(x, reduce(lambda y, c: y * (x - centre) + c, reversed(coefficients), mp.mpf(0)))
            worst = max(worst, abs(p / exact - 1))
    return worst


def log2_of(x: Real) -> str:
    return f"2^{float(mp.log(x, 2)):.1f}"


def rows(values: Sequence[float]) -> str:
    return ", ".join(v.hex() for v in values)


def print_array(name: str, values: Sequence[float]) -> None:
    print(f"inline constexpr double {name}[{len(values)}] = {{{rows(values)}}};")


def print_value(name: str, value: Real) -> None:
    print(f"inline constexpr double {name} = {float(value).hex()};")


def split(value: Real, *bits: int) -> list[float]:
    """The value as float64 parts, of which each but the last has so many bits."""
    parts = []
    for n in bits:
        unit = mp.mpf(2) ** (mp.floor(mp.log(abs(value), 2)) + 1 - n)
        part = mp.floor(value / unit) * unit
        parts.append(float(part))
        value -= part
    return [*parts, float(value)]


def print_polynomial(
    name: str,
    f: Callable[[Real], Real],
    low: Real,
    high: Real,
    degree: int,
    whole: Callable[[Real, Real], Real] = lambda x, p: p,
) -> None:
    found = interpolate(f, mp.mpf(low), mp.mpf(high), degree, mp.mpf(0))
    error = relative_error(f, found, mp.mpf(low), mp.mpf(high), mp.mpf(0), whole)
    print(f"\n// Relative error {log2_of(error)}.")
    print_array(name, found)


def print_piecewise(
    name: str, f: Callable[[Real], Real], intervals: Sequence[tuple[Real, Real]], degree: int
) -> None:
    """Coefficients as [power][interval], each in the distance from the interval's middle."""
    columns, worst = [], mp.mpf(0)
    for low, high in intervals:
        centre = (low + high) / 2
        found = interpolate(f, low, high, degree, centre)
        worst = max(worst, relative_error(f, found, low, high, centre))
        columns.append(found)
    print(f"\n// Relative error {log2_of(worst)}.")
    print(f"inline constexpr double {name}[{degree + 1}][{len(intervals)}] = {{")
    for power in range(degree + 1):
        print(f"    {{{rows([c[power] for c in columns])}}},")
    print("};")


def exponential() -> None:
    for of_octave, degrees, suffix in ((16, (3, 4), ""), (4, (5, 6), "_by_quarters")):
        print(f"\n// e^x: x = k ln2 + r, k a multiple of 1/{of_octave}.")
        step = mp.log(2) / of_octave
        powers = [float(mp.mpf(2) ** (mp.mpf(j) / of_octave)) for j in range(of_octave)]
        print_array("powers_of_two" + suffix, powers)
        bound = step / 2 * mp.mpf("1.01")
        for name, degree, whole in (
            ("exp_coefficients", degrees[0], lambda r, p: 1 + r * (1 + r * p)),
            ("expm1_coefficients", degrees[1], lambda r, p: 1 + r * p),
        ):
            print_polynomial(
                name + suffix,
                continued(lambda r: (mp.expm1(r) / r - 1) / r, mp.mpf(1) / 2),
                -bound,
                bound,
                degree,
                whole,
            )


def logarithm() -> None:
    # Mantissas from `log_offset` on, in sixteenths of an octave by their leading bits; an interval
    # around 1 has the inverse 1, so that small logarithms keep their relative accuracy.
    steps = 16
    offset = mp.mpf(22) / 32 + mp.mpf(1) / 128
    print("\n// ln x: x = 2^k m with m from log_offset on; r = m c - 1 with c near 1/m.")
    print_value("log_offset", offset)
    inverses, logarithms, bound = [], [], mp.mpf(0)
    for j in range(steps):
        # The bits of a float64 grow linearly within an octave, with half the slope below 1.
        ends = []
        for i in (j, j + 1):
            scaled = (offset - mp.mpf(1) / 2) * 2 + mp.mpf(i) / steps
            ends.append((1 + scaled) / 2 if scaled < 1 else scaled)
        low, high = ends
        inverse = mp.mpf(1) if low <= 1 <= high else mp.nint(2 / (low + high) * 512) / 512
        inverses.append(float(inverse))
        logarithms.append(float(-mp.log(inverse)))
        bound = max(bound, abs(low * inverse - 1), abs(high * inverse - 1))
    print_array("log_inverses", inverses)
    print_array("log_values", logarithms)
    print_value("ln2", mp.log(2))
    print_value("log2_e", 1 / mp.log(2))
    print_value("log10_e", 1 / mp.log(10))
    print_value("log10_2", mp.log10(2))
    print(f"// |r| is at most {float(bound):.6f}.")
    print_polynomial(
        "log_coefficients",
        continued(lambda r: (mp.log1p(r) / r - 1) / r, -mp.mpf(1) / 2),
        -bound,
        bound,
        6,
        lambda r, p: 1 + r * p,
    )


def sine() -> None:
    print("\n// sin x: x = n pi + r.")
    # 28 bits, so that the product with an n + 1/2 of 24 bits is exact.
    print_array("pi_parts", split(mp.pi, 28, 28))
    print_value("inverse_pi", 1 / mp.pi)
    print_polynomial(
        "sin_coefficients",
        continued(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -mp.mpf(1) / 6),
        0,
        (mp.pi / 2 * mp.mpf("1.0001")) ** 2,
        6,
        lambda z, p: 1 + z * p,
    )
    print("\n// The bits of 1 / pi, the first one before the point.")
    digits = int(mp.floor(mp.mpf(2) ** 319 / mp.pi))
    words = [f"0x{digits >> (64 * i) & 0xFFFFFFFFFFFFFFFF:016X}" for i in reversed(range(5))]
    print(f"inline constexpr uint64_t inverse_pi_bits[5] = {{{', '.join(words)}}};")


def inverse_tangent() -> None:
    steps = 8
    print("\n// atan x for x up to 1: x = tan(a + t) with tan a = j / 8.")
    print_array("atan_values", [float(mp.atan(mp.mpf(j) / steps)) for j in range(16)])
    bound = mp.mpf(1) / 15
    print_polynomial(
        "atan_coefficients",
        continued(lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -mp.mpf(1) / 3),
        0,
        bound**2,
        4,
        lambda z, p: 1 + z * p,
    )
    print_array("half_pi_parts", split(mp.pi / 2, 53))


def error_function() -> None:
    slope = continued(lambda x: mp.erf(x) / x, 2 / mp.sqrt(mp.pi))
    print("\n// erf x / x in quarters up to 4.")
    quarters = [(mp.mpf(j) / 4, mp.mpf(j + 1) / 4) for j in range(16)]
    print_piecewise("erf_coefficients", slope, quarters, 8)
    print_erf_pairs(slope)
    print("\n// The same up to erf_end, in x^2 erf_scale - 1.")
    end = mp.mpf(63) / 16
    print_value("erf_end", end)
    print_value("erf_scale", 2 / end**2)
    print_polynomial("erf_whole_coefficients", lambda v: slope(end * mp.sqrt((v + 1) / 2)), -1, 1, 23)
    print("\n// e^(a^2/2) Phi(-a): a + 1 in quarters of octaves up to 16,", end=" ")
    print("by the bits of float64 from 50 on.")
    ends = [mp.mpf(2) ** octave * (1 + mp.mpf(j) / 4) - 1 for octave in range(4) for j in range(4)]
    intervals = list(zip(ends, [*ends[1:], mp.mpf(15)], strict=True))
    print_array("tail_centres", [float((low + high) / 2) for low, high in intervals])
    print("inline constexpr int64_t tail_first = int64_t{0x3FF} << 2;")

    def scaled_tail(a: Real) -> Real:
        return mp.exp(a * a / 2) * mp.erfc(a / mp.sqrt(2)) / 2

    print_piecewise("tail_coefficients", scaled_tail, intervals, 10)
    print("\n// The same times a + tail_middle up to 15, in (a - tail_middle) / (a + tail_middle).")
    middle = mp.mpf(5)
    print_value("tail_middle", middle)

    def by_ratio(t: Real) -> Real:
        a = middle * (1 + t) / (1 - t)
        return scaled_tail(a) * (a + middle)

    print_polynomial("tail_whole_coefficients", by_ratio, -1, (15 - middle) / (15 + middle), 19)
    print_value("sqrt_2", mp.sqrt(2))
    print_value("two_by_sqrt_pi", 2 / mp.sqrt(mp.pi))
    print_value("inverse_sqrt_2pi", 1 / mp.sqrt(2 * mp.pi))


def print_erf_pairs(slope: Callable[[Real], Real]) -> None:
    """In eighths, as float32: the first two coefficients of each as sums of two numbers."""
    columns, worst = [], mp.mpf(0)
    for j in range(32):
        low, high = mp.mpf(j) / 8, mp.mpf(j + 1) / 8
        centre = (low + high) / 2
        found = interpolate(slope, low, high, 5, centre)
        worst = max(worst, relative_error(slope, found, low, high, centre))
        columns.append([*as_pair(found[0]), *as_pair(found[1]), *map(nearest_float32, found[2:])])
    print("\n// The same in eighths: the first two coefficients as pairs of float32, then float32.")
    print(f"// Relative error before these are rounded {log2_of(worst)}.")
    print(f"inline constexpr float erf_pairs[{len(columns[0])}][32] = {{")
    for power in range(len(columns[0])):
        print("    {" + ", ".join(c[power].hex() + "f" for c in columns) + "},")
    print("};")


def nearest_float32(x: float) -> float:
    return float(struct.unpack("f", struct.pack("f", x))[0])


def as_pair(x: float) -> tuple[float, float]:
    high = nearest_float32(x)
    return high, nearest_float32(x - high)


def activations() -> None:
    print("\n// gelu_tanh is x / (1 + e^-(x (a + b x^2))); gelu_sigmoid x / (1 + e^-1.702x).")
    a = 2 * mp.sqrt(2 / mp.pi)
    print_value("gelu_tanh_linear", a)
    print_value("gelu_tanh_cubic", a * mp.mpf("0.044715"))
    print_array("gelu_sigmoid_parts", split(mp.mpf("1.702"), 28))
    silu_root = mp.findroot(lambda x: 1 + mp.exp(x) + x, mp.mpf("-1.2784"))
    gelu_root = mp.findroot(lambda x: mp.ncdf(x) + x * mp.npdf(x), mp.mpf("-0.7518"))
    print("// Where the derivatives are zero.")
    print_value("silu_dx_root", silu_root)
    print_value("gelu_dx_root", gelu_root)


def main() -> None:
    print("// Written by make_tables.py; do not edit.")
    exponential()
    logarithm()
    sine()
    inverse_tangent()
    error_function()
    activations()


if __name__ == "__main__":
    main()
