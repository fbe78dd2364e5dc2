"""Matchings: larger ones, their certificate, max-marginals, empty ones."""

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch.testing import assert_close

from smoothsp.oracles import Matching
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
