"""The second truth is held against the first."""

from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from tests.instances.strategies import chains
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
