"""Training of a tagger: its network, its data and its scores, for ``fit``."""

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
# Of the steps of an encoder, how many its rate rises.
WARM_UP = 0.1
# Sub-words of neighbouring sentences that an encoder reads together: with more of them
# a step takes longer.
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
    """Train a tagger: see ``Tagger.train``."""
    examples, held_out = _examples(data, dev, tokenizer)
    words = [one.words for one in examples]
    scheme = detect(one.tags or () for one in examples)
    targets = [_targets(one.tags or (), scheme) for one in examples]
    labels = _labels(targets, scheme)
    given = {
        "data": _checksum([(one.words, one.tags) for one in examples]),
        "dev": _checksum([(one.words, one.tags) for one in held_out]),
        "vectors": _checksum([(word, x.tobytes()) for word, x in vectors.items()]),
        "encoder": encoder if encoder is None else str(encoder),
    }
    # the name of an encoder's class says nothing of its weights
    given["encoder"] = "given" if isinstance(encoder, Encoder) else given["encoder"]
    settings = {"model": "Tagger", **asdict(options), **given}
    settings["mu"] = options.mu or MU.get(options.loss)
    if options.loss == "hinge-l2":
        settings["top_k"] = options.top_k or TOP_K

    seed_all(options.seed, 0)
    vocabulary = Vocabulary.of(words, sorted(vectors))
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
    documents = [one.document for one in examples]
    corpus = Corpus(vocabulary, words, numbers, encoder, documents)
    objective = _Objective(network, corpus, make_criterion(options, allowed), allowed)
    scores = _Scores(network, labels, vocabulary, held_out, objective)

    rounds, steps = options.rounds(-(-len(corpus) // options.batch))
    whole = rounds * steps
    warm_up = steps if encoder is None else max(1, int(WARM_UP * whole))

    def batches() -> list[Tensor]:
        found: list[Tensor] = []
        while len(found) < steps:
            found += corpus.shuffled(options.batch)
        return found[:steps]

    def tagger(about: Mapping[str, Any]) -> Tagger:
        best = max(row["dev_f1"] for row in about["history"])
        said = {"settings": settings, "dev_f1": best, **about}
        return Tagger(network, vocabulary, labels, said, scheme, tokenizer)

    with one_thread(encoder is None):
        fitted = fit(
            network,
            objective,
            batches,
            scores,
            monitor="dev_f1",
            optimizer=_optimizer(network, options),
            epochs=rounds,
            seed=options.seed,
            warm_up=warm_up,
            patience=options.patience,
            save=None if out is None else lambda x: tagger(x).save(out / MODEL),
            settings=settings,
            out=out,
            resume=resume,
            trainer=trainer,
        )
    found = tagger({"history": fitted.history})
    if out is not None and is_main_process():
        found.save(out / MODEL)
    if fitted.interrupted:
        found.about["interrupted"] = True
    return found


def make_criterion(options: Options, allowed: Tensor | None = None) -> nn.Module:
    """Return the loss; with unknown tags, to the best or to all of the allowed ones."""
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
    # With a chain that scores no neighbours it is the softmax, position by position.
    return losses.CRFLoss() if allowed is None else losses.MarginalLikelihood()


class _Objective:
    """Mean loss of the sentences of these numbers."""

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
        """Return how often top-k smoothing was exact since the last call."""
        found, self.exact = self.exact, []
        return float(torch.cat(found).double().mean()) if found else None


class _Scores:
    """Span F1 of the network on held-out sentences."""

    def __init__(
        self,
        network: TaggerNetwork,
        labels: Sequence[str],
        vocabulary: Vocabulary,
        held_out: Sequence[TaggedSentence],
        objective: _Objective,
    ) -> None:
        self.network, self.labels, self.objective = network, labels, objective
        gold = [[str(tag) for tag in one.tags or ()] for one in held_out]
        scheme = detect(gold)
        self.gold = [
            convert(tags, source=scheme, target="BIOES", strict=False) for tags in gold
        ]
        unseen_labels.warn("dev", (tag for row in self.gold for tag in row), labels)
        words = [one.words for one in held_out]
        documents = [one.document for one in held_out]
        self.corpus = Corpus(vocabulary, words, None, network.encoder, documents)

    def __call__(self) -> dict[str, Any]:
        found: list[list[str]] = [[] for _ in range(len(self.corpus))]
        with torch.no_grad():
            for sentences in self.corpus.in_order_of_length(64):
                batch = self.corpus.batch(sentences)
                emissions = self.network(batch)
                mask = batch.mask.to(emissions.device)
                tags = self.network.head.decode(emissions, mask).tags.tolist()
                for sentence, row in zip(sentences.tolist(), tags, strict=True):
                    found[sentence] = [self.labels[t] for t in row if t >= 0]
        exact = self.objective.fraction_exact()
        return {"exact": exact, "dev_f1": span_f1(self.gold, found)[2]}


def _optimizer(network: TaggerNetwork, options: Options) -> Jointly:
    """AdamW for all but the sparse table of window features, Adagrad for that."""
    groups: list[dict[str, Any]] = [
        {"params": network.dense_parameters(), "lr": options.rate}
    ]
    if own := network.encoder_parameters():
        groups.append({"params": own, "lr": options.encoder_rate})
    dense = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=0, fused=True)
    window = {"params": [network.emissions.window.weight], "clip": False}
    sparse = torch.optim.Adagrad([window], WINDOW_RATE, initial_accumulator_value=1e-3)
    return Jointly(dense, sparse)


def _examples(
    data: Any, dev: Any, tokenizer: str = TREEBANK
) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """Sentences to train on and to choose by; without dev, one in ten is held out.

    Few sentences are used for both. Those to choose by have no unknown tags.
    """
    examples = _filled("data", data, tokenizer)
    if dev is not None:
        held_out = _filled("dev", dev, tokenizer)
        if any(None in (one.tags or [None]) for one in held_out):
            raise ValueError("dev: expected a tag for each word, got unknown ones")
        return examples, held_out
    kept, held_out = split_dev(examples, lambda one: None not in (one.tags or [None]))
    if not held_out:
        raise ValueError(
            "dev: expected sentences with known tags to choose the best epoch, got none"
        )
    return kept, held_out


def _filled(name: str, data: Any, tokenizer: str) -> list[TaggedSentence]:
    if isinstance(data, str | PathLike):
        data = read_tagged(Path(data), tokenizer=tokenizer)
    found = [
        one if one.tags is not None else replace(one, tags=[None] * len(one.words))
        for one in as_tagged(data, name=name)
        if one.words
    ]
    if not found:
        raise ValueError(f"{name}: expected at least one sentence, got none")
    return found


def _checksum(content: Any) -> str:
    return f"{len(content)} with checksum {zlib.crc32(repr(content).encode()):08x}"


def _targets(tags: Tags, scheme: str) -> list[str]:
    """Labels in BIOES; with unknown tags what each label may be, parted by tabs."""
    if None in tags:
        return partial_labels.allowed_labels(tags, scheme)
    return convert(list(map(str, tags)), source=scheme, target="BIOES", strict=False)


def _labels(targets: list[list[str]], scheme: str) -> list[str]:
    """``O``, then every prefix of BIOES with every type; of plain tags, those seen."""
    seen = {one for row in targets for tag in row for one in tag.split("\t")} - {""}
    if scheme == PLAIN:
        return sorted(seen)
    kinds = sorted({split_tag(tag)[1] for tag in seen - {"O"}})
    if not kinds:
        raise ValueError(
            "tags: expected named entities in the training sentences, got only the tag"
            " O. Is the tag the last column of the file?"
        )
    return ["O", *(join_tag(prefix, kind) for kind in kinds for prefix in "BIES")]
