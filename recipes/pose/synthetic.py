"""Drawn people for ``pose_tree.py``: shirts, trousers, heads, and stray limbs."""

import cv2
import numpy as np

from pose.joints import NECK, People

SIDE = 80
SIZES = {"train": 240, "dev": 50, "test": 80}
STRAY = 5
SKIN = (224, 172, 138)

Colour = tuple[int, int, int]


def make(part: str, seed: int = 0) -> People:
    """So many figures, each of its own number: the same ones each time."""
    number = list(SIZES).index(part)
    drawn = [draw(np.random.default_rng([seed, number, n])) for n in range(SIZES[part])]
    images, joints = (np.stack(x) for x in zip(*drawn, strict=True))
    return People(images, joints, np.ones(joints.shape[:2], bool))


def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An image and its joints ``(14, 2)``."""
    joints = _random_pose(rng)
    corners = rng.uniform(70, 220, (3, 3, 3)).astype(np.float32)
    image = cv2.resize(corners, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    image = np.ascontiguousarray(image.clip(0, 255).astype(np.uint8))
    shirt, trousers, other = (
        tuple(int(x) for x in rng.integers(0, 256, 3)) for _ in range(3)
    )
    for _ in range(STRAY):
        # as thick and as coloured as arms and legs, but nobody's
        begin = rng.uniform(0, SIDE, 2)
        angle, length = rng.uniform(0, 2 * np.pi), rng.uniform(8, 20)
        end = begin + length * np.array([np.cos(angle), np.sin(angle)])
        colour = (shirt, trousers, SKIN, other)[rng.integers(4)]
        _draw_stick(image, begin, end, colour, 4)
    _draw_person(image, joints, shirt, trousers)
    image = cv2.GaussianBlur(image, (3, 3), 0.6)
    noisy = image + rng.normal(0, 7, image.shape)
    return noisy.clip(0, 255).astype(np.uint8), joints


def _random_pose(rng: np.random.Generator) -> np.ndarray:
    """Joints of a person who bends at random, centred in the image."""
    size = rng.uniform(0.85, 1.1)
    lean = rng.normal(0, 0.3)
    joints = np.zeros((14, 2))

    def put(joint: int, near: int, angle: float, length: float) -> None:
        # an angle of 0 is down
        direction = np.array([np.sin(angle), np.cos(angle)])
        joints[joint] = joints[near] + size * length * direction

    put(13, NECK, lean + np.pi + rng.normal(0, 0.25), 13)
    # right is where the image has its left
    for sides, sign in (((8, 7, 6, 2, 1, 0), -1), ((9, 10, 11, 3, 4, 5), 1)):
        shoulder, elbow, wrist, hip, knee, ankle = sides
        put(shoulder, NECK, lean + sign * 1.35, 8)
        put(hip, NECK, lean + sign * 0.22, 24)
        upper = lean + sign * rng.uniform(0.1, 2.2)
        put(elbow, shoulder, upper, 12)
        put(wrist, elbow, upper + sign * rng.uniform(-0.2, 1.9), 11)
        thigh = 0.5 * lean + sign * rng.uniform(-0.1, 0.9)
        put(knee, hip, thigh, 15)
        put(ankle, knee, thigh - sign * rng.uniform(-0.1, 0.9), 14)
    low, high = joints.min(0), joints.max(0)
    middle = SIDE / 2 + rng.uniform(-4, 4, 2)
    shrink = min(1.0, 0.86 * SIDE / (high - low).max())
    return np.clip((joints - (low + high) / 2) * shrink + middle, 0, SIDE - 1)


def _draw_person(
    image: np.ndarray, joints: np.ndarray, shirt: Colour, trousers: Colour
) -> None:
    for begin, end in ((2, 1), (1, 0), (3, 4), (4, 5)):
        _draw_stick(image, joints[begin], joints[end], trousers, 5)
    body = np.round(16 * joints[[8, 9, 3, 2]]).astype(np.int32)
    cv2.fillConvexPoly(image, body, shirt, cv2.LINE_AA, 4)
    for begin, end in ((8, 7), (9, 10)):
        _draw_stick(image, joints[begin], joints[end], shirt, 4)
    for begin, end in ((7, 6), (10, 11)):
        _draw_stick(image, joints[begin], joints[end], SKIN, 3)
    middle = (joints[13] + joints[NECK]) / 2
    radius = 0.42 * float(np.hypot(*(joints[13] - joints[NECK])))
    cv2.circle(
        image, _fixed_point(middle), round(16 * radius), SKIN, -1, cv2.LINE_AA, 4
    )


def _draw_stick(
    image: np.ndarray, begin: np.ndarray, end: np.ndarray, colour: Colour, width: int
) -> None:
    cv2.line(
        image, _fixed_point(begin), _fixed_point(end), colour, width, cv2.LINE_AA, 4
    )


def _fixed_point(point: np.ndarray) -> tuple[int, int]:
    """In sixteenths of a pixel, as fine as OpenCV draws."""
    return round(16 * float(point[0])), round(16 * float(point[1]))
