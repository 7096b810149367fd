"""An LSTM cell runs over a signal; a linear readout, fitted by least squares, predicts it.

python examples/arrays/lstm.py
"""

from __future__ import annotations

import neuronsim as np

UNITS = 24


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def initial(rng):
    """The weights of the four gates side by side: input, forget, candidate, output."""
    bias = np.zeros(4 * UNITS)
    bias[UNITS : 2 * UNITS] = 1  # forget slowly
    return {
        "x": rng.normal(size=(1, 4 * UNITS)),
        "h": rng.normal(size=(UNITS, 4 * UNITS)) / np.sqrt(UNITS),
        "b": bias,
    }


def cell(p, x, h, c):
    """One step of Hochreiter and Schmidhuber's cell with a forget gate."""
    gates = x @ p["x"] + h @ p["h"] + p["b"]
    entry, forget, candidate, output = np.split(gates, 4, axis=-1)
    c = sigmoid(forget) * c + sigmoid(entry) * np.tanh(candidate)
    return sigmoid(output) * np.tanh(c), c


def run(p, signal):
    """The hidden state after each value, [steps, units]."""
    h, c = np.zeros((1, UNITS)), np.zeros((1, UNITS))
    states = np.empty((len(signal), UNITS))
    for t, value in enumerate(signal):
        h, c = cell(p, np.reshape(value, (1, 1)), h, c)
        states[t] = h[0]
    return states


def readout(states, targets, ridge):
    """The weights, a constant among them, that give the targets with the least squared error."""
    a = np.concatenate([states, np.ones((len(states), 1))], axis=1)
    weights = np.linalg.solve(a.T @ a + ridge * np.eye(UNITS + 1), a.T @ targets)
    return a @ weights


def plot(lines, height=11):
    """Lines of values from -1.5 to 1.5 as text, a column a step."""
    canvas = [[" "] * len(lines[0][1]) for _ in range(height)]
    for symbol, values in lines:
        rows = np.clip(np.rint((values + 1.5) / 3 * (height - 1)), 0, height - 1).astype(np.int64)
        for column, row in enumerate(rows):
            canvas[height - 1 - int(row)][column] = symbol
    return "\n".join("".join(row) for row in canvas)


def main(steps=160):
    rng = np.random.default_rng(2)
    time = np.arange(steps + 1) * 0.2
    signal = np.sin(time) * np.cos(0.31 * time)
    states = run(initial(rng), signal[:-1])
    found = readout(states[20:], signal[21:], ridge=0.05)
    error = np.sqrt(np.mean((found - signal[21:]) ** 2))
    print(plot([("·", signal[-70:]), ("o", found[-70:])]))
    print(f"· the signal   o what was said one step before, off by {float(error):.4f}")
    return {"states": states, "prediction": found, "error": error}


if __name__ == "__main__":
    main()
