"""Drawn images for ``matching_points.py``: a board of shapes, many of them alike.

A few kinds of shapes are each drawn several times, turned and in the same colours, so
that a point looks like others: what tells them apart is what stands around them.
"""

import cv2
import numpy as np

WIDTH, HEIGHT = 220, 170
KINDS, COPIES, RADIUS = 5, 6, 13
CORNERS = 9

Colour = tuple[int, int, int]
Kind = tuple[np.ndarray, Colour, Colour]


def draw(seed: int) -> np.ndarray:
    """An image ``(height, width, 3)``, red first."""
    rng = np.random.default_rng([seed, 16])
    corners = rng.uniform(120, 230, (2, 2, 3)).astype(np.float32)
    image = cv2.resize(corners, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)
    image = np.ascontiguousarray(image.astype(np.uint8))
    kinds = [_draw_kind(rng) for _ in range(KINDS)]
    centres: list[np.ndarray] = []
    for kind in kinds:
        for _ in range(COPIES):
            centre = _free_centre(rng, centres)
            if centre is not None:
                centres.append(centre)
                _draw_shape(image, kind, centre, rng.uniform(0, 2 * np.pi))
    return cv2.GaussianBlur(image, (3, 3), 0.7)


def _draw_kind(rng: np.random.Generator) -> Kind:
    """A polygon around the origin, its colour and that of its dots."""
    angles = np.sort(rng.uniform(0, 2 * np.pi, CORNERS))
    lengths = RADIUS * rng.uniform(0.35, 1, CORNERS)
    outline = np.stack([np.cos(angles), np.sin(angles)], 1) * lengths[:, None]
    colours = rng.integers(0, 256, (2, 3))
    fill, dots = (tuple(int(x) for x in colour) for colour in colours)
    return outline, fill, dots


def _free_centre(
    rng: np.random.Generator, centres: list[np.ndarray]
) -> np.ndarray | None:
    for _ in range(40):
        centre = rng.uniform((RADIUS, RADIUS), (WIDTH - RADIUS, HEIGHT - RADIUS))
        if all(np.hypot(*(centre - other)) > 1.7 * RADIUS for other in centres):
            return centre
    return None


def _draw_shape(
    image: np.ndarray, kind: Kind, centre: np.ndarray, angle: float
) -> None:
    outline, fill, dots = kind
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    corners = outline @ turn.T + centre
    # a sixteenth of a pixel is as fine as OpenCV draws
    fixed = np.round(16 * corners).astype(np.int32)
    cv2.fillPoly(image, [fixed], fill, cv2.LINE_AA, 4)
    for corner in corners[::3]:
        point = np.round(16 * (0.5 * corner + 0.5 * centre)).astype(int)
        cv2.circle(image, (int(point[0]), int(point[1])), 32, dots, -1, cv2.LINE_AA, 4)
