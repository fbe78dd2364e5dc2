"""What is wrong is not timed: every kind of mistake in an answer is found."""

from dataclasses import replace

import pytest
import torch

from inference import cells
from inference.gate import Disagreement, Gate
from inference.problems import DTYPES, Case
from inference.questions import DECODE, HINGE, MARGINALS, NLL, QUESTIONS, TOP
from measuring import timing
from methods import ours, torch_loop

CASES = (Case(3, 6, 4), Case(4, 7, 3, shortest=3))


def answers(case, dtype=torch.float64):
    return torch_loop.methods(case.draw(dtype, seed=0))


def check(method, answer, dtype=torch.float64):
    Gate().check("peer", method, answer, dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_right_answers_pass(case, dtype):
    methods = answers(case, DTYPES[dtype])
    assert methods.keys() == set(QUESTIONS)
    for method in methods.values():
        check(method, method.call_and_read(), DTYPES[dtype])


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("question", (NLL, HINGE))
@pytest.mark.parametrize("part", range(5))
def test_a_wrong_value_or_gradient_is_found(case, question, part):
    method = answers(case)[question]
    answer = list(method.call_and_read())
    answer[part] = answer[part] * (1 + 1e-5) + 1e-5
    with pytest.raises(Disagreement, match="peer is wrong, nothing timed"):
        check(method, tuple(answer))


@pytest.mark.parametrize("question", (NLL, HINGE, MARGINALS))
def test_nan_is_found(question):
    method = answers(CASES[0])[question]
    first, *rest = method.call_and_read()
    with pytest.raises(Disagreement):
        check(method, (first * torch.nan, *rest))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_wrong_label_is_found_and_padding_is_not_looked_at(case):
    method = answers(case)[DECODE]
    (labels,) = method.call_and_read()
    check(method, (labels.masked_fill(~method.problem.mask, -1),))
    labels[0, 0] = (labels[0, 0] + 1) % case.states
    with pytest.raises(Disagreement):
        check(method, (labels,))


def test_an_output_that_comes_twice_is_found():
    flat = Case(2, 3, 2).draw(torch.float64, seed=0)
    flat = replace(flat, **{n: torch.zeros_like(getattr(flat, n)) for n in POTENTIALS})
    method = torch_loop.methods(flat)[TOP[2]]
    check(method, method.call_and_read())
    twice = torch.zeros(2, 2, 3, dtype=torch.int64)  # as good as any two: all tie
    with pytest.raises(Disagreement, match="comes twice"):
        check(method, (twice,))


def test_outputs_that_are_not_the_best_are_found():
    method = answers(CASES[0])[TOP[2]]
    (five,) = answers(CASES[0])[TOP[5]].call_and_read()
    check(method, (five[:, :2],))
    with pytest.raises(Disagreement):
        check(method, (five[:, [0, 2]],))
    with pytest.raises(Disagreement):
        check(method, (five[:, [1, 0]],))


def test_wrong_marginals_are_found():
    method = answers(CASES[0])[MARGINALS]
    (nodes,) = method.call_and_read()
    with pytest.raises(Disagreement):
        check(method, (nodes.flip(1),))


def test_a_cell_with_a_wrong_method_is_not_timed():
    problem = CASES[0].draw(torch.float64, seed=0)
    right = torch_loop.methods(problem)[NLL]
    wrong = replace(right, call=lambda: tuple(2 * x for x in right.call()))
    candidates = {ours.NAME: right, "peer": wrong}
    with pytest.raises(Disagreement, match="nothing timed"):
        cells.time_cell(candidates, Gate(), torch.float64, timing.Effort(rounds=1))


POTENTIALS = ("emissions", "transitions", "start", "end")
