"""Ctrl-C while a solver runs, which returns what it has reached: the recipe ends."""

from functools import partial
from types import SimpleNamespace

import pytest

import conll_linear
from linear_tagging import curves, data
from linear_tagging.data import Split
from linear_tagging.methods import Method
from ocr import runs, toy


def interrupt_at(call):
    """A callback that raises as Ctrl-C does, once."""
    calls = []

    def raises(_):
        calls.append(_)
        if len(calls) == call:
            raise KeyboardInterrupt

    return raises


@pytest.fixture
def splits():
    return tuple(Split(s.tokens[:6], s.tags[:6]) for s in data.load(None))


def test_while_words_are_warmed_up(monkeypatch):
    monkeypatch.setattr(runs, "BCFW", partial(runs.BCFW, callback=interrupt_at(1)))
    with pytest.raises(KeyboardInterrupt):
        runs.warm_up(toy.draw(20, seed=0).problem)


def test_while_solvers_of_chains_are_warmed_up(splits):
    class Interrupted:
        def __init__(self, **_):
            pass

        def solve(self, _):
            return SimpleNamespace(status="interrupted after 1 passes")

    task = data.task_of(data.PAPER, *splits, hashing=127)
    with pytest.raises(KeyboardInterrupt):
        curves.warm_up(task, [Method(Interrupted, {}, "none")])


@pytest.mark.parametrize("calls", [0, 1])
def test_while_the_fast_tagger_trains(calls, splits, monkeypatch):
    makes = []

    def solver(**options):
        makes.append(options)
        stops = interrupt_at(1) if len(makes) > calls else None
        return honest(**options | {"callback": stops, "evaluate_every": 1})

    honest = conll_linear.SGD
    monkeypatch.setattr(conll_linear, "SGD", solver)
    with pytest.raises(KeyboardInterrupt):
        conll_linear.tagger(*splits)
    assert len(makes) == calls + 1
