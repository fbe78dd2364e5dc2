"""Trained dependency parsers: train, save, load and parse."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from smoothsp.data import DependencyTree, as_dependencies, unseen_labels
from smoothsp.models import files
from smoothsp.models.biaffine import SIBLING, STRUCTURES, Biaffine
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.parsed_sentence import Parsed
from smoothsp.models.serialisation import (
    load_network,
    require_choice,
    require_sizes,
    save_network,
)
from smoothsp.models.tokenisation import (
    TOKENIZERS,
    TREEBANK,
    TokenisedText,
    as_list,
    require_count,
    tokenise_chunks,
)
from smoothsp.models.training_setup import make_options, open_run, require_encoder
from smoothsp.models.tree_options import ParserOptions, check
from smoothsp.models.tree_scores import attachment_scores
from smoothsp.models.word_vectors import ParserSizes

__all__ = ["FORMAT", "Parser", "from_folder"]

FORMAT = "smoothsp.models.Parser"
# Maximum number of scores of a batch with more than one sentence.
MAX_BATCH_SCORES = 2**24


def from_folder(
    folder: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> "Parser":
    """Build a parser from the result of ``files.read``."""
    network, labels, vocabulary = load_network(folder, config, content, _build_network)
    path = folder / files.CONFIG
    tokenizer = require_choice(path, "tokenizer", config.get("tokenizer"), TOKENIZERS)
    about = files.get_about(path, config)
    return Parser(network, vocabulary, labels, about, tokenizer)


class Parser:
    """A network with its vocabulary and labels of arcs, ready to parse.

    Parameters
    ----------
    network
        Network; it is switched to evaluation mode.
    vocabulary, labels
        Vocabulary and arc labels of the network.
    about
        Any JSON value, such as a description of the training.
    tokenizer
        Word tokenizer of texts, as for :class:`~smoothsp.models.Tagger`.

    Examples
    --------
    >>> import smoothsp
    >>> parser = smoothsp.models.load("runs/ud_parser/model")  # doctest: +SKIP
    >>> parser.parse("Ada met Bob.")[0].heads  # doctest: +SKIP
    [2, 0, 2, 2]
    """

    def __init__(
        self,
        network: Biaffine,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        about: Mapping[str, Any] | None = None,
        tokenizer: str = TREEBANK,
    ) -> None:
        self.network = network.eval()
        self.vocabulary = vocabulary
        self.labels = list(labels)
        self.about = dict(about or {})
        self.tokenizer = tokenizer

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
    ) -> "Parser":
        """Train a parser. Needs the extra ``lightning``.

        Ctrl-C after the first epoch ends the training and returns the best epoch so
        far, with ``about["interrupted"]``.

        Parameters
        ----------
        data
            File of CoNLL-U. Or a list of :class:`~smoothsp.data.DependencyTree`, of
            ``(words, heads, labels)``, or of dictionaries with ``tokens``, ``heads``
            and ``labels``. Heads count from 1, and 0 is the root.
        dev
            The same, for choosing the best epoch. If absent, one sentence in ten is
            held out.
        encoder
            A pretrained encoder of transformers, by folder or name, to fine-tune.
        loss
            ``"crf"``, ``"hinge"``, ``"hinge-l2"`` or ``"perturbed"``.
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
            Fields of :class:`~smoothsp.models.tree_options.ParserOptions`:
            ``structure``, ``hidden``, ``tokenizer``, ``encoder_rate``.

        Raises
        ------
        TypeError
            For an unknown option.
        ValueError
            For data that cannot be read, an option out of range, a folder that holds
            another run, and for a training that diverges.

        Examples
        --------
        >>> trees = [(["Ada", "left"], [2, 0], ["nsubj", "root"])]
        >>> parser = Parser.train(trees, epochs=1)  # doctest: +SKIP
        >>> parser.parse([["Ada", "left"]])[0].heads  # doctest: +SKIP
        [2, 0]
        """
        values = {"loss": loss, "epochs": epochs, "seed": seed, **options}
        chosen_options = make_options(ParserOptions, values)
        require_encoder(encoder)
        check(chosen_options)
        with open_run(out, resume, overwrite) as folder:
            # Imports Lightning, which only training needs.
            from smoothsp.models import parser_training

            run = {"out": folder, "resume": resume, "trainer": trainer}
            return parser_training.train(data, dev, encoder, chosen_options, **run)

    def evaluate(self, data: Any, structure: str | None = None) -> dict[str, float]:
        """Return LAS and UAS, by the rules of the CoNLL 2018 shared task.

        Parameters
        ----------
        data
            As for ``train``.
        structure
            As for ``parse``.
        """
        gold = as_dependencies(data)
        part = str(data) if isinstance(data, str | os.PathLike) else "data"
        seen = (label for tree in gold for label in tree.labels)
        unseen_labels.warn(part, seen, self.labels)
        return self.scores(gold, structure)

    def scores(
        self, gold: Sequence[DependencyTree], structure: str | None = None
    ) -> dict[str, float]:
        """Return the metrics of ``evaluate`` for a list of trees."""
        parsed = self.parse([tree.words for tree in gold], structure=structure)
        return attachment_scores(gold, parsed)

    @property
    def structures(self) -> list[str]:
        """Types of trees that the network has scores for."""
        has_siblings = self.network.siblings is not None
        return [name for name in STRUCTURES if has_siblings or name != SIBLING]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors``, ``config.json`` and ``vocabulary.json``.

        An existing model is replaced atomically: if the process is killed, the folder
        holds either the old model or the new one.
        """
        network = self.network
        config = {"format": FORMAT, "labels": self.labels, "about": self.about}
        config |= {"structure": network.structure, "tokenizer": self.tokenizer}
        save_network(folder, config, network, self.vocabulary, network.encoder)

    def parse(
        self,
        sentences: str | Iterable[str] | Iterable[Sequence[str]],
        batch_size: int = 64,
        structure: str | None = None,
    ) -> list[Parsed]:
        """Return the best tree of each sentence. Thread-safe.

        Parameters
        ----------
        sentences
            Lists of words. Or texts of one sentence each, or one text, which
            ``tokenizer`` splits into words.
        batch_size
            Maximum number of sentences per batch.
        structure
            Type of trees, such as ``"projective"``; by default that of the training.

        Raises
        ------
        ModuleNotFoundError
            For texts, where NLTK is not installed.
        TypeError
            For values other than words, texts and integers.
        ValueError
            For an empty word, ``batch_size`` below 1 or beyond 64 bits, a structure
            without scores, and for a flat list of words, which is ambiguous.
        """
        return list(self.stream(as_list(sentences), batch_size, structure))

    def stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        batch_size: int = 64,
        structure: str | None = None,
    ) -> Iterator[Parsed]:
        """Yield the results of ``parse``, for more sentences than memory holds.

        Sentences are taken from the iterable in parts of 32 batches.
        """
        require_count("batch_size", batch_size)
        structure = structure or self.network.structure
        if structure not in self.structures:
            raise ValueError(
                f"structure: expected one of {', '.join(self.structures)}, got "
                f"{structure!r}"
            )
        return self._parse_stream(iter(sentences), batch_size, structure)

    def _parse_stream(
        self, sentences: Iterator[Any], batch_size: int, structure: str
    ) -> Iterator[Parsed]:
        for chunk in tokenise_chunks(sentences, self.tokenizer, batch_size):
            yield from self._parse_chunk(chunk, batch_size, structure)

    def _parse_chunk(
        self, chunk: list[TokenisedText], batch_size: int, structure: str
    ) -> list[Parsed]:
        parsed = [Parsed([], [], [], 0.0, words.text) for words in chunk]
        nonempty = [number for number, words in enumerate(chunk) if words.words]
        network = self.network
        word_lists = [chunk[n].words for n in nonempty]
        corpus = Corpus(self.vocabulary, word_lists, None, network.encoder)
        # Siblings have n^3 scores, arcs n^2.
        cost_exponent = 3 if structure == SIBLING else 2
        with torch.no_grad():
            for rows in corpus.batches_by_length(
                batch_size, MAX_BATCH_SCORES, cost_exponent
            ):
                batch = corpus.batch(rows)
                vectors = network(batch)
                lengths = batch.mask.sum(1)
                values, heads = network.trees(vectors, lengths, structure).decode()
                names = iter(network.labels(vectors, heads).argmax(1).tolist())
                scores = values.tolist()
                for index, row in enumerate(rows.tolist()):
                    text, words, offsets = chunk[nonempty[row]]
                    tree = heads[index, : len(words)].tolist()
                    labels = [self.labels[next(names)] for _ in words]
                    parsed[nonempty[row]] = Parsed(
                        words, tree, labels, scores[index], text, tuple(offsets)
                    )
        return parsed


def _build_network(
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    labels: list[str],
    encoder: Encoder | None,
) -> Biaffine:
    sizes = ParserSizes(**config["sizes"])
    require_sizes(sizes, "word", "hidden", "layers", "arc", "label", "sibling")
    if config["structure"] not in STRUCTURES:
        raise ValueError(f"structure: {config['structure']!r}")
    return Biaffine(vocabulary, labels, sizes, config["structure"], encoder)
