"""Figures of ``ocr_words.py``: gaps of the variants."""

from pathlib import Path
from typing import Any

import numpy as np

from smoothsp.linear import Comparison

Row = dict[str, Any]


def gaps(path: Path, rows: list[Row]) -> None:
    """Gap and suboptimality against calls of the oracle, and against seconds."""
    looks = [
        {"solver": row["variant"], "seed": row["seed"], "look": k} | at
        for row in rows
        for k, at in enumerate(row["history"])
    ]
    # of the least gap so far
    for row, before in zip(looks[1:], looks, strict=False):
        if row["look"]:
            row["gap"] = np.minimum(row["gap"], before["gap"])
    Comparison(looks).draw(path)
