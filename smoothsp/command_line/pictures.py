"""Commands of localisers and segmenters: predict and evaluate on images."""

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


def predict(model: Any, options: Namespace) -> None:
    """Write the boxes of images as JSON or into a folder, or their masks into one."""
    segments = type(model).__name__ == "Segmenter"
    if segments and options.out is None:
        raise ValueError(
            "out: expected a folder for the masks beside it, got none. Give --out DIR"
        )
    paths, skipped = _list_images(Path(options.file)), SkippedInputs(options.skip_bad)
    read = _read_images(paths, skipped)
    work = _write_masks if segments else _write_boxes
    done = work(model, options, read, _result_names(paths))
    skipped.end(done, "images")


def evaluate(model: Any, options: Namespace) -> None:
    """Print the scores of a model on a file or folder."""
    scores = model.evaluate(options.file)
    if options.json:
        sys.stdout.write(json_line(scores))
    else:
        sys.stdout.write(
            format_table(Path(options.file).name, {type(model).__name__: scores})
        )


def _write_boxes(
    model: Any,
    options: Namespace,
    images: Iterator[tuple[Path, Pixels]],
    names: dict[Path, str],
) -> int:
    # imported here: box_files needs torchvision, masks do not
    from smoothsp.models import box_files

    is_multi_object = model.objects == "several"
    predictions: list[tuple[str, Any]] = []

    def json_lines() -> Iterator[str]:
        for path, image in images:
            (prediction,) = model.predict([image], options.nbest)
            predictions.append((path.name, prediction))
            if options.out is None:
                yield json_line({"image": str(path), **json.loads(prediction.json())})
                continue
            write(
                options.out / f"{names[path]}.png",
                _draw_boxes(image, prediction, model.classes),
            )
            if is_multi_object:
                write(
                    options.out / f"{names[path]}.xml",
                    box_files.to_voc(path.name, prediction),
                )

    write_text(json_lines(), None)
    if options.out is not None:
        content = (
            box_files.to_coco(dict(predictions), model.classes)
            if is_multi_object
            else {
                "class": model.classes[0],
                "images": {
                    name: json.loads(prediction.json())
                    for name, prediction in predictions
                },
            }
        )
        write(options.out / "predictions.json", json.dumps(content, indent=1).encode())
        boxes = sum(len(prediction.boxes) for _, prediction in predictions)
        output_path = options.out / "predictions.json"
        print_stderr(f"{boxes} boxes in {len(predictions)} images; see {output_path}")
    return len(predictions)


def _write_masks(
    model: Any,
    options: Namespace,
    images: Iterator[tuple[Path, Pixels]],
    names: dict[Path, str],
) -> int:
    records = []
    for path, image in images:
        (mask,) = model.predict([image])
        mask = mask.astype(np.uint8)
        file_names = {
            "mask": f"{names[path]}-mask.png",
            "picture": f"{names[path]}.png",
        }
        write(options.out / file_names["mask"], _encode_png(255 * mask))
        write(options.out / file_names["picture"], _draw_contour(image, mask))
        records.append(
            {
                "image": str(path),
                "figure": float(mask.mean()),
                "box": _bounding_box(mask),
                **file_names,
            }
        )
    content = json.dumps({"images": records}, indent=1).encode()
    write(options.out / "predictions.json", content)
    print_stderr(f"{len(records)} images; see {options.out / 'predictions.json'}")
    return len(records)


def _list_images(source: Path) -> list[Path]:
    """Return the images of a folder, or the one image."""
    if source.is_dir():
        paths = list_images(source, SUFFIXES)
        if not paths:
            raise ValueError(
                f"{source}: expected images ({', '.join(SUFFIXES)}), got none"
            )
        return paths
    if not source.exists():
        raise FileNotFoundError(
            f"{source}: expected an image or a folder of images, got nothing"
        )
    return [source]


def _result_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return names for the results: the stem, or the full name if stems are equal."""
    stems = Counter(path.stem for path in paths)
    return {path: path.stem if stems[path.stem] == 1 else path.name for path in paths}


def _read_images(
    paths: Sequence[Path], skipped: SkippedInputs
) -> Iterator[tuple[Path, Pixels]]:
    for path in tqdm(paths, leave=False, disable=None):
        try:
            yield path, read_image(path)
        except BadFile as error:
            skipped.add(error)


def _draw_boxes(image: Pixels, prediction: Any, classes: Sequence[str]) -> bytes:
    """Return an image as PNG, with boxes in the colours of their classes and scores."""
    drawn = Image.fromarray(image)
    pen, width = ImageDraw.Draw(drawn), max(2, round(max(image.shape[:2]) / 250))
    for box, label, score in zip(
        prediction.boxes, prediction.labels, prediction.scores, strict=True
    ):
        colour = COLOURS[classes.index(label) % len(COLOURS)]
        pen.rectangle(box, outline=colour, width=width)
        corner, caption = (
            (box[0] + width + 1, box[1] + width + 1),
            f"{label} {score:.2f}",
        )
        pen.rectangle(pen.textbbox(corner, caption), fill=colour)
        pen.text(corner, caption, fill="white")
    return _encode_png(np.asarray(drawn))


def _draw_contour(image: Pixels, mask: Pixels) -> bytes:
    """Return an image as PNG, with the outline of its mask."""
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    width = max(1, round(max(image.shape[:2]) / 250))
    return _encode_png(cv2.drawContours(image.copy(), contours, -1, CONTOUR, width))


def _encode_png(pixels: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def _bounding_box(mask: Pixels) -> list[int] | None:
    """Return (left, top, right, bottom) of a mask, the last two exclusive; or None."""
    down, across = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(down):
        return None
    return [int(x) for x in (across[0], down[0], across[-1] + 1, down[-1] + 1)]
