"""Training of a tagger: network, data, loss, optimizer and metrics for ``fit``."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothsp import losses
from smoothsp.data import TaggedSentence, as_tagged, read_tagged, unseen_labels
from smoothsp.data.word_tokenizers import TREEBANK
from smoothsp.metrics import span_f1
from smoothsp.models import partial_labels
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.network import TaggerNetwork, TaggerSizes
from smoothsp.models.tagger import Tagger
from smoothsp.models.tagger_options import MU, TOP_K, Options
from smoothsp.models.training_setup import split_dev
from smoothsp.run_folder import MODEL, is_main_process
from smoothsp.schemes import PLAIN, convert, detect, join_tag, split_tag
from smoothsp.training import Jointly, fit, one_thread, seed_all

__all__ = ["train"]

Tags = Sequence[str | None]
WORD_SIZE = 100
WINDOW_RATE = 2e-2
# Fraction of all steps in which the rate of an encoder rises.
WARM_UP_FRACTION = 0.1
# Approximate number of sub-words of a context of neighbouring sentences: more of them
# make steps slower.
CONTEXT = 128


def train(
    data: Any,
    dev: Any,
    encoder: Encoder | str | None,
    options: Options,
    *,
    vectors: Mapping[str, NDArray[Any]],
    tokenizer: str,
    out: Path | None,
    resume: bool,
    trainer: Mapping[str, Any] | None,
) -> Tagger:
    """Train a tagger; see ``Tagger.train``."""
    examples, dev_sentences = _load_examples(data, dev, tokenizer)
    words = [sentence.words for sentence in examples]
    scheme = detect(sentence.tags or () for sentence in examples)
    targets = [_to_target_labels(sentence.tags or (), scheme) for sentence in examples]
    labels = _list_labels(targets, scheme)
    fingerprints = {
        "data": _describe_content(
            [(sentence.words, sentence.tags) for sentence in examples]
        ),
        "dev": _describe_content(
            [(sentence.words, sentence.tags) for sentence in dev_sentences]
        ),
        "vectors": _describe_content(
            [(word, x.tobytes()) for word, x in vectors.items()]
        ),
        "encoder": encoder if encoder is None else str(encoder),
    }
    # An encoder object is not described by its class name, so it is marked as given.
    fingerprints["encoder"] = (
        "given" if isinstance(encoder, Encoder) else fingerprints["encoder"]
    )
    settings = {"model": "Tagger", **asdict(options), **fingerprints}
    settings["mu"] = options.mu or MU.get(options.loss)
    if options.loss == "hinge-l2":
        settings["top_k"] = options.top_k or TOP_K

    seed_all(options.seed, 0)
    vocabulary = Vocabulary.from_sentences(words, sorted(vectors))
    size = len(next(iter(vectors.values()))) if vectors else None
    sizes = TaggerSizes(
        size or options.word_size or WORD_SIZE,
        options.hidden,
        options.dropout,
        options.loss == "softmax",
        partial_labels.longest_segment(targets)
        if options.structure == "semi-markov"
        else None,
    )
    if isinstance(encoder, str):
        context = CONTEXT if options.context else 0
        encoder = Encoder.pretrained(encoder, mixed=True, context=context)
    network = TaggerNetwork(vocabulary, labels, sizes, encoder)
    network.emissions.set_vectors(vocabulary, vectors)
    numbers, allowed = partial_labels.encode_labels(labels, targets)
    documents = [sentence.document for sentence in examples]
    corpus = Corpus(vocabulary, words, numbers, encoder, documents)
    objective = _TaggingLoss(network, corpus, make_criterion(options, allowed), allowed)
    scores = _DevScores(network, labels, vocabulary, dev_sentences, objective)

    rounds, steps = options.rounds(-(-len(corpus) // options.batch))
    num_steps = rounds * steps
    warm_up = steps if encoder is None else max(1, int(WARM_UP_FRACTION * num_steps))

    def batches() -> list[Tensor]:
        best_tagger: list[Tensor] = []
        while len(best_tagger) < steps:
            best_tagger += corpus.shuffled_batches(options.batch)
        return best_tagger[:steps]

    def build_tagger(about: Mapping[str, Any]) -> Tagger:
        best = max(row["dev_f1"] for row in about["history"])
        description = {"settings": settings, "dev_f1": best, **about}
        return Tagger(network, vocabulary, labels, description, scheme, tokenizer)

    with one_thread(encoder is None):
        fitted = fit(
            network,
            objective,
            batches,
            scores,
            monitor="dev_f1",
            optimizer=_build_optimizer(network, options),
            epochs=rounds,
            seed=options.seed,
            warm_up=warm_up,
            patience=options.patience,
            save=None if out is None else lambda x: build_tagger(x).save(out / MODEL),
            settings=settings,
            out=out,
            resume=resume,
            trainer=trainer,
        )
    best_tagger = build_tagger({"history": fitted.history})
    if out is not None and is_main_process():
        best_tagger.save(out / MODEL)
    if fitted.interrupted:
        best_tagger.about["interrupted"] = True
    return best_tagger


def make_criterion(options: Options, allowed: Tensor | None = None) -> nn.Module:
    """Build the loss; with unknown tags, latent: hinge to the best, CRF to all."""
    mu = options.mu or MU.get(options.loss, 0.0)
    hinge = losses.StructuralHinge if allowed is None else losses.LatentHinge
    if options.loss == "hinge":
        return hinge()
    if options.loss == "hinge-l2":
        return hinge(losses.L2(mu, options.top_k or TOP_K))
    if options.loss == "hinge-entropy":
        return hinge(losses.Entropy(mu))
    if options.loss == "perceptron":
        return hinge(cost=None)
    # For softmax, the chain has zero transitions: its CRF loss is cross-entropy.
    return losses.CRFLoss() if allowed is None else losses.MarginalLikelihood()


class _TaggingLoss:
    """Mean loss of a batch of sentences, by indices."""

    def __init__(
        self,
        network: TaggerNetwork,
        corpus: Corpus,
        criterion: nn.Module,
        allowed: Tensor | None,
    ) -> None:
        self.network, self.corpus = network, corpus
        self.criterion, self.allowed = criterion, allowed
        self.exact: list[Tensor] = []

    def __call__(self, sentences: Tensor) -> Tensor:
        encoder = self.network.encoder
        if encoder and encoder.context and torch.distributed.is_initialized():
            raise ValueError(
                "context: expected one device, whose batches have whole stretches of a"
                f" document, got {torch.distributed.get_world_size()}"
            )
        batch = self.corpus.batch(sentences)
        emissions = self.network(batch)
        tags, mask = (x.to(emissions.device) for x in (batch.tags, batch.mask))
        head = self.network.head
        if self.allowed is None:
            loss: Tensor = head(emissions, tags, mask, loss=self.criterion)
        else:
            labels = self.allowed.to(tags.device)[tags.clamp(min=0)]
            loss = partial_labels.partial_label_loss(
                head, emissions, labels, mask, self.criterion
            )
        if is_main_process() and getattr(self.criterion, "exact", None) is not None:
            self.exact.append(self.criterion.exact)  # type: ignore[arg-type]
        return loss

    def fraction_exact(self) -> float | None:
        """Return the fraction of exact top-k smoothings since the last call."""
        exact, self.exact = self.exact, []
        return float(torch.cat(exact).double().mean()) if exact else None


class _DevScores:
    """Span F1 of the network on development sentences."""

    def __init__(
        self,
        network: TaggerNetwork,
        labels: Sequence[str],
        vocabulary: Vocabulary,
        dev_sentences: Sequence[TaggedSentence],
        objective: _TaggingLoss,
    ) -> None:
        self.network, self.labels, self.objective = network, labels, objective
        gold = [[str(tag) for tag in sentence.tags or ()] for sentence in dev_sentences]
        scheme = detect(gold)
        self.gold = [
            convert(tags, source=scheme, target="BIOES", strict=False) for tags in gold
        ]
        unseen_labels.warn("dev", (tag for row in self.gold for tag in row), labels)
        words = [sentence.words for sentence in dev_sentences]
        documents = [sentence.document for sentence in dev_sentences]
        self.corpus = Corpus(vocabulary, words, None, network.encoder, documents)

    def __call__(self) -> dict[str, Any]:
        predicted: list[list[str]] = [[] for _ in range(len(self.corpus))]
        with torch.no_grad():
            for sentences in self.corpus.batches_by_length(64):
                batch = self.corpus.batch(sentences)
                emissions = self.network(batch)
                mask = batch.mask.to(emissions.device)
                tags = self.network.head.decode(emissions, mask).tags.tolist()
                for sentence, row in zip(sentences.tolist(), tags, strict=True):
                    predicted[sentence] = [self.labels[t] for t in row if t >= 0]
        exact = self.objective.fraction_exact()
        return {"exact": exact, "dev_f1": span_f1(self.gold, predicted)[2]}


def _build_optimizer(network: TaggerNetwork, options: Options) -> Jointly:
    """Build AdamW for dense parameters, and Adagrad for sparse window features."""
    groups: list[dict[str, Any]] = [
        {"params": network.dense_parameters(), "lr": options.rate}
    ]
    if encoder_parameters := network.encoder_parameters():
        groups.append({"params": encoder_parameters, "lr": options.encoder_rate})
    dense = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0, fused=True)
    window = {"params": [network.emissions.window.weight], "clip": False}
    sparse = torch.optim.Adagrad([window], WINDOW_RATE, initial_accumulator_value=1e-3)
    return Jointly(dense, sparse)


def _load_examples(
    data: Any, dev: Any, tokenizer: str = TREEBANK
) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """Return training and development sentences; see ``split_dev`` without ``dev``.

    Development sentences have no unknown tags.
    """
    examples = _require_sentences("data", data, tokenizer)
    if dev is not None:
        dev_sentences = _require_sentences("dev", dev, tokenizer)
        if any(None in (sentence.tags or [None]) for sentence in dev_sentences):
            raise ValueError("dev: expected a tag for each word, got unknown ones")
        return examples, dev_sentences
    train_sentences, dev_sentences = split_dev(
        examples, lambda sentence: None not in (sentence.tags or [None])
    )
    if not dev_sentences:
        raise ValueError(
            "dev: expected sentences with known tags to choose the best epoch, got none"
        )
    return train_sentences, dev_sentences


def _require_sentences(name: str, data: Any, tokenizer: str) -> list[TaggedSentence]:
    if isinstance(data, str | PathLike):
        data = read_tagged(Path(data), tokenizer=tokenizer)
    sentences = [
        sentence
        if sentence.tags is not None
        else replace(sentence, tags=[None] * len(sentence.words))
        for sentence in as_tagged(data, name=name)
        if sentence.words
    ]
    if not sentences:
        raise ValueError(f"{name}: expected at least one sentence, got none")
    return sentences


def _describe_content(content: Any) -> str:
    return f"{len(content)} with checksum {zlib.crc32(repr(content).encode()):08x}"


def _to_target_labels(tags: Tags, scheme: str) -> list[str]:
    """Return BIOES labels; with unknown tags, allowed labels separated by tabs."""
    if None in tags:
        return partial_labels.allowed_labels(tags, scheme)
    return convert(list(map(str, tags)), source=scheme, target="BIOES", strict=False)


def _list_labels(targets: list[list[str]], scheme: str) -> list[str]:
    """Return ``O`` and BIOES labels of each type; for plain tags, the tags seen."""
    seen = {label for row in targets for tag in row for label in tag.split("\t")} - {""}
    if scheme == PLAIN:
        return sorted(seen)
    kinds = sorted({split_tag(tag)[1] for tag in seen - {"O"}})
    if not kinds:
        raise ValueError(
            "tags: expected named entities in the training sentences, got only the tag"
            " O. Is the tag the last column of the file?"
        )
    return ["O", *(join_tag(prefix, kind) for kind in kinds for prefix in "BIES")]
