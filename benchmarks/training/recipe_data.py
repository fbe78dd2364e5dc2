"""What the recipes read, draw and train, for the benchmarks too."""

import itertools
import sys
from collections.abc import Iterator
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
    from conll_ner import load_corpus, seed_all
    from ner.settings import Config
    from ner.training import Run
    from smoothsp.models.features import Corpus, Vocabulary
    from smoothsp.models.network import TaggerNetwork

    config = Config(data=data)
    seed_all(config.seed, 0)
    splits = load_corpus(config)
    kept = splits.train[:SENTENCES]
    number = {label: n for n, label in enumerate(splits.labels)}
    words = [s.words for s in kept]
    vocabulary = Vocabulary.of(words, [])
    network = TaggerNetwork(vocabulary, splits.labels, config.sizes(None), None)
    run = Run(network, config)
    corpus = Corpus(vocabulary, words, [[number[t] for t in s.tags] for s in kept])
    order = torch.randperm(len(kept)).split(config.batch)
    batches = (corpus.batch(part) for part in itertools.cycle(order))
    triples = ((b, b.tags.clamp(min=0), b.mask) for b in batches)
    return network.train(), [run.dense, run.window], triples
