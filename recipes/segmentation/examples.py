"""Images in three parts, scaled, with their superpixels."""

import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from tqdm import tqdm

from segmentation import features
from smoothsp.data import MaskedImage, read_masks
from smoothsp.models.segmenter import mask_scores
from smoothsp.models.superpixels import Graph, build_graph

# The share of dev, and that of test.
HELD_OUT_FRACTION, FEWEST = 0.2, 3
# Of the shuffle that says which images are held out; no flag, so it stays the same.
SPLIT = 7


@dataclass(frozen=True)
class Part:
    """Images of arrays, and their graphs, of features for a linear model."""

    examples: list[MaskedImage]
    graphs: list[Graph]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def gold_labels(self) -> list[np.ndarray]:
        """Labels of superpixels that are nearest to the masks."""
        pairs = zip(self.graphs, self.examples, strict=True)
        return [graph.gold(example.mask) for graph, example in pairs]

    def masks(self, labels: list[np.ndarray]) -> list[np.ndarray]:
        """Masks of labels of superpixels."""
        return [
            g.mask(image_labels)
            for g, image_labels in zip(self.graphs, labels, strict=True)
        ]

    def scores(self, masks: list[np.ndarray]) -> dict[str, float]:
        return mask_scores([example.mask for example in self.examples], masks)


def load(folder: Path, limit: int | None, side: int) -> list[MaskedImage]:
    """The images of a folder in random order, their longest side scaled to ``side``."""
    images = read_masks(folder)
    if len(images) < FEWEST:
        raise ValueError(
            f"{folder}: expected at least {FEWEST} images, got {len(images)}"
        )
    order = np.random.default_rng(SPLIT).permutation(len(images))[:limit]
    bar = tqdm([images[n] for n in order], "reading", leave=False, disable=None)
    read = ((example, *example.read(side)) for example in bar)
    return [replace(image, image=pixels, mask=mask) for image, pixels, mask in read]


def split(examples: list[MaskedImage]) -> dict[str, list[MaskedImage]]:
    """In the order in which they are: to train on, to choose by, held out."""
    num_held_out = max(1, round(HELD_OUT_FRACTION * len(examples)))
    train = len(examples) - 2 * num_held_out
    return {
        "train": examples[:train],
        "dev": examples[train : train + num_held_out],
        "test": examples[train + num_held_out :],
    }


def prepare(
    parts: dict[str, list[MaskedImage]], superpixels: int, linear: bool
) -> dict[str, Part]:
    """Superpixels of all images; with the features of a linear model if need be."""
    visual_words = (
        features.fit_visual_words([x.image for x in parts["train"]]) if linear else None
    )
    prepared = {}
    for part, examples in parts.items():
        bar = tqdm(examples, f"superpixels, {part}", leave=False, disable=None)
        graphs = [build_graph(example.image, superpixels) for example in bar]
        if visual_words is not None:
            pairs = zip(examples, graphs, strict=True)
            graphs = [
                features.graph_with_features(x.image, g, visual_words) for x, g in pairs
            ]
        prepared[part] = Part(examples, graphs)
    return prepared


def checksum(parts: dict[str, list[MaskedImage]]) -> str:
    """How many images there are, and a digest of them and their masks."""
    digest = 0
    for examples in parts.values():
        for example in examples:
            digest = zlib.crc32(example.image.tobytes(), digest)
            digest = zlib.crc32(np.packbits(example.mask).tobytes(), digest)
    counts = " + ".join(str(len(examples)) for examples in parts.values())
    return f"{counts} images with checksum {digest:08x}"
