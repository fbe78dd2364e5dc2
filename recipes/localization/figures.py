"""Figures of ``voc_localization.py``: curves of training, and a sheet of images."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from runs import files
from runs.axes import (
    label_integers,
    limit_percentages,
    limit_y,
    make_logarithmic,
    panels,
    style_axes,
)
from smoothsp.data import AnnotatedImage
from smoothsp.data.images import read_image
from smoothsp.figures import draw
from smoothsp.models.localiser import Found

COLOUR, MISS = "#0072b2", "#d55e00"
SHEET = {True: (12, 4), False: (6, 3)}
NAMES = {
    "objective": "objective, without smoothing",
    "corloc": "CorLoc, validation (%)",
}
DASHES = {"best candidate": ":", "centre box": "--", "mean box of training": "-."}


class Panel(NamedTuple):
    """An image of a sheet."""

    example: AnnotatedImage
    prediction: Found
    title: str
    is_hit: bool = True


def curves(
    path: Path,
    history: list[dict[str, Any]],
    passes: int,
    title: str,
    baselines: dict[str, float],
) -> None:
    """Objective and CorLoc by epochs, beside the CorLocs of ``baselines``."""
    figure = Figure(figsize=(6.6, 3.5), layout="constrained")
    figure.suptitle(textwrap.fill(title, 78), fontsize=10)
    left, right = figure.subplots(1, 2)
    calls = [passes * row["epoch"] for row in history]
    for axes, key, scale in ((left, "objective", 1), (right, "corloc", 100)):
        marker = "o" if len(history) < 20 else None
        values = [scale * row[key] for row in history]
        axes.plot(calls, values, color=COLOUR, marker=marker, ms=3, lw=1.4)
        axes.set(xlabel="calls of the inference oracle per image", ylabel=NAMES[key])
        label_integers(axes.xaxis)
        style_axes(axes)
    make_logarithmic(left.yaxis, [row["objective"] for row in history])
    limit_y(left)
    for name, dashes in DASHES.items():
        height = 100 * baselines[name]
        right.axhline(height, color="k", lw=1, ls=dashes, label=name)
    limit_percentages(right)
    right.legend(frameon=False, fontsize=8)
    files.write_figure(path, figure, dpi=120)


def evenly_spaced(count: int, single_object: bool) -> list[int]:
    """Numbers of the images of a sheet."""
    num_images = min(SHEET[single_object][0], count)
    return np.linspace(0, count - 1, num_images).round().astype(int).tolist()


def sheet(path: Path, shown: Sequence[Panel], single_object: bool, title: str) -> None:
    """Images with the boxes found, the best one thick, and dashed true ones."""
    columns = SHEET[single_object][1]
    figure, all_axes = panels(len(shown), columns, 11 / columns, 9 / columns, title)
    for axes, panel in zip(all_axes, shown, strict=False):
        image = read_image(panel.example.path)
        true = np.array(panel.example.boxes).reshape(-1, 4)[:, [1, 0, 3, 2]]
        draw(panel.prediction, image=image, true=true - [0, 0, 1, 1], ax=axes)
        colour = COLOUR if panel.is_hit else MISS
        axes.set_title(panel.title, fontsize=8, color=colour)
    files.write_figure(path, figure, dpi=110)
