"""Time linear classifiers and regressions to a given gap, next to their peers.

    python benchmarks/linear_models.py --data DIR          # a9a and w8a, LIBSVM format
    python benchmarks/linear_models.py --quick             # a small drawn set

Seconds until the objective is within a thousandth and within 1e-5 of its minimum:
cutting planes next to a page of numpy, on the hinge and on the area under the ROC
curve; the hinge by coordinate descent next to LIBLINEAR's -s 3; the l1 SVM next to its
linear programme by HiGHS; the elastic net next to scikit-learn's. The minimum is the
largest lower bound of our solvers. LIBLINEAR's -s 5 squares the hinge, so its l1 model
differs; its time at the default tolerance is printed. Cutting planes use 256 times the
paper's lambda, since the numpy version does not converge otherwise. Writes
``results/linear_models.csv``.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import ElasticNet
from sklearn.svm import LinearSVC

from methods import plain_planes
from smoothsp.linear import L1SVC, HingeSVC
from smoothsp.linear.problems import BinaryProblem, LeastSquaresProblem, ROCAreaProblem
from smoothsp.linear.solvers import AGM, BMRM, CoordinateDescent

HERE = Path(__file__).parent
# the regularisation that Saha, Zhang and Vishwanathan (2009) chose on validation sets
LAMBDA = {"a9a": 2.0**-18, "w8a": 2.0**-17, "drawn": 2.0**-6}
GOALS = (1e-3, 1e-5)
# seconds and objective of each look
Course = list[tuple[float, float]]


def main() -> None:
    options = parse()
    rows = []
    sets = ["drawn"] if options.quick else ["a9a", "w8a"]
    for name in sets:
        if name == "drawn":
            X, y = drawn(300, 40, density=0.1)
        else:
            X, y = training_half(name, options.data)
        lam = LAMBDA[name]
        for race in (cuts, ranking, hinges, absolutes, squares):
            lowest, found = race(X, y, lam, options.seconds)
            for method, course in found:
                row = [name, race.__doc__ or "", method, *reached(course, lowest)]
                rows.append(row)
                print("  ".join(row), flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "linear_models.csv").open("w", newline="") as file:
        head = ["set", "problem", "method", *(f"s to {goal:g}" for goal in GOALS)]
        csv.writer(file).writerows([[*head, "above at the end"], *rows])


def drawn(n: int, d: int, density: float) -> tuple[Any, Any]:
    """Sparse samples whose classes a direction tells apart, but for noise."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, d), density=density, rng=rng, format="csr")
    scores = X @ rng.normal(size=d)
    noise = 0.3 * scores.std() * rng.normal(size=n)
    return X, np.where(scores + noise > 0, 1.0, -1.0)


def training_half(name: str, folder: Path) -> tuple[Any, Any]:
    """All of a9a; of w8a, which has no test half here, four samples of five."""
    X, y = load_svmlight_file(str(folder / name))
    X = sparse.csr_array(X)
    # what scikit-learn takes
    X.indices, X.indptr = X.indices.astype("i4"), X.indptr.astype("i4")
    kept = np.arange(len(y)) % 5 > 0 if name == "w8a" else slice(None)
    return X[kept], y[kept]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with a9a and w8a")
    parser.add_argument("--quick", action="store_true", help="a small drawn set")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if not options.quick and options.data is None:
        parser.error("--data: expected a folder with a9a and w8a, or --quick")
    return options


def cuts(X: Any, y: Any, lam: float, seconds: float) -> Any:
    """hinge, cutting planes"""
    problem = BinaryProblem(X, y)
    plain = plain_planes.hinge(X, y)
    return planes(problem, plain, lam, seconds)


def ranking(X: Any, y: Any, lam: float, seconds: float) -> Any:
    """ROC area, cutting planes"""
    return planes(ROCAreaProblem(X, y), plain_planes.roc_area(X, y), lam, seconds)


def planes(problem: Any, plain: Any, lam: float, seconds: float) -> Any:
    w = np.random.default_rng(0).normal(size=problem.num_weights) * 0.1
    for ours, theirs in zip(problem.risk(w), plain(w), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    lam = 256 * lam
    solver = BMRM(lam=lam, tol=0, max_passes=100_000, max_seconds=seconds)
    ours = solver.solve(problem)
    size = problem.num_weights
    theirs = plain_planes.solve(plain, size, lam, seconds, 1e-7)
    course = [(at.seconds, at.primal) for at in ours.history]
    return ours.dual, [("BMRM", course), ("plain numpy", theirs)]


def hinges(X: Any, y: Any, lam: float, seconds: float) -> Any:
    """hinge, coordinate descent"""
    C = 1 / (lam * len(y))
    ours: Course = []
    model = HingeSVC(
        C=C,
        tol=1e-7,
        fit_intercept=False,
        certify_every=1,
        max_epochs=1_000_000,
        callback=lambda at: (
            ours.append((at.seconds, at.primal)) or at.seconds > seconds
        ),
        random_state=0,
    )
    quietly(lambda: model.fit(X, y))

    def objective(w: Any) -> float:
        hinge = np.maximum(1 - y * (X @ w), 0).sum()
        return float(w @ w / 2 + C * hinge)

    theirs: Course = []
    for tol in 10.0 ** -np.arange(0, 8, 0.5):
        other = LinearSVC(
            loss="hinge", C=C, fit_intercept=False, tol=tol, max_iter=100_000
        )
        spent = quietly(lambda other=other: other.fit(X, y))
        theirs.append((spent, objective(other.coef_[0])))
        if spent > seconds / 2:
            break
    lowest = max(at.dual for at in model.history_)
    return lowest, [("HingeSVC", ours), ("LIBLINEAR -s 3", theirs)]


def absolutes(X: Any, y: Any, lam: float, seconds: float) -> Any:
    """l1 SVM, free bias"""
    # few weights are not 0
    C, (n, d) = 1000 / len(y), X.shape
    ours: Course = []
    model = L1SVC(
        C=C,
        tol=1e-6,
        max_epochs=1_000_000,
        callback=lambda at: (
            ours.append((at.seconds, at.primal)) or at.seconds > seconds
        ),
    )
    quietly(lambda: model.fit(X, y))
    signed = sparse.diags_array(y) @ sparse.csr_array(X)
    column = sparse.csr_array(y[:, None])
    rows = [signed, -signed, column, -column, sparse.eye_array(n)]
    cost = np.concatenate([np.ones(2 * d), np.zeros(2), np.full(n, C)])
    start = time.perf_counter()
    limit = {"time_limit": 3 * seconds}
    above, ones = -sparse.hstack(rows, format="csc"), -np.ones(n)
    found = linprog(cost, A_ub=above, b_ub=ones, method="highs", options=limit)
    spent = time.perf_counter() - start
    value = np.inf if found.fun is None else found.fun
    other = LinearSVC(penalty="l1", loss="squared_hinge", dual=False, C=C)
    squared = quietly(lambda: other.fit(X, y))
    kept, used = (int((m.coef_ != 0).sum()) for m in (model, other))
    print(
        f"LIBLINEAR -s 5, squared hinge: {squared:.3f} s, {used} weights not 0; L1SVC"
        f" {kept}"
    )
    lowest = max(at.dual for at in model.history_)
    return lowest, [("L1SVC", ours), ("linear programme, HiGHS", [(spent, value)])]


def squares(X: Any, y: Any, lam: float, seconds: float) -> Any:
    """elastic net, labels as numbers"""
    l1, l2 = 0.01, 0.01
    budget: Any = {"tol": 1e-9, "max_passes": 100_000, "max_seconds": seconds}
    problem = LeastSquaresProblem(X, y)
    ours = {
        "CoordinateDescent": CoordinateDescent(lam=l2, l1=l1, **budget).solve(problem),
        "the same, without products": CoordinateDescent(
            lam=l2, l1=l1, products=False, **budget
        ).solve(problem),
        "AGM": AGM(lam=l2, l1=l1, loss="likelihood", **budget).solve(problem),
    }

    def objective(w: Any) -> float:
        square = float(np.mean((y - X @ w) ** 2))
        return square + l1 * float(np.abs(w).sum()) + l2 / 2 * float(w @ w)

    theirs: Course = []
    for tol in 10.0 ** -np.arange(1, 9):
        other = ElasticNet(
            alpha=(l1 + l2) / 2,
            l1_ratio=l1 / (l1 + l2),
            fit_intercept=False,
            tol=tol,
            max_iter=100_000,
        )
        columns = sparse.csc_array(X)
        spent = quietly(lambda other=other, X=columns: other.fit(X, y))
        theirs.append((spent, objective(other.coef_)))
    courses = [
        (name, [(at.seconds, at.primal) for at in found.history])
        for name, found in ours.items()
    ]
    lowest = max(found.dual for found in ours.values())
    return lowest, [*courses, ("scikit-learn ElasticNet", theirs)]


def quietly(fit: Callable[[], Any]) -> float:
    """Seconds of a call without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        fit()
        return time.perf_counter() - start


def reached(course: Course, lowest: float) -> list[str]:
    """Seconds to each goal, and what is left at the end."""
    least = min(value for _, value in course)
    found = []
    for goal in GOALS:
        times = (s for s, value in course if value <= lowest * (1 + goal))
        spent = next(times, None)
        found.append("-" if spent is None else f"{spent:.4f}")
    return [*found, f"{least / lowest - 1:.1e}"]


if __name__ == "__main__":
    main()
