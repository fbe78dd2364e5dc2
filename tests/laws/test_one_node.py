"""Losses that are one node equal those by differentiable questions."""

import pytest
import torch
from torch.testing import assert_close

from smoothsp.losses import (
    L2,
    CRFLoss,
    Entropy,
    StructuralHinge,
    StructuredPerceptron,
    one_node,
)
from smoothsp.oracles import Chain, Matching, Multiclass, SpanTree
from tests.sweeps import thinned
from tests.truth.circuits.cases import KINDS, SEARCHES, draw

LOSSES = {
    "hinge": lambda reduction: StructuralHinge(reduction=reduction),
    "scaled": lambda reduction: StructuralHinge(cost_scale=2.5, reduction=reduction),
    "L2": lambda reduction: StructuralHinge(L2(2.0, 3), reduction=reduction),
    "entropy": lambda reduction: StructuralHinge(Entropy(0.5), reduction=reduction),
    "CRF": lambda reduction: CRFLoss(reduction=reduction),
    "perceptron": lambda reduction: StructuredPerceptron(reduction=reduction),
}
# Special values: ties and chances of exactly one half; integers; both of float32.
VALUES = {
    "zeros": lambda x: x.masked_fill(x > -torch.inf, 0),
    "drawn": lambda x: x,
    "integers": lambda x: (x / 100).round().float(),
}


def chain(emissions, transitions, start, lengths=(3, 0, 2)):
    return Chain(emissions, transitions, start, lengths=torch.tensor(lengths))


def choice(scores):
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]]).bool()
    return Multiclass(scores, mask=mask)


OWN = {
    "ragged_chain": (
        chain,
        {"emissions": (3, 3, 2), "transitions": (2, 2), "start": (2,)},
    ),
    "choice": (choice, {"scores": (3, 4)}),
}


def build(kind, seed):
    """A structure of potentials, these, and outputs."""
    if kind in OWN:
        make, shapes = OWN[kind]
        generator = torch.Generator().manual_seed(seed)
        given = {
            name: 100 * torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in shapes.items()
        }
        return make, given, make(**{n: -x for n, x in given.items()}).decode()[1]
    case = draw(kind, seed)
    y = draw(kind, seed).structure().decode_topk(2)[1].flip(1)[:, 0]
    best = case.structure().decode()[1]
    y = torch.where(
        (y < 0).flatten(1).all(1).reshape(-1, *[1] * (y.dim() - 1)), best, y
    )
    return case.structure, dict(case.potentials), y


def answers(make, given, y, loss, weight):
    leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
    value = loss(make(**leaves), y, weight)
    slope = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype)
    wanted = list(leaves.values())
    flat = value.reshape(-1)
    options = {"materialize_grads": True, "retain_graph": True}
    found = torch.autograd.grad(flat, wanted, slope, **options)
    again = torch.autograd.grad(flat, wanted, slope, **options)
    return value, found, getattr(loss, "exact", None), again


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("values", thinned(VALUES, 3))
@pytest.mark.parametrize("kind", [*OWN, *KINDS, *SEARCHES])
def test_values_and_gradients_are_those_of_questions(
    kind, values, reduction, monkeypatch
):
    if kind.startswith("shortest_path") and values != "drawn":
        pytest.skip("costs would close cycles of positive score")
    make, given, y = build(kind, 3)
    given = {name: VALUES[values](x) for name, x in given.items()}
    built = make(**given)
    weight = torch.linspace(0.0, 2.0, len(y))
    for name, loss in LOSSES.items():
        if name in ("entropy", "CRF") and not hasattr(built, "log_partition"):
            continue
        if name == "L2" and not hasattr(built, "decode_topk"):
            continue
        if not hasattr(built, "hamming") and name != "CRF":
            continue
        found = answers(make, given, y, loss(reduction), weight)
        with monkeypatch.context() as patch:
            patch.setattr(one_node, "is_supported", lambda *_: False)
            expected = answers(make, given, y, loss(reduction), weight)
        # gradients are sums of numbers up to 1, and losses differences of scores
        near = {"rtol": 1e-9, "atol": 1e-9}
        if found[0].dtype == torch.float32:
            near = {"rtol": 1e-5, "atol": 1e-5}
        assert_close(found[:2], expected[:2], **near)
        # a second pass has the same bits
        assert all(a.equal(b) for a, b in zip(found[1], found[3], strict=True))
        assert (found[2] is None) == (expected[2] is None)
        assert found[2] is None or found[2].equal(expected[2])


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("kind", ["span_tree", "matching", "spanning_tree", "choice"])
def test_several_outputs_a_row_are_refused(kind, k):
    make, given, y = build(kind, 3)
    several = torch.stack([y] * k, 1) if k else y.new_zeros(len(y), 0, *y.shape[1:])
    for loss in (StructuralHinge(), StructuralHinge(L2(1.0, 2)), CRFLoss()):
        if kind != "matching" or not isinstance(loss, CRFLoss):
            with pytest.raises(ValueError, match="y: "):
                loss(make(**given), several)
    with pytest.raises(ValueError, match="y: "):
        make(**given).hamming(several)


def test_labels_of_another_number_are_refused():
    class Longer(SpanTree):
        def labels_of(self, y):
            labels = super().labels_of(y)
            return torch.cat([labels, labels], 2)

    trees = Longer(torch.zeros(1, 2, 2))
    y = torch.tensor([[[0, 0], [-1, 0]]])
    for ask in (trees.score, trees.hamming):
        with pytest.raises(ValueError, match="labels_of: expected"):
            ask(y)


def test_costs_of_a_class_of_chains_are_its_own():
    class Double(Chain):
        def hamming(self, y):
            return 2 * super().hamming(y)

    generator = torch.Generator().manual_seed(0)
    given = torch.randn(2, 3, 2, generator=generator), torch.zeros(2, 2)
    y = torch.zeros(2, 3, dtype=torch.int64)
    for smoothing in (None, L2(1.0, 2), Entropy(1.0)):
        found = StructuralHinge(smoothing)(Double(*given), y)
        expected = StructuralHinge(smoothing, cost_scale=2.0)(Chain(*given), y)
        assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_of_one_of_any_dtype_change_nothing(dtype):
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).double()
    scores.requires_grad_()
    y, loss = torch.tensor([0, 1, 2]), StructuralHinge(Entropy(0.7), reduction="sum")
    found = loss(Multiclass(scores), y, torch.ones(3, dtype=dtype))
    plain = loss(Multiclass(scores), y)
    assert_close(found, plain, rtol=1e-14, atol=0)
    slopes = (torch.autograd.grad(x, scores)[0] for x in (found, plain))
    assert_close(*slopes, rtol=1e-14, atol=0)


def test_equal_class_weights_change_nothing():
    trees = SpanTree(torch.zeros(1, 3, 3))
    for structure in (trees, Matching(torch.zeros(1, 3, 2))):
        y, loss = structure.decode()[1], StructuralHinge(reduction="none")
        number = structure.label_counts(y).shape[1]
        weighed = StructuralHinge(class_weight=torch.ones(number), reduction="none")
        assert_close(weighed(structure, y), loss(structure, y))


def test_lists_are_no_gold_outputs():
    chain = Chain(torch.zeros(1, 2, 2), torch.zeros(2, 2))
    for smoothing in (None, L2(1.0, 2), Entropy(1.0)):
        with pytest.raises(TypeError, match="y: expected"):
            StructuralHinge(smoothing)(chain, [[0, 1]])


def test_what_no_row_reads_costs_nothing():
    trees = SpanTree(torch.zeros(1, 3, 3), lengths=torch.tensor([2]))
    y = torch.tensor([[[0, 0, -1], [-1, 0, -1], [-1, -1, -1]]])
    assert not trees.hamming(y).any()


@pytest.mark.parametrize("reduction", ["none", "sum"])
@pytest.mark.parametrize("kind", ["ragged_chain", "span_tree", "matching"])
def test_a_second_pass_refuses_gold_outputs_that_were_changed(kind, reduction):
    for name, make_loss in LOSSES.items():
        if kind == "matching" and name in ("entropy", "CRF"):
            continue
        make, given, y = build(kind, 3)
        leaves = {name: x.clone().requires_grad_() for name, x in given.items()}
        total = make_loss(reduction)(make(**leaves), y).sum()
        total.backward(retain_graph=True)
        y.add_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()
