"""One contract for all that trains a linear model: a run that is cut goes on.

From each checkpoint, after Ctrl-C and after a budget, bit for bit, and only on the
samples and settings that it began with. Solvers, paths, grids and estimators keep it.
"""

import functools
import io
import itertools
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from smoothsp.linear import (
    F1SVC,
    L1SVC,
    ROCSVC,
    ChainCRF,
    ChainGP,
    ChainSVM,
    CrammerSingerSVC,
    HingeSVC,
    StructuredSVM,
    WestonWatkinsSVC,
)
from smoothsp.linear.problems import (
    BinaryProblem,
    F1Problem,
    LeastSquaresProblem,
    LPBoostProblem,
    ROCAreaProblem,
)
from smoothsp.linear.solvers import (
    AGM,
    BCFW,
    BMRM,
    LBFGS,
    SDCA,
    SGD,
    SVRG,
    BatchFrankWolfe,
    CasimirSVRG,
    CoordinateDescent,
    Pragam,
    RegularisationPath,
    grid_search,
)
from tests import sweeps
from tests.linear.estimators import test_structured_svm as structured
from tests.linear.solvers.test_primal_callbacks import behind_oracles
from tests.truth.frank_wolfe import as_callbacks
from tests.truth.linear_chain import random_chain
from tests.truth.structure_problems import known_problem
from tests.truth.svm_objectives import data_for


class Run(NamedTuple):
    """How something is trained, and with what else its states do not go on."""

    train: Callable[..., Any]
    others: tuple[dict[str, Any], ...]
    # of a run that goes on: its stream of numbers is in the state
    again: Mapping[str, Any] = MappingProxyType({})


def solving(kind, problem, other, others=(), **options):
    def train(problem=problem, resume=None, **more):
        return kind(**{**options, **more}).solve(problem, resume=resume)

    setting = "eps" if kind is RegularisationPath else "lam"
    return Run(train, ({"problem": other}, {setting: 2 * options[setting]}, *others))


def searching(warm_start):
    given, other = random_chain(0), random_chain(3)

    def train(problem=given, lams=(4.0, 1.0, 0.5, 0.25), **more):
        return grid_search(problem, lams, tol=0.02, warm_start=warm_start, **more)

    return Run(train, ({"problem": other}, {"lams": (4.0, 1.0)}))


def fitting(model, X, y, others, **options):
    def train(X=X, y=y, resume=None, **more):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ConvergenceWarning)
            fitted = model(**{**options, **more}).fit(X, y, resume=resume)
        fitted.warned = [str(warning.message) for warning in warned]
        return fitted

    return Run(train, others)


# --- solvers ---


def bcfw(sampling, steps, cache, kind):
    costs = np.random.default_rng(0).random((3, 3))
    np.fill_diagonal(costs, 0)
    given = [random_chain(s, n=5, S=3, d=4, longest=3, cost=costs) for s in (0, 1)]
    if kind == "callbacks":
        given = [as_callbacks(given[0]), as_callbacks(random_chain(0, n=3))]
    options = {"sampling": sampling, "steps": steps, "cache": cache, "averaging": True}
    options |= {"lam": 0.2, "tol": 0, "max_passes": 11, "refresh_every": 3}
    return solving(BCFW, *given, cache_size=3, **options)


def chain(kind, callbacks=False, **options):
    given, other = random_chain(0), random_chain(3)
    if callbacks:
        # whose examples cannot be told apart, but counted
        given, other = behind_oracles(given), behind_oracles(random_chain(0, n=3))
    return solving(kind, given, other, **{"lam": 0.1} | options)


def binary(seed, kind=BinaryProblem, **options):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 5))
    y = np.sign(X @ rng.normal(size=5) + 0.4 + rng.normal(size=40))
    return kind(X, y, **options)


def of_set(kind, problem=BinaryProblem, **options):
    bias = {"bias": True} if problem is BinaryProblem else {}
    given = (binary(seed, problem, **bias) for seed in (0, 1))
    return solving(kind, *given, **{"lam": 0.05, "tol": 1e-3} | options)


def descent(products):
    given = [
        binary(s, lambda X, y: LeastSquaresProblem(X * (X > 0), y)) for s in (0, 1)
    ]
    return solving(
        CoordinateDescent, *given, lam=1e-2, l1=1e-2, products=products, tol=1e-11
    )


def structure(kind, **options):
    given = (known_problem("semi_markov", s, states=True).problem for s in (0, 3))
    return solving(kind, *given, **{"lam": 0.2, "tol": 1e-7, "max_passes": 9} | options)


def path(**options):
    given = [random_chain(s, n=7, S=3, d=2, longest=3) for s in (0, 1)]
    return solving(RegularisationPath, *given, eps=0.1, smallest=0.05, **options)


VARIANTS = itertools.product(
    ("gap", "uniform", "permutation"),
    ("fw", "pairwise", "away", "safeguarded", "best"),
    (False, True),
)
STOCHASTIC = {
    "SGD": (SGD, {"loss": "hinge-l2", "average_after": 2}),
    "SGD last": (SGD, {"averaging": "none"}),
    "SVRG": (SVRG, {}),
    "Casimir": (CasimirSVRG, {"schedule": "adapt"}),
}
OFTEN = {"evaluate_every": 2, "max_passes": 9}
SOLVERS = {
    **{
        f"BCFW {' '.join(map(str, one))} {kind}": functools.partial(bcfw, *one, kind)
        for number, one in enumerate([*VARIANTS][::5])
        for kind in (("compiled", "callbacks")[number % 2],)
    },
    "BCFW in batches": lambda: chain(
        BCFW,
        True,
        others=({"batch_size": 2},),
        batch_size=3,
        steps="pairwise",
        tol=0,
        max_passes=11,
        refresh_every=3,
    ),
    "batch Frank-Wolfe": lambda: chain(BatchFrankWolfe, tol=0, max_passes=11),
    **{
        name: functools.partial(chain, kind, **OFTEN, **options)
        for name, (kind, options) in STOCHASTIC.items()
    },
    "SVRG, callbacks": lambda: chain(SVRG, True, **OFTEN),
    "L-BFGS": lambda: chain(LBFGS, lam=0.01, tol=0.0, memory=3, max_passes=15),
    **{
        f"SDCA {sampling}": functools.partial(
            chain, SDCA, sampling=sampling, tol=0, max_passes=11, refresh_every=3
        )
        for sampling in ("gap", "permutation")
    },
    "descent": lambda: descent(False),
    "descent, products": lambda: descent(True),
    "BMRM": lambda: of_set(BMRM, certify_every=4, drop_after=5),
    "BMRM line search": lambda: of_set(BMRM, inner="line-search", drop_after=5),
    "BMRM, F1": lambda: of_set(BMRM, F1Problem),
    "BMRM, ROC": lambda: of_set(BMRM, ROCAreaProblem),
    "Pragam": lambda: of_set(Pragam, certify_every=7),
    "Pragam adaptive": lambda: of_set(Pragam, lipschitz="adaptive", certify_every=1),
    "AGM": lambda: of_set(AGM, others=({"smoothing": "entropy"}, {"prox": "data"})),
    "AGM dual": lambda: of_set(AGM, scheme="dual", memory="one"),
    "AGM dual smoothing": lambda: of_set(AGM, scheme="dual-smoothing"),
    "AGM annealed": lambda: of_set(AGM, anneal=True, memory="one"),
    "AGM decreasing": lambda: of_set(AGM, scheme="decreasing", adaptive=False),
    "AGM, boosting": lambda: of_set(
        AGM, lambda X, y: LPBoostProblem(X), domain="simplex"
    ),
    "structure, BCFW": lambda: structure(
        BCFW, steps="pairwise", cache=True, refresh_every=3
    ),
    "structure, SVRG": lambda: structure(SVRG, rate=0.1, evaluate_every=4),
    "path": path,
    "path, bounded": lambda: path(others=({"bounds": None},), bounds=(0, None)),
    **{
        f"grid {start}": functools.partial(searching, start)
        for start in ("primal", "dual")
    },
}


# --- estimators ---


def samples(model, dtype=np.float64, others=(), **options):
    X, y = data_for(HingeSVC if model is HingeSVC else CrammerSingerSVC)
    X = X.astype(dtype)
    every = {"X": X + 1}, {"y": y[::-1]}, {"C": 2.0}, {"fit_intercept": False}
    return fitting(model, X, y, (*every, *others), **options)


def dual(model, dtype, every):
    options = {"tol": 0, "max_epochs": 40, "certify_every": every, "C": 10.0}
    run = samples(model, dtype, ({"shrinking": False},), random_state=0, **options)
    return run._replace(again={"random_state": 7})


def of_two(model, others=(), **options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] + rng.normal(size=40) > 0).astype(int)
    # the same after columns were divided by powers of 2
    every = {"X": X + 1}, {"X": 2 * X}, {"y": np.roll(y, 1)}, *others
    return fitting(model, X, y, every, tol=0, **options)


def classes(solver):
    every = {"bcfw": "refresh_every", "agm": "certify_every"}
    often = {every.get(solver, "evaluate_every"): 3}
    options = {"solver": solver, "max_epochs": 12, "solver_options": often}
    return samples(CrammerSingerSVC, tol=0.0, random_state=0, **options)


def tagger(model, solver):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(rng.integers(1, 6), 4)) for _ in range(10)]
    W = rng.normal(size=(4, 3))
    Y = [[("O", "B", "I")[j] for j in (x @ W).argmax(1)] for x in X]
    turned = [list(reversed(y)) for y in Y]
    every = dict.fromkeys(("bcfw", "sdca"), "refresh_every") | {"agm": "certify_every"}
    often = {every.get(solver, "evaluate_every"): 3}
    options = {"solver": solver, "tol": 0.0, "max_passes": 12}
    options["solver_options"] = {} if solver == "lbfgs" else often
    return fitting(model, X, Y, ({"y": turned}, {"C": 2.0}), **options)


def kernel():
    X, y = data_for(WestonWatkinsSVC)
    gram = rbf_kernel(X, gamma=0.3)
    options = {"kernel": "precomputed", "tol": 1e-6, "random_state": 0}
    every = {"X": gram + 1}, {"y": y[::-1]}, {"C": 2.0}
    return fitting(WestonWatkinsSVC, gram, y, every, **options)


def gaussian():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, 2)) for T in (4, 3, 1, 0)]
    y = [rng.integers(0, 2, len(x)) for x in X]
    y[0][:2] = 0, 1
    return fitting(ChainGP, X, y, ({"C": 2.0},), C=5.0, tol=1e-8)


def parser(solver):
    X, Y = structured.treebank()
    often = {"bcfw": {"refresh_every": 1}, "lbfgs": {}}
    often = often.get(solver, {"evaluate_every": 1})
    options = {"l2": 0.3, "solver": solver, "max_passes": 4, "tol": 1e-9}
    options |= {"build": structured.trees, "features": structured.arcs}
    return fitting(StructuredSVM, X, Y, ({"l2": 0.1},), solver_options=often, **options)


WEIGHTED = ({"class_weight": {0: 2, 1: 1}},)
ESTIMATORS = {
    **{
        f"{model.__name__} {every} {np.dtype(dtype)}": functools.partial(
            dual, model, dtype, every
        )
        for model, every, dtype in (
            (WestonWatkinsSVC, 1, np.float64),
            (CrammerSingerSVC, 3, np.float64),
            (HingeSVC, 3, np.float64),
            (HingeSVC, "auto", np.float32),
        )
    },
    **{
        f"CrammerSingerSVC {solver}": functools.partial(classes, solver)
        for solver in ("bcfw", "agm")
    },
    "L1SVC": lambda: of_two(
        L1SVC, (*WEIGHTED, {"fit_intercept": False}), max_epochs=60
    ),
    "F1SVC": lambda: of_two(F1SVC, max_epochs=9),
    "ROCSVC": lambda: of_two(ROCSVC, max_epochs=9),
    **{
        f"ChainSVM {solver}": functools.partial(tagger, ChainSVM, solver)
        for solver in ("bcfw", "agm")
    },
    **{
        f"ChainCRF {solver}": functools.partial(tagger, ChainCRF, solver)
        for solver in ("lbfgs", "sdca", "sgd")
    },
    "ChainGP": gaussian,
    "WestonWatkinsSVC kernel": kernel,
    **{
        f"StructuredSVM {solver}": functools.partial(parser, solver)
        for solver in ("bcfw", "lbfgs")
    },
}
RUNS = SOLVERS | ESTIMATORS
# of whose kind another one runs
VARIANTS_OF_RUNS = {
    "AGM annealed",
    "AGM decreasing",
    "AGM dual smoothing",
    "AGM, boosting",
    "BMRM line search",
    "CrammerSingerSVC 3 float64",
    "descent, products",
    "grid dual",
    "HingeSVC agm",
    "HingeSVC auto float32",
    "HingeSVC pragam",
    "path, bounded",
    "Pragam adaptive",
    "SDCA permutation",
    "structure, SVRG",
    "SVRG, callbacks",
}


def rows(runs):
    return [
        pytest.param(name, marks=pytest.mark.long) if name in VARIANTS_OF_RUNS else name
        for name in runs
    ]


@functools.cache
def run_of(name):
    """A run, what it ends with, and the files of its checkpoints."""
    files = []
    run = RUNS[name]()
    whole = run.train(callback=lambda at: files.append(stored(at.state)))
    assert len(files) >= 3
    return run, whole, files


def stored(state):
    file = io.BytesIO()
    np.savez(file, **state)
    return file.getvalue()


def loaded(file):
    return np.load(io.BytesIO(file), allow_pickle=False)


NUMBERS = ("passes", "oracle_calls", "lam", "primal", "dual", "gap", "smoothed_primal")
ENDS = ("w", "weights_", "coef_", "intercept_", "dual_coef_", "status", "status_")


def numbers(found):
    """All that must be the same: weights, why it ended, and each certificate."""
    steps = getattr(found, "points", None) or getattr(found, "history", None)
    steps = steps or getattr(found, "history_", [])
    ends = [getattr(found, name) for name in ENDS if hasattr(found, name)]
    return ends, [[vars(at).get(n) for n in (*NUMBERS, "w")] for at in steps]


@pytest.mark.parametrize("name", rows(RUNS))
def test_a_run_goes_on_from_each_checkpoint_bit_for_bit(name):
    run, whole, files = run_of(name)
    ends = {files[0], files[-2]} if sweeps.long else set()
    for file in {files[len(files) // 2]} | ends:
        again = run.train(resume=loaded(file), **run.again)
        np.testing.assert_equal(numbers(again), numbers(whole))


@pytest.mark.parametrize("name", rows(RUNS))
def test_a_run_goes_on_after_ctrl_c_bit_for_bit(name):
    run, whole, _ = run_of(name)
    seen = []

    def press(at):
        seen.append((at, stored(at.state)))
        if len(seen) == 2:
            raise KeyboardInterrupt

    part = run.train(callback=press)
    status = getattr(part, "status", None) or part.status_
    assert "interrupted" in getattr(status, "value", status)
    if name in ESTIMATORS:
        assert "interrupted" in part.warned[0]
    with pytest.raises(ValueError, match="within the callback"):
        seen[0][0].state  # noqa: B018
    state = part.state if hasattr(part, "state") else loaded(seen[-1][1])
    np.testing.assert_equal(numbers(run.train(resume=state)), numbers(whole))


@pytest.mark.parametrize("name", rows(SOLVERS))
def test_a_solver_goes_on_after_its_budget_bit_for_bit(name):
    run, whole, _ = run_of(name)
    # not where it would have certified
    budget = {"max_points": 2} if "path" in name else {"max_passes": 4}
    part = run.train(**budget)
    np.testing.assert_equal(numbers(run.train(resume=part.state)), numbers(whole))


@pytest.mark.parametrize("name", rows(RUNS))
def test_a_state_of_another_run_raises(name):
    run, _, files = run_of(name)
    for other in run.others:
        with pytest.raises(ValueError, match=r"(resume|state): expected"):
            run.train(resume=loaded(files[0]), **other)


@np.errstate(invalid="ignore", over="ignore")
def mutations(state, rng):
    """States of which one array is missing, new, or not as it was saved."""
    found = [({**state, "surplus": np.zeros(2)}, "surplus")]
    for name, x in state.items():
        if name == "checksums":
            continue
        found.append(({key: state[key] for key in state if key != name}, name))
        others = [None, "text", x[None], np.zeros(2), x.astype(bytes)]
        if x.dtype.kind in "biuf":
            others.append(x.astype(np.float32 if x.dtype.kind != "f" else np.int64))
        for value in (np.nan, -1, 0, 2**31, 1e300):
            if x.size and x.dtype.kind in "biuf":
                turned = x.copy()
                turned.flat[rng.integers(x.size)] = np.asarray(value).astype(x.dtype)
                others.append(turned)
        # where bytes are as they were nothing was changed
        found += [
            ({**state, name: value}, name)
            for value in others
            if not isinstance(value, np.ndarray)
            or value.shape != x.shape
            or value.tobytes() != x.tobytes()
        ]
    return found


@pytest.mark.parametrize("name", rows(RUNS))
def test_a_damaged_state_is_named(name):
    run, _, files = run_of(name)
    with pytest.raises(ValueError, match=r"resume: expected .* without checksums"):
        run.train(resume={"weights": np.zeros(3)})
    damaged = mutations(dict(loaded(files[0])), np.random.default_rng(0))
    for state, place in damaged[:: 1 if sweeps.long else 40]:
        with pytest.raises(ValueError, match=rf"resume: expected .* '?{place}"):
            run.train(resume=state)
