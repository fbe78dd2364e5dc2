"""Table, figures and numbers of ``matching_points.py``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from matching.baselines import scores
from matching.points import Pair
from runs import files

RIGHT, WRONG, MISSED, POINT = "#2a6f97", "#d1661f", "#999999", "#e0c341"
SHEET, GAP = 3, 6
NAMES = ("accuracy", "precision", "recall", "f1")

Images = tuple[np.ndarray, np.ndarray]


def write(
    folder: Path,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    pairs: list[Pair],
    images: list[Images],
    predictions: Mapping[str, list[Tensor]],
) -> dict[str, float]:
    """Print the table, write sheet and numbers; return the scores of the first row."""
    rows = {name: scores(pairs, guess) for name, guess in predictions.items()}
    print(f"\n{'test pairs':<30}" + "".join(f"{name:>11}" for name in NAMES))
    for name, row in rows.items():
        cells = "".join(f"{100 * row[x]:>11.2f}" for x in NAMES)
        print(f"{name:<30}{cells}")
    result = next(iter(rows.values())) | {"nearest_f1": rows["nearest neighbour"]["f1"]}
    sheet(folder / "sheet.png", pairs, images, predictions)
    content = {"settings": settings, "history": history, "result": result}
    files.write_json(folder / "metrics.json", content | {"scores": rows})
    print(f"\nsee {folder}: metrics.json, sheet.png")
    return result


def sheet(
    path: Path,
    pairs: list[Pair],
    images: list[Images],
    predictions: Mapping[str, list[Tensor]],
) -> None:
    """Pairs from the best to the worst, ours above and nearest neighbours below."""
    shown = [next(iter(predictions)), "nearest neighbour"]
    f1 = [
        scores([pair], [guess])["f1"]
        for pair, guess in zip(pairs, predictions[shown[0]], strict=True)
    ]
    ranked = sorted(range(len(pairs)), key=lambda n: -f1[n])
    ranks = np.linspace(0, len(ranked) - 1, min(SHEET, len(ranked))).round()
    figure = Figure(figsize=(5.2 * len(ranks), 5.4), layout="constrained")
    panels = figure.subplots(2, len(ranks), squeeze=False)
    for column, rank in zip(panels.T, ranks, strict=True):
        number = ranked[int(rank)]
        pair, image = pairs[number], images[number]
        for axes, name in zip(column, shown, strict=True):
            columns = predictions[name][number]
            draw(axes, image, pair, columns)
            f1_of_pair = scores([pair], [columns])["f1"]
            axes.set_title(f"{name}: F1 {100 * f1_of_pair:.0f}", fontsize=9)
    styles = ((RIGHT, "-", "right"), (WRONG, "-", "wrong"), (MISSED, ":", "missed"))
    handles = [Line2D([], [], color=c, ls=s, label=text) for c, s, text in styles]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    files.write_figure(path, figure, dpi=110)


def draw(axes: Axes, images: Images, pair: Pair, columns: Tensor) -> None:
    """Two views side by side, with lines between partners."""
    axes.imshow(side_by_side(images))
    axes.set_axis_off()
    first, second = pair.first.positions.numpy(), pair.second.positions.numpy()
    second = second + np.array([images[0].shape[1] + GAP, 0], np.float32)
    for positions in (first, second):
        axes.plot(*positions.T, ls="", marker="o", ms=2, color=POINT)
    partners = zip(columns.tolist(), pair.columns.tolist(), strict=True)
    for row, (column, gold) in enumerate(partners):
        if column < 0 <= gold:
            _line(axes, first[row], second[gold], MISSED, ":")
        if column >= 0:
            colour = RIGHT if column == gold else WRONG
            _line(axes, first[row], second[column], colour, "-")


def _line(
    axes: Axes, begin: np.ndarray, end: np.ndarray, colour: str, dashes: str
) -> None:
    axes.plot(*zip(begin, end, strict=True), color=colour, lw=0.9, ls=dashes)


def side_by_side(images: Images) -> np.ndarray:
    height = max(image.shape[0] for image in images)
    padded = [
        cv2.copyMakeBorder(
            image, 0, height - len(image), 0, gap, cv2.BORDER_CONSTANT, value=[255] * 3
        )
        for image, gap in zip(images, (GAP, 0), strict=True)
    ]
    return np.concatenate(padded, 1)
