"""A trained network that finds several objects: from images to labelled boxes."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from localization.several.annotations import Example
from localization.several.detection import DECODERS
from localization.several.images import Data, maps_of, windows_of
from localization.several.network import ObjectScores
from runs import model_folder
from smoothsp.models.backbones import Backbone, backbone


class ObjectNetwork(nn.Module):
    """A backbone and the scores of windows above its maps."""

    def __init__(self, layers: Backbone, scores: ObjectScores) -> None:
        super().__init__()
        self.backbone, self.scores = layers, scores


class Detector:
    """A network with its classes, the shapes of its windows and its decoder."""

    def __init__(self, network: ObjectNetwork, about: dict[str, Any]) -> None:
        self.network, self.about = network.eval(), about
        self.classes: list[str] = about["classes"]
        self.windows_of = windows_of(np.array(about["shapes"]), about["side"])

    @torch.no_grad()
    def find(self, name: str, path: Path, image: np.ndarray) -> Example:
        """The objects of an image ``(height, width, 3)``, the best first."""
        size = image.shape[1], image.shape[0]
        windows = self.windows_of(size)
        # in half precision, as in training
        maps = maps_of(self.network.backbone, image, self.about["side"]).float()
        device = self.network.scores.mean.device
        inputs = (x.to(device) for x in (maps, windows.scaled, windows.geometry))
        scores = self.network.scores(*inputs).cpu()
        found = DECODERS[self.about["decoder"]](scores, windows.boxes)
        kept = slice(found.sure)
        boxes = tuple(tuple(box) for box in found.boxes[kept].tolist())
        labels = tuple(self.classes[n] for n in found.labels[kept].tolist())
        return Example(
            name, path, boxes, labels, size, tuple(found.scores[kept].tolist())
        )

    def save(self, folder: Path) -> None:
        model_folder.save(folder, self.network, self.about)


def detector(
    layers: Backbone, scores: ObjectScores, data: Data, about: dict[str, Any]
) -> Detector:
    """That of a run."""
    known = {"classes": data.classes, "shapes": data.shapes.tolist()}
    return Detector(ObjectNetwork(layers, scores), known | about)


def load(folder: Path) -> Detector:
    """A detector from the folder of a run."""
    network, about = model_folder.load(folder, ObjectNetwork, _build)
    return Detector(network, about)


def _build(about: dict[str, Any]) -> ObjectNetwork:
    layers = backbone(about["backbone"], "random")
    empty = torch.zeros(layers.channels)
    return ObjectNetwork(layers, ObjectScores(empty, empty, len(about["classes"])))
