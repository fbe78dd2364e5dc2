"""Training of constituency parsers and of parsers of nested entities."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from smoothsp import losses
from smoothsp.data import ConstituencyTree, as_trees
from smoothsp.data.trees import entities, levels, nest_entities
from smoothsp.models.constituency_parser import (
    ConstituencyParser,
    require_short_sentences,
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
# Maximum number of words of a training sentence, and sentences a step.
MAX_TRAINING_LENGTH, BATCH_SIZE = 60, 16


def train(
    data: Any,
    dev: Any,
    encoder: Encoder | str | None,
    options: ConstituencyOptions,
    **run: Any,
) -> ConstituencyParser:
    """Train a parser; see ``ConstituencyParser.train``.

    ``run`` holds further arguments of ``train_parser``.
    """
    examples = Examples.load(as_trees, data, dev, MAX_TRAINING_LENGTH)
    trees: list[ConstituencyTree] = examples.train
    depth = 0
    if not options.nested:
        # The conversion joins labels of the same span and adds a root where missing.
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
    vocabulary = Vocabulary.from_sentences(words, [])
    loaded_encoder = load_encoder(encoder)
    name = "given" if isinstance(encoder, Encoder) else encoder
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = ParserSizes(hidden=options.hidden)
    network = SpanScores(vocabulary, labels, sizes, loaded_encoder).to(device)
    parser = ConstituencyParser(
        network, vocabulary, labels, None, options.tokenizer, depth
    )
    corpus = Corpus(vocabulary, words, None, loaded_encoder)
    require_short_sentences("dev", [tree.words for tree in examples.dev])
    warn_unseen_labels("dev", examples.dev, labels)
    train_parser(
        parser,
        _build_loss(network, corpus, trees, labels, options),
        corpus,
        BATCH_SIZE,
        lambda: {"f1": parser.scores(examples.dev)["f1"]},
        "f1",
        {"data": examples.description, "encoder": name},
        options,
        **run,
    )
    return parser


def _build_loss(
    network: SpanScores,
    corpus: Corpus,
    trees: Sequence[ConstituencyTree],
    labels: Sequence[str],
    options: ConstituencyOptions,
) -> Callable[[Tensor], Tensor]:
    label_index = {label: n for n, label in enumerate(labels, start=1)}
    criterion = _build_criterion(options)
    # Entities determine few spans, so every binary tree that contains them is gold.
    make_target, padding_value = (
        (allowed_span_labels, False) if options.nested else (binarise, -1)
    )
    targets = [make_target(tree, label_index) for tree in trees]

    def compute_loss(sentence_indices: Tensor) -> Tensor:
        batch = corpus.batch(sentence_indices)
        B, n = batch.mask.shape
        gold = targets[0].new_full((B, n, n, *targets[0].shape[2:]), padding_value)
        for row, chosen in enumerate(sentence_indices.tolist()):
            size = len(targets[chosen])
            gold[row, :size, :size] = targets[chosen]
        lengths = batch.mask.sum(1).to(network.device)
        structure = SpanTree(network(batch), lengths=lengths)
        loss_value: Tensor = criterion(structure, gold.to(network.device))
        return loss_value

    return compute_loss


def _build_criterion(options: ConstituencyOptions) -> nn.Module:
    """Build the loss: for one gold tree, or latent over a set of gold trees."""
    if options.loss == "crf":
        return losses.MarginalLikelihood() if options.nested else losses.CRFLoss()
    smoothing = losses.L2(MU, TOP_K) if options.loss == "hinge-l2" else None
    hinge = losses.LatentHinge if options.nested else losses.StructuralHinge
    return hinge(smoothing)


def binarise(tree: ConstituencyTree, label_index: dict[str, int]) -> Tensor:
    """Binarise a tree as an output ``(n, n)`` of ``SpanTree``.

    Entries are label indices from 1, 0 for spans that are no constituents, -1 for spans
    outside of the tree. A constituent of more than two parts splits into its first part
    and a span of the rest, labelled 0.
    """
    n = len(tree.words)
    labels = torch.full((n, n), -1)
    label_by_span = {(i, j): label_index[label] for label, i, j in tree.spans}
    inner = {
        i: sorted(j for first, j in label_by_span if first == i) for i in range(n)
    }  # the last words of constituents that begin at i

    def fill(i: int, j: int) -> None:
        while True:
            labels[i, j] = label_by_span.get((i, j), 0)
            if i == j:
                return
            # The first part is the longest constituent that starts at i and ends before
            # j, or the word i.
            split = max((last for last in inner[i] if last < j), default=i)
            fill(i, split)
            i = split + 1

    fill(0, n - 1)
    return labels


def allowed_span_labels(tree: ConstituencyTree, label_index: dict[str, int]) -> Tensor:
    """Return the labels of each span in binary trees that contain a tree.

    bool ``(n, n, 1 + labels)``. A constituent has its label only, a span that crosses a
    constituent has none, and all others have label 0, no constituent. A binary tree
    without spans that cross a constituent contains that constituent.
    """
    n = len(tree.words)
    allowed = torch.zeros(n, n, 1 + len(label_index), dtype=torch.bool)
    allowed[..., 0] = True
    for _, a, b in tree.spans:
        # Spans that start before a and end inside, or start inside and end after b.
        allowed[:a, a:b] = False
        allowed[a + 1 : b + 1, b + 1 :] = False
    for label, a, b in tree.spans:
        allowed[a, b] = False
        allowed[a, b, label_index[label]] = True
    return allowed
