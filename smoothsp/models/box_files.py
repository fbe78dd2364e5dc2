"""Boxes found in images as the JSON of COCO and the XML of Pascal VOC.

VOC counts pixels from 1; boxes of COCO are left, top, width and height, counted from 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from smoothsp.data.boxes import CORNERS
from smoothsp.models.localiser import Found

__all__ = ["to_coco", "to_voc"]


def to_voc(name: str, found: Found) -> bytes:
    """Annotation of an image of this name; scores are ``confidence``.

    Examples
    --------
    >>> from smoothsp.models.box_files import voc
    >>> found = localiser.predict(["dog.jpg"])[0]  # doctest: +SKIP
    >>> Path("dog.xml").write_bytes(voc("dog.jpg", found))  # doctest: +SKIP
    """
    root = Element("annotation")
    SubElement(root, "filename").text = name
    size = SubElement(root, "size")
    for tag, number in (("width", found.width), ("height", found.height), ("depth", 3)):
        SubElement(size, tag).text = str(number)
    for box, label, score in zip(found.boxes, found.labels, found.scores, strict=True):
        thing = SubElement(root, "object")
        SubElement(thing, "name").text = label
        SubElement(thing, "confidence").text = f"{score:.6g}"
        corners = SubElement(thing, "bndbox")
        left, top, right, bottom = box
        for tag, value in zip(CORNERS, (left + 1, top + 1, right, bottom), strict=True):
            SubElement(corners, tag).text = f"{value:.6g}"
    indent(root)
    written: bytes = tostring(root, encoding="utf-8")
    return written + b"\n"


def to_coco(found: Mapping[str, Found], classes: Sequence[str]) -> dict[str, Any]:
    """Images by name, boxes and classes as ``pycocotools.coco.COCO`` reads them.

    Examples
    --------
    >>> from smoothsp.models.box_files import coco
    >>> found = dict(zip(names, localiser.predict(names)))  # doctest: +SKIP
    >>> text = json.dumps(coco(found, localiser.classes))  # doctest: +SKIP
    """
    images: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    for number, (name, one) in enumerate(found.items(), 1):
        about = {"id": number, "file_name": name}
        images.append(about | {"width": one.width, "height": one.height})
        for box, label, score in zip(one.boxes, one.labels, one.scores, strict=True):
            left, top, right, bottom = (round(x, 3) for x in box)
            across, down = round(right - left, 3), round(bottom - top, 3)
            own = {
                "id": len(boxes) + 1,
                "image_id": number,
                "category_id": classes.index(label) + 1,
                "bbox": [left, top, across, down],
                "area": across * down,
                "iscrowd": 0,
                "score": score,
            }
            boxes.append(own)
    names = [{"id": n, "name": name} for n, name in enumerate(classes, 1)]
    return {"images": images, "annotations": boxes, "categories": names}
