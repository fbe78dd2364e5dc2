"""Solvers of the linear model compared: sampling, steps, and ways down to small lambda.

Reproduces, in small: Osokin et al., "Minding the Gaps", figure 1 (how often to refresh
the gaps that sampling goes by), figure 3 (eight variants), and figures 4 and 8 (the
regularisation path against grids, and with estimates alone).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from tqdm import tqdm

from multiclass.cells import Cell, Cells
from ocr.runs import VARIANTS
from segmentation import linear
from segmentation.report import save, tidy
from smoothsp.linear.problems import StructureProblem
from smoothsp.linear.solvers import BCFW, RegularisationPath, grid_search

NEVER = 10**6
PERIODS = (1, 5, 10, 100, NEVER)
# Passes at which a run is looked at: multiples of no period but 1.
LOOKS = (3, 7, 13, 19, 29, 39)
# What follows lambda: with the solver for cheap oracles, and with that for dear ones.
SOLVERS = {"FW": {"steps": "fw", "cache": False}, "pairwise, cached": linear.STEPS}
HEURISTIC_KAPPA, RATIO = 0.7, 4.0
WAYS = ("path", "heuristic path", "grid, same weights", "grid, from nothing")
COLOURS = ("#2a6f97", "#57a5d1", "#d1661f", "#777777")
# Of one way down.
MOST_SECONDS = 600.0

Job = Callable[[StructureProblem], Cell]


@dataclass(frozen=True)
class Limits:
    """Where solvers are compared: at ``lam``, and on the way down to ``smallest``."""

    eps: float
    lam: float
    smallest: float
    seed: int


def run(
    problem: StructureProblem,
    limits: Limits,
    out: Path,
    settings: dict[str, Any],
    resume: bool,
) -> None:
    """All that is not in ``cells.json`` yet, and the figure."""
    path = out / "cells.json"
    about = settings | asdict(limits)
    cells = Cells(path, about, resume and path.is_file())
    with tqdm(jobs(limits).items(), disable=None, unit="run") as bar:
        for key, job in bar:
            bar.set_description(key)
            if key not in cells:
                cells.keep(key, job(problem))
    print(f"\n{cells.use(lambda: tables(cells))}")
    title = f"lambda = {limits.lam:.3g}, n = {len(problem)}"
    cells.use(lambda: draw(out / "study.png", cells, title))


def jobs(limits: Limits) -> dict[str, Job]:
    """Names of runs and what makes them."""
    found: dict[str, Job] = {}
    for period in PERIODS:
        options = {"sampling": "gap", "refresh_every": period}
        found[f"refresh {period}"] = partial(follow, limits, options)
    for variant in VARIANTS:
        found[f"variant {variant}"] = partial(follow, limits, variant.options)
    for name, options in SOLVERS.items():
        for way in WAYS:
            found[f"{way}; {name}"] = partial(down, limits, way, options)
    return found


def follow(limits: Limits, options: dict[str, Any], problem: StructureProblem) -> Cell:
    """One run, looked at now and then: a look refreshes nothing and is not counted."""
    n, state = len(problem), None
    cell: Cell = {name: [] for name in ("passes", "calls", "gaps", "stale")}
    period = options.get("refresh_every", 10)
    for passes in LOOKS:
        found = BCFW(
            lam=limits.lam,
            tol=0.0,
            max_passes=passes,
            seed=limits.seed,
            bounds=linear.bounds(),
            **options,
        ).solve(problem, resume=state)
        if found.interrupted:
            raise KeyboardInterrupt
        state = found.state
        estimates = float(np.sum(state["estimates"]))
        looked = passes % period != 0
        cell["passes"].append(passes)
        cell["calls"].append(found.oracle_calls / n - looked)
        cell["gaps"].append(found.gap)
        known = looked and 0 < estimates < np.inf
        cell["stale"].append(found.gap / estimates if known else None)
    return cell


def down(
    limits: Limits, way: str, options: dict[str, Any], problem: StructureProblem
) -> Cell:
    """From the largest lambda that matters to the smallest, in one of four ways."""
    shared = {**options, "sampling": "gap", "seed": limits.seed}
    shared |= {"bounds": linear.bounds(), "max_seconds": MOST_SECONDS}
    if way.startswith("grid"):
        first = linear.path(limits.eps, limits.seed, lambda _: True).solve(problem)
        most = first.points[0].lam
        count = int(np.log(most / limits.smallest) / np.log(RATIO)) + 1
        start = "primal" if way == "grid, same weights" else "none"
        found: Any = grid_search(
            problem,
            most * RATIO ** -np.arange(count),
            tol=limits.eps,
            warm_start=start,
            **shared,
        )
    else:
        exact = way == "path"
        found = RegularisationPath(
            eps=limits.eps,
            kappa=linear.KAPPA if exact else HEURISTIC_KAPPA,
            certified=exact,
            smallest=limits.smallest,
            **shared,
        ).solve(problem)
    if found.status.startswith("interrupted"):
        raise KeyboardInterrupt
    points = [(p.lam, p.oracle_calls / len(problem), p.seconds) for p in found.points]
    return {"points": points, "status": found.status}


def tables(cells: Cells) -> str:
    """How all ended, as Markdown."""
    lines = ["| | calls / n | gap | staleness |", "|" + " --- |" * 4]
    for key in _keys("refresh", "variant"):
        cell = cells[key]
        stale = cell["stale"][-1]
        shown = "-" if stale is None else f"{stale:.2f}"
        lines.append(
            f"| {_named(key)} | {cell['calls'][-1]:.0f} | {cell['gaps'][-1]:.2e} |"
            f" {shown} |"
        )
    lines += ["", "| | points | down to | calls / n | s |", "|" + " --- |" * 5]
    for key in _keys(*WAYS):
        points = cells[key]["points"]
        lam, calls, seconds = points[-1]
        lines.append(
            f"| {key} | {len(points)} | {lam:.3g} | {calls:.0f} | {seconds:.1f} |"
        )
    return "\n".join(lines)


def _keys(*kinds: str) -> list[str]:
    limits = Limits(1.0, 1.0, 1.0, 0)
    return [key for key in jobs(limits) if key.startswith(kinds)]


def _named(key: str) -> str:
    return key.replace(str(NEVER), "never")


def draw(path: Path, cells: Cells, title: str) -> None:
    """Refreshes, their staleness, the eight variants, and the ways down."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    figure.suptitle(title, fontsize=10)
    one, two, three, four = figure.subplots(2, 2).flat
    for key, shade in zip(
        _keys("refresh"), np.linspace(0.85, 0, len(PERIODS)), strict=True
    ):
        cell, style = cells[key], {"color": (0.9 * shade, 0.45, 0.75 - 0.6 * shade)}
        label = _named(key).removeprefix("refresh ")
        label = label if label == "never" else f"every {label}"
        one.plot(cell["calls"], cell["gaps"], label=label, **style)
        stale = [np.nan if x is None else x for x in cell["stale"]]
        two.plot(cell["passes"], stale, marker=".", **style)
    for variant in VARIANTS:
        cell = cells[f"variant {variant}"]
        three.plot(
            cell["calls"],
            cell["gaps"],
            color="#2a6f97" if variant.cache else "#d1661f",
            ls="-" if variant.sampling == "gap" else "--",
            marker="o" if variant.steps == "pairwise" else "s",
            ms=4,
            mfc="white",
            lw=1.2,
            label=str(variant),
        )
    for name, dashes in zip(SOLVERS, ("-", "--"), strict=True):
        for way, colour in zip(WAYS, COLOURS, strict=False):
            points = np.array(cells[f"{way}; {name}"]["points"])
            label = f"{way}; {name}"
            four.plot(points[:, 0], points[:, 1], dashes, color=colour, label=label)
    four.invert_xaxis()
    for axes, name in zip(
        (one, three), ("refresh period (passes)", "variants"), strict=True
    ):
        axes.set(title=name, xlabel="oracle calls / n", ylabel="duality gap")
    two.set(title="staleness", xlabel="passes", ylabel="gap / sum of estimates")
    four.set(title="paths", xlabel="lambda", ylabel="total oracle calls / n")
    for axes in (one, two, three, four):
        axes.set(xscale="log", yscale="log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        tidy(axes)
        if axes is not two:
            axes.legend(fontsize=8, frameon=False)
    save(figure, path)
