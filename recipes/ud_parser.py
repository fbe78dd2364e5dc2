"""Dependency parser: a biaffine network under trees, on Universal Dependencies.

Embeddings of words, characters, shapes and affixes, a pretrained encoder if there is
one, bidirectional LSTMs, a score of each arc and of each label, and trees on top:
``smoothsp.oracles.SpanningTree``, whose arcs may cross, ``ProjectiveDependencies``,
whose arcs may not, or ``SiblingDependencies``, which also scores neighbours below one
head. Each sentence has one root.

    python recipes/ud_parser.py                                  # drawn sentences
    python recipes/ud_parser.py --data DIR --structure projective --loss hinge-l2
    python recipes/ud_parser.py --data DIR --encoder FOLDER      # with a transformer
    python recipes/ud_parser.py --evaluate FILE                  # scores on CoNLL-U
    python recipes/ud_parser.py --predict FILE                   # prints CoNLL-U

DIR holds one treebank: a file ``*train.conllu`` and a file ``*dev.conllu``. The loss is
that of trees of arcs, plus the cross-entropy of the labels of the true arcs. Training
for projective trees lifts crossing arcs of the training sentences only.

After every best epoch so far, training writes ``model``, a self-contained folder for
``smoothsp.models.load``. ``checkpoint.pt`` is for ``--resume``. At the end it writes
``metrics.json``, ``parses.png`` and ``dev.conllu``, the parsed development file.

English EWT (development file, which also chose the epoch), seed 1, ``--epochs 24``, 26
minutes of CPU time of one core: UAS 88.91, LAS 85.89. With MiniLM-L6 as the encoder,
``--epochs 6``, 50 minutes: UAS 91.87, LAS 89.32. Tables: ``docs/results/parsing.md``.
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
from torch.nn import functional as F

from parsing import grammar, report, trees
from runs import arguments, model_folder, options, terminal, threads
from runs import folder as run_folder
from runs.failures import Failures
from runs.outputs import Outputs
from runs.trainer import RATE, Run, fit, of_at_most
from smoothsp import losses
from smoothsp.data import DependencyTree, dependencies, read_dependencies, unseen_labels
from smoothsp.models import Parser, load
from smoothsp.models.biaffine import Biaffine
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.training import seed_all
from smoothsp.models.word_vectors import Sizes

Structure = Literal["spanning-tree", "projective", "sibling"]
Loss = Literal["crf", "hinge", "hinge-l2", "perturbed"]
Tokenizer = Literal["treebank", "blanks"]
MU, TOP_K, SAMPLES, LONGEST = 1.0, 5, 8, 100


@dataclass(frozen=True)
class Data:
    """Input files."""

    data: str | None = None
    """Folder of CoNLL-U files; default: sentences drawn from a small grammar."""
    predict: str | None = None
    """Parse this file (- for standard input) with the model in --out."""
    evaluate: str | None = None
    """Score the model in --out on this file of CoNLL-U."""
    skip_bad: bool = False
    """Leave out sentences that cannot be read, and name them."""
    root: str | None = None
    """Relation of the root in the files, which is read as root; if not given, the one
    that all words with head 0 and no others have."""


@dataclass(frozen=True)
class Model:
    """Architecture and features."""

    structure: Structure = "spanning-tree"
    """Type of trees: with crossing arcs, without, or with scores of siblings too."""
    hidden: int = 200
    """Units of each of the two LSTMs, each way."""
    encoder: str | None = None
    """A pretrained encoder of transformers, by folder or name, to fine-tune."""
    tokenizer: Tokenizer = "treebank"
    """How the model cuts texts into words: as the Penn Treebank does, by NLTK, or at
    white space."""


@dataclass(frozen=True)
class Training:
    """Training and evaluation."""

    loss: Loss = "crf"
    """Training loss; hinge-l2 is smoothed by the l2 norm, perturbed by noise."""
    epochs: int = 8
    """Passes over the training sentences."""
    seed: int = 1
    """Seed of the initial weights, the order of sentences and the dropout."""
    encoder_rate: float = 1e-4
    """Highest learning rate of the encoder."""


@dataclass(frozen=True)
class Output(Outputs):
    """Output files."""

    out: Path = Path("runs/ud_parser")
    """Folder of the checkpoint, the model, the metrics and the figure."""


# Fields of a dataclass are those of its last base first.
@dataclass(frozen=True)
class Config(Output, Training, Model, Data):
    """Train a dependency parser, or parse text with a trained one."""


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
    arguments.one_of(
        config,
        structure=get_args(Structure),
        loss=get_args(Loss),
        tokenizer=get_args(Tokenizer),
    )
    arguments.at_least(config, epochs=1, seed=0, hidden=1)
    arguments.positive(config, "encoder_rate")
    arguments.of_run(config)


def criterion_of(loss: Loss) -> nn.Module:
    if loss == "crf":
        return losses.CRFLoss()
    if loss == "perturbed":
        return losses.PerturbedLoss(SAMPLES)
    return losses.StructuralHinge(losses.L2(MU, TOP_K) if loss == "hinge-l2" else None)


def train(config: Config) -> dict[str, float]:
    if not config.encoder:
        threads.one()
    bank = grammar.make()
    if config.data:
        bank = grammar.read(config.data, config.skip_bad, config.root)
    settings = settings_of(config, bank)

    seed_all(config.seed, 0)
    sentences = of_at_most(LONGEST, bank.train)
    vocabulary = Vocabulary.of([s.words for s in sentences], [])
    labels = sorted({label for s in sentences for label in s.labels})
    encoder = Encoder.pretrained(config.encoder, mixed=True) if config.encoder else None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = Sizes(hidden=config.hidden)
    model = Biaffine(vocabulary, labels, sizes, config.structure, encoder).to(device)
    trained = encoder.model.parameters() if encoder else ()
    run = Run(model, trained, config.encoder_rate / RATE)
    print(
        f"{len(sentences)} sentences of at most {LONGEST} words to train on,"
        f" {sum(map(len, (s.words for s in sentences)))} words, {len(labels)} labels,"
        f" {sum(p.numel() for p in run.model.parameters()):,} weights on {device}"
    )

    def parser_of(network: Biaffine) -> Parser:
        about = {"settings": settings, "history": run.history}
        return Parser(network, vocabulary, labels, about, config.tokenizer)

    def save() -> None:
        parser_of(run.average.module).save(config.model_folder)

    corpus = Corpus(vocabulary, [s.words for s in sentences], None, encoder)
    fit(
        run,
        config,
        settings,
        # few sentences are cut into small batches, for more steps
        shuffled=lambda: corpus.shuffled(32 if config.data else 8),
        loss_of=loss_of(config, run.model, corpus, sentences, labels),
        evaluate=lambda network: trees.attachment(
            bank.dev, parsed(parser_of(network), bank.dev)
        ),
        by="las",
        save=save,
    )
    parser = parser_of(run.average.module)
    found = {name: parsed(parser, bank.dev, name) for name in parser.structures}
    return report.write(
        config.out, settings, bank, run.history, found, config.structure
    )


def parsed(
    parser: Parser, sentences: list[DependencyTree], structure: str | None = None
) -> list[DependencyTree]:
    """The sentences with the trees that the parser finds."""
    found = parser.parse([s.words for s in sentences], structure=structure)
    return [
        dependencies.with_tree(sentence, tree.heads, tree.labels)
        for sentence, tree in zip(sentences, found, strict=True)
    ]


def loss_of(
    config: Config,
    model: Biaffine,
    corpus: Corpus,
    sentences: list[DependencyTree],
    labels: list[str],
) -> Callable[[Tensor], Tensor]:
    """The loss of a batch: of the tree of arcs, and of the labels of true arcs."""
    number = {label: n for n, label in enumerate(labels)}
    names = [torch.tensor([number[x] for x in s.labels]) for s in sentences]
    lift = list if config.structure == "spanning-tree" else trees.projective
    heads = [torch.tensor(lift(s.heads)) for s in sentences]
    lifted = sum(h.tolist() != s.heads for h, s in zip(heads, sentences, strict=True))
    if lifted:
        print(f"{lifted} trees with crossing arcs, which are lifted for training")
    criterion = criterion_of(config.loss)

    def loss(numbers: Tensor) -> Tensor:
        batch = corpus.batch(numbers)
        chosen = [heads[n] for n in numbers.tolist()]
        gold = nn.utils.rnn.pad_sequence(chosen, True, -1).to(model.device)
        true = torch.cat([names[n] for n in numbers.tolist()]).to(model.device)
        vectors = model(batch)
        found = model.trees(vectors, batch.mask.sum(1))
        scores = model.labels(vectors, gold)
        of_labels = F.cross_entropy(scores, true, reduction="sum")
        return criterion(found, gold) + of_labels / len(numbers)

    return loss


def evaluate(config: Config) -> dict[str, float]:
    """Print UAS and LAS of the model on a file, beside what costs no learning."""
    parser = trained(config)
    gold = read_dependencies(
        config.evaluate, skip_bad=config.skip_bad, root=config.root
    )
    seen = (label for s in gold for label in s.labels)
    unseen_labels.warn(config.evaluate, seen, parser.labels)
    scores = report.scores(gold, {"the parser": parsed(parser, gold)}, "punct")
    report.table(Path(config.evaluate).name, scores)
    return scores["the parser"]


def predict(config: Config) -> dict[str, float]:
    """Print the sentences of a file with their trees, as CoNLL-U."""
    parser = trained(config)
    failures = Failures(config.skip_bad)
    given = dependencies.read_words(config.predict, failures.add)
    words = [x if isinstance(x, str) else x.words for x in given]
    for sentence, tree in zip(given, parser.stream(words), strict=True):
        if isinstance(sentence, str):
            print(tree.conllu(), end="")
        else:
            found = dependencies.with_tree(sentence, tree.heads, tree.labels)
            print(dependencies.text([found]), end="")
    failures.end(len(given), "sentences")
    return {"sentences": float(len(given))}


def trained(config: Config) -> Parser:
    """The model in ``--out``."""
    folder = config.model_folder
    with model_folder.trained(folder):
        parser = load(folder)
    if not isinstance(parser, Parser):
        raise ValueError(
            f"{folder}: expected a parser, got a {type(parser).__name__}. Give the"
            " --out of a run of this recipe"
        )
    return parser


def settings_of(config: Config, bank: grammar.Treebank) -> dict[str, Any]:
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
        "encoder": config.encoder,
        "encoder_rate": config.encoder_rate if config.encoder else None,
    }


def command_line() -> None:
    terminal.run(lambda: main(options.read(Config)))


if __name__ == "__main__":
    command_line()
