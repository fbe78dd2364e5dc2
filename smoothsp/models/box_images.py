"""Annotated images with candidate boxes: losses and scores of a localiser on them.

Features of a fixed backbone are kept on disk, under a checksum of all that they depend
on.
"""

import hashlib
import io
import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchvision.ops import box_iou
from tqdm import tqdm

from smoothsp.atomic_files import replace as replace_file
from smoothsp.data import AnnotatedImage
from smoothsp.data.images import read_image, read_image_size
from smoothsp.losses import StructuralHinge
from smoothsp.metrics import average_precision, corloc
from smoothsp.models.candidates import (
    Proposals,
    Windows,
    compute_candidates,
    orientation_key,
)
from smoothsp.models.detection import DECODERS, Detections, mean_average_precision
from smoothsp.models.regions import geometry, resize_image, scale_boxes
from smoothsp.models.set_losses import LOSSES, MATCH_IOU, Targets
from smoothsp.oracles import Multiclass

if TYPE_CHECKING:
    from smoothsp.models.localiser import Localiser

__all__ = [
    "CORRECT_IOU",
    "TIGHT_IOU",
    "BoxImages",
    "MultiObjectImages",
    "SingleObjectImages",
]
__all__ += ["cache_folder", "make_box_images", "open_features", "overlap_scores"]

CORRECT_IOU, TIGHT_IOU = 0.5, 0.7


def make_box_images(
    localiser: "Localiser",
    examples: Sequence[AnnotatedImage],
    cache: str | os.PathLike[str] | None = None,
    workers: int = 1,
    finetune: bool = False,
) -> "SingleObjectImages | MultiObjectImages":
    """Images that a localiser is trained or scored on.

    Parameters
    ----------
    localiser
        Its candidates and its features are those of the images.
    examples
        Annotated images.
    cache
        Folder of proposals and features; by default ``cache_folder()``.
    workers
        Number of processes for selective search.
    finetune
        If True, the backbone is trained too, and no features are kept.
    """
    kind = SingleObjectImages if localiser.objects == "one" else MultiObjectImages
    place = cache_folder() if cache is None else Path(cache)
    return kind(localiser, examples, place, workers, finetune)


def cache_folder() -> Path:
    """``smoothsp/voc`` in ``XDG_CACHE_HOME``, or else in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "smoothsp" / "voc"


class BoxImages:
    """Annotated images, their candidate boxes, and the inputs of a network.

    Parameters
    ----------
    localiser, cache, workers, finetune
        As for ``images_of``.
    examples
        Annotated images.
    """

    examples: list[AnnotatedImage]
    monitor: str
    """Name of the chief score."""

    def __init__(
        self,
        localiser: "Localiser",
        examples: Sequence[AnnotatedImage],
        cache: Path,
        workers: int = 1,
        finetune: bool = False,
    ) -> None:
        self.localiser, self.finetune = localiser, finetune
        self.sizes = [one.size or read_image_size(one.path)[:2] for one in examples]
        self.examples = list(examples)
        paths = [one.path for one in examples]
        candidates = localiser.candidates
        if isinstance(candidates, Windows):
            self.boxes = [candidates.in_size(*size) for size in self.sizes]
        else:
            self.boxes = compute_candidates(paths, candidates, cache, workers)
        self.kept = [] if finetune else self._keep(cache)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def network(self) -> nn.Module:
        """The part of the localiser's network that is trained."""
        whole = self.localiser.network
        return whole if self.finetune else whole.scores

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def candidates(self, number: int) -> Tensor:
        """Boxes ``(box, 4)`` in pixels of the image."""
        return torch.from_numpy(self.boxes[number])

    def inputs(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Pixels or kept features, boxes in pixels of the resized image, geometry."""
        boxes, size = self.boxes[number], self.sizes[number]
        own = scale_boxes(boxes, *size, self.localiser.side)
        where = geometry(torch.from_numpy(boxes), *size)
        if self.kept:
            return open_features(self.kept[number]).float(), own, where
        image = resize_image(
            read_image(self.examples[number].path), self.localiser.side
        )
        return self.localiser.network.backbone.pixels(image), own, where

    def scores(self, number: int, model: nn.Module | None = None) -> Tensor:
        """Scores of all candidates of an image, by default by the network."""
        return self.of_inputs(*self.inputs(number), model)

    def of_inputs(
        self,
        first: Tensor,
        boxes: Tensor,
        where: Tensor,
        model: nn.Module | None = None,
    ) -> Tensor:
        """Scores of these inputs."""
        net = model or self.network
        like = next(net.parameters())
        own: tuple[Tensor, ...] = (first, boxes, where)
        if self.kept and isinstance(self.localiser.candidates, Proposals):
            own = (first, where)
        found: Tensor = net(*(x.to(like) for x in own))
        # the dtype of boxes
        return found.float()

    @torch.no_grad()
    def features(self, number: int) -> tuple[Tensor, Tensor]:
        """Looks or maps, and geometry."""
        first, boxes, where = self.inputs(number)
        if not self.kept:
            network = self.localiser.network
            like = next(network.parameters())
            first = network.features(first.to(like), boxes.to(like)).cpu()
        return first, where

    def checksum(self) -> int:
        """Checksum of names, annotations and candidates."""
        digest = 0
        for example, own in zip(self.examples, self.boxes, strict=True):
            about = (example.name, example.boxes, example.labels, example.difficult)
            digest = zlib.crc32(own.tobytes(), zlib.crc32(repr(about).encode(), digest))
        return digest

    def _keep(self, cache: Path) -> list[Path]:
        """Files of the features of each image, made if they are not there."""
        localiser, network = self.localiser, self.localiser.network
        backbone, one = network.backbone, localiser.objects == "one"
        name = f"{backbone.name}-{backbone.checksum()}-{localiser.side}"
        folder = cache / (name if one else f"{name}-maps")
        found = []
        bar = tqdm(self.examples, "features", leave=False, disable=None)
        for example, boxes, size in zip(bar, self.boxes, self.sizes, strict=True):
            path, own = example.path, boxes.tobytes() if one else b""
            key = hashlib.sha256(
                path.read_bytes() + own + orientation_key(path)
            ).hexdigest()
            kept = folder / f"{key[:32]}.npy"
            found.append(kept)
            if _is_whole(kept, (len(boxes),) if one else (backbone.channels,)):
                continue
            pixels = backbone.pixels(resize_image(read_image(path), localiser.side))
            places = scale_boxes(boxes, *size, localiser.side)
            with torch.no_grad():
                like = next(network.parameters())
                features = network.features(pixels.to(like), places.to(like))
            content = io.BytesIO()
            np.save(content, features.half().cpu().numpy())
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(kept, content.getbuffer())
        return found


class SingleObjectImages(BoxImages):
    """Images with one object of a class, which is one of the candidates.

    Images with none or several, and with one that is difficult, are left out.
    """

    monitor = "iou"

    def __init__(
        self,
        localiser: "Localiser",
        examples: Sequence[AnnotatedImage],
        cache: Path,
        workers: int = 1,
        finetune: bool = False,
    ) -> None:
        (kind,) = localiser.classes
        super().__init__(localiser, _with_one(examples, kind), cache, workers, finetune)
        true = [torch.tensor([one.boxes[0]]) for one in self.examples]
        # overlap of each candidate with the true box; the best one is the label
        self.overlaps = [
            box_iou(self.candidates(n), box).squeeze(1) for n, box in enumerate(true)
        ]
        self.labels = [int(overlap.argmax()) for overlap in self.overlaps]

    def cost(self, number: int) -> Tensor:
        """``1 - IoU`` of each candidate with the label, ``(1, box)``."""
        own, label = self.candidates(number), self.labels[number]
        found: Tensor = 1 - box_iou(own[label : label + 1], own)
        return found

    def question(
        self, number: int, model: nn.Module | None = None
    ) -> tuple[Multiclass, Tensor, None, Tensor]:
        """Structure, label, weight and costs of an image, as losses take them."""
        label = torch.tensor([self.labels[number]], device=self.device)
        cost = self.cost(number).to(self.device)
        return Multiclass(self.scores(number, model)[None]), label, None, cost

    def loss(
        self, number: int, criterion: nn.Module, model: nn.Module | None = None
    ) -> Tensor:
        """Loss of an image."""
        found: Tensor = criterion(*self.question(number, model))
        return found

    @torch.no_grad()
    def objective(self, decay: float) -> float:
        """Mean hinge without smoothing, plus ``decay`` / 2 times the squared norm."""
        hinge = StructuralHinge()
        total = sum(float(self.loss(n, hinge)) for n in range(len(self)))
        squares = sum(float(p.square().sum()) for p in self.network.parameters())
        return total / len(self) + decay / 2 * squares

    @torch.no_grad()
    def ranked(self, count: int = 1) -> list[tuple[Tensor, Tensor]]:
        """Scores and numbers of the ``count`` best candidates of each image."""
        found = []
        for number in range(len(self)):
            scores = self.scores(number).cpu()
            best = scores.topk(min(count, len(scores)))
            found.append((best.values, best.indices))
        return found

    def evaluate(self) -> dict[str, float]:
        """Overlaps of the best candidates, and average precision of their scores."""
        found = self.ranked()
        iou = [
            float(overlap[int(best[0])])
            for overlap, (_, best) in zip(self.overlaps, found, strict=True)
        ]
        confidence = [float(scores[0]) for scores, _ in found]
        return overlap_scores(iou) | {"ap": average_precision(iou, confidence)}


def overlap_scores(iou: Sequence[float]) -> dict[str, float]:
    """Mean overlap with the true boxes, and the shares that are right and fit well."""
    return {
        "iou": sum(iou) / len(iou),
        "corloc": corloc(iou),
        "corloc_7": corloc(iou, TIGHT_IOU),
    }


def _with_one(examples: Sequence[AnnotatedImage], kind: str) -> list[AnnotatedImage]:
    """Images with exactly one box of a class, and with no other boxes."""
    found = []
    for example in examples:
        hard = sum(label == kind for label, _ in example.difficult)
        if hard or example.labels.count(kind) != 1:
            continue
        box = example.boxes[example.labels.index(kind)]
        found.append(replace(example, boxes=(box,), labels=(kind,), difficult=()))
    if found:
        return found
    there = sorted({label for example in examples for label in example.labels})
    raise ValueError(
        f"kind: expected images with exactly one box of the class {kind!r}, got none of"
        f" {len(examples)}; the classes there are {', '.join(there) or 'none'}"
    )


class MultiObjectImages(BoxImages):
    """Images with any number of objects of several classes."""

    monitor = "map50"

    def __init__(
        self,
        localiser: "Localiser",
        examples: Sequence[AnnotatedImage],
        cache: Path,
        workers: int = 1,
        finetune: bool = False,
    ) -> None:
        known = set(localiser.classes)
        there = {label for one in examples for label in one.labels}
        if unknown := sorted(there - known):
            raise ValueError(
                f"data: expected the classes {', '.join(localiser.classes)}, got"
                f" {', '.join(unknown)} too. Take images of those, or leave these out"
            )
        if not there:
            raise ValueError("data: expected images with boxes, got none")
        super().__init__(localiser, examples, cache, workers, finetune)

    def objects(self, number: int) -> tuple[Tensor, Tensor]:
        """True boxes ``(object, 4)`` and their classes."""
        example = self.examples[number]
        return self._table(example.boxes, example.labels)

    def difficult(self, number: int) -> tuple[Tensor, Tensor]:
        """Boxes and classes of objects that are neither trained on nor scored."""
        known = self.localiser.classes
        pairs = [own for own in self.examples[number].difficult if own[0] in known]
        return self._table([box for _, box in pairs], [label for label, _ in pairs])

    def _table(
        self, boxes: Sequence[Sequence[float]], labels: Sequence[str]
    ) -> tuple[Tensor, Tensor]:
        numbers = [self.localiser.classes.index(label) for label in labels]
        table = torch.tensor(list(boxes), dtype=torch.float32).reshape(-1, 4)
        return table, torch.tensor(numbers, dtype=torch.long)

    def targets(self, number: int) -> Targets:
        """Windows that stand for the objects of an image."""
        given = *self.objects(number), self.difficult(number)[0]
        classes = len(self.localiser.classes)
        return Targets(self.candidates(number), *given, classes)

    def loss(self, number: int, loss: str, **options: float) -> Tensor:
        """One of ``LOSSES`` on the windows that it considers."""
        image = self.targets(number)
        first, boxes, where = self.inputs(number)
        with torch.no_grad():
            scores = self.of_inputs(first, boxes, where).cpu()
        windows = image.considered(scores, loss)
        own = self.of_inputs(first, boxes[windows], where[windows]).cpu()
        return LOSSES[loss](own, image, windows, **options)

    @torch.no_grad()
    def found(self, decoder: str | None = None) -> list[Detections]:
        """Objects of each image by a way of decoding, by default the localiser's."""
        decode = DECODERS[decoder or self.localiser.decoder]
        return [
            decode(self.scores(n).cpu(), self.candidates(n)) for n in range(len(self))
        ]

    def evaluate(self, found: Sequence[Detections] | None = None) -> dict[str, float]:
        """Mean average precisions, by default of the localiser's boxes."""
        numbers = range(len(self))
        return mean_average_precision(
            self.found() if found is None else found,
            [self.objects(n) for n in numbers],
            self.localiser.classes,
            [self.difficult(n) for n in numbers],
        )

    def recall(self) -> float:
        """Share of objects that a window covers."""
        best = [
            box_iou(self.candidates(n), self.objects(n)[0]).amax(0)
            for n in range(len(self))
        ]
        return float((torch.cat(best) > MATCH_IOU).double().mean())


def open_features(path: Path) -> Tensor:
    """Features in half precision; read from disk where they are used, and no sooner."""
    # copy on write: torch wants memory that it could write to
    kept: NDArray[np.float16] = np.load(path, mmap_mode="c", allow_pickle=False)
    return torch.from_numpy(kept)


def _is_whole(path: Path, begin: tuple[int, ...]) -> bool:
    try:
        found = open_features(path)
    except (OSError, TypeError, ValueError, EOFError):
        return False
    return found.dim() == 3 and tuple(found.shape[: len(begin)]) == begin
