"""Reading word vectors from a text file: a word and its numbers on each line."""

from collections.abc import Set
from pathlib import Path

import numpy as np

from smoothsp.models.features import normalise

NUM_FREQUENT = 20_000
LONGEST_LINE = 2**20


def read(path: str | Path, required: Set[str]) -> dict[str, np.ndarray]:
    """Vectors of normalised words, from a file as GloVe and fastText publish them.

    Kept are the words that are ``wanted``, and the first 20,000 of the file, which
    such files sort by frequency: a saved model then knows them too. Of several words
    with the same normalised form the first counts. A first line that holds only the
    number of words and of columns is skipped.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"embeddings: expected a text file of word vectors, found none at {path}"
        )
    vectors: dict[str, np.ndarray] = {}
    size = 0
    with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
        parts = iter(lambda: lines.readline(LONGEST_LINE), "")
        for number, line in enumerate(parts, start=1):
            if len(line) == LONGEST_LINE:
                raise ValueError(
                    f"embeddings: {path}, line {number}: expected a word and its"
                    f" numbers, got more than {LONGEST_LINE} characters. Is this a"
                    " text file of word vectors?"
                )
            if not line.strip():
                continue
            fields = line.rstrip(" \r\n").split(" ")
            if number == 1 and len(fields) == 2 and all(map(str.isdigit, fields)):
                continue
            size = size or len(fields) - 1
            # From the right: some published files hold words with spaces.
            word = normalise(" ".join(fields[:-size])) if size else ""
            if not word or (_is_number(fields[-size - 1]) and len(fields) > size + 1):
                raise ValueError(
                    f"embeddings: {path}, line {number}: expected a word and"
                    f" {size or 'some'} numbers parted by single spaces, got"
                    f" {len(fields)} columns ({line[:40].strip()!r}). Every line must"
                    " have as many as the first"
                )
            if word in vectors or (
                len(vectors) >= NUM_FREQUENT and word not in required
            ):
                continue
            try:
                vector = np.array(fields[-size:], dtype=np.float32)
            except ValueError:
                vector = np.array([np.nan], dtype=np.float32)
            if not np.isfinite(vector).all():
                raise ValueError(
                    f"embeddings: {path}, line {number}: expected {size} finite"
                    f" numbers after the word, got {line[:40].strip()!r}. Is this a"
                    " text file of word vectors?"
                )
            vectors[word] = vector
    if not vectors:
        raise ValueError(
            f"embeddings: {path}: expected word vectors, got an empty file"
        )
    return vectors


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
