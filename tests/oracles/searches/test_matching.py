"""Matchings: larger ones, their certificate, max-marginals, empty ones."""

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch.testing import assert_close

from smoothsp._kernels.searches import assignment
from smoothsp.oracles import Matching
from smoothsp.oracles._partition import bmmf
from tests.truth.circuits.cases import SEARCHES, draw

KINDS = [kind for kind in SEARCHES if kind.startswith("matching")]


def scores_of(seed, *shape, ties=False):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    return (2 * drawn).round() if ties else drawn


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("P", "Q"), [(1, 1), (30, 30), (12, 31), (31, 12), (100, 100)])
def test_the_best_is_that_of_scipy(P, Q, ties):
    scores = scores_of(P + Q, 3, P, Q, ties=ties)
    scores[
        torch.rand(scores.shape, generator=torch.Generator().manual_seed(0)) < 0.2
    ] = -1e9
    value, y = Matching(scores).decode()
    expected = [float(x[linear_sum_assignment(-x)].sum()) for x in scores.numpy()]
    assert_close(value, torch.tensor(expected, dtype=torch.float64))
    assert ((y >= 0).sum(1) == min(P, Q)).all()


@pytest.mark.parametrize("ties", [False, True])
def test_prices_prove_the_maximum(ties):
    for N in (1, 2, 9, 40):
        scores = scores_of(N, 8, N, N, ties=ties)
        scores = scores.masked_fill(scores > 1.5, -torch.inf)
        scores[:, range(N), range(N)] = 0.0
        columns, found = np.empty((8, N), np.int64), np.empty(8, np.bool_)
        u, v = np.empty((8, N)), np.empty((8, N))
        assignment.best(0, 8, scores.numpy(), columns, u, v, found)
        assert found.all()
        slack = u[:, :, None] + v[:, None] - scores.numpy()
        assert (slack >= -1e-12).all()
        kept = np.take_along_axis(slack, columns[..., None], 2)
        assert np.abs(kept).max() < 1e-12
        assert (np.sort(columns, 1) == np.arange(N)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_max_marginals_are_those_of_the_enumeration(kind):
    for seed in range(6):
        case = draw(kind, seed)
        found = case.structure().max_marginals()
        for b, outputs in enumerate(case.outputs):
            expected = torch.full_like(found[b], -torch.inf)
            for y, score in zip(outputs, case.scores(b), strict=True):
                for _, (_, i, j) in case.parts(b, y):
                    expected[i, j] = torch.maximum(expected[i, j], score)
            assert_close(found[b], expected, rtol=1e-9, atol=1e-9)


def test_max_marginals_of_a_known_matching():
    scores = torch.tensor([[[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]]])
    found = Matching(scores).max_marginals()
    assert found.tolist() == [[[11, 9, 7], [7, 6, 11], [9, 11, 6]]]


@pytest.mark.parametrize("ties", [False, True])
def test_the_k_best_are_also_found_by_max_marginals(ties):
    scores = scores_of(5, 6, 7, 7, ties=ties)
    scores[0] = scores[0].masked_fill(scores[0] > 1, -torch.inf)
    scores[0].fill_diagonal_(0)
    built = Matching(scores)
    values, ys, valid = built.decode_topk(25)
    tables = scores.numpy()

    def solve(tables, rows):
        columns, _, _, found = built._assigned(np.ascontiguousarray(tables))
        return columns, found

    def marginals(tables, rows):
        return built._max_marginals(tables)

    outputs, exist = bmmf.k_best(tables, 25, solve, marginals)
    assert (torch.from_numpy(exist) == valid).all()
    found = torch.from_numpy(outputs)
    for b in range(len(scores)):
        n = int(valid[b].sum())
        assert len(found[b, :n].unique(dim=0)) == n
        listed = built.select(torch.tensor([b])).score(found[b : b + 1, :n])
        assert_close(listed[0], values[b, :n])
    assert len(ys[1].unique(dim=0)) == 25


def test_nobody_to_match():
    for B, P, Q in ((0, 3, 3), (2, 0, 0), (2, 0, 3), (2, 3, 0)):
        for partial in (False, True):
            scores = torch.zeros(B, P, Q + partial, requires_grad=True)
            built = Matching(scores, partial=partial)
            value, y = built.decode()
            values, ys, valid = built.decode_topk(3)
            assert value.tolist() == [0.0] * B
            assert (
                y.tolist() == [[-1] * P] * B if Q == 0 or P == 0 else y.shape == (B, P)
            )
            if B and (P == 0 or Q == 0):
                assert valid.tolist() == [[True, False, False]] * B
            assert built.max_marginals().shape == scores.shape
            (value.sum() + values[valid].sum()).backward()
            assert ys.shape == (B, 3, P)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Matching(torch.zeros(2, 3)), "scores: "),
        (lambda: Matching(torch.zeros(2, 3, 0), partial=True), "scores: "),
        (
            lambda: Matching(torch.zeros(1, 2, 2)).score(torch.tensor([[0, 0]])),
            r"y: expected columns of rows, none of them twice.*got \[0, 0\] at row 0",
        ),
        (
            lambda: Matching(torch.zeros(1, 2, 2)).score(torch.tensor([[0, -1]])),
            r"y: expected columns of rows.*got \[0, -1\] at row 0",
        ),
        (
            lambda: Matching(
                torch.tensor([[[0.0, -torch.inf], [1.0, -torch.inf]]])
            ).decode(),
            "scores: row 0 has no feasible output",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
