"""What the recipes read and draw, for the benchmarks too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "recipes"))

from corpora import toy_corpus

__all__ = ["toy_corpus"]
