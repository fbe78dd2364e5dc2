"""The benchmark of a chain's other questions stops where one is answered wrongly."""

import pytest
import torch

import chain_questions
from inference.problems import Case
from smoothsp.oracles import Chain
from tests.sweeps import thinned


@pytest.mark.parametrize("dtype", thinned([torch.float64, torch.float32], 2))
def test_what_is_timed_is_right_and_answers(dtype):
    problem = Case(3, 6, 4).draw(dtype, seed=0)
    chain_questions.check(problem)
    for method in chain_questions.questions(problem).values():
        assert method.call() is not None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("entropy", "entropy is off"),
        ("edge_marginals", "edge_marginals is off"),
        ("sample", "sample"),
    ],
)
def test_a_wrong_answer_stops_it(name, message, monkeypatch):
    right = getattr(Chain, name)

    def wrong(self, *given, **options):
        found = right(self, *given, **options)
        return found.roll(1, -1) if name == "sample" else 1.01 * found

    monkeypatch.setattr(Chain, name, wrong)
    problem = Case(3, 6, 4).draw(torch.float64, seed=0)
    with pytest.raises(SystemExit, match=message):
        chain_questions.check(problem)
