"""Images of the lists of a folder: chosen, counted; downloads."""

import urllib.error
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchvision.datasets import VOCDetection

from runs import files
from smoothsp.data import AnnotatedImage, read_box_splits
from smoothsp.data.images import BadFile


@dataclass
class Folder:
    """Lists of images, and how many were left out."""

    kind: str | None
    """The class of images with one object; None: several of all classes."""
    lists: dict[str, list[AnnotatedImage]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    without: int = 0
    several: int = 0
    difficult: int = 0
    split: str = ""
    """How images were shared out where lists do not say it."""

    def summary(self) -> str:
        """Counts of images and boxes, and the bad files."""
        lines = []
        for part, own in self.lists.items():
            counts = Counter(name for image in own for name in image.labels)
            said = ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
            lines.append(f"{part}: {len(own)} images, {said}")
        if self.kind is not None:
            counts = f"{self.without} without, {self.several} with several"
            counts += f", {self.difficult} with one that is difficult"
            lines.append(f"left out: {counts}")
        if self.split:
            lines.append(self.split)
        if self.skipped:
            lines.append(f"skipped {len(self.skipped)} bad files or boxes:")
            lines += [f"  {message}" for message in self.skipped]
        return "\n".join(lines)


def read(folder: Path, kind: str | None = None, skip_bad: bool = False) -> Folder:
    """The images of each list; of a class, those that have exactly one box of it.

    Images with one that is marked as difficult are left out: nothing is trained on it,
    nor scored. What is wrong with a file is an error, or with ``skip_bad`` a line in
    ``skipped``: a bad box of another class costs that box only, anything else the whole
    image.
    """
    found, seen = Folder(kind), Counter[str]()

    def bad(error: BadFile) -> None:
        if not skip_bad:
            raise ValueError(f"{error}. Mend it, or leave it out: --skip-bad")
        found.skipped.append(str(error))

    for part, images in read_box_splits(folder, kind=kind, bad=bad).items():
        own = found.lists.setdefault(part, [])
        for image in images:
            hard = [label for label, _ in image.difficult]
            seen.update({*image.labels, *hard})
            count = [*image.labels, *hard].count(kind)
            if kind is None:
                own.append(image)
            elif count != 1:
                found.without += not count
                found.several += count > 1
            elif kind in hard:
                found.difficult += 1
            else:
                box = image.boxes[image.labels.index(kind)]
                own.append(replace(image, boxes=(box,), labels=(kind,), difficult=()))
    if kind is not None and not seen[kind]:
        there = ", ".join(f"{name} ({n})" for name, n in seen.most_common())
        raise ValueError(
            f"class: {kind!r} never occurs in {folder}; the classes there are"
            f" {there or 'none'}"
        )
    wanted = "boxes" if kind is None else f"exactly one box of class {kind!r}"
    for part, images in found.lists.items():
        if not any(image.labels for image in images):
            raise ValueError(
                f"{folder}, {part}: expected images with {wanted}, got none. List some"
                " that have one"
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
