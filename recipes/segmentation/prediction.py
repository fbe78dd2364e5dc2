"""Masks of new images: pictures with contours, masks, and a file of numbers."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import cv2
import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

from runs import files
from runs.failures import Failures
from segmentation import linear, training
from segmentation.folder import SUFFIXES, scaled
from segmentation.model_folder import Model
from segmentation.network import BACKBONES, Segmenter
from segmentation.superpixels import Graph, graph_of
from smoothsp.data.images import BadFile, images_in, read_image

CONTOUR = (232, 89, 12)


Decoder = Callable[[np.ndarray, Graph], np.ndarray]


def write(
    source: Path, model: Model, decode: Decoder, out: Path, skip_bad: bool = False
) -> dict[str, float]:
    """Segment an image or a folder of them; how many, and the mean share of figure.

    An image that cannot be read is named; the others are written first.
    """
    paths = _images(source)
    rows, shares, failures = [], [], Failures(skip_bad)
    for path in tqdm(paths, "segmenting", leave=False, disable=None):
        try:
            whole = read_image(path)
        except BadFile as error:
            failures.add(error)
            continue
        image = scaled(whole, model.side)
        graph = graph_of(image, model.words, model.superpixels)
        labels = decode(image, graph)
        size = whole.shape[1::-1]
        mask = cv2.resize(
            graph.paint(labels).astype(np.uint8), size, interpolation=cv2.INTER_NEAREST
        )
        names = _names(path)
        _png(out / names["mask"], 255 * mask)
        _png(out / names["picture"], _with_contour(whole, mask))
        shares.append(float(mask.mean()))
        rows.append({"image": str(path), "figure": shares[-1]} | _box(mask) | names)
    files.write_json(out / "predicted.json", {"images": rows})
    print(f"{len(rows)} images; see {out}: predicted.json, masks and pictures")
    failures.end(len(rows), "images")
    return {"images": float(len(rows)), "figure": float(np.mean(shares))}


def _images(source: Path) -> list[Path]:
    if source.is_dir():
        found = images_in(source, SUFFIXES)
        if not found:
            raise ValueError(
                f"predict: expected images in {source}, found none. Names of images end"
                f" in {', '.join(SUFFIXES)}"
            )
        written = Counter(name for path in found for name in _names(path).values())
        name, count = written.most_common(1)[0]
        if count > 1:
            raise ValueError(
                f"predict: expected images of different names in {source}, got"
                f" {count} whose results are called {name}. Rename one, or leave out"
                " what an earlier run wrote"
            )
        return found
    if not source.is_file():
        raise FileNotFoundError(
            f"predict: expected an image or a folder of images, found no {source}"
        )
    return [source]


def _names(image: Path) -> dict[str, str]:
    """What is written of an image."""
    return {"mask": f"{image.stem}-mask.png", "picture": f"{image.stem}.png"}


def decoder(model: Model) -> Decoder:
    """What finds the labels of superpixels of an image."""
    if model.kind == "linear":
        w = model.weights["w"].numpy()
        return lambda _, graph: linear.labels_of(w, [graph])[0]
    settings = model.about["settings"]
    loss = settings["loss"]
    if settings["backbone"] not in BACKBONES:
        raise ValueError(
            f"out: expected a known backbone, got {settings['backbone']!r}"
        )
    if loss not in get_args(training.Loss):
        raise ValueError(f"out: expected a known loss, got {loss!r}")
    network = Segmenter(settings["backbone"])
    network.load_state_dict(model.weights)
    network.to(torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def decode(image: np.ndarray, graph: Graph) -> np.ndarray:
        return training.labels_of(network, loss, [image], [graph], model.side)[0]

    return decode


def _with_contour(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    found, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    width = max(1, round(max(image.shape[:2]) / 250))
    return cv2.drawContours(image.copy(), found, -1, CONTOUR, width)


def _box(mask: np.ndarray) -> dict[str, list[int] | None]:
    """Left, top, right and bottom of the figure, the last two outside it."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        return {"box": None}
    ends = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    return {"box": [int(end) for end in ends]}


def _png(path: Path, pixels: np.ndarray) -> None:
    image = Image.fromarray(pixels)
    files.write(path, lambda sink: image.save(sink, format="PNG"))
