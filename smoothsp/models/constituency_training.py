"""Training of constituency parsers, and of parsers of nested named entities."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from smoothsp import losses
from smoothsp.data import ConstituencyTree, as_trees
from smoothsp.data.trees import entities, levels, nest_entities
from smoothsp.models.constituency_parser import (
    ConstituencyParser,
    require_max_words,
    warn_unseen_labels,
)
from smoothsp.models.encoder import Encoder
from smoothsp.models.features import Corpus, Vocabulary
from smoothsp.models.projectivity import drop_crossing_spans
from smoothsp.models.span_scores import SpanScores
from smoothsp.models.tree_options import ConstituencyOptions
from smoothsp.models.tree_training import Examples, load_encoder, train_parser
from smoothsp.models.word_vectors import ParserSizes
from smoothsp.oracles import SpanTree
from smoothsp.training import seed_all

__all__ = ["allowed_span_labels", "binarise", "train"]

MU, TOP_K = 1.0, 5
# Words of a sentence to train on, and sentences of a step.
LONGEST, BATCH = 60, 16


def train(
    data: Any,
    dev: Any,
    encoder: Encoder | str | None,
    options: ConstituencyOptions,
    **run: Any,
) -> ConstituencyParser:
    """Train a parser: see ``ConstituencyParser.train``.

    ``run`` has arguments of ``trained``.
    """
    examples = Examples.of(as_trees, data, dev, LONGEST)
    trees: list[ConstituencyTree] = examples.train
    depth = 0
    if not options.nested:
        # those with two labels, or without one of the whole sentence, too
        trees = as_trees([(tree.words, tree.spans) for tree in trees])
    else:
        depth = max([2, *(level for tree in trees for level, _ in levels(tree))])
        trees = [
            drop_crossing_spans(nest_entities(tree.words, entities(tree)))
            for tree in trees
        ]
    labels = sorted({label for tree in trees for label, _, _ in tree.spans})
    seed_all(options.seed, 0)
    words = [tree.words for tree in trees]
    vocabulary = Vocabulary.of(words, [])
    inner = load_encoder(encoder)
    name = "given" if isinstance(encoder, Encoder) else encoder
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = ParserSizes(hidden=options.hidden)
    network = SpanScores(vocabulary, labels, sizes, inner).to(device)
    parser = ConstituencyParser(
        network, vocabulary, labels, None, options.tokenizer, depth
    )
    corpus = Corpus(vocabulary, words, None, inner)
    require_max_words("dev", [tree.words for tree in examples.dev])
    warn_unseen_labels("dev", examples.dev, labels)
    train_parser(
        parser,
        _loss(network, corpus, trees, labels, options),
        corpus,
        BATCH,
        lambda: {"f1": parser.scores(examples.dev)["f1"]},
        "f1",
        {"data": examples.about, "encoder": name},
        options,
        **run,
    )
    return parser


def _loss(
    network: SpanScores,
    corpus: Corpus,
    trees: Sequence[ConstituencyTree],
    labels: Sequence[str],
    options: ConstituencyOptions,
) -> Callable[[Tensor], Tensor]:
    number = {label: n for n, label in enumerate(labels, start=1)}
    criterion = _criterion(options)
    # of few entities most spans are none: any tree that holds them will do
    read, none = (allowed_span_labels, False) if options.nested else (binarise, -1)
    targets = [read(tree, number) for tree in trees]

    def loss(numbers: Tensor) -> Tensor:
        batch = corpus.batch(numbers)
        B, n = batch.mask.shape
        gold = targets[0].new_full((B, n, n, *targets[0].shape[2:]), none)
        for row, chosen in enumerate(numbers.tolist()):
            size = len(targets[chosen])
            gold[row, :size, :size] = targets[chosen]
        lengths = batch.mask.sum(1).to(network.device)
        structure = SpanTree(network(batch), lengths=lengths)
        found: Tensor = criterion(structure, gold.to(network.device))
        return found

    return loss


def _criterion(options: ConstituencyOptions) -> nn.Module:
    """The loss to one tree, or to the best of several, or to all of these."""
    if options.loss == "crf":
        return losses.MarginalLikelihood() if options.nested else losses.CRFLoss()
    smoothing = losses.L2(MU, TOP_K) if options.loss == "hinge-l2" else None
    hinge = losses.LatentHinge if options.nested else losses.StructuralHinge
    return hinge(smoothing)


def binarise(tree: ConstituencyTree, number: dict[str, int]) -> Tensor:
    """Binarise a tree, as ``SpanTree`` has it: ``(n, n)``.

    A constituent of more than two parts is that of its first part and of a span of all
    others, which is no constituent.
    """
    n = len(tree.words)
    found = torch.full((n, n), -1)
    known = {(i, j): number[label] for label, i, j in tree.spans}
    inner = {
        i: sorted(j for first, j in known if first == i) for i in range(n)
    }  # the last words of those that begin at i

    def fill(i: int, j: int) -> None:
        while True:
            found[i, j] = known.get((i, j), 0)
            if i == j:
                return
            # the first part: the longest constituent from i on that ends before j
            split = max((last for last in inner[i] if last < j), default=i)
            fill(i, split)
            i = split + 1

    fill(0, n - 1)
    return found


def allowed_span_labels(tree: ConstituencyTree, number: dict[str, int]) -> Tensor:
    """Return the labels that each span may have in any binary tree that holds a tree.

    ``(n, n, 1 + labels)``: constituents have theirs, spans that cross one have none,
    all others are no constituents. A tree without spans that cross a constituent holds
    that constituent.
    """
    n = len(tree.words)
    found = torch.zeros(n, n, 1 + len(number), dtype=torch.bool)
    found[..., 0] = True
    for _, a, b in tree.spans:
        found[:a, a:b] = False
        found[a + 1 : b + 1, b + 1 :] = False
    for label, a, b in tree.spans:
        found[a, b] = False
        found[a, b, number[label]] = True
    return found
