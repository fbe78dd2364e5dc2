"""Object localisers: train, save, load, detect."""

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
    SCORE_CLASSES,
    FeatureScale,
    ObjectScores,
    Scores,
)
from smoothsp.models.candidates import Proposals, Windows
from smoothsp.models.detection import DECODERS
from smoothsp.models.regions import (
    NUM_GEOMETRY,
    Appearance,
    geometry,
    resize_image,
    scale_boxes,
)
from smoothsp.models.training_setup import make_options, open_run
from smoothsp.models.weights import WEIGHTS, load_weights, to_safetensors
from smoothsp.oracles._inference import checks

__all__ = ["Found", "Localiser", "LocaliserNetwork"]

FORMAT = "smoothsp.models.Localiser"
SMALLEST_SIDE, LARGEST_SIDE = 32, 4096
OBJECTS = ("one", "several")

Picture = str | os.PathLike[str] | Image.Image | NDArray[np.uint8]


@dataclass(frozen=True)
class Found:
    """Detected boxes of an image, best first.

    Examples
    --------
    >>> from smoothsp.models.localiser import Found
    >>> Found([(12.0, 20.0, 180.0, 140.0)], ["dog"], [2.5], 200, 150).json()
    '{"width": 200, "height": 150, "boxes": [{"box": [12.0, ...], "label": "dog", ...'
    """

    boxes: list[tuple[float, float, float, float]]
    """Left, top, right, bottom in pixels; right and bottom are exclusive."""
    labels: list[str]
    """Classes of the boxes."""
    scores: list[float]
    """Scores, comparable between images; not probabilities."""
    width: int
    height: int

    def json(self) -> str:
        """Return one line of JSON: width, height, boxes with labels and scores."""
        boxes = [
            {"box": [round(x, 2) for x in box], "label": label, "score": score}
            for box, label, score in zip(
                self.boxes, self.labels, self.scores, strict=True
            )
        ]
        return json.dumps({"width": self.width, "height": self.height, "boxes": boxes})


class LocaliserNetwork(nn.Module):
    """Network from the pixels of an image to scores of its boxes.

    Scores are ``(box,)`` with :class:`LinearScores` or :class:`NonlinearScores`, and
    ``(box, class)`` with :class:`ObjectScores`.

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

    def __init__(self, backbone: Backbone, scores: Scores) -> None:
        super().__init__()
        self.appearance, self.scores = Appearance(backbone), scores

    @property
    def backbone(self) -> Backbone:
        """Convolutional backbone."""
        return self.appearance.backbone

    def features(self, pixels: Tensor, boxes: Tensor) -> Tensor:
        """Return features ``(box, cell, channel)``; for several objects, image maps."""
        if isinstance(self.scores, ObjectScores):
            # Rounded to half precision, like features of the disk cache.
            maps: Tensor = self.backbone(pixels[None])[0].half().float()
            return maps
        appearance: Tensor = self.appearance(pixels, boxes)
        return appearance

    def forward(self, pixels: Tensor, boxes: Tensor, geometry: Tensor) -> Tensor:
        """Return scores of boxes ``(box, 4)`` with geometry ``(box, 12)``.

        ``pixels`` are ``(3, H, W)``, normalised.
        """
        features = self.features(pixels, boxes)
        if isinstance(self.scores, ObjectScores):
            scored: Tensor = self.scores(features, boxes, geometry)
        else:
            scored = self.scores(features, geometry)
        return scored


class Localiser:
    """A network that scores candidate boxes, for one object or several.

    One object: the best proposal of selective search. Several objects: the best set of
    labelled windows in which overlapping windows exclude each other.

    Parameters
    ----------
    network
        Network; it is switched to evaluation mode.
    classes
        Class of the object, or all classes.
    candidates
        :class:`~smoothsp.models.candidates.Proposals` for one object,
        :class:`~smoothsp.models.candidates.Windows` for several.
    side
        Longer side of the resized image in pixels, from 32 to 4096.
    about
        Any JSON value, such as a description of the training.
    decoder
        For several objects: ``"best sets"`` by integer programming, or
        ``"non-maximum suppression"``.

    Examples
    --------
    >>> import smoothsp
    >>> localiser = smoothsp.models.load("runs/voc/model")  # doctest: +SKIP
    >>> localiser.predict(["horse.jpg"])[0].boxes  # doctest: +SKIP
    [(12.0, 20.0, 180.0, 140.0)]
    """

    def __init__(
        self,
        network: LocaliserNetwork,
        classes: Sequence[str],
        candidates: Proposals | Windows,
        side: int = 512,
        about: Mapping[str, Any] | None = None,
        decoder: str = "best sets",
    ) -> None:
        if type(side) is not int or not SMALLEST_SIDE <= side <= LARGEST_SIDE:
            raise ValueError(
                f"side: expected an int from {SMALLEST_SIDE} to {LARGEST_SIDE}, got"
                f" {side!r}"
            )
        if decoder not in DECODERS:
            raise ValueError(
                f"decoder: expected one of {', '.join(DECODERS)}, got {decoder!r}"
            )
        self.network, self.classes = network.eval(), list(classes)
        self.candidates, self.side, self.decoder = candidates, side, decoder
        self.about = dict(about or {})

    @property
    def objects(self) -> str:
        """``"one"`` or ``"several"``."""
        return OBJECTS[isinstance(self.candidates, Windows)]

    @classmethod
    def train(
        cls,
        data: Any,
        dev: Any = None,
        *,
        objects: str = "one",
        kind: str | None = None,
        backbone: str = "efficientnet-lite0",
        weights: str = "imagenet",
        loss: str | nn.Module = "hinge",
        epochs: int = 10,
        seed: int = 0,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        trainer: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "Localiser":
        """Train a localiser on images with boxes.

        Parameters
        ----------
        data, dev
            Path that :func:`smoothsp.data.read_boxes` reads, or images:
            :class:`~smoothsp.data.AnnotatedImage`, tuples of path, boxes and labels, or
            dictionaries, as the package ``datasets`` gives. The best epoch is chosen on
            ``dev``. If absent, it is the validation part of a folder, or one image in
            ten.
        objects
            ``"one"``: of the images, those with exactly one box of the class ``kind``
            are used, and the choice among proposals is learned. ``"several"``: any
            number of boxes of all classes.
        kind
            Class of the object; not needed if there is only one.
        backbone, weights
            As for :func:`smoothsp.models.backbones.backbone`.
        loss
            With one object ``"hinge"``, smoothed over the 10 best boxes, whose cost is
            1 - IoU, or a loss of :mod:`smoothsp.losses`. With several objects
            ``"hinge"``: the smoothed hinge over sets; ``"cliques"``: a softmax over
            each group of windows that exclude each other; ``"softmax"``: of each window
            alone, followed by non-maximum suppression.
        epochs, seed, trainer
            As for :func:`smoothsp.training.fit`.
        out
            Folder for ``checkpoint.ckpt`` and ``model``, the best epoch so far.
        resume, overwrite
            Continue, or replace, the run in ``out``.
        **options
            Fields of :class:`~smoothsp.models.localiser_training.Options`.

        Raises
        ------
        ModuleNotFoundError
            Without Lightning: ``pip install "smoothsp[lightning]"``.
        TypeError
            For an unknown option.
        ValueError
            If the images have no such boxes, or options do not fit together.

        Examples
        --------
        >>> from smoothsp.models.localiser import Localiser
        >>> localiser = Localiser.train("VOC2007", kind="dog")  # doctest: +SKIP
        >>> localiser.predict(["dog.jpg"])[0].boxes  # doctest: +SKIP
        [(48.0, 240.0, 195.0, 371.0)]
        """
        values: dict[str, Any] = {
            "objects": objects,
            "kind": kind,
            "backbone": backbone,
        }
        values |= {"weights": weights, "loss": loss, "epochs": epochs, "seed": seed}
        with open_run(out, resume, overwrite) as folder:
            # Imports Lightning, which only training needs.
            from smoothsp.models import localiser_training as training

            chosen_options = make_options(training.Options, values | options)
            return training.train(data, dev, chosen_options, folder, resume, trainer)

    def evaluate(
        self,
        data: Any,
        *,
        cache: str | os.PathLike[str] | None = None,
        workers: int = 1,
    ) -> dict[str, float]:
        """Return scores of the predicted boxes.

        Parameters
        ----------
        data
            As for ``train``; of a folder, the test part, or else the validation part.
        cache, workers
            As for ``train``.

        Returns
        -------
        dict
            One object: ``"iou"``, the mean overlap with the true box; ``"corloc"`` and
            ``"corloc_7"``, the shares of images in which it is above 0.5 and 0.7;
            ``"ap"``. Several objects: ``"map50"``, the mean average precision at an
            overlap of 0.5; ``"map"``, its mean up to 0.95; and ``"ap50_..."`` of each
            class. Objects that are difficult are not scored.

        Raises
        ------
        ValueError
            If the images have no boxes of these classes, or boxes of others.
        """
        # Imported late: predictions need neither readers nor progress bars.
        from smoothsp.data import as_images, read_box_splits
        from smoothsp.models.box_images import make_box_images

        kind = self.classes[0] if self.objects == "one" else None
        if isinstance(data, str | os.PathLike) and Path(data).is_dir():
            splits = read_box_splits(Path(data), kind=kind)
            data = splits.get("test") or splits["val"]
        return make_box_images(
            self, as_images(data, kind=kind), cache, workers
        ).evaluate()

    def predict(
        self,
        images: Sequence[Picture],
        nbest: int | None = None,
        overlap: float = 0.5,
    ) -> list[Found]:
        """Return the best boxes of each image.

        Parameters
        ----------
        images
            Files, images of Pillow, or RGB pixels ``(height, width, 3)``, uint8, of any
            sizes.
        nbest
            Maximum number of boxes per image. By default 1, and with several objects
            all that are in the best set; more of them rank behind it.
        overlap
            With one object: boxes whose intersection over union with a better one is
            above this are left out; in (0, 1], and 1 keeps all.

        Raises
        ------
        TypeError
            For values that are not images.
        ValueError
            For files that do not decode, and numbers out of range.
        """
        if nbest is not None:
            nbest = checks.as_positive_int("nbest", nbest)
        checks.require_number("overlap", overlap)
        if not 0 < overlap <= 1:
            raise ValueError(f"overlap: expected a number in (0, 1], got {overlap}")
        is_single_image = isinstance(images, str | os.PathLike | Image.Image) or (
            isinstance(images, np.ndarray) and images.ndim < 4
        )
        if is_single_image or not isinstance(images, Iterable):
            hint = "; write [image]" if is_single_image else ""
            type_name = type(images).__name__
            raise TypeError(f"images: expected a list of images, got {type_name}{hint}")
        return [
            self._predict(_as_pixels(image, number), nbest, overlap)
            for number, image in enumerate(images)
        ]

    @torch.no_grad()
    def _predict(
        self, image: NDArray[np.uint8], nbest: int | None, overlap: float
    ) -> Found:
        height, width = image.shape[:2]
        candidates = self.candidates.compute_boxes(image)
        boxes = torch.from_numpy(candidates)
        inputs = (
            self.network.backbone.pixels(resize_image(image, self.side)),
            scale_boxes(candidates, width, height, self.side),
            geometry(boxes, width, height),
        )
        weight = next(self.network.parameters())
        scores = self.network(*(x.to(weight) for x in inputs)).float().cpu()
        if self.objects == "one":
            best = nms(boxes, scores, overlap)[: nbest or 1]
            boxes, scores, names = boxes[best], scores[best], self.classes * len(best)
        else:
            detected = DECODERS[self.decoder](scores, boxes)
            top = slice(nbest or detected.num_selected)
            boxes, scores = detected.boxes[top], detected.scores[top]
            names = [self.classes[label] for label in detected.labels[top].tolist()]
        box_tuples = [(row[0], row[1], row[2], row[3]) for row in boxes.tolist()]
        return Found(box_tuples, names, scores.tolist(), width, height)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``config.json``.

        An existing model is replaced atomically: if the process is killed, the folder
        holds either the old model or the new one.
        """
        config = {
            "format": FORMAT,
            "version": 1,
            "objects": self.objects,
            "classes": self.classes,
            "backbone": self.network.backbone.name,
            "side": self.side,
            "about": self.about,
        }
        if isinstance(self.candidates, Proposals):
            kinds: dict[Any, str] = {kind: name for name, kind in SCORE_CLASSES.items()}
            config["scores"] = kinds[type(self.network.scores)]
            config["proposals"] = self.candidates.method
            config["max_boxes"] = self.candidates.limit
        else:
            config["shapes"] = self.candidates.shapes
            config["decoder"] = self.decoder
        files.write(
            files.check_folder_path(folder),
            config,
            {WEIGHTS: to_safetensors(self.network)},
        )


def from_folder(
    folder: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> Localiser:
    """Build a localiser from the result of ``files.read``."""
    path = folder / files.CONFIG
    if WEIGHTS not in content:
        raise ValueError(f"{path}: expected the checksum of {WEIGHTS}, got none")
    try:
        localiser = _build_from_config(config, files.get_about(path, config))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the description of a localiser, got an invalid one"
            f" ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from error
    load_weights(folder / WEIGHTS, localiser.network, content[WEIGHTS], files.CONFIG)
    return localiser


def _build_from_config(
    config: Mapping[str, Any], about: Mapping[str, Any] | None
) -> Localiser:
    """Build a localiser from its config, with initial weights."""
    objects, classes = config["objects"], config["classes"]
    if objects not in OBJECTS:
        raise ValueError(f"objects: expected one or several, got {objects!r}")
    if not isinstance(classes, list) or not all(isinstance(x, str) for x in classes):
        raise ValueError("classes: expected a list of names")
    if not classes or (objects == "one" and len(classes) > 1):
        raise ValueError(f"classes: expected {objects}, got {len(classes)}")
    layers = backbone(config["backbone"], "random")
    unit_channels = torch.ones(layers.channels)
    if objects == "several":
        candidates: Proposals | Windows = Windows(tuple(map(tuple, config["shapes"])))
        network = LocaliserNetwork(
            layers, ObjectScores(unit_channels, unit_channels, len(classes))
        )
        decoder = config["decoder"]
        return Localiser(network, classes, candidates, config["side"], about, decoder)
    candidates = Proposals(config["proposals"], config["max_boxes"])
    unit_geometry = torch.ones(NUM_GEOMETRY)
    scale = FeatureScale(unit_channels, unit_channels, unit_geometry, unit_geometry)
    network = LocaliserNetwork(layers, SCORE_CLASSES[config["scores"]](scale))
    return Localiser(network, classes, candidates, config["side"], about)


def _as_pixels(image: Any, index: int) -> NDArray[np.uint8]:
    """Return RGB pixels ``(height, width, 3)``; ``index`` is used in errors."""
    if isinstance(image, str | os.PathLike):
        # Reading a named pipe would block.
        if os.path.exists(image) and not os.path.isfile(image):
            raise ValueError(
                f"images: expected an image, got {os.fspath(image)}, which is no file"
            )
        try:
            with Image.open(image) as opened_image:
                # Rotate by the EXIF orientation.
                return _to_rgb(opened_image, ImageOps.exif_transpose)
        except FileNotFoundError:
            raise
        # Decoders raise errors of any type for damaged bytes.
        except Exception as error:
            raise ValueError(
                f"images: expected an image, got {os.fspath(image)}, a file that does"
                f" not decode ({error})"
            ) from error
    if isinstance(image, Image.Image):
        try:
            return _to_rgb(image)
        except ValueError as error:
            raise ValueError(
                f"images: expected an image, got {error} at {index}"
            ) from error
    if not isinstance(image, np.ndarray):
        raise TypeError(
            "images: expected files, Pillow images or arrays, got"
            f" {type(image).__name__} at {index}"
        )
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise TypeError(
            "images: expected uint8 pixels (height, width, 3), got"
            f" {image.dtype} {image.shape} at {index}"
        )
    if not image.size:
        raise ValueError(f"images: expected pixels, got {image.shape} at {index}")
    return image


def _to_rgb(
    image: Image.Image, transform: Callable[[Image.Image], Image.Image] = lambda x: x
) -> NDArray[np.uint8]:
    # Conversion of these modes clips values above 255 to white.
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"pixels of mode {image.mode}, not of 8 bits a channel")
    # Above this size Pillow only warns; it raises at twice the size.
    if Image.MAX_IMAGE_PIXELS and image.width * image.height > Image.MAX_IMAGE_PIXELS:
        raise ValueError(
            f"{image.width} x {image.height} pixels, more than Pillow's"
            f" MAX_IMAGE_PIXELS, {Image.MAX_IMAGE_PIXELS}"
        )
    return np.asarray(transform(image).convert("RGB"))
