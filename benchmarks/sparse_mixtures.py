"""Time ``SparseMAP`` on the scores of a trained tagger, in decodes of the same batch.

Long sentences of a file, cut to one length, under a model of ``recipes/conll_ner.py``:

    python recipes/conll_ner.py --data DIR
    python benchmarks/sparse_mixtures.py --model runs/conll_ner/model --data FILE

On one thread, in turns; medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from smoothsp.models import load
from smoothsp.models.features import Corpus
from smoothsp.models.tagger import Tagger
from smoothsp.oracles import Chain, SparseMAP
from training.tagged_texts import read

ROWS, WORDS = 32, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a tagger's folder")
    parser.add_argument("--data", type=Path, required=True, help="a column file")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sentences = [[words[0] for words in x] for x in read(options.data).tokens]
    long = [x[:WORDS] for x in sentences if len(x) >= WORDS][:ROWS]
    if not long:
        parser.error(f"--data: expected sentences of at least {WORDS} words, got none")
    row = measure(chain_of(load(options.model), long), options.rounds)
    print("| rows | words | labels | outputs | decode, us | SparseMAP, us | decodes |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("| " + " | ".join(row) + " |")


def chain_of(tagger: Tagger, sentences: list[list[str]]) -> Chain:
    """What the tagger decodes: sentences of one length, in one batch."""
    corpus = Corpus(tagger.vocabulary, sentences, None, tagger.network.encoder)
    batch = corpus.batch(torch.arange(len(sentences)))
    with torch.no_grad():
        found = tagger.network.head.structure(tagger.network(batch), batch.mask)
    if not isinstance(found, Chain):
        raise SystemExit(f"--model: expected a chain, got {type(found).__name__}")
    return found


def measure(chain: Chain, rounds: int) -> tuple[str, ...]:
    """A row of the table."""
    weights = SparseMAP(chain).weights
    outputs = (weights > 0).sum(1).double().mean().item()
    one, mixture = [], []
    for _ in range(rounds):
        one.append(seconds(lambda: chain.decode(), 50))
        mixture.append(seconds(lambda: SparseMAP(chain), 2))
    times = [1e6 * statistics.median(x) for x in (one, mixture)]
    ratio = statistics.median(y / x for x, y in zip(one, mixture, strict=True))
    sizes = [str(x) for x in chain.emissions.shape]
    return *sizes, f"{outputs:.1f}", *(f"{x:.0f}" for x in times), f"{ratio:.1f}"


def seconds(call: Callable[[], object], calls: int) -> float:
    """Seconds a call, after one that is not counted."""
    call()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


if __name__ == "__main__":
    main()
