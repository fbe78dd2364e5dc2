"""What a trace records of runs, keeps in a file and draws."""

import math
import os

import pytest
import torch

from smoothsp.optim import SVRG, CasimirSVRG, ProxLinear, Trace
from smoothsp.optim.curves import CurvePoint, median_band
from tests.sweeps import thinned


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr("smoothsp.optim.trace.time.perf_counter", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def least_squares():
    torch.manual_seed(0)
    x = torch.randn(6, 4, 3)
    return x, x.sum(2, keepdim=True), torch.nn.Linear(3, 1)


def closure_of(model, target):
    def closure(batch):
        loss = (model(batch) - target(batch)).square().mean()
        loss.backward()
        return loss

    return closure


def total(batch):
    return batch.sum(-1, keepdim=True)


OURS = {
    "svrg": lambda model: SVRG(model.parameters(), lr=0.1),
    "casimir": lambda model: CasimirSVRG(
        model.parameters(), kappa=0.1, lr=0.1, weight_decay=0.1
    ),
}


@pytest.mark.parametrize("name", OURS)
def test_calls_are_those_that_our_optimizers_count(name):
    x, _, model = least_squares()
    optimizer = OURS[name](model)
    run = Trace().run(name, optimizer)
    closure = closure_of(model, total)
    for epoch in (1, 2):
        optimizer.epoch(closure, x)
        point = run.record(0.0)
        assert point.calls == optimizer.oracle_calls
        assert point.calls["iterate"] == 24 * epoch


@pytest.mark.parametrize("name", OURS)
def test_calls_before_a_run_are_not_of_the_run(name):
    x, _, model = least_squares()
    optimizer = OURS[name](model)
    closure = closure_of(model, total)
    optimizer.epoch(closure, x)
    before = dict(optimizer.oracle_calls)
    trace = Trace()
    run = trace.run(name, optimizer)
    assert set(run.calls.values()) == {0.0}
    optimizer.epoch(closure, x)
    after = optimizer.oracle_calls
    calls = {kind: after[kind] - before[kind] for kind in sorted(after)}
    assert run.record(0.0).calls == calls
    # a resumed run has those of its checkpoint
    assert trace.run(name, optimizer, resume=True).calls == dict(sorted(after.items()))


def test_prox_linear_counts_objectives_too():
    x, _, model = least_squares()
    optimizer = ProxLinear(model, lr=1.0, smoothness=4.0)
    run = Trace().run("prox-linear", optimizer)
    closure = closure_of(optimizer.model, total)

    def objective(batch):
        return (optimizer.model(batch) - total(batch)).square().mean()

    value = optimizer.step(closure, list(x), objective)
    assert run.record(value).calls == optimizer.oracle_calls
    assert run.calls["objective"] > 0


def test_steps_of_other_optimizers_are_counted():
    x, _, model = least_squares()
    closure = closure_of(model, total)
    adam = torch.optim.Adam(model.parameters())
    run = Trace().run("Adam", adam, examples=4)
    for batch in x:
        closure(batch)
        adam.step()
    adam.step(lambda: closure(x[0]))
    assert run.calls == {"iterate": 28.0}
    other = torch.optim.LBFGS(model.parameters(), max_iter=4)
    run, asked = Trace().run("L-BFGS", other, examples=24), []

    def whole():
        asked.append(1)
        other.zero_grad()
        return closure(x)

    other.step(whole)
    assert len(asked) > 1
    assert run.calls == {"iterate": 24.0 * len(asked)}


def test_the_clock_stops_while_objectives_are_computed(clock):
    _, _, model = least_squares()
    run = Trace().run("SGD", torch.optim.SGD(model.parameters(), lr=0.1))
    clock.now += 2.0

    def objective():
        clock.now += 50.0
        assert not torch.is_grad_enabled()
        return torch.tensor(3.0)

    first = run.record(objective, gap=lambda: objective() - 2)
    clock.now += 1.0
    second = run.record(2.0)
    assert (first.seconds, second.seconds) == (2.0, 3.0)
    assert (first.objective, first.gap) == (3.0, 1.0)
    assert math.isnan(second.gap)


def test_a_file_holds_what_was_recorded_and_runs_go_on(tmp_path, clock):
    path = tmp_path / "new" / "trace.csv"
    x, _, model = least_squares()
    trace = Trace(path)
    svrg = SVRG(model.parameters(), lr=0.1)
    run = trace.run("SVRG, lr 0.1", svrg)
    svrg.epoch(closure_of(model, total), x)
    clock.now += 1.5
    run.record(1.0, gap=0.25)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    plain = trace.run("SGD", sgd, examples=4)
    sgd.step()
    clock.now += 0.1
    plain.record(math.inf)
    assert path.read_text().splitlines()[0] == (
        "run,seed,seconds,objective,gap,calls,full,iterate,snapshot"
    )
    again = Trace(path)
    assert repr(again.points) == repr(trace.points)
    assert [one.name for one in path.parent.iterdir()] == ["trace.csv"]

    resumed = again.run("SGD", sgd, examples=4, resume=True)
    sgd.step()
    clock.now += 0.5
    point = resumed.record(0.5)
    assert point.seconds == pytest.approx(0.6)
    assert point.calls == {"iterate": 8.0}
    again.run("SGD", sgd)
    assert [point.run for point in again.points] == ["SVRG, lr 0.1"]


@pytest.mark.parametrize("ending", thinned(["svg", "png"], 2))
def test_it_draws_both_axes(tmp_path, ending):
    _, _, model = least_squares()
    trace = Trace()
    for name in ("one", "two"):
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        run = trace.run(name, sgd)
        for value in (3.0, 2.0, 1.5):
            sgd.step()
            run.record(value)
    path = tmp_path / f"figure.{ending}"
    trace.draw(path)
    assert path.stat().st_size > 1000
    if ending == "svg":
        text = path.read_text()
        assert "calls" in text and "seconds" in text
        assert "one" in text and "above the lowest" in text
        run.record(1.6, gap=0.3)
        trace.draw(path)
        assert "above a lower bound" in path.read_text()


def test_seeds_and_metrics(tmp_path):
    _, _, model = least_squares()
    trace = Trace(tmp_path / "runs.csv")
    for seed in (3, 4):
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        run = trace.run("SGD", sgd, seed=seed)
        for value in (3.0, 2.0 + seed):
            sgd.step()
            run.record(value, metrics={"test error": lambda value=value: value / 10})
    assert [point.seed for point in trace.points] == [3, 3, 4, 4]
    again = Trace(tmp_path / "runs.csv")
    assert repr(again.points) == repr(trace.points)
    assert again.points[1].metrics == {"test error": 0.5}
    trace.draw(tmp_path / "runs.svg", lowest=0.0)
    assert "test error" in (tmp_path / "runs.svg").read_text()
    # one seed anew, one goes on
    assert again.run("SGD", sgd, seed=3, resume=True).calls == {"iterate": 2.0}
    again.run("SGD", sgd, seed=3)
    assert [point.seed for point in again.points] == [4, 4]


def test_bands_are_medians_and_ranges_until_a_run_diverges():
    runs = [
        [
            CurvePoint(0, 1.0, 4.0),
            CurvePoint(1, 2.0, 2.0),
            CurvePoint(2, 3.0, 1.0),
            CurvePoint(3, 4.0, math.inf),
        ],
        [CurvePoint(0, 2.0, 5.0), CurvePoint(1, 3.0, 3.0)],
        [
            CurvePoint(0, 9.0, 9.0),
            CurvePoint(1, 9.0, 8.0),
            CurvePoint(2, 5.0, 3.0),
            CurvePoint(3, 6.0, 1.0),
        ],
    ]
    # the one that ended keeps its value, and has no costs any more
    assert median_band(runs) == ([2.0, 3.0, 4.0], [5, 3, 3], [4, 2, 1], [9, 8, 3])
    assert median_band(
        [[], [CurvePoint(0, 1.0, math.nan), CurvePoint(1, 1.0, 2.0)]]
    ) == ([1.0], [2], [2], [2])
    assert median_band([]) == ([], [], [], [])


def test_wrong_arguments_are_named(tmp_path):
    _, _, model = least_squares()
    sgd, trace = torch.optim.SGD(model.parameters(), lr=0.1), Trace()
    with pytest.raises(TypeError, match=r"optimizer: expected a torch.optim.Optimizer"):
        trace.run("x", model)
    with pytest.raises(TypeError, match="seed: expected an int"):
        trace.run("x", sgd, seed=0.5)
    with pytest.raises(ValueError, match="examples: expected at least 1, got 0"):
        trace.run("x", sgd, examples=0)
    with pytest.raises(ValueError, match="draw: expected finite objectives, got none"):
        trace.draw(tmp_path / "x.png")
    run = trace.run("x", sgd)
    with pytest.raises(TypeError, match=r"objective: expected a number, .* got str"):
        run.record("low")
    with pytest.raises(ValueError, match=r"gap: expected at least 0, got -1.0"):
        run.record(1.0, gap=-1.0)
    run.record(1.0)
    with pytest.raises(ValueError, match=r"lowest: .* objective, 1.0, got 2.0"):
        trace.draw(tmp_path / "x.png", lowest=2.0)
    with pytest.raises(ValueError, match=r"path: ending: expected one of .* got 'xyz'"):
        trace.draw(tmp_path / "x.xyz")
    # a file would take the place of what is no file
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="path: expected a file, got a device at"):
        trace.save(tmp_path / "pipe")
    wrong = tmp_path / "wrong.csv"
    wrong.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="path: expected a file that a trace wrote"):
        Trace(wrong)
    wrong.write_text("run,seed,seconds,objective,gap,calls,full\nx,0,1,2\n")
    with pytest.raises(ValueError, match="line 2"):
        Trace(wrong)
