"""Constituency parser: a network that scores spans, under a binary tree of them.

Embeddings of words, characters, shapes and affixes, bidirectional LSTMs, a score of
each label of each span, and ``smoothsp.oracles.SpanTree`` on top, in training and in
parsing. Chains of unary rules become one label (``S+VP``). Constituents of more than
two parts are binarised with empty labels. Nested named entities form such a tree, too.

    python recipes/constituency.py                          # drawn trees
    python recipes/constituency.py --data DIR               # bracketed files
    python recipes/constituency.py --nested                 # invented named entities
    python recipes/constituency.py --nested --data DIR      # files with tag columns
    python recipes/constituency.py --evaluate FILE          # scores
    python recipes/constituency.py --predict FILE           # prints trees, or columns

DIR holds files of bracketed trees, as the Penn Treebank has them (``.mrg``); the last
ones by name are held out. Traces are dropped, and labels lose what follows a hyphen.
Part-of-speech tags are ignored. Sentences to parse have at most 400 words.

With ``--nested`` DIR holds a training and a development file with two columns of tags
or more, as GermEval has them: of the outer entities, and of those within them. Entities
that cross others are not trained on.

After every best epoch so far, training writes the folder ``model``, which loads without
running code. ``checkpoint.pt`` is for ``--resume``. At the end it writes
``metrics.json`` and ``dev.txt``, the parsed sentences.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from parsing import brackets, model_folder, nested, phrases
from parsing.spans import SpanScores, binarisations, parse, target
from runs import arguments, files, options, terminal, threads
from runs import folder as run_folder
from runs.failures import Failures
from runs.outputs import Outputs
from runs.trainer import Run, finish, fit, of_at_most
from smoothsp import losses
from smoothsp.data import ConstituencyTree as Tree
from smoothsp.data import read_trees, unseen_labels
from smoothsp.data import trees as data
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.training import seed_all
from smoothsp.models.word_vectors import Sizes
from smoothsp.oracles import SpanTree

Loss = Literal["crf", "hinge", "hinge-l2"]
MU, TOP_K, LONGEST, FEW = 1.0, 5, 60, 1000
# Words of a sentence to parse: time grows by their cube, memory by their square.
MOST_WORDS = 400


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: str | None = None
    """Folder of bracketed files, or of columns with --nested; default: drawn trees."""
    held_out: int = 20
    """With --data: number of bracketed files, the last ones, held out for scoring."""
    nested: bool = False
    """Nested named entities, from files with several columns of tags."""
    columns: tuple[str, ...] = ()
    """With --nested: these columns of tags, by number or name, the outer one first; all
    that there are if not given."""
    predict: str | None = None
    """Parse this file (- for standard input) with the model in --out."""
    evaluate: str | None = None
    """Score the model in --out on this file of trees, or of columns."""
    skip_bad: bool = False
    """With --predict or --nested: leave out sentences that cannot be read or parsed."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    hidden: int = 150
    """Units of each of the two LSTMs, each way."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Loss = "crf"
    """Training loss; hinge-l2 is smoothed by the squared l2 norm."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 1
    """Seed of the initial weights, the order of sentences and the dropout."""


@dataclass(frozen=True)
class Output(Outputs):
    """Output files."""

    out: Path = Path("runs/constituency")
    """Folder of the checkpoint, the model and the metrics."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a constituency parser, or parse sentences with a trained one."""


def main(config: Config) -> dict[str, float]:
    """Train, or parse; the numbers that come back are those of the best model."""
    check(config)
    if config.predict is not None:
        return predict(config)
    if config.evaluate is not None:
        return evaluate(config)
    with run_folder.held(config.out, config.model_folder):
        return train(config)


def check(config: Config) -> None:
    arguments.one_of(config, loss=get_args(Loss))
    arguments.at_least(config, held_out=1, epochs=1, seed=0, hidden=1)
    arguments.of_run(config)
    used = config.predict is not None
    if config.columns and (used or not (config.nested or config.evaluate)):
        raise ValueError(
            "columns: expected --nested or --evaluate FILE beside it, got neither"
        )


@dataclass(frozen=True)
class Task:
    """What brackets and nested entities do not share."""

    f1: Callable[[list[Tree], list[Tree]], dict[str, float]]
    baseline: str
    without_learning: Callable[[list[Tree], list[Tree]], list[Tree]]
    """Trees of the words of the second ones, from the first, which are for training."""


TASKS = {
    False: Task(brackets.f1, "right-branching", brackets.without_learning),
    True: Task(nested.f1, "look-up", nested.looked_up),
}


def load(config: Config) -> tuple[list[Tree], list[Tree]]:
    if config.data is None:
        return nested.make() if config.nested else phrases.make()
    if config.nested:
        return nested.load(config.data, config.columns, config.skip_bad)
    return data.read_folder(config.data, config.held_out)


def train(config: Config) -> dict[str, float]:
    threads.one()
    every, dev = load(config)
    task = TASKS[config.nested]
    settings = settings_of(config, every, dev)
    levels = settings["levels"]

    seed_all(config.seed, 0)
    trees = of_at_most(LONGEST, every)
    if config.nested:
        trees = [nested.uncrossed(tree) for tree in trees]
    vocabulary = Vocabulary.of([tree.words for tree in trees], [])
    labels = sorted({label for tree in trees for label, _, _ in tree.spans})
    sizes = Sizes(hidden=config.hidden)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(SpanScores(vocabulary, labels, sizes).to(device))
    print(
        f"{len(trees)} sentences of at most {LONGEST} words to train on,"
        f" {len(every) - len(trees)} longer ones left out, {len(labels)} labels,"
        f" {sum(p.numel() for p in run.model.parameters()):,} weights on {device}"
    )
    words = [tree.words for tree in dev]

    def save() -> None:
        about = {"settings": settings, "history": run.history}
        model_folder.save(
            config.model_folder, run.average.module, vocabulary, labels, about
        )

    corpus = Corpus(vocabulary, [tree.words for tree in trees])
    fit(
        run,
        config,
        settings,
        # few sentences are cut into small batches, for more steps
        shuffled=lambda: corpus.shuffled(16 if len(trees) > FEW else 8),
        loss_of=loss_of(config, run.model, corpus, trees, labels),
        evaluate=lambda model: {
            "f1": task.f1(dev, parsed(model, vocabulary, labels, words, levels))["f1"]
        },
        by="f1",
        save=save,
    )
    found = parsed(run.average.module, vocabulary, labels, words, levels)
    compared = {
        "the parser": task.f1(dev, found),
        task.baseline: task.f1(dev, task.without_learning(trees, dev)),
    }
    lines = "".join(text_of(levels, tree) for tree in found)
    return report(config.out, settings, run.history, compared, lines)


def parsed(
    model: SpanScores,
    vocabulary: Vocabulary,
    labels: list[str],
    sentences: list[list[str]],
    levels: int | None,
) -> list[Tree]:
    """The best trees; of nested entities so many levels."""
    found = parse(model, vocabulary, labels, sentences)
    return found if levels is None else [nested.shallow(x, levels) for x in found]


def loss_of(
    config: Config,
    model: SpanScores,
    corpus: Corpus,
    trees: list[Tree],
    labels: list[str],
) -> Any:
    number = {label: n for n, label in enumerate(labels, start=1)}
    criterion = criterion_of(config)
    # of few entities most spans are none: any tree that holds them will do
    read, none = (binarisations, False) if config.nested else (target, -1)
    targets = [read(tree, number) for tree in trees]

    def loss(numbers: Tensor) -> Tensor:
        batch = corpus.batch(numbers)
        B, n = batch.mask.shape
        gold = targets[0].new_full((B, n, n, *targets[0].shape[2:]), none)
        for row, chosen in enumerate(numbers.tolist()):
            size = len(targets[chosen])
            gold[row, :size, :size] = targets[chosen]
        lengths = batch.mask.sum(1).to(model.device)
        return criterion(SpanTree(model(batch), lengths=lengths), gold.to(model.device))

    return loss


def criterion_of(config: Config) -> nn.Module:
    """The loss to one tree, or to the best of several, or to all of these."""
    if config.loss == "crf":
        return losses.MarginalLikelihood() if config.nested else losses.CRFLoss()
    smoothing = losses.L2(MU, TOP_K) if config.loss == "hinge-l2" else None
    hinge = losses.LatentHinge if config.nested else losses.StructuralHinge
    return hinge(smoothing)


def text_of(levels: int | None, tree: Tree) -> str:
    """A tree as it stands in a file: brackets, or words with so many levels of tags."""
    return (
        f"{data.text(tree)}\n" if levels is None else data.text_of_levels(tree, levels)
    )


def table(title: str, rows: dict[str, dict[str, float]]) -> None:
    heads = next(iter(rows.values()))
    print(f"\n{title:<20}" + "".join(f"{head:>12}" for head in heads))
    for name, row in rows.items():
        print(f"{name:<20}" + "".join(f"{100 * row[head]:>12.2f}" for head in heads))


def report(
    folder: Path,
    settings: dict[str, Any],
    history: list[dict[str, Any]],
    scores: dict[str, dict[str, float]],
    lines: str,
) -> dict[str, float]:
    """Print the table, write numbers and parses; the chief numbers come back."""
    table("held-out sentences", scores)
    found, (baseline, plain) = scores["the parser"], list(scores.items())[1]
    result = found | {f"{baseline.replace('-', '_')}_f1": plain["f1"]}
    files.write(folder / "dev.txt", lambda sink: sink.write(lines.encode()))
    return finish(folder / "dev.txt", settings, history, "f1", scores, result)


def evaluate(config: Config) -> dict[str, float]:
    """Print the scores of the model on a file."""
    model, vocabulary, labels, about = model_folder.load(
        config.model_folder, SpanScores
    )
    levels = about.get("settings", {}).get("levels")
    gold = read_trees(config.evaluate, columns=config.columns, skip_bad=config.skip_bad)
    known = {one for label in labels for one in label.split("+")}
    seen = (label for tree in gold for label, _, _ in data.unchained(tree.spans))
    unseen_labels.warn(config.evaluate, seen, known)
    words = [tree.words for tree in gold]
    found = parsed(model, vocabulary, labels, words, levels)
    scores = TASKS[levels is not None].f1(gold, found)
    table(Path(config.evaluate).name, {"the parser": scores})
    return scores


def predict(config: Config) -> dict[str, float]:
    """Print the tree of each sentence of a file, or its words with their tags."""
    model, vocabulary, labels, about = model_folder.load(
        config.model_folder, SpanScores
    )
    levels = about.get("settings", {}).get("levels")
    failures = Failures(config.skip_bad)
    sentences = []
    for words in data.read_words(config.predict, failures.add, escape=levels is None):
        if len(words) <= MOST_WORDS:
            sentences.append(words)
            continue
        failures.add(
            f"expected sentences of at most {MOST_WORDS} words, got {len(words):,} in"
            f" {' '.join(words[:3])[:60]!r} and so on. Cut it into sentences, one a"
            " line"
        )
    for tree in parsed(model, vocabulary, labels, sentences, levels):
        print(text_of(levels, tree), end="")
    failures.end(len(sentences), "sentences")
    return {"sentences": float(len(sentences))}


def settings_of(config: Config, train: list[Tree], dev: list[Tree]) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    every = [(len(train), len(dev)), *(data.text(tree) for tree in (*train, *dev))]
    return {
        "data": f"{len(train) + len(dev)} trees with checksum"
        f" {zlib.crc32(repr(every).encode()):08x}",
        # absent in older checkpoints
        "levels": nested.depth(train) if config.nested else None,
        "loss": config.loss,
        "hidden": config.hidden,
        "epochs": config.epochs,
        "seed": config.seed,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
