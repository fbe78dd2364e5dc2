"""Features of boxes: how they look, from one pass over the image, and where they are.

What a box looks like is ``PLACES`` x ``PLACES`` means of the network's maps; where it
is are ``GEOMETRY`` numbers in units of the image.
"""

from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torchvision.ops import roi_align

from smoothsp.models.backbones import STRIDE, Backbone

__all__ = [
    "GRID_SIZE",
    "NUM_GEOMETRY",
    "Appearance",
    "geometry",
    "resize_image",
    "scale_boxes",
]

GRID_SIZE, NUM_GEOMETRY = 3, 12
# of a place, across and down
SAMPLES = 2


def geometry(boxes: Tensor, width: int, height: int) -> Tensor:
    """``(box, 12)``: centre, sides, their squares and product, logarithms of the sides.

    Parameters
    ----------
    boxes
        ``(box, 4)``: left, top, right, bottom in pixels.
    width, height
        Of the image, in pixels.
    """
    left, top, right, bottom = boxes.double().unbind(1)
    across, down = (right - left) / width, (bottom - top) / height
    x, y = (left + right) / (2 * width), (top + bottom) / (2 * height)
    shape = ((right - left) / (bottom - top)).log()
    columns = [x, y, across, down, x * x, y * y, across * across, down * down]
    columns += [across * down, across.log(), down.log(), shape]
    return torch.stack(columns, 1).float()


# Pixels of the shorter side of a resized image: backbones have larger kernels than one.
NARROWEST = 32


def resize_image(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The image with its longer side ``side`` pixels long."""
    height, width = image.shape[:2]
    way = cv2.INTER_AREA if side < max(width, height) else cv2.INTER_LINEAR
    found = cv2.resize(image, _size(width, height, side), interpolation=way)
    return found.astype(np.uint8)


def scale_boxes(
    boxes: NDArray[np.float32], width: int, height: int, side: int
) -> Tensor:
    """Boxes of an image of this size, in pixels of the resized one."""
    ratio = np.array(_size(width, height, side)) / (width, height)
    return torch.from_numpy(boxes * np.tile(ratio, 2)).float()


def _size(width: int, height: int, side: int) -> tuple[int, int]:
    scale = side / max(width, height)
    return max(round(width * scale), NARROWEST), max(round(height * scale), NARROWEST)


class Appearance(nn.Module):
    """Features ``(box, place, channel)`` from one pass over the image.

    Means of 2 x 2 points, between cells, at each of 3 x 3 places of a box.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels: Tensor, boxes: Tensor) -> Tensor:
        """Return features of boxes in normalised images ``(3, height, width)``."""
        maps = self.backbone(pixels[None])
        found: Tensor = _RoIAlign.apply(maps, boxes)
        return found.flatten(2).transpose(1, 2)


class _RoIAlign(torch.autograd.Function):
    """Torchvision's, with the forward-mode derivative that it lacks: it is linear."""

    @staticmethod
    def forward(maps: Tensor, boxes: Tensor) -> Tensor:
        places = (GRID_SIZE, 1 / STRIDE, SAMPLES)
        found: Tensor = roi_align(maps, [boxes], *places, aligned=True)
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        maps, ctx.boxes = inputs
        ctx.shape = maps.shape

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _RoIAlign.forward(tangent, ctx.boxes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        with torch.enable_grad():
            maps = gradient.new_zeros(ctx.shape, requires_grad=True)
            output = _RoIAlign.forward(maps, ctx.boxes)
        return torch.autograd.grad(output, maps, gradient)[0], None
