"""Decision-focused learning: predict costs of arcs, evaluated by the chosen paths.

Linear models predict the costs of the 40 arcs of a 5 x 5 grid from five features. The
costs are polynomials of the features, so linear models are misspecified from degree 2
on. The recipe compares least squares with decision losses: SPO+, perturbed maxima, and
interpolation of the solver. The metric is the normalised regret of the paths on test
examples.

    python recipes/shortest_path.py                           # the sizes of the paper
    python recipes/shortest_path.py --sizes 100 --degrees 1 4 --seeds 2
    python recipes/shortest_path.py --problem knapsack
    python recipes/shortest_path.py --data FILE.npz

FILE.npz holds ``features (n, p)``, ``costs (n, E)``, ``index (E, 2)``, ``source`` and
``target``; with ``--problem knapsack`` it holds ``features``, ``values (n, N)``,
``weights (N,)`` and ``capacity``. Each seed splits it anew.

``cells.json`` is written after each method and size, for ``--resume``. At the end the
recipe writes ``regret.csv``, ``regret.png`` and a table.

Reproduces: Elmachtoub and Grigas, "Smart 'Predict, then Optimize'" (2022), figure 3.
Results: ``docs/results/decisions.md``.
"""

if __name__ == "__main__":
    from runs import sigint

    sigint.default_sigint()

    from decisions.settings import Config
    from runs import start

    start.read_options(Config)

import csv
import io
import textwrap
import zlib
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from tqdm import tqdm

from decisions import linear_models, problems
from decisions.linear_models import append_ones
from decisions.settings import METHODS, Config
from runs import arguments, files, options, terminal
from runs.axes import style_axes
from runs.result_store import ResultStore

COLOURS = dict(zip(METHODS, ("#777777", "#d55e00", "#0072b2", "#009e73"), strict=True))
# of a size, a setting and a method the regrets of all seeds
Regrets = dict[tuple[str, str, str], list[float]]


def main(config: Config) -> dict[str, float]:
    """Run what is missing; mean regrets by size, setting and method come back."""
    arguments.require_at_least(
        config, degrees=1, noises=0, sizes=8, test=1, seeds=1, steps=1, seed=0
    )
    for noise in config.noises:
        if not noise <= 1:
            raise ValueError(f"noises: expected at most 1, got {noise:g}")
    arguments.require_distinct(config, "methods", "degrees", "noises", "sizes")
    with config.locked():
        names = "problem", "degrees", "noises", "test", "seeds", "steps", "seed"
        settings = {name: getattr(config, name) for name in names}
        if config.data is not None:
            settings["data"] = zlib.crc32(config.data.read_bytes())
        store = ResultStore(config.checkpoint, settings, config.resume)
        with store.print_resume_hint():
            run(config, store)
        return store.reraise_with_path(lambda: report(config, store))


def run(config: Config, store: ResultStore) -> None:
    """Fit what the cells lack: each cell is all runs of a size and a method."""
    seeds = [config.seed + i for i in range(config.seeds)]
    todo = [(size, method) for size in size_names(config) for method in config.methods]
    todo = [(size, m) for size, m in todo if f"{size}, {m}" not in store]
    with tqdm(total=len(todo) * config.steps, disable=None, unit="step") as bar:
        current_size = ""
        for size, method in todo:
            bar.set_description(f"{size}, {method}")
            if size != current_size:
                current_size = size
                if config.data is not None:
                    problem, *arrays = problems.read(config.data, config.problem)
                    parts = problems.split_by_seed(problem, *arrays, seeds)
                else:
                    problem = problems.PROBLEMS[config.problem]()
                    n = int(size)
                    counts = {"train": n, "dev": n // 4, "test": config.test}
                    runs = [(d, e, s) for d, e in noise_settings(config) for s in seeds]
                    parts = problems.generate(problem, counts, runs)
            weights = linear_models.fit(
                method, problem, parts, config.steps, config.seed, bar.update
            )
            predicted = append_ones(parts["test"].features) @ weights
            regrets = parts["test"].regret(problem, predicted)
            if not regrets.isfinite().all():
                raise ValueError(f"{size}, {method}: expected finite regrets, got NaN")
            start = linear_models.least_squares(parts["train"])
            is_unchanged = (weights == start).flatten(1).all(1)
            cell = {"regret": regrets.tolist(), "least_squares": is_unchanged.tolist()}
            store.put(f"{size}, {method}", cell)


def size_names(config: Config) -> list[str]:
    return ["file"] if config.data is not None else [str(n) for n in config.sizes]


def noise_settings(config: Config) -> list[tuple[int, float]]:
    return [(degree, noise) for noise in config.noises for degree in config.degrees]


def report(config: Config, store: ResultStore) -> dict[str, float]:
    """Write numbers and figure, print the table; the means come back."""
    names = ["file"]
    if config.data is None:
        names = [f"degree {d}, noise {e:g}" for d, e in noise_settings(config)]
    regrets: Regrets = {}
    for size in size_names(config):
        for method in config.methods:
            all_runs = store[f"{size}, {method}"]["regret"]
            for number, name in enumerate(names):
                mine = all_runs[number * config.seeds : (number + 1) * config.seeds]
                regrets[size, name, method] = [float(x) for x in mine]
    write(config.out / "regret.csv", regrets)
    draw(config, regrets)
    print(table(config, names, regrets))
    print_unchanged(config, store)
    return {", ".join(key): float(np.mean(x)) for key, x in regrets.items()}


def print_unchanged(config: Config, store: ResultStore) -> None:
    """Print which runs end with the weights of least squares, where they begin."""
    unchanged = []
    for size in size_names(config):
        for method in config.methods:
            runs = store[f"{size}, {method}"]["least_squares"]
            if method != "least-squares" and any(runs):
                unchanged.append(
                    f"{method} in {sum(runs)} of {len(runs)} at size {size}"
                )
    if unchanged:
        print(
            "\nruns that keep the weights of least squares, as no step had less regret"
            f" on the examples that choose: {', '.join(unchanged)}"
        )


def write(path: Path, regrets_by_key: Regrets) -> None:
    """A line for each run."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["size", "setting", "method", "seed", "regret"])
    for key, regrets in regrets_by_key.items():
        lines.writerows([*key, seed, f"{x:.6g}"] for seed, x in enumerate(regrets))
    files.write(path, lambda sink: sink.write(text.getvalue().encode()))


def table(config: Config, names: list[str], regrets: Regrets) -> str:
    """Mean normalised regrets in percent, as Markdown."""
    lines = [
        f"| size | setting | {' | '.join(config.methods)} |",
        "|" + " --- |" * (2 + len(config.methods)),
    ]
    for size in size_names(config):
        for name in names:
            means = [np.mean(regrets[size, name, method]) for method in config.methods]
            store = " | ".join(f"{100 * x:.2f}" for x in means)
            lines.append(f"| {size} | {name} | {store} |")
    return "\n".join(lines)


def draw(config: Config, regrets: Regrets) -> None:
    """Boxes of the seeds: a row of panels for each noise, a column for each size."""
    sizes = size_names(config)
    noises = [0.0] if config.data is not None else list(config.noises)
    columns = min(len(config.methods), 2 * len(sizes))
    # wide enough for the legend
    figure = Figure(
        figsize=(0.9 + 3.1 * len(sizes), 0.6 + 2.6 * len(noises)), layout="constrained"
    )
    panels = figure.subplots(len(noises), len(sizes), squeeze=False)
    for row, noise in zip(panels, noises, strict=True):
        for panel, size in zip(row, sizes, strict=True):
            if config.data is not None:
                names = {textwrap.fill(config.data.name, 36): "file"}
                panel.set(title=f"{config.seeds} splits")
            else:
                names = {str(d): f"degree {d}, noise {noise:g}" for d in config.degrees}
                panel.set(title=f"n = {size}, noise {noise:g}", xlabel="degree")
            draw_boxes(panel, size, names, config.methods, regrets)
        row[0].set(ylabel="normalised regret (%)")
    handles = [Patch(color=COLOURS[method], label=method) for method in config.methods]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False
    )
    files.write_figure(config.out / "regret.png", figure, dpi=120)


def draw_boxes(
    panel: Axes,
    size: str,
    columns: dict[str, str],
    methods: tuple[str, ...],
    regrets: Regrets,
) -> None:
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        shift = (number - (len(methods) - 1) / 2) * width
        x = np.arange(len(columns)) + shift
        y = [100 * np.array(regrets[size, name, method]) for name in columns.values()]
        colour = COLOURS[method]
        if all(len(values) == 1 for values in y):
            panel.plot(x, y, "o", color=colour, clip_on=False)
            continue
        # boxes without height are lines of their colour, too
        lines = {"color": colour, "lw": 1.2}
        panel.boxplot(
            y,
            positions=x,
            widths=0.85 * width,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": to_rgba(colour, 0.5), "edgecolor": colour},
            medianprops=lines,
            whiskerprops=lines,
            capprops=lines,
            flierprops={"ms": 3, "markeredgecolor": colour},
        )
    panel.set(xticks=range(len(columns)), xticklabels=list(columns))
    panel.set_xlim(-0.6, len(columns) - 0.4)
    panel.set_ylim(bottom=0)
    style_axes(panel)


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
