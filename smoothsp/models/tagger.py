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

# The type of a span, its first word and its last.
Found = tuple[str, int, int]

FORMAT = "smoothsp.models.Tagger"
# Chances of pairs of labels that are in memory at once, if of more than one sentence.
PAIRS = 2**22
# Labellings of a sentence that are looked through for taggings that differ.
MOST_ASKED = 2**12


def from_folder(
    place: Path, config: Mapping[str, Any], content: Mapping[str, bytes]
) -> "Tagger":
    """The tagger of what ``files.read`` gave."""
    network, labels, vocabulary = load_network(place, config, content, _network)
    path = place / files.CONFIG
    kept = [
        require_choice(path, name, config.get(name, known[0]), known)
        for name, known in (
            ("scheme", ("BIO", *SPAN_PREFIXES, PLAIN)),
            ("tokenizer", TOKENIZERS),
        )
    ]
    return Tagger(network, vocabulary, labels, files.get_about(path, config), *kept)


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
        """The types of spans."""
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
        given = {"loss": loss, "epochs": epochs, "seed": seed, **options}
        chosen = make_options(Options, given)
        check(chosen)
        if tokenizer not in TOKENIZERS:
            raise ValueError(
                f"tokenizer: expected one of {', '.join(TOKENIZERS)}, got {tokenizer!r}"
            )
        require_encoder(encoder)
        vectors = vectors or {}
        if chosen.word_size is not None and vectors:
            raise ValueError(
                "word_size: expected None with vectors, which determine it, got"
                f" {chosen.word_size}"
            )
        if chosen.context and encoder is None:
            raise ValueError(
                "context: expected an encoder beside it, which reads the context, got"
                " none"
            )
        with open_run(out, resume, overwrite) as folder:
            # it imports Lightning, which a trained tagger does not need
            from smoothsp.models import tagger_training

            return tagger_training.train(
                data,
                dev,
                encoder,
                chosen,
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
        examples = [one for one in as_tagged(data) if one.words]
        if not examples or any(None in (one.tags or [None]) for one in examples):
            raise ValueError(
                "data: expected sentences with a tag for each word, got"
                f" {'words without tags' if examples else 'no sentence'}"
            )
        written = [[str(tag) for tag in one.tags or ()] for one in examples]
        tagged = self.stream(by_document(examples), batch_size=batch_size)
        gold, found = (
            [convert(tags, source=x, target="BIOES", strict=False) for tags in rows]
            for rows, x in (
                (written, detect(written)),
                ([one.tags for one in tagged if one.words], self.scheme),
            )
        )
        unseen_labels.warn("data", (tag for row in gold for tag in row), self.labels)
        precision, recall, f1 = span_f1(gold, found)
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
        """Yield what ``tag`` returns, in order, for more sentences than memory holds.

        Sentences are taken from the iterable in parts of 32 batches.

        Examples
        --------
        >>> with open("text.txt") as lines:  # doctest: +SKIP
        ...     for tagged in tagger.stream(lines):
        ...         print(tagged.json())
        """
        require_count("nbest", nbest, MAX_LISTED)
        require_count("batch_size", batch_size)
        return self._stream(iter(sentences), nbest, confidence, batch_size)

    def _stream(
        self, sentences: Iterator[Any], nbest: int, confidence: bool, batch_size: int
    ) -> Iterator[Tagged]:
        for given in tokenise_chunks(sentences, self.tokenizer, batch_size):
            yield from self._tag(given, nbest, confidence, batch_size)

    def _tag(
        self, given: list[TokenisedText], nbest: int, confidence: bool, batch_size: int
    ) -> list[Tagged]:
        sure = 1.0 if confidence else None
        found = [Tagged([], [], [], 0.0, sure, (), words.text) for words in given]
        filled = [number for number, words in enumerate(given) if words.words]
        if not filled:
            return found
        encoder = self.network.encoder
        listed = [given[n].words for n in filled]
        before = list(accumulate(int(not words.words) for words in given))
        documents = [before[n] for n in filled]
        corpus = Corpus(self.vocabulary, listed, None, encoder, documents)
        with torch.no_grad():
            for rows in corpus.in_order_of_length(batch_size):
                numbers = [filled[row] for row in rows.tolist()]
                batch = corpus.batch(rows)
                emissions = self.network(batch)
                mask = batch.mask.to(emissions.device)
                structure = self.network.head.structure(emissions, mask)
                own = [given[number] for number in numbers]
                tagged = self._read(structure, own, nbest, confidence)
                for number, answer in zip(numbers, tagged, strict=True):
                    found[number] = answer
        return found

    def _read(
        self,
        structure: Chain | SemiMarkov,
        given: list[TokenisedText],
        nbest: int,
        confidence: bool,
    ) -> list[Tagged]:
        """The nbest taggings of a batch."""
        listed = self._distinct(structure, nbest)
        spans = [[found for _, found in ranked] for ranked in listed]
        totals = structure.log_partition().tolist() if confidence else []
        known = self._confidences(structure, spans) if confidence else {}
        answers = []
        for row, (text, words, places) in enumerate(given):
            ranked = [
                Tagged(
                    words,
                    convert(
                        _in_bio(found, len(words)), source="BIO", target=self.scheme
                    ),
                    [
                        Span(*span, text[start:end], start, end, known.get((row, span)))
                        for span in found
                        for start, end in [(places[span[1]][0], places[span[2]][1])]
                    ],
                    score,
                    min(1.0, math.exp(score - totals[row])) if confidence else None,
                    text=text,
                )
                for score, found in listed[row]
            ]
            answers.append(replace(ranked[0], others=tuple(ranked[1:])))
        return answers

    def _distinct(
        self, structure: Chain | SemiMarkov, nbest: int
    ) -> list[list[tuple[float, list[Found]]]]:
        """Scores and spans of the nbest taggings of each row.

        Labels that are independent may read as the same spans: the best of them counts,
        and more are searched for.
        """
        head = self.network.head
        listed: list[list[tuple[float, list[Found]]]] = [[] for _ in structure.lengths]
        some, lacking, k = structure, list(range(len(listed))), nbest
        while True:
            scores, labels, valid = some.decode_topk(k)
            if isinstance(head, SegmentHead):
                labels = head.tags(labels, some.lengths)
            counts = valid.sum(1).tolist()
            answers = zip(
                lacking, scores.tolist(), labels.tolist(), counts, strict=True
            )
            for row, values, paths, count in answers:
                found: dict[tuple[Found, ...], float] = {}
                for value, path in zip(values[:count], paths[:count], strict=True):
                    read = read_spans([self.labels[x] for x in path if x >= 0])
                    found.setdefault(tuple(sorted(read, key=itemgetter(1))), value)
                listed[row] = [(value, list(x)) for x, value in found.items()][:nbest]
            more = zip(lacking, counts, strict=True)
            lacking = [r for r, n in more if n == k and len(listed[r]) < nbest]
            if not lacking or k >= MOST_ASKED:
                return listed
            some = structure.select(torch.tensor(lacking, device=labels.device))
            k *= 4

    def _confidences(
        self,
        structure: Chain | SemiMarkov,
        spans: list[list[list[Found]]],
    ) -> dict[tuple[int, Found], float]:
        """The probability of each span of each row.

        Labels form a Markov chain. The probability of a span sums over all label
        sequences that encode it. Each is the probability of the first label, times
        those of the transitions up to the end. With segments, it is the marginal of the
        segment.
        """
        wanted = [sorted({span for path in found for span in path}) for found in spans]
        if not any(wanted):
            return {}
        head = self.network.head
        chances = structure.marginals()
        if isinstance(structure, SemiMarkov):
            assert isinstance(head, SegmentHead)
            keys = [(row, span) for row, some in enumerate(wanted) for span in some]
            # of all segments there are far more than are asked for
            places = [
                [row, first, last - first, head.states.index(kind)]
                for row, (kind, first, last) in keys
            ]
            at = torch.tensor(places, device=chances.device).unbind(1)
            found = [min(1.0, chance) for chance in chances[at].tolist()]
            return dict(zip(keys, found, strict=True))
        known = {}
        prefixes, kinds = zip(*map(split_tag, self.labels), strict=True)
        kind_of = np.array(kinds)
        goes_on = (kind_of[:, None] == kind_of) & np.isin(prefixes, ("I", "E"))
        goes_on &= np.isin(prefixes, ("B", "I"))[:, None]
        given = [row for row, found in enumerate(wanted) if found]
        part = max(1, PAIRS // (chances.shape[1] * len(self.labels) ** 2))
        for start in range(0, len(given), part):
            rows = given[start : start + part]
            some = structure.select(torch.tensor(rows, device=chances.device))
            pairs = some.edge_marginals().cpu().numpy()
            for place, row in enumerate(rows):
                size = int(structure.lengths[row])
                labels = chances[row, :size].double().cpu().numpy()
                moves = pairs[place, : size - 1]
                for kind, first, last in wanted[row]:
                    own = kind_of == kind
                    chance = _chance(labels, moves, goes_on, own, first, last)
                    known[row, (kind, first, last)] = min(1.0, chance)
        return known


def _chance(
    labels: NDArray[np.float64],
    pairs: NDArray[np.floating[Any]],
    goes_on: NDArray[np.bool_],
    own: NDArray[np.bool_],
    first: int,
    last: int,
) -> float:
    """Probability that a span of the ``own`` labels is exactly from first to last.

    ``labels`` and ``pairs`` have the chances of labels and of neighbours, ``goes_on``
    which neighbours are of one span.
    """
    chance = labels[0] * own
    if first > 0:
        chance = (pairs[first - 1] * ~goes_on).sum(0) * own
    for step in range(first, min(last + 1, len(pairs))):
        # of those that have no chance, nothing is left
        given = chance / np.where(labels[step] > 0, labels[step], 1)
        chance = given @ (pairs[step] * (goes_on if step < last else ~goes_on))
    return float(chance.sum())


def _in_bio(spans: list[Found], size: int) -> list[str]:
    tags = ["O"] * size
    for kind, first, last in spans:
        tags[first : last + 1] = [f"I-{kind}"] * (last + 1 - first)
        tags[first] = f"B-{kind}"
    return tags


def _network(
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
