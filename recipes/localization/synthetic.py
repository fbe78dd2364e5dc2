"""Invented images in the layout of Pascal VOC: a ladybird among what resembles it.

A ladybird is red, has spots and a head; of the others each lacks one of the three. They
look in any direction, on a noisy gradient. Drawn with OpenCV.
"""

import zlib
from pathlib import Path

import cv2
import numpy as np

from runs import files

CLASS = "ladybird"
SIZES = {"train": 60, "val": 20, "test": 20}
WIDTH, HEIGHT = 160, 120
RED, BLACK, OTHERS = (40, 40, 200), (25, 25, 25), ((60, 140, 50), (150, 150, 145))
# red, spots, head
APPEARANCES = {
    CLASS: (True, True, True),
    "beetle": (False, True, True),
    "cherry": (True, False, True),
    "toadstool": (True, True, False),
}
XML = """<annotation>
  <filename>{name}.jpg</filename>
  <size><width>{width}</width><height>{height}</height><depth>3</depth></size>
{objects}
</annotation>
"""
OBJECT = """  <object>
    <name>{kind}</name>
    <bndbox>
      <xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax>
    </bndbox>
  </object>"""

Box = tuple[int, int, int, int]
Colour = tuple[int, ...]
Appearance = tuple[bool, bool, bool]


def make(parent: Path, sizes: dict[str, int], seed: int = 1) -> Path:
    """The folder of the images, written unless it is there; the lists come last."""
    about = zlib.crc32(Path(__file__).read_bytes() + repr((sizes, seed)).encode())
    folder = parent / f"ladybirds-{about:08x}"
    lists = {
        part: [f"{part}{number:03d}" for number in range(size)]
        for part, size in sizes.items()
    }
    rng = np.random.default_rng(seed)
    main = folder / "ImageSets" / "Main"
    if all((main / f"{part}.txt").exists() for part in lists):
        return folder
    for names in lists.values():
        for name in names:
            image, boxes = draw(rng)
            quality = [cv2.IMWRITE_JPEG_QUALITY, 92]
            jpeg = cv2.imencode(".jpg", image, quality)[1].tobytes()
            _write(folder / "JPEGImages" / f"{name}.jpg", jpeg)
            objects = [OBJECT.format(*box, kind=kind) for kind, box in boxes]
            text = XML.format(
                name=name, width=WIDTH, height=HEIGHT, objects="\n".join(objects)
            )
            _write(folder / "Annotations" / f"{name}.xml", text.encode())
    for part, names in lists.items():
        _write(main / f"{part}.txt", "".join(f"{n}\n" for n in names).encode())
    return folder


def _write(path: Path, content: bytes) -> None:
    files.write(path, lambda sink: sink.write(content))


def draw(rng: np.random.Generator) -> tuple[np.ndarray, list[tuple[str, Box]]]:
    """An image, blue first, and the classes and boxes of what is on it."""
    image = _background(rng)
    boxes: list[tuple[str, Box]] = []
    others = rng.choice(list(APPEARANCES)[1:], rng.integers(4, 9)).tolist()
    for kind in [CLASS, *others]:
        for _ in range(30):
            size = int(rng.integers(10, 21))
            x = int(rng.integers(size + 2, WIDTH - size - 2))
            y = int(rng.integers(size + 2, HEIGHT - size - 2))
            bounds = (x - size, y - size, x + size, y + size)
            if all(_are_disjoint(bounds, box) for _, box in boxes):
                _draw_object(image, x, y, size, APPEARANCES[kind], rng)
                boxes.append((kind, bounds))
                break
    return cv2.GaussianBlur(image, (3, 3), 0.6), boxes


def _background(rng: np.random.Generator) -> np.ndarray:
    corners = rng.uniform(110, 235, (2, 2, 3)).astype(np.float32)
    image = cv2.resize(corners, (WIDTH, HEIGHT), interpolation=cv2.INTER_LINEAR)
    image += rng.normal(0, 6, image.shape)
    return np.ascontiguousarray(image.clip(0, 255).astype(np.uint8))


def _are_disjoint(first: Box, second: Box) -> bool:
    across = min(first[2], second[2]) - max(first[0], second[0])
    down = min(first[3], second[3]) - max(first[1], second[1])
    return across <= 0 or down <= 0


def _draw_object(
    image: np.ndarray,
    x: int,
    y: int,
    size: int,
    appearance: Appearance,
    rng: np.random.Generator,
) -> None:
    red, spots, head = appearance
    angle = rng.uniform(0, 2 * np.pi)
    forward = np.array([np.cos(angle), np.sin(angle)])
    sideways = np.array([-forward[1], forward[0]])

    def disc(
        forward_offset: float, side_offset: float, radius: float, colour: Colour
    ) -> None:
        centre = np.array([x, y]) + size * (
            forward_offset * forward + side_offset * sideways
        )
        middle = (round(centre[0]), round(centre[1]))
        cv2.circle(image, middle, round(radius * size), colour, -1, cv2.LINE_AA)

    if head:
        disc(0.65, 0, 0.35, BLACK)
    tint = rng.normal(RED if red else OTHERS[rng.integers(2)], 12)
    disc(-0.15, 0, 0.8, tuple(int(c) for c in tint.clip(0, 255)))
    if spots:
        for forward_offset, side_offset in (
            (0.2, -0.35),
            (0.2, 0.35),
            (-0.5, -0.35),
            (-0.5, 0.35),
        ):
            disc(forward_offset, side_offset, 0.17, BLACK)
