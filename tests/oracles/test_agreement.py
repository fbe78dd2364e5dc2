"""Structures that describe the same outputs give the same answers."""

import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from smoothsp.losses import L2, Entropy
from smoothsp.losses.functional import structural_hinge
from smoothsp.oracles import Chain, Multiclass
from tests.instances.drawn import chains, generators, multiclasses, structure, values
from tests.truth.chain_cases import ChainCase, MulticlassCase

CLOSE = {"rtol": 1e-9, "atol": 1e-9}


@given(multiclasses(poison=False))
def test_candidates_are_the_states_of_a_chain_of_one_position(case: MulticlassCase):
    forbidden = torch.full_like(case.scores, -torch.inf)
    scores = torch.where(case.real, case.scores, forbidden)[:, None]
    S = scores.shape[2]
    chain = Chain(scores, scores.new_zeros(S, S), mask=case.real.any(1, keepdim=True))
    choice = structure(case)
    for name in ("log_partition", "entropy", "log_count"):
        assert_close(getattr(chain, name)(), getattr(choice, name)(), **CLOSE)
    assert_close(chain.marginals()[:, 0], choice.marginals(), **CLOSE)
    assert_close(chain.decode()[0], choice.decode()[0], **CLOSE)
    assert_close(chain.decode_topk(7)[0], choice.decode_topk(7)[0], **CLOSE)
    y = choice.decode()[1]
    for smoothing in (None, Entropy(0.5), L2(2.0, 3)):
        one = structural_hinge(chain, y[:, None], smoothing=smoothing)
        assert_close(one, structural_hinge(choice, y, smoothing=smoothing), **CLOSE)


@given(chains(forbid=False, poison=False, min_time=2))
def test_shared_transitions_are_equal_transitions_at_every_step(case: ChainCase):
    B, T, S = case.emissions.shape
    if case.transitions.ndim == 4:
        case = case.replace(transitions=case.transitions.sum((0, 1)))
    spelt = case.replace(transitions=case.transitions.expand(B, T - 1, S, S))
    one, other = structure(case), structure(spelt)
    assert_close(one.log_partition(), other.log_partition(), **CLOSE)
    assert_close(one.edge_marginals(), other.edge_marginals(), **CLOSE)
    assert_close(one.decode()[0], other.decode()[0], **CLOSE)
    assert_close(one.entropy(), other.entropy(), **CLOSE)


@given(generators())
def test_without_transitions_the_positions_of_a_chain_are_independent(generator):
    emissions = values(generator, "normal", 2, 5, 3)
    chain = Chain(emissions, torch.zeros(3, 3).double())
    alone = Multiclass(emissions.flatten(0, 1))
    assert_close(chain.log_partition(), alone.log_partition().view(2, 5).sum(1))
    assert_close(chain.entropy(), alone.entropy().view(2, 5).sum(1))
    assert_close(chain.marginals(), alone.marginals().view(2, 5, 3))
    assert_close(chain.decode()[0], alone.decode()[0].view(2, 5).sum(1))


@given(chains(forbid=False, poison=False))
def test_a_chain_read_backwards_is_the_same_chain(case: ChainCase):
    edges = case.transitions.transpose(-1, -2)
    real = case.real
    if edges.ndim == 4:
        # The edge into t comes from the real position before: holes would move it.
        case, edges = case.replace(lengths=None, mask=None), edges.flip(1)
        real = case.real
    reverse = ChainCase(
        case.emissions.flip(1), edges, case.end, case.start, mask=real.flip(1)
    )
    one, other = structure(case), structure(reverse)
    assert_close(one.log_partition(), other.log_partition(), **CLOSE)
    assert_close(one.marginals(), other.marginals().flip(1), **CLOSE)
    assert_close(one.decode_topk(3)[0], other.decode_topk(3)[0], **CLOSE)
    assert_close(one.entropy(), other.entropy(), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_labels_and_lengths_may_be_integers_of_any_width(dtype):
    generator = torch.Generator().manual_seed(0)
    emissions, edges = (
        torch.randn(s, generator=generator) for s in ((2, 3, 4), (4, 4))
    )
    y, lengths = torch.tensor([[0, 3, 1], [2, 2, 0]]), torch.tensor([3, 1])
    narrow = Chain(emissions, edges, lengths=lengths.to(dtype))
    wide = Chain(emissions, edges, lengths=lengths)
    assert torch.equal(narrow.score(y.to(dtype)), wide.score(y))
    assert torch.equal(narrow.hamming(y.to(dtype)), wide.hamming(y))
