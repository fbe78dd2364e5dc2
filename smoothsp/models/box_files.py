"""Writers of detected boxes: COCO JSON and Pascal VOC XML.

VOC counts pixels from 1; boxes of COCO are left, top, width and height, from 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from smoothsp.data.boxes import CORNERS
from smoothsp.models.localiser import Found

__all__ = ["to_coco", "to_voc"]


def to_voc(name: str, detected: Found) -> bytes:
    """Return a VOC annotation of an image as XML; scores are ``confidence``.

    Examples
    --------
    >>> from smoothsp.models.box_files import to_voc
    >>> found = localiser.predict(["dog.jpg"])[0]  # doctest: +SKIP
    >>> Path("dog.xml").write_bytes(to_voc("dog.jpg", found))  # doctest: +SKIP
    """
    root = Element("annotation")
    SubElement(root, "filename").text = name
    size = SubElement(root, "size")
    for tag, number in (
        ("width", detected.width),
        ("height", detected.height),
        ("depth", 3),
    ):
        SubElement(size, tag).text = str(number)
    for box, label, score in zip(
        detected.boxes, detected.labels, detected.scores, strict=True
    ):
        element = SubElement(root, "object")
        SubElement(element, "name").text = label
        SubElement(element, "confidence").text = f"{score:.6g}"
        corners = SubElement(element, "bndbox")
        left, top, right, bottom = box
        for tag, value in zip(CORNERS, (left + 1, top + 1, right, bottom), strict=True):
            SubElement(corners, tag).text = f"{value:.6g}"
    indent(root)
    content: bytes = tostring(root, encoding="utf-8")
    return content + b"\n"


def to_coco(
    detected_by_name: Mapping[str, Found], classes: Sequence[str]
) -> dict[str, Any]:
    """Return images, boxes and classes in the layout of ``pycocotools.coco.COCO``.

    Examples
    --------
    >>> from smoothsp.models.box_files import to_coco
    >>> found = dict(zip(names, localiser.predict(names)))  # doctest: +SKIP
    >>> text = json.dumps(to_coco(found, localiser.classes))  # doctest: +SKIP
    """
    images: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []
    for number, (name, detected) in enumerate(detected_by_name.items(), 1):
        image = {"id": number, "file_name": name}
        images.append(image | {"width": detected.width, "height": detected.height})
        for box, label, score in zip(
            detected.boxes, detected.labels, detected.scores, strict=True
        ):
            left, top, right, bottom = (round(x, 3) for x in box)
            box_width, box_height = round(right - left, 3), round(bottom - top, 3)
            annotation = {
                "id": len(boxes) + 1,
                "image_id": number,
                "category_id": classes.index(label) + 1,
                "bbox": [left, top, box_width, box_height],
                "area": box_width * box_height,
                "iscrowd": 0,
                "score": score,
            }
            boxes.append(annotation)
    names = [{"id": n, "name": name} for n, name in enumerate(classes, 1)]
    return {"images": images, "annotations": boxes, "categories": names}
