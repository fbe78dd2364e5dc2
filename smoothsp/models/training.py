"""Training of a tagger: one round after another, of which the best is kept."""

import copy
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from smoothsp import losses
from smoothsp.divergence import diagnosed, require_sound
from smoothsp.metrics import span_f1
from smoothsp.models import partial
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.network import Sizes, TaggerNetwork
from smoothsp.models.resuming import restore
from smoothsp.schemes import PLAIN, convert, detect, join, split

__all__ = [
    "MU",
    "TOP_K",
    "NetworkOptions",
    "Options",
    "Training",
    "TrainingOptions",
    "check",
    "running_average",
    "seed_all",
    "tell",
]

Loss = Literal["hinge", "hinge-l2", "hinge-entropy", "crf", "perceptron", "softmax"]
Structure = Literal["chain", "semi-markov"]
Tags = Sequence[str | None]
MU = {"hinge-l2": 1.0, "hinge-entropy": 1.0}
"""Strength of the smoothing of each loss where ``mu`` is not given."""
TOP_K = 5
"""Outputs that l2 smoothing spreads over where ``top_k`` is not given."""
WORD_SIZE, ROUNDS, LEAST_STEPS = 100, 8, 1200
WINDOW_RATE = 2e-2
# Of the steps of an encoder, how many its rate rises.
WARM_UP = 0.1
LONGEST_GRADIENT = 5.0
AVERAGE_EVERY, AVERAGE_DECAY = 8, 0.96
# Sub-words of neighbouring sentences that an encoder reads together: with more of them
# a step takes longer.
CONTEXT = 128
# One sentence in so many is held out if no others choose the best round.
HELD_OUT = 10


class Example(NamedTuple):
    """A sentence, its tags and the number of its document."""

    words: list[str]
    tags: list[str | None]
    document: int


@dataclass(frozen=True)
class NetworkOptions:
    """Architecture and features."""

    structure: Structure = "chain"
    """Structure of the output: labels of words with their neighbours, or of segments no
    longer than the longest in training."""
    word_size: int | None = None
    """Columns of word vectors; 100 if not given. Not with vectors to start from."""
    hidden: int = 128
    """Units of the LSTM in each direction."""
    dropout: float = 0.5
    """Dropout rate."""
    context: bool = False
    """Read neighbouring sentences of a document together; needs an encoder."""


@dataclass(frozen=True)
class TrainingOptions:
    """Training and evaluation."""

    loss: Loss = "hinge-l2"
    """Training loss; -l2 and -entropy smooth the hinge. softmax is the baseline with
    independent labels."""
    mu: float | None = None
    """Strength of the smoothing; 1 if not given. Only with hinge-l2, hinge-entropy."""
    top_k: int | None = None
    """Outputs that l2 smoothing spreads over; 5 if not given. Only with hinge-l2."""
    epochs: int | None = None
    """Passes over the training sentences. Without epochs and steps: at least 8 passes
    and 1,200 steps."""
    steps: int | None = None
    """Training steps in place of epochs. The development F1 is computed eight times,
    after equal numbers of steps."""
    patience: int | None = None
    """Stop after this many development F1 in a row that are not better."""
    seed: int = 1
    """Seed of the initial weights, the order of sentences and the dropout."""
    rate: float = 2e-3
    """Highest learning rate of the network."""
    encoder_rate: float = 5e-5
    """Highest learning rate of the encoder."""
    batch: int = 32
    """Sentences per step."""

    def rounds(self, batches: int) -> tuple[int, int]:
        """Number of rounds, and the steps of each."""
        if self.epochs is not None:
            return self.epochs, batches
        least = self.steps or LEAST_STEPS
        steps = least if self.steps else max(least, ROUNDS * batches)
        rounds = min(ROUNDS, steps)
        return rounds, math.ceil(steps / rounds)


@dataclass(frozen=True)
class Options(TrainingOptions, NetworkOptions):
    """Keywords of ``Tagger.train``."""


def check(options: Any) -> None:
    """Raise ValueError for options that do not fit together, or are out of range."""
    for name, allowed in (("loss", get_args(Loss)), ("structure", get_args(Structure))):
        value = getattr(options, name)
        if value not in allowed:
            raise ValueError(
                f"{name}: expected one of {', '.join(allowed)}, got {value!r}"
            )
    loss = options.loss
    if options.structure != "chain" and loss == "softmax":
        raise ValueError(
            f"structure: expected chain with loss softmax, got {options.structure}"
        )
    if options.mu is not None and loss not in MU:
        raise ValueError(
            f"mu: expected none with loss {loss}, which is not smoothed, got"
            f" {options.mu}. Choose loss {' or '.join(MU)}"
        )
    if options.top_k is not None and loss != "hinge-l2":
        raise ValueError(
            f"top_k: expected none with loss {loss}, got {options.top_k}. Choose loss"
            " hinge-l2"
        )
    for name in ("mu", "rate", "encoder_rate"):
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a positive number, got {value}")
    if not 0 <= options.dropout < 1:
        raise ValueError(
            f"dropout: expected at least 0, below 1, got {options.dropout}"
        )
    names = ("top_k", "epochs", "steps", "patience", "batch", "hidden", "word_size")
    for name, least in (*((name, 1) for name in names), ("seed", 0)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if options.steps is not None and options.epochs is not None:
        raise ValueError("steps: expected steps or epochs, got both")


def criterion_of(options: TrainingOptions, some_unknown: bool = False) -> nn.Module:
    """The loss; where tags are unknown, to the best of what fits, or to all of it."""
    mu = options.mu or MU.get(options.loss, 0.0)
    hinge = losses.LatentHinge if some_unknown else losses.StructuralHinge
    if options.loss == "hinge":
        return hinge()
    if options.loss == "hinge-l2":
        return hinge(losses.L2(mu, options.top_k or TOP_K))
    if options.loss == "hinge-entropy":
        return hinge(losses.Entropy(mu))
    if options.loss == "perceptron":
        return hinge(cost=None)
    # With a chain that scores no neighbours it is the softmax, position by position.
    return losses.MarginalLikelihood() if some_unknown else losses.CRFLoss()


class Training:
    """A network, its data, and all that training changes.

    Parameters
    ----------
    sentences, tags, encoder, dev, vectors
        As of ``Tagger.train``.
    options
        What else it takes.

    Examples
    --------
    >>> from smoothsp.models.training import Options, Training
    >>> sentences, tags = [["Ada", "met", "Bob"]] * 4, [["B-PER", "O", "B-PER"]] * 4
    >>> run = Training(sentences, tags, options=Options(loss="crf", epochs=2))
    >>> run.labels, run.rounds
    (['O', 'B-PER', 'I-PER', 'E-PER', 'S-PER'], (2, 1))
    """

    def __init__(
        self,
        sentences: Iterable[Sequence[str]],
        tags: Iterable[Tags],
        encoder: Encoder | str | None = None,
        *,
        dev: tuple[Iterable[Sequence[str]], Iterable[Tags]] | None = None,
        vectors: Mapping[str, NDArray[Any]] | None = None,
        options: Options | None = None,
    ) -> None:
        self.options = options = options or Options()
        check(options)
        vectors = vectors or {}
        if options.word_size is not None and vectors:
            raise ValueError(
                "word_size: expected None with vectors, which determine it, got"
                f" {options.word_size}"
            )
        if options.context and encoder is None:
            raise ValueError(
                "context: expected an encoder beside it, which reads the context, got"
                " none"
            )
        examples = _examples("tags", sentences, tags)
        if dev is None:
            examples, held_out = _parted(examples)
        else:
            held_out = _examples("dev", *dev)
        words = [one.words for one in examples]
        self.scheme = detect(one.tags for one in examples)
        targets = [_targets(one.tags, self.scheme) for one in examples]
        self.labels = _labels(targets, self.scheme)
        gold = [[tag or "O" for tag in one.tags] for one in held_out]
        written = detect(gold)
        self.gold = [
            convert(tags, source=written, target="BIOES", strict=False) for tags in gold
        ]
        seed_all(options.seed, 0)
        self.vocabulary = Vocabulary.of(words, sorted(vectors))
        size = len(next(iter(vectors.values()))) if vectors else None
        sizes = Sizes(
            size or options.word_size or WORD_SIZE,
            options.hidden,
            options.dropout,
            options.loss == "softmax",
            partial.longest_segment(targets)
            if options.structure == "semi-markov"
            else None,
        )
        if isinstance(encoder, str):
            context = CONTEXT if options.context else 0
            encoder = Encoder.pretrained(encoder, mixed=True, context=context)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = TaggerNetwork(self.vocabulary, self.labels, sizes, encoder)
        self.model = self.model.to(device)
        self.model.emissions.set_vectors(self.vocabulary, vectors)
        numbers, self.allowed = partial.numbered(self.labels, targets)
        documents = [one.document for one in examples]
        self.corpus = Corpus(self.vocabulary, words, numbers, encoder, documents)
        documents = [one.document for one in held_out]
        words = [one.words for one in held_out]
        self.dev = Corpus(self.vocabulary, words, None, encoder, documents)
        self.criterion = criterion_of(options, self.allowed is not None)
        # What is evaluated and saved is a running average of the weights: steadier
        # than the weights themselves, and what makes the perceptron usable.
        self.average = AveragedModel(self.model, multi_avg_fn=running_average)
        # A move, even to where it is, lays the copied LSTM out in one piece for cuDNN.
        self.averaged.emissions.to(device)
        groups: list[dict[str, Any]] = [
            {"params": self.model.dense_parameters(), "lr": options.rate}
        ]
        if own := self.model.encoder_parameters():
            groups.append({"params": own, "lr": options.encoder_rate})
        self.highest = [group["lr"] for group in groups]
        self.dense = torch.optim.AdamW(
            groups, betas=(0.9, 0.99), weight_decay=0, fused=True
        )
        self.window = torch.optim.Adagrad(
            [self.model.emissions.window.weight],
            WINDOW_RATE,
            initial_accumulator_value=1e-3,
        )
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Tensor] = {}

    @property
    def rounds(self) -> tuple[int, int]:
        """Maximum number of rounds, and the steps of each."""
        return self.options.rounds(-(-len(self.corpus) // self.options.batch))

    @property
    def averaged(self) -> TaggerNetwork:
        """The network with the running average of the weights."""
        found: Any = self.average.module
        return found  # type: ignore[no-any-return]

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on; ``load`` takes it."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "dense": self.dense.state_dict(),
            "window": self.window.state_dict(),
            "history": self.history,
            "best": self.best,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        names = ("model", "average", "dense", "window")
        parts = {name: getattr(self, name) for name in names}
        needed = ("epoch", "loss", "dev_f1")
        self.history, self.best = restore(state, parts, self.averaged, needed)

    def best_network(self) -> TaggerNetwork:
        """Return a copy of the network of the best round."""
        found = copy.deepcopy(self.averaged)
        found.load_state_dict(self.best)
        return found

    def epoch(self) -> dict[str, Any]:
        """One round: its mean loss, how often top-k was exact, and the F1 after it."""
        number, (rounds, steps) = len(self.history) + 1, self.rounds
        # Chance depends on seed and epoch only, so that a resumed run, which begins
        # with a whole epoch, needs no saved generator.
        seed_all(self.options.seed, number)
        self.model.train()
        batches: list[Tensor] = []
        while len(batches) < steps:
            batches += self.corpus.shuffled(self.options.batch)
        batches = batches[:steps]
        step, whole = (number - 1) * steps, rounds * steps
        warm = steps if self.model.encoder is None else max(1, int(WARM_UP * whole))
        total, count = 0.0, 0
        exact: list[Any] = []
        bar = tqdm(batches, f"epoch {number}/{rounds}", leave=False, disable=None)
        for sentences in bar:
            # Up at first; linearly down to zero.
            self._set_rate(min(1, (step + 1) / warm) * (1 - step / whole))
            rate = self.dense.param_groups[0]["lr"]
            with diagnosed(self.model.parameters(), rate):
                loss = self._step(sentences)
            require_sound(loss, rate)
            step += 1
            if step % AVERAGE_EVERY == 0 or step == whole:
                self.average.update_parameters(self.model)
            total += loss * len(sentences)
            count += len(sentences)
            if getattr(self.criterion, "exact", None) is not None:
                exact.append(self.criterion.exact)
        first = self.history[0]["loss"] if self.history else None
        require_sound(total / count, self.options.rate, first)
        fraction = float(torch.cat(exact).double().mean()) if exact else None
        row = {"epoch": number, "loss": total / count, "exact": fraction}
        return row | {"dev_f1": span_f1(self.gold, self.decode())[2]}

    def decode(self) -> list[list[str]]:
        """Return the best labels of each development sentence."""
        model = self.averaged.eval()
        found: list[list[str]] = [[] for _ in range(len(self.dev))]
        with torch.no_grad():
            for sentences in self.dev.in_order_of_length(64):
                batch = self.dev.batch(sentences)
                emissions = model(batch)
                mask = batch.mask.to(emissions.device)
                tags = model.head.decode(emissions, mask).tags
                for sentence, row in zip(
                    sentences.tolist(), tags.tolist(), strict=True
                ):
                    found[sentence] = [self.labels[t] for t in row if t >= 0]
        return found

    def out_of_patience(self) -> bool:
        """Whether the last rounds, so many as patience says, were no better."""
        scores = [row["dev_f1"] for row in self.history]
        patience = self.options.patience
        if patience is None or len(scores) <= patience:
            return False
        return bool(max(scores[-patience:]) <= max(scores[:-patience]))

    def keep_if_best(self, row: dict[str, Any]) -> bool:
        """Append a row of the history; remember the weights if its F1 is a record."""
        best = row["dev_f1"] > max((r["dev_f1"] for r in self.history), default=-1.0)
        if best:
            weights = self.averaged.state_dict()
            self.best = {name: value.clone() for name, value in weights.items()}
        self.history.append(row)
        return bool(best)

    def _step(self, sentences: Tensor) -> float:
        batch = self.corpus.batch(sentences)
        emissions = self.model(batch)
        tags, mask = (x.to(emissions.device) for x in (batch.tags, batch.mask))
        head = self.model.head
        if self.allowed is None:
            loss = head(emissions, tags, mask, loss=self.criterion)
        else:
            labels = self.allowed.to(tags.device)[tags.clamp(min=0)]
            loss = partial.loss_of(head, emissions, labels, mask, self.criterion)
        self.dense.zero_grad()
        self.window.zero_grad()
        loss.backward()
        for group in self.dense.param_groups:
            nn.utils.clip_grad_norm_(group["params"], LONGEST_GRADIENT)
        self.dense.step()
        # Said aloud, or PyTorch warns that it does not check its own optimizer.
        with torch.sparse.check_sparse_tensor_invariants(False):  # type: ignore[no-untyped-call]
            self.window.step()
        return float(loss.item())

    def _set_rate(self, factor: float) -> None:
        for group, highest in zip(self.dense.param_groups, self.highest, strict=True):
            group["lr"] = highest * factor
        self.window.param_groups[0]["lr"] = WINDOW_RATE * factor


def tell(run: Training) -> None:
    """Write loss, development F1 and seconds of the last epoch on standard error."""
    if run.history:
        row = run.history[-1]
        line = f"epoch {row['epoch']}/{run.rounds[0]}  loss {row['loss']:.4f}"
        line += f"  dev F1 {100 * row['dev_f1']:.2f}  {row['seconds']:.1f} s"
        tqdm.write(line, file=sys.stderr)


def running_average(averages: Any, weights: Any, count: Tensor | int) -> None:
    """Exponential average of weights, for ``AveragedModel``."""
    # Short at first, so that the initial weights are soon forgotten.
    decay = min(AVERAGE_DECAY, (1 + int(count)) / (10 + int(count)))
    average: Any = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    average(averages, weights, count)


def seed_all(seed: int, epoch: int) -> None:
    """Seed torch's generators with both numbers."""
    sequence = np.random.SeedSequence([seed, epoch])
    torch.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


def _examples(
    name: str, sentences: Iterable[Sequence[str]], tags: Iterable[Tags]
) -> list[Example]:
    """Sentences with their tags; empty ones part documents."""
    words, listed = [list(x) for x in sentences], [list(x) for x in tags]
    if len(words) != len(listed):
        raise ValueError(
            f"{name}: expected the tags of {len(words)} sentences, got {len(listed)}"
        )
    for number, (sentence, own) in enumerate(zip(words, listed, strict=True)):
        if len(sentence) != len(own):
            raise ValueError(
                f"{name}: expected {len(sentence)} tags, one for each word, at"
                f" sentence {number}, got {len(own)}"
            )
    documents = accumulate(int(not sentence) for sentence in words)
    every = map(Example, words, listed, documents)
    found = [example for example in every if example.words]
    if not found:
        raise ValueError(f"{name}: expected at least one sentence, got none")
    return found


def _parted(examples: list[Example]) -> tuple[list[Example], list[Example]]:
    """Sentences to train on, and one in ten to choose by; few are used for both.

    Those to choose by have no unknown tags.
    """
    whole = [n for n, one in enumerate(examples) if None not in one.tags]
    if not whole:
        raise ValueError(
            "dev: expected sentences with known tags to choose the best round, got none"
        )
    if len(whole) < 2 * HELD_OUT:
        return examples, [examples[n] for n in whole]
    held = set(whole[::HELD_OUT])
    kept = [one for n, one in enumerate(examples) if n not in held]
    return kept, [examples[n] for n in sorted(held)]


def _targets(tags: Tags, scheme: str) -> list[str]:
    """Labels in BIOES; with unknown tags what each label may be, parted by tabs."""
    if None in tags:
        return partial.possible(tags, scheme)
    return convert(list(map(str, tags)), source=scheme, target="BIOES", strict=False)


def _labels(targets: list[list[str]], scheme: str) -> list[str]:
    """``O``, then every prefix of BIOES with every type; of plain tags, those seen."""
    seen = {one for row in targets for tag in row for one in tag.split("\t")} - {""}
    if scheme == PLAIN:
        return sorted(seen)
    kinds = sorted({split(tag)[1] for tag in seen - {"O"}})
    if not kinds:
        raise ValueError(
            "tags: expected named entities in the training sentences, got only the tag"
            " O. Is the tag the last column of the file?"
        )
    return ["O", *(join(prefix, kind) for kind in kinds for prefix in "BIES")]
