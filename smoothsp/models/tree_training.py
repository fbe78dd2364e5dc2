"""Training that dependency and constituency parsers have in common."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothsp.data.text_files import print_stderr
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus
from smoothsp.models.training_setup import split_dev
from smoothsp.models.tree_options import TreeOptions
from smoothsp.run_folder import MODEL, is_main_process
from smoothsp.training import fit, one_thread

__all__ = ["Examples", "load_encoder", "train_parser"]

RATE, BETAS = 2e-3, (0.9, 0.95)
# Steps in which rates rise, at most.
WARM_UP = 100
# Few sentences are cut into small batches, for more steps.
FEW, SMALL_BATCH = 1000, 8


@dataclass(frozen=True)
class Examples:
    """Examples to train on, and held-out ones that choose the best epoch."""

    train: list[Any]
    dev: list[Any]
    about: str
    """Their number and checksum, which tell them from others."""

    @classmethod
    def of(
        cls, read: Callable[..., list[Any]], data: Any, dev: Any, longest: int
    ) -> "Examples":
        """Read them; sentences with more words than ``longest`` are not trained on."""
        every = read(data)
        every, held_out = (
            (every, read(dev, name="dev")) if dev is not None else split_dev(every)
        )
        short = [one for one in every if len(one.words) <= longest]
        if not short:
            raise ValueError(
                f"data: expected sentences of at most {longest} words to train on, got"
                f" {len(every)} that are longer"
            )
        if len(short) < len(every):
            print_stderr(
                f"left out {len(every) - len(short)} sentences of over {longest} words"
            )
        checksum = zlib.crc32(repr((every, held_out)).encode())
        size = len(every) + len(held_out)
        return cls(short, held_out, f"{size} sentences with checksum {checksum:08x}")


def load_encoder(encoder: Encoder | str | None) -> Encoder | None:
    """Return the encoder, read from its folder if need be."""
    if encoder is None or isinstance(encoder, Encoder):
        return encoder
    return Encoder.pretrained(encoder, mixed=True)


def train_parser(
    parser: Any,
    loss: Callable[[Tensor], Tensor],
    corpus: Corpus,
    batch: int,
    evaluate: Callable[[], dict[str, float]],
    monitor: str,
    settings: Mapping[str, Any],
    options: TreeOptions,
    out: Path | None,
    resume: bool,
    trainer: Mapping[str, Any] | None,
) -> None:
    """Train the network of a parser, and write to its ``about`` how.

    Parameters
    ----------
    parser
        Parser with ``network``, ``about`` and ``save``.
    loss, evaluate, monitor, resume, trainer
        As of ``smoothsp.training.fit``.
    corpus, batch
        Sentences to train on, and how many a step takes.
    settings
        Values that determine the numbers, besides the options.
    options
        Options of the training.
    out
        Folder of the run, if any.
    """
    network, encoder = parser.network, parser.network.encoder
    slow = list(encoder.model.parameters()) if encoder else []
    known = {id(weight) for weight in slow}
    fresh = [weight for weight in network.parameters() if id(weight) not in known]
    groups: list[dict[str, Any]] = [{"params": fresh, "lr": RATE}]
    if slow:
        groups.append({"params": slow, "lr": options.encoder_rate})
    settings = {"model": type(parser).__name__, **asdict(options), **settings}
    batch = batch if len(corpus) > FEW else SMALL_BATCH

    def save(about: Mapping[str, Any]) -> None:
        parser.about = {"settings": settings, **about}
        if out is not None and is_main_process():
            parser.save(out / MODEL)

    with one_thread(encoder is None):
        fitted = fit(
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
            out=out,
            resume=resume,
            trainer=trainer,
        )
    interrupted = {"interrupted": True} if fitted.interrupted else {}
    save({"history": fitted.history} | interrupted)
