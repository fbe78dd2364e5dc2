"""Images with labelled boxes: Pascal VOC, COCO, and masks of one figure.

In the layout of Pascal VOC ``ImageSets/Main/train.txt`` and ``val.txt`` (and
``test.txt`` if it is there) name images, one a line; ``JPEGImages`` holds them,
``Annotations`` an XML file for each. In that of figures and grounds ``gray`` or ``rgb``
holds images, ``figure_ground`` a mask of the same name for each. COCO is a JSON file,
with the images in its folder, in ``images``, or in a folder of the JSON file's name.

An image is read as its EXIF orientation turns it. Boxes and masks count the turned
pixels, unless the size in the annotation, or that of the mask, is that of the image
before: then they are turned as well. A size of 0 x 0 is unknown; any other one is an
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

Bad = Callable[[BadFile], None]
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")
ENCODING = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\b[^>]*\bencoding=[\"']([\w.:-]+)")
CORNERS = ("xmin", "ymin", "xmax", "ymax")
# of a line of a list, behind the name: whether the image has objects of a class
PRESENT = re.compile(r"\s+(-1|0|1)$")
# bytes of an annotation of one image, and of a COCO file, far above what any has
LARGEST, LARGEST_COCO = 2**24, 2**30
MASKS, PICTURES = "figure_ground", ("gray", "rgb")
# above this a pixel of a mask is figure
FIGURE, FIGURE_LABEL = 127, "figure"
PARTS = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}


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
    bad = _warn if skip_bad else _refuse
    if path.is_dir():
        return read_box_splits(path, (part,), kind=kind, bad=bad)[part]
    if path.suffix == ".txt" and path.parent.name == "Main":
        return _voc_list(path, kind, bad)
    return _coco(path, Path(images) if images else None, kind, bad)


def read_box_splits(
    folder: str | Path,
    parts: Sequence[str] | None = None,
    *,
    kind: str | None = None,
    bad: Bad | None = None,
) -> dict[str, list[AnnotatedImage]]:
    """Read the parts of a folder: ``train``, ``val``, and ``test`` if it is there.

    ``bad`` is called with each file or box that is left out; without it the first one
    is raised.
    """
    folder, bad = as_path(folder, "folder"), bad or _refuse
    main, wanted = folder / "ImageSets" / "Main", parts or tuple(PARTS)
    if main.is_dir():
        found = {}
        for part in wanted:
            path = main / f"{part}.txt"
            if parts or part != "test" or path.exists():
                found[part] = _voc_list(path, kind, bad)
        return found
    if (folder / MASKS).is_dir():
        split = _masks(folder, kind or FIGURE_LABEL, bad)
        return {part: split[part] for part in wanted}
    files = {part: _coco_file(folder, part) for part in wanted}
    missing = [part for part, path in files.items() if path is None]
    if missing and (parts or missing != ["test"]):
        raise FileNotFoundError(
            f"{folder}: expected a folder in Pascal VOC layout, with {MASKS}, or with a"
            f" COCO file for each part, found no {main} and no JSON file of"
            f" {missing[0]}. Give the folder that holds ImageSets and JPEGImages"
        )
    return {part: _coco(path, None, kind, bad) for part, path in files.items() if path}


def _warn(error: BadFile) -> None:
    print_stderr(f"warning: left out: {error}")


def _refuse(error: BadFile) -> None:
    raise ValueError(f"{error}. Mend it, or leave it out: skip_bad") from None


def make_annotated_image(
    path: Path,
    boxes: Sequence[Any],
    labels: Sequence[str],
    where: str,
    *,
    corners: bool = True,
    difficult: Sequence[tuple[str, Box]] = (),
) -> AnnotatedImage:
    """Return an image with boxes that were given, cut off where it ends.

    With ``corners=False`` they are left, top, width and height.
    """
    objects = [
        (label, False, _corners(box) if corners else _coco_box({"bbox": box}))
        for label, box in zip(labels, boxes, strict=True)
    ]
    objects += [(label, True, _corners(box)) for label, box in difficult]

    def refuse(error: BadFile) -> None:
        raise ValueError(str(error)) from None

    try:
        return _annotated(path, where, (0, 0), objects, None, refuse)
    except BadFile as error:
        raise ValueError(f"{where}: {error}") from None


# --- masks ---


def _masks(folder: Path, label: str, bad: Bad) -> dict[str, list[AnnotatedImage]]:
    """Boxes around masks. Of five images three train, one validates, one tests."""
    images = next((folder / x for x in PICTURES if (folder / x).is_dir()), None)
    if images is None:
        raise FileNotFoundError(
            f"{folder}: expected images in {' or '.join(PICTURES)} beside {MASKS},"
            " found neither. Rename their folder to one of these"
        )
    found = []
    for mask in list_images(folder / MASKS):
        try:
            found.append(_around(images / mask.name, mask, label))
        except BadFile as error:
            bad(error)
    if len(found) < 5:
        raise ValueError(
            f"{folder / MASKS}: expected at least 5 masks that can be used, got"
            f" {len(found)}"
        )
    train = [x for n, x in enumerate(found) if n % 5 < 3]
    return {"train": train, "val": found[3::5], "test": found[4::5]}


def _around(image: Path, mask: Path, label: str) -> AnnotatedImage:
    figure = read_mask(mask, image, "RGB").max(2) > FIGURE
    rows, columns = (np.flatnonzero(figure.any(axis)) for axis in (1, 0))
    if not len(rows):
        raise BadFile(f"{mask}: expected a figure above {FIGURE}, got none")
    height, width = read_image(image).shape[:2]
    if figure.shape != (height, width):
        raise BadFile(
            f"{mask}: expected {width} x {height} pixels as in {image}, got"
            f" {figure.shape[1]} x {figure.shape[0]}"
        )
    left, top, right, bottom = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    box = (float(left), float(top), float(right), float(bottom))
    return AnnotatedImage(image, (box,), (label,), size=(width, height))


# --- any annotation ---

# Label, whether it is difficult, and what computes its box, of each object.
Objects = Sequence[tuple[str, bool, Callable[[], Box]]]


def _annotated(
    image: Path,
    annotation: Path | str,
    said: tuple[Any, Any],
    objects: Objects,
    kind: str | None,
    bad: Bad,
) -> AnnotatedImage:
    """Check the boxes of an image against it; ``said`` is its size there."""
    turn = _turn_of(said, annotation, image)
    if kind is None or any(label == kind for label, _, _ in objects):
        # a whole one decodes
        read_image(image)
    width, height, _ = read_image_size(image)
    boxes: list[Box] = []
    labels: list[str] = []
    difficult: list[tuple[str, Box]] = []
    for number, (label, hard, box_of) in enumerate(objects, 1):
        who = f"{annotation}: object {number} ({label or 'without a name'}): "
        try:
            if not label:
                raise ValueError("expected a name, got none")
            box = _clipped(turn(box_of()), width, height)
        except ValueError as error:
            wrong = BadFile(f"{who}{error}")
            if label == kind:
                raise wrong from None
            bad(wrong)
            continue
        if hard:
            difficult.append((label, box))
        else:
            boxes.append(box)
            labels.append(label)
    return AnnotatedImage(
        image, tuple(boxes), tuple(labels), tuple(difficult), (width, height)
    )


def _with_area(box: Box) -> Box:
    left, top, right, bottom = box
    if right <= left or bottom <= top:
        state = "inverted" if right < left or bottom < top else "empty"
        raise ValueError(
            f"expected a box with an area, got an {state} one from ({left:g}, {top:g})"
            f" to ({right:g}, {bottom:g})"
        )
    return box


def _clipped(box: Box, width: int, height: int) -> Box:
    """Return the part of a box that is inside the image."""
    left, top = max(box[0], 0), max(box[1], 0)
    right, bottom = min(box[2], width), min(box[3], height)
    if right <= left or bottom <= top:
        raise ValueError(
            f"expected a box inside the image of {width} x {height} pixels, got {box}"
        )
    return left, top, right, bottom


def _turn_of(
    said: tuple[Any, Any], annotation: Path | str, image: Path
) -> Callable[[Box], Box]:
    """Return the function that turns the boxes of an annotation with the image.

    Raises
    ------
    BadFile
        If the annotation is of an image of another size.
    """
    width, height, orientation = read_image_size(image)
    before = (
        (height, width) if orientation in SIDEWAYS_ORIENTATIONS else (width, height)
    )
    try:
        size = tuple(round(float(x)) for x in said)
    except (TypeError, ValueError, OverflowError):
        size = (-1, -1)
    if size in ((0, 0), (width, height)):
        return lambda box: box
    if size == before:
        return lambda box: _turned(box, *before, orientation)
    raise BadFile(
        f"{annotation}: expected the size of {image}, {width} x {height} pixels, got"
        f" {' x '.join(map(str, said))}. Write 0 x 0 if it is unknown"
    )


def _turned(box: Box, width: int, height: int, orientation: int) -> Box:
    """A box in pixels of an image that lies on its side, as EXIF turns it."""
    left, top, right, bottom = box
    if orientation in (7, 8):
        left, right = width - right, width - left
    if orientation in (6, 7):
        top, bottom = height - bottom, height - top
    return top, left, bottom, right


# --- Pascal VOC ---


def _voc_list(path: Path, kind: str | None, bad: Bad) -> list[AnnotatedImage]:
    """Read the images of a list."""
    found, folder = [], path.parents[2]
    for place, name in _listed(path):
        try:
            image, annotation = _files_of(folder, name, place)
            found.append(read_annotation(annotation, image, kind=kind, bad=bad))
        except BadFile as error:
            bad(error)
    return found


def read_annotation(
    path: Path, image: Path, *, kind: str | None = None, bad: Bad | None = None
) -> AnnotatedImage:
    """Read the XML of one image; the options are those of ``read_box_splits``."""
    root = _root_of(path)
    width, height = (
        (root.findtext(f"size/{side}") or "0").strip() for side in ("width", "height")
    )
    objects = [_voc_object(thing) for thing in root.iter("object")]
    return _annotated(image, path, (width, height), objects, kind, bad or _refuse)


def _voc_object(thing: Element) -> tuple[str, bool, Callable[[], Box]]:
    difficult = (thing.findtext("difficult") or "").strip() in ("1", "true")
    return (thing.findtext("name") or "").strip(), difficult, lambda: _box(thing)


def _listed(path: Path) -> Iterator[tuple[str, str]]:
    """Place in the file and name of each image of a list."""
    what = "a list of images, one name a line"
    try:
        lines = decode_lines(read_content(path, what), path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected {what}, got {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            name = line.strip()
            # a name may hold blanks, and end in a number
            whole = (path.parents[2] / "Annotations" / f"{name}.xml").is_file()
            yield f"{path}:{number}", name if whole else PRESENT.sub("", name)


def _files_of(folder: Path, name: str, place: str) -> tuple[Path, Path]:
    """The image of a name and its annotation."""
    if _leads_out(name):
        raise BadFile(f"{place}: expected a name within {folder}, got {name!r}")
    annotation = folder / "Annotations" / f"{name}.xml"
    endings = (*SUFFIXES, *(suffix.upper() for suffix in SUFFIXES))
    images = [folder / "JPEGImages" / f"{name}{ending}" for ending in endings]
    image = next((path for path in images if path.is_file()), None)
    if image is None or not annotation.is_file():
        missing = annotation if image else images[0]
        raise BadFile(f"{place}: expected the files of {name!r}, found no {missing}")
    return image, annotation


def _root_of(path: Path) -> Element:
    """Return the <annotation> of a file."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes")
        text = _xml(path.read_bytes())
        # only this declares entities, and names files to be fetched
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


def _xml(content: bytes) -> str:
    """The text of an XML file without its declaration.

    expat decodes no encoding of several bytes a letter but UTF-8 and UTF-16.
    """
    if content.startswith((*UTF_16, b"<\0", b"\0<")):
        boms = {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
        text = content.decode(boms.get(content[:2], "utf-16"))
    else:
        said = ENCODING.match(content)
        encoding = said[1].decode() if said else "utf-8-sig"
        # whoever says UTF-16 in ASCII does not write it
        in_ascii = encoding.lower().startswith(("utf-16", "utf16", "ucs-2", "utf-8"))
        text = content.decode("utf-8-sig" if in_ascii else encoding)
    return DECLARATION.sub("", text.lstrip("\ufeff"), count=1)


def _box(thing: Element) -> Box:
    corners = []
    for corner in CORNERS:
        text = thing.findtext(f"bndbox/{corner}")
        try:
            corners.append(float(text or ""))
        except ValueError:
            corners.append(math.nan)
        if not math.isfinite(corners[-1]):
            raise ValueError(f"expected a number as {corner}, got {text!r}")
    left, top, right, bottom = corners
    # VOC counts pixels from 1 and the last ones belong to the box
    left, top, right, bottom = _with_area((left, top, right, bottom))
    return left - 1, top - 1, right, bottom


# --- COCO ---


def _coco_file(folder: Path, part: str) -> Path | None:
    """Return the JSON file of a part, by the names that tools give it."""
    for name in PARTS.get(part, (part,)):
        for pattern in ("annotations/*{}*.json", "*{}*.json", "{}*/*.json"):
            found = sorted(folder.glob(pattern.format(name)))
            boxes = [path for path in found if path.name.startswith("instances")]
            if len(boxes or found) > 1:
                names = ", ".join(str(path.relative_to(folder)) for path in found)
                raise FileNotFoundError(
                    f"{folder}: expected one COCO file of the part {part}, got {names}."
                    " Give the file"
                )
            if found:
                return (boxes or found)[0]
    return None


def _coco(
    path: Path, images: Path | None, kind: str | None, bad: Bad
) -> list[AnnotatedImage]:
    """Read the images of a COCO file, of which boxes of crowds are difficult."""
    whole = _coco_object(path)
    known, categories = (_by_id(path, whole, x) for x in ("images", "categories"))
    names = {
        key: str(row.get("name", "")).strip() for key, (_, row) in categories.items()
    }
    tables: dict[str, Mapping[Any, Any]] = {"image_id": known, "category_id": names}
    own: dict[Any, list[tuple[str, bool, Callable[[], Box]]]] = {}
    for number, row in enumerate(_rows(path, whole, "annotations"), 1):
        hard = bool(row.get("iscrowd") or row.get("ignore"))
        for key, table in tables.items():
            if not isinstance(row.get(key), int | str) or row[key] not in table:
                bad(
                    BadFile(
                        f"{path}: annotation {number}: expected an id that is there as"
                        f" {key}, got {row.get(key)!r}"
                    )
                )
                break
        else:
            label = names[row["category_id"]]
            own.setdefault(row["image_id"], []).append((label, hard, _coco_box(row)))
    found = []
    for number_of_id, (number, row) in known.items():
        try:
            image = _image_of(path, images, row.get("file_name"), number)
            said = (row.get("width", 0), row.get("height", 0))
            where = f"{path}: image {number} ({image.name})"
            found.append(
                _annotated(image, where, said, own.get(number_of_id, []), kind, bad)
            )
        except BadFile as error:
            bad(error)
    return found


def _by_id(
    path: Path, whole: Mapping[str, Any], name: str
) -> dict[int | str, tuple[int, dict[str, Any]]]:
    found: dict[int | str, tuple[int, dict[str, Any]]] = {}
    for number, row in enumerate(_rows(path, whole, name), 1):
        key = row.get("id")
        if not isinstance(key, int | str) or key in found:
            raise ValueError(
                f"{path}: {name} {number}: expected an id of its own, got {key!r}"
            )
        found[key] = number, row
    return found


def _coco_object(path: Path) -> dict[str, Any]:
    if path.is_file() and path.stat().st_size > LARGEST_COCO:
        raise ValueError(
            f"{path}: expected a COCO file of at most {LARGEST_COCO:,} bytes, got more"
        )
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path}: expected a COCO file or a folder of images and annotations, got"
            " nothing"
        ) from error
    # brackets may nest deeper than Python calls itself
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON as of COCO, got {error}") from error
    if not isinstance(found, dict):
        raise ValueError(
            f"{path}: expected an object with images, annotations and categories, got"
            f" {type(found).__name__}"
        )
    return found


def _rows(path: Path, whole: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    rows = whole.get(name)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(
            f"{path}: expected a list of objects as {name}, got"
            f" {type(rows).__name__ if name in whole else 'none'}. Is it a COCO file of"
            " boxes?"
        )
    return rows


def _coco_box(row: Mapping[str, Any]) -> Callable[[], Box]:
    def box() -> Box:
        names = "bbox of left, top, width, height"
        left, top, width, height = _four(row.get("bbox"), names)
        return _with_area((left, top, left + width, top + height))

    return box


def _corners(given: Any) -> Callable[[], Box]:
    return lambda: _with_area(_four(given, "a box of left, top, right, bottom"))


def _four(given: Any, names: str) -> Box:
    try:
        found = [float(x) for x in given if not isinstance(x, str | bool | np.bool_)]
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != 4 or len(given) != 4 or not all(map(math.isfinite, found)):
        raise ValueError(f"expected {names}, got {str(given)[:60]}")
    return found[0], found[1], found[2], found[3]


def _leads_out(name: str) -> bool:
    """Return whether a name of a file is absolute, or above where it begins."""
    plain = os.path.normpath(name.replace("\\", "/"))
    parts, drive = PurePosixPath(plain).parts, PureWindowsPath(name).drive
    return bool(drive) or parts[0] in ("/", "//", "..")


def _image_of(path: Path, images: Path | None, name: Any, number: int) -> Path:
    """Find an image by its name; no name leads out of the folders."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise BadFile(f"{path}: image {number}: expected a file_name, got {name!r}")
    part = path.stem.removeprefix("instances_")
    above = path.parents[1] if path.parent.name else path.parent
    below = ("images", f"images/{part}", part)
    # an absolute name does not choose among all that lies above
    own = [path.parent, *(x / y for x in (path.parent, above) for y in below)]
    folders = [*own[:4], above, *own[4:]]
    looked = images or path.parent
    names = [name]
    if not _leads_out(name):
        plain = os.path.normpath(name.replace("\\", "/"))
        names = [plain, os.path.basename(plain)]
    elif not os.path.isabs(name) or not any(
        Path(name).resolve().is_relative_to(folder.resolve())
        for folder in ([images] if images else own)
    ):
        raise BadFile(
            f"{path}: image {number}: expected a file_name within {looked}, got"
            f" {name!r}"
        )
    for folder in [images] if images else folders:
        for one in names:
            if (folder / one).is_file():
                return folder / one
    raise BadFile(
        f"{path}: image {number}: expected the file {name!r} in {looked}, found none."
        " Give its folder as images"
    )
