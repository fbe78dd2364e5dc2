"""Named-entity tagger: a network under a chain, trained with a structured loss.

Embeddings of words, characters, shapes and affixes, a bidirectional LSTM, a linear
model of hashed window features beside it, and ``smoothsp.LinearChain`` on top, with the
BIOES constraints honoured in training and in decoding.

    python recipes/conll_ner.py                                  # invented corpus
    python recipes/conll_ner.py --data DIR                       # CoNLL files
    python recipes/conll_ner.py --data DIR --embeddings FILE     # with GloVe vectors
    python recipes/conll_ner.py --data wnut17                    # downloads WNUT-17
    python recipes/conll_ner.py --predict FILE --nbest 3         # tags new text

Training writes ``model``, a folder that ``smoothsp.models.load`` takes and that needs
nothing else, after every epoch that is the best so far, ``checkpoint.pt``, which
``--resume`` needs, after every epoch, and ``metrics.json`` and ``learning_curve.png``
at the end. A run that is killed and resumed ends with the numbers of one that was not.
In the line of an epoch, ``exact`` is the share of sentences for which smoothing over
the k best outputs was smoothing over all of them.

Measured with ``OMP_NUM_THREADS=1`` on one core of an AMD EPYC, about 140 s a run, on
CoNLL-2003 English (``eng.testa``, which also chose the epoch), mean of seeds 1, 2, 3:

    --data DIR                       span F1 92.04    (92.02, 92.02, 92.08)
    --data DIR --embeddings FILE     span F1 92.74    (92.75, 92.74, 92.73)

FILE is 5,050 words of GloVe 6B in 50 dimensions. ``README.md`` has all five losses.
"""

import dataclasses
import math
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
import tyro
from torch import nn

from corpora import conll, toy_corpus, unseen_labels, wnut17
from ner import report, word_vectors
from ner.training import Run, seed_all, tag
from runs import checkpoint, terminal
from runs import folder as run_folder
from smoothsp import losses
from smoothsp.metrics import span_f1
from smoothsp.models import Tagger, load
from smoothsp.models.features import Corpus, Vocabulary, normalise
from smoothsp.models.network import Sizes, TaggerNetwork

Loss = Literal["hinge", "hinge-l2", "hinge-entropy", "crf", "perceptron"]
Show = Literal["columns", "json", "colour"]
MU = {"hinge-l2": 1.0, "hinge-entropy": 1.0}
TOP_K = 5
WORD_SIZE = 100


@dataclass(frozen=True)
class Config:
    """Train a named-entity tagger, or tag text with a trained one."""

    data: str | None = None
    """Folder of CoNLL files, or wnut17 to download it; default: an invented corpus."""
    embeddings: str | None = None
    """Text file of word vectors, as GloVe publishes them, to start from."""
    loss: Loss = "hinge-l2"
    """What is minimised; l2 and entropy say how the hinge is smoothed."""
    mu: float | None = None
    """Strength of the smoothing; 1 if not given. Only with hinge-l2, hinge-entropy."""
    top_k: int | None = None
    """Outputs that l2 smoothing spreads over; 5 if not given. Only with hinge-l2."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 1
    """Of the initial weights, the order of sentences and the dropout."""
    out: Path = Path("runs/conll_ner")
    """Folder of the checkpoint, the metrics and the figure."""
    resume: bool = False
    """Continue the run in --out from its last whole epoch."""
    predict: str | None = None
    """Tag the text in this file (- for standard input) with the model in --out."""
    nbest: int = 1
    """With --predict: how many of the best taggings of each sentence to print."""
    show: Show = "columns"
    """With --predict: columns of words and tags, lines of JSON, or coloured text."""
    confidence: bool = False
    """With --predict and json or colour: how probable taggings and spans are."""

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    @property
    def model(self) -> Path:
        return self.out / "model"


def main(config: Config) -> dict[str, float]:
    """Train, or tag; the numbers that come back are those of the best model."""
    check(config)
    if config.predict is not None:
        return predict(config)
    with run_folder.held(config.out):
        return train(config)


def check(config: Config) -> None:
    if config.loss not in get_args(Loss):
        raise ValueError(
            f"loss: expected one of {', '.join(get_args(Loss))}, got {config.loss!r}"
        )
    if config.mu is not None and config.loss not in MU:
        raise ValueError(
            f"mu: expected none with --loss {config.loss}, which is not smoothed, got"
            f" {config.mu}. Choose --loss {' or '.join(MU)}"
        )
    if config.mu is not None and not 0 < config.mu < math.inf:
        raise ValueError(f"mu: expected a positive number, got {config.mu}")
    if config.top_k is not None and config.loss != "hinge-l2":
        raise ValueError(
            f"top_k: expected none with --loss {config.loss}, got {config.top_k}."
            " Choose --loss hinge-l2"
        )
    for name, least in (("top_k", 1), ("epochs", 1), ("seed", 0), ("nbest", 1)):
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"{name}: expected at least {least}, got {value}")
    if config.nbest > 1 and config.predict is None:
        raise ValueError(
            f"nbest: expected 1 in training, got {config.nbest}. Add --predict FILE"
        )
    if config.resume and config.predict is not None:
        raise ValueError("resume: expected --resume or --predict, got both")


def criterion_of(config: Config) -> nn.Module:
    mu = config.mu or MU.get(config.loss, 0.0)
    if config.loss == "hinge":
        return losses.StructuralHinge()
    if config.loss == "hinge-l2":
        return losses.StructuralHinge(losses.L2(mu, config.top_k or TOP_K))
    if config.loss == "hinge-entropy":
        return losses.StructuralHinge(losses.Entropy(mu))
    return losses.CRFLoss() if config.loss == "crf" else losses.StructuredPerceptron()


def train(config: Config) -> dict[str, float]:
    splits = load_corpus(config.data)
    parts = {"train": splits.train, "dev": splits.dev, "test": splits.test or []}
    words = {name: [s.words for s in part] for name, part in parts.items()}
    wanted = {normalise(w) for part in words.values() for s in part for w in s}
    vectors = word_vectors.read(config.embeddings, wanted) if config.embeddings else {}
    settings = settings_of(config, splits, vectors)
    path = config.checkpoint
    saved = checkpoint.load_to_resume(path, settings) if config.resume else None
    if saved:
        print(f"resuming {path} after epoch {len(saved['history'])}")
    elif path.exists():
        print(f"starting over: {path} will be replaced (--resume continues it)")

    seed_all(config.seed, 0)
    labels = splits.labels
    if len(labels) == 1:
        raise ValueError(
            "data: expected named entities in the training sentences, got only the tag"
            " O. Is the tag the last column of the file?"
        )
    vocabulary = Vocabulary.of(words["train"], sorted(vectors))
    size = len(next(iter(vectors.values()))) if vectors else WORD_SIZE
    model = TaggerNetwork(vocabulary, labels, Sizes(size)).to(device())
    model.emissions.set_vectors(vocabulary, vectors)
    run = Run(model)
    if saved:
        checkpoint.use(path, lambda: run.load(saved))
    print(
        f"{len(splits.train)} sentences to train on, {len(labels)} labels,"
        f" {sum(p.numel() for p in model.parameters()):,} weights on {model.device}"
    )
    about = {"settings": settings, "size": size, "labels": labels}
    about["vocabulary"] = dataclasses.asdict(vocabulary)
    run_epochs(config, run, splits, vocabulary, about)
    run.average.module.load_state_dict(run.best)
    save_model(config, run, vocabulary, about)
    taggings = {
        name: tag(run.average.module, Corpus(vocabulary, words[name]), labels)
        for name in ("dev", "test")
        if parts[name]
    }
    return report.write(config.out, settings, splits, run.history, taggings)


def run_epochs(
    config: Config,
    run: Run,
    splits: conll.Splits,
    vocabulary: Vocabulary,
    about: dict[str, Any],
) -> None:
    labels = splits.labels
    number = {label: n for n, label in enumerate(labels)}
    tags = [[number[t] for t in s.tags] for s in splits.train]
    corpus = Corpus(vocabulary, [s.words for s in splits.train], tags)
    dev = Corpus(vocabulary, [s.words for s in splits.dev])
    gold = [s.tags for s in splits.dev]
    criterion = criterion_of(config)
    for epoch in range(len(run.history) + 1, config.epochs + 1):
        try:
            start = time.perf_counter()
            row = run.epoch(criterion, corpus, config.seed, config.epochs)
            row["dev_f1"] = span_f1(gold, tag(run.average.module, dev, labels))[2]
            row["seconds"] = time.perf_counter() - start
            best = run.keep_if_best(row)
            checkpoint.save(config.checkpoint, about | run.state())
            if best:
                save_model(config, run, vocabulary, about)
        except KeyboardInterrupt:
            keep = f"add --resume to continue after epoch {epoch - 1}"
            print(f"\nstopped; {keep if epoch > 1 else 'no epoch was finished'}")
            raise
        exact = "" if row["exact"] is None else f"  exact {100 * row['exact']:5.1f} %"
        print(
            f"epoch {epoch:>2}/{config.epochs}  loss {row['loss']:8.4f}{exact}"
            f"  dev F1 {100 * row['dev_f1']:.2f}  {row['seconds']:.1f} s",
            flush=True,
        )


def save_model(
    config: Config, run: Run, vocabulary: Vocabulary, about: dict[str, Any]
) -> None:
    facts = {"settings": about["settings"]}
    facts["dev_f1"] = max(row["dev_f1"] for row in run.history)
    Tagger(run.average.module, vocabulary, about["labels"], facts).save(config.model)


def predict(config: Config) -> dict[str, float]:
    """Print each tagging, as ``--show`` says."""
    tagger = trained(config)
    sentences = conll.read_words(config.predict)
    wanted = config.confidence and config.show != "columns"
    for tagged in tagger.tag(sentences, config.nbest, wanted):
        if config.show == "json":
            print(tagged.json())
            continue
        for rank, one in enumerate((tagged, *tagged.others), start=1):
            if config.show == "colour":
                print(one.coloured(tagger.types))
                continue
            print(f"# {rank} of {config.nbest}, score {one.score:.4f}")
            print(one.columns(), end="")
    return {"sentences": float(len(sentences))}


def trained(config: Config) -> Tagger:
    """The model in ``--out``: its folder, or the best in a checkpoint without one."""
    if config.model.is_dir() or not config.checkpoint.is_file():
        try:
            return load(config.model)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"out: expected a trained model, found none at {config.model}. Train"
                " one first, with the same --out and without --predict"
            ) from error
    saved = checkpoint.load(config.checkpoint)
    return checkpoint.use(config.checkpoint, lambda: restore(saved))


def restore(saved: dict[str, Any]) -> Tagger:
    """The best model of a run, ready to tag."""
    vocabulary, labels = Vocabulary(**saved["vocabulary"]), saved["labels"]
    network = TaggerNetwork(vocabulary, labels, Sizes(saved["size"]))
    network.load_state_dict(saved["best"])
    return Tagger(network.to(device()), vocabulary, labels)


def load_corpus(data: str | None) -> conll.Splits:
    if data is None:
        return toy_corpus.make()
    splits = conll.load(wnut17.fetch() if data == "wnut17" else data)
    held_out = {"dev": splits.dev, "test": splits.test or []}
    for name, part in held_out.items():
        unseen_labels.warn(name, (tag for s in part for tag in s.tags), splits.labels)
    return splits


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def settings_of(
    config: Config, splits: conll.Splits, vectors: dict[str, np.ndarray]
) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    sentences = [(s.words, s.tags) for s in (*splits.train, *splits.dev)]
    corpus = zlib.crc32(repr(sentences).encode())
    table = zlib.crc32(b"".join(w.encode() + v.tobytes() for w, v in vectors.items()))
    return {
        "data": f"{len(sentences)} sentences with checksum {corpus:08x}",
        "embeddings": f"{len(vectors)} vectors with checksum {table:08x}",
        "loss": config.loss,
        "mu": config.mu or MU.get(config.loss),
        "top_k": (config.top_k or TOP_K) if config.loss == "hinge-l2" else None,
        "epochs": config.epochs,
        "seed": config.seed,
    }


def command_line() -> None:
    terminal.run(lambda: main(tyro.cli(Config)))


if __name__ == "__main__":
    command_line()
