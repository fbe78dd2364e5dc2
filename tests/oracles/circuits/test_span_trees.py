"""What trees over spans have besides the laws of circuits: counts, sizes, messages."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from torch.testing import assert_close

from smoothsp._kernels.circuits.layout.addresses import address_table
from smoothsp.losses.functional import marginal_nll, structural_hinge
from smoothsp.oracles import Grammar, SpanTree


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4)).double()


@pytest.mark.parametrize("n", [1, 2, 7, 15])
def test_trees_are_counted_by_catalan_numbers(n):
    count = SpanTree(torch.zeros(1, n, n).double()).log_count().exp()
    catalan = math.comb(2 * n - 2, n - 1) / n
    assert_close(count, torch.tensor([catalan]).double())
    labelled = SpanTree(torch.zeros(1, n, n, 3).double()).log_count()
    assert_close(labelled, count.log() + (2 * n - 1) * math.log(3))


def test_costs_and_restrictions_of_a_grammar_may_be_those_of_words():
    words, rules, lengths = drawn(2, 4, 3), drawn(3, 3, 3), torch.tensor([4, 2])
    cost, allowed = drawn(2, 4, 3), drawn(2, 4, 3) > -0.5
    built = Grammar(words, rules, lengths=lengths)
    barred = words.masked_fill(~allowed, -torch.inf)
    augmented = Grammar(words + cost, rules, lengths=lengths)
    restricted = Grammar(barred, rules, lengths=lengths)
    assert_close(built.augment(cost).log_partition(), augmented.log_partition())
    assert_close(built.restrict(allowed).log_partition(), restricted.log_partition())
    y = built.decode()[1]
    assert_close(
        structural_hinge(built, y, cost=cost),
        augmented.decode()[0] - built.score(y),
    )
    assert_close(marginal_nll(built, allowed), -built.log_prob_within(allowed))
    with pytest.raises(ValueError, match="cost: "):
        built.augment(cost[:, :3])


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("B", [0, 1])
@pytest.mark.parametrize("kind", ["plain", "labelled", "grammar"])
def test_small_sizes(kind, B, n):
    spans = (drawn(B, n, n) if kind == "plain" else drawn(B, n, n, 1)).requires_grad_()
    rules = drawn(1, 1, 1)
    trees = Grammar(spans, rules) if kind == "grammar" else SpanTree(spans)
    value, y = trees.decode()
    assert_close(trees.score(y), value)
    assert y.shape == (B, n, n)
    assert (y >= 0).sum() == B * max(2 * n - 1, 0)
    assert trees.hamming(y).shape == spans.shape
    assert trees.sample(2).shape == (B, 2, n, n)
    trees.log_partition().sum().backward()
    assert spans.grad.isfinite().all()


def test_a_tree_with_one_span_more_or_less_is_refused():
    trees = SpanTree(drawn(1, 4, 4, 2))
    y = trees.decode()[1]
    for place in (0, 1), (1, 2), (0, 0), (0, 3), (2, 3):
        other = y.clone()
        other[0][place] = -1 if y[0][place] >= 0 else 0
        with pytest.raises(ValueError, match="y: "):
            trees.score(other)
    other = torch.where(y >= 0, 2, -1)
    with pytest.raises(ValueError, match="y: "):
        trees.score(other)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: SpanTree(drawn(2, 3)), ValueError, "spans: "),
        (lambda: SpanTree(drawn(2, 3, 4)), ValueError, "spans: "),
        (lambda: SpanTree(drawn(2, 3, 3, 0)), ValueError, "at least one label"),
        (
            lambda: SpanTree(drawn(1, 3, 3), lengths=torch.tensor([4])),
            ValueError,
            "lengths: .* got 4 at row 0",
        ),
        (lambda: Grammar(drawn(1, 3), drawn(3, 3, 3)), ValueError, "spans: "),
        (lambda: Grammar(drawn(1, 3, 2), drawn(2, 2)), ValueError, "rules: "),
        (lambda: Grammar(drawn(1, 3, 2), drawn(2, 2, 2).float()), TypeError, "rules: "),
        (
            lambda: Grammar(drawn(1, 3, 2), drawn(2, 2, 2), drawn(3)),
            ValueError,
            "top: ",
        ),
    ],
)
def test_wrong_arguments_are_named(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def saved_and_loaded(built):
    return pickle.loads(pickle.dumps(built))


@pytest.mark.parametrize("again", [copy.deepcopy, saved_and_loaded])
@pytest.mark.parametrize("lengths", [None, torch.tensor([4, 2, 0])])
def test_a_copy_reads_its_own_memory(again, lengths):
    draw = torch.Generator().manual_seed(0)
    built = SpanTree(torch.randn(3, 4, 4, generator=draw).double(), lengths=lengths)
    other = again(built)
    asked = other._circuit_batch
    assert_array_equal(asked.edges_address, address_table(asked.edges))
    assert_array_equal(asked.rows_address, address_table(asked.rows))
    assert not np.isin(
        asked.rows_address[:, 0], built._circuit_batch.rows_address[:, 0]
    ).any()
    assert_close(other.log_partition(), built.log_partition())
    assert_close(other.select(torch.arange(2)).decode()[1], built.decode()[1][:2])
