"""Single fits of ``multiclass_svm.py``: what they score, and when they got there."""

import time
from collections.abc import Callable
from typing import Any

from multiclass.sets import Samples
from runs.interrupts import whole
from smoothsp.linear import Certificate, WestonWatkinsSVC

SOLVERS = ("walrus", "greedy")
EPOCHS = 100_000
# Short fits are timed until both took so many seconds together, or so often.
AT_LEAST, OFTEN = 2.0, 100
Show = Callable[[str], Any]


class OutOfTime(Exception):
    """A fit took longer than the limit."""


def warm_up(samples: Samples) -> None:
    """Compile, so that no fit that is timed has to."""
    for solver in SOLVERS:
        model = WestonWatkinsSVC(solver=solver, tol=0.5, fit_intercept=False)
        whole(model.fit(samples.X, samples.y))


def score(
    samples: Samples, C: float, tolerance: float, seed: int, limit: float, show: Show
) -> dict[str, Any]:
    """Test accuracy in percent of a fit; None if it was given up."""
    model = WestonWatkinsSVC(
        C=C,
        tol=tolerance,
        stopping="relative_gap",
        fit_intercept=False,
        certify_every=1,
        max_epochs=EPOCHS,
        random_state=seed,
        callback=watch(limit, show),
        verbose=False,
    )
    try:
        whole(model.fit(samples.X, samples.y))
    except OutOfTime:
        return {"accuracy": None}
    return {
        "accuracy": accuracy(model, samples),
        "epochs": model.n_epochs_,
        "seconds": model.history_[-1].seconds,
        "primal": model.history_[-1].primal,
        "gap": model.gap_,
    }


def race(
    samples: Samples,
    C: float,
    tolerances: tuple[float, ...],
    repeats: int,
    seed: int,
    limit: float,
    show: Show,
) -> dict[str, dict[str, Any]]:
    """Both solvers in turns; of the seconds to each tolerance the least."""
    found: dict[str, dict[str, Any]] = {}
    start = time.perf_counter()
    for turn in range(max(repeats, OFTEN)):
        if turn >= repeats and time.perf_counter() - start > AT_LEAST:
            break
        for solver in SOLVERS[:: 1 if turn % 2 == 0 else -1]:
            row = run(samples, C, solver, tolerances, seed, limit, show)
            if solver in found:
                both = zip(row["seconds"], found[solver]["seconds"], strict=True)
                row["seconds"] = [least(*pair) for pair in both]
            found[solver] = row
    return found


def run(
    samples: Samples,
    C: float,
    solver: str,
    tolerances: tuple[float, ...],
    seed: int,
    limit: float,
    show: Show,
) -> dict[str, Any]:
    """Seconds and epochs of one fit to each tolerance; None where it did not get."""
    history: list[Certificate] = []
    look = watch(limit, show)

    def callback(certificate: Certificate) -> None:
        history.append(certificate)
        look(certificate)

    model = WestonWatkinsSVC(
        C=C,
        tol=min(tolerances),
        stopping="relative_gap",
        fit_intercept=False,
        certify_every=1,
        solver=solver,
        # as in the paper, where no sample rests
        shrinking=False,
        max_epochs=EPOCHS,
        random_state=seed,
        callback=callback,
        verbose=False,
    )
    scored = None
    try:
        whole(model.fit(samples.X, samples.y))
        scored = accuracy(model, samples)
    except OutOfTime:
        pass
    ends = [end(history, tolerance) for tolerance in tolerances]
    return {
        "seconds": [x.seconds if x else None for x in ends],
        "epochs": [x.epoch if x else None for x in ends],
        "first_gap": history[0].gap,
        "accuracy": scored,
    }


def end(history: list[Certificate], tolerance: float) -> Certificate | None:
    """The first certificate whose gap is this share of the first one's."""
    goal = tolerance * history[0].gap
    return next((x for x in history if x.gap <= goal), None)


def least(x: float | None, y: float | None) -> float | None:
    known = [value for value in (x, y) if value is not None]
    return min(known) if known else None


def accuracy(model: WestonWatkinsSVC, samples: Samples) -> float | None:
    """Percent of the test samples; None if there are none."""
    if not len(samples.y_test):
        return None
    return 100 * float((model.predict(samples.X_test) == samples.y_test).mean())


def watch(limit: float, show: Show) -> Callable[[Certificate], None]:
    """A callback that shows the gap and gives up at the limit."""
    start = time.perf_counter()

    def look(certificate: Certificate) -> None:
        show(f"gap {certificate.gap:.2e}")
        if time.perf_counter() - start > limit:
            raise OutOfTime

    return look
