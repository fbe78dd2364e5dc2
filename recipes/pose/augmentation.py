"""Images of people turned, enlarged, moved and mirrored, to train on."""

import cv2
import numpy as np
import torch
from torch import Tensor

from pose.joints import MIRRORED, People

TURN, ZOOM, MOVE = 0.4, 1.2, 0.06
GREY = (127, 127, 127)


def augment(people: People, mirror: bool) -> People:
    """Each figure in a way of its own, drawn from torch's generator."""
    images, joints, is_marked = [], [], []
    uniforms = torch.rand(len(people), 6).numpy()
    for image, image_joints, marks, numbers in zip(
        people.images, people.joints, people.is_marked, uniforms, strict=True
    ):
        augmented = _augment_person(image, image_joints, marks, numbers, mirror)
        for listed, value in zip((images, joints, is_marked), augmented, strict=True):
            listed.append(value)
    return People(np.stack(images), np.stack(joints), np.stack(is_marked))


def _augment_person(
    image: np.ndarray,
    joints: np.ndarray,
    is_marked: np.ndarray,
    uniforms: np.ndarray,
    mirror: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    side = len(image)
    if mirror and uniforms[0] < 0.5:
        image, is_marked = image[:, ::-1], is_marked[list(MIRRORED)]
        joints = (joints * (-1, 1) + (side - 1, 0))[list(MIRRORED)]
    signed = 2 * uniforms[1:5].astype(float) - 1
    zoom, middle = ZOOM ** signed[1], (side - 1) / 2
    turn = cv2.getRotationMatrix2D((middle, middle), np.rad2deg(TURN * signed[0]), zoom)
    turn[:, 2] += MOVE * side * signed[2:]
    warped = cv2.warpAffine(
        np.ascontiguousarray(image), turn, (side, side), borderValue=GREY
    )
    light = warped * (0.8 + 0.4 * float(uniforms[5]))
    warped_joints = joints @ turn[:, :2].T + turn[:, 2]
    inside = ((warped_joints >= 0) & (warped_joints < side)).all(1)
    return light.clip(0, 255).astype(np.uint8), warped_joints, is_marked & inside


def joint_cells(people: People, stride: int) -> tuple[Tensor, Tensor]:
    """Row and column of each joint's cell ``(n, 14, 2)``, and which are known."""
    count = people.side // stride
    cells = torch.from_numpy(people.joints[..., ::-1] / stride).floor().long()
    is_marked = torch.from_numpy(people.is_marked)
    return cells.clamp(0, count - 1).masked_fill(~is_marked[..., None], 0), is_marked
