"""Tables, figures and numbers of ``multiclass_svm.py``."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from multiclass import paper
from multiclass.cells import Cells
from multiclass.fits import SOLVERS
from multiclass.sets import Samples
from runs import files

COLOURS = ("#d1661f", "#2a6f97", "#3c8d53", "#7a4d9e", "#777777")
NONE = "-"
Row = dict[str, Any]


def write(
    config: Any, sets: list[Samples], drawn: list[Samples], cells: Cells
) -> dict[str, float]:
    """Print the tables and write all files; the chief numbers come back."""
    scores = [
        score_row(samples, log2_c, tolerance, cells)
        for samples in sets
        for tolerance in config.tolerances
        for log2_c in config.log2_c
    ]
    times = [
        row
        for samples in sets + drawn
        for log2_c in config.race_log2_c
        for row in time_rows(samples, log2_c, config.tolerances, cells)
    ]
    for tolerance in config.tolerances:
        head = f"Test accuracy (%), tolerance {tolerance:g}"
        print(f"\n{head}\n\n{score_table(scores, sets, tolerance, config.log2_c)}")
    if times:
        print(f"\nWalrus over greedy, time to each tolerance\n\n{time_table(times)}")
    result = chief_numbers(scores, times)
    for name, rows in (("accuracy.csv", scores), ("times.csv", times)):
        if rows:
            files.write_table(config.out / name, rows)
    save(draw_scores(scores, sets), config.out / "accuracy.png")
    if times:
        save(draw_times(times), config.out / "time_ratio.png")
    settings = {name: readable(value) for name, value in asdict(config).items()}
    content = {"settings": settings, "result": result, "fits": scores, "times": times}
    files.write_json(config.out / "metrics.json", content)
    print(f"\nsee {config.out}: metrics.json, accuracy.csv, times.csv and two figures")
    return result


def readable(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [readable(x) for x in value] if isinstance(value, tuple) else value


def score_row(samples: Samples, log2_c: int, tolerance: float, cells: Cells) -> Row:
    cell = cells[samples.score_key(log2_c, tolerance)]
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


def time_rows(
    samples: Samples, log2_c: int, tolerances: Sequence[float], cells: Cells
) -> list[Row]:
    """One row a tolerance."""
    walrus, greedy = (cells[samples.race_key(log2_c)][name] for name in SOLVERS)
    rows = []
    for j, tolerance in enumerate(tolerances):
        seconds = walrus["seconds"][j], greedy["seconds"][j]
        rows.append(
            {
                "set": samples.name,
                "drawn": not len(samples.y_test),
                "classes": samples.classes,
                "samples": len(samples.y),
                "log2_c": log2_c,
                "tolerance": tolerance,
                "walrus_seconds": seconds[0],
                "greedy_seconds": seconds[1],
                "ratio": ratio(*seconds),
                "walrus_epochs": walrus["epochs"][j],
                "greedy_epochs": greedy["epochs"][j],
                "first_gap_ratio": ratio(walrus["first_gap"], greedy["first_gap"]),
                "walrus_accuracy": walrus["accuracy"],
                "greedy_accuracy": greedy["accuracy"],
            }
        )
    return rows


def ratio(x: float | None, y: float | None) -> float | None:
    """None where one is not known, or where there is nothing to do."""
    return None if x is None or not y else x / y


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
                cells = [shown(value) for value in values]
                lines.append([f"{samples.name}, {who}", *cells, best(mine, source)])
    return markdown(["", *(f"2^{c}" for c in log2_c), "best C"], lines)


def best(rows: list[Row], source: str) -> str:
    known = [row for row in rows if row[source] is not None]
    if not known:
        return NONE
    most = max(row[source] for row in known)
    powers = [str(row["log2_c"]) for row in known if row[source] == most]
    return "2^" + ", 2^".join(powers)


def time_table(times: list[Row]) -> str:
    """One row a set and C, one column a tolerance."""
    tolerances = list(dict.fromkeys(row["tolerance"] for row in times))
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in times:
        groups.setdefault((row["set"], row["log2_c"]), []).append(row)
    lines = []
    for (name, log2_c), rows in groups.items():
        ratios = [shown(row["ratio"]) for row in rows]
        last = rows[-1]
        epochs = [shown(last[f"{solver}_epochs"], 0) for solver in SOLVERS]
        seconds = shown(last["walrus_seconds"], 3)
        about = [name, str(last["classes"]), f"2^{log2_c}"]
        lines.append([*about, *ratios, seconds, " / ".join(epochs)])
    head = ["set", "k", "C", *(f"{t:g}" for t in tolerances)]
    return markdown([*head, "Walrus, s", "epochs, Walrus / greedy"], lines)


def shown(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def markdown(head: Sequence[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def chief_numbers(scores: list[Row], times: list[Row]) -> dict[str, float]:
    """Best accuracy of each set, distance to the paper, and ratios of drawn sets."""
    result: dict[str, float] = {}
    for name in dict.fromkeys(row["set"] for row in scores):
        mine = [row for row in scores if row["set"] == name]
        known = [row["accuracy"] for row in mine if row["accuracy"] is not None]
        if known:
            result[f"{name}_best"] = max(known)
        apart = [
            abs(row["accuracy"] - row["paper"])
            for row in mine
            if None not in (row["accuracy"], row["paper"])
        ]
        if apart:
            result[f"{name}_mean_distance_to_paper"] = statistics.fmean(apart)
            result[f"{name}_largest_distance_to_paper"] = max(apart)
    for k in sorted({row["classes"] for row in times if row["drawn"]}):
        ratios = [
            row["ratio"]
            for row in times
            if row["drawn"] and row["classes"] == k and row["ratio"] is not None
        ]
        if ratios:
            result[f"ratio_at_{k}_classes"] = statistics.median(ratios)
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
        panel.set(title=f"{samples.name}, k = {samples.classes}", xlabel="log2 C")
        panel.set_ylabel("test accuracy (%)")
        tidy(panel)
    for panel in panels[len(sets) :]:
        panel.remove()
    if any(row["paper"] is not None for row in scores):
        panels[0].plot([], [], "--", color=COLOURS[-1], label="paper")
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(frameon=False, fontsize=8)
    return figure


def draw_times(times: list[Row]) -> Figure:
    """Ratio of times against the number of classes, a colour a tolerance."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    panel = figure.subplots()
    tolerances = list(dict.fromkeys(row["tolerance"] for row in times))
    for colour, tolerance in zip(COLOURS, tolerances, strict=False):
        for drawn, marker in ((True, "o"), (False, "^")):
            points = [
                (row["classes"], row["ratio"])
                for row in times
                if (row["drawn"], row["tolerance"]) == (drawn, tolerance)
                and row["ratio"] is not None
            ]
            if points:
                kind = "drawn" if drawn else "real"
                x, y = zip(*points, strict=True)
                face = colour if drawn else "none"
                panel.plot(
                    x, y, marker, ms=7, mec=colour, mfc=face,
                    label=f"{kind}, gap {tolerance:g}",
                )  # fmt: skip
    panel.axhline(1, color=COLOURS[-1], ls=":")
    ticks = sorted({row["classes"] for row in times})
    panel.set(xscale="log", xlabel="classes k", ylabel="time of Walrus over greedy")
    panel.set_xticks(ticks, map(str, ticks))
    panel.minorticks_off()
    panel.set_ylim(bottom=0)
    if panel.get_legend_handles_labels()[0]:
        panel.legend(frameon=False, fontsize=8)
    tidy(panel)
    return figure


def tidy(panel: Any) -> None:
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.3)


def save(figure: Figure, path: Path) -> None:
    files.write_figure(path, figure, dpi=150)
