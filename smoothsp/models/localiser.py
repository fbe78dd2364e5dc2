"""Trained object localisers: save, load and locate."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor, nn
from torchvision.ops import nms

from smoothsp.models import files
from smoothsp.models.backbones import Backbone, backbone
from smoothsp.models.box_scores import (
    KINDS,
    FeatureScale,
    LinearScores,
    NonlinearScores,
)
from smoothsp.models.proposals import METHODS, propose
from smoothsp.models.regions import GEOMETRY, Appearance, geometry, resized
from smoothsp.models.weights import WEIGHTS, set_weights, weights_of
from smoothsp.oracles._questions import checks

__all__ = ["Found", "Localiser", "LocaliserNetwork"]

FORMAT = "smoothsp.models.Localiser"
SMALLEST_SIDE = 32


@dataclass(frozen=True)
class Found:
    """The best boxes of an image, the best one first.

    Examples
    --------
    >>> from smoothsp.models.localiser import Found
    >>> Found([(12.0, 20.0, 180.0, 140.0)], [2.5], 200, 150).json()
    '{"width": 200, "height": 150, "boxes": [{"box": [12.0, ...], "score": 2.5}]}'
    """

    boxes: list[tuple[float, float, float, float]]
    """Left, top, right and bottom in pixels; the last two are the first outside."""
    scores: list[float]
    """Scores, comparable between images; not probabilities."""
    width: int
    height: int

    def json(self) -> str:
        """One line of JSON: width, height, and boxes with their scores."""
        boxes = [
            {"box": [round(x, 2) for x in box], "score": score}
            for box, score in zip(self.boxes, self.scores, strict=True)
        ]
        return json.dumps({"width": self.width, "height": self.height, "boxes": boxes})


class LocaliserNetwork(nn.Module):
    """Scores ``(box,)`` of boxes of an image, from its pixels.

    Examples
    --------
    >>> import torch
    >>> from smoothsp.models.backbones import backbone
    >>> from smoothsp.models.box_scores import FeatureScale, LinearScores
    >>> layers = backbone("efficientnet-lite0", "random")
    >>> ones, twelve = torch.ones(layers.channels), torch.ones(12)
    >>> scale = FeatureScale(ones, ones, twelve, twelve)
    >>> network = LocaliserNetwork(layers, LinearScores(scale))
    >>> boxes = torch.tensor([[0.0, 0.0, 32.0, 32.0], [8.0, 8.0, 64.0, 48.0]])
    >>> network(torch.rand(3, 64, 64), boxes, torch.rand(2, 12)).shape
    torch.Size([2])
    """

    def __init__(
        self, backbone: Backbone, scores: LinearScores | NonlinearScores
    ) -> None:
        super().__init__()
        self.appearance, self.scores = Appearance(backbone), scores

    def forward(self, pixels: Tensor, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Scores of boxes, ``(box, 4)`` and ``(box, 12)``, in pixels ``(3, H, W)``."""
        found: Tensor = self.scores(self.appearance(pixels, boxes), geometry)
        return found


class Localiser:
    """A network that scores candidate boxes, with its proposal method.

    Parameters
    ----------
    network
        Network; it is switched to evaluation mode.
    kind
        Class of the objects.
    proposals, max_boxes
        As for ``smoothsp.models.proposals.propose``.
    side
        Longer side of the resized image in pixels, at least 32.
    about
        Any JSON value, such as a description of the training.

    Examples
    --------
    >>> import smoothsp
    >>> localiser = smoothsp.models.load("runs/voc/model")  # doctest: +SKIP
    >>> localiser.locate(["horse.jpg"])[0].boxes  # doctest: +SKIP
    [(12.0, 20.0, 180.0, 140.0)]
    """

    def __init__(
        self,
        network: LocaliserNetwork,
        kind: str,
        proposals: str = "selective-search",
        max_boxes: int = 1000,
        side: int = 512,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if proposals not in METHODS:
            raise ValueError(
                f"proposals: expected one of {', '.join(METHODS)}, got {proposals!r}"
            )
        for name, value, least in (
            ("max_boxes", max_boxes, 1),
            ("side", side, SMALLEST_SIDE),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: expected at least {least}, got {value!r}")
        self.network, self.kind = network.eval(), kind
        self.proposals, self.max_boxes, self.side = proposals, max_boxes, side
        self.about = dict(about or {})

    @torch.no_grad()
    def locate(
        self,
        images: Sequence[str | os.PathLike[str] | Image.Image | NDArray[np.uint8]],
        nbest: int = 1,
        overlap: float = 0.5,
    ) -> list[Found]:
        """Return the best boxes of each image.

        Parameters
        ----------
        images
            Files, images of Pillow, or RGB pixels ``(height, width, 3)``, uint8, of any
            sizes.
        nbest
            Maximum number of boxes per image.
        overlap
            Boxes whose intersection over union with a better one is above this are left
            out; in (0, 1], and 1 keeps all.

        Raises
        ------
        TypeError
            For values that are not images.
        ValueError
            For files that do not decode, and numbers out of range.
        """
        nbest = checks.positive_int("nbest", nbest)
        checks.number("overlap", overlap)
        if not 0 < overlap <= 1:
            raise ValueError(f"overlap: expected a number in (0, 1], got {overlap}")
        alone = isinstance(images, str | os.PathLike | Image.Image) or (
            isinstance(images, np.ndarray) and images.ndim < 4
        )
        if alone or not isinstance(images, Iterable):
            hint = "; write [image]" if alone else ""
            found = type(images).__name__
            raise TypeError(f"images: expected a list of images, got {found}{hint}")
        return [
            self._locate(_pixels(image, number), nbest, overlap)
            for number, image in enumerate(images)
        ]

    def _locate(self, image: NDArray[np.uint8], nbest: int, overlap: float) -> Found:
        height, width = image.shape[:2]
        candidates = propose(image, self.proposals, self.max_boxes)
        pixels, boxes = resized(image, candidates, self.side)
        own = torch.from_numpy(candidates)
        inputs = (
            self.network.appearance.backbone.pixels(pixels),
            boxes,
            geometry(own, width, height),
        )
        device = self.network.scores.where.device
        scores = self.network(*(x.to(device) for x in inputs)).cpu()
        best = nms(own, scores, overlap)[:nbest]
        listed = [(row[0], row[1], row[2], row[3]) for row in own[best].tolist()]
        return Found(listed, scores[best].tolist(), width, height)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``config.json``.

        An existing model is replaced atomically: if the process is killed, the folder
        holds either the old model or the new one.
        """
        kinds = {kind: name for name, kind in KINDS.items()}
        config = {
            "format": FORMAT,
            "version": 1,
            "kind": self.kind,
            "backbone": self.network.appearance.backbone.name,
            "scores": kinds[type(self.network.scores)],
            "proposals": self.proposals,
            "max_boxes": self.max_boxes,
            "side": self.side,
            "about": self.about,
        }
        files.write(files.place_of(folder), config, {WEIGHTS: weights_of(self.network)})


def from_folder(
    place: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> Localiser:
    """The localiser of what ``files.read`` gave."""
    path = place / files.CONFIG
    if WEIGHTS not in content:
        raise ValueError(f"{path}: expected the checksum of {WEIGHTS}, got none")
    try:
        layers = backbone(config["backbone"], "random")
        size = layers.channels
        ones, twelve = torch.ones(size), torch.ones(GEOMETRY)
        scale = FeatureScale(ones, ones, twelve, twelve)
        network = LocaliserNetwork(layers, KINDS[config["scores"]](scale))
        found = Localiser(
            network,
            config["kind"],
            config["proposals"],
            config["max_boxes"],
            config["side"],
            files.about_of(path, config),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the description of a localiser, got an invalid one"
            f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from error
    set_weights(place / WEIGHTS, network, content[WEIGHTS], files.CONFIG)
    return found


def _pixels(image: Any, number: int) -> NDArray[np.uint8]:
    """``(height, width, 3)``."""
    if isinstance(image, str | os.PathLike):
        # not a pipe, which would be waited for
        if os.path.exists(image) and not os.path.isfile(image):
            raise ValueError(
                f"images: expected an image, got {os.fspath(image)}, which is no file"
            )
        try:
            with Image.open(image) as opened:
                # a camera notes how it was held
                return _in_colour(opened, ImageOps.exif_transpose)
        except FileNotFoundError:
            raise
        # decoders raise errors of any kind for damaged bytes
        except Exception as error:
            raise ValueError(
                f"images: expected an image, got {os.fspath(image)}, a file that does"
                f" not decode ({error})"
            ) from error
    if isinstance(image, Image.Image):
        try:
            return _in_colour(image)
        except ValueError as error:
            raise ValueError(
                f"images: expected an image, got {error} at {number}"
            ) from error
    if not isinstance(image, np.ndarray):
        raise TypeError(
            "images: expected files, Pillow images or arrays, got"
            f" {type(image).__name__} at {number}"
        )
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise TypeError(
            "images: expected uint8 pixels (height, width, 3), got"
            f" {image.dtype} {image.shape} at {number}"
        )
    if not image.size:
        raise ValueError(f"images: expected pixels, got {image.shape} at {number}")
    return image


def _in_colour(
    image: Image.Image, turn: Callable[[Image.Image], Image.Image] = lambda x: x
) -> NDArray[np.uint8]:
    # of these Pillow would make white what is above 255
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"pixels of mode {image.mode}, not of 8 bits a channel")
    # here Pillow warns, and decodes twice as many
    if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise ValueError(
            f"{image.width} x {image.height} pixels, more than Pillow's"
            f" MAX_IMAGE_PIXELS, {Image.MAX_IMAGE_PIXELS}"
        )
    return np.asarray(turn(image).convert("RGB"))
