"""Dependency parser: a biaffine network under trees, on Universal Dependencies.

Embeddings of words, characters, shapes and affixes, bidirectional LSTMs, a score of
each arc and of each label; ``smoothsp.oracles.SpanningTree``, whose arcs may cross, or
``ProjectiveDependencies``, whose arcs may not, on top. Each sentence has one root.

    python recipes/ud_parser.py                                  # drawn sentences
    python recipes/ud_parser.py --data DIR --structure projective --loss hinge-l2
    python recipes/ud_parser.py --predict FILE                   # prints CoNLL-U

DIR holds one treebank: a file ``*train.conllu`` and a file ``*dev.conllu``. The loss is
that of trees of arcs, plus the cross-entropy of the labels of the true arcs. Training
for projective trees lifts the crossing arcs of the training sentences, never those that
are scored.

``model`` is a folder that is loaded without running code, written after every epoch
that is the best so far; ``checkpoint.pt`` is what ``--resume`` needs, ``metrics.json``,
``parses.png`` and ``dev.conllu``, the parsed development file, stand there at the end.

English EWT (development file, which also chose the epoch), seed 1, ``--epochs 24``, 26
minutes of CPU time of one core: UAS 88.91, LAS 85.89. Tables:
``docs/results/parsing.md``.
"""

if __name__ == "__main__":
    from runs import start

    start.quietly()

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsing import conllu, grammar, model_folder, report, trees
from parsing.biaffine import STRUCTURES, Biaffine, parse
from parsing.training import Run, of_at_most, run_epochs
from parsing.words import Sizes
from runs import arguments, checkpoint, options, terminal
from runs import folder as run_folder
from runs.failures import Failures
from smoothsp import losses
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.training import seed_all

Structure = Literal["spanning-tree", "projective"]
Loss = Literal["crf", "hinge", "hinge-l2", "perturbed"]
MU, TOP_K, SAMPLES, LONGEST = 1.0, 5, 8, 100


@dataclass(frozen=True)
class Config:
    """Train a dependency parser, or parse text with a trained one."""

    data: str | None = None
    """Folder of CoNLL-U files; default: sentences drawn from a small grammar."""
    structure: Structure = "spanning-tree"
    """Whether arcs may cross."""
    loss: Loss = "crf"
    """What is minimised; l2 says how the hinge is smoothed, perturbed by noise."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 1
    """Of the initial weights, the order of sentences and the dropout."""
    hidden: int = 200
    """Units of each of the two LSTMs, each way."""
    out: Path = Path("runs/ud_parser")
    """Folder of the checkpoint, the model, the metrics and the figure."""
    resume: bool = False
    """Continue the run in --out from its last whole epoch."""
    overwrite: bool = False
    """Replace the run in --out."""
    predict: str | None = None
    """Parse this file (- for standard input) with the model in --out."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, and name them."""

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
    arguments.one_of(config, structure=get_args(Structure), loss=get_args(Loss))
    arguments.at_least(config, epochs=1, seed=0, hidden=1)
    arguments.of_run(config)


def criterion_of(loss: Loss) -> nn.Module:
    if loss == "crf":
        return losses.CRFLoss()
    if loss == "perturbed":
        return losses.PerturbedLoss(SAMPLES)
    return losses.StructuralHinge(losses.L2(MU, TOP_K) if loss == "hinge-l2" else None)


def train(config: Config) -> dict[str, float]:
    bank = conllu.load(config.data, config.skip_bad) if config.data else grammar.make()
    settings = settings_of(config, bank)
    path = config.checkpoint
    saved = checkpoint.to_resume(path, settings, config.resume)

    seed_all(config.seed, 0)
    sentences = of_at_most(LONGEST, bank.train)
    vocabulary = Vocabulary.of([s.words for s in sentences], [])
    labels = sorted({label for s in sentences for label in s.labels})
    sizes = Sizes(hidden=config.hidden)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    run = Run(Biaffine(vocabulary, labels, sizes).to(device))
    if saved:
        checkpoint.use(path, lambda: run.load(saved))
    print(
        f"{len(sentences)} sentences of at most {LONGEST} words to train on,"
        f" {sum(map(len, (s.words for s in sentences)))} words, {len(labels)} labels,"
        f" {sum(p.numel() for p in run.model.parameters()):,} weights on {device}"
    )

    def parsed(model: nn.Module, structure: str) -> list[conllu.Sentence]:
        return parse(model, vocabulary, labels, STRUCTURES[structure], bank.dev)

    def save() -> None:
        about = {"settings": settings, "history": run.history}
        model_folder.save(
            config.model, run.average.module, vocabulary, labels, sizes, about
        )

    corpus = Corpus(vocabulary, [s.words for s in sentences])
    run_epochs(
        run,
        path=path,
        about={"settings": settings},
        seed=config.seed,
        epochs=config.epochs,
        # few sentences are cut into small batches, for more steps
        shuffled=lambda: corpus.shuffled(32 if config.data else 8),
        loss_of=loss_of(config, run.model, corpus, sentences, labels),
        evaluate=lambda model: trees.attachment(
            bank.dev, parsed(model, config.structure)
        ),
        by="las",
        save=save,
    )
    run.average.module.load_state_dict(run.best)
    save()
    found = {name: parsed(run.average.module, name) for name in STRUCTURES}
    return report.write(
        config.out, settings, bank, run.history, found, config.structure
    )


def loss_of(
    config: Config,
    model: Biaffine,
    corpus: Corpus,
    sentences: list[conllu.Sentence],
    labels: list[str],
) -> Any:
    """The loss of a batch: of the tree of arcs, and of the labels of true arcs."""
    number = {label: n for n, label in enumerate(labels)}
    names = [torch.tensor([number[x] for x in s.labels]) for s in sentences]
    lift = trees.projective if config.structure == "projective" else list
    heads = [torch.tensor(lift(s.heads)) for s in sentences]
    lifted = sum(h.tolist() != s.heads for h, s in zip(heads, sentences, strict=True))
    if lifted:
        print(f"{lifted} trees with crossing arcs, which are lifted for training")
    criterion = criterion_of(config.loss)
    structure = STRUCTURES[config.structure]

    def loss(numbers: Tensor) -> Tensor:
        batch = corpus.batch(numbers)
        chosen = [heads[n] for n in numbers.tolist()]
        gold = nn.utils.rnn.pad_sequence(chosen, True, -1).to(model.device)
        true = torch.cat([names[n] for n in numbers.tolist()]).to(model.device)
        arcs, vectors = model(batch)
        lengths = batch.mask.sum(1).to(model.device)
        found = structure(arcs, lengths=lengths, single_root=True)
        scores = model.labels(vectors, gold)
        of_labels = F.cross_entropy(scores, true, reduction="sum")
        return criterion(found, gold) + of_labels / len(numbers)

    return loss


def predict(config: Config) -> dict[str, float]:
    """Print the sentences of a file with their trees, as CoNLL-U."""
    model, vocabulary, labels, about = model_folder.load(config.model, Biaffine)
    failures = Failures(config.skip_bad)
    sentences = conllu.read_words(config.predict, failures)
    structure = checkpoint.use(
        config.model, lambda: STRUCTURES[about["settings"]["structure"]]
    )
    print(conllu.text(parse(model, vocabulary, labels, structure, sentences)), end="")
    failures.end(len(sentences), "sentences")
    return {"sentences": float(len(sentences))}


def settings_of(config: Config, bank: conllu.Treebank) -> dict[str, Any]:
    """What decides the numbers; two runs that agree in it are the same run."""
    every = [(s.words, s.heads, s.labels) for s in (*bank.train, *bank.dev)]
    return {
        "data": f"{len(every)} sentences with checksum"
        f" {zlib.crc32(repr(every).encode()):08x}",
        "structure": config.structure,
        "loss": config.loss,
        "hidden": config.hidden,
        "epochs": config.epochs,
        "seed": config.seed,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
