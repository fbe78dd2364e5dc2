"""What a call costs where there is next to nothing to compute, part by part."""

from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from inference.problems import Case
from inference.questions import HINGE, NLL, Method
from measuring import timing
from methods import ours
from report.results import FIXED_COST, Row
from smoothsp.losses import CRFLoss, StructuralHinge
from smoothsp.oracles import Chain

TINY = (Case(1, 1, 1), Case(8, 1, 1))
EMPTY = "empty autograd.Function, forward + backward"
CONSTRUCTION, FORWARD, BACKWARD = "Chain(...)", "loss", "backward"


class Empty(torch.autograd.Function):
    """Four inputs, one scalar, gradients of ones: the least that autograd costs."""

    @staticmethod
    def forward(ctx, *potentials: Tensor) -> Tensor:
        ctx.save_for_backward(*potentials)
        return potentials[0].new_empty(())

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, ...]:
        return ctx.saved_tensors


def parts(case: Case, loss: Callable) -> dict[str, Callable[[], object]]:
    problem = case.draw(torch.float32, seed=0)
    given, labels = problem.potentials, problem.labels
    chain = Chain(*given)
    value = loss(chain, labels)

    def whole() -> object:
        return torch.autograd.grad(loss(Chain(*given), labels), given)

    return {
        ours.NAME: whole,
        CONSTRUCTION: lambda: Chain(*given),
        FORWARD: lambda: loss(chain, labels),
        BACKWARD: lambda: torch.autograd.grad(value, given, retain_graph=True),
        EMPTY: lambda: torch.autograd.grad(Empty.apply(*given), given),
    }


def rows(effort: timing.Effort) -> Iterator[Row]:
    for case in TINY:
        for question, loss in ((NLL, CRFLoss()), (HINGE, StructuralHinge())):
            problem = case.draw(torch.float32, seed=0)
            calls = parts(case, loss)
            methods = {n: Method(question, problem, f, tuple) for n, f in calls.items()}
            seconds = dict.fromkeys(methods, 1e-4)
            measured = timing.measure(methods, seconds, effort)
            for name, summary in timing.summarise(measured, ours.NAME).items():
                yield Row(
                    FIXED_COST,
                    question,
                    str(case),
                    "float32",
                    torch.get_num_threads(),
                    name,
                    **asdict(summary),
                    rounds=len(measured.disturbed),
                    disturbed=sum(measured.disturbed),
                    positions=problem.positions,
                )
