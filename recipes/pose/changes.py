"""Images of people turned, enlarged, moved and mirrored, to train on."""

import cv2
import numpy as np
import torch
from torch import Tensor

from pose.joints import MIRRORED, Figures

TURN, ZOOM, MOVE = 0.4, 1.2, 0.06
GREY = (127, 127, 127)


def changed(figures: Figures, mirror: bool) -> Figures:
    """Each figure in a way of its own, drawn from torch's generator."""
    images, joints, known = [], [], []
    chances = torch.rand(len(figures), 6).numpy()
    for image, places, there, rng in zip(
        figures.images, figures.joints, figures.known, chances, strict=True
    ):
        one = _change(image, places, there, rng, mirror)
        for listed, value in zip((images, joints, known), one, strict=True):
            listed.append(value)
    return Figures(np.stack(images), np.stack(joints), np.stack(known))


def _change(
    image: np.ndarray,
    joints: np.ndarray,
    known: np.ndarray,
    rng: np.ndarray,
    mirror: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    side = len(image)
    if mirror and rng[0] < 0.5:
        image, known = image[:, ::-1], known[list(MIRRORED)]
        joints = (joints * (-1, 1) + (side - 1, 0))[list(MIRRORED)]
    spread = 2 * rng[1:5].astype(float) - 1
    zoom, middle = ZOOM ** spread[1], (side - 1) / 2
    turn = cv2.getRotationMatrix2D((middle, middle), np.rad2deg(TURN * spread[0]), zoom)
    turn[:, 2] += MOVE * side * spread[2:]
    moved = cv2.warpAffine(
        np.ascontiguousarray(image), turn, (side, side), borderValue=GREY
    )
    light = moved * (0.8 + 0.4 * float(rng[5]))
    places = joints @ turn[:, :2].T + turn[:, 2]
    inside = ((places >= 0) & (places < side)).all(1)
    return light.clip(0, 255).astype(np.uint8), places, known & inside


def cells(figures: Figures, stride: int) -> tuple[Tensor, Tensor]:
    """Row and column of each joint's cell ``(n, 14, 2)``, and which are known."""
    count = figures.side // stride
    places = torch.from_numpy(figures.joints[..., ::-1] / stride).floor().long()
    known = torch.from_numpy(figures.known)
    return places.clamp(0, count - 1).masked_fill(~known[..., None], 0), known
