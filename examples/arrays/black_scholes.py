"""Prices of options by Black and Scholes, and the volatility that a price implies, by Newton's steps.

python examples/arrays/black_scholes.py
"""

from __future__ import annotations

import neuronsim as np

SPOT, RATE = 100.0, 0.03


def erf(x):
    """The error function within 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = 1.061405429
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + coefficient
    return np.sign(x) * (1 - series * t * np.exp(-x * x))


def normal(x):
    """The distribution function of the normal distribution."""
    return 0.5 * (1 + erf(x / np.sqrt(2.0)))


def terms(strike, years, volatility):
    spread = volatility * np.sqrt(years)
    d1 = (np.log(SPOT / strike) + (RATE + 0.5 * volatility**2) * years) / spread
    return d1, d1 - spread


def call(strike, years, volatility):
    d1, d2 = terms(strike, years, volatility)
    return SPOT * normal(d1) - strike * np.exp(-RATE * years) * normal(d2)


def put(strike, years, volatility):
    d1, d2 = terms(strike, years, volatility)
    return strike * np.exp(-RATE * years) * normal(-d2) - SPOT * normal(-d1)


def vega(strike, years, volatility):
    """How much the price grows with the volatility."""
    d1, _ = terms(strike, years, volatility)
    return SPOT * np.sqrt(years) * np.exp(-0.5 * d1 * d1) / np.sqrt(2 * np.pi)


def implied(price, strike, years, steps=8):
    """The volatility at which a call has this price; a step is at most 0.2."""
    volatility = np.full_like(price, 0.3)
    for _ in range(steps):
        slope = np.maximum(vega(strike, years, volatility), 0.5)
        step = (call(strike, years, volatility) - price) / slope
        volatility -= np.clip(step, -0.2, 0.2)
        volatility[volatility < 0.02] = 0.02
    return volatility


def main():
    strike = np.linspace(80.0, 120.0, 9)
    years = np.array([0.25, 0.5, 1.0, 2.0])[:, np.newaxis]
    volatility = 0.2 + 0.1 * ((strike - SPOT) / SPOT) ** 2 + 0.02 * years
    calls, puts = call(strike, years, volatility), put(strike, years, volatility)
    parity = calls - puts - (SPOT - strike * np.exp(-RATE * years))
    found = implied(calls, strike, years)

    print("call prices   " + "".join(f"{float(k):8.0f}" for k in strike))
    for t, row in zip(years[:, 0], calls):
        print(f"  {float(t):4.2f} years  " + "".join(f"{float(v):8.3f}" for v in row))
    print(f"call - put differs from its parity by at most {float(np.abs(parity).max()):.1e}")
    print(f"the volatility is found again within {float(np.abs(found - volatility).max()):.1e}")
    return {"calls": calls, "puts": puts, "implied": found, "mean call": calls.mean()}


if __name__ == "__main__":
    main()
