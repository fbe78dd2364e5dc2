"""pytorch-crf and TorchCRF: layers that own the transitions. NLL and decode only."""

import torch
from torch import Tensor

from inference.problems import Problem
from inference.questions import DECODE, NLL, Answer, Method, with_gradients

PYTORCH_CRF = "pytorch-crf"
TORCHCRF = "TorchCRF"


def pytorch_crf(problem: Problem) -> dict[str, Method]:
    from torchcrf import CRF

    layer = CRF(len(problem.start), batch_first=True)
    names = ("transitions", "start_transitions", "end_transitions")
    given = _owned(layer, names, problem)
    emissions, labels, mask = problem.emissions, problem.labels, problem.mask

    def nll() -> Tensor:
        return -layer(emissions, labels, mask, reduction="mean")

    def decode() -> list[list[int]]:
        return layer.decode(emissions, mask)

    return _methods(problem, given, nll, decode)


def torchcrf(problem: Problem) -> dict[str, Method]:
    from TorchCRF import CRF

    layer = CRF(len(problem.start), use_gpu=problem.emissions.is_cuda)
    names = ("trans_matrix", "start_trans", "end_trans")
    given = _owned(layer, names, problem)
    emissions, labels, mask = problem.emissions, problem.labels, problem.mask

    def nll() -> Tensor:
        return -layer(emissions, labels, mask).mean()

    def decode() -> list[list[int]]:
        return layer.viterbi_decode(emissions, mask)

    return _methods(problem, given, nll, decode)


def _owned(layer, names, problem: Problem) -> tuple[Tensor, ...]:
    """Give the layer our transitions, start and end; the emissions and its own."""
    for name, potential in zip(names, problem.potentials[1:], strict=True):
        setattr(layer, name, torch.nn.Parameter(potential.detach().clone()))
    return (problem.emissions, *(getattr(layer, name) for name in names))


def _methods(problem: Problem, given, nll, decode) -> dict[str, Method]:
    def padded(rows: list[list[int]]) -> Answer:
        labels = torch.zeros_like(problem.labels)
        for row, found in zip(labels, rows, strict=True):
            row[: len(found)] = torch.tensor(found)
        return (labels,)

    return {
        NLL: Method(NLL, problem, with_gradients(nll, given), tuple),
        DECODE: Method(DECODE, problem, torch.no_grad()(decode), padded),
    }
