"""Block-coordinate Frank-Wolfe: refreshes of gap estimates, cache rules and kappa.

    python recipes/frank_wolfe_rules.py                       # drawn words, in a minute
    python recipes/frank_wolfe_rules.py --ocr DIR --max-passes 400
    python recipes/frank_wolfe_rules.py --conll DIR --max-passes 14

Gap sampling draws examples by their gaps at the last oracle call. For several refresh
periods, the recipe records the exact gap, ``staleness`` (the exact gap over the sum of
the estimates) and the predicted gain of uneven gaps, ``chi(g)^3 / chi(C)``. It also
compares rules of the cache by the calls that they save, values of kappa by the cost of
a regularisation path, and the eight variants.

``cells.json`` is written after each run, for ``--resume``. At the end the recipe writes
tables and ``rules.png``. Results: ``docs/reproduction.md``.

Reproduces: Osokin et al., "Minding the Gaps for Block Frank-Wolfe Optimization of
Structured SVMs", figures 1, 2 and 7, and the advice of section 5.1.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from tqdm import tqdm

from linear_tagging import data as linear_tagging_data
from multiclass.cells import Cell, Cells
from ocr import letters as ocr_letters
from ocr import toy
from ocr.figures import save, tidy
from ocr.runs import VARIANTS
from runs import arguments, options, terminal
from runs import folder as run_folder
from runs.interrupts import whole
from smoothsp.linear.problems import ChainProblem
from smoothsp.linear.solvers import BCFW, RegularisationPath, nonuniformity

NEVER = 10**6
PERIODS = (1, 2, 5, 10, 20, 100, NEVER)
# local and global bar of the cache, from hardly ever to nearly always
BARS = (
    (10.0, 0.01),
    (1.0, 0.01),
    (0.25, 0.01),
    (0.05, 0.01),
    (1e-6, 1.0),
    (1e-6, 1e-6),
)
KAPPAS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Data:
    """Input files."""

    ocr: Path | None = None
    """letter.data or its folder; without --ocr and --conll, words are generated."""
    conll: Path | None = None
    """Folder of CoNLL files; default: none."""
    drawn: int = 100
    """Number of generated words."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    c: float = 1.0
    """Value of c, where lambda = c / n."""
    max_passes: int = 60
    """Maximum number of passes of each run."""
    eps: float = 0.1
    """Accuracy of the paths, in units of the objective."""
    seed: int = 1
    """Seed of all runs."""


@dataclass(frozen=True)
class Output:
    """Output files."""

    out: Path = Path("runs/frank_wolfe_rules")
    """Folder of tables, figure and numbers."""
    resume: bool = False
    """Continue with the runs that are missing in --out."""


@dataclass(frozen=True)
class Config(Output, Training, Data):
    """Refresh period, cache, kappa and variants of block-coordinate Frank-Wolfe."""


def main(config: Config) -> dict[str, float]:
    """Run what is missing; the gaps at the end come back."""
    arguments.at_least(config, drawn=2, max_passes=1, seed=0)
    arguments.positive(config, "c", "eps")
    with run_folder.held(config.out):
        problems = problems_of(config)
        names = ("c", "max_passes", "eps", "seed")
        settings: dict[str, Any] = {name: getattr(config, name) for name in names}
        settings["data"] = {name: p.checksum for name, p in problems.items()}
        cells = Cells(config.out / "cells.json", settings, config.resume)
        todo = [(name, *job) for name in problems for job in jobs(name, config)]
        with cells.filling(), tqdm(todo, disable=None, unit="run") as bar:
            for name, key, run in bar:
                bar.set_description(f"{name}, {key}")
                if f"{name}, {key}" not in cells:
                    cells.keep(f"{name}, {key}", run(problems[name]))
        return cells.use(lambda: report(config, cells, problems))


def report(
    config: Config, cells: Cells, problems: dict[str, ChainProblem]
) -> dict[str, float]:
    """Write the figure, print the tables; the gaps at the end come back."""
    found = {name: of_one(cells, name, config) for name in problems}
    draw(config.out / "rules.png", found)
    for name, kinds in found.items():
        print(f"\n{name}, n = {len(problems[name])}\n{tables(kinds)}")
    return {
        f"{name}, {key}": cell["gaps"][-1]
        for name, kinds in found.items()
        for key, cell in {**kinds["refresh"], **kinds["variant"]}.items()
    }


def problems_of(config: Config) -> dict[str, ChainProblem]:
    found = {}
    if config.ocr is not None:
        found["OCR"] = ocr_letters.load(config.ocr).split("small")[0]
    if config.ocr is None and config.conll is None:
        found["drawn words"] = toy.draw(config.drawn, seed=0).problem
    if config.conll is not None:
        parts = linear_tagging_data.load(config.conll)
        names = linear_tagging_data.PAPER
        task = linear_tagging_data.task_of(names, *parts, hashing=2**16 - 1)
        found["CoNLL"] = task.train
    return found


def jobs(name: str, config: Config) -> list[tuple[str, Any]]:
    """Names of runs and what makes them."""
    found: list[tuple[str, Any]] = []
    for period in PERIODS:
        options = {"sampling": "gap", "refresh_every": period}
        found.append((f"refresh {period}", partial(follow, config, options)))
    for local, overall in BARS:
        options = {"cache": True, "cache_local": local, "cache_global": overall}
        key = f"cache {local:g} {overall:g}"
        found.append((key, partial(follow, config, {"sampling": "gap"} | options)))
    for variant in VARIANTS:
        found.append((f"variant {variant}", partial(follow, config, variant.options)))
    if name != "CoNLL":
        for kappa in KAPPAS:
            found.append((f"kappa {kappa:g}", partial(path, config, kappa)))
    return found


def follow(config: Config, options: dict[str, Any], problem: ChainProblem) -> Cell:
    """One run, looked at now and then: a look is no refresh, nor on its clock."""
    n = len(problem)
    lam, seed = config.c / n, config.seed
    few = problem.subset(np.arange(min(3, n)))
    whole(BCFW(lam=lam, max_passes=2, **options).solve(few))
    curvature = nonuniformity(problem.norms**2)
    cell: Cell = {
        name: [] for name in ("passes", "calls", "seconds", "gaps", "stale", "gain")
    }
    state, spent = None, 0
    period = options.get("refresh_every", 10)
    for passes in looks(config.max_passes):
        solver = BCFW(lam=lam, seed=seed, tol=0.0, max_passes=passes, **options)
        solution = whole(solver.solve(problem, resume=state))
        state = solution.state
        # the last certificate is a look, unless a refresh was due
        spent = solution.oracle_calls - n * (passes % period != 0)
        estimates = np.asarray(state["estimates"])
        stale = passes % period != 0 and np.isfinite(estimates).all()
        cell["passes"].append(passes)
        cell["calls"].append(spent / n)
        cell["seconds"].append(float(state["seconds"]))
        cell["gaps"].append(solution.gap)
        cell["stale"].append(solution.gap / estimates.sum() if stale else np.nan)
        known = estimates if np.isfinite(estimates).all() else np.ones(n)
        cell["gain"].append(nonuniformity(known) ** 3 / curvature)
    return cell


def looks(most: int) -> list[int]:
    """Passes that are multiples of no period but 1, and the last one."""
    found = [p for p in (3, 7, 13, 19, 29, 39, 59, 79, 99, 149, 199) if p < most]
    return [*found, most - 1] if most - 1 not in found else found


def path(config: Config, kappa: float, problem: ChainProblem) -> Cell:
    """The regularisation path with gap sampling, as for cheap oracles."""
    solver = RegularisationPath(
        eps=config.eps, kappa=kappa, sampling="gap", seed=config.seed, max_seconds=120
    )
    found = whole(solver.solve(problem))
    return {
        "points": len(found.points),
        "calls": found.oracle_calls / len(problem),
        "seconds": found.seconds,
        "whole": bool(found.complete or found.flat),
    }


def of_one(cells: Cells, name: str, config: Config) -> dict[str, dict[str, Cell]]:
    """Cells of one set of data by kind and by what is varied."""
    found: dict[str, dict[str, Cell]] = {}
    for key, _ in jobs(name, config):
        kind, _, what = key.partition(" ")
        found.setdefault(kind, {})[what] = cells[f"{name}, {key}"]
    return found


def tables(kinds: dict[str, dict[str, Cell]]) -> str:
    """How all ended, as Markdown."""
    lines = ["| | calls / n | s | gap | staleness | gain |", "|" + " --- |" * 6]
    for kind in ("refresh", "cache", "variant"):
        for what, cell in kinds[kind].items():
            end = [cell[name][-1] for name in ("calls", "seconds", "gaps")]
            stale, gain = cell["stale"][-1], cell["gain"][-1]
            name = "never" if what == str(NEVER) else what
            lines.append(
                f"| {kind} {name} | {end[0]:.0f} | {end[1]:.1f} | {end[2]:.2e} |"
                f" {stale:.2f} | {gain:.1f} |"
            )
    if "kappa" in kinds:
        lines += ["", "| kappa | points | calls / n | s |", "|" + " --- |" * 4]
        for what, cell in kinds["kappa"].items():
            points = cell["points"] if cell["whole"] else "not whole"
            lines.append(
                f"| {what} | {points} | {cell['calls']:.0f} | {cell['seconds']:.1f} |"
            )
    return "\n".join(lines)


def draw(path: Path, found: dict[str, Any]) -> None:
    """Two rows for each set of data: refreshes, staleness; cache, variants."""
    figure = Figure(figsize=(10, 7.6 * len(found)), layout="constrained")
    rows = figure.subplots(2 * len(found), 2).reshape(len(found), 4)
    for panels, (name, kinds) in zip(rows, found.items(), strict=True):
        shades = np.linspace(0.85, 0.0, len(PERIODS))
        for (what, cell), shade in zip(kinds["refresh"].items(), shades, strict=True):
            style = {"color": (0.9 * shade, 0.45, 0.75 - 0.6 * shade), "lw": 1.4}
            label = "never" if what == str(NEVER) else f"every {what}"
            panels[0].plot(cell["calls"], cell["gaps"], label=label, **style)
            panels[1].plot(cell["passes"], cell["stale"], marker=".", **style)
        for what, cell in kinds["cache"].items():
            panels[2].plot(cell["calls"], cell["gaps"], lw=1.4, label=f"F, nu = {what}")
        for variant in VARIANTS:
            cell = kinds["variant"][str(variant)]
            panels[3].plot(
                cell["calls"],
                cell["gaps"],
                color="#2a6f97" if variant.cache else "#d1661f",
                ls="-" if variant.sampling == "gap" else "--",
                marker="o" if variant.steps == "pairwise" else "s",
                ms=4,
                mfc="white",
                lw=1.4,
                label=str(variant),
            )
        titles = ("refresh period (passes)", "staleness", "cache", "variants")
        for panel, title in zip(panels, titles, strict=True):
            panel.set(xscale="log", yscale="log", title=f"{name}: {title}")
            panel.set(xlabel="oracle calls / n", ylabel="duality gap")
            # or they run into each other where there is less than a decade
            panel.xaxis.set_minor_formatter(NullFormatter())
            tidy(panel)
        panels[1].set(xlabel="passes", ylabel="gap / sum of estimates")
        for panel in (panels[0], *panels[2:]):
            panel.legend(fontsize=8, frameon=False)
    save(figure, path)


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
