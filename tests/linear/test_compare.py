"""Solvers side by side: budgets, looks, stored runs, tables and figures."""

import copy
import functools
import json
import sys

import numpy as np
import pytest
import torch

from smoothsp.linear import Comparison, compare
from smoothsp.linear.comparison.fingerprint import describe_settings
from smoothsp.linear.problems import (
    BinaryProblem,
    CallbackProblem,
    F1Problem,
    LeastSquaresProblem,
    MulticlassProblem,
    ROCAreaProblem,
)
from smoothsp.linear.solvers import (
    AGM,
    BCFW,
    LBFGS,
    SGD,
    SVRG,
    BatchFrankWolfe,
    CoordinateDescent,
    RegularisationPath,
    Solver,
    solve,
)
from tests.linear.solvers.test_primal_callbacks import behind_oracles
from tests.truth.linear_chain import random_chain
from tests.truth.structure_problems import known_problem

LAM = 0.05
CHAIN = random_chain(2, n=8)
SOLVERS = {
    "BCFW": lambda seed: BCFW(lam=LAM, tol=0, seed=seed, max_passes=1),
    "SVRG": lambda seed: SVRG(lam=LAM, seed=seed, evaluate_every=1),
    "SGD": lambda seed: SGD(lam=LAM, seed=seed, evaluate_every=1000),
    "L-BFGS": lambda seed: LBFGS(lam=LAM, loss="hinge-l2", max_passes=1),
}


class Descent(Solver):
    """Subgradient steps of a length that does not fall."""

    lam = LAM

    def __init__(self, problem, rate=0.1):
        self.problem, self.rate = problem, rate
        self.w = np.zeros(problem.num_weights)

    def advance(self):
        slope = self.problem.risk(self.w)[1] + LAM * self.w
        self.w = self.w - self.rate * slope
        self.passes += 1
        self.calls += len(self.problem)

    def due(self):
        return False

    def certify(self):
        return self.problem.primal(self.w, LAM), np.nan, np.nan

    def weights(self):
        return self.w.copy()


class Resumed(Descent):
    def state(self):
        return {"calls": np.array(self.calls)}

    def load(self, state):
        self.passes, self.calls = int(state["passes"]), int(state["calls"])
        self.w = state["w"].copy()


def test_looks_are_at_equal_costs_and_values_are_those_of_the_weights():
    seen = []

    def error(w):
        seen.append(w)
        return float((CHAIN.decode(w) != CHAIN.labels).mean())

    given = {"looks": [1, 2, 5, 9], "seeds": [3, 4], "metrics": {"error": error}}
    race = compare(SOLVERS, CHAIN, **given)
    assert [(r["solver"], r["seed"]) for r in race.rows[::4]][:2] == [
        ("BCFW", 3),
        ("BCFW", 4),
    ]
    assert {row["solver"] for row in race.rows} == set(SOLVERS)
    for row in race.rows:
        assert row["calls"] == row["oracle_calls"] / len(CHAIN) >= row["look"] > 0
        assert row["gap"] == pytest.approx(row["primal"] - row["dual"], nan_ok=True)
        known = [CHAIN.primal(w, LAM) for w in seen]
        assert np.isclose(known, row["primal"]).any()
    exact = [row for row in race.rows if row["solver"] in ("BCFW", "SGD")]
    # passes are looks there
    assert all(row["calls"] == row["look"] == row["passes"] for row in exact)
    # a pass of SVRG with its certificate is four calls: two looks in one pass
    svrg = [r for r in race.rows if r["solver"] == "SVRG" and r["seed"] == 3]
    assert [(r["look"], r["calls"]) for r in svrg] == [(2, 4), (5, 8), (9, 12)]
    # budgets of solvers are not theirs here
    last = [row for row in race.rows if row["status"]]
    assert len(last) == 8 and {r["status"] for r in last} == {"stopped by the observer"}
    bcfw = [r["dual"] for r in race.rows if r["solver"] == "BCFW" and r["seed"] == 3]
    assert np.isfinite(bcfw).all() and race.lower_bound >= max(bcfw)
    assert race.lower_bound <= min(row["primal"] for row in race.rows)


def test_a_run_is_what_it_is_without_looks():
    race = compare({"BCFW": SOLVERS["BCFW"]}, CHAIN, looks=[4, 13], seeds=[5])
    plain = BCFW(lam=LAM, tol=0, seed=5, max_passes=12).solve(CHAIN)
    # with the certificate after 10 passes
    assert race.rows[-1]["oracle_calls"] == 13 * len(CHAIN)
    assert race.rows[-1]["passes"] == 12
    assert race.rows[-1]["primal"] == pytest.approx(CHAIN.primal(plain.w, LAM))


def test_a_run_ends_at_its_own_tolerance():
    makes = {"BCFW": lambda seed: BCFW(lam=1.0, tol=0.5, refresh_every=1)}
    race = compare(makes, CHAIN, looks=[2, 1000])
    last = race.rows[-1]
    assert last["look"] == 1000 > last["calls"] and last["gap"] <= 0.5
    assert last["status"] == "the gap is at most tol = 0.5"


@pytest.mark.parametrize("unit", ["passes", "seconds"])
def test_other_units(unit):
    looks = [1, 3] if unit == "passes" else [1e-5, 1e-3]
    race = compare({"SGD": SOLVERS["SGD"]}, CHAIN, looks=looks, unit=unit)
    assert all(row[unit] >= row["look"] for row in race.rows)
    assert race.rows[-1]["look"] == looks[-1]


def test_the_clock_stops_during_a_look(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(
        "smoothsp._kernels.compilation.clock.seconds_without_compilation",
        lambda: now[0],
    )

    def slow(w):
        now[0] += 100
        return 0.0

    race = compare({"SGD": SOLVERS["SGD"]}, CHAIN, looks=[1, 2], metrics={"x": slow})
    assert [row["seconds"] for row in race.rows] == [0, 0]


def test_an_object_with_the_protocol_runs():
    makes = {"mine": lambda seed: Descent(CHAIN), "SGD": SOLVERS["SGD"]}
    race = compare(makes, CHAIN, looks=[1, 3])
    w = np.zeros(CHAIN.num_weights)
    for _ in range(3):
        w = w - 0.1 * (CHAIN.risk(w)[1] + LAM * w)
    assert race.rows[1]["primal"] == pytest.approx(CHAIN.primal(w, LAM))
    assert race.rows[1]["oracle_calls"] == 3 * len(CHAIN)
    found = solve(Resumed(CHAIN), CHAIN, max_passes=3)
    assert np.array_equal(found.w, w) and np.array_equal(found.state["w"], w)
    more = solve(Resumed(CHAIN), CHAIN, max_passes=5, resume=found.state)
    assert np.array_equal(more.w, solve(Descent(CHAIN), CHAIN, max_passes=5).w)
    state = solve(Descent(CHAIN), CHAIN, max_passes=3).state
    with pytest.raises(ValueError, match=r"^resume: expected None for Descent"):
        solve(Descent(CHAIN), CHAIN, resume=state)


class Raising(Descent):
    def advance(self):
        super().advance()
        if self.passes == 3:
            raise FloatingPointError("too far")


def test_what_diverges_is_a_row():
    far = {
        "mine": lambda seed: Descent(CHAIN, rate=1e200),
        "SGD": lambda seed: SGD(lam=LAM, rate=1e3, decay="pegasos"),
        "raising": lambda seed: Raising(CHAIN),
    }
    race = compare(far, CHAIN, looks=[2, 4, 400], objective=lambda w: w @ w)
    ends = {row["solver"]: row for row in race.rows}
    for name in ("mine", "raising"):
        assert np.isinf(ends[name]["primal"]) and "diverged" in ends[name]["status"]
    assert np.isfinite(ends["SGD"]["primal"])
    steps = [(r["look"], r["passes"]) for r in race.rows if r["solver"] == "raising"]
    # the true costs of the last pass that was whole
    assert steps == [(2, 2), (4, 2)]
    race.panels()


class Plain(Descent):
    """Steps of no length that is good, without oracle calls."""

    def due(self):
        return True

    def advance(self):
        self.w = self.w + 10.0**self.rate
        self.passes += 1
        self.calls += 4


class Failing(Plain):
    """A certificate that raises the given error."""

    def certify(self):
        if self.passes == 2:
            raise self.error
        return 1.0, np.nan, np.nan


def failing(error, rate=1.0):
    def make(seed):
        found = Failing(CHAIN, rate)
        found.error = error
        return found

    return make


FAR = {
    "chain": (CHAIN, np.inf),
    "chain, finite": (CHAIN, 308),
    "classes": (MulticlassProblem(np.eye(3), [0, 1, 2]), np.inf),
    "structure": (known_problem("chain").problem, np.inf),
    "F1": (F1Problem(np.eye(3), [1, -1, 1]), np.inf),
    "area": (ROCAreaProblem(np.eye(3), [1, -1, 1]), np.inf),
    "two classes": (BinaryProblem(np.eye(3), [1, -1, 1]), np.inf),
    "oracle": (behind_oracles(CHAIN), np.inf),
}


@pytest.mark.parametrize("name", FAR)
def test_certificates_that_diverge_lose_no_rows(name):
    problem, rate = FAR[name]

    class Certifying(Plain):
        def certify(self):
            return LAM / 2 * self.w @ self.w + problem.risk(self.w)[0], np.nan, np.nan

    makes = {
        "far": lambda seed: Certifying(problem, rate),
        "near": lambda seed: Certifying(problem, -1),
    }
    race = compare(
        makes, problem, looks=[1, 2], objective=lambda w: float(abs(w).sum())
    )
    far, *near = race.rows
    assert far["primal"] == np.inf and far["status"].startswith("diverged: ")
    assert [row["passes"] > 0 for row in near] == [True] * len(near) != []


def test_errors_at_infinite_weights_are_divergence():
    makes = {"a": failing(KeyError("x"), rate=np.inf), "b": SOLVERS["SGD"]}
    race = compare(makes, CHAIN, looks=[2])
    assert [row["primal"] == np.inf for row in race.rows] == [True, False]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("odd"),
        KeyError("odd"),
        KeyError(3),
        ValueError(),
        RuntimeError("a", 1),
    ],
)
def test_errors_name_solver_and_seed(tmp_path, error):
    given = {"looks": [1, 9], "seeds": [7], "out": tmp_path}
    makes = {"SGD": SOLVERS["SGD"], "mine": failing(error)}
    with pytest.raises(type(error), match=r"\(solver 'mine', seed 7\)"):
        compare(makes, CHAIN, **given)
    # the other is finished
    assert [path.name[:3] for path in tmp_path.iterdir()] == ["SGD"]

    def odd(*given):
        raise type(error)(*error.args)

    error.args = error.args[:1]
    with pytest.raises(type(error), match=r"make\(seed\) of 'odd', seed 7"):
        compare({**SOLVERS, "odd": odd}, CHAIN, looks=[1], seeds=[7])
    with pytest.raises(type(error), match=r"solver 'BCFW', seed 7, metric 'odd'"):
        compare(SOLVERS, CHAIN, looks=[1], seeds=[7], metrics={"odd": odd})


def test_errors_of_metrics_are_no_divergence():
    def odd(w):
        raise FloatingPointError("odd")

    with pytest.raises(
        FloatingPointError, match=r"^odd \(solver 'SGD', seed 0, metric"
    ):
        compare({"SGD": SOLVERS["SGD"]}, CHAIN, looks=[1], metrics={"odd": odd})

    def lost(w):
        raise FileNotFoundError(2, "no such file", "a.txt")

    # its message is made of its attributes
    with pytest.raises(RuntimeError, match=r"^FileNotFoundError: .*a.txt.*'SGD'"):
        compare({"SGD": SOLVERS["SGD"]}, CHAIN, looks=[1], metrics={"lost": lost})


@pytest.mark.parametrize("unit", ["calls", "passes", "seconds"])
def test_the_first_run_is_warm(unit):
    passes = {}

    class Noted(Descent):
        def advance(self):
            super().advance()
            passes.setdefault(id(self), []).append(self)

    makes = {name: lambda seed: Noted(CHAIN) for name in "ab"}
    given = {"looks": [1e-9] if unit == "seconds" else [3], "unit": unit}
    race = compare(makes, CHAIN, seeds=[0, 1], **given)
    counts = [len(made) for made in passes.values()]
    runs = [row["passes"] for row in race.rows if row["passes"]]
    assert sorted(counts) == sorted([1, 1, *runs])
    if unit == "calls":
        assert counts == [1, 3, 1, 3, 3, 3]


def test_ctrl_c_stops_the_pass_that_is_not_counted():
    made = []

    class Stopped(Descent):
        def advance(self):
            made.append(self)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare({"a": lambda seed: Stopped(CHAIN)}, CHAIN, looks=[1])
    assert len(made) == 1


def test_finished_runs_are_read_and_changed_ones_computed(tmp_path):
    made = []

    def bcfw(seed, **options):
        solver = BCFW(lam=LAM, tol=0, seed=seed, **options)
        inner = solver.solve

        def counted(*given, **more):
            made.append(seed)
            return inner(*given, **more)

        solver.solve = counted
        return solver

    given = {"looks": [1, 2], "seeds": [0, 1], "out": tmp_path / "race"}
    first = compare({"a": bcfw}, CHAIN, **given)
    # the first is one pass that is not counted
    assert made == [0, 0, 1] and len(list((tmp_path / "race").iterdir())) == 2
    again = compare({"a": bcfw}, CHAIN, **given)
    assert made == [0, 0, 1]
    np.testing.assert_equal(again.rows, first.rows)
    changes = [
        ({"a": lambda seed: bcfw(seed, steps="pairwise")}, CHAIN, {}),
        ({"a": bcfw}, random_chain(3, n=8), {}),
        ({"a": bcfw}, CHAIN, {"looks": [1, 3]}),
        ({"a": bcfw}, CHAIN, {"unit": "passes"}),
        ({"a": bcfw}, CHAIN, {"metrics": {"size": np.linalg.norm}}),
    ]
    for solvers, problem, more in changes:
        made.clear()
        compare(solvers, problem, **{**given, **more})
        assert made == [0, 0, 1]
    # another seed alone
    made.clear()
    compare({"a": bcfw}, CHAIN, **{**given, "seeds": [1, 2, 0]})
    assert made == [1, 2]
    # names that differ in a sign alone
    pair = compare({"a b": bcfw, "a-b": bcfw}, CHAIN, **given)
    assert [row["solver"] for row in pair.rows] == 4 * ["a b"] + 4 * ["a-b"]


def test_edited_files_are_refused(tmp_path):
    given = {"looks": [1, 2], "out": tmp_path}
    compare({"SGD": SOLVERS["SGD"]}, CHAIN, **given)
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text())
    found["rows"][0]["primal"] += 1
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match=r"^out: .*edited file at.*SGD.*delete it"):
        compare({"SGD": SOLVERS["SGD"]}, CHAIN, **given)

    def interrupt(w):
        if not path.exists():
            raise KeyboardInterrupt
        return 0.0

    path.unlink()
    given["metrics"] = {"x": interrupt}
    with pytest.raises(KeyboardInterrupt):
        compare({"SGD": SOLVERS["SGD"]}, CHAIN, **given)
    (path,) = tmp_path.iterdir()
    with np.load(path) as arrays:
        edited = {**arrays, "rows_of_comparison": np.array("[{}]")}
    np.savez(path, **edited)
    with pytest.raises(ValueError, match=r"^out: .*edited file at.*npz; delete it"):
        compare({"SGD": SOLVERS["SGD"]}, CHAIN, **given)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"settings": {}, "rows": []}'])
def test_damaged_files_are_named(tmp_path, content):
    given = {"looks": [1], "out": tmp_path}
    compare({"SGD": SOLVERS["SGD"]}, CHAIN, **given)
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^out: expected a run.*delete it"):
        compare({"SGD": SOLVERS["SGD"]}, CHAIN, **given)


@pytest.mark.parametrize("kind", ["ours", "mine", "not resumable"])
@pytest.mark.parametrize("at", [2, 5])
def test_an_interrupted_race_goes_on(tmp_path, kind, at):
    calls = []

    def make(seed):
        if kind == "ours":
            return BCFW(lam=LAM, tol=0, seed=seed)
        return (Resumed if kind == "mine" else Descent)(problem)

    def look(w):
        calls.append(w)
        if len(calls) == at:
            raise KeyboardInterrupt
        return 0.0

    problem = behind_oracles(CHAIN)
    given = {"looks": [1, 2, 3], "seeds": [0, 1], "metrics": {"x": look}}
    with pytest.raises(KeyboardInterrupt):
        compare({"a": make}, problem, out=tmp_path, **given)
    kinds = sorted(path.suffix for path in tmp_path.iterdir())
    partial = [] if kind == "not resumable" else [".npz"]
    assert kinds == [".json"] * (at // 4) + partial
    resumed = compare({"a": make}, problem, out=tmp_path, **given)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json"}
    repeated = kind == "not resumable"
    assert len(calls) == 7 + repeated * (at - 1 - 3 * (at // 4))
    at = 10**9
    whole = compare({"a": make}, problem, **given)
    for one, other in zip(resumed.rows, whole.rows, strict=True):
        names = one.keys() - {"seconds"}
        np.testing.assert_equal(
            {k: one[k] for k in names}, {k: other[k] for k in names}
        )


def test_objectives_are_those_of_the_solvers():
    likely = {"L-BFGS": lambda seed: LBFGS(lam=LAM)}
    row = compare(likely, CHAIN, looks=[1]).rows[-1]
    assert row["primal"] == pytest.approx(
        CHAIN.likelihood(np.zeros(CHAIN.num_weights))[0]
    )
    squares = LeastSquaresProblem(np.eye(4), [1.0, 2.0, 3.0, 4.0])
    makes = {
        "descent": lambda seed: CoordinateDescent(lam=0.1, l1=0.2, tol=0),
        "AGM": lambda seed: AGM(lam=0.1, l1=0.2, loss="likelihood", tol=0),
    }
    race = compare(makes, squares, looks=[2, 50])
    best = CoordinateDescent(lam=0.1, l1=0.2, tol=1e-9).solve(squares).primal
    ends = {row["solver"]: row["primal"] for row in race.rows}
    assert list(ends.values()) == pytest.approx([best, best], rel=1e-3)
    other = {**SOLVERS, "other": lambda seed: SGD(lam=2 * LAM)}
    with pytest.raises(
        ValueError, match=r"^solvers: expected one objective.*objective="
    ):
        compare(other, CHAIN, looks=[1])
    compare(other, CHAIN, looks=[1], objective=lambda w: float(w @ w))
    with pytest.raises(ValueError, match=r"^objective: expected a solver with"):
        nameless = type("Nameless", (Descent,), {"lam": None})
        compare({"a": lambda seed: nameless(CHAIN)}, CHAIN, looks=[1])
    domain = {"a": lambda seed: AGM(lam=LAM, domain="simplex")}
    with pytest.raises(ValueError, match=r"^objective: expected a function for a"):
        compare(domain, CHAIN, looks=[1])


def test_wrong_arguments():
    for looks in ([], [2, 1], [1, 1]):
        with pytest.raises(ValueError, match=r"^looks: expected numbers that rise"):
            compare(SOLVERS, CHAIN, looks=looks)
    with pytest.raises(ValueError, match=r"^unit: "):
        compare(SOLVERS, CHAIN, looks=[1], unit="hours")
    for name, given in (("solvers", ({}, [0])), ("seeds", (SOLVERS, []))):
        with pytest.raises(ValueError, match=rf"^{name}: expected at least one"):
            compare(given[0], CHAIN, looks=[1], seeds=given[1])
    with pytest.raises(TypeError, match=r"^solvers: expected make.seed. of 'a'.*int"):
        compare({"a": lambda seed: 3}, CHAIN, looks=[1])
    for name, one in (("looks", 5), ("seeds", 5)):
        with pytest.raises(TypeError, match=rf"^{name}: expected a sequence, got 5"):
            compare(SOLVERS, CHAIN, **{"looks": [1], name: one})
    with pytest.raises(ValueError, match=r"^seeds: expected different .*\[0, 1, 0\]"):
        compare(SOLVERS, CHAIN, looks=[1], seeds=[0, 1, np.int64(0)])
    with pytest.raises(TypeError, match=r"^seeds: expected an int"):
        compare(SOLVERS, CHAIN, looks=[1], seeds=["x"])
    with pytest.raises(TypeError, match=r"^solvers: expected functions.*'a'"):
        compare({"a": BCFW(lam=LAM)}, CHAIN, looks=[1])
    for name, wrong in (("solvers", [1]), ("metrics", len)):
        given = {"solvers": SOLVERS, "problem": CHAIN, "looks": [1], name: wrong}
        with pytest.raises(TypeError, match=rf"^{name}: expected a dict of functions"):
            compare(**given)
    once = BCFW(lam=LAM)
    with pytest.raises(ValueError, match=r"^solvers: expected.*'a'.*same BCFW twice"):
        compare({"a": lambda seed: once}, CHAIN, looks=[1])
    path = {"a": lambda seed: RegularisationPath(eps=0.5)}
    with pytest.raises(
        TypeError, match=r"^solvers: expected a solver of.*cannot be observed"
    ):
        compare(path, CHAIN, looks=[1], objective=lambda w: 0.0)


def test_metrics_are_numbers_of_their_own_columns():
    one = {"SGD": SOLVERS["SGD"]}
    columns = compare(one, CHAIN, looks=[1]).rows[0]
    assert len(columns) == 11
    for name in columns:
        with pytest.raises(ValueError, match=rf"^metrics: expected names.*'{name}'"):
            compare(one, CHAIN, looks=[1], metrics={name: np.linalg.norm})
    for wrong in (np.zeros(2), np.zeros(1), "3", None, 1j):
        with pytest.raises(TypeError, match=r"^metrics of 'x': expected a number.*SGD"):
            compare(one, CHAIN, looks=[1], metrics={"x": lambda w, x=wrong: x})
        with pytest.raises(TypeError, match=r"^objective: expected a number.*SGD"):
            compare(one, CHAIN, looks=[1], objective=lambda w, x=wrong: x)
    for right in (3, np.float32(3), np.array(3), torch.tensor(3.0)):
        metrics = {"primal suboptimality": lambda w, x=right: x}
        race = compare(one, CHAIN, looks=[1], metrics=metrics)
        assert race.rows[0]["primal suboptimality"] == 3.0
        *_, panel = race.panels(lower_bound=0.0)
        assert panel.curves["SGD"][0][0].y == 3.0 and not panel.logarithmic


def test_tables_and_figures(tmp_path, monkeypatch):
    makes = {
        "BCFW": SOLVERS["BCFW"],
        "BFW": lambda seed: BatchFrankWolfe(lam=LAM, tol=0),
        "far": lambda seed: Descent(CHAIN, rate=1e200),
    }
    race = compare(
        makes, CHAIN, looks=[1, 2, 4], seeds=[0, 1], metrics={"size": np.linalg.norm}
    )
    assert len(str(race).splitlines()) == 7 and "BCFW" in str(race)
    labels = [panel.y for panel in race.panels("seconds")]
    assert labels == ["duality gap", "primal suboptimality", "size"]
    assert [panel.y for panel in race.panels(lower_bound=0.0)] == labels
    race.draw(tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes()[:4] == b"\x89PNG"
    # without bounds
    alone = compare({"SGD": SOLVERS["SGD"]}, CHAIN, looks=[1, 2])
    assert [panel.y for panel in alone.panels()] == ["primal above the lowest"]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert race.table() is race.rows

    class Frame:
        DataFrame = staticmethod(lambda rows: ("frame", rows))

    monkeypatch.setitem(sys.modules, "pandas", Frame)
    assert race.table() == ("frame", race.rows)
    json.dumps(race.rows)
    assert Comparison([]).rows == []


def test_settings_in_words():
    one, same = (BCFW(lam=LAM, seed=1, max_passes=k) for k in (1, 2))
    assert describe_settings(one) == describe_settings(same)
    for other in (BCFW(lam=LAM, seed=2), BCFW(lam=LAM, seed=1, bounds=(0, None))):
        assert describe_settings(one) != describe_settings(other)
    a, b = (Descent(CHAIN, rate) for rate in (0.1, 0.2))
    assert describe_settings(a) != describe_settings(
        b
    ) and "0x" not in describe_settings(a)
    assert describe_settings(np.float64(1)) == "1.0" and describe_settings({1: [None]})
    boxes = [BCFW(lam=LAM, bounds=(np.full(3, x), None)) for x in (0.0, 1.0)]
    assert describe_settings(boxes[0]) != describe_settings(boxes[1])
    rngs = [np.random.default_rng(seed) for seed in (0, 1)]
    assert describe_settings(rngs[0]) != describe_settings(rngs[1])
    size = CallbackProblem(1, 2, lambda i, w: (np.zeros(2), 0.0, 0))
    assert "CallbackProblem" in describe_settings(size)


def test_duals_are_those_of_the_objective_that_is_shown():
    # a box changes the minimum, and another objective has other duals
    boxed = {
        "free": lambda seed: BCFW(lam=LAM, tol=0.0),
        "boxed": lambda seed: BCFW(lam=LAM, tol=0.0, bounds=(-0.1, 0.1)),
    }
    with pytest.raises(ValueError, match=r"^solvers: .*bounds; give objective="):
        compare(boxed, CHAIN, looks=[1])
    race = compare(boxed, CHAIN, looks=[2], objective=lambda w: float(w @ w))
    assert np.isnan([[row["dual"], row["gap"]] for row in race.rows]).all()


def test_settings_are_told_apart():
    alike = [
        [functools.partial(max, 1), functools.partial(max, 2)],
        [torch.ones(2), torch.zeros(2)],
        [frozenset("ab"), frozenset("ac")],
    ]
    for one, other in alike:
        assert (
            describe_settings(one)
            == describe_settings(copy.copy(one))
            != describe_settings(other)
        )
    order = ["abcdefgh", "hgfedcba"]
    assert describe_settings(frozenset(order[0])) == describe_settings(
        frozenset(order[1])
    )
