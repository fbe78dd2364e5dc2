"""Constituency parser: a network that scores spans, under a binary tree of them.

Embeddings of words, characters, shapes and affixes, bidirectional LSTMs, a score of
each label of each span, and ``smoothsp.oracles.SpanTree`` on top, in training and in
parsing. Chains of unary rules are one label (``S+VP``); a constituent of more than two
parts is cut in two, again and again, with spans that are no constituents.

    python recipes/constituency.py                          # drawn trees
    python recipes/constituency.py --data DIR               # bracketed files
    python recipes/constituency.py --predict FILE           # prints bracketed trees

DIR holds files of bracketed trees, as the Penn Treebank has them (``.mrg``); the last
of them, in order of name, are not trained on. Traces are dropped, and labels lose what
follows a hyphen. Words are read, tags are not. Sentences to parse have at most 400
words.

``model`` is a folder that is loaded without running code, written after every epoch
that is the best so far; ``checkpoint.pt`` is what ``--resume`` needs, ``metrics.json``
and ``dev.txt``, the parsed sentences, stand there at the end.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import json
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from parsing import brackets, model_folder, phrases
from parsing.brackets import Tree
from parsing.spans import SpanScores, parse, target
from parsing.training import Run, of_at_most, run_epochs
from runs import arguments, checkpoint, options, terminal
from runs import folder as run_folder
from runs.failures import Failures
from smoothsp import losses
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.training import seed_all
from smoothsp.models.word_vectors import Sizes
from smoothsp.oracles import SpanTree

Loss = Literal["crf", "hinge", "hinge-l2"]
MU, TOP_K, LONGEST = 1.0, 5, 60
# Words of a sentence to parse: time grows by their cube, memory by their square.
MOST_WORDS = 400


@dataclass(frozen=True)
class Config:
    """Train a constituency parser, or parse sentences with a trained one."""

    data: str | None = None
    """Folder of bracketed files; default: trees drawn from a small grammar."""
    held_out: int = 20
    """With --data: how many files, the last ones, are not trained on but scored."""
    loss: Loss = "crf"
    """What is minimised; l2 says how the hinge is smoothed."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 1
    """Of the initial weights, the order of sentences and the dropout."""
    hidden: int = 150
    """Units of each of the two LSTMs, each way."""
    out: Path = Path("runs/constituency")
    """Folder of the checkpoint, the model and the metrics."""
    resume: bool = False
    """Continue the run in --out from its last whole epoch."""
    overwrite: bool = False
    """Replace the run in --out."""
    predict: str | None = None
    """Parse this file (- for standard input) with the model in --out."""
    skip_bad: bool = False
    """With --predict: leave out sentences that cannot be read or parsed."""

    @property
    def checkpoint(self) -> Path:
        return self.out / "checkpoint.pt"

    @property
    def model(self) -> Path:
        return self.out / "model"


def main(config: Config) -> dict[str, float]:
    """Train, or parse; the numbers that come back are those of the best model."""
    check(config)
    if config.predict is not None:
        return predict(config)
    with run_folder.held(config.out, config.model):
        return train(config)


def check(config: Config) -> None:
    arguments.one_of(config, loss=get_args(Loss))
    arguments.at_least(config, held_out=1, epochs=1, seed=0, hidden=1)
    arguments.of_run(config)


def train(config: Config) -> dict[str, float]:
    data = config.data
    every, dev = brackets.load(data, config.held_out) if data else phrases.make()
    settings = settings_of(config, every, dev)
    path = config.checkpoint
    saved = checkpoint.to_resume(path, settings, config.resume)

    seed_all(config.seed, 0)
    trees = of_at_most(LONGEST, every)
    vocabulary = Vocabulary.of([tree.words for tree in trees], [])
    labels = sorted({label for tree in trees for label, _, _ in tree.spans})
    sizes = Sizes(hidden=config.hidden)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(SpanScores(vocabulary, labels, sizes).to(device))
    if saved:
        checkpoint.use(path, lambda: run.load(saved))
    print(
        f"{len(trees)} sentences of at most {LONGEST} words to train on,"
        f" {len(every) - len(trees)} longer ones left out, {len(labels)} labels,"
        f" {sum(p.numel() for p in run.model.parameters()):,} weights on {device}"
    )
    words = [tree.words for tree in dev]

    def save() -> None:
        about = {"settings": settings, "history": run.history}
        model_folder.save(config.model, run.average.module, vocabulary, labels, about)

    corpus = Corpus(vocabulary, [tree.words for tree in trees])
    run_epochs(
        run,
        path=path,
        about={"settings": settings},
        seed=config.seed,
        epochs=config.epochs,
        # few sentences are cut into small batches, for more steps
        shuffled=lambda: corpus.shuffled(16 if data else 8),
        loss_of=loss_of(config, run.model, corpus, trees, labels),
        evaluate=lambda model: {
            "f1": brackets.f1(dev, parse(model, vocabulary, labels, words))["f1"]
        },
        by="f1",
        save=save,
    )
    run.average.module.load_state_dict(run.best)
    save()
    found = parse(run.average.module, vocabulary, labels, words)
    return report(config.out, settings, run.history, trees, dev, found)


def loss_of(
    config: Config,
    model: SpanScores,
    corpus: Corpus,
    trees: list[Tree],
    labels: list[str],
) -> Any:
    number = {label: n for n, label in enumerate(labels, start=1)}
    targets = [target(tree, number) for tree in trees]
    criterion: nn.Module = losses.CRFLoss()
    if config.loss != "crf":
        smoothing = losses.L2(MU, TOP_K) if config.loss == "hinge-l2" else None
        criterion = losses.StructuralHinge(smoothing)

    def loss(numbers: Tensor) -> Tensor:
        batch = corpus.batch(numbers)
        B, n = batch.mask.shape
        gold = torch.full((B, n, n), -1)
        for row, chosen in enumerate(numbers.tolist()):
            size = len(targets[chosen])
            gold[row, :size, :size] = targets[chosen]
        lengths = batch.mask.sum(1).to(model.device)
        return criterion(SpanTree(model(batch), lengths=lengths), gold.to(model.device))

    return loss


def report(
    folder: Path,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    trees: list[Tree],
    dev: list[Tree],
    found: list[Tree],
) -> dict[str, float]:
    """Print the table, write numbers and parses; the chief numbers come back."""
    tops = Counter(tree.spans[0][0] for tree in trees)
    usual = Counter(label for tree in trees for label, _, _ in tree.spans)
    (top, _), (other, _) = tops.most_common(1)[0], usual.most_common(1)[0]
    scores = {
        "the parser": brackets.f1(dev, found),
        "right-branching": brackets.f1(dev, brackets.right_branching(dev, top, other)),
    }
    heads = ("f1", "precision", "recall", "exact")
    print(f"\n{'held-out sentences':<20}" + "".join(f"{head:>12}" for head in heads))
    for name, row in scores.items():
        cells = "".join(f"{100 * row[head]:>12.2f}" for head in heads)
        print(f"{name:<20}{cells}")
    best = max(history, key=lambda row: row["f1"])
    result = {"best_epoch": float(best["epoch"]), "loss": history[-1]["loss"]}
    result |= scores["the parser"]
    result["right_branching_f1"] = scores["right-branching"]["f1"]
    content = {"settings": settings, "history": history, "result": result}
    text = f"{json.dumps(content | {'scores': scores}, indent=2)}\n".encode()
    checkpoint.write(folder / "metrics.json", lambda sink: sink.write(text))
    lines = "".join(f"{brackets.text(tree)}\n" for tree in found).encode()
    checkpoint.write(folder / "dev.txt", lambda sink: sink.write(lines))
    cpu = sum(row["cpu_seconds"] for row in history)
    print(
        f"\nbest epoch {best['epoch']}, {cpu:.0f} s of CPU time for all; see"
        f" {folder / 'dev.txt'} and metrics.json beside it"
    )
    return result


def predict(config: Config) -> dict[str, float]:
    """Print the tree of each sentence of a file."""
    model, vocabulary, labels, _ = model_folder.load(config.model, SpanScores)
    failures = Failures(config.skip_bad)
    sentences = []
    for words in brackets.read_words(config.predict, failures):
        if len(words) <= MOST_WORDS:
            sentences.append(words)
            continue
        failures.add(
            f"expected sentences of at most {MOST_WORDS} words, got {len(words):,} in"
            f" {' '.join(words[:3])[:60]!r} and so on. Cut it into sentences, one a"
            " line"
        )
    for tree in parse(model, vocabulary, labels, sentences):
        print(brackets.text(tree))
    failures.end(len(sentences), "sentences")
    return {"sentences": float(len(sentences))}


def settings_of(config: Config, train: list[Tree], dev: list[Tree]) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    every = [(len(train), len(dev)), *(brackets.text(tree) for tree in (*train, *dev))]
    return {
        "data": f"{len(train) + len(dev)} trees with checksum"
        f" {zlib.crc32(repr(every).encode()):08x}",
        "loss": config.loss,
        "hidden": config.hidden,
        "epochs": config.epochs,
        "seed": config.seed,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
