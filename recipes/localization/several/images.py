"""Images with windows, maps of a backbone, and the true sets of windows."""

import hashlib
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import box_iou
from tqdm import tqdm

from localization.candidates import turned
from localization.features import open_kept
from localization.several import windows
from localization.several.annotations import Example, Folder
from runs import files
from smoothsp.data.examples import Box
from smoothsp.data.images import read_image
from smoothsp.models.backbones import Backbone
from smoothsp.models.regions import geometry, resized

# a window is an object if it overlaps one by more, as mean average precision has it
SAME = 0.5
# boxes of a set overlap by no more: of true ones few in a hundred do
OVERLAP = 0.4


@dataclass(frozen=True)
class Windows:
    """Windows of images of one size, and the network's inputs for them."""

    boxes: Tensor
    """``(window, 4)`` in pixels of the image."""
    scaled: Tensor
    """The same in pixels of the image that the backbone takes."""
    geometry: Tensor


class Images:
    """Images of a list, for a network and for the true sets of their windows."""

    def __init__(
        self,
        examples: list[Example],
        classes: list[str],
        windows_of: Callable[[tuple[int, int]], Windows],
        maps: list[Path],
    ) -> None:
        self.examples, self.classes, self.maps = examples, classes, maps
        self._windows_of = windows_of
        self.true = [_true_set(n, self) for n in range(len(examples))]

    def __len__(self) -> int:
        return len(self.examples)

    def windows(self, number: int) -> Windows:
        return self._windows_of(self.examples[number].size)

    def inputs(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Maps, and boxes and geometry of all windows."""
        own = self.windows(number)
        return open_kept(self.maps[number]).float(), own.scaled, own.geometry

    def objects(self, number: int) -> tuple[Tensor, Tensor]:
        """True boxes ``(object, 4)`` and labels; those of unknown classes left out."""
        example = self.examples[number]
        known = [
            (box, self.classes.index(label))
            for box, label in zip(example.boxes, example.labels, strict=True)
            if label in self.classes
        ]
        return _table(known)

    def difficult(self, number: int) -> tuple[Tensor, Tensor]:
        """Boxes and labels of objects that are neither trained on nor scored."""
        return _table(
            (box, self.classes.index(label))
            for label, box in self.examples[number].difficult
            if label in self.classes
        )

    def overlaps(self, number: int) -> Tensor:
        """``(window, object)``."""
        return box_iou(self.windows(number).boxes, self.objects(number)[0])

    def covered(self, number: int) -> Tensor:
        """Highest overlap with an object of each class, ``(window, class)``."""
        labels = self.objects(number)[1]
        own = torch.nn.functional.one_hot(labels, len(self.classes)).bool()
        overlap = self.overlaps(number)[:, :, None] * own
        return overlap.amax(1) if len(labels) else overlap.sum(1)

    def recall(self) -> float:
        """Share of objects that a window covers."""
        best = [self.overlaps(n).amax(0) for n in range(len(self))]
        return float((torch.cat(best) > SAME).double().mean())

    def checksum(self) -> int:
        """Of names, boxes, labels and windows."""
        digest = 0
        for number, example in enumerate(self.examples):
            own = (example.name, example.boxes, example.labels)
            own += (example.difficult,) if example.difficult else ()
            about = repr(own).encode()
            boxes = self.windows(number).boxes.numpy().tobytes()
            digest = zlib.crc32(boxes, zlib.crc32(about, digest))
        return digest


def _table(known: Iterable[tuple[Box, int]]) -> tuple[Tensor, Tensor]:
    pairs = list(known)
    boxes = torch.tensor([box for box, _ in pairs]).reshape(-1, 4)
    return boxes, torch.tensor([label for _, label in pairs], dtype=torch.long)


def _true_set(number: int, images: Images) -> Tensor:
    """Windows and classes that stand for the objects, ``(object, 2)``.

    The best window of each object, of those that exclude none taken before; objects
    that windows fit best come first.
    """
    boxes, labels = images.windows(number).boxes, images.objects(number)[1]
    overlap = images.overlaps(number)
    free, taken = torch.ones(len(boxes), dtype=torch.bool), []
    best = overlap.amax(0) if len(labels) else overlap.new_zeros(0)
    for one in best.argsort(descending=True).tolist():
        own = overlap[:, one].where(free, 0.0)
        window = int(own.argmax())
        if own[window] > SAME:
            taken.append((window, int(labels[one])))
            free &= box_iou(boxes[window : window + 1], boxes)[0] <= OVERLAP
    return torch.tensor(taken, dtype=torch.long).reshape(-1, 2)


@dataclass
class Data:
    """Images by list, and the numbers that a model needs beside its weights."""

    parts: dict[str, Images]
    classes: list[str]
    shapes: np.ndarray
    mean: Tensor
    deviation: Tensor


def prepare(folder: Folder, network: Backbone, side: int, cache: Path) -> Data:
    """Windows as large as the boxes of training, and maps, from disk where kept."""
    train = folder.lists["train"]
    classes = folder.classes()
    shapes = windows.shapes(
        [np.array(example.boxes).reshape(-1, 4) for example in train],
        [[classes.index(label) for label in example.labels] for example in train],
        [example.size for example in train],
    )
    of_size = windows_of(shapes, side)
    parts = {
        part: Images(
            examples, classes, of_size, kept_maps(network, examples, side, cache)
        )
        for part, examples in folder.lists.items()
    }
    mean, deviation = _scale(parts["train"])
    return Data(parts, classes, shapes, mean, deviation)


def windows_of(shapes: np.ndarray, side: int) -> Callable[[tuple[int, int]], Windows]:
    """Windows by width and height of an image; each is made once."""
    known: dict[tuple[int, int], Windows] = {}

    def of(size: tuple[int, int]) -> Windows:
        if size not in known:
            width, height = size
            boxes = windows.windows(shapes, width, height)
            empty = np.zeros((height, width, 3), np.uint8)
            _, scaled = resized(empty, boxes, side)
            own = torch.from_numpy(boxes)
            known[size] = Windows(own, scaled, geometry(own, width, height))
        return known[size]

    return of


@torch.no_grad()
def maps_of(network: Backbone, image: np.ndarray, side: int) -> Tensor:
    """``(channels, rows, columns)`` in half precision."""
    pixels, _ = resized(image, np.zeros((1, 4), np.float32), side)
    device = next(network.parameters()).device
    return network(network.pixels(pixels)[None].to(device))[0].half().cpu()


def kept_maps(
    network: Backbone, examples: list[Example], side: int, cache: Path
) -> list[Path]:
    """Files of the maps of each image, made if they are not there."""
    folder = cache / f"{network.name}-{network.checksum()}-{side}-maps"
    paths = []
    for example in tqdm(examples, "features", leave=False, disable=None):
        digest = hashlib.sha256(
            example.image.read_bytes() + turned(example.image)
        ).hexdigest()[:32]
        path = folder / f"{digest}.npy"
        if not _is_whole(path, network.channels):
            found = maps_of(network, read_image(example.image), side).numpy()
            files.write(path, lambda sink, array=found: np.save(sink, array))
        paths.append(path)
    return paths


def _is_whole(path: Path, channels: int) -> bool:
    try:
        found = open_kept(path)
    except (OSError, ValueError, EOFError):
        return False
    return found.dim() == 3 and len(found) == channels


def _scale(images: Images) -> tuple[Tensor, Tensor]:
    """Mean and deviation ``(channel,)`` of the maps."""
    count, total, squares = 0, 0.0, 0.0
    for path in images.maps:
        flat = open_kept(path).double().flatten(1)
        count += flat.shape[1]
        total, squares = total + flat.sum(1), squares + flat.square().sum(1)
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=1e-6).sqrt()
    return mean.float(), deviation.float()
