"""Nothing wrong is timed: answers are held against the plain loop in float64."""

import torch
from torch import Tensor

from inference.problems import Problem
from inference.questions import DECODE, HINGE, MARGINALS, NLL, TOP, Answer, Method
from methods import torch_loop

# Relative to the largest entry: of values and scores, of gradients and marginals. In
# log space a float32 gradient has the error of scores a thousand times larger, and
# from some steps on of scores that grow with the steps.
TOLERANCES = {torch.float32: (1e-5, 1e-3), torch.float64: (1e-9, 1e-7)}
STEPS = 300


class Disagreement(Exception):
    """A method gives another answer than the plain loop."""


class Gate:
    """Judges answers to any question; the truth is computed once for each."""

    def __init__(self) -> None:
        self._truths: dict[tuple[int, str], tuple[Problem, Answer]] = {}

    def check(self, name: str, method: Method, answer: Answer, dtype: torch.dtype):
        """Raise unless ``answer``, computed in ``dtype``, is right."""
        try:
            judge(method, answer, self._truth(method), dtype)
        except AssertionError as error:
            raise Disagreement(
                f"{method.question}: {name} is wrong, nothing timed\n{error}"
            ) from error

    def _truth(self, method: Method) -> Answer:
        # the problem is kept too, so that its id stays its own
        key = id(method.problem), method.question
        if key not in self._truths:
            known = method.problem, truth(method.question, method.problem)
            self._truths[key] = known
        return self._truths[key][1]


def truth(question: str, problem: Problem) -> Answer:
    """What is right, in float64; of decodes, the scores."""
    exact = problem.to(torch.float64)
    given = exact.potentials
    mask = None if problem.lengths is None else exact.mask
    if question in (NLL, HINGE, MARGINALS):
        return torch_loop.methods(exact)[question].call_and_read()
    with torch.no_grad():
        if question == DECODE:
            return (torch_loop.decode(*given, mask)[0],)
        k = next(k for k, name in TOP.items() if name == question)
        return (torch_loop.decode_topk(*given, k, mask)[0],)


def judge(method: Method, answer: Answer, right: Answer, dtype: torch.dtype) -> None:
    values, gradients = TOLERANCES[dtype]
    values = method.tolerance or values
    question, problem = method.question, method.problem
    gradients *= max(1.0, problem.emissions.shape[1] / STEPS)
    if question == MARGINALS:
        close(answer[0] * problem.mask[..., None], right[0], gradients)
    elif question in (NLL, HINGE):
        assert len(answer) == len(right), "a gradient is absent"
        close(answer[0], right[0], values)
        for actual, expected in zip(answer[1:], right[1:], strict=True):
            close(actual, expected, gradients)
    else:
        # outputs may differ at ties: compare what they score
        labels = answer[0].to(problem.labels.device)
        if problem.lengths is not None:
            real = problem.mask if labels.dim() == 2 else problem.mask[:, None]
            labels = labels.masked_fill(~real, 0)
        close(scores(problem, labels), right[0], values)
        if labels.dim() == 3:
            for row in labels:
                assert len(row.unique(dim=0)) == len(row), "an output comes twice"


def scores(problem: Problem, labels: Tensor) -> Tensor:
    """In float64, of labels [B, T] or [B, K, T]."""
    exact = problem.to(torch.float64)
    mask = None if problem.lengths is None else exact.mask
    several = labels if labels.dim() == 3 else labels[:, None]
    found = [
        torch_loop.score(*exact.potentials, y, mask).detach() for y in several.unbind(1)
    ]
    return torch.stack(found, dim=1) if labels.dim() == 3 else found[0]


def close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    largest = expected.abs().max().item()
    actual = actual.detach().to(expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance * largest)
