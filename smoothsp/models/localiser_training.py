"""Training of localisers: data, initial network, loss and optimizer."""

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

# Smoothing strength of the hinge for one object and several; number of boxes over which
# the hinge of one object is smoothed.
MU, TOP_K = {"one": 1.0, "several": 0.3}, 10
# Learning rates (SGD; Adam for several objects) and regularisation of each network.
RATES = {"linear": 2**-10, "nonlinear": 2**-7, "finetune": 2**-11, "several": 4e-3}
DECAYS = {"linear": 10.0, "nonlinear": 1.0, "finetune": 0.1, "several": 0.0}


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
    """Maximum learning rate; None: a default that depends on what is trained."""
    decay: float | None = None
    """Weight of the squared norm, times the number of images; None: a default."""
    mu: float | None = None
    """Strength of the smoothing of ``"hinge"``: 1, or 0.3 with several objects."""
    optimizer: Callable[[nn.Module, int], Optimizer] | None = None
    """Function of the trained network and the number of images that returns an
    optimizer; its rates are constant and weights are not averaged. By default SGD, for
    several objects Adam, with rates that decay to 0 and averaged weights."""
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
        for name, allowed in choices.items():
            if (value := getattr(self, name)) not in allowed:
                expected = " or ".join(allowed)
                raise ValueError(f"{name}: expected {expected}, got {value!r}")
        for name, min_value in (("epochs", 1), ("seed", 0), ("workers", 1)):
            if (value := getattr(self, name)) < min_value:
                raise ValueError(f"{name}: expected at least {min_value}, got {value}")
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
    def rate_key(self) -> str:
        """Key of ``RATES`` and ``DECAYS``."""
        if self.objects == "several":
            return self.objects
        return "finetune" if self.finetune else self.scores

    def compute_decay(self, images: int) -> float:
        """Return the weight lambda of ``lambda / 2 * |w|^2``."""
        return (DECAYS[self.rate_key] if self.decay is None else self.decay) / images


@dataclass(frozen=True)
class Prepared:
    """A localiser before training, its images and its loss."""

    localiser: Localiser
    images: SingleObjectImages | MultiObjectImages
    dev: SingleObjectImages | MultiObjectImages
    loss: Callable[[int], Tensor]
    """Loss of the image with an index."""


def train(
    data: Any,
    dev: Any,
    options: Options,
    out: Path | None,
    resume: bool,
    trainer: Mapping[str, Any] | None,
) -> Localiser:
    """Train a localiser; see ``Localiser.train``."""
    prepared = prepare(data, dev, options)
    localiser, images = prepared.localiser, prepared.images
    network, is_default_optimizer = images.network, options.optimizer is None
    decay = options.compute_decay(len(images))
    if options.optimizer is not None:
        optimizer = options.optimizer(network, len(images))
    else:
        kind = Adam if options.objects == "several" else SGD
        rate = RATES[options.rate_key] if options.rate is None else options.rate
        optimizer = kind(network.parameters(), rate, weight_decay=decay)

    def loss(numbers: Tensor) -> Tensor:
        return torch.stack([prepared.loss(n) for n in numbers.tolist()]).mean()

    def evaluate() -> dict[str, float]:
        scores = prepared.dev.evaluate()
        if options.objective and isinstance(images, SingleObjectImages):
            scores["objective"] = images.objective(decay)
        return scores

    settings = _describe_settings(prepared, options, optimizer)

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
        warm_up=0 if is_default_optimizer else None,
        clip=None,
        average=is_default_optimizer,
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
    """Read images, compute candidates and features, and build the network."""
    examples = as_images(data, kind=options.kind)
    if dev is None and isinstance(data, str | os.PathLike) and Path(data).is_dir():
        dev = data
    if dev is None:
        examples, dev_examples = split_dev(examples)
    else:
        dev_examples = as_images(dev, part="val", kind=options.kind, name="dev")
    layers = backbone(options.backbone, options.weights)
    layers = layers.to("cuda" if torch.cuda.is_available() else "cpu")
    localiser = _build_initial_localiser(layers, examples, options)
    arguments = (options.cache, options.workers, options.finetune)
    images, dev_images = (
        make_box_images(localiser, x, *arguments) for x in (examples, dev_examples)
    )
    seed_all(options.seed, 0)
    network = localiser.network
    network.scores = _build_scores(images, options).to(next(layers.parameters()).device)
    mu = MU[options.objects] if options.mu is None else options.mu
    if isinstance(images, SingleObjectImages):
        single_images, criterion = images, options.loss
        if isinstance(criterion, str):
            criterion = StructuralHinge(L2(mu, TOP_K))
        return Prepared(
            localiser,
            single_images,
            dev_images,
            lambda n: single_images.loss(n, criterion),
        )
    multi_images, name = images, str(options.loss)
    loss_options = {"mu": mu} if name == "hinge" else {}
    return Prepared(
        localiser,
        multi_images,
        dev_images,
        lambda n: multi_images.loss(n, name, **loss_options),
    )


def _build_initial_localiser(
    layers: Any, examples: Sequence[AnnotatedImage], options: Options
) -> Localiser:
    """Build a localiser whose backbone and candidates are final, but not its scores.

    The scores need statistics of features, which need backbone and candidates.
    """
    classes = sorted({label for example in examples for label in example.labels})
    unit_channels = torch.ones(layers.channels)
    if options.objects == "several":
        if not classes:
            raise ValueError("data: expected images with boxes, got none")
        typical_shapes = cluster_shapes(
            [example.boxes for example in examples],
            [example.labels for example in examples],
            [example.size or read_image_size(example.path)[:2] for example in examples],
        )
        windows = Windows(tuple((float(w), float(h)) for w, h in typical_shapes))
        network = LocaliserNetwork(
            layers, ObjectScores(unit_channels, unit_channels, len(classes))
        )
        decoder = (
            "non-maximum suppression" if options.loss == "softmax" else "best sets"
        )
        return Localiser(network, classes, windows, options.side, decoder=decoder)
    kind = options.kind
    if kind is None:
        if len(classes) != 1:
            raise ValueError(
                f"kind: expected the class of the object, one of {', '.join(classes)},"
                " got none"
            )
        (kind,) = classes
    unit_geometry = torch.ones(NUM_GEOMETRY)
    scale = FeatureScale(unit_channels, unit_channels, unit_geometry, unit_geometry)
    network = LocaliserNetwork(layers, LinearScores(scale))
    proposals = Proposals(options.proposals, options.max_boxes)
    return Localiser(network, [kind], proposals, options.side)


def _build_scores(
    images: SingleObjectImages | MultiObjectImages, options: Options
) -> Scores:
    """Build score functions, standardised by feature statistics of the images.

    Sums are in float64: the variance ``E[x^2] - E[x]^2`` cancels.
    """
    sums: list[Any] = [[0, 0.0, 0.0], [0, 0.0, 0.0]]
    is_multi = options.objects == "several"
    for number in range(len(images)):
        appearance, position = images.features(number)
        appearance = appearance.flatten(1).T if is_multi else appearance.flatten(0, 1)
        for statistics, flat in zip(sums, (appearance, position), strict=True):
            statistics[0] += len(flat)
            statistics[1] = statistics[1] + flat.sum(0, dtype=torch.float64)
            statistics[2] = statistics[2] + flat.double().square().sum(0)
    parameters = []
    for count, total, squares in sums:
        mean = total / count
        variance = squares / count - mean.square()
        deviation = variance.clamp(min=1e-6 if is_multi else 0).sqrt()
        parameters += [mean.float(), deviation.float()]
    if is_multi:
        mean, deviation = parameters[:2]
        return ObjectScores(mean, deviation, len(images.localiser.classes))
    return box_scores.SCORE_CLASSES[options.scores](FeatureScale(*parameters))


def _describe_settings(
    prepared: Prepared, options: Options, optimizer: Optimizer
) -> dict[str, Any]:
    """Return all values that determine the result of a training."""
    plain_types = (bool, int, float, str, type(None))
    excluded = ("cache", "workers", "patience")
    names = [field.name for field in fields(Options) if field.name not in excluded]
    candidates = {"model": "Localiser"} | {
        name: getattr(options, name) for name in names
    }
    settings = {name: x for name, x in candidates.items() if isinstance(x, plain_types)}
    if isinstance(options.loss, nn.Module):
        settings["loss"] = type(options.loss).__name__
        if smoothing := getattr(options.loss, "smoothing", None):
            settings |= vars(smoothing)
    settings["optimizer"] = type(optimizer).__name__
    for number, group in enumerate(optimizer.param_groups):
        group_options = {
            name: x for name, x in group.items() if isinstance(x, plain_types)
        }
        # Rates come last, since differing settings are reported in order, and other
        # settings may determine the rate.
        group_options = dict(
            sorted(group_options.items(), key=lambda item: item[0].endswith("lr"))
        )
        suffix = f" of group {number}" if number else ""
        settings |= {f"{name}{suffix}": x for name, x in group_options.items()}
    checksums = [prepared.images.checksum(), prepared.dev.checksum()]
    settings["data"] = f"checksums {checksums}"
    settings["backbone weights"] = prepared.localiser.network.backbone.checksum()
    return settings
