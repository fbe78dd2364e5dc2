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
    num_without: int = 0
    num_multi_object: int = 0
    num_difficult: int = 0
    split: str = ""
    """How images were shared out where lists do not say it."""

    def summary(self) -> str:
        """Counts of images and boxes, and the bad files."""
        lines = []
        for part, images in self.lists.items():
            counts = Counter(name for image in images for name in image.labels)
            classes = ", ".join(f"{n} {name}" for name, n in sorted(counts.items()))
            lines.append(f"{part}: {len(images)} images, {classes}")
        if self.kind is not None:
            counts = f"{self.num_without} without, {self.num_multi_object} with several"
            counts += f", {self.num_difficult} with one that is difficult"
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
    result, seen = Folder(kind), Counter[str]()

    def bad(error: BadFile) -> None:
        if not skip_bad:
            raise ValueError(f"{error}. Mend it, or leave it out: --skip-bad")
        result.skipped.append(str(error))

    for part, images in read_box_splits(folder, kind=kind, bad=bad).items():
        selected = result.lists.setdefault(part, [])
        for image in images:
            difficult = [label for label, _ in image.difficult]
            seen.update({*image.labels, *difficult})
            count = [*image.labels, *difficult].count(kind)
            if kind is None:
                selected.append(image)
            elif count != 1:
                result.num_without += not count
                result.num_multi_object += count > 1
            elif kind in difficult:
                result.num_difficult += 1
            else:
                box = image.boxes[image.labels.index(kind)]
                selected.append(
                    replace(image, boxes=(box,), labels=(kind,), difficult=())
                )
    if kind is not None and not seen[kind]:
        available = ", ".join(f"{name} ({n})" for name, n in seen.most_common())
        raise ValueError(
            f"class: {kind!r} never occurs in {folder}; the classes there are"
            f" {available or 'none'}"
        )
    required = "boxes" if kind is None else f"exactly one box of class {kind!r}"
    for part, images in result.lists.items():
        if not any(image.labels for image in images):
            raise ValueError(
                f"{folder}, {part}: expected images with {required}, got none. List"
                " some that have one"
            )
    if "test" not in result.lists and len(result.lists["val"]) > 1:
        val_images = result.lists["val"]
        result.lists |= {"val": val_images[::2], "test": val_images[1::2]}
        result.split = "no list of test images: every second one of val is held out"
    if (folder / "figure_ground").is_dir():
        result.split = (
            "of every five masks three are to train on, one validates, one tests"
        )
    return result


def download(folder: Path) -> Path:
    """VOC 2007 below ``folder``, through torchvision, which checks its sums."""
    unpacked = folder / "VOCdevkit" / "VOC2007"
    complete = folder / "complete"
    if complete.exists():
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
    files.write(complete, lambda sink: sink.write(b"VOC 2007\n"))
    return unpacked
