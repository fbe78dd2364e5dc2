"""Tables, figures and numbers of ``voc_localization.py``."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, NullFormatter
from torch import Tensor

from localization.folder import read_image
from localization.images import Images
from localization.training import Run
from runs import checkpoint

COLOURS = ("#777777", "#2a6f97", "#d1661f", "#5b8c3a")
TRUE, PREDICTED, OTHERS = "#2ca02c", "#d1661f", "#2a6f97"
RUNNERS_UP, SHEET = 3, 12
PANELS = (
    ("oracle_calls", "objective"),
    ("oracle_calls", "val_corloc"),
    ("oracle_calls", "val_ap"),
    ("seconds", "objective"),
    ("seconds", "val_corloc"),
    ("seconds", "val_ap"),
)
NAMES = {
    "oracle_calls": "calls of the inference oracle",
    "seconds": "seconds of training",
    "objective": "objective, without smoothing",
    "val_corloc": "CorLoc, validation (%)",
    "val_ap": "AP, validation (%)",
}

History = list[dict[str, Any]]


def write(
    folder: Path, about: dict[str, Any], run: Run, parts: dict[str, Images], title: str
) -> dict[str, float]:
    """Print the table, write figures and numbers; the chief ones come back.

    Of the weights with the lowest objective.
    """
    best = min(run.history, key=lambda row: row["objective"])
    run.shown.load_state_dict(run.best)
    result = {"best_round": float(best["round"]), "objective": best["objective"]}
    for part in ("val", "test"):
        if part not in parts:
            continue
        scores = run.evaluate(parts[part]) | limits(parts[part])
        result |= {f"{part}_{name}": value for name, value in scores.items()}
    print(f"\n{table(result)}")
    history_csv(folder / "history.csv", run.history)
    curves(folder / "curves.png", {run.settings.method: [run.history]}, title)
    last = parts.get("test", parts["val"])
    sheet(folder / "sheet.png", last, run.predict(last, RUNNERS_UP + 1), title)
    content = about | {"history": run.history, "result": result}
    text = json.dumps(content, indent=2) + "\n"
    checkpoint.write(folder / "metrics.json", lambda sink: sink.write(text.encode()))
    print(
        f"\nlowest objective {best['objective']:.4f} after round {best['round']}; see"
        f" {folder}: history.csv, curves.png, sheet.png, metrics.json"
    )
    return result


def limits(images: Images) -> dict[str, float]:
    """What the candidates allow: the best one's CorLoc, and that of chance."""
    right = [overlap > 0.5 for overlap in images.overlaps]
    return {
        "best_possible": sum(bool(r.any()) for r in right) / len(right),
        "by_chance": sum(float(r.double().mean()) for r in right) / len(right),
    }


def table(result: dict[str, float]) -> str:
    heads = {"corloc": "CorLoc", "ap": "AP", "best_possible": "best candidate"}
    heads["by_chance"] = "any candidate"
    lines = [f"{'':<6}" + "".join(f"{head:>16}" for head in heads.values())]
    for part in ("val", "test"):
        if f"{part}_ap" in result:
            cells = [f"{100 * result[f'{part}_{name}']:.1f}" for name in heads]
            lines.append(f"{part:<6}" + "".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def history_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _short(value) for name, value in row.items()})
    content = text.getvalue().encode()
    checkpoint.write(path, lambda sink: sink.write(content))


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def curves(path: Path, runs: dict[str, list[History]], title: str) -> None:
    """One line a method: the mean of its runs, and one standard deviation around it."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    for axes, (x, y) in zip(figure.subplots(2, 3).flat, PANELS, strict=True):
        for (name, histories), colour in zip(runs.items(), COLOURS, strict=False):
            _line(axes, histories, x, y, name, colour)
        axes.set(xlabel=NAMES[x], ylabel=NAMES[y])
        if y == "objective":
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(frameon=False)
    checkpoint.write(path, lambda sink: figure.savefig(sink, format="png", dpi=120))


def _line(
    axes: Axes, histories: list[History], x: str, y: str, name: str, colour: str
) -> None:
    scale = 1 if y == "objective" else 100
    rounds = min(map(len, histories))
    # without training all is wrong, beside which no difference would be seen
    shown = slice(0 if y == "objective" else 1, rounds)
    across = np.mean([[row[x] for row in h[shown]] for h in histories], 0)
    up = scale * np.array([[row[y] for row in h[shown]] for h in histories])
    mean, spread = up.mean(0), up.std(0)
    marker = "o" if rounds < 20 else None
    axes.plot(across, mean, color=colour, label=name, marker=marker, ms=3, lw=1.4)
    if len(histories) > 1:
        axes.fill_between(across, mean - spread, mean + spread, color=colour, alpha=0.2)


def sheet(
    path: Path, images: Images, found: list[tuple[Tensor, Tensor]], title: str
) -> None:
    """Images from the best to the worst prediction, evenly spaced, and their boxes."""
    iou = [
        float(overlap[int(ys[0])])
        for overlap, (_, ys) in zip(images.overlaps, found, strict=True)
    ]
    ranked = sorted(range(len(images)), key=lambda number: -iou[number])
    places = np.linspace(0, len(ranked) - 1, min(SHEET, len(ranked))).round()
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = list(figure.subplots(3, 4).flat)
    for axes in panels:
        axes.set_axis_off()
    for axes, place in zip(panels, places, strict=False):
        number = ranked[int(place)]
        example, ys = images.examples[number], found[number][1].tolist()
        axes.imshow(read_image(example.image))
        boxes = [images.boxes[number][y].tolist() for y in reversed(ys)]
        for box in boxes[:-1]:
            _box(axes, box, OTHERS, 1, "--")
        _box(axes, example.box, TRUE, 2.5, "-")
        _box(axes, boxes[-1], PREDICTED, 1.8, "-")
        axes.set_title(f"{example.name}  IoU {iou[number]:.2f}", fontsize=8)
    styles = ((TRUE, "-", "true"), (PREDICTED, "-", "predicted"))
    styles += ((OTHERS, "--", "runners-up"),)
    handles = [
        Rectangle((0, 0), 1, 1, fill=False, ec=colour, ls=dashes, lw=2, label=label)
        for colour, dashes, label in styles
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    checkpoint.write(path, lambda sink: figure.savefig(sink, format="png", dpi=110))


def _box(
    axes: Axes, box: Sequence[float], colour: str, width: float, dashes: str
) -> None:
    left, top, right, bottom = box
    axes.add_patch(
        Rectangle(
            (left, top),
            right - left,
            bottom - top,
            fill=False,
            ec=colour,
            lw=width,
            ls=dashes,
        )
    )
