"""Scores of trees, crossing arcs and spans, and targets of the training."""

import random

import pytest
import torch

from parsing import phrase_grammar
from parsing.baselines import majority_entities, neighbour_heads, right_branching
from smoothsp.data import ConstituencyTree, DependencyTree, trees
from smoothsp.models.constituency_training import allowed_span_labels, binarise
from smoothsp.models.projectivity import (
    crossing_arcs,
    drop_crossing_spans,
    lift_crossing_arcs,
)
from smoothsp.models.tree_scores import attachment_scores, bracket_scores, entity_scores
from smoothsp.oracles import SpanTree
from tests.data.test_trees import BONN, KOELN, ORG, SAID

GOLD = DependencyTree(
    ["Let", "'s", "go", "home"],
    [0, 3, 1, 3],
    ["root", "nsubj:xsubj", "xcomp", "advmod"],
)


def arcs_cross(heads):
    """Whether two arcs cross when drawn above the words, the root before them all."""
    spans = [sorted((head, word)) for word, head in enumerate(heads, start=1)]
    return any(a < c < b < d for a, b in spans for c, d in spans)


def drawn_tree(rng, n):
    order = rng.sample(range(1, n + 1), n)
    heads = [0] * n
    for place, word in enumerate(order[1:], start=1):
        heads[word - 1] = rng.choice(order[:place])
    return heads


def test_a_tree_is_projective_where_no_arcs_cross():
    rng = random.Random(0)
    seen = set()
    for _ in range(300):
        heads = drawn_tree(rng, rng.randint(1, 7))
        crossed = arcs_cross(heads)
        seen.add(crossed)
        assert bool(crossing_arcs(heads)) == crossed
        lifted = lift_crossing_arcs(heads)
        assert not arcs_cross(lifted)
        assert lifted.count(0) == 1
        assert (lifted == heads) != crossed
    assert seen == {True, False}


def test_lifting_by_hand():
    # a hearing is scheduled on the issue today: on the issue hangs from hearing
    heads = [2, 4, 4, 0, 7, 7, 2, 4]
    assert crossing_arcs(heads) == [7]
    assert lift_crossing_arcs(heads) == [2, 4, 4, 0, 7, 7, 4, 4]


def test_scores_by_hand():
    gold = GOLD
    labels = ["root", "nsubj", "ccomp", "advmod"]
    found = DependencyTree(gold.words, [0, 3, 1, 1], labels)
    # of a label what follows the colon does not count; go has a wrong one, home a head
    assert attachment_scores([gold], [found]) == {"las": 2 / 4, "uas": 3 / 4}
    assert attachment_scores([gold], [gold]) == {"uas": 1.0, "las": 1.0}
    other = DependencyTree(["Let"], [0], ["root"])
    assert attachment_scores([gold, other], [found, other]) == {"uas": 0.8, "las": 0.6}
    with pytest.raises(ValueError, match="expected the words of sentence 1"):
        attachment_scores([gold], [other])


def test_neighbours_by_hand():
    gold, yes = GOLD, DependencyTree(["Yes"], [0], ["root"])
    before, _ = neighbour_heads([gold, yes], "previous", "punct")
    assert before.heads == [0, 1, 2, 3]
    assert attachment_scores([gold], [before]) == {"uas": 0.5, "las": 0.25}
    after, _ = neighbour_heads([gold, yes], "next", "punct")
    assert after.heads == [2, 3, 4, 0]


def test_f1_by_hand():
    # 8 constituents count: S, NP, VP, SBAR, S, VP, VP, PRT, and 6 of the 7 are right
    found = ConstituencyTree(
        SAID.words,
        [
            # the full stop takes up no place: right, and so is what PRT is called
            ("S", 0, 4),
            ("NP", 0, 0),
            ("VP", 1, 5),
            ("S+VP", 2, 3),
            ("ADVP", 4, 4),
            ("NP", 2, 2),
            ("TOP", 0, 5),
        ],
    )
    score = bracket_scores([SAID], [found])
    assert score == {"f1": 12 / 15, "precision": 6 / 7, "recall": 6 / 8, "exact": 0.0}
    assert bracket_scores([SAID, found], [SAID, found])["exact"] == 1.0
    # a constituent found twice is right once
    twice = ConstituencyTree(["a"], [("NP+NP", 0, 0)], ["NN"])
    once = ConstituencyTree(["a"], [("NP", 0, 0)], ["NN"])
    assert bracket_scores([once], [twice])["precision"] == 0.5


def test_a_target_is_a_tree_of_the_structure_with_all_its_constituents():
    train, _ = phrase_grammar.make(train=40, dev=1)
    labels = sorted({label for tree in [SAID, *train] for label, _, _ in tree.spans})
    number = {label: n for n, label in enumerate(labels, start=1)}
    for tree in [SAID, *train]:
        y, n = binarise(tree, number), len(tree.words)
        potentials = torch.zeros(1, n, n, len(labels) + 1)
        for label, i, j in tree.spans:
            potentials[0, i, j, number[label]] = 1.0
            assert y[i, j] == number[label]
        structure = SpanTree(potentials)
        # no tree has more of them, and this one is a tree
        assert structure.score(y[None]) == structure.decode()[0] == len(tree.spans)


def test_right_branching_by_hand():
    usual = ConstituencyTree(["a", "b"], [("S", 0, 1), ("VP", 0, 0), ("VP", 1, 1)])
    one = ConstituencyTree(["a"], [("NP", 0, 0)])
    said, short = right_branching([usual], [SAID, one])
    assert said.spans == [("S", 0, 5), *(("VP", i, 5) for i in range(1, 5))]
    assert short.spans == [("S", 0, 0)]


def test_f1_counts_both_levels():
    words = list("abcdef")
    gold = trees.nest_entities(words, [ORG, KOELN, BONN])
    assert set(entity_scores([gold], [gold]).values()) == {1.0}
    # one outer missed, so that its inner one is an outer
    found = entity_scores([gold], [trees.nest_entities(words, [KOELN, BONN])])
    assert found["precision"] == 1.0 and found["recall"] == pytest.approx(2 / 3)
    assert found["f1"] == pytest.approx(0.8)
    assert found["outer"] == pytest.approx(2 * 1 / (2 + 2))
    assert found["inner"] == found["exact"] == 0
    # another type
    other = trees.nest_entities(words, [("PER", 0, 3), KOELN, BONN])
    assert entity_scores([gold], [other])["f1"] == pytest.approx(2 / 3)
    assert entity_scores([gold], [other])["inner"] == 1.0


@pytest.mark.parametrize(
    ("entities", "count"),
    [
        # trees with two branches over 5 words; over 4 parts and over 2; over 3 and 3
        ([], 14),
        ([("X", 0, 1)], 5),
        ([("X", 2, 3)], 5),
        ([("X", 1, 3)], 4),
        ([("X", 2, 4), ("Y", 3, 4), ("Y", 0, 0)], 2),
    ],
)
def test_any_tree_with_two_branches_that_holds_the_entities_is_right(entities, count):
    tree = trees.nest_entities(list("abcde"), entities)
    number = {"TOP": 1, "X": 2, "Y": 3}
    allowed = allowed_span_labels(tree, number)[None]
    within = SpanTree(torch.zeros(1, 5, 5, 4)).restrict(allowed)
    assert within.log_count().exp().item() == pytest.approx(count)
    for y in within.decode_topk(count)[1][0]:
        assert all(y[i, j] == number[label] for label, i, j in tree.spans)
        assert (y > 0).sum() == len(tree.spans)
    assert within.restrict(allowed).score(binarise(tree, number)[None]) == 0


def test_entities_that_cross_leave_the_first():
    tree = trees.nest_entities(list("abcd"), [("X", 0, 2), ("Y", 1, 3), ("Z", 1, 2)])
    kept = drop_crossing_spans(tree)
    assert kept.spans == [("TOP", 0, 3), ("X", 0, 2), ("Z", 1, 2)]
    # one that begins before it, too
    tree = trees.nest_entities(list("abcd"), [("X", 1, 3), ("Y", 0, 2)])
    assert drop_crossing_spans(tree).spans == [("TOP", 0, 3), ("X", 1, 3)]


def test_names_of_training_are_looked_up():
    train = [trees.nest_entities(list("abc"), [("X", 0, 1), ("Y", 0, 0)])]
    found = majority_entities(train, [trees.nest_entities(list("cabab"), [])])
    assert sorted(trees.entities(found[0])) == [
        ("X", 1, 2), ("X", 3, 4), ("Y", 1, 1), ("Y", 3, 3)
    ]  # fmt: skip
