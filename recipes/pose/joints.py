"""The 14 joints of a person, the tree they form, and how good found ones are."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

NAMES = (
    *("right ankle", "right knee", "right hip", "left hip", "left knee", "left ankle"),
    *("right wrist", "right elbow", "right shoulder"),
    *("left shoulder", "left elbow", "left wrist", "neck", "head top"),
)
NECK = 12
# each hangs on the next one towards the neck
PARENTS = (1, 2, 12, 12, 3, 4, 7, 8, 12, 12, 9, 10, -1, 12)
MIRRORED = (5, 4, 3, 2, 1, 0, 11, 10, 9, 8, 7, 6, 12, 13)
LIMBS = {
    "torso": ((12,), (2, 3)),
    "head": ((13,), (12,)),
    "upper arms": ((8,), (7,)),
    "lower arms": ((7,), (6,)),
    "upper legs": ((2,), (1,)),
    "lower legs": ((1,), (0,)),
}
# right ones above; these are left
LIMBS_LEFT = {
    "upper arms": ((9,), (10,)),
    "lower arms": ((10,), (11,)),
    "upper legs": ((3,), (4,)),
    "lower legs": ((4,), (5,)),
}
# A joint is right within this share of the longer side of the box of all joints.
PCK_THRESHOLD = 0.1


@dataclass(frozen=True)
class People:
    """People in square images of one size.

    ``images`` ``(n, side, side, 3)`` uint8, red first; ``joints`` ``(n, 14, 2)`` of x
    and y in pixels, anything where ``known`` ``(n, 14)`` is False.
    """

    images: np.ndarray
    joints: np.ndarray
    is_marked: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    @property
    def side(self) -> int:
        return self.images.shape[1]

    def part(self, numbers: list[int]) -> "People":
        return People(
            self.images[numbers], self.joints[numbers], self.is_marked[numbers]
        )


def mean_pose(people: People) -> np.ndarray:
    """Where each joint is on average: ``(14, 2)``."""
    weight = people.is_marked[..., None].astype(float)
    count = np.maximum(weight.sum(0), 1)
    return (np.where(weight > 0, people.joints, 0)).sum(0) / count


def estimate_springs(people: People, stride: int) -> tuple[Tensor, Tensor]:
    """Mean and variance ``(14, 2)``, rows first, of each joint less its parent.

    In cells of ``stride`` pixels; 0 and 1 where nothing is known.
    """
    means, variances = torch.zeros(14, 2), torch.ones(14, 2)
    for joint, parent in enumerate(PARENTS):
        both = people.is_marked[:, joint] & people.is_marked[:, parent]
        if parent >= 0 and both.sum() > 1:
            offsets = people.joints[both, joint] - people.joints[both, parent]
            cells = torch.from_numpy(offsets[:, ::-1] / stride)
            means[joint] = cells.mean(0)
            variances[joint] = cells.var(0).clamp(min=0.25)
    return means, variances


def scores(people: People, predicted: np.ndarray) -> dict[str, float]:
    """``pcp`` and ``pck`` of poses ``(n, 14, 2)``.

    PCK: the share of known joints that are found within ``NEAR`` of the person's size
    (Yang and Ramanan, "Articulated Human Detection with Flexible Mixtures of Parts").
    PCP: the share of the ten limbs both of whose ends are found within half the limb's
    length (Ferrari et al., "Progressive Search Space Reduction", the strict reading).
    """
    limbs = pcp(people, predicted)
    return {"pck": pck(people, predicted), "pcp": float(np.mean(np.concatenate(limbs)))}


def pck(people: People, predicted: np.ndarray) -> float:
    return float(is_correct(people, predicted)[people.is_marked].mean())


def is_correct(people: People, predicted: np.ndarray) -> np.ndarray:
    """Whether joints are right: bool ``(n, 14)``."""
    low = np.where(people.is_marked[..., None], people.joints, np.inf).min(1)
    high = np.where(people.is_marked[..., None], people.joints, -np.inf).max(1)
    size = (high - low).max(1)
    miss = np.linalg.norm(predicted - people.joints, axis=2)
    return miss <= PCK_THRESHOLD * size[:, None]


def limb_scores(people: People, predicted: np.ndarray) -> dict[str, float]:
    """PCP of each kind of limb, left and right together; NaN where none is known."""
    rows: dict[str, list[np.ndarray]] = {name: [] for name in LIMBS}
    names = [*LIMBS, *LIMBS_LEFT]
    for name, right in zip(names, pcp(people, predicted), strict=True):
        rows[name].append(right)
    joined = {name: np.concatenate(parts) for name, parts in rows.items()}
    return {n: float(x.mean()) if len(x) else float("nan") for n, x in joined.items()}


def pcp(people: People, predicted: np.ndarray) -> list[np.ndarray]:
    """Of each limb, which of those that are known are right."""
    rows = []
    for ends in (*LIMBS.values(), *LIMBS_LEFT.values()):
        is_marked = people.is_marked[:, [j for end in ends for j in end]].all(1)
        true, guess = (
            [poses[is_marked][:, end].mean(1) for end in ends]
            for poses in (people.joints, predicted)
        )
        length = np.linalg.norm(true[0] - true[1], axis=1)
        misses = [
            np.linalg.norm(x - y, axis=1) for x, y in zip(true, guess, strict=True)
        ]
        rows.append((np.stack(misses) <= 0.5 * length).all(0))
    return rows
