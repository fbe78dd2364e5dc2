"""Training of dependency parsers: arc loss plus label loss."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smoothsp import losses
from smoothsp.data import DependencyTree, as_dependencies, unseen_labels
from smoothsp.data.text_files import print_stderr
from smoothsp.models.biaffine import Biaffine
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.parser import Parser
from smoothsp.models.projectivity import lift_crossing_arcs
from smoothsp.models.tree_options import ParserOptions
from smoothsp.models.tree_training import Examples, load_encoder, train_parser
from smoothsp.models.word_vectors import ParserSizes
from smoothsp.training import seed_all

__all__ = ["train"]

MU, TOP_K, SAMPLES = 1.0, 5, 8
# Maximum number of words of a training sentence, and sentences a step.
MAX_TRAINING_LENGTH, BATCH_SIZE = 100, 32


def train(
    data: Any,
    dev: Any,
    encoder: Encoder | str | None,
    options: ParserOptions,
    **run: Any,
) -> Parser:
    """Train a parser; see ``Parser.train``.

    ``run`` holds further arguments of ``train_parser``.
    """
    examples = Examples.load(as_dependencies, data, dev, MAX_TRAINING_LENGTH)
    trees: list[DependencyTree] = examples.train
    labels = sorted({label for tree in trees for label in tree.labels})
    seed_all(options.seed, 0)
    words = [tree.words for tree in trees]
    vocabulary = Vocabulary.from_sentences(words, [])
    loaded_encoder = load_encoder(encoder)
    name = "given" if isinstance(encoder, Encoder) else encoder
    sizes = ParserSizes(hidden=options.hidden)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = Biaffine(vocabulary, labels, sizes, options.structure, loaded_encoder).to(
        device
    )
    parser = Parser(network, vocabulary, labels, None, options.tokenizer)
    corpus = Corpus(vocabulary, words, None, loaded_encoder)
    unseen_labels.warn("dev", (x for tree in examples.dev for x in tree.labels), labels)
    train_parser(
        parser,
        _build_loss(network, corpus, trees, labels, options),
        corpus,
        BATCH_SIZE,
        lambda: parser.scores(examples.dev),
        "las",
        {"data": examples.description, "encoder": name},
        options,
        **run,
    )
    return parser


def _build_loss(
    network: Biaffine,
    corpus: Corpus,
    trees: Sequence[DependencyTree],
    labels: Sequence[str],
    options: ParserOptions,
) -> Callable[[Tensor], Tensor]:
    """Build the loss of a batch: tree loss plus cross-entropy of gold arcs' labels."""
    label_index = {label: n for n, label in enumerate(labels)}
    names = [torch.tensor([label_index[x] for x in tree.labels]) for tree in trees]
    transform = list if options.structure == "spanning-tree" else lift_crossing_arcs
    heads = [torch.tensor(transform(tree.heads)) for tree in trees]
    lifted = sum(h.tolist() != t.heads for h, t in zip(heads, trees, strict=True))
    if lifted:
        print_stderr(
            f"{lifted} trees have crossing arcs, which are lifted for the training"
        )
    criterion = _build_criterion(options.loss)

    def compute_loss(sentence_indices: Tensor) -> Tensor:
        batch = corpus.batch(sentence_indices)
        gold_heads = [heads[n] for n in sentence_indices.tolist()]
        gold = nn.utils.rnn.pad_sequence(gold_heads, True, -1).to(network.device)
        true = torch.cat([names[n] for n in sentence_indices.tolist()]).to(
            network.device
        )
        vectors = network(batch)
        structure = network.trees(vectors, batch.mask.sum(1))
        scores = network.labels(vectors, gold)
        label_loss = F.cross_entropy(scores, true, reduction="sum")
        total: Tensor = criterion(structure, gold) + label_loss / len(sentence_indices)
        return total

    return compute_loss


def _build_criterion(loss: str) -> nn.Module:
    if loss == "crf":
        return losses.CRFLoss()
    if loss == "perturbed":
        return losses.PerturbedLoss(SAMPLES)
    return losses.StructuralHinge(losses.L2(MU, TOP_K) if loss == "hinge-l2" else None)
