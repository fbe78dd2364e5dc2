"""What second-order chains have besides the laws: a twin, sizes, messages."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import CRFLoss
from smoothsp.oracles import Chain, SecondOrderChain


def drawn(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).double()


def product_chain(emissions, transitions, lengths):
    """The same as a chain whose labels are pairs, from the second position on."""
    B, T, S = emissions.shape
    pairs = emissions[:, 1:, None].expand(B, T - 1, S, S).clone()
    pairs[:, 0] += emissions[:, 0, :, None]
    moves = transitions.new_full((S, S, S, S), -torch.inf)
    at = torch.arange(S)
    moves[:, at, at] = transitions
    moves = moves.reshape(S * S, S * S)
    return Chain(pairs.reshape(B, T - 1, S * S), moves, lengths=lengths - 1)


def test_a_chain_of_pairs_of_labels_has_the_same_answers():
    emissions, transitions = drawn(4, 12, 3), drawn(3, 3, 3)
    lengths = torch.tensor([12, 2, 7, 3])
    given = [x.requires_grad_() for x in (emissions, transitions)]
    built = SecondOrderChain(emissions, transitions, lengths=lengths)
    twin = product_chain(emissions, transitions, lengths)
    assert_close(built.decode()[0], twin.decode()[0])
    assert_close(built.decode_topk(5)[0], twin.decode_topk(5)[0])
    assert_close(built.entropy(), twin.entropy())
    found = torch.autograd.grad(built.log_partition().sum(), given)
    expected = torch.autograd.grad(twin.log_partition().sum(), given)
    for one, two in zip(found, expected, strict=True):
        assert_close(one, two)


@pytest.mark.parametrize(
    "shape", [(0, 3, 2), (2, 0, 2), (2, 1, 2), (2, 2, 1), (2, 4, 1)]
)
def test_sizes_of_0_and_1(shape):
    B, T, S = shape
    built = SecondOrderChain(
        torch.zeros(shape, requires_grad=True), torch.zeros(S, S, S)
    )
    value, y = built.decode()
    assert y.shape == (B, T) and value.tolist() == [0] * B
    assert_close(built.log_count().exp(), torch.full((B,), float(S**T)))
    if B:
        CRFLoss()(built, y).backward()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((2, 3), (3, 3, 3)), {}, "emissions: "),
        (((2, 3, 0), (0, 0, 0)), {}, "emissions: "),
        (((2, 3, 2), (2, 2)), {}, "transitions: "),
        (
            ((2, 3, 2), (2, 2, 2)),
            {"lengths": torch.tensor([4, 1])},
            "lengths: expected values from 0 to 3, got 4 at row 0",
        ),
        (
            ((1, 1, 2), (2, 2, 2)),
            {"lengths": torch.tensor([1]), "mask": torch.ones(1, 1).bool()},
            "lengths, mask: ",
        ),
    ],
)
def test_what_is_no_chain_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        SecondOrderChain(*map(torch.zeros, arguments), **options)
