"""Drawn animals with four legs on textured ground, and their masks.

Coats, ground, bushes and posts share their colours: what tells a leg from a post is
where it is and what is beside it.
"""

import cv2
import numpy as np

from smoothsp.data import MaskedImage

HEIGHT, WIDTH = 96, 128
# What is drawn is this much larger at first, for smooth borders.
SUPERSAMPLING = 3
COATS = np.array(
    [[110, 70, 40], [70, 45, 30], [150, 95, 55], [55, 50, 50], [175, 165, 150]], float
)
GRASS = np.array([[90, 120, 60], [125, 120, 70], [150, 130, 95], [95, 90, 60]], float)
SKY = np.array([[170, 195, 225], [200, 205, 205], [120, 130, 110]], float)
# x to the right, y down, in lengths of the trunk
NECK = np.array([[0.18, -0.14], [0.42, 0.04], [0.62, -0.34], [0.5, -0.44]])
HEAD = np.array(
    [
        [0.5, -0.44],
        [0.54, -0.55],
        [0.6, -0.46],
        [0.84, -0.24],
        [0.76, -0.16],
        [0.6, -0.26],
    ]
)
SHOULDER = np.array([0.3, -0.05])
LEGS = (0.32, 0.22, -0.28, -0.38)


def make(count: int = 100, seed: int = 0) -> list[MaskedImage]:
    rng = np.random.default_rng(seed)
    return [MaskedImage(*draw(rng), f"drawn{n:03}") for n in range(count)]


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An image ``(H, W, 3)``, red first, and its mask."""
    mask = _draw_animal(rng)
    image = _draw_background(rng)
    coat = COATS[rng.integers(len(COATS))] + rng.normal(0, 8, 3)
    texture = (
        coat
        + 16 * _smooth_noise(rng, 6)[..., None]
        + 7 * rng.normal(size=(*mask.shape, 1))
    )
    texture -= np.linspace(-12, 18, HEIGHT)[:, None, None]
    if rng.random() < 0.3:
        patches = _smooth_noise(rng, 5) > 0.7
        texture[patches] = texture[patches] * 0.4 + 120
    image = np.where(mask[..., None] > 0.5, texture, image)
    image = cv2.GaussianBlur(image, (3, 3), 0.7) + rng.normal(0, 4, image.shape)
    return image.clip(0, 255).astype(np.uint8), mask > 0.5


def _draw_animal(rng: np.random.Generator) -> np.ndarray:
    """The share ``(H, W)`` of each pixel that is animal."""
    canvas = np.zeros((SUPERSAMPLING * HEIGHT, SUPERSAMPLING * WIDTH), np.uint8)
    length = SUPERSAMPLING * WIDTH * rng.uniform(0.4, 0.55)
    middle = SUPERSAMPLING * np.array(
        [WIDTH * rng.uniform(0.42, 0.58), HEIGHT * rng.uniform(0.42, 0.52)]
    )
    facing = rng.choice([-1, 1])

    def at(points: np.ndarray) -> np.ndarray:
        pixels = middle + length * np.asarray(points) * [facing, 1]
        return pixels.round().astype(np.int32)

    def disc(x: float, y: float, across: float, down: float) -> None:
        axes = (round(length * across), round(length * down))
        cv2.ellipse(canvas, at([x, y]).tolist(), axes, 0, 0, 360, 255, -1)

    def stroke(points: list[list[float]], width: float) -> None:
        cv2.polylines(canvas, [at(points)], False, 255, round(width * length))

    disc(0, 0, 0.42, rng.uniform(0.16, 0.2))
    disc(0.27, -0.03, 0.18, 0.19)
    disc(-0.28, -0.02, 0.19, 0.2)
    # down to grass now and then
    angle = rng.uniform(1.1, 1.6) if rng.random() < 0.2 else rng.normal(0, 0.2)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    for part in (NECK, HEAD):
        cv2.fillPoly(canvas, [at(SHOULDER + (part - SHOULDER) @ turn)], 255)
    for hip in LEGS:
        swing = rng.normal(0, 0.07)
        knee, hoof = [hip + swing, 0.34], [hip + 1.3 * swing + 0.02, 0.58]
        stroke([[hip, 0.08], knee], 0.1)
        stroke([knee, hoof], 0.065)
    tail = rng.uniform(-0.75, -0.5)
    stroke([[-0.42, -0.12], [-0.52, 0.02], [tail, 0.28]], 0.06)
    small = cv2.resize(canvas, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
    return small.astype(float) / 255


def _draw_background(rng: np.random.Generator) -> np.ndarray:
    """Sky or wood above, grass below, posts and bushes."""
    horizon = int(HEIGHT * rng.uniform(0.3, 0.6))
    image = np.empty((HEIGHT, WIDTH, 3))
    image[:horizon] = SKY[rng.integers(len(SKY))] + 10 * rng.normal(size=3)
    image[horizon:] = GRASS[rng.integers(len(GRASS))] + 10 * rng.normal(size=3)
    image += 14 * _smooth_noise(rng, 8)[..., None]
    blades = cv2.GaussianBlur(rng.normal(size=(HEIGHT, WIDTH)), (1, 5), 0)
    image[horizon:] += 22 * blades[horizon:, :, None]
    for _ in range(rng.integers(1, 5)):
        colour = (COATS[rng.integers(len(COATS))] + rng.normal(0, 8, 3)).tolist()
        x = int(rng.integers(WIDTH))
        if rng.random() < 0.5:
            top = horizon - int(rng.integers(5, 25))
            foot = horizon + int(rng.integers(5, 30))
            cv2.line(image, (x, top), (x, foot), colour, int(rng.integers(3, 7)))
        else:
            axes = (int(rng.integers(6, 18)), int(rng.integers(4, 12)))
            cv2.ellipse(image, (x, horizon), axes, 0, 0, 360, colour, -1)
    return image


def _smooth_noise(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Smooth noise, about normal."""
    coarse = rng.normal(size=(cells, cells))
    return cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
