"""Derivatives of a chain's answers, in every potential."""

import math

import pytest
import torch
from torch.autograd import gradgradcheck
from torch.testing import assert_close

from smoothsp.oracles import Chain
from tests.instances.chains import (
    HOLES,
    QUESTIONS,
    Y,
    answers,
    any_transitions,
    random_case,
)
from tests.instances.strategies import structure
from tests.truth.chain_cases import ChainCase


def ask(question: str, *potentials: torch.Tensor) -> torch.Tensor:
    return answers(question, Chain(*potentials, mask=HOLES))


@any_transitions
def test_the_log_partition_is_differentiable_twice(per_edge):
    potentials = tuple(random_case(per_edge).leaves().potentials().values())
    assert gradgradcheck(lambda *p: ask("log_partition", *p), potentials)


def truth(question: str, case: ChainCase) -> torch.Tensor:
    """The same answers from enumeration, differentiable."""
    rows = list(case)
    if question in ("score", "log_prob"):
        y = torch.where(HOLES, Y, -1)
        scores = [row.scores[row.index(y[b])] for b, row in enumerate(rows)]
        if question == "log_prob":
            pairs = zip(scores, rows, strict=True)
            scores = [score - row.log_partition() for score, row in pairs]
        return torch.stack(scores)
    if question == "decode_topk":
        values = torch.stack([row.topk(4) for row in rows])
        return torch.where(values > -math.inf, values, 0.0)
    if question == "entropy":
        # entr() has no derivative at zero, which forbidden outputs need
        logs = [row.scores - row.log_partition() for row in rows]
        logs = [log.masked_fill(log == -math.inf, 0.0) for log in logs]
        pairs = zip(rows, logs, strict=True)
        return torch.stack([-(row.probabilities * log).sum() for row, log in pairs])
    name = "maximum" if question == "decode" else question
    return torch.stack([getattr(row, name)() for row in rows])


@any_transitions
@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("question", QUESTIONS)
def test_any_upstream_gradient_reaches_every_potential(question, per_edge, forbid):
    case = random_case(per_edge, forbid)
    ours, theirs = case.leaves(), case.leaves()
    found, expected = answers(question, structure(ours)), truth(question, theirs)
    assert_close(found, expected)
    upstream = torch.linspace(-3, 2, found.numel(), dtype=torch.float64)
    found.backward(upstream.reshape(found.shape))
    expected.backward(upstream.reshape(found.shape))
    for name, gradient in theirs.gradients().items():
        assert_close(ours.gradients()[name], gradient.nan_to_num(0.0))


def test_the_second_derivative_is_finite_beside_forbidden_transitions():
    case = random_case(per_edge=False, forbid=True).leaves()
    leaves = tuple(case.potentials().values())
    first = torch.autograd.grad(
        structure(case).log_partition().sum(), leaves, create_graph=True
    )
    total = sum(g.square().sum() for g in first)
    for second in torch.autograd.grad(total, leaves):
        assert second.isfinite().all()


@pytest.mark.parametrize(
    "question", ["log_partition", "decode", "entropy", "marginals"]
)
def test_only_the_potentials_that_ask_get_a_gradient(question):
    case = random_case(per_edge=False)
    transitions = case.transitions.clone().requires_grad_()
    alone = case.replace(transitions=transitions)
    full = case.leaves()
    upstream = torch.rand_like(answers(question, structure(case)))
    answers(question, structure(alone)).backward(upstream)
    answers(question, structure(full)).backward(upstream)
    assert_close(transitions.grad, full.transitions.grad)
    assert case.emissions.grad is None


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_graph_is_kept_when_nothing_asks(question):
    assert not answers(question, structure(random_case(False))).requires_grad


@pytest.mark.parametrize("question", ["entropy", "marginals", "edge_marginals"])
def test_a_derivative_that_is_not_there_is_refused_and_not_zero(question):
    case = random_case(per_edge=False).leaves()
    value = answers(question, structure(case)).square().sum()
    (first,) = torch.autograd.grad(value, case.emissions, create_graph=True)
    with pytest.raises(RuntimeError, match="at most two derivatives"):
        first.square().sum().backward()
