"""Ctrl-C while a solver runs, which returns what it has reached: the recipe ends."""

import pytest

import conll_linear
from linear_tagging import data
from linear_tagging.data import Split


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
