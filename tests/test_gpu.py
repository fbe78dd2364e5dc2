"""Losses, heads, candidates and messages on a CUDA device are those of the CPU."""

import copy
import math

import pytest
import torch
from torch import Tensor

from smoothsp import LinearChain
from smoothsp.constraints import bio
from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain, Multiclass
from tests.instances.chains import Y, random_case
from tests.instances.strategies import structure
from tests.on_device import DEVICE, needs_gpu, same, there
from tests.truth.chain_cases import MulticlassCase

pytestmark = needs_gpu
NAN, INF = math.nan, math.inf

LOSSES = {
    "crf": CRFLoss(reduction="none"),
    "hinge": StructuralHinge(reduction="none"),
    "entropy": StructuralHinge(smoothing=Entropy(0.5), reduction="none"),
    "l2": StructuralHinge(smoothing=L2(1.0, k=3), reduction="none"),
    "l2_until_exact": StructuralHinge(smoothing=L2(1.0, "exact"), reduction="none"),
    "perceptron": StructuredPerceptron(reduction="none"),
    "tokens": StructuralHinge(reduction="token_mean"),
    "classes": CRFLoss(class_weight=torch.tensor([1.0, 2.0, 0.5]).double()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_the_cpu(name):
    for case in (random_case(False), random_case(True)):
        same(case, lambda c: _loss(name, structure(c), Y))


def _loss(name: str, built: Chain | Multiclass, y: Tensor) -> Tensor:
    device = y.device if isinstance(built, Multiclass) else built.emissions.device
    return copy.deepcopy(LOSSES[name]).to(device)(built, y.to(device))


@pytest.mark.parametrize("name", LOSSES)
def test_losses_over_candidates_are_those_of_the_cpu(name):
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 0], [1, 1, 0]]).bool()
    y = torch.tensor([2, 1, 0, 0])

    def ask(case: MulticlassCase) -> Tensor:
        return _loss(name, structure(case), y.to(case.scores.device))

    same(MulticlassCase(scores, mask=mask), ask)


def test_candidates_are_those_of_the_cpu():
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).double()
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 0], [1, 1, 0]]).bool()
    case = MulticlassCase(scores, mask=mask)
    near, far = structure(case), structure(there(case))
    for question in ("decode", "log_partition", "marginals", "entropy", "log_count"):
        found, expected = getattr(far, question)(), getattr(near, question)()
        if question != "decode":
            found, expected = [found], [expected]
        assert all(x.device == DEVICE for x in found)
        torch.testing.assert_close([x.cpu() for x in found], list(expected))
    found = far.decode_topk(4)
    assert all(x.device == DEVICE for x in found)
    torch.testing.assert_close([x.cpu() for x in found], list(near.decode_topk(4)))
    draws = far.sample(50, torch.Generator(DEVICE).manual_seed(0))
    assert draws.device == DEVICE
    assert Multiclass(scores[:0].to(DEVICE)).sample(2).device == DEVICE


@pytest.mark.parametrize("constrained", [False, True])
def test_a_head_may_be_moved(constrained):
    labels = ["O", "B-X", "I-X"]
    torch.manual_seed(0)
    head = LinearChain(3, constraints=bio(labels) if constrained else None).double()
    far = copy.deepcopy(head).to(DEVICE)
    emissions = torch.randn(2, 5, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    tags = torch.tensor([[0, 1, 2, 0, 0], [1, 2, 2, -100, -100]])
    inputs = [x.to(DEVICE) for x in (emissions, tags, mask)]
    head.loss(emissions, tags, mask).backward()
    far.loss(*inputs).backward()
    for near_p, far_p in zip(head.parameters(), far.parameters(), strict=True):
        torch.testing.assert_close(far_p.grad.cpu(), near_p.grad)
    for top_k in (None, 4):
        expected = head.decode(emissions, mask, top_k=top_k)
        found = far.decode(inputs[0], inputs[2], top_k=top_k)
        torch.testing.assert_close([x.cpu() for x in found], list(expected))
    torch.testing.assert_close(
        far.marginals(inputs[0], inputs[2]).cpu(), head.marginals(emissions, mask)
    )
    if constrained:
        tags[0, 1] = 2
        with pytest.raises(ValueError, match=r"forbid 2 after 0 at row 0, step 1"):
            far.loss(inputs[0], tags.to(DEVICE), inputs[2])


E3, T3 = torch.zeros(2, 3, 4), torch.zeros(4, 4)
MIXED = {
    "transitions": lambda far: Chain(far(E3), T3),
    "emissions": lambda far: Chain(E3, far(T3)),
    "start": lambda far: Chain(far(E3), far(T3), torch.zeros(4)),
    "end": lambda far: Chain(far(E3), far(T3), end=torch.zeros(4)),
    "mask": lambda far: Chain(far(E3), far(T3), mask=torch.ones(2, 3).bool()),
    "lengths": lambda far: Chain(far(E3), far(T3), lengths=torch.tensor([3, 3])),
    "y": lambda far: Chain(far(E3), far(T3)).score(torch.zeros(2, 3).long()),
    "cost": lambda far: Chain(far(E3), far(T3)).augment(E3),
    "candidate_y": lambda far: Multiclass(far(T3)).score(torch.zeros(4).long()),
    "candidate_mask": lambda far: Multiclass(far(T3), torch.ones(4, 4).bool()),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_tensor_on_another_device_is_named(name):
    blamed = "transitions" if name == "emissions" else name.split("_")[-1]
    both = rf"{blamed}: .*(cuda:0.*cpu|cpu.*cuda:0)"
    with pytest.raises(TypeError, match=both):
        MIXED[name](lambda x: x.to(DEVICE))


def wrong(*place: object) -> Tensor:
    *index, value = place
    emissions = torch.zeros(2, 3, 4)
    emissions[tuple(index)] = value
    return emissions


FAULTS = {
    "nan": lambda d: Chain(wrong(1, 2, 3, NAN).to(d), T3.to(d)),
    "inf": lambda d: Chain(wrong(1, 0, 0, INF).to(d), T3.to(d)),
    "nan_move": lambda d: Chain(E3.to(d), (T3 + NAN).to(d)),
    "nan_end": lambda d: Chain(E3.to(d), T3.to(d), end=(T3[0] + NAN).to(d)),
    "infeasible": lambda d: Chain(wrong(1, 2, slice(None), -INF).to(d), T3.to(d)),
    "label": lambda d: Chain(E3.to(d), T3.to(d)).score(
        torch.tensor([[0, 1, 2], [0, 4, 0]]).to(d)
    ),
    "candidate": lambda d: Multiclass((T3 + NAN).to(d)),
    "nothing_to_choose": lambda d: Multiclass((T3 - INF).to(d)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_told_in_the_words_of_the_cpu(name):
    with pytest.raises(ValueError, match=r"got|no feasible output") as expected:
        FAULTS[name]("cpu")
    with pytest.raises(ValueError, match=r"got|no feasible output") as found:
        FAULTS[name](DEVICE)
    assert str(found.value) == str(expected.value)
