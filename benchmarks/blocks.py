"""Time the exact solution of Weston-Watkins blocks next to generic quadratic solvers.

    pip install -e ".[bench]" clarabel osqp
    python benchmarks/blocks.py

A block is ``min b'(I + 11')b / 2 - v'b`` over ``0 <= b <= C``, of k - 1 numbers drawn
from the normal distribution. The generic solvers are given its sparse form, with the
sum of b as a variable of its own, at their default accuracy; all objectives must agree
first. Times are of the process, on one thread.

Reproduces: Wang and Scott, "An Exact Solver for the Weston-Watkins SVM Subproblem",
tables 8 and 9, with open solvers.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import clarabel
import numpy as np
import osqp
import torch
from numpy.typing import NDArray
from scipy import sparse

from smoothsp.projections import project_weston_watkins

Floats = NDArray[np.float64]
HERE = Path(__file__).parent


def exact(v: Floats, upper: float) -> Floats:
    found: Floats = project_weston_watkins(torch.from_numpy(v), upper).numpy()
    return found


def matrices(m: int) -> tuple[sparse.csc_matrix, sparse.csc_matrix]:
    """Of the objective and of the rows: the sum of b less s, then b."""
    row = sparse.csc_matrix(np.append(np.ones(m), -1.0))
    box = sparse.hstack([sparse.identity(m), sparse.csc_matrix((m, 1))])
    return sparse.identity(m + 1, format="csc"), sparse.vstack([row, box], format="csc")


def by_clarabel(v: Floats, upper: float) -> Floats:
    m = len(v)
    P, rows = matrices(m)
    A = sparse.vstack([rows, -rows[1:]], format="csc")
    bounds = np.concatenate([[0.0], np.full(m, upper), np.zeros(m)])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * m)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    q = np.append(-v, 0.0)
    found = clarabel.DefaultSolver(P, q, A, bounds, cones, settings).solve()
    return np.asarray(found.x)[:m]


def by_osqp(v: Floats, upper: float) -> Floats:
    m = len(v)
    P, rows = matrices(m)
    low, high = np.zeros(m + 1), np.append(0.0, np.full(m, upper))
    solver = osqp.OSQP()
    solver.setup(P, np.append(-v, 0.0), rows, low, high, verbose=False)
    return np.asarray(solver.solve().x)[:m]


def objective(v: Floats, b: Floats) -> float:
    return float((b @ b + b.sum() ** 2) / 2 - v @ b)


def seconds(call: Callable[..., object], draws: Floats, upper: float) -> float:
    """Of the process, for a call, the median."""
    found = []
    for v in draws:
        start = time.process_time()
        call(v, upper)
        found.append(time.process_time() - start)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument(
        "--output", type=Path, default=HERE / "results/blocks.csv", help="the CSV"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng, rows = np.random.default_rng(0), []
    for upper in (0.1, 1.0):
        for power in (2, 4, 6, 8, 10, 12):
            draws = rng.standard_normal((options.draws, 2**power))
            row: dict[str, object] = {"C": upper, "k - 1": 2**power}
            best = [objective(v, exact(v, upper)) for v in draws]
            for call in (exact, by_clarabel, by_osqp):
                found = [objective(v, call(v, upper)) for v in draws]
                # to the default accuracy of the generic ones
                assert np.allclose(found, best, rtol=1e-2, atol=1e-2), call
                row[call.__name__] = f"{1e3 * seconds(call, draws, upper):.3g}"
            rows.append(row)
            print(*row.values(), sep="\t")
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
