"""The second truth is held against the first."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.instances.drawn import chains
from tests.truth import recurrence
from tests.truth.chain_cases import ChainCase


@given(chains(forbid=False, poison=False))
def test_the_recurrence_equals_enumeration(case: ChainCase):
    values = recurrence.log_partition(case)
    best = recurrence.maximum(case)
    marginals = recurrence.marginals(case)
    for b, row in enumerate(case):
        assert_close(values[b], row.log_partition())
        assert_close(best[b], row.maximum())
        assert_close(marginals[b], row.marginals(), rtol=1e-7, atol=1e-9)


@given(chains(poison=False), st.integers(1, 7))
def test_the_recurrence_of_the_k_best_equals_enumeration(case: ChainCase, k: int):
    values = recurrence.topk(case, k)
    for b, row in enumerate(case):
        assert_close(values[b], row.topk(k))


def test_enumeration_reproduces_the_toy_chain():
    case = ChainCase(
        torch.tensor([[[1, 0], [0, 0.5], [0.2, 0]]], dtype=torch.float64),
        torch.tensor([[0.3, -0.2], [0, 0.4]], dtype=torch.float64),
    )
    row = case.row(0)
    by_hand = {"000": 1.8, "011": 1.7, "010": 1.5, "111": 1.3, "001": 1.1, "110": 1.1}
    by_hand |= {"100": 0.5, "101": -0.2}
    for labels, score in by_hand.items():
        y = torch.tensor([int(label) for label in labels])
        assert_close(row.scores[row.index(y)].item(), score)
    assert_close(row.log_partition().item(), 3.3375603089, rtol=0, atol=1e-10)
    assert_close(row.marginals()[0, 1].item(), 0.3247174530, rtol=0, atol=1e-10)
