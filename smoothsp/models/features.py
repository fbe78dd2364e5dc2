"""Integer features of words and sentences, and batches of them.

Each distinct word is one row of a table: its lower-cased form with digits as 0, its
characters, shape, prefixes and suffixes. A sentence is a list of rows, so a batch
computes the representation of each distinct word once.

Each position also has the features of a linear tagger, hashed to buckets: words,
shapes, prefixes and suffixes in a window of five words, and their pairs. With an
encoder, sentences also have sub-words.
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
MAX_RARE_COUNT = 2
MAX_CHARACTERS = 20
MAX_BUCKETS = 1 << 18
# Padded positions of a batch that are always allowed, however much of it is padding.
MAX_PADDED = 2**15


DIGIT, REPEATED_TWICE, REPEATED_OFTEN = map(re.compile, (r"\d", r"(.)\1", r"(.)\1\1+"))


class _CharacterClasses(dict[int, str]):
    """Translation table of word shapes: letters to X or x, digits to 0."""

    def __missing__(self, code: int) -> str:
        c = chr(code)
        self[code] = (
            "X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c
        )
        return self[code]


CHARACTER_CLASSES = _CharacterClasses()


def normalise(word: str) -> str:
    """Return a word in lower case, with 0 for each digit."""
    return DIGIT.sub("0", word.lower())


def _word_shape(word: str) -> str:
    return REPEATED_OFTEN.sub(r"\1\1", word.translate(CHARACTER_CLASSES))


def _collapse_repeats(shape: str) -> str:
    return REPEATED_TWICE.sub(r"\1", shape)


def _build_prefix_function(n: int) -> Callable[[str], str]:
    return lambda word: word[:n]


def _build_suffix_function(n: int) -> Callable[[str], str]:
    return lambda word: word[-n:]


AFFIXES = [
    *(_build_prefix_function(n) for n in (2, 3, 4)),
    *(_build_suffix_function(n) for n in (1, 2, 3, 4)),
]
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
# Each feature joins attributes of words at offsets from the described position.
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
    """Entries of the embedding tables, as lists that JSON can store."""

    words: list[str]
    rare: list[bool]
    """Whether training randomly replaces a word by the unknown word, which teaches the
    network to handle unknown words."""
    characters: list[str]
    shapes: list[str]
    affixes: list[list[str]]
    buckets: int
    """Number of buckets of hashed window features."""

    @classmethod
    def from_sentences(
        cls, sentences: list[list[str]], with_vectors: list[str]
    ) -> "Vocabulary":
        """Build the vocabulary of training sentences and words with vectors."""
        counts = Counter(word for words in sentences for word in words)
        forms: Counter[str] = Counter()
        for word, count in counts.items():
            forms[normalise(word)] += count
        words = sorted({*forms, *with_vectors})
        tokens = sum(counts.values())
        return cls(
            words,
            [forms[word] <= MAX_RARE_COUNT for word in words],
            sorted({c for word in counts for c in word}),
            _list_frequent_features(counts, _word_shape, 2),
            [_list_frequent_features(forms, affix, 3) for affix in AFFIXES],
            min(MAX_BUCKETS, 1 << tokens.bit_length()),
        )

    @cached_property
    def numbers(self) -> list[dict[str, int]]:
        """Table indices of words, characters, shapes and each kind of affix."""
        lists = (self.words, self.characters, self.shapes, *self.affixes)
        return [{x: n for n, x in enumerate(entries, UNKNOWN + 1)} for entries in lists]


def _list_frequent_features(
    counts: Counter[str], feature: Callable[[str], str], min_count: int
) -> list[str]:
    totals: Counter[str] = Counter()
    for word, count in counts.items():
        totals[feature(word)] += count
    return sorted(text for text, total in totals.items() if total >= min_count)


class WordTable(NamedTuple):
    """Features of distinct words, one row each; row 0 is padding, all zero."""

    word: Tensor  # [W]
    characters: Tensor  # [W, C]
    shape: Tensor  # [W]
    affixes: Tensor  # [W, A]
    flags: Tensor  # [W, F] float


class Batch(NamedTuple):
    """Input of the network: B sentences of up to T words, N words in all."""

    table: WordTable  # of the distinct words of the batch
    rows: Tensor  # [B, T]
    mask: Tensor  # [B, T]
    window: Tensor  # [N, features] bucket numbers, of the N real positions
    tags: Tensor  # [B, T], -1 where padded
    subwords: SubwordBatch | None  # sub-words, of the N real positions

    def to(self, device: torch.device) -> "Batch":
        """Return the batch with all tensors on ``device``."""
        table = WordTable(*(column.to(device) for column in self.table))
        pieces = self.subwords and SubwordBatch(*(x.to(device) for x in self.subwords))
        rows, mask, window, tags = (tensor.to(device) for tensor in self[1:5])
        return Batch(table, rows, mask, window, tags, pieces)


class Corpus:
    """Sentences as integer features, from which batches are taken.

    An encoder with a context reads successive sentences of a document together, as one
    context. ``documents`` has the index of the document of each sentence, ascending; by
    default all are of one document.
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
        forms = _WordForms(words)
        self.table = forms.build_table(vocabulary)
        row = {word: number for number, word in enumerate(words, start=1)}
        lengths = [len(sentence) for sentence in sentences]
        # Two rows of padding between sentences: window features reach two words far.
        rows = [0, 0]
        for sentence in sentences:
            rows += [row[word] for word in sentence] + [0, 0]
        padded = np.array(rows)
        positions = padded.nonzero()[0]
        self.lengths = torch.tensor(lengths)
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.rows = torch.from_numpy(padded[positions])
        self.window = forms.hash_window_features(padded, positions, vocabulary.buckets)
        flat = [tag for sentence in tags or [] for tag in sentence]
        self.tags = torch.tensor(flat or [-1] * len(positions))
        self.encoder = encoder
        self.subword_windows = encoder.split_subwords(sentences) if encoder else []
        # The encoder's time grows with the longest row of sub-words.
        num_subwords = [sum(map(len, cut.windows)) for cut in self.subword_windows]
        self.sort_lengths = torch.tensor(num_subwords) if encoder else self.lengths
        self.context_index = torch.arange(len(sentences))
        if encoder and encoder.context:
            document_indices = torch.tensor(documents or [0] * len(sentences))
            self.context_index = _group_into_contexts(
                document_indices, self.sort_lengths, encoder.context
            )
            joined: list[list[str]] = [
                [] for _ in range(int(self.context_index.max()) + 1)
            ]
            for number, tokens in zip(
                self.context_index.tolist(), sentences, strict=True
            ):
                joined[number] += tokens
            self.subword_windows = encoder.split_subwords(joined)
            # Contexts have similar numbers of sub-words, so batches are sorted by the
            # mean sentence length, which determines the time of the LSTM.
            self.sort_lengths = self._reduce_by_context(self.lengths.double(), "mean")

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, sentences: Tensor) -> Batch:
        """Return the batch of the given sentence indices.

        With an encoder context, these must be all sentences of their contexts.
        """
        lengths = self.lengths[sentences]
        step = torch.arange(int(lengths.max()))
        mask = step < lengths[:, None]
        positions = (self.starts[sentences, None] + step)[mask]
        rows = torch.zeros(mask.shape, dtype=torch.long)
        rows[mask] = self.rows[positions]
        distinct, rows = torch.unique(rows, return_inverse=True)
        tags = torch.full(mask.shape, -1)
        tags[mask] = self.tags[positions]
        table = WordTable(*(column[distinct] for column in self.table))
        pieces = None
        if self.encoder:
            contexts = dict.fromkeys(self.context_index[sentences].tolist())
            pieces = self.encoder.collate([self.subword_windows[n] for n in contexts])
        return Batch(table, rows, mask, self.window[positions], tags, pieces)

    def shuffled_batches(self, size: int) -> list[Tensor]:
        """Return the sentence indices of each batch of an epoch, in random order.

        A batch has sentences of similar length, counted in sub-words if there is an
        encoder, else in words. ``size`` is the number of sentences of a batch.
        """
        # Noise of up to 3 words varies the composition of batches between epochs.
        order = (self.sort_lengths + 3 * torch.rand(len(self.sort_lengths))).argsort()
        counts = self.context_index.bincount()[order]
        last = (counts.cumsum(0) - 1) // size
        sizes = last.bincount(counts).long()
        batches = torch.split(
            self._sentences_in_context_order(order), sizes[sizes > 0].tolist()
        )
        return [batches[int(i)] for i in torch.randperm(len(batches))]

    def batches_by_length(
        self, size: int, max_cost: int | None = None, cost_exponent: int = 2
    ) -> Iterator[Tensor]:
        """Yield the sentence indices of each batch, sorted by length.

        A batch has at most ``size`` sentences. A new batch also begins where padding
        would exceed half of the batch, or where ``count * length ** cost_exponent`` of
        several sentences would exceed ``max_cost``. Contexts are not split; the length
        of a context is that of its longest sentence.
        """
        longest, words = (
            self._reduce_by_context(self.lengths, x) for x in ("amax", "sum")
        )
        order = longest.argsort(stable=True)
        sentences = self._sentences_in_context_order(order)
        columns = (longest, self.context_index.bincount(), words)
        rows = torch.stack(columns, 1)[order].tolist()
        start = end = total = 0
        for length, count, num_words in rows:
            number = end + count - start
            max_padded = max(MAX_PADDED, 2 * (total + num_words))
            full = max_cost is not None and number * length**cost_exponent > max_cost
            if end > start and (number > size or full or number * length > max_padded):
                yield sentences[start:end]
                start, total = end, 0
            end, total = end + count, total + num_words
        if end:
            yield sentences[start:]

    def _sentences_in_context_order(self, contexts: Tensor) -> Tensor:
        """Return sentence indices, grouped by context in the given order."""
        return contexts.argsort()[self.context_index].argsort(stable=True)

    def _reduce_by_context(self, values: Tensor, reduction: str) -> Tensor:
        """Reduce a value of each sentence to one of each context: sum, mean or amax."""
        reduced = values.new_zeros(len(self.context_index.bincount()))
        return reduced.scatter_reduce(
            0, self.context_index, values, reduction, include_self=False
        )


def _group_into_contexts(
    documents: Tensor, num_subwords: Tensor, max_subwords: int
) -> Tensor:
    """Return the context index of each sentence, ascending.

    A document is split into the fewest contexts of about ``max_subwords``, all of
    similar size: a sentence whose centre lies at fraction f of its document belongs to
    context ``floor(f * ceil(total / max_subwords))``.
    """
    num_subwords = num_subwords.double().clamp(min=1)
    subwords_by_document = documents.bincount(num_subwords)
    total = subwords_by_document[documents]
    before = subwords_by_document.cumsum(0)[documents] - total
    centre = (num_subwords.cumsum(0) - before - num_subwords / 2) / total
    index_in_document = (centre * (total / max_subwords).ceil()).long()
    pairs = torch.stack([documents, index_in_document], 1)
    is_new = (pairs[1:] != pairs[:-1]).any(1)
    return F.pad(is_new.cumsum(0), (1, 0))


class _WordForms:
    """Distinct words with their normalised forms and shapes."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.normalised = [normalise(word) for word in words]
        self.shapes = [_word_shape(word) for word in words]

    def build_table(self, vocabulary: Vocabulary) -> WordTable:
        words, characters, shapes, *affixes = vocabulary.numbers
        half = MAX_CHARACTERS // 2
        shortened = [
            word if len(word) <= MAX_CHARACTERS else word[:half] + word[-half:]
            for word in self.words
        ]
        codes = np.full((len(shortened) + 1, MAX_CHARACTERS), PADDING)
        real = np.arange(MAX_CHARACTERS) < np.array([0, *map(len, shortened)])[:, None]
        codes[real] = [characters.get(c, UNKNOWN) for c in "".join(shortened)]
        flags = np.zeros((len(shortened) + 1, len(FLAGS)), np.float32)
        flag_values = (flag(word) for word in self.words for flag in FLAGS)
        flags[1:] = np.fromiter(flag_values, np.float32).reshape(-1, len(FLAGS))
        columns = [
            _encode_column(index, map(affix, self.normalised))
            for index, affix in zip(affixes, AFFIXES, strict=True)
        ]
        return WordTable(
            _encode_column(words, self.normalised),
            torch.from_numpy(codes),
            _encode_column(shapes, self.shapes),
            torch.stack(columns, 1),
            torch.from_numpy(flags),
        )

    def hash_window_features(
        self, padded: NDArray[Any], positions: NDArray[Any], buckets: int
    ) -> Tensor:
        """Hash window features to buckets, ``(N, features)`` int32.

        ``padded`` has word rows with padding between sentences, ``positions`` the
        indices of real words in it. Parts are combined by multiplication with a 64-bit
        golden-ratio constant, xor and shift.
        """
        texts: dict[str, Iterable[str]] = {"cased": self.words, "word": self.normalised}
        texts |= {"shape": self.shapes, "short": map(_collapse_repeats, self.shapes)}
        for n in (1, 2, 3, 4):
            texts[f"prefix{n}"] = map(_build_prefix_function(n), self.words)
            texts[f"suffix{n}"] = map(_build_suffix_function(n), self.words)
        hashes = {name: _hash_texts(name, forms) for name, forms in texts.items()}
        mix = np.uint64(0x9E3779B97F4A7C15)
        features = np.empty((len(positions), len(WINDOW_FEATURES)), dtype=np.int32)
        for feature, parts in enumerate(WINDOW_FEATURES):
            value = np.full(len(positions), feature + 1, dtype=np.uint64)
            for name, offset in parts:
                value = (value * mix) ^ hashes[name][padded[positions + offset]]
                value ^= value >> np.uint64(29)
            features[:, feature] = (value * mix >> np.uint64(32)) % np.uint64(buckets)
        return torch.from_numpy(features)


def _encode_column(index: dict[str, int], texts: Iterable[str]) -> Tensor:
    return torch.tensor([PADDING, *(index.get(text, UNKNOWN) for text in texts)])


def _hash_texts(name: str, texts: Iterable[str]) -> NDArray[np.uint64]:
    # crc32, since hash() differs between processes and saved models need the same one.
    start = zlib.crc32(f"{name} ".encode())
    numbers = (zlib.crc32(text.encode(), start) for text in texts)
    return np.fromiter(chain([0], numbers), np.uint64)
