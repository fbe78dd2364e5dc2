"""Losses by enumeration, and the small cases that the tests of this folder share."""

import itertools
import math

import pytest
import torch
from hypothesis import strategies as st

from smoothsp.losses import L2, Entropy
from tests.instances.strategies import draw_case, draw_outputs, generators
from tests.sweeps import thinned
from tests.truth.chain_cases import Case, ChainCase, MulticlassCase, Row

# None, of entropy, of few outputs, of all.
SMOOTHINGS = [
    *(None, Entropy(0.3), Entropy(5.0), L2(0.3, 1)),
    *(L2(5.0, 4), L2(0.3, 4), L2(0.3, "exact"), L2(5.0, "exact")),
]
every_smoothed_structure = pytest.mark.parametrize(
    ("kind", "smoothing"),
    thinned(itertools.product(("chain", "multiclass"), SMOOTHINGS), 3),
    ids=str,
)

SMALL = {
    "chain": ChainCase(
        *(
            torch.randn(s, generator=torch.Generator().manual_seed(i)).double()
            for i, s in enumerate([(2, 3, 2), (2, 2), (2,), (2,)])
        ),
        mask=torch.tensor([[1, 1, 1], [1, 0, 1]]).bool(),
    ),
    "multiclass": MulticlassCase(
        torch.randn(2, 4, generator=torch.Generator().manual_seed(4)).double(),
        mask=torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1]]).bool(),
    ),
}
GOLD = {
    "chain": torch.tensor([[0, 1, 1], [1, -100, 0]]),
    "multiclass": torch.tensor([1, 2]),
}


def projection(scores: torch.Tensor, mu: float) -> torch.Tensor:
    """Project scores / mu onto the simplex: bisection for the threshold."""
    low, high = scores.max().item() - mu, scores.max().item()
    for _ in range(200):
        middle = (low + high) / 2
        above = (scores - middle).clamp(min=0).sum().item() > mu
        low, high = (middle, high) if above else (low, middle)
    u = (scores - high).clamp(min=0) / mu
    return u / u.sum()


def smooth_l2(scores: torch.Tensor, mu: float) -> torch.Tensor:
    """The definition of the smoothed maximum at the projection."""
    u = projection(scores, mu)
    return u @ scores - mu / 2 * (u.square().sum() - 1)


def smooth_max(z: torch.Tensor, smoothing: object) -> torch.Tensor:
    """The smooth maximum of a complete list of scores, by definition."""
    z = z[z > -math.inf]
    if smoothing is None:
        return z.max()
    if isinstance(smoothing, Entropy):
        return smoothing.mu * (z / smoothing.mu).logsumexp(0)
    k = smoothing.max_k if smoothing.k == "exact" else smoothing.k
    return smooth_l2(z.sort(descending=True).values[:k], smoothing.mu)


def place(row: Row, y: torch.Tensor) -> int:
    """The place of gold outputs whose padding may hold anything negative."""
    return row.index(torch.where(y < 0, -1, y))


def wrong(row: Row, y: torch.Tensor) -> torch.Tensor:
    """How many labels of each output differ from y."""
    gold = row.outputs[place(row, y)]
    return (row.outputs != gold).reshape(len(row.outputs), -1).sum(1).double()


def draw_problem(
    data: st.DataObject, kind: str, **options: object
) -> tuple[Case, torch.Tensor]:
    """A case and gold outputs that are feasible, -100 in the padding."""
    case = draw_case(data, kind, **options)
    return case, draw_outputs(case, data.draw(generators()))
