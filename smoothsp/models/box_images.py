"""Annotated images with candidate boxes: losses and metrics of a localiser.

Features of a fixed backbone are cached on disk, under a checksum of all their inputs.
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
    """Prepare images for training or evaluating a localiser.

    Parameters
    ----------
    localiser
        Localiser, whose candidates and backbone are used.
    examples
        Annotated images.
    cache
        Folder of proposals and features; by default ``cache_folder()``.
    workers
        Number of processes for selective search.
    finetune
        If True, the backbone is trained too, and no features are cached.
    """
    images_class = (
        SingleObjectImages if localiser.objects == "one" else MultiObjectImages
    )
    cache_path = cache_folder() if cache is None else Path(cache)
    return images_class(localiser, examples, cache_path, workers, finetune)


def cache_folder() -> Path:
    """Return ``smoothsp/voc`` in ``XDG_CACHE_HOME``, or else in ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "smoothsp" / "voc"


class BoxImages:
    """Annotated images, their candidate boxes and the network's inputs.

    Parameters
    ----------
    localiser, cache, workers, finetune
        As for ``make_box_images``.
    examples
        Annotated images.
    """

    examples: list[AnnotatedImage]
    monitor: str
    """Name of the metric that selects the best epoch."""

    def __init__(
        self,
        localiser: "Localiser",
        examples: Sequence[AnnotatedImage],
        cache: Path,
        workers: int = 1,
        finetune: bool = False,
    ) -> None:
        self.localiser, self.finetune = localiser, finetune
        self.sizes = [
            example.size or read_image_size(example.path)[:2] for example in examples
        ]
        self.examples = list(examples)
        paths = [example.path for example in examples]
        candidates = localiser.candidates
        if isinstance(candidates, Windows):
            self.boxes = [candidates.in_size(*size) for size in self.sizes]
        else:
            self.boxes = compute_candidates(paths, candidates, cache, workers)
        self.feature_files = [] if finetune else self._compute_cached_features(cache)

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def network(self) -> nn.Module:
        """The part of the localiser's network that is trained."""
        network = self.localiser.network
        return network if self.finetune else network.scores

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def candidates(self, number: int) -> Tensor:
        """Return candidate boxes ``(box, 4)`` in pixels of the image."""
        return torch.from_numpy(self.boxes[number])

    def inputs(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return pixels or cached features, boxes in resized pixels, and geometry."""
        boxes, size = self.boxes[number], self.sizes[number]
        resized_boxes = scale_boxes(boxes, *size, self.localiser.side)
        position = geometry(torch.from_numpy(boxes), *size)
        if self.feature_files:
            return (
                open_features(self.feature_files[number]).float(),
                resized_boxes,
                position,
            )
        image = resize_image(
            read_image(self.examples[number].path), self.localiser.side
        )
        return self.localiser.network.backbone.pixels(image), resized_boxes, position

    def scores(self, number: int, model: nn.Module | None = None) -> Tensor:
        """Return scores of all candidates of an image; by default of ``network``."""
        return self.score_inputs(*self.inputs(number), model)

    def score_inputs(
        self,
        pixels_or_features: Tensor,
        boxes: Tensor,
        position: Tensor,
        model: nn.Module | None = None,
    ) -> Tensor:
        """Return scores in float32 of the inputs that ``inputs`` returned."""
        net = model or self.network
        weight = next(net.parameters())
        inputs: tuple[Tensor, ...] = (pixels_or_features, boxes, position)
        if self.feature_files and isinstance(self.localiser.candidates, Proposals):
            inputs = (pixels_or_features, position)
        scores: Tensor = net(*(x.to(weight) for x in inputs))
        # The structures take scores in the dtype of the boxes.
        return scores.float()

    @torch.no_grad()
    def features(self, number: int) -> tuple[Tensor, Tensor]:
        """Return box features or maps of an image, and the geometry of its boxes."""
        pixels_or_features, boxes, position = self.inputs(number)
        if not self.feature_files:
            network = self.localiser.network
            weight = next(network.parameters())
            pixels_or_features = network.features(
                pixels_or_features.to(weight), boxes.to(weight)
            ).cpu()
        return pixels_or_features, position

    def checksum(self) -> int:
        """Return the CRC-32 of names, annotations and candidates."""
        digest = 0
        for example, boxes in zip(self.examples, self.boxes, strict=True):
            annotation = (
                example.name,
                example.boxes,
                example.labels,
                example.difficult,
            )
            digest = zlib.crc32(
                boxes.tobytes(), zlib.crc32(repr(annotation).encode(), digest)
            )
        return digest

    def _compute_cached_features(self, cache: Path) -> list[Path]:
        """Return the feature file of each image, after computing missing ones.

        With one object, files hold features of boxes, so the key includes the boxes.
        With several, they hold the maps of an image.
        """
        localiser, network = self.localiser, self.localiser.network
        backbone, is_single = network.backbone, localiser.objects == "one"
        name = f"{backbone.name}-{backbone.checksum()}-{localiser.side}"
        folder = cache / (name if is_single else f"{name}-maps")
        paths = []
        bar = tqdm(self.examples, "features", leave=False, disable=None)
        for example, boxes, size in zip(bar, self.boxes, self.sizes, strict=True):
            path, box_bytes = example.path, boxes.tobytes() if is_single else b""
            key = hashlib.sha256(
                path.read_bytes() + box_bytes + orientation_key(path)
            ).hexdigest()
            feature_path = folder / f"{key[:32]}.npy"
            paths.append(feature_path)
            if _is_valid_feature_file(
                feature_path, (len(boxes),) if is_single else (backbone.channels,)
            ):
                continue
            pixels = backbone.pixels(resize_image(read_image(path), localiser.side))
            resized_boxes = scale_boxes(boxes, *size, localiser.side)
            with torch.no_grad():
                weight = next(network.parameters())
                features = network.features(pixels.to(weight), resized_boxes.to(weight))
            content = io.BytesIO()
            np.save(content, features.half().cpu().numpy())
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(feature_path, content.getbuffer())
        return paths


class SingleObjectImages(BoxImages):
    """Images with exactly one object of a class; the output is one candidate box.

    Images with none, several or difficult objects of the class are left out.
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
        super().__init__(
            localiser,
            _select_single_object_images(examples, kind),
            cache,
            workers,
            finetune,
        )
        true = [torch.tensor([example.boxes[0]]) for example in self.examples]
        # IoU of each candidate with the true box; the candidate with the largest one is
        # the gold output.
        self.overlaps = [
            box_iou(self.candidates(n), box).squeeze(1) for n, box in enumerate(true)
        ]
        self.labels = [int(overlap.argmax()) for overlap in self.overlaps]

    def cost(self, number: int) -> Tensor:
        """Return ``1 - IoU`` of candidates with the gold candidate, ``(1, box)``."""
        candidates, label = self.candidates(number), self.labels[number]
        cost: Tensor = 1 - box_iou(candidates[label : label + 1], candidates)
        return cost

    def loss_arguments(
        self, number: int, model: nn.Module | None = None
    ) -> tuple[Multiclass, Tensor, None, Tensor]:
        """Return structure, gold label, weight and costs, the arguments of losses."""
        label = torch.tensor([self.labels[number]], device=self.device)
        cost = self.cost(number).to(self.device)
        return Multiclass(self.scores(number, model)[None]), label, None, cost

    def loss(
        self, number: int, criterion: nn.Module, model: nn.Module | None = None
    ) -> Tensor:
        """Return the loss of an image."""
        loss: Tensor = criterion(*self.loss_arguments(number, model))
        return loss

    @torch.no_grad()
    def objective(self, decay: float) -> float:
        """Return the mean unsmoothed hinge plus ``decay / 2 * |w|^2``."""
        hinge = StructuralHinge()
        total = sum(float(self.loss(n, hinge)) for n in range(len(self)))
        squared_norm = sum(float(p.square().sum()) for p in self.network.parameters())
        return total / len(self) + decay / 2 * squared_norm

    @torch.no_grad()
    def rank_candidates(self, count: int = 1) -> list[tuple[Tensor, Tensor]]:
        """Return scores and indices of the ``count`` best candidates of each image."""
        ranked = []
        for number in range(len(self)):
            scores = self.scores(number).cpu()
            best = scores.topk(min(count, len(scores)))
            ranked.append((best.values, best.indices))
        return ranked

    def evaluate(self) -> dict[str, float]:
        """Return metrics of the best candidates: IoU, CorLoc, average precision."""
        ranked = self.rank_candidates()
        iou = [
            float(overlap[int(best[0])])
            for overlap, (_, best) in zip(self.overlaps, ranked, strict=True)
        ]
        confidence = [float(scores[0]) for scores, _ in ranked]
        return overlap_scores(iou) | {"ap": average_precision(iou, confidence)}


def overlap_scores(iou: Sequence[float]) -> dict[str, float]:
    """Return the mean IoU, and CorLoc at IoU 0.5 and 0.7."""
    return {
        "iou": sum(iou) / len(iou),
        "corloc": corloc(iou),
        "corloc_7": corloc(iou, TIGHT_IOU),
    }


def _select_single_object_images(
    examples: Sequence[AnnotatedImage], kind: str
) -> list[AnnotatedImage]:
    """Keep images with exactly one box of a class, without their other boxes."""
    selected = []
    for example in examples:
        num_difficult = sum(label == kind for label, _ in example.difficult)
        if num_difficult or example.labels.count(kind) != 1:
            continue
        box = example.boxes[example.labels.index(kind)]
        selected.append(replace(example, boxes=(box,), labels=(kind,), difficult=()))
    if selected:
        return selected
    classes = sorted({label for example in examples for label in example.labels})
    raise ValueError(
        f"kind: expected images with exactly one box of the class {kind!r}, got none of"
        f" {len(examples)}; the classes there are {', '.join(classes) or 'none'}"
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
        classes = set(localiser.classes)
        labels = {label for example in examples for label in example.labels}
        if unknown := sorted(labels - classes):
            raise ValueError(
                f"data: expected the classes {', '.join(localiser.classes)}, got"
                f" {', '.join(unknown)} too. Take images of those, or leave these out"
            )
        if not labels:
            raise ValueError("data: expected images with boxes, got none")
        super().__init__(localiser, examples, cache, workers, finetune)

    def objects(self, number: int) -> tuple[Tensor, Tensor]:
        """Return true boxes ``(object, 4)`` and class indices."""
        example = self.examples[number]
        return self._boxes_and_class_indices(example.boxes, example.labels)

    def difficult(self, number: int) -> tuple[Tensor, Tensor]:
        """Return boxes and classes of objects excluded from training and scoring."""
        classes = self.localiser.classes
        pairs = [pair for pair in self.examples[number].difficult if pair[0] in classes]
        return self._boxes_and_class_indices(
            [box for _, box in pairs], [label for label, _ in pairs]
        )

    def _boxes_and_class_indices(
        self, boxes: Sequence[Sequence[float]], labels: Sequence[str]
    ) -> tuple[Tensor, Tensor]:
        numbers = [self.localiser.classes.index(label) for label in labels]
        table = torch.tensor(list(boxes), dtype=torch.float32).reshape(-1, 4)
        return table, torch.tensor(numbers, dtype=torch.long)

    def targets(self, number: int) -> Targets:
        """Match the objects of an image to windows."""
        objects = *self.objects(number), self.difficult(number)[0]
        num_classes = len(self.localiser.classes)
        return Targets(self.candidates(number), *objects, num_classes)

    def loss(self, number: int, loss: str, **options: float) -> Tensor:
        """Return a loss of ``LOSSES``, computed on the windows that it selects.

        All windows are scored without gradient; only selected ones are scored again
        with gradient, which saves memory.
        """
        image = self.targets(number)
        pixels_or_features, boxes, position = self.inputs(number)
        with torch.no_grad():
            scores = self.score_inputs(pixels_or_features, boxes, position).cpu()
        windows = image.select_windows(scores, loss)
        scores_of_selected = self.score_inputs(
            pixels_or_features, boxes[windows], position[windows]
        ).cpu()
        return LOSSES[loss](scores_of_selected, image, windows, **options)

    @torch.no_grad()
    def detect(self, decoder: str | None = None) -> list[Detections]:
        """Return detections of each image, by default by the localiser's decoder."""
        decode = DECODERS[decoder or self.localiser.decoder]
        return [
            decode(self.scores(n).cpu(), self.candidates(n)) for n in range(len(self))
        ]

    def evaluate(
        self, detected: Sequence[Detections] | None = None
    ) -> dict[str, float]:
        """Return mean average precisions, by default of the localiser's detections."""
        numbers = range(len(self))
        return mean_average_precision(
            self.detect() if detected is None else detected,
            [self.objects(n) for n in numbers],
            self.localiser.classes,
            [self.difficult(n) for n in numbers],
        )

    def recall(self) -> float:
        """Return the fraction of objects that a window matches."""
        best = [
            box_iou(self.candidates(n), self.objects(n)[0]).amax(0)
            for n in range(len(self))
        ]
        return float((torch.cat(best) > MATCH_IOU).double().mean())


def open_features(path: Path) -> Tensor:
    """Map a feature file into memory, in half precision; pages load on access."""
    # Mode "c" is copy-on-write: torch warns about read-only memory.
    features: NDArray[np.float16] = np.load(path, mmap_mode="c", allow_pickle=False)
    return torch.from_numpy(features)


def _is_valid_feature_file(path: Path, leading_shape: tuple[int, ...]) -> bool:
    try:
        features = open_features(path)
    except (OSError, TypeError, ValueError, EOFError):
        return False
    return (
        features.dim() == 3
        and tuple(features.shape[: len(leading_shape)]) == leading_shape
    )
