"""Features of boxes: appearance from one pass over the image, and geometry.

Appearance is the RoI-aligned means of the backbone's maps on ``GRID_SIZE`` x
``GRID_SIZE`` cells. Geometry is ``NUM_GEOMETRY`` numbers in units of the image.
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
# Sampling points of a cell in each direction.
SAMPLES_PER_CELL = 2


def geometry(boxes: Tensor, width: int, height: int) -> Tensor:
    """Return geometry ``(box, 12)``.

    Columns: centre x, y; sides w, h; x^2, y^2, w^2, h^2, w h; log w, log h; log of the
    aspect ratio in pixels. All but the last are in units of the image.

    Parameters
    ----------
    boxes
        ``(box, 4)``: left, top, right, bottom in pixels.
    width, height
        Of the image, in pixels.
    """
    left, top, right, bottom = boxes.double().unbind(1)
    box_width, box_height = (right - left) / width, (bottom - top) / height
    x, y = (left + right) / (2 * width), (top + bottom) / (2 * height)
    shape = ((right - left) / (bottom - top)).log()
    columns = [
        x,
        y,
        box_width,
        box_height,
        x * x,
        y * y,
        box_width * box_width,
        box_height * box_height,
    ]
    columns += [box_width * box_height, box_width.log(), box_height.log(), shape]
    return torch.stack(columns, 1).float()


# Smallest side of a resized image, so that kernels of the backbone fit.
MIN_RESIZED_SIDE = 32


def resize_image(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Resize an image to a longer side of ``side`` pixels."""
    height, width = image.shape[:2]
    interpolation = cv2.INTER_AREA if side < max(width, height) else cv2.INTER_LINEAR
    resized = cv2.resize(
        image, _resized_size(width, height, side), interpolation=interpolation
    )
    return resized.astype(np.uint8)


def scale_boxes(
    boxes: NDArray[np.float32], width: int, height: int, side: int
) -> Tensor:
    """Convert boxes from pixels of an image to pixels of the resized image."""
    ratio = np.array(_resized_size(width, height, side)) / (width, height)
    return torch.from_numpy(boxes * np.tile(ratio, 2)).float()


def _resized_size(width: int, height: int, side: int) -> tuple[int, int]:
    scale = side / max(width, height)
    return max(round(width * scale), MIN_RESIZED_SIDE), max(
        round(height * scale), MIN_RESIZED_SIDE
    )


class Appearance(nn.Module):
    """Features ``(box, cell, channel)`` of boxes from one pass over the image.

    Means of 2 x 2 interpolated points in each of 3 x 3 cells of a box.
    """

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixels: Tensor, boxes: Tensor) -> Tensor:
        """Return features of boxes in a normalised image ``(3, height, width)``."""
        maps = self.backbone(pixels[None])
        features: Tensor = _RoIAlign.apply(maps, boxes)
        return features.flatten(2).transpose(1, 2)


class _RoIAlign(torch.autograd.Function):
    """``roi_align`` with forward-mode derivatives, which torchvision lacks.

    It is linear in the maps, so its tangent is the same function of their tangent.
    """

    @staticmethod
    def forward(maps: Tensor, boxes: Tensor) -> Tensor:
        grid = (GRID_SIZE, 1 / STRIDE, SAMPLES_PER_CELL)
        features: Tensor = roi_align(maps, [boxes], *grid, aligned=True)
        return features

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
