"""Trained taggers: train, save, load and tag."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothsp.constraints import bio
from smoothsp.data import as_tagged, by_document, unseen_labels
from smoothsp.metrics import span_f1
from smoothsp.metrics import spans as read_spans
from smoothsp.models import files
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from smoothsp.models.segments import SegmentHead
from smoothsp.models.serialisation import (
    load_network,
    require_choice,
    require_sizes,
    save_network,
)
from smoothsp.models.tagged_sentence import Span, Tagged
from smoothsp.models.tagger_options import Options, check
from smoothsp.models.tokenisation import (
    MAX_LISTED,
    TOKENIZERS,
    TREEBANK,
    TokenisedText,
    as_list,
    require_count,
    tokenise_chunks,
)
from smoothsp.models.training_setup import make_options, open_run, require_encoder
from smoothsp.oracles import Chain, SemiMarkov
from smoothsp.schemes import PLAIN, SPAN_PREFIXES, convert, detect, split_tag

__all__ = ["FORMAT", "Tagger", "from_folder"]

# Type, first word and last word of a span.
SpanTuple = tuple[str, int, int]

FORMAT = "smoothsp.models.Tagger"
# Maximum number of pair marginals in memory, if of more than one sentence.
MAX_PAIR_MARGINALS = 2**22
# Maximum number of label sequences searched for distinct taggings.
MAX_LABELLINGS = 2**12


def from_folder(
    folder: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> "Tagger":
    """Build a tagger from the result of ``files.read``."""
    network, labels, vocabulary = load_network(folder, config, content, _build_network)
    path = folder / files.CONFIG
    choices = [
        require_choice(path, name, config.get(name, allowed[0]), allowed)
        for name, allowed in (
            ("scheme", ("BIO", *SPAN_PREFIXES, PLAIN)),
            ("tokenizer", TOKENIZERS),
        )
    ]
    return Tagger(network, vocabulary, labels, files.get_about(path, config), *choices)


class Tagger:
    """A network with its vocabulary and labels, ready to tag.

    Parameters
    ----------
    network
        Network; it is switched to evaluation mode.
    vocabulary
        Vocabulary of the network.
    labels
        Labels of the network, in BIOES.
    about
        Any JSON value, such as a description of the training.
    scheme
        Tagging scheme of the predicted tags: the scheme of the training tags.
    tokenizer
        Word tokenizer of texts: ``"treebank"`` is NLTK's ``NLTKWordTokenizer``,
        ``"blanks"`` splits at white space. It is saved with the model.

    Examples
    --------
    >>> import smoothsp
    >>> tagger = smoothsp.models.load("runs/conll_ner/model")  # doctest: +SKIP
    >>> tagger.tag([["Ada", "met", "Bob"]])[0].tags  # doctest: +SKIP
    ['B-PER', 'O', 'B-PER']
    """

    def __init__(
        self,
        network: TaggerNetwork,
        vocabulary: Vocabulary,
        labels: list[str],
        about: Mapping[str, Any] | None = None,
        scheme: str = "BIO",
        tokenizer: str = TREEBANK,
    ) -> None:
        self.network = network.eval()
        self.vocabulary = vocabulary
        self.labels = list(labels)
        self.about = dict(about or {})
        self.scheme, self.tokenizer = scheme, tokenizer

    @property
    def types(self) -> list[str]:
        """Types of spans, sorted."""
        return sorted({split_tag(label)[1] for label in self.labels if label != "O"})

    @classmethod
    def train(
        cls,
        data: Any,
        dev: Any = None,
        *,
        encoder: Encoder | str | None = None,
        loss: str = "hinge-l2",
        epochs: int | None = None,
        seed: int = 0,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        overwrite: bool = False,
        trainer: Mapping[str, Any] | None = None,
        vectors: Mapping[str, NDArray[Any]] | None = None,
        tokenizer: str = TREEBANK,
        **options: Any,
    ) -> "Tagger":
        """Train a tagger on sentences whose words have tags.

        ``recipes/conll_ner.py`` calls this method. Needs the extra ``lightning``.

        Ctrl-C after the first epoch ends the training and returns the best tagger so
        far, with ``about["interrupted"]``. With several processes, as in Lightning,
        your script runs in each of them.

        Parameters
        ----------
        data
            Path that :func:`smoothsp.data.read_tagged` reads. Or sentences:
            :class:`~smoothsp.data.TaggedSentence`, pairs of words and tags, or
            dictionaries with ``tokens`` and ``ner_tags``, as the package ``datasets``
            gives. Tags may be in any scheme that ``smoothsp.schemes`` detects; None is
            an unknown tag. The tagger predicts tags in this scheme.
        dev
            Sentences for choosing the best epoch. If absent, one in ten is held out.
        encoder
            A pretrained encoder of transformers, by folder or name, to fine-tune.
        loss
            ``"hinge-l2"``, ``"hinge-entropy"``, ``"hinge"``, ``"crf"``,
            ``"perceptron"`` or ``"softmax"``.
        epochs
            Passes over the sentences; by default at least 8, and 1,200 steps. With
            ``steps`` an epoch is an eighth of these.
        seed
            Seed of all random numbers.
        out
            Folder for the checkpoint of each epoch, and for the folder ``model`` of the
            best tagger so far.
        resume
            Continue the run in ``out``: on one device, the result is the same, bit for
            bit, as without the interruption.
        overwrite
            Replace the run in ``out``.
        trainer
            Keywords of :class:`pytorch_lightning.Trainer`: ``devices``, ``precision``,
            ``logger``, ``callbacks``, ...
        vectors
            Word vectors by lower-cased word with 0 for each digit, all of one length,
            float32.
        tokenizer
            As for the class.
        **options
            Further fields of :class:`~smoothsp.models.tagger_options.Options`:
            ``steps``, ``patience``, ``hidden``, ``batch``, ``rate``, ...

        Raises
        ------
        FileNotFoundError
            If there is no run to resume.
        TypeError
            For an unknown option, or values other than sentences.
        ValueError
            If words and tags do not match, options do not fit together, ``out`` holds
            a run, or training diverges.

        Examples
        --------
        >>> data = [(["Ada", "met", "Bob"], ["B-PER", "O", "B-PER"])] * 20
        >>> tagger = Tagger.train(data, epochs=1)  # doctest: +SKIP
        >>> tagger.save("model")  # doctest: +SKIP
        """
        values = {"loss": loss, "epochs": epochs, "seed": seed, **options}
        chosen_options = make_options(Options, values)
        check(chosen_options)
        if tokenizer not in TOKENIZERS:
            raise ValueError(
                f"tokenizer: expected one of {', '.join(TOKENIZERS)}, got {tokenizer!r}"
            )
        require_encoder(encoder)
        vectors = vectors or {}
        if chosen_options.word_size is not None and vectors:
            raise ValueError(
                "word_size: expected None with vectors, which determine it, got"
                f" {chosen_options.word_size}"
            )
        if chosen_options.context and encoder is None:
            raise ValueError(
                "context: expected an encoder beside it, which reads the context, got"
                " none"
            )
        with open_run(out, resume, overwrite) as folder:
            # Imports Lightning, which only training needs.
            from smoothsp.models import tagger_training

            return tagger_training.train(
                data,
                dev,
                encoder,
                chosen_options,
                vectors=vectors,
                tokenizer=tokenizer,
                out=folder,
                resume=resume,
                trainer=trainer,
            )

    def evaluate(self, data: Any, batch_size: int = 64) -> dict[str, float]:
        """Return ``f1``, ``precision`` and ``recall`` of spans, from 0 to 1.

        Parameters
        ----------
        data
            Sentences with their tags, as for ``train``.
        batch_size
            Number of sentences per batch.
        """
        examples = [sentence for sentence in as_tagged(data) if sentence.words]
        if not examples or any(
            None in (sentence.tags or [None]) for sentence in examples
        ):
            raise ValueError(
                "data: expected sentences with a tag for each word, got"
                f" {'words without tags' if examples else 'no sentence'}"
            )
        gold_tags = [[str(tag) for tag in sentence.tags or ()] for sentence in examples]
        tagged = self.stream(by_document(examples), batch_size=batch_size)
        gold, predicted = (
            [convert(tags, source=x, target="BIOES", strict=False) for tags in rows]
            for rows, x in (
                (gold_tags, detect(gold_tags)),
                ([sentence.tags for sentence in tagged if sentence.words], self.scheme),
            )
        )
        unseen_labels.warn("data", (tag for row in gold for tag in row), self.labels)
        precision, recall, f1 = span_f1(gold, predicted)
        return {"f1": f1, "precision": precision, "recall": recall}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors``, ``config.json`` and ``vocabulary.json``.

        An existing model is replaced atomically: if the process is killed, the folder
        holds either the old model or the new one.
        """
        config = {"format": FORMAT, "about": self.about, "scheme": self.scheme}
        config |= {"labels": self.labels, "tokenizer": self.tokenizer}
        encoder = self.network.encoder
        save_network(folder, config, self.network, self.vocabulary, encoder)

    def tag(
        self,
        sentences: str | Iterable[str] | Iterable[Sequence[str]],
        nbest: int = 1,
        confidence: bool = False,
        batch_size: int = 64,
    ) -> list[Tagged]:
        """Return tags and spans of each sentence. Thread-safe.

        Parameters
        ----------
        sentences
            Lists of words. Or texts of one sentence each, or one text, which
            ``tokenizer`` splits into words. A tagger trained with ``context=True``
            reads neighbouring sentences together: put an empty sentence between
            documents.
        nbest
            Maximum number of different taggings per sentence, best first.
        confidence
            If True, compute the probability of each tagging and each span.
        batch_size
            Number of sentences per batch.

        Raises
        ------
        ModuleNotFoundError
            For texts, where NLTK is not installed.
        TypeError
            For values other than words, texts and integers.
        ValueError
            For an empty word, or for ``nbest`` or ``batch_size`` out of range. Also for
            a flat list of words, which is ambiguous.
        """
        return list(self.stream(as_list(sentences), nbest, confidence, batch_size))

    def stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        nbest: int = 1,
        confidence: bool = False,
        batch_size: int = 64,
    ) -> Iterator[Tagged]:
        """Yield the results of ``tag`` in order, for more sentences than memory holds.

        Sentences are taken from the iterable in parts of 32 batches.

        Examples
        --------
        >>> with open("text.txt") as lines:  # doctest: +SKIP
        ...     for tagged in tagger.stream(lines):
        ...         print(tagged.json())
        """
        require_count("nbest", nbest, MAX_LISTED)
        require_count("batch_size", batch_size)
        return self._tag_stream(iter(sentences), nbest, confidence, batch_size)

    def _tag_stream(
        self, sentences: Iterator[Any], nbest: int, confidence: bool, batch_size: int
    ) -> Iterator[Tagged]:
        for chunk in tokenise_chunks(sentences, self.tokenizer, batch_size):
            yield from self._tag_chunk(chunk, nbest, confidence, batch_size)

    def _tag_chunk(
        self, chunk: list[TokenisedText], nbest: int, confidence: bool, batch_size: int
    ) -> list[Tagged]:
        probability = 1.0 if confidence else None
        taggings = [
            Tagged([], [], [], 0.0, probability, (), words.text) for words in chunk
        ]
        nonempty = [number for number, words in enumerate(chunk) if words.words]
        if not nonempty:
            return taggings
        encoder = self.network.encoder
        word_lists = [chunk[n].words for n in nonempty]
        num_breaks = list(accumulate(int(not words.words) for words in chunk))
        documents = [num_breaks[n] for n in nonempty]
        corpus = Corpus(self.vocabulary, word_lists, None, encoder, documents)
        with torch.no_grad():
            for rows in corpus.batches_by_length(batch_size):
                numbers = [nonempty[row] for row in rows.tolist()]
                batch = corpus.batch(rows)
                emissions = self.network(batch)
                mask = batch.mask.to(emissions.device)
                structure = self.network.head.structure(emissions, mask)
                texts = [chunk[number] for number in numbers]
                tagged = self._read_taggings(structure, texts, nbest, confidence)
                for number, tagged_sentence in zip(numbers, tagged, strict=True):
                    taggings[number] = tagged_sentence
        return taggings

    def _read_taggings(
        self,
        structure: Chain | SemiMarkov,
        texts: list[TokenisedText],
        nbest: int,
        confidence: bool,
    ) -> list[Tagged]:
        """Decode the ``nbest`` taggings of each sentence of a batch."""
        candidates = self._decode_distinct(structure, nbest)
        spans = [[path_spans for _, path_spans in ranked] for ranked in candidates]
        totals = structure.log_partition().tolist() if confidence else []
        confidences = self._compute_confidences(structure, spans) if confidence else {}
        sentences = []
        for row, (text, words, offsets) in enumerate(texts):
            ranked = [
                Tagged(
                    words,
                    convert(
                        _to_bio_tags(path_spans, len(words)),
                        source="BIO",
                        target=self.scheme,
                    ),
                    [
                        Span(
                            *span,
                            text[start:end],
                            start,
                            end,
                            confidences.get((row, span)),
                        )
                        for span in path_spans
                        for start, end in [(offsets[span[1]][0], offsets[span[2]][1])]
                    ],
                    score,
                    min(1.0, math.exp(score - totals[row])) if confidence else None,
                    text=text,
                )
                for score, path_spans in candidates[row]
            ]
            sentences.append(replace(ranked[0], others=tuple(ranked[1:])))
        return sentences

    def _decode_distinct(
        self, structure: Chain | SemiMarkov, nbest: int
    ) -> list[list[tuple[float, list[SpanTuple]]]]:
        """Return scores and spans of the ``nbest`` distinct taggings of each row.

        Several label sequences of a softmax may encode the same spans. The best of them
        counts, and k is enlarged until there are ``nbest`` distinct taggings.
        """
        head = self.network.head
        candidates: list[list[tuple[float, list[SpanTuple]]]] = [
            [] for _ in structure.lengths
        ]
        pending, pending_rows, k = structure, list(range(len(candidates))), nbest
        while True:
            scores, labels, valid = pending.decode_topk(k)
            if isinstance(head, SegmentHead):
                labels = head.tags(labels, pending.lengths)
            counts = valid.sum(1).tolist()
            rows = zip(
                pending_rows, scores.tolist(), labels.tolist(), counts, strict=True
            )
            for row, values, paths, count in rows:
                score_by_spans: dict[tuple[SpanTuple, ...], float] = {}
                for value, path in zip(values[:count], paths[:count], strict=True):
                    read = read_spans([self.labels[x] for x in path if x >= 0])
                    score_by_spans.setdefault(
                        tuple(sorted(read, key=itemgetter(1))), value
                    )
                candidates[row] = [
                    (value, list(x)) for x, value in score_by_spans.items()
                ][:nbest]
            more = zip(pending_rows, counts, strict=True)
            pending_rows = [r for r, n in more if n == k and len(candidates[r]) < nbest]
            if not pending_rows or k >= MAX_LABELLINGS:
                return candidates
            pending = structure.select(torch.tensor(pending_rows, device=labels.device))
            k *= 4

    def _compute_confidences(
        self,
        structure: Chain | SemiMarkov,
        spans: list[list[list[SpanTuple]]],
    ) -> dict[tuple[int, SpanTuple], float]:
        """Return the probability of each requested span, by (row, span).

        For chains, it sums over all label sequences that encode the span; each has the
        probability of its first label times transition probabilities up to the end. For
        semi-Markov models, it is the marginal of the segment.
        """
        requested_spans = [
            sorted({span for path in confidences for span in path})
            for confidences in spans
        ]
        if not any(requested_spans):
            return {}
        head = self.network.head
        marginals = structure.marginals()
        if isinstance(structure, SemiMarkov):
            assert isinstance(head, SegmentHead)
            keys = [
                (row, span)
                for row, requested in enumerate(requested_spans)
                for span in requested
            ]
            # Index single segments: there are far more segments than requested ones.
            positions = [
                [row, first, last - first, head.states.index(kind)]
                for row, (kind, first, last) in keys
            ]
            position_index = torch.tensor(positions, device=marginals.device).unbind(1)
            confidences = [
                min(1.0, probability)
                for probability in marginals[position_index].tolist()
            ]
            return dict(zip(keys, confidences, strict=True))
        confidence_by_span = {}
        prefixes, kinds = zip(*map(split_tag, self.labels), strict=True)
        kind_of = np.array(kinds)
        continues_span = (kind_of[:, None] == kind_of) & np.isin(prefixes, ("I", "E"))
        continues_span &= np.isin(prefixes, ("B", "I"))[:, None]
        rows_with_spans = [
            row for row, confidences in enumerate(requested_spans) if confidences
        ]
        rows_per_chunk = max(
            1, MAX_PAIR_MARGINALS // (marginals.shape[1] * len(self.labels) ** 2)
        )
        for start in range(0, len(rows_with_spans), rows_per_chunk):
            rows = rows_with_spans[start : start + rows_per_chunk]
            requested = structure.select(torch.tensor(rows, device=marginals.device))
            pairs = requested.edge_marginals().cpu().numpy()
            for index, row in enumerate(rows):
                size = int(structure.lengths[row])
                labels = marginals[row, :size].double().cpu().numpy()
                transitions = pairs[index, : size - 1]
                for kind, first, last in requested_spans[row]:
                    is_kind = kind_of == kind
                    probability = _span_probability(
                        labels, transitions, continues_span, is_kind, first, last
                    )
                    confidence_by_span[row, (kind, first, last)] = min(1.0, probability)
        return confidence_by_span


def _span_probability(
    labels: NDArray[np.float64],
    pairs: NDArray[np.floating[Any]],
    continues_span: NDArray[np.bool_],
    is_kind: NDArray[np.bool_],
    first: int,
    last: int,
) -> float:
    """Return the probability that a span extends exactly from ``first`` to ``last``.

    Forward recursion over a Markov chain with p(y' | y) = p(y, y') / p(y). The span
    begins by a transition that does not continue a span, and ends before one.

    ``labels`` are marginals ``(time, label)``, ``pairs`` pair marginals
    ``(time - 1, label, label)``. ``is_kind`` masks the labels of the type, and
    ``continues_span`` the pairs ``(label, label)`` within one span.
    """
    probability = labels[0] * is_kind
    if first > 0:
        probability = (pairs[first - 1] * ~continues_span).sum(0) * is_kind
    for step in range(first, min(last + 1, len(pairs))):
        # Labels of probability 0 have no mass to divide.
        conditional = probability / np.where(labels[step] > 0, labels[step], 1)
        probability = conditional @ (
            pairs[step] * (continues_span if step < last else ~continues_span)
        )
    return float(probability.sum())


def _to_bio_tags(spans: list[SpanTuple], size: int) -> list[str]:
    tags = ["O"] * size
    for kind, first, last in spans:
        tags[first : last + 1] = [f"I-{kind}"] * (last + 1 - first)
        tags[first] = f"B-{kind}"
    return tags


def _build_network(
    config: Mapping[str, Any],
    vocabulary: Vocabulary,
    labels: list[str],
    encoder: Encoder | None,
) -> TaggerNetwork:
    bio(labels, "BIOES")
    sizes = TaggerSizes(**config["sizes"])
    require_sizes(sizes, "word", "hidden")
    if not isinstance(sizes.softmax, bool):
        raise ValueError(f"softmax: {sizes.softmax!r}")
    return TaggerNetwork(vocabulary, labels, sizes, encoder)
