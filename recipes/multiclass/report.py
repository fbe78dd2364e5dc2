"""Tables, figures and numbers of ``multiclass_svm.py``."""

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from multiclass import paper
from multiclass.datasets import Samples
from runs import axes, files
from runs.result_store import ResultStore

COLOURS = ("#d1661f", "#2a6f97", "#3c8d53", "#7a4d9e", "#777777")
NONE = "-"
Row = dict[str, Any]


def write(config: Any, sets: list[Samples], store: ResultStore) -> dict[str, float]:
    """Print the tables and write all files; the chief numbers come back."""
    scores = [
        score_row(samples, log2_c, tolerance, store)
        for samples in sets
        for tolerance in config.tolerances
        for log2_c in config.log2_c
    ]
    for tolerance in config.tolerances:
        head = f"Test accuracy (%), tolerance {tolerance:g}"
        print(f"\n{head}\n\n{score_table(scores, sets, tolerance, config.log2_c)}")
    result = main_results(scores)
    files.write_table(config.out / "accuracy.csv", scores)
    figure = draw_scores(scores, sets)
    files.write_figure(config.out / "accuracy.png", figure, dpi=150)
    content = {"settings": config.as_json(), "result": result, "fits": scores}
    files.write_json(config.out / "metrics.json", content)
    print(f"\nsee {config.out}: metrics.json, accuracy.csv, accuracy.png")
    return result


def score_row(
    samples: Samples, log2_c: int, tolerance: float, store: ResultStore
) -> Row:
    cell = store[samples.score_key(log2_c, tolerance)]
    return {
        "set": samples.name,
        "classes": samples.classes,
        "log2_c": log2_c,
        "tolerance": tolerance,
        "accuracy": cell["accuracy"],
        "paper": paper.accuracy(samples.name, log2_c, tolerance),
        "epochs": cell.get("epochs"),
        "seconds": cell.get("seconds"),
        "primal": cell.get("primal"),
        "gap": cell.get("gap"),
    }


def score_table(
    scores: list[Row], sets: list[Samples], tolerance: float, log2_c: Sequence[int]
) -> str:
    """Sets as rows, ours and the paper's; values of C as columns; the best one last."""
    lines = []
    for samples in sets:
        mine = [
            row
            for row in scores
            if row["set"] == samples.name and row["tolerance"] == tolerance
        ]
        for source in ("accuracy", "paper"):
            values = [row[source] for row in mine]
            if source == "accuracy" or any(value is not None for value in values):
                who = "ours" if source == "accuracy" else "paper"
                store = [format_number(value) for value in values]
                lines.append(
                    [f"{samples.name}, {who}", *store, best_powers(mine, source)]
                )
    return markdown(["", *(f"2^{c}" for c in log2_c), "best C"], lines)


def best_powers(rows: list[Row], source: str) -> str:
    finite = [row for row in rows if row[source] is not None]
    if not finite:
        return NONE
    highest = max(row[source] for row in finite)
    powers = [str(row["log2_c"]) for row in finite if row[source] == highest]
    return "2^" + ", 2^".join(powers)


def format_number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def markdown(head: Sequence[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def main_results(scores: list[Row]) -> dict[str, float]:
    """Best accuracy of each set, and distance to the paper."""
    result: dict[str, float] = {}
    for name in dict.fromkeys(row["set"] for row in scores):
        mine = [row for row in scores if row["set"] == name]
        accuracies = [row["accuracy"] for row in mine if row["accuracy"] is not None]
        if accuracies:
            result[f"{name}_best"] = max(accuracies)
        distances = [
            abs(row["accuracy"] - row["paper"])
            for row in mine
            if None not in (row["accuracy"], row["paper"])
        ]
        if distances:
            result[f"{name}_mean_distance_to_paper"] = statistics.fmean(distances)
            result[f"{name}_largest_distance_to_paper"] = max(distances)
    return result


def draw_scores(scores: list[Row], sets: list[Samples]) -> Figure:
    """A panel a set: accuracy against C, a line a tolerance, the paper's dashed."""
    columns = min(3, len(sets))
    rows = -(-len(sets) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.6, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    tolerances = list(dict.fromkeys(row["tolerance"] for row in scores))
    for panel, samples in zip(panels, sets, strict=False):
        for colour, tolerance in zip(COLOURS, tolerances, strict=False):
            for source, style, label in (
                ("accuracy", "o-", f"gap {tolerance:g}"),
                ("paper", "--", None),
            ):
                points = [
                    (row["log2_c"], row[source])
                    for row in scores
                    if (row["set"], row["tolerance"]) == (samples.name, tolerance)
                    and row[source] is not None
                ]
                if points:
                    x, y = zip(*points, strict=True)
                    panel.plot(x, y, style, ms=3.5, color=colour, label=label)
        title = f"{samples.name}, k = {samples.classes}"
        panel.set_title(textwrap.fill(title, 36), fontsize=10)
        panel.set(xlabel="log2 C", ylabel="test accuracy (%)")
        axes.label_integers(panel.xaxis)
        axes.style_axes(panel)
        axes.limit_percentages(panel)
    for panel in panels[len(sets) :]:
        panel.remove()
    if any(row["paper"] is not None for row in scores):
        panels[0].plot([], [], "--", color=COLOURS[-1], label="paper")
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(frameon=False, fontsize=8)
    return figure
