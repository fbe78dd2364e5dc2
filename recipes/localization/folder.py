"""Images with one box: chosen, counted; downloads."""

import os
import urllib.error
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torchvision.datasets import VOCDetection

from runs import files
from smoothsp.data.boxes import read_box_splits
from smoothsp.data.examples import Box
from smoothsp.data.images import BadFile


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
    found, seen = Folder(), Counter[str]()
    bad = refusal(found.skipped, skip_bad)
    for part, images in read_box_splits(folder, kind=kind, bad=bad).items():
        own = found.lists.setdefault(part, [])
        for image in images:
            hard = [label for label, _ in image.difficult]
            seen.update({*image.labels, *hard})
            count = [*image.labels, *hard].count(kind)
            found.without += not count
            found.several += count > 1
            if count == 1 and kind in hard:
                found.difficult += 1
            elif count == 1:
                box = image.boxes[image.labels.index(kind)]
                own.append(Example(image.name, image.path, box, image.size))
    if not seen[kind]:
        there = ", ".join(f"{name} ({n})" for name, n in seen.most_common())
        raise ValueError(
            f"class: {kind!r} never occurs in {folder}; the classes there are"
            f" {there or 'none'}"
        )
    for part, examples in found.lists.items():
        if not examples:
            raise ValueError(
                f"{folder}, {part}: expected images with exactly one box of class"
                f" {kind!r}, got none. List some that have one"
            )
    if "test" not in found.lists and len(found.lists["val"]) > 1:
        every = found.lists["val"]
        found.lists |= {"val": every[::2], "test": every[1::2]}
        found.split = "no list of test images: every second one of val is held out"
    if (folder / "figure_ground").is_dir():
        found.split = (
            "of every five masks three are to train on, one validates, one tests"
        )
    return found


def refusal(skipped: list[str], skip_bad: bool) -> Callable[[BadFile], None]:
    """What is done with a bad file."""

    def bad(error: BadFile) -> None:
        if not skip_bad:
            raise ValueError(f"{error}. Mend it, or leave it out: --skip-bad")
        skipped.append(str(error))

    return bad


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
