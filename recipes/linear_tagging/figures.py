"""Figures of ``conll_linear.py``: solvers side by side."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from linear_tagging.report import Row, grouped
from runs import files

COLOURS = {
    "BCFW": "#0072b2",
    "SGD": "#d55e00",
    "SGD, last iterate": "#e69f00",
    "SVRG": "#009e73",
    "Casimir-SVRG-const": "#cc79a7",
    "Casimir-SVRG-adapt": "#222222",
}
GREY = "#777777"
AXES = {"calls": "oracle calls per sentence", "seconds": "training time (s)"}
# what is off the scale is no part of the comparison
LARGEST = 3.0
Curve = tuple[np.ndarray, np.ndarray, np.ndarray]


def solvers(path: Path, rows: list[Row], above: dict[float, float], key: str) -> None:
    """F less its lower bound above, F1 below, for each c.

    ``above`` is how far from the bound F is known to be: below it no gap tells what of
    it is the solver's, and what the bound's.
    """
    cs = sorted(above)
    figure = Figure(figsize=(2.3 * len(cs) + 0.6, 5.4), layout="constrained")
    panels = figure.subplots(2, len(cs), squeeze=False)
    for (c, _), some in grouped(rows).items():
        colour = COLOURS[some[0]["method"]]
        column = panels[:, cs.index(c)]
        draw(column[0], curve(some, key, "gap"), colour, label=some[0]["method"])
        draw(column[1], curve(some, key, "F1"), colour)
    for c, column in zip(cs, panels.T, strict=True):
        mine = [row for row in rows if row["c"] == c]
        column[0].axhline(above[c], color=GREY, ls=":", lw=1)
        column[0].set_title(f"λ = {c:g} / n", fontsize=10)
        logarithmic(column[0], [row["gap"] for row in mine] + [above[c]])
        best = max(row["F1"] for row in mine)
        column[1].set_ylim(best - 9, best + 0.7)
        column[1].set_xlabel(AXES[key])
        for panel in column:
            tidy(panel)
            if key == "seconds":
                panel.set_xscale("log")
                panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    panels[0, 0].set_ylabel("F - lower bound")
    panels[1, 0].set_ylabel("development F1 (%)")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    save(figure, path)


def draw(panel: Axes, line: Curve, colour: Any, **style: Any) -> None:
    x, mean, spread = line
    panel.plot(x, mean, color=colour, lw=1.5, **style)
    # a band to below zero has no place on a logarithmic axis
    low = np.maximum(mean - spread, mean / 10)
    panel.fill_between(x, low, mean + spread, color=colour, alpha=0.18, lw=0)


def curve(rows: list[Row], key: str, name: str) -> Curve:
    """Mean and standard deviation over seeds, look by look, until a run diverges."""
    at: dict[float, list[Row]] = {}
    for row in rows:
        at.setdefault(row["calls"], []).append(row)
    kept: list[list[Row]] = []
    for here in at.values():
        whole = len(here) == len(next(iter(at.values())))
        if not whole or not np.isfinite([row["F"] for row in here]).all():
            break
        kept.append(here)
    x = [np.mean([row[key] for row in here]) for here in kept]
    values = [[row[name] for row in here] for here in kept]
    mean = [np.mean(some) for some in values]
    return np.array(x), np.array(mean), np.array([np.std(some) for some in values])


def logarithmic(panel: Axes, values: list[float]) -> None:
    sound = [value for value in values if np.isfinite(value) and value > 0]
    panel.set_yscale("log")
    panel.set_ylim(min(sound) / 1.4, min(max(sound), LARGEST) * 1.3)


def tidy(panel: Axes) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)


def save(figure: Figure, path: Path) -> None:
    files.write_figure(path, figure, dpi=100)
