"""Time the projection onto a box and one equation next to sorting in numpy.

    pip install -e ".[bench]"
    python benchmarks/projections.py

The two take turns; both must give the same point first. Times are of the process, on
one thread, so that other load counts little.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from smoothsp.projections import project_box_equality

Floats = NDArray[np.float64]
HERE = Path(__file__).parent


def by_sorting(v: Floats, a: Floats, upper: float) -> Floats:
    """The same point: kinks sorted, the sum at each, and the piece of the root."""
    start = a * v
    left, right = np.minimum(0, a * upper) - start, np.maximum(0, a * upper) - start
    kinks = np.concatenate([left, right])
    order = np.argsort(kinks)
    kinks = kinks[order]
    slopes = np.cumsum(np.where(order < len(v), 1.0, -1.0))
    sums = np.minimum(0, a * upper).sum() + np.cumsum(slopes[:-1] * np.diff(kinks))
    j = int(np.searchsorted(sums, 0.0))
    t = kinks[j + 1] - sums[j] / slopes[j]
    return np.clip(v + t * a, 0, upper)


def project(v: Floats, a: Floats, upper: float) -> Floats:
    """Ours, from arrays to an array."""
    x, labels = torch.from_numpy(v), torch.from_numpy(a)
    found: Floats = project_box_equality(x, 0.0, upper, labels, 0.0).numpy()
    return found


def seconds(call: Callable[..., object], v: Floats, a: Floats) -> float:
    """Of the process, for one call."""
    start = time.process_time()
    call(v, a, 1.0)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--output", type=Path, default=HERE / "results/projections.csv", help="the CSV"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = []
    for n in (1000, 10_000, 100_000, 1_000_000):
        for kind in ("drawn", "a thousand values"):
            v, a = rng.standard_normal(n), rng.choice([-1.0, 1.0], n)
            if kind != "drawn":
                v = np.round(v * 125) / 125 + 1e-3
            assert np.abs(project(v, a, 1.0) - by_sorting(v, a, 1.0)).max() < 1e-9
            found = [
                (seconds(project, v, a), seconds(by_sorting, v, a))
                for _ in range(options.rounds)
            ]
            row: dict[str, object] = {
                "n": n,
                "entries": kind,
                "ours_ms": f"{1e3 * statistics.median(x for x, _ in found):.3g}",
                "sorting_ms": f"{1e3 * statistics.median(y for _, y in found):.3g}",
                "ratio": f"{statistics.median(y / x for x, y in found):.2f}",
            }
            rows.append(row)
            print(*row.values(), sep="\t")
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
