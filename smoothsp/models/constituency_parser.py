"""Trained constituency parsers: train, save, load and parse."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from smoothsp.data import ConstituencyTree, as_trees, unseen_labels
from smoothsp.data.trees import levels, split_unary_chains
from smoothsp.models import files
from smoothsp.models.constituents import Constituents, bracketless
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.serialisation import (
    load_network,
    require_choice,
    require_sizes,
    save_network,
)
from smoothsp.models.span_scores import SpanScores
from smoothsp.models.tokenisation import (
    TOKENIZERS,
    TREEBANK,
    TokenisedText,
    as_list,
    require_count,
    tokenise_chunks,
)
from smoothsp.models.training_setup import make_options, open_run, require_encoder
from smoothsp.models.tree_options import ConstituencyOptions, check
from smoothsp.models.tree_scores import bracket_scores, entity_scores
from smoothsp.models.word_vectors import ParserSizes
from smoothsp.oracles import SpanTree

__all__ = [
    "FORMAT",
    "MAX_SENTENCE_LENGTH",
    "ConstituencyParser",
    "from_folder",
    "require_short_sentences",
]
__all__ += ["warn_unseen_labels"]

FORMAT = "smoothsp.models.ConstituencyParser"
MAX_SENTENCE_LENGTH = 400
"""Maximum number of words n: parsing takes O(n^3) time and O(n^2) memory."""
# Maximum number of word pairs of a batch with more than one sentence.
MAX_BATCH_SPANS = MAX_SENTENCE_LENGTH**2
MAX_LEVELS = 100


def from_folder(
    folder: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> "ConstituencyParser":
    """Build a parser from the result of ``files.read``."""
    network, labels, vocabulary = load_network(folder, config, content, _build_network)
    path = folder / files.CONFIG
    tokenizer = require_choice(path, "tokenizer", config.get("tokenizer"), TOKENIZERS)
    depth = config.get("levels")
    if type(depth) is not int or not 0 <= depth <= MAX_LEVELS:
        raise ValueError(
            f"{path}: expected levels to be 0 to {MAX_LEVELS}, got {depth!r}"
        )
    about = files.get_about(path, config)
    return ConstituencyParser(network, vocabulary, labels, about, tokenizer, depth)


class ConstituencyParser:
    """A network with its vocabulary and labels of constituents, ready to parse.

    Parameters
    ----------
    network
        Network; it is switched to evaluation mode.
    vocabulary, labels
        Vocabulary and constituent labels of the network.
    about
        Any JSON value, such as a description of the training.
    tokenizer
        Word tokenizer of texts, as for :class:`~smoothsp.models.Tagger`.
    levels
        Number of levels of nested entities; 0 for constituents.

    Examples
    --------
    >>> import smoothsp
    >>> parser = smoothsp.models.load("runs/constituency/model")  # doctest: +SKIP
    >>> print(parser.parse("the dog slept .")[0].brackets())  # doctest: +SKIP
    ( (S (NP (XX the) (XX dog)) (VP (XX slept)) (XX .)) )
    """

    def __init__(
        self,
        network: SpanScores,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        about: Mapping[str, Any] | None = None,
        tokenizer: str = TREEBANK,
        levels: int = 0,
    ) -> None:
        self.network = network.eval()
        self.vocabulary = vocabulary
        self.labels = list(labels)
        self.about = dict(about or {})
        self.tokenizer, self.levels = tokenizer, levels

    @classmethod
    def train(
        cls,
        data: Any,
        dev: Any = None,
        *,
        encoder: Encoder | str | None = None,
        loss: str = "crf",
        epochs: int = 8,
        seed: int = 0,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        trainer: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "ConstituencyParser":
        """Train a parser. Needs the extra ``lightning``.

        Ctrl-C after the first epoch ends the training and returns the best epoch so
        far, with ``about["interrupted"]``.

        Parameters
        ----------
        data
            File of bracketed trees, or with ``nested=True`` of words with several
            columns of tags. Or a list of :class:`~smoothsp.data.ConstituencyTree`, of
            ``(words, spans)``, or of dictionaries with ``tokens`` and ``spans``: spans
            are ``(label, first, last)``. Scores leave out punctuation if parts of
            speech are given, too, as ``tags``.
        dev
            The same, for choosing the best epoch. If absent, one sentence in ten is
            held out.
        encoder
            A pretrained encoder of transformers, by folder or name, to fine-tune.
        loss
            ``"crf"``, ``"hinge"`` or ``"hinge-l2"``.
        epochs
            Number of passes over the training sentences.
        seed
            Seed of the initial weights, the order of sentences and the dropout.
        out
            Folder for the best model so far, in ``model``, and for the checkpoint.
        resume
            Continue the run in ``out``.
        overwrite
            Replace the run in ``out``.
        trainer
            Keywords of :class:`pytorch_lightning.Trainer`: ``devices``, ``logger``, ...
        **options
            Fields of :class:`~smoothsp.models.tree_options.ConstituencyOptions`:
            ``nested``, ``hidden``, ``tokenizer``, ``encoder_rate``.

        Raises
        ------
        TypeError
            For an unknown option.
        ValueError
            For data that cannot be read, an option out of range, a folder that holds
            another run, and for a training that diverges.

        Examples
        --------
        >>> trees = [(["Ada", "left"], [("S", 0, 1), ("NP", 0, 0)])]
        >>> parser = ConstituencyParser.train(trees, epochs=1)  # doctest: +SKIP
        >>> parser.parse([["Ada", "left"]])[0].spans  # doctest: +SKIP
        [('S', 0, 1), ('NP', 0, 0)]
        """
        values = {"loss": loss, "epochs": epochs, "seed": seed, **options}
        chosen_options = make_options(ConstituencyOptions, values)
        require_encoder(encoder)
        check(chosen_options)
        with open_run(out, resume, overwrite) as folder:
            # it imports Lightning, which a trained parser does not need
            from smoothsp.models import constituency_training

            run = {"out": folder, "resume": resume, "trainer": trainer}
            return constituency_training.train(
                data, dev, encoder, chosen_options, **run
            )

    def evaluate(self, data: Any) -> dict[str, float]:
        """Return F1, precision, recall and the fraction of sentences without error.

        Constituents are counted as by EVALB. For nested entities, ``outer`` and
        ``inner`` are the F1 of level 1 and of deeper levels.

        Parameters
        ----------
        data
            As for ``train``.
        """
        gold = as_trees(data)
        part = str(data) if isinstance(data, str | os.PathLike) else "data"
        warn_unseen_labels(part, gold, self.labels)
        return self.scores(gold)

    def scores(self, gold: Sequence[ConstituencyTree]) -> dict[str, float]:
        """Return the metrics of ``evaluate`` for a list of trees."""
        parsed = self.parse([tree.words for tree in gold])
        return (entity_scores if self.levels else bracket_scores)(gold, parsed)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors``, ``config.json`` and ``vocabulary.json``.

        An existing model is replaced atomically: if the process is killed, the folder
        holds either the old model or the new one.
        """
        config: dict[str, Any] = {"format": FORMAT, "labels": self.labels}
        config["about"] = self.about
        config |= {"tokenizer": self.tokenizer, "levels": self.levels}
        save_network(
            folder, config, self.network, self.vocabulary, self.network.encoder
        )

    def parse(
        self,
        sentences: str | Iterable[str] | Iterable[Sequence[str]],
        batch_size: int = 16,
    ) -> list[Constituents]:
        """Return the best tree of each sentence. Thread-safe.

        Parameters
        ----------
        sentences
            Lists of words, at most 400 each. Or texts of one sentence each, or one
            text, which ``tokenizer`` splits into words.
        batch_size
            Maximum number of sentences per batch.

        Raises
        ------
        ModuleNotFoundError
            For texts, where NLTK is not installed.
        TypeError
            For values other than words, texts and integers.
        ValueError
            For an empty word, a longer sentence, ``batch_size`` below 1 or beyond 64
            bits, and for a flat list of words, which is ambiguous.
        """
        return list(self.stream(as_list(sentences), batch_size))

    def stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        batch_size: int = 16,
    ) -> Iterator[Constituents]:
        """Yield the results of ``parse``, for more sentences than memory holds.

        Sentences are taken from the iterable in parts of 32 batches.
        """
        require_count("batch_size", batch_size)
        return self._parse_stream(iter(sentences), batch_size)

    def _parse_stream(
        self, sentences: Iterator[Any], batch_size: int
    ) -> Iterator[Constituents]:
        num_before = 0
        for chunk in tokenise_chunks(sentences, self.tokenizer, batch_size):
            require_short_sentences(
                "sentences", [sentence.words for sentence in chunk], num_before
            )
            yield from self._parse_chunk(chunk, batch_size)
            num_before += len(chunk)

    def _parse_chunk(
        self, chunk: list[TokenisedText], batch_size: int
    ) -> list[Constituents]:
        depth = self.levels
        parsed = [
            Constituents([], [], 0.0, sentence.text, (), depth) for sentence in chunk
        ]
        nonempty = [number for number, words in enumerate(chunk) if words.words]
        word_lists = [chunk[n].words for n in nonempty]
        if not depth:
            word_lists = [[bracketless(word) for word in words] for words in word_lists]
        corpus = Corpus(self.vocabulary, word_lists, None, self.network.encoder)
        with torch.no_grad():
            for rows in corpus.batches_by_length(batch_size, MAX_BATCH_SPANS):
                batch = corpus.batch(rows)
                spans = self.network(batch)
                lengths = batch.mask.sum(1).to(spans.device)
                values, trees = SpanTree(spans, lengths=lengths).decode()
                scores = values.tolist()
                for index, row in enumerate(rows.tolist()):
                    text, words, offsets = chunk[nonempty[row]]
                    tree_spans = self._read_spans(trees[index])
                    parsed[nonempty[row]] = Constituents(
                        words, tree_spans, scores[index], text, tuple(offsets), depth
                    )
        return parsed

    def _read_spans(self, label_indices: torch.Tensor) -> list[tuple[str, int, int]]:
        """Return labelled spans of a decoded tree ``(n, n)``, outer before inner.

        Entities deeper than ``levels`` are dropped.
        """
        positions = (label_indices > 0).nonzero().tolist()
        named = [
            (self.labels[int(label_indices[i, j]) - 1], i, j) for i, j in positions
        ]
        # Of spans with the same start, the longest is the outermost.
        ordered = sorted(named, key=lambda span: (span[1], -span[2]))
        if not self.levels:
            return ordered
        tree = ConstituencyTree([], ordered)
        return [span for level, span in levels(tree) if level <= self.levels]


def require_short_sentences(
    part: str, sentences: Iterable[Sequence[str]], start: int = 0
) -> None:
    """Raise for a sentence that is too long; ``start`` is the number of the first."""
    for number, words in enumerate(sentences, start):
        if len(words) > MAX_SENTENCE_LENGTH:
            raise ValueError(
                f"{part}: expected at most {MAX_SENTENCE_LENGTH} words, got"
                f" {len(words):,} at sentence {number},"
                f" {' '.join(words[:3])[:60]!r} and so on; split it"
            )


def warn_unseen_labels(
    part: str, trees: Iterable[ConstituencyTree], labels: Iterable[str]
) -> None:
    """Warn about labels of trees that a model does not have."""
    seen = (label for tree in trees for label, _, _ in split_unary_chains(tree.spans))
    unseen_labels.warn(part, seen, (x for label in labels for x in label.split("+")))


def _build_network(
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    labels: list[str],
    encoder: Encoder | None,
) -> SpanScores:
    sizes = ParserSizes(**config["sizes"])
    require_sizes(sizes, "word", "hidden", "layers", "arc")
    return SpanScores(vocabulary, labels, sizes, encoder)
