"""Solvers take turns, the least time counts, and none stops too high."""

import math

import numpy as np
import pytest

import solvers
from methods import liblinear_svms, our_svms
from smoothsp.linear import CrammerSingerSVC, HingeSVC
from tests.sweeps import thinned
from tests.truth import svm_objectives as truth
from training import races, svm_objectives, svm_races
from training.drawn_texts import drawn_texts
from training.races import Answer, Entry, Goal, Racer, TooHigh, race, ratios


def clocked(name, seconds, objective=1.0, **about):
    """A racer that says how long it took."""
    answers = iter(seconds)
    return Racer(
        name, lambda: next(answers), lambda x: Answer(objective, x, 5), **about
    )


def entry(section="s", case="k = 100", method="m", ratio=0.5, **about):
    fields = {"dtype": "float64", "threads": 1, "seconds": 1.0, "median": 1.0}
    fields |= {"rounds": 1, "objective": 1.0, "epochs": 1}
    return Entry(section, case, method, ratio=ratio, **fields | about)


def test_the_least_time_counts():
    racers = [clocked("peer", [4.0, 2.0, 3.0]), clocked("ours", [1.0, 3.0, 0.5])]
    peer, ours = race("s", "c", racers, "peer", 3)
    assert (peer.seconds, peer.median, peer.ratio) == (2, 3, 1)
    assert (ours.seconds, ours.median, ours.ratio) == (0.5, 1, 0.25)
    assert ours.rounds == 3 and ours.epochs == 5 and ours.objective == 1


def test_racers_take_turns_in_an_order_that_rotates():
    seen = []
    racers = [
        Racer(name, lambda name=name: seen.append(name), lambda _: Answer())
        for name in "abc"
    ]
    entries = race("s", "c", racers, "a", 3)
    assert "".join(seen) == "abcbcacab"
    assert all(x.seconds > 0 and math.isnan(x.objective) for x in entries)


def test_a_solver_that_stops_too_high_ends_the_race():
    racers = [clocked("p", [1.0]), clocked("o", [1.0], objective=2.0, highest=1.9)]
    with pytest.raises(TooHigh, match=r"nothing is reported, o stopped at 2.0, above"):
        race("s", "c", racers, "p", 1)


def test_goals_say_what_is_reached():
    entries = [entry(ratio=0.4), entry(case="k = 500", ratio=0.7)]
    found = ratios(entries, "s", "m")
    assert found == [(0.4, "k = 100 float64"), (0.7, "k = 500 float64")]
    assert Goal("g", 0.7, found).word == "reached"
    missed = Goal("g", 0.6, found)
    assert missed.word == "missed"
    assert missed.cells == ["g", "at most 0.6x", "0.70x", "k = 500 float64", "missed"]
    assert Goal("g", 1, []).word == "not measured"
    assert not ratios(entries, "s", "m", threads=2)


def test_goals_of_the_svms_take_their_own_entries():
    entries = [
        entry(svm_races.CRAMMER_SINGER, "x, k = 10, -e 0.1", our_svms.NAME, 0.9),
        entry(svm_races.CRAMMER_SINGER, "x, k = 100, -e 0.1", our_svms.NAME, 0.4),
        entry(svm_races.CRAMMER_SINGER, "x, k = 100, -e 0.001", our_svms.NAME, 1.2),
        entry(svm_races.BINARY, "x, k = 2, -e 0.1", our_svms.NAME, 0.7),
        entry(svm_races.FEW_FEATURES, "x, k = 7, -e 0.001", our_svms.NAME, 0.6),
        entry(svm_races.BLOCKS, "x, k = 100, gap 0.1", "walrus", 0.8),
        entry(svm_races.BLOCKS, "x, k = 300, gap 0.1", "walrus", 0.2),
        entry(svm_races.BLOCK, "k - 1 = 256", "smoothsp", 1.0, seconds=9e-6),
        entry(svm_races.THREADS, "x, k = 5", "2 threads", 0.9, threads=2),
    ]
    goals = svm_races.goals(entries)
    assert [max(goal.values)[0] for goal in goals] == [
        0.4, 1.2, 0.7, 0.6, 0.2, pytest.approx(9.0), 0.9
    ]  # fmt: skip
    assert [goal.word for goal in goals] == [
        "reached", "missed", "reached", "reached", "reached", "reached", "reached"
    ]  # fmt: skip
    table = solvers.goals_table(goals)
    assert table.count("reached") == 6 and "9.00 us" in table


def test_objectives_are_those_of_the_tests():
    X, y = drawn_texts(60, 20, 4, words=8)
    W = np.random.default_rng(0).normal(size=(4, 20))
    expected = truth.primal(CrammerSingerSVC, W, X.toarray(), y, 0.3)
    assert svm_objectives.crammer_singer(W, X, y, 0.3) == pytest.approx(expected)
    signs = np.where(y % 2 == 0, 1, -1)
    expected = truth.primal(HingeSVC, W[:1], X.toarray(), (signs > 0).astype(int), 0.3)
    assert svm_objectives.binary(W[0], X, signs, 0.3) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [CrammerSingerSVC, HingeSVC])
@pytest.mark.parametrize("dtype", thinned(our_svms.DTYPES, 2))
def test_fits_stop_at_the_objective_that_is_asked(kind, dtype):
    X, y = drawn_texts(150, 40, 4, words=8)
    labels = np.where(y % 2 == 0, 1, -1) if kind is HingeSVC else y
    best = kind(tol=1e-6, random_state=0).fit(X, labels).history_[-1].primal
    highest = 1.02 * best
    racer = our_svms.to_objective(kind, X, labels, 1.0, highest, dtype)
    found = racer.read(racer.call())
    assert best * (1 - 1e-5) <= found.objective <= highest == racer.highest


@pytest.mark.skipif(not liblinear_svms.installed(), reason="needs LIBLINEAR")
@pytest.mark.parametrize("solver", [3, 4])
def test_weights_of_liblinear_are_read_in_our_order(solver):
    X, y = drawn_texts(150, 40, 4, words=8)
    kind, labels = CrammerSingerSVC, y
    if solver == 3:
        kind, labels = HingeSVC, np.where(y % 2 == 0, 1, -1)
    racer = liblinear_svms.racer(X, labels, solver, 1e-6, 1.0)
    expected = kind(tol=1e-6, random_state=0).fit(X, labels).history_[-1].primal
    assert racer.read(racer.call()).objective == pytest.approx(expected, rel=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("dtypes", thinned([["float64"], [*our_svms.DTYPES]], 2))
def test_a_quick_run_measures_every_goal(dtypes, monkeypatch):
    monkeypatch.setattr(our_svms, "DTYPES", dtypes)
    plan = svm_races.Plan(
        samples=120, features=60, classes=(3,), binary=((120, 60, 8),),
        dense=((120, 6, 3, True),), greedy_classes=(4,), entries=(256,), rounds=1,
        slow_rounds=1,
    )  # fmt: skip
    if not liblinear_svms.installed():
        pytest.skip("needs LIBLINEAR")
    entries = list(svm_races.measure(plan))
    sections = {entry.section for entry in entries}
    assert {svm_races.CRAMMER_SINGER, svm_races.BINARY} <= sections
    assert {svm_races.FEW_FEATURES, svm_races.BLOCKS, svm_races.BLOCK} <= sections
    assert solvers.times_table(entries).count("\n") == len(entries) + 1


def test_entries_are_written_with_their_machine(tmp_path):
    rows = [solvers.row_of(x) for x in (entry(), entry(method="n"))]
    solvers.write(tmp_path / "a" / "b.csv", rows)
    lines = (tmp_path / "a" / "b.csv").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("section,case,method,dtype,threads,seconds")
    assert races.Entry.__dataclass_fields__.keys() <= set(lines[0].split(","))


def test_tables_are_written_to_their_page(tmp_path, capsys):
    page = tmp_path / solvers.PAGE
    page.parent.mkdir()
    page.write_text((solvers.HERE / solvers.PAGE).read_text())
    solvers.present([solvers.row_of(entry(method="a new solver"))], tmp_path)
    assert (tmp_path / solvers.CSV).exists()
    assert "measured" in capsys.readouterr().out
    assert "a new solver" in page.read_text() and "Peak memory" in page.read_text()


def test_sections_that_are_not_measured_again_keep_their_rows(tmp_path):
    first, second = list(svm_races.SECTIONS)[:2]
    old = [
        solvers.row_of(entry(x, ratio=0.5)) | {"date": "then"} for x in (first, second)
    ]
    path = tmp_path / "svm.csv"
    for row in old:
        del row["torch"]
    solvers.write(path, old)
    rows = solvers.merged([solvers.row_of(entry(second, ratio=0.25, epochs=0))], path)
    found = [solvers.entry_of(row) for row in rows]
    assert [(x.section, x.ratio) for x in found] == [(first, 0.5), (second, 0.25)]
    assert found[0].threads == 1
    solvers.write(path, rows)
    assert "torch" in path.read_text().splitlines()[0]
    text = solvers.where(rows)
    assert f"- {first}: then, " in text and f"- {second}: 2" in text
    assert solvers.where(rows[1:]).startswith("2")
