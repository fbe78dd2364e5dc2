"""The k best outputs of chains too large to enumerate, with ties and -inf."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.instances.chains import any_transitions, large_case
from tests.instances.strategies import (
    SPREADS,
    forbid_some,
    generators,
    structure,
    values,
)
from tests.truth import recurrence
from tests.truth.chain_cases import ChainCase

CLOSE = {"rtol": 1e-10, "atol": 1e-10}


@st.composite
def wide_chains(draw: st.DrawFn) -> ChainCase:
    """Draw chains of many states, in few rows and in many, with holes."""
    generator = draw(generators())
    B, T = draw(st.sampled_from([1, 3, 5, 11])), draw(st.integers(1, 7))
    S, spread = draw(st.sampled_from([5, 12, 13, 19])), draw(st.sampled_from(SPREADS))
    edges = (S, S) if draw(st.booleans()) else (B, T - 1, S, S)
    shapes = ((B, T, S), edges, (S,), (S,))
    drawn = [values(generator, spread, *shape) for shape in shapes]
    mask = torch.rand(B, T, generator=generator) < draw(st.sampled_from([0.5, 1.0]))
    case = ChainCase(*drawn, mask=mask)
    return forbid_some(case, generator) if draw(st.booleans()) else case


def check(case: ChainCase, k: int) -> None:
    """Values are the truth; outputs are distinct, attain them, and are padded."""
    built = structure(case)
    found, ys, valid = built.decode_topk(k)
    expected = recurrence.topk(case, k)
    assert_close(found, expected, **CLOSE)
    assert torch.equal(valid, expected > -torch.inf)
    assert (ys[~valid] == -1).all()
    real = case.real[:, None].expand_as(ys)
    assert (ys[~real] == -1).all()
    scores = built.score(torch.where(valid[..., None], ys, ys[:, :1]))
    assert_close(scores[valid], found[valid], **CLOSE)
    for b in range(len(case)):
        outputs = ys[b][valid[b]]
        assert len(outputs.unique(dim=0)) == len(outputs)


@given(wide_chains(), st.sampled_from([1, 2, 3, 8, 40]))
def test_the_k_best_of_many_states_equal_the_recurrence(case, k):
    check(case, k)


@any_transitions
@pytest.mark.parametrize("S", [3, 12, 40])
def test_long_ragged_rows_have_the_right_k_best(S, per_edge):
    for B in (2, 9):
        check(large_case(B, 25, S, seed=S, per_edge=per_edge), 6)


@any_transitions
@pytest.mark.parametrize("S", [2, 12, 20])
def test_when_all_outputs_tie_the_k_best_are_still_distinct(S, per_edge):
    for B in (1, 6):
        case = large_case(B, 6, S, per_edge=per_edge).map(torch.zeros_like)
        check(case, 50)


def test_the_gradient_of_each_value_is_its_output():
    case = large_case(6, 9, 13, seed=2).leaves()
    found, ys, valid = structure(case).decode_topk(4)
    weight = torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(6, 4) * valid
    (torch.where(valid, found, 0.0) * weight).sum().backward()
    expected = torch.zeros_like(case.emissions)
    for b in range(6):
        for k in range(4):
            for t in case.positions(b):
                if valid[b, k]:
                    expected[b, t, ys[b, k, t]] += weight[b, k]
    assert_close(case.emissions.grad, expected)
