"""torch-struct: scores of all pairs of neighbours, and products in a semiring.

Its potentials are edges [B, T - 1, to, from]; making them of the chain's potentials is
part of a call, turning its indicators into labels is not.
"""

import math
import os
import warnings

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from inference.problems import Problem
from inference.questions import (
    DECODE,
    HINGE,
    MARGINALS,
    NLL,
    TOP,
    Answer,
    Method,
    Refusal,
    alone,
    with_gradients,
)
from methods.torch_loop import score

NAME = "torch-struct"


def memory(problem: Problem, k: int = 1) -> float:
    """Bytes of its first product: B T/2 matrices S x S x S, k x k times, thrice."""
    B, T, S = problem.emissions.shape
    pairs = 2 ** math.ceil(math.log2(max(T - 1, 2))) / 2
    return 3 * B * pairs * S**3 * k**2 * problem.emissions.element_size()


def memory_allowed(problem: Problem) -> float:
    """A third of what the device has: gradients come on top."""
    if problem.emissions.is_cuda:
        return torch.cuda.get_device_properties(0).total_memory / 3
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 3


def methods(problem: Problem) -> dict[str, Method | Refusal]:
    from torch_struct import LinearChainCRF

    # of torch.distributions, that the class has no table of constraints
    warnings.filterwarnings("ignore", message=".*arg_constraints.*")
    emissions, transitions, start, end = given = problem.potentials
    labels, lengths = problem.labels, problem.lengths
    mask = None if lengths is None else problem.mask
    batch, time, _ = emissions.shape
    last = torch.full((batch,), time) if lengths is None else lengths
    is_last = one_hot(last - 1, time).to(emissions)[..., None]  # [B, T, 1]

    def chain(nodes: Tensor) -> LinearChainCRF:
        nodes = nodes + is_last * end
        edges = nodes[:, 1:, :, None] + transitions.T
        first = edges[:, :1] + (start + nodes[:, 0])[:, None, None, :]
        return LinearChainCRF(torch.cat([first, edges[:, 1:]], dim=1), lengths)

    def nll() -> Tensor:
        value = chain(emissions).partition
        return (value - score(*given, labels, mask)).mean()

    def hinge() -> Tensor:
        cost = torch.ones_like(emissions).scatter(2, labels[..., None], 0.0)
        value = chain(emissions + cost).max
        return (value - score(*given, labels, mask)).mean()

    calls = {
        NLL: (with_gradients(nll, given), tuple, 1),
        HINGE: (with_gradients(hinge, given), tuple, 1),
        DECODE: (lambda: chain(emissions).argmax, read_labels, 1),
        MARGINALS: (lambda: chain(emissions).marginals, read_nodes, 1),
    }
    for k, question in TOP.items():
        calls[question] = (lambda k=k: chain(emissions).topk(k), read_topk, k)
    return {
        question: _unless_too_large(question, problem, *given)
        for question, given in calls.items()
    }


def _unless_too_large(question, problem, call, read, k) -> Method | Refusal:
    needed = memory(problem, k)
    if needed > memory_allowed(problem):
        return Refusal(f"needs {needed / 1e9:.0f} GB")
    if question not in (NLL, HINGE):
        call = torch.no_grad()(call)
    return Method(question, problem, call, read)


def read_nodes(edges: Tensor) -> Answer:
    """Of what stands on edges [..., T - 1, to, from], what stands on nodes."""
    first = edges[..., :1, :, :].sum(-2)
    return (torch.cat([first, edges.sum(-1)], dim=-2),)


def read_labels(edges: Tensor) -> Answer:
    return alone(read_nodes(edges)[0].argmax(-1))


def read_topk(edges: Tensor) -> Answer:
    return alone(read_labels(edges)[0].transpose(0, 1))
