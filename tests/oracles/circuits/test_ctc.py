"""What CTC has besides the laws of circuits: torch's own loss, sizes, messages."""

import pytest
import torch
from torch.nn.functional import ctc_loss
from torch.testing import assert_close

from smoothsp.oracles import CTC


def drawn(*shape):
    generator = torch.Generator().manual_seed(6)
    return torch.randn(shape, generator=generator).double().log_softmax(-1)


@pytest.mark.parametrize("blank", [0, 3])
def test_log_partition_and_its_gradient_are_those_of_torch(blank):
    ours = drawn(6, 40, 5).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(4, (6, 12), generator=generator)
    targets += (targets >= blank).long()  # equal neighbours among them
    lengths = torch.tensor([40, 33, 12, 25, 40, 1])
    many = torch.tensor([12, 7, 0, 12, 1, 1])
    expected = ctc_loss(
        theirs.transpose(0, 1), targets, lengths, many, blank, reduction="none"
    )
    found = CTC(
        ours, targets, lengths=lengths, target_lengths=many, blank=blank
    ).log_partition()
    assert_close(-found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(1.0, 7).double()
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    # torch gives gradients of the logits below a log_softmax: it adds exp(log_probs)
    real = torch.arange(40) < lengths[:, None]
    given = theirs.grad - (weights[:, None] * real)[..., None] * theirs.detach().exp()
    assert_close(-ours.grad, given, rtol=1e-9, atol=1e-9)


def test_a_batch_of_one_size_has_the_bits_of_one_with_lengths():
    log_probs = drawn(4, 20, 5).requires_grad_()
    targets = torch.arange(4 * 6).reshape(4, 6) % 4 + 1
    answers = []
    for lengths in (None, torch.full((4,), 20)):
        ctc = CTC(log_probs, targets, lengths=lengths)
        value = ctc.log_partition()
        (slope,) = torch.autograd.grad(value.sum(), log_probs)
        answers.append((value, slope, ctc.entropy(), *ctc.decode()))
    for one, other in zip(*answers, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("M", [0, 1])
@pytest.mark.parametrize("T", [1, 2])
@pytest.mark.parametrize("B", [0, 1])
def test_small_sizes(B, T, M):
    log_probs = drawn(B, T, 2).requires_grad_()
    ctc = CTC(log_probs, torch.ones(B, M).long())
    value, y = ctc.decode()
    assert_close(ctc.score(y), value)
    assert ctc.hamming(y).shape == log_probs.shape
    assert ctc.label_counts(y).shape == (B, 2)
    assert ctc.sample(2).shape == (B, 2, T)
    ctc.log_partition().sum().backward()
    assert log_probs.grad.isfinite().all()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"log_probs": drawn(2, 3)}, ValueError, "log_probs: "),
        ({"targets": torch.tensor([1, 2])}, ValueError, "targets: "),
        (
            {"targets": torch.tensor([[1, 2], [1, 0]])},
            ValueError,
            "targets: .* other than the blank 0, got 0 at row 1, label 1",
        ),
        ({"blank": 4}, ValueError, "blank: "),
        ({"blank": True}, TypeError, "blank: "),
        (
            {"target_lengths": torch.tensor([3, 1])},
            ValueError,
            "target_lengths: expected values from 0 to 2.* got 3 at row 0",
        ),
        (
            {"lengths": torch.tensor([3, 1])},
            ValueError,
            r"targets: row 1 needs 2 frames \(2 symbols, 0 repeats\), got 1",
        ),
        (
            {
                "lengths": torch.tensor([2, 3]),
                "targets": torch.tensor([[1, 1], [1, 2]]),
            },
            ValueError,
            r"targets: row 0 needs 3 frames \(2 symbols, 1 repeat\), got 2",
        ),
        (
            {"log_probs": torch.full((2, 3, 4), -torch.inf)},
            ValueError,
            "log_probs: row 0 has no feasible output",
        ),
    ],
)
def test_wrong_arguments_are_named(change, kind, message):
    right = {"log_probs": drawn(2, 3, 4), "targets": torch.tensor([[1, 2], [3, 2]])}
    with pytest.raises(kind, match=message):
        CTC(**{**right, **change})
