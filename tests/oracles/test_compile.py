"""A whole training step under torch.compile equals the same step without."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from smoothsp.losses import L2, CRFLoss, Entropy, StructuralHinge, StructuredPerceptron
from smoothsp.oracles import Chain, Multiclass
from tests.sweeps import thinned

B, T, D, S = 3, 5, 4, 3
LOSSES = {
    "hinge": StructuralHinge(),
    "hinge-l2": StructuralHinge(L2(2.0, 3)),
    "hinge-entropy": StructuralHinge(Entropy(2.0)),
    "crf": CRFLoss(reduction="token_mean"),
    "perceptron": StructuredPerceptron(class_weight=torch.tensor([1.0, 2.0, 3.0])),
}
MASK = torch.tensor([[1, 1, 0, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
PADDING = {"none": {}, "mask": {"mask": MASK}, "lengths": {"lengths": MASK.sum(1)}}


class Tagger(nn.Module):
    """The smallest network above a chain."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emit = nn.Linear(D, S)
        self.transitions = nn.Parameter(torch.randn(S, S))
        self.start = nn.Parameter(torch.randn(S))

    def forward(self, x: torch.Tensor, **padding: torch.Tensor) -> Chain:
        return Chain(self.emit(x), self.transitions, self.start, **padding)


def compare(step: object, model: nn.Module, *inputs: object) -> None:
    """Run eagerly and compiled; outputs and gradients of all parameters agree."""
    torch._dynamo.reset()
    found = []
    for run in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        loss, *rest = run(*inputs)
        loss.backward()
        found.append([loss, *rest, *(p.grad.clone() for p in model.parameters())])
    for eager, compiled in zip(*found, strict=True):
        assert_close(compiled, eager)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, D, generator=generator)
    y = torch.randint(0, S, (B, T), generator=generator)
    return x, y


@pytest.mark.parametrize("name", thinned(LOSSES, 5, 3))
def test_a_training_step_with_this_loss_compiles_to_one_graph(name):
    model, loss = Tagger(), LOSSES[name]

    def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chain = model(x, mask=MASK)
        return (loss(chain, y.masked_fill(~MASK, -100)),)

    compare(step, model, *inputs())


@pytest.mark.parametrize("padding", thinned(PADDING, 3, 1))
def test_every_question_compiles_with_any_padding(padding):
    model = Tagger()

    def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        chain = model(x, **PADDING[padding])
        value, best = chain.decode()
        values, ys, valid = chain.decode_topk(2)
        loss = chain.entropy().sum() - chain.log_prob(y).sum() + value.sum()
        loss = loss + chain.marginals().square().sum()
        return loss, best, values, ys, valid, chain.log_count(), chain.edge_marginals()

    x, y = inputs()
    compare(step, model, x, y)


@pytest.mark.long
def test_a_multiclass_training_step_compiles_to_one_graph():
    torch.manual_seed(2)
    model = nn.Linear(D, S)

    def step(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        built = Multiclass(model(x), mask=keep)
        total = sum(loss(built, y) for loss in (LOSSES["hinge-l2"], LOSSES["hinge"]))
        return total + LOSSES["hinge-entropy"](built, y), *built.decode()

    keep = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 0]]).bool()
    compare(step, model, torch.randn(B, D), torch.tensor([2, 0, 1]))


@pytest.mark.long
def test_one_compiled_graph_serves_every_batch_size():
    model, loss = Tagger(), StructuralHinge(L2(1.0, 2))

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=True)
    def compiled(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return loss(model(x, mask=mask), y)

    generator = torch.Generator().manual_seed(3)
    for batch, time in ((2, 3), (5, 7), (4, 2)):
        x = torch.randn(batch, time, D, generator=generator)
        y = torch.randint(0, S, (batch, time), generator=generator)
        mask = torch.rand(batch, time, generator=generator) < 0.7
        assert_close(compiled(x, y, mask), loss(model(x, mask=mask), y))
