"""Outputs of linear models over structures: whole, and without their padding."""

import numpy as np
import pytest
import torch

from smoothsp.linear.problems import Parts, Shared, StructureProblem
from smoothsp.linear.solvers import BCFW, SGD, BatchFrankWolfe
from smoothsp.oracles import Alignment, Multiclass, SpanTree

RNG = np.random.default_rng(7)


def near(found, expected, atol=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def constituents(potentials, batch):
    return SpanTree(potentials["spans"], lengths=batch.sizes["spans"][:, 0])


def brackets(n):
    """The tree that splits off one word after another."""
    y = np.full((n, n), -1)
    y[np.arange(n), np.arange(n)] = 0
    y[: n - 1, n - 1] = 0
    return y


def test_trees_of_spans_lose_their_padding_along_both_axes():
    sizes = [2, 4, 1]
    X = RNG.normal(size=(sum(m * m for m in sizes), 3))
    spans = {"spans": Parts(X, [[m, m] for m in sizes])}
    golds = [brackets(m) for m in sizes]
    problem = StructureProblem(constituents, spans, golds)
    w = RNG.normal(size=3)
    assert [y.shape for y in problem.decode(w)] == [(2, 2), (4, 4), (1, 1)]
    for i in range(3):
        alone = problem.subset([i])
        assert np.array_equal(alone.decode(w)[0], problem.decode(w)[i])
    # padded golds are the same problem, also where one example is asked at a time
    padded = np.full((3, 4, 4), -1)
    for y, gold in zip(padded, golds, strict=True):
        y[: len(gold), : len(gold)] = gold
    same = StructureProblem(constituents, spans, padded)
    assert same.checksum == problem.checksum
    for solver in (BCFW(lam=0.3, max_passes=3), SGD(lam=0.3, max_passes=2)):
        found, expected = solver.solve(same), solver.solve(problem)
        near(found.w, expected.w, 0)
    # what a model says may be what it learns from
    StructureProblem(constituents, spans, problem.decode(w)).hinges(w)


def test_outputs_that_are_too_large_or_too_small_are_named():
    X = RNG.normal(size=(2 * 4, 3))
    spans = {"spans": Parts(X, [[2, 2], [2, 2]])}
    for wrong, got in ((brackets(1), r"\(1, 1\)"), (brackets(3), r"\(3, 3\)")):
        message = (
            rf"y: expected an output of shape \(2, 2\).*got one of {got} at example 1"
        )
        with pytest.raises(ValueError, match=message):
            StructureProblem(constituents, spans, [brackets(2), wrong])


def test_alignments_are_decoded_up_to_the_ends_of_both_sequences():
    sizes = [(3, 1), (1, 4), (2, 0)]
    X = RNG.normal(size=(sum(a * b for a, b in sizes), 2))
    match = {"match": Parts(X, sizes)}

    def build(potentials, batch):
        first, second = batch.sizes["match"].unbind(1)
        return Alignment(
            potentials["match"], lengths_first=first, lengths_second=second
        )

    problem = StructureProblem(build, match)
    shapes = [y.shape for y in problem.decode(RNG.normal(size=2))]
    assert shapes == [(a + 1, b + 1) for a, b in sizes]


def test_candidates_may_share_a_potential():
    X, y = RNG.normal(size=(6, 4)), [2, 0, 1]

    def build(potentials, batch):
        scores, size = potentials["scores"], batch.sizes["scores"]
        mask = torch.arange(scores.shape[1]) < size[:, None]
        return Multiclass(scores + potentials["places"][: scores.shape[1]], mask)

    features = {"scores": Parts(X, [3, 1, 2]), "places": Shared((3,))}
    problem = StructureProblem(build, features, y)
    found = BCFW(lam=0.3, tol=1e-7, steps="pairwise").solve(problem)
    near(BatchFrankWolfe(lam=0.3, tol=1e-4).solve(problem).primal, found.primal, 1e-3)
