"""Images with candidates and features: what the localiser is trained on."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.ops import box_iou

from localization import candidates
from localization import features as localization_features
from localization.folder import Example
from smoothsp.models.backbones import Backbone
from smoothsp.models.box_scores import FeatureScale
from smoothsp.models.regions import Appearance, geometry

Inputs = Callable[[int], tuple[Tensor, ...]]


class Images:
    """Images of a list, their candidates, and what the network takes."""

    def __init__(
        self, examples: list[Example], boxes: list[Tensor], inputs: Inputs
    ) -> None:
        self.examples, self.boxes, self.inputs = examples, boxes, inputs
        true = [torch.tensor([example.box]) for example in examples]
        # overlap of each candidate with the true box; the best one is the label
        self.overlaps = [
            box_iou(own, box).squeeze(1) for own, box in zip(boxes, true, strict=True)
        ]
        self.labels = [int(overlap.argmax()) for overlap in self.overlaps]

    def __len__(self) -> int:
        return len(self.examples)

    def cost(self, number: int) -> Tensor:
        """``1 - IoU`` of each candidate with the label, ``(1, box)``."""
        own, label = self.boxes[number], self.labels[number]
        return 1 - box_iou(own[label : label + 1], own)

    def checksum(self) -> int:
        """Of names, boxes and candidates."""
        digest = 0
        for example, own in zip(self.examples, self.boxes, strict=True):
            about = repr((example.name, example.box)).encode()
            digest = zlib.crc32(own.numpy().tobytes(), zlib.crc32(about, digest))
        return digest


@dataclass
class Data:
    """Images by list, the network below the scores, and how large its features are."""

    parts: dict[str, Images]
    backbone: Backbone
    scale: FeatureScale


@dataclass(frozen=True)
class Preparation:
    """Where candidates and features come from."""

    proposals: str
    max_boxes: int
    side: int
    finetune: bool
    cache: Path
    workers: int

    def data(self, lists: dict[str, list[Example]], backbone: Backbone) -> Data:
        """Candidates and features of all lists, from disk where they are kept."""
        parts = {}
        for part, examples in lists.items():
            images = [example.image for example in examples]
            boxes = candidates.of_images(
                images, self.proposals, self.max_boxes, self.cache, self.workers
            )
            own = [torch.from_numpy(b) for b in boxes]
            where = [
                geometry(b, *example.size)
                for b, example in zip(own, examples, strict=True)
            ]
            inputs = self._inputs(images, boxes, where, backbone)
            parts[part] = Images(examples, own, inputs)
        network = Appearance(backbone) if self.finetune else None
        device = next(backbone.parameters()).device
        features = partial(_features, parts["train"], network, device)
        numbers = range(len(parts["train"]))
        return Data(parts, backbone, localization_features.scale(features, numbers))

    def _inputs(
        self,
        images: list[Path],
        boxes: list[np.ndarray],
        where: list[Tensor],
        backbone: Backbone,
    ) -> Inputs:
        if self.finetune:
            return lambda n: (
                *localization_features.picture(
                    backbone, images[n], boxes[n], self.side
                ),
                where[n],
            )
        kept = localization_features.kept_on_disk(
            backbone, images, boxes, self.side, self.cache
        )
        return lambda n: (localization_features.open_kept(kept[n]), where[n])


@torch.no_grad()
def _features(
    images: Images, network: Appearance | None, device: torch.device, number: int
) -> tuple[Tensor, Tensor]:
    *looks, where = (x.to(device).float() for x in images.inputs(number))
    return (network(*looks) if network else looks[0]), where
