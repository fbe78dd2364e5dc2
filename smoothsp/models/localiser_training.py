"""Training of localisers."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from smoothsp.data import AnnotatedImage, as_images
from smoothsp.data.images import read_image_size
from smoothsp.losses import L2, StructuralHinge
from smoothsp.models import box_scores
from smoothsp.models.backbones import backbone
from smoothsp.models.box_images import (
    MultiObjectImages,
    SingleObjectImages,
    make_box_images,
)
from smoothsp.models.box_scores import (
    FeatureScale,
    LinearScores,
    ObjectScores,
    Scores,
)
from smoothsp.models.candidates import Proposals, Windows
from smoothsp.models.localiser import OBJECTS, Localiser, LocaliserNetwork
from smoothsp.models.regions import NUM_GEOMETRY
from smoothsp.models.set_losses import LOSSES
from smoothsp.models.training_setup import split_dev
from smoothsp.models.windows import cluster_shapes
from smoothsp.run_folder import MODEL
from smoothsp.training import fit, seed_all

__all__ = ["Options", "Prepared", "prepare", "train"]

# smoothing of the two hinges, and boxes over which that of one object is smoothed
MU, TOP_K = {"one": 1.0, "several": 0.3}, 10
# by what is trained: step sizes of SGD, of several objects Adam's, and regularisers
RATE = {"linear": 2**-10, "nonlinear": 2**-7, "finetune": 2**-11, "several": 4e-3}
DECAY = {"linear": 10.0, "nonlinear": 1.0, "finetune": 0.1, "several": 0.0}


@dataclass(frozen=True)
class Options:
    """Options of the training of a localiser."""

    objects: str = "one"
    kind: str | None = None
    backbone: str = "efficientnet-lite0"
    weights: str = "imagenet"
    loss: str | nn.Module = "hinge"
    epochs: int = 10
    seed: int = 0
    scores: str = "linear"
    """With one object: ``"linear"`` in the features, or ``"nonlinear"``, with a hidden
    layer of 16 channels."""
    proposals: str = "selective-search"
    """With one object: method for candidate boxes; ``"grid"`` is a sliding window."""
    max_boxes: int = 1000
    """With one object: maximum number of candidate boxes per image."""
    side: int = 512
    """Longer side of an image in pixels at the input of the backbone."""
    finetune: bool = False
    """Train the backbone too."""
    rate: float | None = None
    """Highest step size; None: one that suits what is trained."""
    decay: float | None = None
    """Weight of the squared norm times the number of images; None: as before."""
    mu: float | None = None
    """Strength of the smoothing of ``"hinge"``: 1, or 0.3 with several objects."""
    optimizer: Callable[[nn.Module, int], Optimizer] | None = None
    """Function of the network that is trained and the number of images. Its rates stay,
    its gradients are not clipped and its weights not averaged. By default SGD, for
    several objects Adam, with rates that fall to 0 and a running average."""
    objective: bool = False
    """With one object: add the training objective without smoothing to the history."""
    patience: int | None = None
    """Number of epochs in a row without a better score that end the training."""
    cache: str | os.PathLike[str] | None = None
    """Folder of proposals and features; by default in ``~/.cache/smoothsp``."""
    workers: int = 1
    """Number of processes for selective search. With several, a program needs
    ``if __name__ == "__main__":``."""

    def __post_init__(self) -> None:
        losses = tuple(LOSSES) if self.objects == "several" else ("hinge",)
        choices = {"objects": OBJECTS, "scores": tuple(box_scores.SCORE_CLASSES)}
        if isinstance(self.loss, str) or self.objects == "several":
            choices["loss"] = losses
        for name, known in choices.items():
            if (value := getattr(self, name)) not in known:
                expected = " or ".join(known)
                raise ValueError(f"{name}: expected {expected}, got {value!r}")
        for name, least in (("epochs", 1), ("seed", 0), ("workers", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name}: expected at least {least}, got {value}")
        for name in ("rate", "mu"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: expected a positive number, got {value}")
        if self.decay is not None and not 0 <= self.decay < math.inf:
            raise ValueError(f"decay: expected at least 0, got {self.decay}")
        if self.mu is not None and self.loss != "hinge":
            raise ValueError(f"mu: expected none with this loss, got {self.mu}")
        if self.objects == "several" and (self.kind is not None or self.objective):
            name = "objective" if self.kind is None else "kind"
            raise ValueError(f'{name}: expected none with objects="several"')

    @property
    def trained(self) -> str:
        """Key of ``RATE`` and ``DECAY``."""
        if self.objects == "several":
            return self.objects
        return "finetune" if self.finetune else self.scores

    def decay_of(self, images: int) -> float:
        """Weight of half of the squared norm."""
        return (DECAY[self.trained] if self.decay is None else self.decay) / images


@dataclass(frozen=True)
class Prepared:
    """A localiser before training, and its images."""

    localiser: Localiser
    images: SingleObjectImages | MultiObjectImages
    dev: SingleObjectImages | MultiObjectImages
    loss: Callable[[int], Tensor]
    """Loss of an image."""


def train(
    data: Any,
    dev: Any,
    options: Options,
    out: Path | None,
    resume: bool,
    trainer: Mapping[str, Any] | None,
) -> Localiser:
    """Train a localiser: see ``Localiser.train``."""
    prepared = prepare(data, dev, options)
    localiser, images = prepared.localiser, prepared.images
    network, own = images.network, options.optimizer is None
    decay = options.decay_of(len(images))
    if options.optimizer is not None:
        optimizer = options.optimizer(network, len(images))
    else:
        kind = Adam if options.objects == "several" else SGD
        rate = RATE[options.trained] if options.rate is None else options.rate
        optimizer = kind(network.parameters(), rate, weight_decay=decay)

    def loss(numbers: Tensor) -> Tensor:
        return torch.stack([prepared.loss(n) for n in numbers.tolist()]).mean()

    def evaluate() -> dict[str, float]:
        scores = prepared.dev.evaluate()
        if options.objective and isinstance(images, SingleObjectImages):
            scores["objective"] = images.objective(decay)
        return scores

    settings = _settings(prepared, options, optimizer)

    def describe(about: Mapping[str, Any]) -> Localiser:
        localiser.about = {"settings": settings, **about}
        return localiser

    fitted = fit(
        network,
        loss,
        lambda: [n[None] for n in torch.randperm(len(images))],
        evaluate,
        monitor=images.monitor,
        optimizer=optimizer,
        epochs=options.epochs,
        seed=options.seed,
        warm_up=0 if own else None,
        clip=None,
        average=own,
        patience=options.patience,
        save=None if out is None else lambda x: describe(x).save(out / MODEL),
        settings=settings,
        out=out,
        resume=resume,
        trainer=trainer,
    )
    localiser.network.eval()
    about: dict[str, Any] = {"history": fitted.history}
    return describe(about | {"interrupted": True} if fitted.interrupted else about)


def prepare(data: Any, dev: Any, options: Options) -> Prepared:
    """Read images, find candidates and features, and make the network."""
    examples = as_images(data, kind=options.kind)
    if dev is None and isinstance(data, str | os.PathLike) and Path(data).is_dir():
        dev = data
    if dev is None:
        examples, held_out = split_dev(examples)
    else:
        held_out = as_images(dev, part="val", kind=options.kind, name="dev")
    layers = backbone(options.backbone, options.weights)
    layers = layers.to("cuda" if torch.cuda.is_available() else "cpu")
    localiser = _untrained(layers, examples, options)
    given = (options.cache, options.workers, options.finetune)
    images, other = (
        make_box_images(localiser, x, *given) for x in (examples, held_out)
    )
    seed_all(options.seed, 0)
    network = localiser.network
    network.scores = _scores(images, options).to(next(layers.parameters()).device)
    mu = MU[options.objects] if options.mu is None else options.mu
    if isinstance(images, SingleObjectImages):
        one, criterion = images, options.loss
        if isinstance(criterion, str):
            criterion = StructuralHinge(L2(mu, TOP_K))
        return Prepared(localiser, one, other, lambda n: one.loss(n, criterion))
    several, name = images, str(options.loss)
    own = {"mu": mu} if name == "hinge" else {}
    return Prepared(localiser, several, other, lambda n: several.loss(n, name, **own))


def _untrained(
    layers: Any, examples: Sequence[AnnotatedImage], options: Options
) -> Localiser:
    """A localiser that can only make candidates and features."""
    classes = sorted({label for one in examples for label in one.labels})
    ones = torch.ones(layers.channels)
    if options.objects == "several":
        if not classes:
            raise ValueError("data: expected images with boxes, got none")
        found = cluster_shapes(
            [one.boxes for one in examples],
            [one.labels for one in examples],
            [one.size or read_image_size(one.path)[:2] for one in examples],
        )
        windows = Windows(tuple((float(w), float(h)) for w, h in found))
        network = LocaliserNetwork(layers, ObjectScores(ones, ones, len(classes)))
        way = "non-maximum suppression" if options.loss == "softmax" else "best sets"
        return Localiser(network, classes, windows, options.side, decoder=way)
    kind = options.kind
    if kind is None:
        if len(classes) != 1:
            raise ValueError(
                f"kind: expected the class of the object, one of {', '.join(classes)},"
                " got none"
            )
        (kind,) = classes
    twelve = torch.ones(NUM_GEOMETRY)
    scale = FeatureScale(ones, ones, twelve, twelve)
    network = LocaliserNetwork(layers, LinearScores(scale))
    proposals = Proposals(options.proposals, options.max_boxes)
    return Localiser(network, [kind], proposals, options.side)


def _scores(images: SingleObjectImages | MultiObjectImages, options: Options) -> Scores:
    """Scores with mean and deviation of the features over the images."""
    sums: list[Any] = [[0, 0.0, 0.0], [0, 0.0, 0.0]]
    several = options.objects == "several"
    for number in range(len(images)):
        looks, where = images.features(number)
        looks = looks.flatten(1).T if several else looks.flatten(0, 1)
        for own, flat in zip(sums, (looks, where), strict=True):
            own[0] += len(flat)
            own[1] = own[1] + flat.sum(0, dtype=torch.float64)
            own[2] = own[2] + flat.double().square().sum(0)
    found = []
    for count, total, squares in sums:
        mean = total / count
        variance = squares / count - mean.square()
        deviation = variance.clamp(min=1e-6 if several else 0).sqrt()
        found += [mean.float(), deviation.float()]
    if several:
        mean, deviation = found[:2]
        return ObjectScores(mean, deviation, len(images.localiser.classes))
    return box_scores.SCORE_CLASSES[options.scores](FeatureScale(*found))


def _settings(
    prepared: Prepared, options: Options, optimizer: Optimizer
) -> dict[str, Any]:
    """All that the numbers of a training depend on."""
    plain = (bool, int, float, str, type(None))
    left_out = ("cache", "workers", "patience")
    names = [field.name for field in fields(Options) if field.name not in left_out]
    given = {"model": "Localiser"} | {name: getattr(options, name) for name in names}
    found = {name: x for name, x in given.items() if isinstance(x, plain)}
    if isinstance(options.loss, nn.Module):
        found["loss"] = type(options.loss).__name__
        if smoothing := getattr(options.loss, "smoothing", None):
            found |= vars(smoothing)
    found["optimizer"] = type(optimizer).__name__
    for number, group in enumerate(optimizer.param_groups):
        own = {name: x for name, x in group.items() if isinstance(x, plain)}
        # rates last: they may follow from the other numbers
        own = dict(sorted(own.items(), key=lambda item: item[0].endswith("lr")))
        where = f" of group {number}" if number else ""
        found |= {f"{name}{where}": x for name, x in own.items()}
    sums = [prepared.images.checksum(), prepared.dev.checksum()]
    found["data"] = f"checksums {sums}"
    found["backbone weights"] = prepared.localiser.network.backbone.checksum()
    return found
