"""Figures of ``conll_linear.py``: solvers side by side."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linear_tagging.report import Row, grouped
from runs import axes, files

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
    # wide enough for the legend
    width = max(6.2, 2.3 * len(cs) + 0.6)
    figure = Figure(figsize=(width, 5.4), layout="constrained")
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
        ends = [row for row in final_rows(mine) if np.isfinite(row["F"])]
        height(column[0], [row["gap"] for row in mine] + [above[c]], ends)
        best = max(row["F1"] for row in mine)
        low = min([best - 8] + [row["F1"] for row in ends])
        room = 0.08 * (best - low)
        column[1].set_ylim(max(low, 0) - room, best + room)
        column[1].set_xlabel(AXES[key])
        for panel in column:
            axes.tidy(panel)
            if key == "calls":
                axes.whole_numbers(panel.xaxis)
            else:
                seconds = [row["seconds"] for row in mine if np.isfinite(row["F"])]
                axes.logarithmic(panel.xaxis, seconds)
    panels[0, 0].set_ylabel("F - lower bound")
    panels[1, 0].set_ylabel("development F1 (%)")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    files.write_figure(path, figure, dpi=100)


def draw(panel: Axes, line: Curve, colour: Any, **style: Any) -> None:
    x, mean, spread = line
    # a line of one point would not be seen
    marker = "o" if len(x) == 1 else None
    panel.plot(x, mean, color=colour, lw=1.5, marker=marker, **style)
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


def final_rows(rows: list[Row]) -> list[Row]:
    """The last look at each run."""
    return list({(row["method"], row["seed"]): row for row in rows}.values())


def height(panel: Axes, gaps: list[float], ends: list[Row]) -> None:
    """Gaps up to ``LARGEST``, and how each run ended."""
    sound = [gap for gap in gaps if np.isfinite(gap) and gap > 0]
    axes.logarithmic(panel.yaxis, sound)
    most = max([LARGEST] + [row["gap"] for row in ends])
    top = 1.3 * min(max(sound, default=1.0), most)
    panel.set_ylim(min(sound) / 1.4 if panel.get_yscale() == "log" else 0.0, top)
