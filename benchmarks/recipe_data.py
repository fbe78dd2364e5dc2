"""What the recipes read and draw, for the benchmarks too: their folder is found."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "recipes"))

import conll
import ocr_letters
import ocr_toy
import toy_corpus
import unseen_labels

__all__ = ["conll", "ocr_letters", "ocr_toy", "toy_corpus", "unseen_labels"]
