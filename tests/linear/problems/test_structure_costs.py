"""What outputs cost in linear models over structures."""

import numpy as np
import pytest
import torch

from smoothsp.linear.problems import Parts, StructureProblem
from smoothsp.oracles import Multiclass

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 3))


class Classes:
    """One of some classes: it only decodes."""

    def __init__(self, scores):
        self.scores = scores
        self.lengths = torch.ones(len(scores), dtype=torch.int64)

    def score(self, y):
        return self.scores.gather(1, y[:, None]).squeeze(1)

    def hamming(self, y):
        return torch.ones_like(self.scores.detach()).scatter(1, y[:, None], 0)

    def augment(self, cost):
        return type(self)(self.scores + cost)

    def decode(self):
        return tuple(self.scores.max(1))


class Detached(Classes):
    def augment(self, cost):
        return Detached(self.scores + cost.detach())


class Flags(Classes):
    """Yes or no, of one score and one cost."""

    def score(self, y):
        return self.scores * y

    def hamming(self, y):
        return 1.0 - y

    def decode(self):
        return self.scores.clamp(min=0), (self.scores > 0).long()


def problem_of(structure, **options):
    parts = Parts(X, [()] * 4, states=3)
    build = lambda potentials, _: structure(potentials["scores"])  # noqa: E731
    return StructureProblem(build, {"scores": parts}, [0, 1, 2, 0], **options)


def test_costs_without_a_derivative_are_refused():
    assert problem_of(Classes).worst(0, np.zeros(9)).loss == 1.0
    with pytest.raises(ValueError, match=r"build: .* differentiable .* got Detached"):
        problem_of(Detached)


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (lambda s, y: -s.hamming(y), ValueError, "at least 0, got -1 at example 0, en"),
        (lambda s, y: s.hamming(y) * np.nan, ValueError, "cost: expected finite num"),
        (lambda s, y: s.hamming(y) + 0.5, ValueError, "gold output uses, got 0.5"),
        (lambda s, y: s.hamming(y).sum(), ValueError, r"\(4, ...\), .* shape \(\)"),
        (lambda s, y: s.hamming(y)[:2], ValueError, r"got shape \(2, 3\)"),
        (lambda s, y: s.hamming(y) + 0j, TypeError, "cost: expected a dense tensor"),
        (lambda s, y: s.hamming(y).to_sparse(), TypeError, "cost: expected a dense"),
    ],
)
@pytest.mark.parametrize("structure", [Classes, Multiclass])
def test_costs_that_are_none_are_refused(structure, cost, error, message):
    with pytest.raises(error, match=message):
        problem_of(structure, cost=cost)


def test_costs_of_rows_are_those_of_structures_that_take_them():
    parts = Parts(X[:, :1], [()] * 4)
    build = lambda potentials, _: Flags(potentials["scores"])  # noqa: E731
    problem = StructureProblem(build, {"scores": parts}, [0, 0, 0, 0])
    assert problem.worst(1, np.zeros(1)).loss == 1.0
    assert problem.corners(np.zeros(1), 1.0)[1:] == (1.0, 1.0)


def test_examples_of_one_part_need_no_axes():
    found, flat = problem_of(Multiclass), Parts(X, [1] * 4, states=3)
    build = lambda potentials, _: Multiclass(potentials["scores"][:, 0])  # noqa: E731
    same = StructureProblem(build, {"scores": flat}, [0, 1, 2, 0])
    w = RNG.normal(size=9)
    assert found.decode(w) == same.decode(w)
    assert np.array_equal(found.risk(w)[1], same.risk(w)[1])


def test_an_example_without_candidates_may_be_asked_for_alone():
    def build(potentials, batch):
        scores, sizes = potentials["scores"], batch.sizes["scores"]
        return Multiclass(scores, torch.arange(scores.shape[1]) < sizes[:, None])

    problem = StructureProblem(build, {"scores": Parts(X, [2, 0, 2])}, [0, -1, 1])
    w = RNG.normal(size=3)
    assert problem.worst(1, w).loss == 0 and not problem.worst(1, w).psi.nnz
    assert problem.subset([1]).decode(w) == [-1] == problem.decode(w)[1:2]
