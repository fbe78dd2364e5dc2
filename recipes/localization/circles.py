"""A baseline without training: circles of the Hough transform, by size and colour.

Each class has the mean size and the mean colour of its training boxes. A circle gets
the nearest class.
"""

from collections.abc import Sequence

import cv2
import numpy as np
import torch
from torchvision.ops import nms

from smoothsp.data import AnnotatedImage
from smoothsp.data.images import read_image
from smoothsp.models.detection import MAX_BOXES, NMS_OVERLAP, Detections

# a radius of a class over its mean; the edges and votes that make a circle
RADIUS_RANGE = (0.75, 1.3)
EDGE, VOTES = 60, 12
LONGEST_SIDE = 640


class Circles:
    """Means of the boxes of training, by class."""

    def __init__(
        self, examples: Sequence[AnnotatedImage], classes: Sequence[str]
    ) -> None:
        appearances: list[list[np.ndarray]] = [[] for _ in classes]
        for example in examples:
            image = read_image(example.path)
            for box, label in zip(example.boxes, example.labels, strict=True):
                appearances[classes.index(label)].append(_appearance(image, box))
        self.mean = np.array(
            [np.mean(class_appearances, 0) for class_appearances in appearances]
        )
        residuals = np.concatenate(
            [
                class_appearances - np.mean(class_appearances, 0)
                for class_appearances in appearances
            ]
        )
        self.deviation = residuals.std(0) + 1e-6

    def detect(self, example: AnnotatedImage) -> Detections:
        image = read_image(example.path)
        boxes, scores = [], []
        for size in np.exp(self.mean[:, 0]):
            for box, votes in _hough_circles(image, size / 2):
                boxes.append(box)
                scores.append(votes)
        if not boxes:
            none = torch.zeros(0)
            return Detections(none.reshape(0, 4), none.long(), none, 0)
        appearances = np.array([_appearance(image, box) for box in boxes])
        distances = (((appearances[:, None] - self.mean) / self.deviation) ** 2).sum(2)
        # circles that look like no class rank low
        score = torch.tensor(np.array(scores) - 0.1 * distances.min(1)).float()
        candidates = torch.tensor(np.array(boxes)).float()
        labels = torch.from_numpy(distances.argmin(1))
        selected = nms(candidates, score, NMS_OVERLAP)[:MAX_BOXES]
        return Detections(
            candidates[selected], labels[selected], score[selected], len(selected)
        )


def _appearance(image: np.ndarray, box: Sequence[float]) -> np.ndarray:
    """Logarithm of the size, and the mean colour of the middle."""
    left, top, right, bottom = box
    x, y, size = (
        (left + right) / 2,
        (top + bottom) / 2,
        ((right - left) * (bottom - top)) ** 0.5,
    )
    half = max(size / 4, 1)
    rows = slice(max(int(y - half), 0), int(y + half) + 1)
    middle = image[rows, max(int(x - half), 0) : int(x + half) + 1]
    return np.array([np.log(size), *middle.reshape(-1, 3).mean(0)])


def _hough_circles(image: np.ndarray, radius: float) -> list[tuple[list[float], float]]:
    """Boxes around circles, inside the image, and their votes per radius."""
    height, width = image.shape[:2]
    scale = min(LONGEST_SIDE / max(width, height), 1)
    size = [max(round(x * scale), 1) for x in (width, height)]
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    grey = cv2.GaussianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), (5, 5), 1.5)
    scaled_radius = max(radius * scale, 2.0)
    circles = cv2.HoughCirclesWithAccumulator(
        grey,
        cv2.HOUGH_GRADIENT,
        1.5,
        max(scaled_radius * 0.6, 1),
        param1=EDGE,
        param2=VOTES,
        minRadius=max(int(scaled_radius * RADIUS_RANGE[0]), 1),
        maxRadius=int(scaled_radius * RADIUS_RANGE[1]) + 1,
    )
    if circles is None:
        return []
    limits, boxes = (width, height, width, height), []
    for x, y, r, votes in circles[0] / [scale, scale, scale, 1]:
        box = [x - r, y - r, x + r, y + r]
        box = [
            min(max(side, 0), limit) for side, limit in zip(box, limits, strict=True)
        ]
        if box[2] - box[0] >= 2 and box[3] - box[1] >= 2:
            boxes.append((box, votes / (r * scale)))
    return boxes
