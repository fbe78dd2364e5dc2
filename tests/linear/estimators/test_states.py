"""A fit goes on from a state of the same samples only, and only from a whole one."""

import numpy as np
import pytest

from smoothsp.linear import (
    F1SVC,
    L1SVC,
    ROCSVC,
    ChainGP,
    CrammerSingerSVC,
    HingeSVC,
    MulticlassSVM,
    WestonWatkinsSVC,
)
from smoothsp.linear.problems import (
    BinaryProblem,
    F1Problem,
    LeastSquaresProblem,
    LPBoostProblem,
    MulticlassProblem,
    ROCAreaProblem,
)
from smoothsp.linear.solvers import AGM, BMRM, RegularisationPath, grid_search

# none of these was stopped by other samples once
OF_THE_SET = {
    "bmrm": lambda **more: HingeSVC(solver="bmrm", max_epochs=9, **more),
    "pragam": lambda **more: HingeSVC(solver="pragam", max_epochs=60, **more),
    "agm": lambda **more: HingeSVC(solver="agm", max_epochs=60, **more),
    "l1": lambda **more: L1SVC(max_epochs=60, **more),
    "f1": lambda **more: F1SVC(max_epochs=9, **more),
    "roc": lambda **more: ROCSVC(max_epochs=9, **more),
}
OTHERS = {
    "hinge": HingeSVC,
    "crammer-singer": CrammerSingerSVC,
    "weston-watkins": WestonWatkinsSVC,
    "multiclass": MulticlassSVM,
}
SAME = "resume: expected a state of the same"


def samples(n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


def state_of(make, X, y):
    """That of the first certificate."""
    states = []

    def keep(certificate):
        states.append(certificate.state)
        return True

    with pytest.warns(UserWarning):
        make(callback=keep, tol=0).fit(X, y)
    return states[0]


@pytest.mark.filterwarnings("ignore:.*gap is")
@pytest.mark.parametrize("name", OF_THE_SET)
def test_states_of_other_samples_are_refused(name):
    make, (X, y) = OF_THE_SET[name], samples()
    state = state_of(make, X, y)
    make(tol=0).fit(X, y, resume=state)
    with pytest.raises(ValueError, match=SAME):
        make().fit(X + 1, y, resume=state)
    with pytest.raises(ValueError, match=SAME):
        # the same after columns were divided by powers of 2
        make().fit(2 * X, y, resume=state)
    with pytest.raises(ValueError, match=SAME):
        make().fit(X, np.roll(y, 1), resume=state)
    if name not in ("f1", "roc"):
        with pytest.raises(ValueError, match=SAME):
            make(class_weight={0: 2, 1: 1}).fit(X, y, resume=state)
    if name == "l1":
        with pytest.raises(ValueError, match=SAME):
            make(fit_intercept=False).fit(X, y, resume=state)


@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        (BinaryProblem, BMRM(lam=0.1, max_passes=3)),
        (F1Problem, BMRM(lam=0.1, max_passes=3)),
        (ROCAreaProblem, BMRM(lam=0.1, max_passes=3)),
        (LeastSquaresProblem, AGM(lam=0.1, loss="likelihood", max_passes=3)),
        (lambda X, y: LPBoostProblem(X), AGM(lam=0.1, domain="simplex", max_passes=3)),
    ],
    ids=["binary", "f1", "roc", "least-squares", "boosting"],
)
def test_problems_of_whole_sets_know_their_samples(kind, solver):
    X, y = samples()
    signs = 2.0 * y - 1
    state = solver.solve(kind(X, signs)).state
    solver.solve(kind(X, signs), resume=state)
    with pytest.raises(ValueError, match=SAME):
        solver.solve(kind(X + 1, signs), resume=state)


@pytest.mark.filterwarnings("ignore:.*gap is")
@pytest.mark.parametrize("name", [*OF_THE_SET, *OTHERS])
def test_a_damaged_state_is_named(name):
    make, (X, y) = {**OF_THE_SET, **OTHERS}[name], samples()
    state = state_of(make, X, y)
    for lost in state:
        part = {name: value for name, value in state.items() if name != lost}
        try:
            make().fit(X, y, resume=part)
        except ValueError as error:
            assert str(error).startswith(("resume:", "state:")), error
    nothing = {
        name: np.full_like(value, np.nan) if value.dtype.kind == "f" else value
        for name, value in state.items()
    }
    with pytest.raises(ValueError, match=r"resume: expected a state .* damaged"):
        make().fit(X, y, resume=nothing)


def test_damaged_states_of_paths_and_grids_are_named():
    problem = MulticlassProblem(*samples(12))
    path = RegularisationPath(eps=0.1, max_points=2)
    for state, go_on in (
        (path.solve(problem).state, lambda state: path.solve(problem, resume=state)),
        (
            grid_search(problem, [1.0, 0.1]).state,
            lambda state: grid_search(problem, [1.0, 0.1], resume=state),
        ),
    ):
        go_on(state)
        del state["hinges"]
        with pytest.raises(ValueError, match=r"resume: .* damaged .*hinges"):
            go_on(state)


def test_a_damaged_state_of_a_gaussian_process_is_named():
    X, y = [samples()[0]], [samples()[1]]
    states = []
    ChainGP(callback=lambda at: states.append(at.state)).fit(X, y)
    del states[0]["passes"]
    with pytest.raises(ValueError, match=r"resume: .* damaged .*passes"):
        ChainGP().fit(X, y, resume=states[0])
