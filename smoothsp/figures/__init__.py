"""Figures of outputs: tags, trees, segmentations, alignments, matchings, paths, boxes.

Figures require matplotlib: ``pip install "smoothsp[figures]"``.
"""

from smoothsp.figures.drawing import draw

__all__ = ["draw"]
