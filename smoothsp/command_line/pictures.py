"""Localisers and segmenters on images."""

import io
import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from tqdm import tqdm

from smoothsp.command_line.results import format_table, json_line, write, write_text
from smoothsp.command_line.terminal import SkippedInputs
from smoothsp.data.images import BadFile, list_images, read_image
from smoothsp.data.text_files import print_stderr

__all__ = ["evaluate", "predict"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#777777", "#cc79a7", "#e69f00", "#56b4e9")
CONTOUR = (232, 89, 12)

Pixels = NDArray[np.uint8]


def predict(model: Any, given: Namespace) -> None:
    """Write the boxes of images as JSON or into a folder, or their masks into one."""
    segments = type(model).__name__ == "Segmenter"
    if segments and given.out is None:
        raise ValueError(
            "out: expected a folder for the masks beside it, got none. Give --out DIR"
        )
    paths, failures = _images(Path(given.file)), SkippedInputs(given.skip_bad)
    read = _read(paths, failures)
    work = _masks if segments else _boxes
    done = work(model, given, read, _names(paths))
    failures.end(done, "images")


def evaluate(model: Any, given: Namespace) -> None:
    """Print the scores of a model on a file or folder."""
    scores = model.evaluate(given.file)
    if given.json:
        sys.stdout.write(json_line(scores))
    else:
        sys.stdout.write(
            format_table(Path(given.file).name, {type(model).__name__: scores})
        )


def _boxes(
    model: Any,
    given: Namespace,
    images: Iterator[tuple[Path, Pixels]],
    names: dict[Path, str],
) -> int:
    # it needs torchvision, which masks do not
    from smoothsp.models import box_files

    several = model.objects == "several"
    found: list[tuple[str, Any]] = []

    def lines() -> Iterator[str]:
        for path, image in images:
            (answer,) = model.predict([image], given.nbest)
            found.append((path.name, answer))
            if given.out is None:
                yield json_line({"image": str(path), **json.loads(answer.json())})
                continue
            write(
                given.out / f"{names[path]}.png", _drawn(image, answer, model.classes)
            )
            if several:
                write(
                    given.out / f"{names[path]}.xml",
                    box_files.to_voc(path.name, answer),
                )

    write_text(lines(), None)
    if given.out is not None:
        whole = (
            box_files.to_coco(dict(found), model.classes)
            if several
            else {
                "class": model.classes[0],
                "images": {name: json.loads(answer.json()) for name, answer in found},
            }
        )
        write(given.out / "predictions.json", json.dumps(whole, indent=1).encode())
        boxes = sum(len(answer.boxes) for _, answer in found)
        where = given.out / "predictions.json"
        print_stderr(f"{boxes} boxes in {len(found)} images; see {where}")
    return len(found)


def _masks(
    model: Any,
    given: Namespace,
    images: Iterator[tuple[Path, Pixels]],
    names: dict[Path, str],
) -> int:
    about = []
    for path, image in images:
        (mask,) = model.predict([image])
        mask = mask.astype(np.uint8)
        own = {"mask": f"{names[path]}-mask.png", "picture": f"{names[path]}.png"}
        write(given.out / own["mask"], _png(255 * mask))
        write(given.out / own["picture"], _with_contour(image, mask))
        about.append(
            {"image": str(path), "figure": float(mask.mean()), "box": _box(mask), **own}
        )
    content = json.dumps({"images": about}, indent=1).encode()
    write(given.out / "predictions.json", content)
    print_stderr(f"{len(about)} images; see {given.out / 'predictions.json'}")
    return len(about)


def _images(source: Path) -> list[Path]:
    if source.is_dir():
        found = list_images(source, SUFFIXES)
        if not found:
            raise ValueError(
                f"{source}: expected images ({', '.join(SUFFIXES)}), got none"
            )
        return found
    if not source.exists():
        raise FileNotFoundError(
            f"{source}: expected an image or a folder of images, got nothing"
        )
    return [source]


def _names(paths: Sequence[Path]) -> dict[Path, str]:
    """Names for the results of images: with their ending where it tells them apart."""
    stems = Counter(path.stem for path in paths)
    return {path: path.stem if stems[path.stem] == 1 else path.name for path in paths}


def _read(
    paths: Sequence[Path], failures: SkippedInputs
) -> Iterator[tuple[Path, Pixels]]:
    for path in tqdm(paths, leave=False, disable=None):
        try:
            yield path, read_image(path)
        except BadFile as error:
            failures.add(error)


def _drawn(image: Pixels, found: Any, classes: Sequence[str]) -> bytes:
    """PNG of an image with its boxes, a colour for each class, and their scores."""
    drawn = Image.fromarray(image)
    pen, width = ImageDraw.Draw(drawn), max(2, round(max(image.shape[:2]) / 250))
    for box, label, score in zip(found.boxes, found.labels, found.scores, strict=True):
        colour = COLOURS[classes.index(label) % len(COLOURS)]
        pen.rectangle(box, outline=colour, width=width)
        place, said = (box[0] + width + 1, box[1] + width + 1), f"{label} {score:.2f}"
        pen.rectangle(pen.textbbox(place, said), fill=colour)
        pen.text(place, said, fill="white")
    return _png(np.asarray(drawn))


def _with_contour(image: Pixels, mask: Pixels) -> bytes:
    found, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    width = max(1, round(max(image.shape[:2]) / 250))
    return _png(cv2.drawContours(image.copy(), found, -1, CONTOUR, width))


def _png(pixels: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def _box(mask: Pixels) -> list[int] | None:
    """Left, top, right and bottom of the figure, the last two outside it."""
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(down):
        return None
    return [int(x) for x in (across[0], down[0], across[-1] + 1, down[-1] + 1)]
