"""Images with boxes: read, checked, downloaded.

In the layout of Pascal VOC ``ImageSets/Main/train.txt`` and ``val.txt`` (and
``test.txt`` if it is there) name images, one a line; ``JPEGImages`` holds them,
``Annotations`` an XML file for each. In that of figures and grounds ``gray`` or ``rgb``
holds images, ``figure_ground`` a mask of the same name for each.

An image is read as its EXIF orientation turns it. Boxes and masks count the turned
pixels, unless ``<size>`` or the size of the mask is that of the image before: then they
are turned as well. A ``<size>`` of 0 x 0 is unknown; any other one is an error.
"""

import codecs
import math
import os
import re
import urllib.error
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

import numpy as np
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring
from PIL import Image, ImageOps, UnidentifiedImageError
from torchvision.datasets import VOCDetection
from tqdm import tqdm

from corpora.text_files import content_of, lines_of
from runs import files

Box = tuple[float, float, float, float]
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")
ENCODING = re.compile(rb"(?:\xef\xbb\xbf)?\s*<\?xml\b[^>]*\bencoding=[\"']([\w.:-]+)")
CORNERS = ("xmin", "ymin", "xmax", "ymax")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp")
# of a line of a list, behind the name: whether the image has objects of a class
PRESENT = re.compile(r"\s+(-1|0|1)$")
# bytes of an annotation, far above what any has
LARGEST = 2**24
# of EXIF: those that exchange width and height
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)
# of Pillow: numbers whose range no file tells
DEEP = ("I", "F")
MASKS, PICTURES = "figure_ground", ("gray", "rgb")
# above this a pixel of a mask is figure
FIGURE = 127


class BadFile(ValueError):
    """One image or annotation that cannot be used; names the file."""


@dataclass(frozen=True)
class Example:
    """An image with exactly one box of the class that is looked for.

    The box is x1, y1, x2, y2 in pixels from the upper left corner, of which x2 and y2
    are the first ones outside.
    """

    name: str
    image: Path
    box: Box
    size: tuple[int, int]
    """Width and height of the image, in pixels."""


@dataclass
class Folder:
    """What was read of a folder."""

    lists: dict[str, list[Example]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    without: int = 0
    several: int = 0
    difficult: int = 0
    split: str = ""
    """How images were shared out where lists do not say it."""

    def summary(self, kind: str) -> str:
        """How many images there are, and what was left out."""
        counts = ", ".join(f"{len(own)} {part}" for part, own in self.lists.items())
        lines = [f"images with one {kind}: {counts}"]
        counts = f"{self.without} without, {self.several} with several"
        counts += f", {self.difficult} with one that is difficult"
        lines.append(f"left out: {counts}")
        if self.split:
            lines.append(self.split)
        if self.skipped:
            lines.append(f"skipped {len(self.skipped)} bad files or boxes:")
            lines += [f"  {message}" for message in self.skipped]
        return "\n".join(lines)


def read(folder: Path, kind: str, skip_bad: bool = False) -> Folder:
    """The images that have exactly one box of the class ``kind``, list by list.

    Images with one that is marked as difficult are left out: nothing is trained on it,
    nor scored.

    What is wrong with a file is an error, or with ``skip_bad`` a line in ``skipped``: a
    bad box of another class costs that box only, anything else the whole image.
    """
    main = folder / "ImageSets" / "Main"
    found, seen = Folder(), Counter[str]()
    if (folder / MASKS).is_dir() and not main.is_dir():
        return _read_masks(folder, found, refusal(found.skipped, skip_bad))
    if not main.is_dir():
        raise FileNotFoundError(
            f"{folder}: expected a folder in Pascal VOC layout, found no {main}. Give"
            f" the folder that holds ImageSets and JPEGImages, or {MASKS}"
        )
    for part in ("train", "val", "test"):
        path = main / f"{part}.txt"
        if part == "test" and not path.exists():
            continue
        found.lists[part] = _read_list(path, kind, found, seen, skip_bad)
    if not seen[kind]:
        there = ", ".join(f"{name} ({n})" for name, n in seen.most_common())
        raise ValueError(
            f"class: {kind!r} never occurs in {folder / 'Annotations'}; the classes"
            f" there are {there or 'none'}"
        )
    for part, examples in found.lists.items():
        if not examples:
            raise ValueError(
                f"{main / f'{part}.txt'}: expected images with exactly one box of class"
                f" {kind!r}, got none. List some that have one"
            )
    if "test" not in found.lists and len(found.lists["val"]) > 1:
        every = found.lists["val"]
        found.lists |= {"val": every[::2], "test": every[1::2]}
        found.split = "no list of test images: every second one of val is held out"
    return found


def refusal(skipped: list[str], skip_bad: bool) -> Callable[[BadFile], None]:
    """What is done with a bad file."""

    def bad(error: BadFile) -> None:
        if not skip_bad:
            raise ValueError(f"{error}. Mend it, or leave it out: --skip-bad")
        skipped.append(str(error))

    return bad


def _read_masks(folder: Path, found: Folder, bad: Callable[[BadFile], None]) -> Folder:
    """Boxes around masks. Of five images three train, one validates, one tests."""
    images = next((folder / x for x in PICTURES if (folder / x).is_dir()), None)
    if images is None:
        raise FileNotFoundError(
            f"{folder}: expected images in {' or '.join(PICTURES)} beside {MASKS},"
            " found neither. Rename their folder to one of these"
        )
    found.lists = {"train": [], "val": [], "test": []}
    found.split = "of every five masks three are to train on, one validates, one tests"
    paths = images_in(folder / MASKS)
    number = 0
    for mask in tqdm(paths, "masks", leave=False, disable=None):
        try:
            example = _around(images / mask.name, mask)
        except BadFile as error:
            bad(error)
            continue
        part = ("train", "train", "train", "val", "test")[number % 5]
        found.lists[part].append(example)
        number += 1
    if number < 5:
        raise ValueError(
            f"{folder / MASKS}: expected at least 5 masks that can be used, got"
            f" {number}"
        )
    return found


def _around(image: Path, mask: Path) -> Example:
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
    box = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    left, top, right, bottom = (float(x) for x in box)
    return Example(image.stem, image, (left, top, right, bottom), (width, height))


def _read_list(
    path: Path, kind: str, found: Folder, seen: Counter[str], skip_bad: bool
) -> list[Example]:
    bad = refusal(found.skipped, skip_bad)
    examples = []
    for place, name in listed(path):
        try:
            image, annotation = files_of(path.parents[2], name, place)
            boxes: dict[str, list[Object]] = {}
            for thing in objects(annotation, kind, bad, image):
                boxes.setdefault(thing.label, []).append(thing)
            seen.update(boxes.keys())
            own = boxes.get(kind, [])
            found.without += not own
            found.several += len(own) > 1
            if len(own) == 1 and own[0].difficult:
                found.difficult += 1
            elif len(own) == 1:
                examples.append(_inside(own[0].box, name, image))
        except BadFile as error:
            bad(error)
    return examples


def listed(path: Path) -> Iterator[tuple[str, str]]:
    """Place in the file and name of each image of a list."""
    what = "a list of images, one name a line"
    try:
        lines = lines_of(content_of(path, what), path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected {what}, got {error}") from error
    bar = tqdm(lines, f"reading {path.name}", leave=False, disable=None)
    for number, line in enumerate(bar, 1):
        if line.strip():
            name = line.strip()
            # a name may hold blanks, and end in a number
            whole = (path.parents[2] / "Annotations" / f"{name}.xml").is_file()
            yield f"{path}:{number}", name if whole else PRESENT.sub("", name)


def files_of(folder: Path, name: str, place: str) -> tuple[Path, Path]:
    """The image of a name and its annotation."""
    annotation = folder / "Annotations" / f"{name}.xml"
    endings = (*SUFFIXES, *(suffix.upper() for suffix in SUFFIXES))
    images = [folder / "JPEGImages" / f"{name}{ending}" for ending in endings]
    image = next((path for path in images if path.is_file()), None)
    if image is None or not annotation.is_file():
        missing = annotation if image else images[0]
        raise BadFile(f"{place}: expected the files of {name!r}, found no {missing}")
    return image, annotation


@dataclass(frozen=True)
class Object:
    """A labelled box of an annotation."""

    label: str
    box: Box
    difficult: bool = False


def objects(
    path: Path, kind: str | None, bad: Callable[[BadFile], None], image: Path
) -> list[Object]:
    """Those of the annotation of an image. Those of ``kind`` have to be right."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes")
        # nothing outside the file is fetched, and no entity is expanded
        root = fromstring(_xml(path.read_bytes()), forbid_dtd=True)
    except (
        *(OSError, ParseError, DefusedXmlException, ValueError, LookupError),
        RecursionError,
    ) as error:
        raise BadFile(
            f"{path}: expected plain XML without a document type: {error}"
        ) from error
    if root.tag != "annotation":
        raise BadFile(f"{path}: expected an <annotation>, got <{root.tag}>")
    found, turn = [], _turn_of(root, path, image)
    for number, thing in enumerate(root.iter("object"), 1):
        name = (thing.findtext("name") or "").strip()
        difficult = (thing.findtext("difficult") or "").strip() in ("1", "true")
        try:
            found.append(Object(name, turn(_box(thing)), difficult))
        except ValueError as error:
            who = f"object {number} ({name or 'without a name'})"
            wrong = BadFile(f"{path}: {who}: {error}")
            if name == kind:
                raise wrong from None
            bad(wrong)
    return found


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
    if right <= left or bottom <= top:
        state = "inverted" if right < left or bottom < top else "empty"
        raise ValueError(
            f"expected a box with an area, got an {state} one from ({left:g}, {top:g})"
            f" to ({right:g}, {bottom:g})"
        )
    # VOC counts pixels from 1 and the last ones belong to the box
    return left - 1, top - 1, right, bottom


def _turn_of(root: Element, path: Path, image: Path) -> Callable[[Box], Box]:
    """What turns the boxes of an annotation as the image is turned.

    Raises
    ------
    BadFile
        If the annotation is of an image of another size.
    """
    said = [
        (root.findtext(f"size/{side}") or "0").strip() for side in ("width", "height")
    ]
    width, height, orientation = size_of(image)
    before = (height, width) if orientation in SIDEWAYS else (width, height)
    try:
        size = tuple(round(float(x)) for x in said)
    except (ValueError, OverflowError):
        size = (-1, -1)
    if size in ((0, 0), (width, height)):
        return lambda box: box
    if size == before:
        return lambda box: _turned(box, *before, orientation)
    raise BadFile(
        f"{path}: expected the size of {image}, {width} x {height} pixels, got"
        f" {' x '.join(said)}. Write 0 x 0 if it is unknown"
    )


def _turned(box: Box, width: int, height: int, orientation: int) -> Box:
    """A box in pixels of an image that lies on its side, as EXIF turns it."""
    left, top, right, bottom = box
    if orientation in (7, 8):
        left, right = width - right, width - left
    if orientation in (6, 7):
        top, bottom = height - bottom, height - top
    return top, left, bottom, right


def _inside(box: Box, name: str, image: Path) -> Example:
    height, width = read_image(image).shape[:2]
    return Example(name, image, clipped(box, image, width, height), (width, height))


def clipped(box: Box, image: Path, width: int, height: int) -> Box:
    """The part of a box that is inside the image."""
    left, top = max(box[0], 0), max(box[1], 0)
    right, bottom = min(box[2], width), min(box[3], height)
    if right <= left or bottom <= top:
        raise BadFile(
            f"{image}: expected a box inside the image of {width} x {height} pixels,"
            f" got {box}"
        )
    return left, top, right, bottom


def images_in(folder: Path, suffixes: Collection[str] = SUFFIXES) -> list[Path]:
    """Files of images in a folder, by name; none that are hidden."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".")
    )


def read_image(path: Path, mode: str = "RGB") -> np.ndarray:
    """Pixels ``(height, width, 3)``, red first, turned by EXIF's orientation.

    With the mode ``L`` grey ones ``(height, width)``.
    """
    with _opened(path) as image:
        if image.mode.startswith(DEEP):
            raise ValueError(
                f"it has pixels of Pillow's mode {image.mode}: save it with 8 bits"
                " a channel"
            )
        return np.asarray(ImageOps.exif_transpose(image).convert(mode))


def read_mask(path: Path, image: Path, mode: str = "L") -> np.ndarray:
    """Pixels of the mask of an image, turned with it if it has its size before."""
    mask = read_image(path, mode)
    width, height, orientation = size_of(image)
    if orientation in SIDEWAYS and mask.shape[:2] == (width, height):
        with _opened(path) as before:
            exif = before.getexif()
            exif[ORIENTATION] = orientation
            turned = Image.fromarray(mask)
            turned.info["exif"] = exif.tobytes()
            return np.asarray(ImageOps.exif_transpose(turned))
    return mask


def size_of(path: Path) -> tuple[int, int, int]:
    """Width and height of an image as it is read, and EXIF's orientation."""
    with _opened(path) as image:
        orientation = image.getexif().get(ORIENTATION, 1)
        width, height = image.size
    if orientation in SIDEWAYS:
        width, height = height, width
    return width, height, orientation


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image, whose errors name the file."""
    try:
        # a pipe is not waited for
        if path.exists() and not path.is_file():
            raise ValueError("it is no regular file")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                yield image
    except FileNotFoundError as error:
        raise BadFile(f"{path}: expected an image, found no such file") from error
    except (
        UnidentifiedImageError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
        OSError,
        SyntaxError,
        ValueError,
    ) as error:
        said = " ".join(str(error).split())
        raise BadFile(
            f"{path}: expected an image, got a file that does not decode ({said})"
        ) from error


def cache_folder() -> Path:
    """``smoothsp/voc`` in ``XDG_CACHE_HOME``, or else in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "smoothsp" / "voc"


def download(folder: Path) -> Path:
    """VOC 2007 below ``folder``, through torchvision, which checks its sums."""
    unpacked = folder / "VOCdevkit" / "VOC2007"
    whole = folder / "complete"
    if whole.exists():
        return unpacked
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("trainval", "test"):
        try:
            VOCDetection(str(folder), year="2007", image_set=part, download=True)
        except (urllib.error.URLError, OSError, RuntimeError) as error:
            raise ConnectionError(
                f"download: expected to fetch VOC 2007 {part}, got {error}. Try again,"
                " or fetch it on a machine with a network and give --data"
                f" {unpacked.relative_to(folder)}"
            ) from error
    files.write(whole, lambda sink: sink.write(b"VOC 2007\n"))
    return unpacked
