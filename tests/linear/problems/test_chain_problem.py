"""Problems of chains: hinges and labellings by enumeration, and what is refused."""

import numpy as np
import pytest
from scipy import sparse

from smoothsp.linear.problems import ChainProblem, MulticlassProblem
from tests.sweeps import thinned
from tests.truth.linear_chain import (
    corners,
    cost,
    labellings,
    phi,
    random_chain,
    random_rows,
)

SIZES = [(2, 3), (3, 4), (9, 2), (12, 2), (17, 2), (26, 2), (40, 1)]


def costs(rng, S):
    C = rng.random((S, S))
    np.fill_diagonal(C, 0)
    return C


@pytest.mark.parametrize("boundaries", thinned([True, False], 2))
@pytest.mark.parametrize("S,longest", SIZES)
def test_hinges_and_best_labels_are_those_of_the_enumeration(S, longest, boundaries):
    rng = np.random.default_rng(S)
    problem = random_chain(
        S, n=4, S=S, longest=longest, boundaries=boundaries, cost=costs(rng, S),
        cost_scale=rng.random(4) + 0.1,
    )  # fmt: skip
    w = rng.normal(size=problem.num_weights)
    hinges, labels = problem.hinges(w), problem.decode(w)
    for i in range(len(problem)):
        psi, loss, _ = corners(problem, i)
        np.testing.assert_allclose(hinges[i], (loss - psi @ w).max(), rtol=1e-12)
        scores = [w @ phi(problem, i, y) for y in labellings(problem, i)]
        found = labels[problem.offsets[i] : problem.offsets[i + 1]]
        np.testing.assert_allclose(w @ phi(problem, i, found), max(scores), rtol=1e-12)


def test_float32_features_give_float64_scores_of_the_rounded_numbers():
    rng = np.random.default_rng(0)
    X = random_rows(rng, 6, 5).astype(np.float32)
    labels = np.array([0, 1, 2, 0, 1, 2])
    narrow = ChainProblem(X, labels, lengths=[4, 2])
    wide = ChainProblem(X.astype(np.float64), labels, lengths=[4, 2])
    w = rng.normal(size=wide.num_weights)
    assert narrow.values.dtype == np.float32
    np.testing.assert_array_equal(narrow.hinges(w), wide.hinges(w))


def test_at_zero_weights_the_primal_is_the_mean_of_the_largest_costs():
    problem = random_chain(1, n=5)
    worst = [max(cost(problem, i, y) for y in labellings(problem, i)) for i in range(5)]
    zero = np.zeros(problem.num_weights)
    np.testing.assert_allclose(problem.primal(zero, 0.3), np.mean(worst))


def test_classes_are_sentences_of_one_word():
    rng = np.random.default_rng(3)
    X, y = random_rows(rng, 7, 4), rng.integers(3, size=7)
    C = costs(rng, 3)
    classes = MulticlassProblem(X, y, num_labels=3, cost=C)
    words = ChainProblem(
        X, y, lengths=np.ones(7, int), num_labels=3, cost=C, boundaries=False
    )
    w = rng.normal(size=classes.num_weights)
    padded = np.concatenate([w, rng.normal(size=9)])
    assert classes.num_weights == 12
    np.testing.assert_array_equal(classes.hinges(w), words.hinges(padded))
    np.testing.assert_array_equal(classes.decode(w), words.decode(padded))
    scores = X @ w.reshape(4, 3)
    truth = (C[y] + scores).max(1) - scores[np.arange(7), y]
    np.testing.assert_allclose(classes.hinges(w), truth, rtol=1e-12)


def test_a_subset_keeps_its_sentences():
    problem = random_chain(2, n=6, cost_scale=np.arange(1.0, 7))
    w = np.random.default_rng(0).normal(size=problem.num_weights)
    for rows in ([4, 1], np.array([False, True, True, False, False, True])):
        part = problem.subset(rows)
        np.testing.assert_array_equal(part.hinges(w), problem.hinges(w)[rows])
    with pytest.raises(ValueError, match="rows: expected at least one sequence"):
        problem.subset([])


def test_weights_are_split_into_views():
    problem = random_chain(0)
    w = np.zeros(problem.num_weights)
    for number, part in enumerate(problem.split(w), 1):
        part[:] = number
    sizes = [5 * 3, 3 * 3, 3, 3]
    np.testing.assert_array_equal(w, np.repeat([1, 2, 3, 4], sizes))
    np.testing.assert_array_equal(problem.plain_weights(problem.padded_weights(w)), w)


def test_sentences_may_be_given_one_by_one():
    whole = random_chain(5, n=3)
    X = sparse.csr_matrix((whole.values, whole.indices, whole.indptr))
    X.resize(len(whole.labels), whole.num_features)
    cuts = list(zip(whole.offsets[:-1], whole.offsets[1:], strict=True))
    for form in (sparse.csr_matrix.toarray, sparse.csr_matrix.copy):
        one_by_one = ChainProblem.from_sequences(
            [form(X[a:b]) for a, b in cuts],
            [whole.labels[a:b] for a, b in cuts],
            num_labels=3,
        )
        w = np.random.default_rng(0).normal(size=whole.num_weights)
        np.testing.assert_array_equal(one_by_one.hinges(w), whole.hinges(w))


def out_of_range():
    X = sparse.csr_matrix(np.eye(2))
    X.indices[1] = 7
    return X


def falling():
    X = sparse.csr_matrix(np.eye(2))
    X.indptr[1] = 5
    return X


@pytest.mark.parametrize(
    "features,message",
    [
        (out_of_range(), "column indices from 0 to 1, got 7 in row 1"),
        (
            falling(),
            "indptr of 3 numbers that rise from 0 to at most the number of entries, 2",
        ),
        (np.array([[1.0], [np.nan]]), "finite numbers, got nan in row 1, column 0"),
        (np.ones(2), r"expected \(positions, features\), got shape \(2,\)"),
        (np.ones((2, 0)), "columns, got 0"),
    ],
)
def test_wrong_features_are_named(features, message):
    with pytest.raises(ValueError, match=message):
        ChainProblem(features, [0, 1], lengths=[2])


@pytest.mark.parametrize(
    "labels,options,message",
    [
        ([0, 1], {"lengths": [2, 1]}, "one for each of 3 rows of features, got 2"),
        ([0, 1, 1], {"lengths": [2]}, "cover the 3 rows of features, got 0 to 2"),
        ([0, 1, 1], {"lengths": []}, "at least one sequence, got none"),
        ([0, 0, 0], {"lengths": [3]}, "two different labels, got only one"),
        ([0, 1, 2], {"lengths": [3], "num_labels": 2}, "0 to 1, got 2 at position 2"),
        ([0, -1, 1], {"lengths": [3]}, "0 to 1, got -1 at position 1"),
        ([0, 1, 1], {"lengths": [3], "cost": np.ones((3, 3))}, r"\(2, 2\), got \(3"),
        ([0, 1, 1], {"lengths": [3], "cost": np.ones((2, 2))}, "zeros on the diag"),
        ([0, 1, 1], {"lengths": [3], "cost_scale": [0.0]}, "got 0.0 at example 0"),
    ],
)
def test_wrong_labels_and_costs_are_named(labels, options, message):
    with pytest.raises(ValueError, match=message):
        ChainProblem(np.eye(3), labels, **options)


def test_wrong_kinds_are_named():
    with pytest.raises(TypeError, match="labels: expected a flat array of integers"):
        ChainProblem(np.eye(2), [0.5, 1.0], lengths=[2])
    with pytest.raises(TypeError, match="expected real numbers, got complex"):
        ChainProblem(1j * np.eye(2), [0, 1], lengths=[2])
    with pytest.raises(ValueError, match=r"w: expected \(30,\) weights, got \(4,\)"):
        random_chain().hinges(np.zeros(4))


def test_a_sentence_that_does_not_fit_its_labels_is_named():
    X = [np.ones((2, 3)), np.ones((3, 3))]
    with pytest.raises(ValueError, match="3 positions of sequence 1, got 2"):
        ChainProblem.from_sequences(X, [[0, 1], [0, 1]])
    with pytest.raises(ValueError, match=r"\(positions, 3\) at sequence 1"):
        ChainProblem.from_sequences([X[0], np.ones((2, 2))], [[0, 1], [0, 1]])
    problem = ChainProblem.from_sequences([X[0], np.ones((0, 3))], [[0, 1], []])
    assert problem.offsets.tolist() == [0, 2, 2]


def sparse_words(seed=0, n=8, S=4, d=9):
    """Sentences of indicators, in which many pairs do not occur."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[0, 1], rng.integers(2, 5, size=n - 2)])
    words = int(lengths.sum())
    X = sparse.csr_matrix(rng.random((words, d)) < 0.3, dtype=float)
    return X, rng.integers(S, size=words), lengths


def pairs_that_occur(problem, kept=None):
    """One bool a weight, by loops."""
    W = np.zeros(problem.num_weights, dtype=bool)
    for i in range(len(problem)) if kept is None else kept:
        first, last = problem.offsets[i], problem.offsets[i + 1]
        if last > first:
            W |= phi(problem, i, problem.labels[first:last]) != 0
    return W


@pytest.mark.parametrize("boundaries", [True, False])
def test_only_pairs_that_occur_have_weights(boundaries):
    X, y, lengths = sparse_words()
    given = {"lengths": lengths, "num_labels": 4, "boundaries": boundaries}
    every = ChainProblem(X, y, **given)
    problem = ChainProblem(X, y, **given, all_pairs=False)
    occurs = pairs_that_occur(every)
    assert 0 < occurs.sum() < 0.7 * len(occurs)
    rng = np.random.default_rng(1)
    w = rng.normal(size=len(occurs))
    kept = np.where(occurs, w, 0.0)
    np.testing.assert_array_equal(problem.hinges(w), every.hinges(kept))
    for name in ("risk", "likelihood"):
        value, slope = getattr(problem, name)(w)
        truth, full = getattr(every, name)(kept)
        assert value == truth
        np.testing.assert_array_equal(slope, np.where(occurs, full, 0.0))
    worst, whole = problem.worst(3, w), every.worst(3, kept)
    assert worst.loss == whole.loss
    np.testing.assert_array_equal(worst.psi, np.where(occurs, whole.psi, 0.0))
    # parts of it have the pairs of all
    part = problem.subset([2, 3])
    np.testing.assert_array_equal(part.hinges(w), every.hinges(kept)[[2, 3]])
    assert problem.checksum != every.checksum


def test_sentences_that_do_not_count_have_no_pairs():
    X, y, lengths = sparse_words()
    scale = np.array([1.0, 1, 0, 2, 1, 0, 1, 1])
    given = {"lengths": lengths, "num_labels": 4, "all_pairs": False}
    problem = ChainProblem(X, y, **given, loss_scale=scale)
    occurs = pairs_that_occur(problem, np.flatnonzero(scale))
    assert (occurs != pairs_that_occur(problem)).any()
    ones = problem.padded_weights(np.ones(problem.num_weights))
    np.testing.assert_array_equal(problem.plain_weights(ones) > 0, occurs)
