"""smoothsp as a user calls it: construction, checks and autograd included."""

import torch

from inference.problems import Problem
from inference.questions import (
    DECODE,
    HINGE,
    MARGINALS,
    NLL,
    TOP,
    Method,
    alone,
    with_gradients,
)
from smoothsp.losses import CRFLoss, StructuralHinge
from smoothsp.oracles import Chain

NAME = "smoothsp"


def methods(problem: Problem) -> dict[str, Method]:
    given, labels, lengths = problem.potentials, problem.labels, problem.lengths
    crf_loss, hinge = CRFLoss(), StructuralHinge()
    without = torch.no_grad()

    def chain() -> Chain:
        return Chain(*given, lengths=lengths)

    def method(question, call, read=tuple):
        return Method(question, problem, call, read, compiles=True)

    answers = [
        method(NLL, with_gradients(lambda: crf_loss(chain(), labels), given)),
        method(HINGE, with_gradients(lambda: hinge(chain(), labels), given)),
        method(DECODE, without(lambda: chain().decode()), lambda x: x[1:]),
        method(MARGINALS, without(lambda: chain().marginals()), alone),
    ]
    for k, question in TOP.items():
        call = without(lambda k=k: chain().decode_topk(k))
        answers.append(method(question, call, lambda x: x[1:2]))
    return {answer.question: answer for answer in answers}
