"""Images with any number of labelled boxes: read, and written as XML and JSON.

The XML is that of Pascal VOC, which counts pixels from 1; the JSON that of COCO, whose
boxes are left, top, width and height, counted from 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from localization.folder import refusal
from smoothsp.data.boxes import CORNERS, read_box_splits
from smoothsp.data.examples import Box


@dataclass(frozen=True)
class Example:
    """An image, its labelled boxes, which may be none, and its width and height."""

    name: str
    image: Path
    boxes: tuple[Box, ...]
    labels: tuple[str, ...]
    size: tuple[int, int]
    scores: tuple[float, ...] = ()
    """Of predicted boxes."""
    difficult: tuple[tuple[str, Box], ...] = ()
    """Classes and boxes of objects that are neither trained on nor scored."""


@dataclass
class Folder:
    """Lists of images, and a message for each file or box left out."""

    lists: dict[str, list[Example]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def classes(self) -> list[str]:
        """Those of the training images, by name."""
        return sorted({name for own in self.lists["train"] for name in own.labels})

    def summary(self) -> str:
        """Count images and boxes, and name the bad files."""
        lines = []
        for part, own in self.lists.items():
            counts = Counter(name for example in own for name in example.labels)
            said = ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
            lines.append(f"{part}: {len(own)} images, {said or 'no boxes'}")
        if self.skipped:
            lines.append(f"skipped {len(self.skipped)} bad files or boxes:")
            lines += [f"  {message}" for message in self.skipped]
        return "\n".join(lines)


def read(
    folder: Path,
    skip_bad: bool = False,
    parts: Sequence[str] = ("train", "val", "test"),
) -> Folder:
    """All images of the lists of a folder in Pascal VOC layout.

    A bad file raises ``ValueError``, or with ``skip_bad`` adds a line to ``skipped``: a
    bad box is left out alone, for any other fault the whole image is.
    """
    found = Folder()
    bad = refusal(found.skipped, skip_bad)
    every = read_box_splits(folder, parts if len(parts) == 1 else None, bad=bad)
    for part, images in every.items():
        found.lists[part] = [
            Example(x.name, x.path, x.boxes, x.labels, x.size, (), x.difficult)
            for x in images
        ]
        if not any(image.labels for image in images):
            raise ValueError(
                f"{folder}, {part}: expected images with boxes, got none. List some"
                " that have boxes in Annotations"
            )
    return found


def voc(example: Example) -> bytes:
    """The annotation of an image as XML; scores, if any, as ``confidence``."""
    root = Element("annotation")
    SubElement(root, "filename").text = example.image.name
    size = SubElement(root, "size")
    for tag, value in zip(
        ("width", "height", "depth"), (*example.size, 3), strict=True
    ):
        SubElement(size, tag).text = str(value)
    scores = example.scores or (None,) * len(example.boxes)
    for box, label, score in zip(example.boxes, example.labels, scores, strict=True):
        thing = SubElement(root, "object")
        SubElement(thing, "name").text = label
        if score is not None:
            SubElement(thing, "confidence").text = f"{score:.6g}"
        corners = SubElement(thing, "bndbox")
        left, top, right, bottom = box
        for tag, value in zip(CORNERS, (left + 1, top + 1, right, bottom), strict=True):
            SubElement(corners, tag).text = f"{value:.6g}"
    indent(root)
    return tostring(root, encoding="utf-8") + b"\n"


def coco(examples: Sequence[Example], classes: Sequence[str]) -> dict[str, Any]:
    """Images, boxes and classes as ``pycocotools.coco.COCO`` reads them."""
    images: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    for number, example in enumerate(examples, 1):
        width, height = example.size
        about = {"id": number, "file_name": example.image.name}
        images.append(about | {"width": width, "height": height})
        scores = example.scores or (None,) * len(example.boxes)
        for box, label, score in zip(
            example.boxes, example.labels, scores, strict=True
        ):
            left, top, right, bottom = (round(x, 3) for x in box)
            across, down = round(right - left, 3), round(bottom - top, 3)
            own = {
                "id": len(boxes) + 1,
                "image_id": number,
                "category_id": classes.index(label) + 1,
                "bbox": [left, top, across, down],
                "area": across * down,
                "iscrowd": 0,
            }
            boxes.append(own if score is None else own | {"score": score})
    names = [{"id": n, "name": name} for n, name in enumerate(classes, 1)]
    return {"images": images, "annotations": boxes, "categories": names}
