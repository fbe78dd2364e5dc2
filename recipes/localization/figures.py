"""Figures of ``voc_localization.py``: curves of training, and a sheet of images."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from localization.baselines import RIGHT
from localization.images import Images
from runs import files
from runs.axes import logarithmic, panels, tidy, whole_numbers
from smoothsp.data.images import read_image

COLOUR = "#0072b2"
TRUE, HIT, MISS, OTHERS = "#009e73", "#0072b2", "#d55e00", "#888888"
RUNNERS_UP, SHEET = 3, 12
# heights of a drawn image over its width
TALL = (0.2, 5.0)
NAMES = {
    "objective": "objective, without smoothing",
    "val_corloc": "CorLoc, validation (%)",
}
DASHES = {"best candidate": ":", "centre box": "--", "mean box of training": "-."}


def curves(
    path: Path, history: list[dict[str, Any]], title: str, baselines: dict[str, float]
) -> None:
    """Objective and CorLoc against calls.

    ``baselines`` are CorLocs on the validation images, drawn as horizontal lines.
    """
    figure = Figure(figsize=(6.6, 3.5), layout="constrained")
    figure.suptitle(textwrap.fill(title, 78), fontsize=10)
    left, right = figure.subplots(1, 2)
    # without training all is wrong, beside which no difference would be seen
    for axes, key, scale, rows in (
        (left, "objective", 1, history),
        (right, "val_corloc", 100, history[1:]),
    ):
        calls = [row["oracle_calls"] for row in rows]
        marker = "o" if len(history) < 20 else None
        values = [scale * row[key] for row in rows]
        axes.plot(calls, values, color=COLOUR, marker=marker, ms=3, lw=1.4)
        axes.set(xlabel="calls of the inference oracle", ylabel=NAMES[key])
        whole_numbers(axes.xaxis)
        tidy(axes)
    logarithmic(left.yaxis, [row["objective"] for row in history])
    for name, dashes in DASHES.items():
        height = 100 * baselines[name]
        right.axhline(height, color="k", lw=1, ls=dashes, label=name)
    right.legend(frameon=False, fontsize=8)
    files.write_figure(path, figure, dpi=120)


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
    hits = sum(overlap > RIGHT for overlap in iou)
    title = f"{title}\n{hits} of {len(iou)} images right"
    figure, every = panels(len(places), 4, 2.75, 2.3, title)
    for axes, place in zip(every, places, strict=False):
        number = ranked[int(place)]
        example, ys = images.examples[number], found[number][1].tolist()
        axes.imshow(read_image(example.image))
        boxes = [images.boxes[number][y].tolist() for y in reversed(ys)]
        for box in boxes[:-1]:
            outline(axes, box, OTHERS, 1, "--")
        hit = iou[number] > RIGHT
        outline(axes, example.box, TRUE, 2.5, "-")
        outline(axes, boxes[-1], HIT if hit else MISS, 1.8, "-")
        axes.set_title(
            f"{'hit' if hit else 'MISS'}  {example.name}  IoU {iou[number]:.2f}",
            fontsize=8,
            color=HIT if hit else MISS,
            fontweight="normal" if hit else "bold",
        )
    styles = ((TRUE, "-", "true"), (HIT, "-", "predicted, IoU above 0.5"))
    styles += ((MISS, "-", "predicted, a miss"), (OTHERS, "--", "runners-up"))
    legend(figure, styles)
    files.write_figure(path, figure, dpi=110)


def boxes(
    path: Path,
    image: np.ndarray,
    found: Sequence[Sequence[float]],
    scores: Sequence[float],
) -> None:
    """An image with numbered boxes, the best one in colour, and their scores."""
    height, width = image.shape[:2]
    # a strip is drawn small rather than on a sheet without end
    tall = np.clip(height / width, *TALL)
    figure = Figure(figsize=(6, 6 * tall + 0.4), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.imshow(image)
    for rank in reversed(range(len(found))):
        colour = OTHERS if rank else HIT
        outline(axes, found[rank], colour, 1 if rank else 2.2, "--" if rank else "-")
        left, top = found[rank][:2]
        axes.text(
            left,
            top,
            f"{scores[rank]:.2f}",
            color="white",
            fontsize=8,
            va="top",
            bbox={"facecolor": colour, "edgecolor": "none", "pad": 1.5},
        )
    files.write_figure(path, figure, dpi=110)


def legend(figure: Figure, styles: Sequence[tuple[str, str, str]]) -> None:
    handles = [
        Rectangle((0, 0), 1, 1, fill=False, ec=colour, ls=dashes, lw=2, label=label)
        for colour, dashes, label in styles
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(styles), frameon=False
    )


def outline(
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
