"""Conway's game of life on a torus: gliders fly, an r-pentomino grows. Integers and bools are exact.

python examples/arrays/game_of_life.py
"""

from __future__ import annotations

import neuronsim as np

GLIDER = [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
R_PENTOMINO = [(0, 1), (0, 2), (1, 0), (1, 1), (2, 1)]


def place(board, cells, row, column):
    """Sets the cells of a pattern, in place."""
    rows, columns = np.array(cells).T
    board[(rows + row) % board.shape[0], (columns + column) % board.shape[1]] = True


def neighbours(board):
    """How many of the eight cells around each one live."""
    alive = board.astype(np.int8)
    total = np.zeros_like(alive)
    for rows in (-1, 0, 1):
        for columns in (-1, 0, 1):
            if (rows, columns) != (0, 0):
                total += np.roll(alive, (rows, columns), axis=(0, 1))
    return total


def step(board):
    """A cell is born with three neighbours, and lives on with two or three."""
    around = neighbours(board)
    return (around == 3) | (board & (around == 2))


def is_glider(board):
    """Whether a board is the glider, wherever it is and at whatever stage."""
    stage = np.zeros_like(board)
    place(stage, GLIDER, 0, 0)
    for _ in range(4):
        rows, columns = np.nonzero(stage)
        found = np.argwhere(board)
        for row, column in found:
            moved = np.zeros_like(board)
            offset = (int(row) - int(rows[0]), int(column) - int(columns[0]))
            place(moved, list(zip(rows, columns)), *offset)
            if (moved == board).all():
                return True
        stage = step(stage)
    return False


def main(steps=60):
    lone = np.zeros((12, 12), dtype=bool)
    place(lone, GLIDER, 8, 8)
    start = lone.copy()
    for _ in range(48):  # four steps move a glider by one cell: it is home after 4 * 12
        lone = step(lone)

    board = np.zeros((24, 64), dtype=bool)
    place(board, R_PENTOMINO, 11, 31)
    for column in (2, 12):
        place(board, GLIDER, 1, column)
    population = [int(np.count_nonzero(board))]
    for _ in range(steps):
        board = step(board)
        population.append(int(board.sum()))
    for row in board:
        print("".join("█" if cell else "·" for cell in row))
    print(f"{population[0]} cells have become {population[-1]} after {steps} steps")
    home = bool((lone == start).all()) and is_glider(lone)
    print("the glider is home again" if home else "the glider is lost")
    return {"population": np.array(population), "board": board, "home": float(home)}


if __name__ == "__main__":
    main()
