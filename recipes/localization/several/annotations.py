"""Images with any number of labelled boxes: read, and written as XML and JSON.

The XML is that of Pascal VOC, which counts pixels from 1; the JSON that of COCO, whose
boxes are left, top, width and height, counted from 0.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from localization import folder as localization_folder
from localization.folder import BadFile, Box, clipped, read_image


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
    main, found = folder / "ImageSets" / "Main", Folder()
    if not main.is_dir():
        raise FileNotFoundError(
            f"{folder}: expected a folder in Pascal VOC layout, found no {main}. Give"
            " the folder that holds ImageSets and JPEGImages"
        )
    bad = localization_folder.refusal(found.skipped, skip_bad)
    for part in parts:
        path = main / f"{part}.txt"
        if part == "test" and len(parts) > 1 and not path.exists():
            continue
        own = found.lists.setdefault(part, [])
        for place, name in localization_folder.listed(path):
            try:
                image, annotation = localization_folder.files_of(folder, name, place)
                height, width = read_image(image).shape[:2]
                boxes, labels, difficult = [], [], []
                for thing in localization_folder.objects(annotation, None, bad, image):
                    try:
                        box = clipped(thing.box, annotation, width, height)
                    except BadFile as error:
                        bad(error)
                        continue
                    if thing.difficult:
                        difficult.append((thing.label, box))
                        continue
                    boxes.append(box)
                    labels.append(thing.label)
                size = width, height
                example = Example(name, image, tuple(boxes), tuple(labels), size)
                own.append(replace(example, difficult=tuple(difficult)))
            except BadFile as error:
                bad(error)
        if not any(example.labels for example in own):
            raise ValueError(
                f"{path}: expected images with boxes, got none. List some that have"
                " boxes in Annotations"
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
        for tag, value in zip(
            localization_folder.CORNERS, (left + 1, top + 1, right, bottom), strict=True
        ):
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
