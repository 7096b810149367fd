"""A Kalman filter follows a moving point through noisy measurements of its place.

python examples/arrays/kalman.py
"""

from __future__ import annotations

import neuronsim as np

STEP, ACCELERATION, NOISE = 0.1, 4.0, 0.5


def model():
    """The state is (x, y, speed of x, speed of y): how it moves, what is measured, both errors."""
    move = np.eye(4)
    move[:2, 2:] = STEP * np.eye(2)
    measure = np.eye(2, 4)
    push = np.concatenate([np.full((1, 2), 0.5 * STEP**2), np.full((1, 2), STEP)], axis=1)
    gain = np.zeros((4, 2))
    gain[np.arange(4), np.arange(4) % 2] = push[0]
    return move, measure, ACCELERATION**2 * gain @ gain.T, NOISE**2 * np.eye(2)


def simulate(steps, rng):
    """The true places and their measurements, each [steps, 2]."""
    time = STEP * np.arange(steps)
    truth = np.stack([3 * np.sin(0.7 * time), 2 * np.sin(1.1 * time + 0.5)], axis=1)
    return truth, truth + NOISE * rng.standard_normal((steps, 2))


def kalman(measured):
    """The filtered states and the trace of their covariance at each step."""
    move, measure, process, noise = model()
    state = np.concatenate([measured[0], np.zeros(2)])
    covariance = np.diag(np.array([NOISE**2, NOISE**2, 4.0, 4.0]))
    states, traces = [], []
    for z in measured:
        state = move @ state
        covariance = move @ covariance @ move.T + process
        innovation = measure @ covariance @ measure.T + noise
        gain = np.linalg.solve(innovation, measure @ covariance).T
        state = state + gain @ (z - measure @ state)
        left = np.eye(4) - gain @ measure
        covariance = left @ covariance @ left.T + gain @ noise @ gain.T  # Joseph's form: symmetric
        states.append(state)
        traces.append(np.trace(covariance))
    return np.stack(states), np.stack(traces)


def path(tracks, height=15, width=64):
    """Several tracks in the plane as text, later ones over earlier ones."""
    canvas = [[" "] * width for _ in range(height)]
    for symbol, points in tracks:
        place = (points + np.array([4.0, 3.0])) / np.array([8.0, 6.0])
        place = np.rint(place * np.array([width - 1.0, height - 1.0])).astype(np.int64)
        inside = np.all((place >= 0) & (place < np.array([width, height])), axis=1)
        for column, row in place[inside]:
            canvas[int(row)][int(column)] = symbol
    return "\n".join("".join(row) for row in canvas)


def main(steps=90):
    truth, measured = simulate(steps, np.random.default_rng(1))
    states, traces = kalman(measured)
    off, left = (
        np.sqrt(np.mean(np.sum((x - truth)[10:] ** 2, axis=1))) for x in (measured, states[:, :2])
    )
    print(path([("·", measured), ("o", states[:, :2])]))
    print(f"· measured, off by {float(off):.3f}    o filtered, off by {float(left):.3f}")
    return {"measured error": off, "filtered error": left, "states": states, "trace": traces[-1]}


if __name__ == "__main__":
    main()
