"""Words as rows of letters, each a small black and white image; folds of words."""

import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy import sparse

from smoothsp.data.text_files import decode_lines, read_content
from smoothsp.linear.problems import ChainProblem

NAMES = ("letter.data", "letter.data.gz")
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
# id, letter, id of the next, word, position, fold, then 16 x 8 pixels
COLUMNS, PIXELS = 6, 128


@dataclass(frozen=True)
class LetterWords:
    """Letters one below the other.

    ``pixels`` is (letters, pixels) of zeros and ones, ``labels`` (letters,) positions
    in ``alphabet``, ``lengths`` and ``folds`` have one number a word.
    """

    name: str
    alphabet: str
    pixels: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    folds: np.ndarray

    @cached_property
    def checksum(self) -> str:
        value = 0
        for part in (self.pixels, self.labels, self.lengths, self.folds):
            value = zlib.crc32(np.ascontiguousarray(part), value)
        return f"{value:08x}"

    @cached_property
    def problem(self) -> ChainProblem:
        """All words: pixels and a constant, cost the share of wrong letters."""
        ones = np.ones((len(self.labels), 1))
        return ChainProblem(
            sparse.csr_matrix(np.hstack([self.pixels, ones])),
            self.labels,
            lengths=self.lengths,
            num_labels=len(self.alphabet),
            cost_scale=1 / self.lengths,
        )

    def split(self, setting: str) -> tuple[ChainProblem, ChainProblem]:
        """To train on and to test with: fold 0 and the others, or the other way."""
        first = self.folds == 0
        train = first if setting == "small" else ~first
        return self.problem.subset(train), self.problem.subset(~train)

    def join_letters(self, part: ChainProblem) -> str:
        """All letters of some of the words."""
        return "".join(self.alphabet[label] for label in part.labels)

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.lengths):,} words, {len(self.labels):,} letters of"
            f" {len(self.alphabet)} kinds, {self.pixels.shape[1]} pixels,"
            f" {len(np.unique(self.folds))} folds"
        )


def load(path: Path) -> LetterWords:
    """The file, or the folder that has it."""
    if path.is_dir():
        paths = [path / name for name in NAMES if (path / name).is_file()]
        if not paths:
            raise FileNotFoundError(
                f"data: expected {' or '.join(NAMES)}, found neither in {path}"
            )
        path = paths[0]
    elif not path.is_file():
        raise FileNotFoundError(f"data: expected a folder or a file, found no {path}")
    try:
        content = read_content(path, "a file of letters")
        lines = decode_lines(content, path, "ascii")
    except (OSError, ValueError) as error:
        raise ValueError(f"data: expected lines of text in {path}: {error}") from error
    # the last line ends, too
    return parse(lines[:-1] if lines[-1] == "" else lines, path)


def parse(lines, path: Path) -> LetterWords:
    labels, pixels, words, folds = [], [], [], []
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        where = f"line {number} of {path}"
        if len(fields) != COLUMNS + PIXELS:
            raise ValueError(
                f"data: expected {COLUMNS + PIXELS} columns, got {len(fields)} in"
                f" {where}"
            )
        image = "".join(fields[COLUMNS:])
        if len(image) != PIXELS or image.strip("01"):
            raise ValueError(f"data: expected pixels of 0 and 1 in {where}")
        if len(fields[1]) != 1 or fields[1] not in ALPHABET:
            raise ValueError(
                f"data: expected a letter from a to z, got {fields[1]!r} in {where}"
            )
        if not fields[5].isdigit():
            raise ValueError(
                f"data: expected the number of a fold, got {fields[5]!r} in {where}"
            )
        labels.append(ALPHABET.index(fields[1]))
        pixels.append(image)
        words.append(fields[3])
        folds.append(int(fields[5]))
    if not words:
        raise ValueError(f"data: expected letters, found none in {path}")
    begins = [t for t, word in enumerate(words) if t == 0 or word != words[t - 1]]
    lengths = np.diff([*begins, len(words)])
    by_word = np.array(folds)[begins]
    wrong = np.repeat(by_word, lengths) != folds
    if wrong.any():
        raise ValueError(
            f"data: expected all letters of a word in one fold, got two folds in word"
            f" {words[wrong.argmax()]} of {path}"
        )
    if not (by_word == 0).any() or (by_word == 0).all():
        raise ValueError(
            f"data: expected words in fold 0 and in others, got folds"
            f" {sorted(set(folds))} in {path}"
        )
    image = np.frombuffer("".join(pixels).encode(), np.uint8) - ord("0")
    return LetterWords(
        name="OCR letters",
        alphabet=ALPHABET,
        pixels=image.reshape(-1, PIXELS),
        labels=np.array(labels),
        lengths=lengths,
        folds=by_word,
    )
