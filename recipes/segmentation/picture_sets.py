"""Images of the three parts as graphs, with their labels."""

import zlib
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from segmentation.folder import Example
from segmentation.scores import scores
from segmentation.superpixels import Graph, graph_of
from segmentation.words import Words


@dataclass(frozen=True)
class PictureSet:
    """Images, their graphs, and the labels of superpixels that are nearest to masks."""

    examples: list[Example]
    graphs: list[Graph]
    golds: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.examples)

    def masks(self, labels: list[np.ndarray]) -> list[np.ndarray]:
        """Of labels of superpixels."""
        found = zip(self.graphs, labels, strict=True)
        return [graph.paint(own) > 0 for graph, own in found]

    def scores(self, labels: list[np.ndarray]) -> dict[str, float]:
        """Of labels of superpixels, measured in pixels."""
        return scores(self.examples, self.masks(labels))


def prepare(
    parts: dict[str, list[Example]], words: Words, superpixels: int
) -> dict[str, PictureSet]:
    """Superpixels and features of all images."""
    found = {}
    for part, examples in parts.items():
        bar = tqdm(examples, f"superpixels, {part}", leave=False, disable=None)
        graphs = [graph_of(example.image, words, superpixels) for example in bar]
        golds = [g.gold(x.mask) for g, x in zip(graphs, examples, strict=True)]
        found[part] = PictureSet(examples, graphs, golds)
    return found


def checksum(parts: dict[str, list[Example]]) -> str:
    """How many images there are, and a digest of them and their masks."""
    digest = 0
    for examples in parts.values():
        for example in examples:
            digest = zlib.crc32(example.image.tobytes(), digest)
            digest = zlib.crc32(np.packbits(example.mask).tobytes(), digest)
    counts = " + ".join(str(len(examples)) for examples in parts.values())
    return f"{counts} images with checksum {digest:08x}"
