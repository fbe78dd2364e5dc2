"""Figures of several objects in an image."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from localization.figures import TALL, legend, outline
from localization.several.annotations import Example
from localization.several.detection import Found
from localization.several.images import Images
from runs import files
from runs.axes import panels
from smoothsp.data.images import read_image

SHEET, TRUE = 6, "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#777777", "#cc79a7", "#e69f00", "#56b4e9")


def objects(
    path: Path, image: np.ndarray, example: Example, classes: Sequence[str]
) -> None:
    """An image with the boxes found in it, a colour each class, and their scores."""
    height, width = image.shape[:2]
    # a strip is drawn small rather than on a sheet without end
    tall = np.clip(height / width, *TALL)
    figure = Figure(figsize=(7, 7 * tall + 0.6), layout="constrained")
    axes = figure.subplots()
    labels = [classes.index(name) for name in example.labels]
    _draw(axes, image, example.boxes, labels, example.scores)
    legend(figure, _styles(classes))
    files.write_figure(path, figure, dpi=110)


def sheet(path: Path, images: Images, found: Sequence[Found], title: str) -> None:
    """Images of a list, evenly spaced: true boxes dashed, those that are sure drawn."""
    places = np.linspace(0, len(images) - 1, min(SHEET, len(images))).round()
    figure, every = panels(len(places), 3, 4, 3.1, title)
    for axes, place in zip(every, places, strict=False):
        number = int(place)
        example, own = images.examples[number], found[number]
        image = read_image(example.image)
        boxes = own.boxes[: own.sure].tolist()
        _draw(axes, image, boxes, own.labels.tolist(), ())
        for box, label in zip(
            *(x.tolist() for x in images.objects(number)), strict=True
        ):
            outline(axes, box, "k", 2.2, "-")
            outline(axes, box, COLOURS[label % len(COLOURS)], 1.4, ":")
        axes.set_title(
            f"{example.name}: {own.sure} found, {len(example.boxes)} true", fontsize=8
        )
    legend(figure, [*_styles(images.classes), ("k", ":", "true, dotted on black")])
    files.write_figure(path, figure, dpi=100)


def _draw(
    axes: Axes,
    image: np.ndarray,
    boxes: Sequence[Sequence[float]],
    labels: Sequence[int],
    scores: Sequence[float],
) -> None:
    axes.set_axis_off()
    axes.imshow(image)
    for number, box in enumerate(boxes):
        colour = COLOURS[labels[number] % len(COLOURS)]
        outline(axes, box, colour, 1.8, "-")
        if scores:
            axes.text(
                *box[:2],
                f"{scores[number]:.2f}",
                color="white",
                fontsize=6,
                va="top",
                bbox={"facecolor": colour, "edgecolor": "none", "pad": 1},
            )


def _styles(classes: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(COLOURS[n % len(COLOURS)], "-", name) for n, name in enumerate(classes)]
