"""Figures of ``ocr_words.py``: gaps of the variants."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ocr.runs import VARIANTS
from runs import axes, files

ORANGE, BLUE, GREY = "#d1661f", "#2a6f97", "#777777"
# where curves of several seeds are compared
STEPS = 200
# a gap of 0 has no place on a logarithmic axis
TINY = 1e-16
Row = dict[str, Any]


def gaps(path: Path, rows: list[Row], lams: Sequence[float], tol: float) -> None:
    """Gap against passes of the oracle, and against seconds; a column a lambda."""
    figure = Figure(figsize=(4.4 * len(lams) + 0.4, 7.6), layout="constrained")
    panels = figure.subplots(2, len(lams), squeeze=False)
    for column, lam in zip(panels.T, lams, strict=True):
        for panel, place, name in zip(
            column, (1, 2), ("oracle calls / n", "time (s)"), strict=True
        ):
            for variant in VARIANTS:
                mine = [
                    np.array(row["history"])[:, [place, 3]]
                    for row in rows
                    if (row["variant"], row["lam"]) == (str(variant), lam)
                ]
                curve(panel, mine, variant)
            panel.axhline(tol, color=GREY, ls=":", lw=1)
            panel.set(yscale="log", xlabel=name, ylabel="duality gap")
            panel.set_title(f"lambda = {lam:g}", fontsize=10)
            drawn = [line.get_xdata() for line in panel.lines[: len(VARIANTS)]]
            axes.logarithmic(panel.xaxis, np.concatenate(drawn))
            axes.tidy(panel)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )
    files.write_figure(path, figure, dpi=120)


def curve(panel: Axes, runs: list[np.ndarray], variant: Any) -> None:
    """The median over seeds of the least gap so far, and the range around it."""
    first = max(run[0, 0] for run in runs)
    last = max(run[-1, 0] for run in runs)
    x = np.geomspace(first, last, STEPS) if last > first else np.array([first])
    known = []
    for run in runs:
        least = np.minimum.accumulate(run[:, 1])
        y = np.interp(np.log(x), np.log(run[:, 0]), np.log(np.maximum(least, TINY)))
        known.append(np.exp(y))
    y = np.median(known, axis=0)
    colour = BLUE if variant.cache else ORANGE
    panel.plot(
        x,
        y,
        color=colour,
        ls="-" if variant.sampling == "gap" else "--",
        marker="o" if variant.steps == "pairwise" else "s",
        markevery=(len(x) // 20, STEPS // 5),
        ms=5,
        mfc="white",
        lw=1.4,
        label=str(variant),
    )
    if len(runs) > 1:
        low, high = np.min(known, axis=0), np.max(known, axis=0)
        panel.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
