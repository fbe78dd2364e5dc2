"""Training that dependency and constituency parsers have in common."""

import difflib
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor

from smoothsp.data.text_files import say
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus
from smoothsp.models.words import TREEBANK

__all__ = ["Examples", "Run", "TreeOptions", "name_of", "options_of", "pretrained"]

Tokenizer = Literal["treebank", "blanks"]
Options = TypeVar("Options", bound="TreeOptions")
RATE, BETAS = 2e-3, (0.9, 0.95)
# Steps in which rates rise, at most.
WARM_UP = 100
# One sentence in so many is held out if there are no others.
HELD_OUT = 10


@dataclass(frozen=True)
class TreeOptions:
    """Keywords that the training of each kind of parser takes."""

    tokenizer: Tokenizer = TREEBANK
    """How the model splits texts into words: as the Penn Treebank does, by NLTK, or at
    white space."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 0
    """Seed of the initial weights, the order of sentences and the dropout."""
    encoder_rate: float = 1e-4
    """Highest learning rate of the encoder."""


@dataclass(frozen=True)
class Examples:
    """Examples to train on, and held-out ones that choose the best epoch."""

    train: list[Any]
    dev: list[Any]
    about: str
    """Their number and checksum, which tell them from others."""

    @classmethod
    def of(
        cls, read: Callable[[Any], list[Any]], data: Any, dev: Any, longest: int
    ) -> "Examples":
        """Read them; sentences with more words than ``longest`` are not trained on."""
        every = read(data)
        if dev is not None:
            held_out = read(dev)
        elif len(every) < 2 * HELD_OUT:
            held_out = every
        else:
            held_out = every[::HELD_OUT]
            every = [x for n, x in enumerate(every) if n % HELD_OUT]
        short = [x for x in every if len(x.words) <= longest]
        if not short:
            raise ValueError(
                f"data: expected sentences of at most {longest} words to train on, got"
                f" {len(every)} that are longer"
            )
        if len(short) < len(every):
            say(
                f"{len(every) - len(short)} sentences of more than {longest} words are"
                " left out of the training"
            )
        checksum = zlib.crc32(repr((every, held_out)).encode())
        size = len(every) + len(held_out)
        return cls(short, held_out, f"{size} sentences with checksum {checksum:08x}")


def options_of(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Return options of this kind, checked.

    Raises
    ------
    TypeError
        For a name that there is not: names the nearest.
    ValueError
        For a value out of range.
    """
    known = {field.name: field for field in fields(kind)}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {near[0]!r}" if near else ""
            raise TypeError(
                f"options: expected some of {', '.join(known)}, got {name!r}{hint}"
            )
    options = kind(**given)
    hints = get_type_hints(kind)
    for name, value in vars(options).items():
        choices = get_args(hints[name])
        if choices and isinstance(choices[0], str) and value not in choices:
            raise ValueError(
                f"{name}: expected one of {', '.join(choices)}, got {value!r}"
            )
        if hints[name] is int and value < (name != "seed"):
            raise ValueError(
                f"{name}: expected at least {int(name != 'seed')}, got {value}"
            )
        if hints[name] is float and not 0 < value < math.inf:
            raise ValueError(f"{name}: expected a positive number, got {value}")
    return options


def pretrained(encoder: Encoder | str | None) -> Encoder | None:
    """Return the encoder, read from its folder if need be."""
    if encoder is None or isinstance(encoder, Encoder):
        return encoder
    return Encoder.pretrained(encoder, mixed=True)


def name_of(encoder: Encoder | str | None) -> str | None:
    """Return how settings name an encoder."""
    return type(encoder).__name__ if isinstance(encoder, Encoder) else encoder


@dataclass(frozen=True)
class Run:
    """The folder of a training, if it has one, and its trainer."""

    out: Path | None = None
    resume: bool = False
    trainer: Mapping[str, Any] | None = None

    @classmethod
    @contextmanager
    def held(
        cls,
        out: Any,
        resume: bool,
        overwrite: bool,
        trainer: Mapping[str, Any] | None,
    ) -> "Iterator[Run]":
        """Keep other runs out of the folder meanwhile."""
        from smoothsp import run_folder

        if out is None:
            if resume:
                raise ValueError(
                    "resume: expected the folder of a run as out, got none"
                )
            yield cls(trainer=trainer)
            return
        place = Path(out)
        run_folder.require_free(place, resume, overwrite)
        with run_folder.held(place, place / run_folder.MODEL):
            yield cls(place, resume, trainer)

    def train(
        self,
        parser: Any,
        loss: Callable[[Tensor], Tensor],
        corpus: Corpus,
        batch: int,
        evaluate: Callable[[], dict[str, float]],
        monitor: str,
        settings: Mapping[str, Any],
        options: TreeOptions,
    ) -> None:
        """Train the network of a parser, and write to its ``about`` how.

        Parameters
        ----------
        parser
            Parser with ``network``, ``about`` and ``save``.
        loss, evaluate, monitor
            As of ``smoothsp.training.fit``.
        corpus, batch
            Sentences to train on, and how many a step takes.
        settings
            Values that determine the numbers, besides the options.
        options
            Options of the training.
        """
        from smoothsp.run_folder import MODEL, is_main_process
        from smoothsp.training import fit

        network, encoder = parser.network, parser.network.encoder
        slow = list(encoder.model.parameters()) if encoder else []
        known = {id(weight) for weight in slow}
        fresh = [weight for weight in network.parameters() if id(weight) not in known]
        groups: list[dict[str, Any]] = [{"params": fresh, "lr": RATE}]
        if slow:
            groups.append({"params": slow, "lr": options.encoder_rate})
        settings = asdict(options) | settings

        def save(about: Mapping[str, Any]) -> None:
            parser.about = {"settings": settings, **about}
            if self.out is not None and is_main_process():
                parser.save(self.out / MODEL)

        found = fit(
            network,
            loss,
            lambda: corpus.shuffled(batch),
            evaluate,
            monitor=monitor,
            optimizer=torch.optim.Adam(groups, betas=BETAS, fused=True),
            epochs=options.epochs,
            seed=options.seed,
            warm_up=min(WARM_UP, -(-len(corpus) // batch)),
            save=save,
            settings=settings,
            out=self.out,
            resume=self.resume,
            trainer=self.trainer,
        )
        interrupted = {"interrupted": True} if found.interrupted else {}
        save({"history": found.history} | interrupted)
