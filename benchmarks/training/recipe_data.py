"""What the recipes read and draw, for the benchmarks too: their folder is found."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "recipes"))

from corpora import conll, toy_corpus, unseen_labels
from ocr import letters as ocr_letters
from ocr import toy as ocr_toy

__all__ = ["conll", "ocr_letters", "ocr_toy", "toy_corpus", "unseen_labels"]
