"""The plain loop through `torch.compile`, which unrolls it: for the GPU, few steps."""

import torch

from inference.problems import Problem
from inference.questions import DECODE, HINGE, NLL, Method, Refusal, with_gradients
from methods import torch_loop

NAME = "torch.compile'd scan"
LONGEST = 100  # compilation takes about a second a step


def methods(problem: Problem) -> dict[str, Method | Refusal]:
    time = problem.emissions.shape[1]
    if time > LONGEST:
        return dict.fromkeys((NLL, HINGE, DECODE), Refusal(f"T over {LONGEST}"))
    given, labels = problem.potentials, problem.labels
    mask = None if problem.lengths is None else problem.mask
    torch.compiler.reset()  # it gives up on a function compiled for many shapes
    # one graph of launches: the loop is bound by them otherwise
    nll, hinge, decode = (
        torch.compile(function, mode="reduce-overhead", dynamic=False)
        for function in (torch_loop.nll, torch_loop.hinge, torch_loop.decode)
    )

    def method(question, call, read=tuple):
        return Method(question, problem, call, read, compiles=True)

    def loss(question, function):
        call = with_gradients(lambda: function(*given, labels, mask), given)
        return method(question, call)

    without = torch.no_grad()(lambda: decode(*given, mask))
    return {
        NLL: loss(NLL, nll),
        HINGE: loss(HINGE, hinge),
        DECODE: method(DECODE, without, lambda x: x[1:]),
    }
