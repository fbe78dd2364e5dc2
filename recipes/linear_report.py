"""Table, CSV and figure of ``conll_linear.py``."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import checkpoint

COLOURS = ("#2a6f97", "#d1661f", "#4f772d", "#9c2f6f", "#777777", "#b8860b")
DASHES = ("-", "--", ":", "-.")
FIELDS = ("method", "c", "seed", "pass", "calls", "seconds", "F", "gap", "F1")


def line(row: dict[str, Any]) -> str:
    """How a run ended."""
    return (
        f"c {row['c']:<6g} {row['method']:<28} {row['calls']:>3} calls a sentence"
        f" {row['seconds']:>7.1f} s   F {row['F']:.5f}   F1 {row['F1']:.2f}"
    )


def write(folder: Path, study: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Write the numbers and the figure; the ends of the methods come back."""
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    table = csv.DictWriter(text, FIELDS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    path = folder / f"{study}.csv"
    checkpoint.write(path, lambda sink: sink.write(text.getvalue().encode()))
    draw(folder / f"{study}.png", rows)
    result = {}
    for (c, method), ends in grouped(rows).items():
        last = max(row["calls"] for row in ends)
        final = [row for row in ends if row["calls"] == last]
        for name in ("F", "gap", "F1"):
            mean = float(np.mean([row[name] for row in final]))
            result[f"{method}, c = {c:g}: {name}"] = mean
    print(f"see {path} and {study}.png beside it")
    return result


def grouped(rows: list[dict[str, Any]]) -> dict[tuple[float, str], list[Any]]:
    """Rows of each c and method, in the order in which they were run."""
    found: dict[tuple[float, str], list[Any]] = {}
    for row in rows:
        found.setdefault((row["c"], row["method"]), []).append(row)
    return found


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Gap above and F1 below, against oracle calls and seconds, for each c."""
    cs = sorted({row["c"] for row in rows})
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure = Figure(figsize=(2 + 6 * len(cs), 6.5), layout="constrained")
    axes = figure.subplots(2, 2 * len(cs), squeeze=False, sharey="row")
    for (c, method), some in grouped(rows).items():
        n = methods.index(method)
        colour, dash = COLOURS[n % len(COLOURS)], DASHES[n // len(COLOURS)]
        for across, key in enumerate(("calls", "seconds")):
            column = 2 * cs.index(c) + across
            for down, name in enumerate(("gap", "F1")):
                x, mean, spread = curve(some, key, name)
                ax = axes[down][column]
                ax.plot(x, mean, dash, color=colour, label=method)
                low = mean - spread
                if name == "gap":
                    low = np.maximum(low, mean / 4)
                ax.fill_between(x, low, mean + spread, color=colour, alpha=0.15, lw=0)
    for n, c in enumerate(cs):
        for across, label in enumerate(
            ("oracle calls a sentence", "seconds, evaluations included")
        ):
            axes[0][2 * n + across].set_yscale("log")
            axes[0][2 * n + across].set_title(f"lambda = {c:g} / n")
            axes[1][2 * n + across].set_xlabel(label)
    axes[0][0].set_ylabel("F less the best lower bound")
    axes[1][0].set_ylabel("span F1, held out")
    # where runs diverge, the others are still to be seen
    best = [row["gap"] for row in rows if np.isfinite(row["gap"])]
    axes[0][0].set_ylim(max(min(best), 1e-6) / 1.5, min(max(best), 30.0) * 1.5)
    axes[1][0].set_ylim(max(0.0, np.percentile([r["F1"] for r in rows], 5) - 5), None)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    checkpoint.write(path, lambda sink: sink.write(buffer.getvalue()))


def curve(rows: list[dict[str, Any]], key: str, name: str) -> tuple[Any, Any, Any]:
    """Mean and standard deviation over seeds, pass by pass."""
    passes = sorted({row["pass"] for row in rows})
    x, mean, spread = [], [], []
    for number in passes:
        here = [row for row in rows if row["pass"] == number]
        x.append(np.mean([row[key] for row in here]))
        mean.append(np.mean([row[name] for row in here]))
        spread.append(np.std([row[name] for row in here]))
    return np.array(x), np.array(mean), np.array(spread)
