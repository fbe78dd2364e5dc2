"""Cutting planes and excessive gaps on the hinge of two classes, next to their peers.

    pip install -e ".[bench]"
    python benchmarks/cutting_planes.py --data DIR    # LIBSVM format, and a drawn set
    python benchmarks/cutting_planes.py --data DIR --only w8a
    python benchmarks/cutting_planes.py --quick       # a small drawn set

DIR has a9a, a9a.t.pm1 and w8a, and may have news20_bydate.tfidf.train.gz and
news20_bydate.tfidf.test.gz, twenty classes of which the halves are told apart:
computers, sciences and things for sale from the rest. Of w8a every fifth sample is
held out. For each set: how far the best objective so far is above its minimum, over
passes and over seconds, and the test accuracy of the best weights so far. Then the
worst problem of cutting planes, observed and predicted. Prints passes and seconds to a
hundredth, a thousandth and 1e-5 of the objective, the power of the number of passes by
which the error falls, and an iteration over its two sparse products. Writes
``results/cutting_planes.csv``, in which other sets stay as they were, a figure for each
set and one of the worst problem.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import hadamard

from smoothsp.linear import HingeSVC
from smoothsp.linear.problems import BinaryProblem
from smoothsp.linear.solvers import AGM, BMRM, Pragam

HERE = Path(__file__).parent
# the regularisation that the paper chose on validation sets
LAMBDA = {
    "a9a": 2.0**-18,
    "w8a": 2.0**-17,
    "news20": 2.0**-14,
    "sparse": 2.0**-14,
    "drawn": 2.0**-6,
}
NEWS = "news20_bydate.tfidf.{}.gz"
# comp.*, misc.forsale and sci.*, counted from 1
HALF = (2, 3, 4, 5, 6, 7, 12, 13, 14, 15)
GOALS = (1e-2, 1e-3, 1e-5)
HEAD = [f"{unit} to {goal:g}" for goal in GOALS for unit in ("passes", "s")]
HEAD = ["set", "method", *HEAD, "power", "test accuracy"]
SETS = ("a9a", "w8a", "news20", "sparse")


@dataclass(frozen=True)
class Course:
    """Passes, seconds, and how far the least objective is above the minimum.

    ``accuracy`` has pairs of passes and the share of held out samples that are right.
    """

    method: str
    passes: list[float]
    seconds: list[float]
    above: list[float]
    accuracy: list[tuple[float, float]]


@dataclass(frozen=True)
class Task:
    """A set of samples, others that are held out, lambda, each solver's budget."""

    name: str
    X: Any
    y: Any
    held_out: tuple[Any, Any]
    lam: float
    passes: int
    seconds: float

    def accuracy(self, w: Any, bias: float = 0.0) -> float:
        X, y = self.held_out
        return float(np.mean(np.where(X @ w + bias > 0, 1, -1) == y))

    def problem(self, bias: bool = False) -> BinaryProblem:
        return BinaryProblem(self.X, self.y, bias=bias)

    def objective(self, w: Any) -> float:
        hinges = np.maximum(1 - self.y * (self.X @ w), 0)
        return float(self.lam / 2 * w @ w + hinges.mean())


def main() -> None:
    options = parse()
    for task in tasks(options):
        lowest = minimum(task)
        print(f"{task.name}: minimum {lowest:.6f}")
        courses = list(races(task, lowest))
        rows = []
        for course in courses:
            last = max(course.accuracy, default=(0.0, float("nan")))[1]
            found = [*reached(course), power(course), f"{last:.4f}"]
            rows.append([task.name, course.method, *found])
            print(f"  {course.method:<28}", *rows[-1][2:], flush=True)
        for method, ratio in per_product(task):
            print(f"  {method}: an iteration takes {ratio:.2f} of its two products")
        keep(options.output / "cutting_planes.csv", rows)
        if options.figures is not None:
            draw(task, courses, options.figures / f"cutting_planes_{task.name}.png")
    if options.figures is not None and options.only in (None, "worst"):
        draw_bound(options.figures / "cutting_planes_bound.png", options.quick)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with a9a and w8a")
    parser.add_argument("--quick", action="store_true", help="a small drawn set")
    parser.add_argument("--only", choices=(*SETS, "worst"), help="one set, or none")
    parser.add_argument("--passes", type=int, default=600, help="of each solver")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each solver")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    parser.add_argument("--figures", type=Path, help="where to draw")
    options = parser.parse_args()
    drawn = options.quick or options.only in ("sparse", "worst")
    if not drawn and options.data is None:
        parser.error("--data: expected a folder with a9a and w8a, or --quick")
    return options


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    if options.quick:
        yield Task("drawn", *sample(500, 60, 0.1, 200), LAMBDA["drawn"], 100, 60.0)
        return
    for name in SETS:
        if options.only not in (None, name):
            continue
        made = halves(name, options.data)
        if made is not None:
            yield Task(name, *made, LAMBDA[name], options.passes, options.seconds)


def halves(name: str, data: Path) -> tuple[Any, Any, tuple[Any, Any]] | None:
    """Samples, labels and both held out; None where there are no such files."""
    if name == "a9a":
        return read([data / "a9a", data / "a9a.t.pm1"])
    if name == "w8a":
        X, y, _ = read([data / "w8a"])
        kept = np.arange(len(y)) % 5 > 0
        return X[kept], y[kept], (X[~kept], y[~kept])
    if name == "sparse":
        return sample(5000, 800, 0.02, 2000)
    found = [data / NEWS.format(part) for part in ("train", "test")]
    if not found[0].exists():
        return None
    X, classes, (more, others) = read(found)
    y, wanted = (np.where(np.isin(c, HALF), 1.0, -1.0) for c in (classes, others))
    return X, y, (more, wanted)


def keep(path: Path, rows: list[list[str]]) -> None:
    """Write rows in place of those of the same set."""
    known = []
    if path.exists():
        with path.open(newline="") as file:
            head, *known = csv.reader(file)
        replaced = {row[0] for row in rows}
        known = [row for row in known if head == HEAD and row[0] not in replaced]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEAD, *known, *rows])


def sample(n: int, d: int, density: float, held_out: int) -> tuple[Any, Any, Any]:
    """Sparse samples whose classes a direction tells apart, but for noise."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, d), density=density, rng=rng, format="csr")
    scores = X @ rng.normal(size=d)
    y = np.where(scores + 0.3 * scores.std() * rng.normal(size=n) > 0, 1.0, -1.0)
    at = n - held_out
    return X[:at], y[:at], (X[at:], y[at:])


def read(paths: list[Path]) -> tuple[Any, Any, Any]:
    """Samples and labels of the first file, and of the second one, if there is one."""
    from sklearn.datasets import load_svmlight_files

    found = load_svmlight_files([str(path) for path in paths])
    rows = [sparse.csr_array(X) for X in found[::2]]
    for X in rows:
        # what scikit-learn takes
        X.indices, X.indptr = X.indices.astype("i4"), X.indptr.astype("i4")
    pairs = list(zip(rows, found[1::2], strict=True))
    return *pairs[0], pairs[-1]


def minimum(task: Task) -> float:
    """A lower bound, by coordinate descent in the dual; prints how close it is."""
    C = 1 / (task.lam * len(task.y))
    model = HingeSVC(C=C, tol=1e-7, max_epochs=100 * task.passes, random_state=0)
    quietly(lambda: model.fit(task.X, task.y))
    last = model.history_[-1]
    print(f"  relative gap of the minimum: {last.gap / last.dual:.1e}")
    return last.dual * task.lam


def races(task: Task, lowest: float) -> Iterator[Course]:
    lam = {"lam": task.lam, "tol": 0.0, "max_passes": task.passes}
    lam["max_seconds"] = task.seconds
    often = {**lam, "certify_every": 1}
    small = 1e-6 * lowest
    runs: list[tuple[str, Callable[..., Any], dict[str, Any], bool]] = [
        ("BMRM, qp", BMRM, often, False),
        ("BMRM, line search", BMRM, {"inner": "line-search", **often}, False),
        ("Pragam", Pragam, often, False),
        ("Pragam, adaptive", Pragam, {"lipschitz": "adaptive", **often}, False),
        ("Pragam, free bias (gap)", Pragam, {"lipschitz": "adaptive", **often}, True),
        ("AGM, annealed", AGM, {"anneal": True, **often, "tol": small}, False),
    ]
    for name, kind, settings, bias in runs:
        problem, met = task.problem(bias), Met()
        found = kind(**settings, callback=met).solve(problem)
        points = [(at.passes, at.seconds, at.primal) for at in found.history]
        # of another objective: the gap, which is at least as much
        best = max(at.dual for at in found.history) if bias else lowest
        right = [
            (k, task.accuracy(w, problem.optimal_bias(w) if bias else 0.0))
            for k, w in [*met.weights, (found.passes, found.w)]
        ]
        yield course(name, points, best, right)
    yield course("dual coordinate descent", *descent(task, lowest))
    yield course("LIBLINEAR", *liblinear(task, lowest))
    for name, whole in (("Pegasos, whole set", True), ("Pegasos, one sample", False)):
        yield course(name, *pegasos(task, whole, lowest))


class Met:
    """A callback that keeps the best weights after 1, 2, 4, 8, ... passes."""

    def __init__(self) -> None:
        self.weights: list[tuple[float, Any]] = []
        self.next = 1

    def __call__(self, at: Any) -> None:
        if at.passes >= self.next:
            state = at.state
            name = "best_w" if "best_w" in state else "w"
            self.weights.append((at.passes, state[name]))
            self.next = 2 * at.passes


def course(
    name: str, points: list[Any], lowest: float, accuracy: list[tuple[float, float]]
) -> Course:
    passes, seconds, primal = (list(x) for x in zip(*points, strict=True))
    least = np.minimum.accumulate(primal) / lowest - 1
    return Course(name, passes, seconds, least.tolist(), accuracy)


def descent(task: Task, lowest: float) -> Any:
    """An epoch of ours is a pass; its certificates are left out of its seconds."""
    C, points, right = 1 / (task.lam * len(task.y)), [], []
    model = HingeSVC(
        C=C,
        tol=0,
        certify_every=1,
        max_epochs=10 * task.passes,
        callback=lambda at: (
            points.append((at.epoch, at.seconds, at.primal * task.lam))
            or at.seconds > task.seconds
        ),
        random_state=0,
    )
    quietly(lambda: model.fit(task.X, task.y))
    model.set_params(callback=None)
    for k in 2 ** np.arange(int(np.log2(min(len(points), 256))) + 1):
        # the same epochs again
        model.set_params(max_epochs=int(k))
        quietly(lambda: model.fit(task.X, task.y))
        right.append((float(k), task.accuracy(model.coef_[0])))
    return points, lowest, right


def liblinear(task: Task, lowest: float) -> Any:
    """A fit for each number of epochs."""
    from sklearn.svm import LinearSVC

    points, right, epochs = [], [], 1
    while epochs <= task.passes and (not points or points[-1][1] < task.seconds / 2):
        model = LinearSVC(
            loss="hinge",
            C=1 / (task.lam * len(task.y)),
            fit_intercept=False,
            tol=1e-12,
            max_iter=epochs,
            random_state=0,
        )
        start = time.perf_counter()
        quietly(lambda model=model: model.fit(task.X, task.y))
        seconds = time.perf_counter() - start
        w = model.coef_[0] * (1 if model.classes_[1] > 0 else -1)
        points.append((epochs, seconds, task.objective(w)))
        right.append((epochs, task.accuracy(w)))
        epochs *= 2
    return points, lowest, right


def pegasos(task: Task, whole: bool, lowest: float) -> Any:
    """Subgradient steps of 1 / (lambda t), of all samples or of one at a time."""
    n, rng, lam = len(task.y), np.random.default_rng(0), task.lam
    X, y, across = task.X, task.y, task.X.T
    w, t, spent, points, right = np.zeros(X.shape[1]), 0, 0.0, [], []
    least, best = np.inf, w
    for k in range(task.passes):
        start = time.perf_counter()
        if whole:
            t += 1
            active = y * (X @ w) < 1
            w = (1 - 1 / t) * w + across @ (y * active) / (lam * t * n)
            w *= min(1.0, 1 / (np.sqrt(lam) * max(np.linalg.norm(w), 1e-300)))
        else:
            w, t = epoch(X, y, w, t, lam, rng)
        spent += time.perf_counter() - start
        points.append((k + 1, spent, task.objective(w)))
        if points[-1][2] < least:
            least, best = points[-1][2], w
        if (k + 1) & k == 0 or spent > task.seconds:
            right.append((k + 1, task.accuracy(best)))
        if spent > task.seconds:
            break
    return points, lowest, right


def epoch(X: Any, y: Any, w: Any, t: int, lam: float, rng: Any) -> tuple[Any, int]:
    """n steps; w is a scale times v, so that a step costs its sample."""
    v, scale, square = w.copy(), 1.0, float(w @ w)
    pointer, columns, data = X.indptr, X.indices, X.data
    for i in rng.integers(len(y), size=len(y)):
        t += 1
        at = slice(pointer[i], pointer[i + 1])
        x, j = data[at], columns[at]
        margin = y[i] * scale * (x @ v[j])
        if t == 1:
            v[:], scale, square = 0.0, 1.0, 0.0
        else:
            scale *= 1 - 1 / t
            square *= (1 - 1 / t) ** 2
        if margin < 1:
            step = y[i] / (lam * t)
            square += 2 * step * scale * (x @ v[j]) + step * step * (x @ x)
            v[j] += step / scale * x
        if square > 1 / lam:
            scale *= 1 / np.sqrt(lam * square)
            square = 1 / lam
        if scale < 1e-6:
            v, scale = scale * v, 1.0
    return scale * v, t


def quietly(fit: Callable[[], Any]) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()


def reached(course: Course) -> list[str]:
    """Passes and seconds to each goal."""
    found = []
    for goal in GOALS:
        at = next((i for i, x in enumerate(course.above) if x <= goal), None)
        if at is None:
            found += ["-", "-"]
        else:
            found += [f"{course.passes[at]:g}", f"{course.seconds[at]:.3f}"]
    return found


def power(course: Course) -> str:
    """By which power of the number of passes the error falls, over the last decade."""
    passes, above = np.array(course.passes), np.array(course.above)
    at = (passes >= passes[-1] / 10) & (above > 0)
    if at.sum() < 2 or passes[-1] < 100:
        return "-"
    return f"{np.polyfit(np.log(passes[at]), np.log(above[at]), 1)[0]:.2f}"


def per_product(task: Task) -> Iterator[tuple[str, float]]:
    """Seconds of an iteration over those of one product with X and one with X'."""
    problem, passes = task.problem(), min(task.passes, 60)
    solvers = {
        "BMRM, qp": BMRM(lam=task.lam, tol=0, max_passes=passes),
        "BMRM, line search": BMRM(
            lam=task.lam, inner="line-search", tol=0, max_passes=passes
        ),
        "Pragam": Pragam(
            lam=task.lam, lipschitz=1e9, tol=0, certify_every=passes, max_passes=passes
        ),
    }
    w, a = np.ones(task.X.shape[1]), np.ones(len(task.y))
    ratios: dict[str, list[float]] = {name: [] for name in solvers}
    for _ in range(5):
        for name, solver in solvers.items():
            start = time.perf_counter()
            for _ in range(passes):
                problem.X @ w
                problem.X.T @ a
            raw = time.perf_counter() - start
            start = time.perf_counter()
            made = solver.solve(problem).passes
            ratios[name].append((time.perf_counter() - start) / raw * passes / made)
    for name, found in ratios.items():
        yield name, float(np.median(found))


def draw(task: Task, courses: list[Course], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(15, 5), layout="constrained")
    for number, found in enumerate(courses):
        line = {"color": f"C{number}", "linestyle": "-" if number < 6 else "--"}
        for axis, x in zip(axes, (found.passes, found.seconds), strict=False):
            axis.loglog(
                x,
                np.maximum(found.above, 1e-9),
                label=found.method,
                marker="." if len(found.passes) < 15 else None,
                **line,
            )
        known = [(k, share) for k, share in found.accuracy if k > 0]
        axes[2].semilogx(*np.transpose(known), marker=".", **line)
    least = min((found.above[-1] for found in courses), default=1e-7)
    for axis, x in zip(axes, ("passes over the samples", "seconds"), strict=False):
        axis.set_ylim(max(least, 1e-7) / 2, 30)
        axis.set_xlabel(x)
    axes[0].set_ylabel("best objective so far above its minimum, relative")
    axes[2].set_xlabel("passes over the samples")
    axes[2].set_ylabel("test accuracy of the best weights so far")
    best = max(share for found in courses for _, share in found.accuracy)
    axes[2].set_ylim(best - 0.12, best + 0.01)
    for axis in axes:
        axis.grid(alpha=0.3)
    n, d = task.X.shape
    power = f"2^{round(np.log2(task.lam))}"
    figure.suptitle(f"{task.name}: {n:,} samples, {d:,} features, lambda = {power}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=5, fontsize=9, loc="outside lower center")
    save(figure, path)


class WorstCase:
    """``max_i <a_i, w>`` over an orthonormal basis."""

    def __init__(self, d: int) -> None:
        self.A, self.num_weights = hadamard(d) / np.sqrt(d), d

    def __len__(self) -> int:
        return 1

    def risk(self, w: Any) -> tuple[float, Any]:
        scores = self.A.T @ w
        i = int(scores.argmax())
        return float(scores[i]), self.A[:, i].copy()


def draw_bound(path: Path, quick: bool) -> None:
    """Observed gaps on the worst problem, and the line that theory draws."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    d, lam = (32, 0.05) if quick else (256, 0.05)
    figure, axis = pyplot.subplots(figsize=(5.5, 4), layout="constrained")
    for inner, marker in (("qp", "o"), ("line-search", "x")):
        solver = BMRM(lam=lam, inner=inner, tol=0, drop_after=None, max_passes=d - 1)
        gaps = [at.gap for at in solver.solve(WorstCase(d)).history]
        axis.loglog(range(1, d), gaps, marker, label=f"BMRM, {inner}", markersize=4)
        error = np.abs(np.array(gaps) * 2 * lam * np.arange(1, d) - 1).max()
        print(f"worst case, d = {d}, {inner}: at most {error:.1e} off 1 / (2 lambda t)")
    t = np.arange(1, d)
    axis.loglog(t, 1 / (2 * lam * t), "k-", linewidth=0.8, label="1 / (2 lambda t)")
    axis.set_xlabel("rounds t")
    axis.set_ylabel("gap")
    axis.grid(alpha=0.3)
    axis.legend()
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"{path} is drawn")


if __name__ == "__main__":
    main()
