"""Foreground segmentation: train on images with masks, predict masks."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from smoothsp.models import files
from smoothsp.models.segmenter_network import Backbone, SegmenterNetwork, collate
from smoothsp.models.superpixels import (
    Cost,
    Graph,
    Image,
    Integers,
    Mask,
    build_graph,
    import_opencv,
)
from smoothsp.models.training_setup import make_options, open_run
from smoothsp.models.weights import WEIGHTS, load_weights, to_safetensors

__all__ = ["FORMAT", "Options", "Segmenter", "from_folder", "iou", "mask_scores"]

FORMAT = "smoothsp.models.Segmenter"
CONFIG_FIELDS = {
    "about",
    "backbone",
    "format",
    "loss",
    "side",
    "superpixels",
    "version",
}
Loss = Literal["hinge", "cross-entropy"]
# Number of images of a forward pass.
BATCH_SIZE = 4
LIMITS = {"side": (16, 4096), "superpixels": (2, 65536)}


@dataclass(frozen=True)
class Options:
    """Keywords of :meth:`Segmenter.train`."""

    backbone: Backbone = "small"
    """Convolutional feature extractor."""
    weights: str = "imagenet"
    """With efficientnet-lite0: imagenet for those of its package, a file, or random."""
    superpixels: int = 300
    """Approximate number per image."""
    side: int = 240
    """Longest side of the resized images in pixels."""
    loss: Loss = "hinge"
    """Loss of the whole graph, or of each superpixel separately."""
    cost: Cost = "balanced"
    """Cost of wrong pixels: balanced between both classes, or equal for all pixels."""
    epochs: int = 12
    """Passes over the training images."""
    seed: int = 0
    """Seed of the initial weights, and of the order and the mirroring of images."""

    def check(self) -> None:
        """Raise ``ValueError`` for values out of range."""
        literals = {"backbone": Backbone, "loss": Loss, "cost": Cost}
        for name, literal in literals.items():
            _require_choice(name, getattr(self, name), get_args(literal))
        for name, (min_value, max_value) in LIMITS.items():
            _require_int(name, getattr(self, name), min_value, max_value)
        _require_int("epochs", self.epochs, 1)
        _require_int("seed", self.seed, 0)


class Segmenter:
    """A network that scores superpixels, decoded by a minimum cut.

    Parameters
    ----------
    network
        Network; it is switched to evaluation mode.
    loss
        Loss that the network was trained with: after ``"hinge"`` a minimum cut labels
        all superpixels of an image together, after ``"cross-entropy"`` each is labelled
        by its own score.
    side
        Longest side of the resized images in pixels.
    superpixels
        Approximate number of superpixels per image.
    about
        Any JSON value, such as a description of the training.

    Examples
    --------
    >>> from smoothsp.models import Segmenter, load
    >>> segmenter = Segmenter.train("horses", epochs=8)  # doctest: +SKIP
    >>> segmenter.save("model")  # doctest: +SKIP
    >>> load("model").predict(["horse.jpg"])[0].shape  # doctest: +SKIP
    (480, 640)
    """

    def __init__(
        self,
        network: SegmenterNetwork,
        loss: Loss = "hinge",
        side: int = 240,
        superpixels: int = 300,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        Options(loss=loss, side=side, superpixels=superpixels).check()
        self.network, self.loss = network.eval(), loss
        self.side, self.superpixels = side, superpixels
        self.about = dict(about or {})

    @classmethod
    def train(
        cls,
        data: Any,
        dev: Any = None,
        *,
        backbone: str = "small",
        loss: str = "hinge",
        epochs: int = 12,
        seed: int = 0,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        trainer: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "Segmenter":
        """Train a segmenter on images with masks. Needs the extra ``lightning``.

        Ctrl-C after the first epoch ends the training and returns the best epoch so
        far, with ``about["interrupted"]``.

        Parameters
        ----------
        data
            Folder that :func:`smoothsp.data.read_masks` reads. Or a list of
            :class:`~smoothsp.data.MaskedImage`, of pairs of an image and a mask, or of
            dictionaries with ``image`` and ``mask`` or ``label``.
        dev
            The same, for choosing the best epoch. If absent, one image in ten is held
            out.
        backbone
            Convolutional layers: ``"small"``, or ``"efficientnet-lite0"`` with weights
            of ImageNet.
        loss
            ``"hinge"`` of the graph, or ``"cross-entropy"`` of each superpixel.
        epochs
            Number of passes over the training images.
        seed
            Seed of the initial weights, and of the order and the mirroring of images.
        out
            Folder for the best model so far, in ``model``, and for the checkpoint.
        resume
            Continue the run in ``out``: on one device, the result is the same, bit for
            bit, as without the interruption.
        overwrite
            Replace the run in ``out``.
        trainer
            Keywords of :class:`pytorch_lightning.Trainer`: ``devices``, ``precision``,
            ``logger``, ``callbacks``, ...
        **options
            Further fields of :class:`Options`: ``side``, ``superpixels``, ``cost``,
            ``weights``.

        Raises
        ------
        FileNotFoundError
            If there is no run to resume, or a file is missing.
        TypeError
            For an unknown option, and values that are not images.
        ValueError
            If an image does not fit its mask, an option is out of range, ``out`` holds
            a run, or training diverges.

        Examples
        --------
        >>> pairs = [("a.jpg", "a-mask.png"), ("b.jpg", "b-mask.png")]
        >>> segmenter = Segmenter.train(pairs, epochs=1)  # doctest: +SKIP
        >>> segmenter.evaluate(pairs)  # doctest: +SKIP
        {'iou': 0.83, 'accuracy': 0.95}
        """
        values = {"backbone": backbone, "loss": loss, "epochs": epochs, "seed": seed}
        chosen_options = make_options(Options, {**values, **options})
        chosen_options.check()
        with open_run(out, resume, overwrite) as folder:
            # Imports Lightning, which only training needs.
            from smoothsp.models import segmenter_training

            return segmenter_training.train(
                data, dev, chosen_options, folder, resume, trainer
            )

    def predict(self, images: Sequence[Any]) -> list[Mask]:
        """Return the foreground mask of each image, at its own size. Thread-safe.

        Parameters
        ----------
        images
            Files, images of Pillow, or RGB pixels ``(height, width, 3)``, uint8, of any
            sizes.

        Raises
        ------
        TypeError
            For values that are not images.
        ValueError
            For files that do not decode.
        """
        # Imported late: it imports OpenCV and Pillow.
        from smoothsp.data.masks import as_pixels, shrink_image

        if isinstance(images, str | os.PathLike) or not isinstance(images, Iterable):
            raise TypeError(
                f"images: expected a list of images, got {type(images).__name__};"
                " write [image]"
            )
        masks = []
        for number, image in enumerate(images):
            original = as_pixels(image, f"images[{number}]")
            small = shrink_image(original, self.side)
            graph = build_graph(small, self.superpixels)
            (labels,) = self.label([small], [graph])
            mask, size = graph.mask(labels).astype(np.uint8), original.shape[1::-1]
            cv2 = import_opencv()
            masks.append(cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST) > 0)
        return masks

    @torch.no_grad()
    def label(self, images: Sequence[Image], graphs: Sequence[Graph]) -> list[Integers]:
        """Return superpixel labels of images whose sides are at most ``side``."""
        labels = []
        for begin in range(0, len(images), BATCH_SIZE):
            rows = slice(begin, begin + BATCH_SIZE)
            batch = collate(images[rows], graphs[rows], self.side)
            batch = batch.to(self.network.device)
            scores = self.network(batch)
            if self.loss == "hinge":
                decoded = self.network.graph(scores, batch).decode()[1]
            else:
                decoded = (scores > 0).long()
            each = zip(decoded.cpu().numpy(), batch.sizes.tolist(), strict=True)
            labels += [row[:size] for row, size in each]
        return labels

    def evaluate(self, data: Any) -> dict[str, float]:
        """Return ``iou`` and ``accuracy``, means over images at their own sizes.

        ``iou`` is the intersection over union of predicted and true foreground, 1 if
        both are empty; ``accuracy`` is the fraction of correct pixels. ``data`` is as
        for :meth:`train`.
        """
        from smoothsp.data import as_masks

        examples = [example.read() for example in as_masks(data)]
        masks = self.predict([image for image, _ in examples])
        return mask_scores([mask for _, mask in examples], masks)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``config.json``.

        An existing model is replaced atomically: if the process is killed, the folder
        holds either the old model or the new one.
        """
        config = {"format": FORMAT, "version": 1, "backbone": self.network.name}
        for name in ("loss", "side", "superpixels", "about"):
            config[name] = getattr(self, name)
        files.write(
            files.check_folder_path(folder),
            config,
            {WEIGHTS: to_safetensors(self.network)},
        )


def from_folder(
    folder: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> Segmenter:
    """Build a segmenter from the result of ``files.read``."""
    path = folder / files.CONFIG
    if extra := sorted(config.keys() - CONFIG_FIELDS):
        raise ValueError(
            f"{path}: {extra[0]}: expected fields of a {FORMAT} only, got this one"
        )
    if WEIGHTS not in content:
        raise ValueError(f"{path}: expected the checksum of {WEIGHTS}, got none")
    try:
        segmenter = Segmenter(
            SegmenterNetwork(config["backbone"]),
            config["loss"],
            config["side"],
            config["superpixels"],
            files.get_about(path, config),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the description of a segmenter, got an invalid one"
            f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from error
    load_weights(folder / WEIGHTS, segmenter.network, content[WEIGHTS], files.CONFIG)
    return segmenter


def _require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")


def _require_int(name: str, value: Any, min_value: int, max_value: int = 2**63) -> None:
    if type(value) is not int or not min_value <= value <= max_value:
        upper = f" to {max_value}" if max_value < 2**63 else " on"
        raise ValueError(
            f"{name}: expected an int from {min_value}{upper}, got {value!r}"
        )


def mask_scores(true: Sequence[Mask], predicted: Sequence[Mask]) -> dict[str, float]:
    """Return ``iou`` and ``accuracy`` of masks, as :meth:`Segmenter.evaluate`."""
    scores = [
        (iou(mask, other), float((mask == other).mean()))
        for mask, other in zip(true, predicted, strict=True)
    ]
    means = np.mean(scores, 0)
    return {"iou": float(means[0]), "accuracy": float(means[1])}


def iou(first: Mask, second: Mask) -> float:
    """Return the intersection over union of two masks; 1 if both are empty."""
    union = (first | second).sum()
    return float((first & second).sum() / union) if union else 1.0
