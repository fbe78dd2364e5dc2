"""Runs that are cut: by a callback that keeps the state, by Ctrl-C at any moment."""

import signal

import numpy as np
import pytest

from smoothsp._kernels.compilation.interrupts import defer_sigint
from smoothsp.linear.engines.callback_dual import CallbackEngine
from smoothsp.linear.engines.compiled_dual import ChainEngine
from smoothsp.linear.solvers import BCFW
from tests.truth.frank_wolfe import as_callbacks
from tests.truth.linear_chain import random_chain

CHAIN = random_chain(0)
OFTEN = {"refresh_every": 2, "tol": 0.0}
SOLVERS = {
    "BCFW": lambda **o: BCFW(lam=0.1, **OFTEN, **o),
    "BCFW, pairwise, cached, averaged": lambda **o: BCFW(
        lam=0.1, steps="pairwise", cache=True, averaging=True, **OFTEN, **o
    ),
}


def numbers(history):
    return [(r.passes, r.oracle_calls, r.primal, r.dual, r.gap) for r in history]


def test_ctrl_c_waits_for_the_end_of_a_step():
    done = []
    with pytest.raises(KeyboardInterrupt), defer_sigint():
        signal.raise_signal(signal.SIGINT)
        done.append(1)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), defer_sigint(False):
        signal.raise_signal(signal.SIGINT)
        done.append(2)
    assert done == [1]


@pytest.mark.parametrize("name", ["BCFW", "BCFW, pairwise, cached, averaged"])
def test_ctrl_c_in_a_pass_is_one_after_it(name, monkeypatch):
    make = SOLVERS[name]
    whole = make(max_passes=9).solve(CHAIN)
    steps, count = ChainEngine.visit_in_order, [0]

    def pressed(self, order):
        steps(self, order)
        count[0] += 1
        if count[0] == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ChainEngine, "visit_in_order", pressed)
    part = make(max_passes=9).solve(CHAIN)
    assert part.interrupted and part.passes == 1
    assert "interrupted after 1 passes" in part.status
    # certified where it stands
    assert part.gap == pytest.approx(part.primal - part.dual)
    assert part.primal == pytest.approx(CHAIN.primal(part.w, 0.1))
    again = make(max_passes=9).solve(CHAIN, resume=part.state)
    assert again.w.tobytes() == whole.w.tobytes()
    np.testing.assert_equal(numbers(again.history), numbers(whole.history))


class Pressed(np.ndarray):
    """Ctrl-C is pressed as a row is about to be written."""

    def __setitem__(self, key, value):
        signal.raise_signal(signal.SIGINT)
        super().__setitem__(key, value)


@pytest.mark.parametrize("steps", ["fw", "pairwise"])
def test_ctrl_c_never_parts_weights_from_dual_variables(steps, monkeypatch):
    start = CallbackEngine.__init__

    def begin(self, *arguments):
        start(self, *arguments)
        self.blocks = self.blocks.view(Pressed)

    monkeypatch.setattr(CallbackEngine, "__init__", begin)
    part = BCFW(lam=0.1, steps=steps).solve(as_callbacks(CHAIN))
    assert part.interrupted and part.passes == 0
    state = part.state
    assert state["blocks"].any()
    np.testing.assert_allclose(state["w"], np.asarray(state["blocks"]).sum(0))
    assert (state["ell"] > 0).sum() == 1


def test_ctrl_c_twice_raises(monkeypatch):
    def pressed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(ChainEngine, "compute_certificate", pressed)
    with pytest.raises(KeyboardInterrupt):
        SOLVERS["BCFW"](max_passes=3).solve(CHAIN)
