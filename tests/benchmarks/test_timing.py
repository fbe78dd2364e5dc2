"""Statistics of samples, and which rounds count."""

import torch

from measuring import timing
from measuring.timing import Effort, Measured

QUIET = [False] * 6


def measured(disturbed=QUIET, **samples):
    return Measured(samples, dict.fromkeys(samples, 1.0), list(disturbed))


def test_ratios_are_paired_within_rounds():
    # in turn 10, 5, 4, 1 and 1 times ours; the medians are 10 and 3
    samples = {"ours": [1.0, 2.0, 3.0, 4.0, 5.0], "peer": [10.0, 10.0, 12.0, 4.0, 5.0]}
    summary = timing.summarise(measured(**samples, disturbed=QUIET[:5]), "ours")
    peer = summary["peer"]
    assert (peer.ratio_low, peer.ratio, peer.ratio_high) == (1, 4, 5)
    assert peer.median == 10
    assert summary["ours"].ratio == 1


def test_median_and_quartiles():
    summary = timing.summarise(
        measured(ours=[5.0, 1.0, 4.0, 2.0, 3.0], disturbed=QUIET[:5]), "ours"
    )["ours"]
    assert (summary.low, summary.median, summary.high) == (2, 3, 4)
    assert summary.samples == 5


def test_disturbed_rounds_are_dropped_if_enough_others_remain():
    times = [9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0]
    disturbed = [x > 1 for x in times]
    summary = timing.summarise(measured(ours=times, disturbed=disturbed), "ours")
    assert summary["ours"].samples == timing.ENOUGH == 5
    assert summary["ours"].high == 1


def test_every_method_is_sampled_once_a_round(monkeypatch):
    monkeypatch.setattr(timing.Others, "disturb", lambda self: False)
    turns = []
    methods = {n: method(lambda n=n: turns.append(n)) for n in "abc"}
    found = timing.measure(methods, dict.fromkeys("abc", 0.1), Effort(rounds=3))
    assert {n: len(x) for n, x in found.samples.items()} == {"a": 3, "b": 3, "c": 3}
    assert "".join(turns) == "abcbcacab"  # nobody is always first


def test_rounds_are_added_for_disturbed_ones(monkeypatch):
    verdicts = iter([True, False, True, False])
    monkeypatch.setattr(timing.Others, "disturb", lambda self: next(verdicts))
    found = timing.measure({"a": method(int)}, {"a": 1.0}, Effort(rounds=2))
    assert found.disturbed == [True, False, True, False]


def test_a_method_runs_on_its_own_number_of_threads():
    before = torch.get_num_threads()
    seen = []
    several = method(lambda: seen.append(torch.get_num_threads()), threads=before + 1)
    timing.measure({"a": several}, {"a": 1.0}, Effort(rounds=1))
    assert set(seen) == {before + 1}
    assert torch.get_num_threads() == before


def method(call, threads=None):
    from inference.questions import Method

    return Method("", None, call, tuple, threads=threads)
