"""What the recipes read, draw and train, for the benchmarks too."""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2] / "recipes"))

from corpora import column_files, conll, toy_corpus, unseen_labels
from multiclass import sets as multiclass_sets

__all__ = [
    "column_files",
    "conll",
    "multiclass_sets",
    "toy_corpus",
    "unseen_labels",
]
SENTENCES = 3000


def tagger_batches(
    data: str | None,
) -> tuple[torch.nn.Module, list[torch.optim.Optimizer], Iterator[tuple[Any, ...]]]:
    """The network and the optimizers of ``conll_ner.py``, and batches without end.

    A batch is what the network takes, labels and mask.
    """
    from conll_ner import load_corpus
    from ner.settings import Config
    from smoothsp.models.training import Training

    splits = load_corpus(Config(data=data))
    kept, dev = splits.train[:SENTENCES], splits.dev[:1]
    run = Training(
        [s.words for s in kept],
        [s.tags for s in kept],
        dev=([s.words for s in dev], [s.tags for s in dev]),
    )
    network, corpus = run.model, run.corpus
    order = torch.randperm(len(kept)).split(run.options.batch)
    batches = (corpus.batch(part) for part in itertools.cycle(order))
    triples = ((b, b.tags.clamp(min=0), b.mask) for b in batches)
    return network.train(), [run.dense, run.window], triples


def lightning_data(data: str | None, seed: int, sentences: int) -> Any:
    """The data module of ``lightning_ner.py``, of so many sentences and 400 others."""
    import lightning_ner

    corpus = lightning_ner.Data(data, seed)
    train, dev = corpus.parts["train"][:sentences], corpus.parts["dev"][:400]
    corpus.parts = {"train": train, "dev": dev}
    corpus.vocabulary = lightning_ner.Vocabulary.of([s.words for s in train], [])
    return corpus


def lightning_tagger(corpus: Any, seed: int) -> Any:
    """Its network, as a run with this seed starts."""
    import lightning_ner

    torch.manual_seed(seed)
    words = asdict(corpus.vocabulary)
    return lightning_ner.Tagger(words, corpus.labels, seed=seed)


def outer_iterations(tagger: Any, loader: Any, rate: float) -> Any:
    """Its optimizer for ``--optimizer prox-linear``."""
    import lightning_ner

    return lightning_ner.OuterIterations(tagger, loader, rate)
