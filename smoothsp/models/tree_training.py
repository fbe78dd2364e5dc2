"""Training loop of dependency and constituency parsers."""

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
# Maximum number of steps in which rates rise.
MAX_WARM_UP_STEPS = 100
# Corpora of at most this size get small batches, for more steps an epoch.
SMALL_CORPUS, SMALL_BATCH = 1000, 8


@dataclass(frozen=True)
class Examples:
    """Training examples, and development examples that select the best epoch."""

    train: list[Any]
    dev: list[Any]
    description: str
    """Number and checksum of all examples."""

    @classmethod
    def load(
        cls, read: Callable[..., list[Any]], data: Any, dev: Any, longest: int
    ) -> "Examples":
        """Load examples; longer sentences than ``longest`` are left out of training."""
        examples = read(data)
        examples, dev_examples = (
            (examples, read(dev, name="dev"))
            if dev is not None
            else split_dev(examples)
        )
        trainable = [example for example in examples if len(example.words) <= longest]
        if not trainable:
            raise ValueError(
                f"data: expected sentences of at most {longest} words to train on, got"
                f" {len(examples)} that are longer"
            )
        if len(trainable) < len(examples):
            print_stderr(
                f"left out {len(examples) - len(trainable)} sentences of over"
                f" {longest} words"
            )
        checksum = zlib.crc32(repr((examples, dev_examples)).encode())
        size = len(examples) + len(dev_examples)
        return cls(
            trainable, dev_examples, f"{size} sentences with checksum {checksum:08x}"
        )


def load_encoder(encoder: Encoder | str | None) -> Encoder | None:
    """Return the encoder, loaded by name or folder if needed."""
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
    """Train the network of a parser, and store settings in its ``about``.

    Parameters
    ----------
    parser
        Parser with ``network``, ``about`` and ``save``.
    loss, evaluate, monitor, resume, trainer
        As for ``smoothsp.training.fit``.
    corpus, batch
        Training sentences, and the number of a step.
    settings
        Values that determine the result, besides the options.
    options
        Training options.
    out
        Folder of the run, if any.
    """
    network, encoder = parser.network, parser.network.encoder
    encoder_weights = list(encoder.model.parameters()) if encoder else []
    encoder_ids = {id(weight) for weight in encoder_weights}
    other_weights = [
        weight for weight in network.parameters() if id(weight) not in encoder_ids
    ]
    groups: list[dict[str, Any]] = [{"params": other_weights, "lr": RATE}]
    if encoder_weights:
        groups.append({"params": encoder_weights, "lr": options.encoder_rate})
    settings = {"model": type(parser).__name__, **asdict(options), **settings}
    batch = batch if len(corpus) > SMALL_CORPUS else SMALL_BATCH

    def save(about: Mapping[str, Any]) -> None:
        parser.about = {"settings": settings, **about}
        if out is not None and is_main_process():
            parser.save(out / MODEL)

    with one_thread(encoder is None):
        fitted = fit(
            network,
            loss,
            lambda: corpus.shuffled_batches(batch),
            evaluate,
            monitor=monitor,
            optimizer=torch.optim.Adam(groups, betas=BETAS, fused=True),
            epochs=options.epochs,
            seed=options.seed,
            warm_up=min(MAX_WARM_UP_STEPS, -(-len(corpus) // batch)),
            save=save,
            settings=settings,
            out=out,
            resume=resume,
            trainer=trainer,
        )
    interrupted = {"interrupted": True} if fitted.interrupted else {}
    save({"history": fitted.history} | interrupted)
