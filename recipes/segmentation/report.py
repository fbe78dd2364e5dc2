"""Tables, figures and numbers of ``horse_segmentation.py``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from runs import files
from runs.axes import limit_percentages, limit_y, panels, style_axes
from segmentation.examples import Part
from smoothsp.data import MaskedImage
from smoothsp.models.segmenter import iou

TRUE, PREDICTED = "#2ca02c", "#e8590c"
SHEET, COLUMNS = 12, 4
# Radii of the ellipse, in heights and widths of the image; the area is 25 % of it.
RADII = (0.26, 0.31)
# Pixels of the map into which training masks are averaged.
SHAPE = (64, 64)
Row = dict[str, Any]


def score_tables(
    sets: dict[str, Part], masks_by_part: dict[str, dict[str, list[np.ndarray]]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by part and by what made the masks: baselines, ours, the best possible.

    ``found`` has masks by part and name.
    """
    rows = {}
    for part, masks in masks_by_part.items():
        part_images = sets[part]
        all_masks = baselines(sets["train"].examples, part_images.examples) | masks
        all_masks["best of these superpixels"] = part_images.masks(
            part_images.gold_labels
        )
        rows[part] = {
            name: part_images.scores(each) for name, each in all_masks.items()
        }
    return rows


def baselines(train: list[MaskedImage], examples: list[MaskedImage]) -> dict[str, list]:
    """Masks that look at no image: of nothing, of an ellipse, of training masks."""
    mean = np.mean([_resize_mask(x.mask, SHAPE[::-1]) for x in train], 0)
    sizes = [example.mask.shape for example in examples]
    return {
        "all background": [np.zeros(size, bool) for size in sizes],
        "ellipse": [_ellipse(size) for size in sizes],
        "mean mask": [_resize_mask(mean, size[::-1]) > 0.5 for size in sizes],
    }


def _ellipse(size: tuple[int, ...]) -> np.ndarray:
    rows, columns = ((np.arange(x) + 0.5) / x - 0.5 for x in size)
    return (rows[:, None] / RADII[0]) ** 2 + (columns / RADII[1]) ** 2 < 1


def _resize_mask(mask: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    return cv2.resize(mask.astype(np.float32), size, interpolation=cv2.INTER_AREA)


def to_markdown(rows: dict[str, dict[str, dict[str, float]]]) -> str:
    """As Markdown, in percent."""
    parts = list(rows)
    heads = [f"{part} {name}" for part in parts for name in ("IoU", "pixels")]
    lines = [f"| | {' | '.join(heads)} |", "|" + " --- |" * (1 + len(heads))]
    for name in rows[parts[0]]:
        cells = [
            f"{100 * rows[part][name][score]:.1f}"
            for part in parts
            for score in ("iou", "accuracy")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def sheet(
    path: Path, examples: list[MaskedImage], masks: list[np.ndarray], title: str
) -> None:
    """Images from the best to the worst, evenly spaced, with both contours."""
    good = [iou(x.mask, mask) for x, mask in zip(examples, masks, strict=True)]
    ranked = sorted(range(len(examples)), key=lambda n: -good[n])
    ranks = np.linspace(0, len(ranked) - 1, min(SHEET, len(ranked))).round()
    figure, all_axes = panels(len(ranks), COLUMNS, 2.75, 2, title)
    for axes, rank in zip(all_axes, ranks, strict=False):
        number = ranked[int(rank)]
        axes.imshow(examples[number].image)
        contour(axes, examples[number].mask, TRUE)
        contour(axes, masks[number], PREDICTED)
        axes.set_title(f"{examples[number].name}  IoU {good[number]:.2f}", fontsize=8)
    handles = [Line2D([], [], color=TRUE, label="mask")]
    handles += [Line2D([], [], color=PREDICTED, label="found")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    save(figure, path)


def contour(axes: Axes, mask: np.ndarray, colour: str) -> None:
    """The border of a mask, closed at the border of the image."""
    padded = np.pad(mask, 1).astype(float)
    ends = np.arange(-1, mask.shape[1] + 1), np.arange(-1, mask.shape[0] + 1)
    if mask.any():
        axes.contour(*ends, padded, [0.5], colors=colour, linewidths=1.4)
    axes.set(xlim=(-0.5, mask.shape[1] - 0.5), ylim=(mask.shape[0] - 0.5, -0.5))


def draw_path(path: Path, rows: Sequence[Row], chosen: float, title: str) -> None:
    """IoU, objective with its certificate, and cost, from the largest lambda down."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    figure.suptitle(title, fontsize=10)
    iou_axes, objective_axes, calls_axes = figure.subplots(1, 3)
    lams = [row["lam"] for row in rows]
    for part, colour in (("train", "#777777"), ("dev", "#2a6f97")):
        values = [100 * row[f"{part}_iou"] for row in rows]
        iou_axes.plot(lams, values, "o-", color=colour, ms=3, label=part)
    iou_axes.axvline(chosen, color=PREDICTED, lw=1, label="chosen on dev")
    iou_axes.legend(frameon=False, fontsize=8)
    primal = np.array([row["primal"] for row in rows])
    gaps = np.array([row["gap"] for row in rows])
    objective_axes.plot(lams, primal, "o-", color="#2a6f97", ms=3, label="objective")
    # seen of a single lambda, too
    objective_axes.vlines(lams, primal - gaps, primal, color="#2a6f97", lw=1)
    objective_axes.fill_between(
        lams, primal - gaps, primal, alpha=0.3, label="its minimum is here"
    )
    objective_axes.legend(frameon=False, fontsize=8)
    calls_axes.plot(lams, [row["calls"] for row in rows], "o-", color="#2a6f97", ms=3)
    names = ("IoU (%)", "objective", "oracle calls / n so far")
    for axes, name in zip((iou_axes, objective_axes, calls_axes), names, strict=True):
        axes.set(xscale="log", xlabel="lambda", ylabel=name)
        axes.invert_xaxis()
        style_axes(axes)
    limit_percentages(iou_axes)
    limit_y(calls_axes)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    files.write_figure(path, figure, dpi=110)
