"""Features of words as integers.

Each distinct word is described once, in a row of a table: its lower-cased form with
digits as 0, its characters, shape, prefixes and suffixes. A sentence is a list of
rows, so that a batch computes the network's view of each distinct word once.

Each position also has the features of a linear tagger, hashed to bucket numbers. These
are words, shapes, prefixes and suffixes in a window of five words, and their pairs.
With an encoder, sentences have their sub-words, too.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from smoothsp.models.encoder import Encoder, SubwordBatch

__all__ = ["AFFIXES", "FLAGS", "PADDING", "UNKNOWN", "Batch", "Corpus", "Vocabulary"]
__all__ += ["normalise"]

PADDING, UNKNOWN = 0, 1
RARE = 2
LONGEST_WORD = 20
MOST_BUCKETS = 1 << 18
# Places of words in a batch, up to which no sentence is too long for it.
MOST_PADDED = 2**15


DIGIT, TWO, THREE = map(re.compile, (r"\d", r"(.)\1", r"(.)\1\1+"))


class _Classes(dict[int, str]):
    """X, x or 0 for the code of a letter or digit, others as they are."""

    def __missing__(self, code: int) -> str:
        c = chr(code)
        self[code] = (
            "X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c
        )
        return self[code]


CLASSES = _Classes()


def normalise(word: str) -> str:
    """Lower case, with 0 for every digit."""
    return DIGIT.sub("0", word.lower())


def _shape(word: str) -> str:
    return THREE.sub(r"\1\1", word.translate(CLASSES))


def _short(shape: str) -> str:
    return TWO.sub(r"\1", shape)


def _prefix(n: int) -> Callable[[str], str]:
    return lambda word: word[:n]


def _suffix(n: int) -> Callable[[str], str]:
    return lambda word: word[-n:]


AFFIXES = [*(_prefix(n) for n in (2, 3, 4)), *(_suffix(n) for n in (1, 2, 3, 4))]
FLAGS: list[Callable[[str], bool]] = [
    lambda word: word[0].isupper(),
    str.isupper,
    str.islower,
    str.isdigit,
    lambda word: any(map(str.isdigit, word)),
    lambda word: not any(map(str.isalnum, word)),
    lambda word: "-" in word or "." in word,
    lambda word: any(map(str.isupper, word[1:])),
]
# A feature joins attributes at offsets from the position it describes.
WINDOW_FEATURES = [
    *([("word", o)] for o in (-2, -1, 0, 1, 2)),
    *([("shape", o)] for o in (-2, -1, 0, 1, 2)),
    *([("cased", o)] for o in (-1, 0, 1)),
    *([(f"{end}{n}", 0)] for end in ("prefix", "suffix") for n in (1, 2, 3, 4)),
    *([(end, o)] for end in ("prefix3", "suffix3") for o in (-1, 1)),
    [("word", -1), ("word", 0)],
    [("word", 0), ("word", 1)],
    [("word", -1), ("word", 1)],
    [("word", -1), ("short", 0)],
    [("short", 0), ("word", 1)],
    [("short", -1), ("short", 0)],
    [("short", 0), ("short", 1)],
    [("short", -2), ("short", -1), ("short", 0)],
    [("short", -1), ("short", 0), ("short", 1)],
    [("short", 0), ("short", 1), ("short", 2)],
]


@dataclass(frozen=True)
class Vocabulary:
    """Vocabularies of the tables of the network, as lists that can be saved."""

    words: list[str]
    rare: list[bool]
    """Words that training shows as unknown now and then, so that it learns what to do
    with one."""
    characters: list[str]
    shapes: list[str]
    affixes: list[list[str]]
    buckets: int
    """How many numbers window features are hashed to."""

    @classmethod
    def of(cls, sentences: list[list[str]], with_vectors: list[str]) -> "Vocabulary":
        """All words of the training sentences, and those that come with a vector."""
        counts = Counter(word for words in sentences for word in words)
        forms: Counter[str] = Counter()
        for word, count in counts.items():
            forms[normalise(word)] += count
        words = sorted({*forms, *with_vectors})
        tokens = sum(counts.values())
        return cls(
            words,
            [forms[word] <= RARE for word in words],
            sorted({c for word in counts for c in word}),
            _frequent(counts, _shape, 2),
            [_frequent(forms, affix, 3) for affix in AFFIXES],
            min(MOST_BUCKETS, 1 << tokens.bit_length()),
        )

    @cached_property
    def numbers(self) -> list[dict[str, int]]:
        """Numbers of words, characters, shapes and each kind of affix, as in tables."""
        lists = (self.words, self.characters, self.shapes, *self.affixes)
        return [{x: n for n, x in enumerate(known, UNKNOWN + 1)} for known in lists]


def _frequent(
    counts: Counter[str], form: Callable[[str], str], least: int
) -> list[str]:
    totals: Counter[str] = Counter()
    for word, count in counts.items():
        totals[form(word)] += count
    return sorted(text for text, total in totals.items() if total >= least)


class WordTable(NamedTuple):
    """One row a word; the first row is padding, all zero."""

    word: Tensor  # [W]
    characters: Tensor  # [W, C]
    shape: Tensor  # [W]
    affixes: Tensor  # [W, A]
    flags: Tensor  # [W, F] float


class Batch(NamedTuple):
    """Sentences as the network takes them."""

    table: WordTable  # of the distinct words of the batch
    rows: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    window: Tensor  # [N, features] bucket numbers, of the N real positions
    tags: Tensor  # [B, T], -1 where padded
    pieces: SubwordBatch | None  # sub-words, of the N real positions

    def to(self, device: torch.device) -> "Batch":
        """The same, there."""
        table = WordTable(*(column.to(device) for column in self.table))
        pieces = self.pieces and SubwordBatch(*(x.to(device) for x in self.pieces))
        rows, mask, window, tags = (tensor.to(device) for tensor in self[1:5])
        return Batch(table, rows, mask, window, tags, pieces)


class Corpus:
    """Sentences as integers, from which batches are cut.

    An encoder with a context reads stretches: sentences that follow each other in a
    document. ``documents`` has the number of the document of each sentence, ascending;
    if absent there is one.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        sentences: list[list[str]],
        tags: list[list[int]] | None = None,
        encoder: Encoder | None = None,
        documents: list[int] | None = None,
    ) -> None:
        words = sorted({word for sentence in sentences for word in sentence})
        forms = _Forms(words)
        self.table = forms.table(vocabulary)
        row = {word: number for number, word in enumerate(words, start=1)}
        lengths = [len(sentence) for sentence in sentences]
        # Two rows of padding part the sentences: as far as the window reaches.
        rows = [0, 0]
        for sentence in sentences:
            rows += [row[word] for word in sentence] + [0, 0]
        padded = np.array(rows)
        real = padded.nonzero()[0]
        self.lengths = torch.tensor(lengths)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.rows = torch.from_numpy(padded[real])
        self.window = forms.window(padded, real, vocabulary.buckets)
        flat = [tag for sentence in tags or [] for tag in sentence]
        self.tags = torch.tensor(flat or [-1] * len(real))
        self.encoder = encoder
        self.cuts = encoder.cut(sentences) if encoder else []
        # an encoder's time is that of the longest row of sub-words
        pieces = [sum(map(len, cut.windows)) for cut in self.cuts]
        self.sizes = torch.tensor(pieces) if encoder else self.lengths
        self.stretch = torch.arange(len(sentences))
        if encoder and encoder.context:
            given = torch.tensor(documents or [0] * len(sentences))
            self.stretch = _stretches(given, self.sizes, encoder.context)
            joined: list[list[str]] = [[] for _ in range(int(self.stretch.max()) + 1)]
            for number, own in zip(self.stretch.tolist(), sentences, strict=True):
                joined[number] += own
            self.cuts = encoder.cut(joined)
            # stretches have like sizes, and the LSTM's time is that of long sentences
            self.sizes = self._of_stretch(self.lengths.double(), "mean")

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, sentences: Tensor) -> Batch:
        """The sentences of these numbers; with a context, of whole stretches."""
        lengths = self.lengths[sentences]
        step = torch.arange(int(lengths.max()))
        mask = step < lengths[:, None]
        places = (self.starts[sentences, None] + step)[mask]
        rows = torch.zeros(mask.shape, dtype=torch.long)
        rows[mask] = self.rows[places]
        distinct, rows = torch.unique(rows, return_inverse=True)
        tags = torch.full(mask.shape, -1)
        tags[mask] = self.tags[places]
        table = WordTable(*(column[distinct] for column in self.table))
        pieces = None
        if self.encoder:
            stretches = dict.fromkeys(self.stretch[sentences].tolist())
            pieces = self.encoder.join([self.cuts[n] for n in stretches])
        return Batch(table, rows, mask, self.window[places], tags, pieces)

    def shuffled(self, size: int) -> list[Tensor]:
        """Sentence numbers of each batch of a pass, like lengths together.

        The length is in sub-words if there is an encoder, else in words.
        """
        order = (self.sizes + 3 * torch.rand(len(self.sizes))).argsort()
        counts = self.stretch.bincount()[order]
        last = (counts.cumsum(0) - 1) // size
        sizes = last.bincount(counts).long()
        batches = torch.split(self._in_order(order), sizes[sizes > 0].tolist())
        return [batches[int(i)] for i in torch.randperm(len(batches))]

    def in_order_of_length(
        self, size: int, room: int | None = None, power: int = 2
    ) -> Iterator[Tensor]:
        """Sentence numbers of each batch, at most ``size`` of them, the shortest first.

        A sentence that is far longer than those before it begins another batch: they
        would be padded to its length. So does one with which batches of more than one
        sentence, times their length to the ``power``, would exceed ``room``. A stretch
        is not parted, and is as long as its longest sentence.
        """
        longest, words = (self._of_stretch(self.lengths, x) for x in ("amax", "sum"))
        order = longest.argsort(stable=True)
        sentences = self._in_order(order)
        columns = (longest, self.stretch.bincount(), words)
        rows = torch.stack(columns, 1)[order].tolist()
        start = end = total = 0
        for length, count, own in rows:
            number = end + count - start
            most = max(MOST_PADDED, 2 * (total + own))
            full = room is not None and number * length**power > room
            if end > start and (number > size or full or number * length > most):
                yield sentences[start:end]
                start, total = end, 0
            end, total = end + count, total + own
        if end:
            yield sentences[start:]

    def _in_order(self, stretches: Tensor) -> Tensor:
        """Numbers of the sentences of all stretches, in this order."""
        return stretches.argsort()[self.stretch].argsort(stable=True)

    def _of_stretch(self, values: Tensor, reduce: str) -> Tensor:
        """Sum, mean or amax of a value of each sentence, of each stretch."""
        found = values.new_zeros(len(self.stretch.bincount()))
        return found.scatter_reduce(0, self.stretch, values, reduce, include_self=False)


def _stretches(documents: Tensor, sizes: Tensor, most: int) -> Tensor:
    """The number of each sentence's stretch.

    A document is cut into the fewest stretches of about ``most`` sub-words, all of
    like sizes.
    """
    sizes = sizes.double().clamp(min=1)
    of_document = documents.bincount(sizes)
    total = of_document[documents]
    before = of_document.cumsum(0)[documents] - total
    middle = (sizes.cumsum(0) - before - sizes / 2) / total
    part = (middle * (total / most).ceil()).long()
    pairs = torch.stack([documents, part], 1)
    new = (pairs[1:] != pairs[:-1]).any(1)
    return F.pad(new.cumsum(0), (1, 0))


class _Forms:
    """Distinct words, and forms of them that several features have."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.normal = [normalise(word) for word in words]
        self.shapes = [_shape(word) for word in words]

    def table(self, vocabulary: Vocabulary) -> WordTable:
        words, characters, shapes, *affixes = vocabulary.numbers
        half = LONGEST_WORD // 2
        kept = [
            word if len(word) <= LONGEST_WORD else word[:half] + word[-half:]
            for word in self.words
        ]
        codes = np.full((len(kept) + 1, LONGEST_WORD), PADDING)
        real = np.arange(LONGEST_WORD) < np.array([0, *map(len, kept)])[:, None]
        codes[real] = [characters.get(c, UNKNOWN) for c in "".join(kept)]
        flags = np.zeros((len(kept) + 1, len(FLAGS)), np.float32)
        known = (flag(word) for word in self.words for flag in FLAGS)
        flags[1:] = np.fromiter(known, np.float32).reshape(-1, len(FLAGS))
        columns = [
            _column(number, map(affix, self.normal))
            for number, affix in zip(affixes, AFFIXES, strict=True)
        ]
        return WordTable(
            _column(words, self.normal),
            torch.from_numpy(codes),
            _column(shapes, self.shapes),
            torch.stack(columns, 1),
            torch.from_numpy(flags),
        )

    def window(self, padded: NDArray[Any], real: NDArray[Any], buckets: int) -> Tensor:
        """Bucket of each window feature at each real position."""
        texts: dict[str, Iterable[str]] = {"cased": self.words, "word": self.normal}
        texts |= {"shape": self.shapes, "short": map(_short, self.shapes)}
        for n in (1, 2, 3, 4):
            texts[f"prefix{n}"] = map(_prefix(n), self.words)
            texts[f"suffix{n}"] = map(_suffix(n), self.words)
        hashes = {name: _hashes(name, forms) for name, forms in texts.items()}
        mix = np.uint64(0x9E3779B97F4A7C15)
        found = np.empty((len(real), len(WINDOW_FEATURES)), dtype=np.int32)
        for feature, parts in enumerate(WINDOW_FEATURES):
            value = np.full(len(real), feature + 1, dtype=np.uint64)
            for name, offset in parts:
                value = (value * mix) ^ hashes[name][padded[real + offset]]
                value ^= value >> np.uint64(29)
            found[:, feature] = (value * mix >> np.uint64(32)) % np.uint64(buckets)
        return torch.from_numpy(found)


def _column(number: dict[str, int], texts: Iterable[str]) -> Tensor:
    return torch.tensor([PADDING, *(number.get(text, UNKNOWN) for text in texts)])


def _hashes(name: str, texts: Iterable[str]) -> NDArray[np.uint64]:
    # crc32 and not hash(): the same in every process, so that a saved model works.
    start = zlib.crc32(f"{name} ".encode())
    numbers = (zlib.crc32(text.encode(), start) for text in texts)
    return np.fromiter(chain([0], numbers), np.uint64)
