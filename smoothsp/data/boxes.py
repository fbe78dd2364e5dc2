"""Readers of images with labelled boxes: Pascal VOC, COCO, and foreground masks.

Pascal VOC: ``ImageSets/Main/train.txt``, ``val.txt`` and the optional ``test.txt``
list image names, one a line. ``JPEGImages`` holds the images, ``Annotations`` an XML
file for each. Foreground masks: ``gray`` or ``rgb`` holds images, ``figure_ground`` a
mask of the same name for each. COCO: a JSON file, with the images in its folder, in
``images``, or in a folder named like the JSON file.

Images are rotated by their EXIF orientation. Boxes and masks are in rotated pixels. If
the size in the annotation, or the size of the mask, equals that of the stored image,
boxes and mask are rotated too. A size of 0 x 0 means unknown; any other size is an
error.
"""

import codecs
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from xml.etree.ElementTree import Element, ParseError, fromstring

import numpy as np

from smoothsp.data.examples import AnnotatedImage, Box
from smoothsp.data.images import (
    SIDEWAYS_ORIENTATIONS,
    SUFFIXES,
    BadFile,
    list_images,
    read_image,
    read_image_size,
    read_mask,
)
from smoothsp.data.text_files import as_path, decode_lines, print_stderr, read_content

__all__ = [
    "CORNERS",
    "make_annotated_image",
    "read_annotation",
    "read_box_splits",
    "read_boxes",
]

ErrorHandler = Callable[[BadFile], None]
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
XML_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")
XML_ENCODING = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<\?xml\b[^>]*\bencoding=[\"']([\w.:-]+)"
)
CORNERS = ("xmin", "ymin", "xmax", "ymax")
# End of a line in an image list: 1 if the image has objects of the class, -1 if not,
# 0 if they are difficult.
PRESENCE_FLAG = re.compile(r"\s+(-1|0|1)$")
# Size limits in bytes, far above those of real files: edited files cannot fill memory.
MAX_VOC_BYTES, MAX_COCO_BYTES = 2**24, 2**30
MASK_FOLDER, IMAGE_FOLDERS = "figure_ground", ("gray", "rgb")
# Mask pixels above this value belong to the figure.
FIGURE_THRESHOLD, FIGURE_LABEL = 127, "figure"
SPLIT_NAMES = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}


def read_boxes(
    path: str | Path,
    *,
    part: str = "train",
    images: str | Path | None = None,
    kind: str | None = None,
    skip_bad: bool = False,
) -> list[AnnotatedImage]:
    """Read images with labelled boxes.

    Parameters
    ----------
    path
        A COCO file; a folder in the layout of Pascal VOC, or one of its lists of
        images; a folder with a COCO file for each part; or a folder of masks, of which
        three in five train, one validates and one tests.
    part
        The part of a folder: ``train``, ``val`` or ``test``.
    images
        The folder of the images of a COCO file, if it is neither beside the file nor
        called ``images``.
    kind
        A label whose boxes must be right: an image with a bad one is left out. Without
        it only the box is left out.
    skip_bad
        Leave out bad files and boxes, with a line on standard error for each.

    Raises
    ------
    ValueError
        For the first file or box that cannot be used.
    """
    path = as_path(path)
    bad = _warn_left_out if skip_bad else _raise_error
    if path.is_dir():
        return read_box_splits(path, (part,), kind=kind, bad=bad)[part]
    if path.suffix == ".txt" and path.parent.name == "Main":
        return _read_voc_list(path, kind, bad)
    return _read_coco(path, Path(images) if images else None, kind, bad)


def read_box_splits(
    folder: str | Path,
    parts: Sequence[str] | None = None,
    *,
    kind: str | None = None,
    bad: ErrorHandler | None = None,
) -> dict[str, list[AnnotatedImage]]:
    """Read the parts of a folder: ``train``, ``val``, and ``test`` if it is there.

    ``bad`` is called with each file or box that is left out; without it the first one
    is raised.
    """
    folder, bad = as_path(folder, "folder"), bad or _raise_error
    main, requested = folder / "ImageSets" / "Main", parts or tuple(SPLIT_NAMES)
    if main.is_dir():
        splits = {}
        for part in requested:
            path = main / f"{part}.txt"
            if parts or part != "test" or path.exists():
                splits[part] = _read_voc_list(path, kind, bad)
        return splits
    if (folder / MASK_FOLDER).is_dir():
        split = _read_mask_folder(folder, kind or FIGURE_LABEL, bad)
        return {part: split[part] for part in requested}
    files = {part: _find_coco_file(folder, part) for part in requested}
    missing = [part for part, path in files.items() if path is None]
    if missing and (parts or missing != ["test"]):
        raise FileNotFoundError(
            f"{folder}: expected a folder in Pascal VOC layout, with {MASK_FOLDER}, or"
            f" with a COCO file for each part, found no {main} and no JSON file of"
            f" {missing[0]}. Give the folder that holds ImageSets and JPEGImages"
        )
    return {
        part: _read_coco(path, None, kind, bad) for part, path in files.items() if path
    }


def _warn_left_out(error: BadFile) -> None:
    print_stderr(f"warning: left out: {error}")


def _raise_error(error: BadFile) -> None:
    raise ValueError(f"{error}. Mend it, or leave it out: skip_bad") from None


def make_annotated_image(
    path: Path,
    boxes: Sequence[Any],
    labels: Sequence[str],
    location: str,
    *,
    corners: bool = True,
    difficult: Sequence[tuple[str, Box]] = (),
) -> AnnotatedImage:
    """Return an annotated image, with boxes clipped to the image.

    Boxes are left, top, right, bottom, or with ``corners=False`` left, top, width,
    height. Errors begin with ``location``.
    """
    objects = [
        (
            label,
            False,
            _build_corner_box_reader(box)
            if corners
            else _build_coco_box_reader({"bbox": box}),
        )
        for label, box in zip(labels, boxes, strict=True)
    ]
    objects += [
        (label, True, _build_corner_box_reader(box)) for label, box in difficult
    ]

    def refuse(error: BadFile) -> None:
        raise ValueError(str(error)) from None

    try:
        return _build_annotated_image(path, location, (0, 0), objects, None, refuse)
    except BadFile as error:
        raise ValueError(f"{location}: {error}") from None


# --- masks ---


def _read_mask_folder(
    folder: Path, label: str, on_error: ErrorHandler
) -> dict[str, list[AnnotatedImage]]:
    """Return the bounding boxes of masks: of five images 3 train, 1 val, 1 test."""
    images = next((folder / x for x in IMAGE_FOLDERS if (folder / x).is_dir()), None)
    if images is None:
        raise FileNotFoundError(
            f"{folder}: expected images in {' or '.join(IMAGE_FOLDERS)} beside"
            f" {MASK_FOLDER}, found neither. Rename their folder to one of these"
        )
    examples = []
    for mask in list_images(folder / MASK_FOLDER):
        try:
            examples.append(_annotate_from_mask(images / mask.name, mask, label))
        except BadFile as error:
            on_error(error)
    if len(examples) < 5:
        raise ValueError(
            f"{folder / MASK_FOLDER}: expected at least 5 masks that can be used, got"
            f" {len(examples)}"
        )
    train = [x for n, x in enumerate(examples) if n % 5 < 3]
    return {"train": train, "val": examples[3::5], "test": examples[4::5]}


def _annotate_from_mask(image: Path, mask: Path, label: str) -> AnnotatedImage:
    is_figure = read_mask(mask, image, "RGB").max(2) > FIGURE_THRESHOLD
    rows, columns = (np.flatnonzero(is_figure.any(axis)) for axis in (1, 0))
    if not len(rows):
        raise BadFile(f"{mask}: expected a figure above {FIGURE_THRESHOLD}, got none")
    height, width = read_image(image).shape[:2]
    if is_figure.shape != (height, width):
        raise BadFile(
            f"{mask}: expected {width} x {height} pixels as in {image}, got"
            f" {is_figure.shape[1]} x {is_figure.shape[0]}"
        )
    left, top, right, bottom = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    box = (float(left), float(top), float(right), float(bottom))
    return AnnotatedImage(image, (box,), (label,), size=(width, height))


# --- any annotation ---

# Label, whether the object is difficult, and a function that parses its box. Boxes are
# parsed late, so that a malformed one is reported with the number of its object.
AnnotatedObjects = Sequence[tuple[str, bool, Callable[[], Box]]]


def _build_annotated_image(
    image: Path,
    annotation: Path | str,
    annotated_size: tuple[Any, Any],
    objects: AnnotatedObjects,
    kind: str | None,
    on_error: ErrorHandler,
) -> AnnotatedImage:
    """Return an image with its valid boxes; ``annotated_size`` is (width, height).

    ``on_error`` receives each invalid box, which is left out.
    """
    turn = _build_box_rotation(annotated_size, annotation, image)
    if kind is None or any(label == kind for label, _, _ in objects):
        # Decode the whole image, which finds truncated files; its header would not.
        read_image(image)
    width, height, _ = read_image_size(image)
    boxes: list[Box] = []
    labels: list[str] = []
    difficult: list[tuple[str, Box]] = []
    for number, (label, is_difficult, compute_box) in enumerate(objects, 1):
        prefix = f"{annotation}: object {number} ({label or 'without a name'}): "
        try:
            if not label:
                raise ValueError("expected a name, got none")
            box = _clip_to_image(turn(compute_box()), width, height)
        except ValueError as error:
            fault = BadFile(f"{prefix}{error}")
            if label == kind:
                raise fault from None
            on_error(fault)
            continue
        if is_difficult:
            difficult.append((label, box))
        else:
            boxes.append(box)
            labels.append(label)
    return AnnotatedImage(
        image, tuple(boxes), tuple(labels), tuple(difficult), (width, height)
    )


def _require_area(box: Box) -> Box:
    left, top, right, bottom = box
    if right <= left or bottom <= top:
        state = "inverted" if right < left or bottom < top else "empty"
        raise ValueError(
            f"expected a box with an area, got an {state} one from ({left:g}, {top:g})"
            f" to ({right:g}, {bottom:g})"
        )
    return box


def _clip_to_image(box: Box, width: int, height: int) -> Box:
    """Return the part of a box that is inside the image."""
    left, top = max(box[0], 0), max(box[1], 0)
    right, bottom = min(box[2], width), min(box[3], height)
    if right <= left or bottom <= top:
        raise ValueError(
            f"expected a box inside the image of {width} x {height} pixels, got {box}"
        )
    return left, top, right, bottom


def _build_box_rotation(
    annotated_size: tuple[Any, Any], annotation: Path | str, image: Path
) -> Callable[[Box], Box]:
    """Return a function from annotated boxes to boxes in rotated pixels.

    Raises
    ------
    BadFile
        If the annotation is of an image of another size.
    """
    width, height, orientation = read_image_size(image)
    stored_size = (
        (height, width) if orientation in SIDEWAYS_ORIENTATIONS else (width, height)
    )
    try:
        size = tuple(round(float(x)) for x in annotated_size)
    except (TypeError, ValueError, OverflowError):
        size = (-1, -1)
    if size in ((0, 0), (width, height)):
        return lambda box: box
    if size == stored_size:
        return lambda box: _rotate_box(box, *stored_size, orientation)
    raise BadFile(
        f"{annotation}: expected the size of {image}, {width} x {height} pixels, got"
        f" {' x '.join(map(str, annotated_size))}. Write 0 x 0 if it is unknown"
    )


def _rotate_box(box: Box, width: int, height: int, orientation: int) -> Box:
    """Rotate a box by an EXIF orientation that exchanges width and height.

    ``width`` and ``height`` are those of the stored image.
    """
    left, top, right, bottom = box
    # 5 is the transpose; 6 and 8 also mirror one axis, 7 both.
    if orientation in (7, 8):
        left, right = width - right, width - left
    if orientation in (6, 7):
        top, bottom = height - bottom, height - top
    return top, left, bottom, right


# --- Pascal VOC ---


def _read_voc_list(
    path: Path, kind: str | None, on_error: ErrorHandler
) -> list[AnnotatedImage]:
    """Read the images of a list."""
    examples, folder = [], path.parents[2]
    for location, name in _iter_image_list(path):
        try:
            image, annotation = _find_voc_files(folder, name, location)
            examples.append(read_annotation(annotation, image, kind=kind, bad=on_error))
        except BadFile as error:
            on_error(error)
    return examples


def read_annotation(
    path: Path, image: Path, *, kind: str | None = None, bad: ErrorHandler | None = None
) -> AnnotatedImage:
    """Read the VOC annotation of an image; options as for ``read_box_splits``."""
    root = _parse_voc_xml(path)
    width, height = (
        (root.findtext(f"size/{side}") or "0").strip() for side in ("width", "height")
    )
    objects = [_parse_voc_object(element) for element in root.iter("object")]
    return _build_annotated_image(
        image, path, (width, height), objects, kind, bad or _raise_error
    )


def _parse_voc_object(element: Element) -> tuple[str, bool, Callable[[], Box]]:
    difficult = (element.findtext("difficult") or "").strip() in ("1", "true")
    return (
        (element.findtext("name") or "").strip(),
        difficult,
        lambda: _parse_voc_box(element),
    )


def _iter_image_list(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the location in the file and the name of each listed image."""
    description = "a list of images, one name a line"
    try:
        lines = decode_lines(read_content(path, description), path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected {description}, got {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            name = line.strip()
            # A name may hold blanks and end in a number: cut the flag off only if there
            # is no annotation of the full name.
            has_annotation = (path.parents[2] / "Annotations" / f"{name}.xml").is_file()
            yield (
                f"{path}:{number}",
                name if has_annotation else PRESENCE_FLAG.sub("", name),
            )


def _find_voc_files(folder: Path, name: str, location: str) -> tuple[Path, Path]:
    """Return the paths of an image and its annotation."""
    if _escapes_folder(name):
        raise BadFile(f"{location}: expected a name within {folder}, got {name!r}")
    annotation = folder / "Annotations" / f"{name}.xml"
    suffixes = (*SUFFIXES, *(suffix.upper() for suffix in SUFFIXES))
    images = [folder / "JPEGImages" / f"{name}{ending}" for ending in suffixes]
    image = next((path for path in images if path.is_file()), None)
    if image is None or not annotation.is_file():
        missing = annotation if image else images[0]
        raise BadFile(f"{location}: expected the files of {name!r}, found no {missing}")
    return image, annotation


def _parse_voc_xml(path: Path) -> Element:
    """Parse an XML file and return its root, which must be <annotation>."""
    try:
        if path.stat().st_size > MAX_VOC_BYTES:
            raise ValueError(f"more than {MAX_VOC_BYTES:,} bytes")
        text = _decode_xml(path.read_bytes())
        # A DOCTYPE could declare entities that expand without bound, or external files.
        if "<!DOCTYPE" in text:
            raise ValueError("it has a <!DOCTYPE>")
        root = fromstring(text)
    except (*(OSError, ParseError, ValueError, LookupError, RecursionError),) as error:
        raise BadFile(
            f"{path}: expected plain XML without a document type: {error}"
        ) from error
    if root.tag != "annotation":
        raise BadFile(f"{path}: expected an <annotation>, got <{root.tag}>")
    return root


def _decode_xml(content: bytes) -> str:
    """Decode an XML file and cut off its declaration.

    Python decodes, since expat supports no multi-byte encodings but UTF-8 and UTF-16.
    """
    if content.startswith((*UTF_16_MARKS, b"<\0", b"\0<")):
        boms = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
        text = content.decode(boms.get(content[:2], "utf-16"))
    else:
        declaration = XML_ENCODING.match(content)
        encoding = declaration[1].decode() if declaration else "utf-8-sig"
        # The declaration is readable as ASCII, so UTF-16 in it is wrong.
        in_ascii = encoding.lower().startswith(("utf-16", "utf16", "ucs-2", "utf-8"))
        text = content.decode("utf-8-sig" if in_ascii else encoding)
    return XML_DECLARATION.sub("", text.lstrip("\ufeff"), count=1)


def _parse_voc_box(element: Element) -> Box:
    corners = []
    for corner in CORNERS:
        text = element.findtext(f"bndbox/{corner}")
        try:
            corners.append(float(text or ""))
        except ValueError:
            corners.append(math.nan)
        if not math.isfinite(corners[-1]):
            raise ValueError(f"expected a number as {corner}, got {text!r}")
    left, top, right, bottom = corners
    # VOC counts pixels from 1, and right and bottom are the last pixels inside.
    left, top, right, bottom = _require_area((left, top, right, bottom))
    return left - 1, top - 1, right, bottom


# --- COCO ---


def _find_coco_file(folder: Path, part: str) -> Path | None:
    """Find the COCO file of a part by common names, None if there is none."""
    for name in SPLIT_NAMES.get(part, (part,)):
        for pattern in ("annotations/*{}*.json", "*{}*.json", "{}*/*.json"):
            paths = sorted(folder.glob(pattern.format(name)))
            instance_files = [
                path for path in paths if path.name.startswith("instances")
            ]
            if len(instance_files or paths) > 1:
                names = ", ".join(str(path.relative_to(folder)) for path in paths)
                raise FileNotFoundError(
                    f"{folder}: expected one COCO file of the part {part}, got {names}."
                    " Give the file"
                )
            if paths:
                return (instance_files or paths)[0]
    return None


def _read_coco(
    path: Path, images: Path | None, kind: str | None, on_error: ErrorHandler
) -> list[AnnotatedImage]:
    """Read the images of a COCO file; boxes of crowds become difficult objects."""
    content = _load_coco_json(path)
    images_by_id, categories = (
        _index_rows_by_id(path, content, x) for x in ("images", "categories")
    )
    names = {
        key: str(row.get("name", "")).strip() for key, (_, row) in categories.items()
    }
    tables: dict[str, Mapping[Any, Any]] = {
        "image_id": images_by_id,
        "category_id": names,
    }
    objects_by_image: dict[Any, list[tuple[str, bool, Callable[[], Box]]]] = {}
    for number, row in enumerate(_require_rows(path, content, "annotations"), 1):
        is_difficult = bool(row.get("iscrowd") or row.get("ignore"))
        for key, table in tables.items():
            if not isinstance(row.get(key), int | str) or row[key] not in table:
                on_error(
                    BadFile(
                        f"{path}: annotation {number}: expected a listed id as {key},"
                        f" got {row.get(key)!r}"
                    )
                )
                break
        else:
            label = names[row["category_id"]]
            objects_by_image.setdefault(row["image_id"], []).append(
                (label, is_difficult, _build_coco_box_reader(row))
            )
    examples = []
    for image_id, (number, row) in images_by_id.items():
        try:
            image = _find_coco_image(path, images, row.get("file_name"), number)
            annotated_size = (row.get("width", 0), row.get("height", 0))
            location = f"{path}: image {number} ({image.name})"
            examples.append(
                _build_annotated_image(
                    image,
                    location,
                    annotated_size,
                    objects_by_image.get(image_id, []),
                    kind,
                    on_error,
                )
            )
        except BadFile as error:
            on_error(error)
    return examples


def _index_rows_by_id(
    path: Path, content: Mapping[str, Any], name: str
) -> dict[int | str, tuple[int, dict[str, Any]]]:
    rows_by_id: dict[int | str, tuple[int, dict[str, Any]]] = {}
    for number, row in enumerate(_require_rows(path, content, name), 1):
        key = row.get("id")
        if not isinstance(key, int | str) or key in rows_by_id:
            raise ValueError(
                f"{path}: {name} {number}: expected an id of its own, got {key!r}"
            )
        rows_by_id[key] = number, row
    return rows_by_id


def _load_coco_json(path: Path) -> dict[str, Any]:
    if path.is_file() and path.stat().st_size > MAX_COCO_BYTES:
        raise ValueError(
            f"{path}: expected a COCO file of at most {MAX_COCO_BYTES:,} bytes, got"
            " more"
        )
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path}: expected a COCO file or a folder of images and annotations, got"
            " nothing"
        ) from error
    # The decoder is recursive: deeply nested brackets exceed Python's recursion limit.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON as of COCO, got {error}") from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{path}: expected an object with images, annotations and categories, got"
            f" {type(content).__name__}"
        )
    return content


def _require_rows(
    path: Path, content: Mapping[str, Any], name: str
) -> list[dict[str, Any]]:
    rows = content.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            f"{path}: expected a list of objects as {name}, got"
            f" {type(rows).__name__ if name in content else 'none'}. Is it a COCO file"
            " of boxes?"
        )
    return rows


def _build_coco_box_reader(row: Mapping[str, Any]) -> Callable[[], Box]:
    def compute_box() -> Box:
        names = "bbox of left, top, width, height"
        left, top, width, height = _require_four_numbers(row.get("bbox"), names)
        return _require_area((left, top, left + width, top + height))

    return compute_box


def _build_corner_box_reader(box: Any) -> Callable[[], Box]:
    return lambda: _require_area(
        _require_four_numbers(box, "a box of left, top, right, bottom")
    )


def _require_four_numbers(values: Any, expected: str) -> Box:
    try:
        numbers = [float(x) for x in values if not isinstance(x, str | bool | np.bool_)]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) != 4 or len(values) != 4 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"expected {expected}, got {str(values)[:60]}")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _escapes_folder(name: str) -> bool:
    """Return whether a file name is absolute or climbs above its start with ``..``."""
    normalised = os.path.normpath(name.replace("\\", "/"))
    parts, drive = PurePosixPath(normalised).parts, PureWindowsPath(name).drive
    return bool(drive) or parts[0] in ("/", "//", "..")


def _find_coco_image(path: Path, images: Path | None, name: Any, number: int) -> Path:
    """Find an image by its ``file_name``, inside of known folders only."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise BadFile(f"{path}: image {number}: expected a file_name, got {name!r}")
    part = path.stem.removeprefix("instances_")
    grandparent = path.parents[1] if path.parent.name else path.parent
    subfolders = ("images", f"images/{part}", part)
    # The folder above is searched for relative names, but holds too much to admit
    # absolute names below it.
    nearby_folders = [
        path.parent,
        *(x / y for x in (path.parent, grandparent) for y in subfolders),
    ]
    folders = [*nearby_folders[:4], grandparent, *nearby_folders[4:]]
    searched = images or path.parent
    names = [name]
    if not _escapes_folder(name):
        normalised = os.path.normpath(name.replace("\\", "/"))
        names = [normalised, os.path.basename(normalised)]
    elif not os.path.isabs(name) or not any(
        Path(name).resolve().is_relative_to(folder.resolve())
        for folder in ([images] if images else nearby_folders)
    ):
        raise BadFile(
            f"{path}: image {number}: expected a file_name within {searched}, got"
            f" {name!r}"
        )
    for folder in [images] if images else folders:
        for candidate in names:
            if (folder / candidate).is_file():
                return folder / candidate
    raise BadFile(
        f"{path}: image {number}: expected the file {name!r} in {searched}, found none."
        " Give its folder as images"
    )
