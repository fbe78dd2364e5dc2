"""Single fits of ``multiclass_svm.py``."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from multiclass.datasets import Samples
from runs.interrupts import raise_if_interrupted
from smoothsp.linear import Certificate, WestonWatkinsSVC

EPOCHS = 100_000
Show = Callable[[str], Any]


def warm_up(samples: Samples) -> None:
    """Compile, so that no fit whose time is limited has to."""
    first = np.unique(samples.y, return_index=True)[1]
    WestonWatkinsSVC(fit_intercept=False, tol=0.5).fit(
        samples.X[first], samples.y[first]
    )


class OutOfTime(Exception):
    """A fit took longer than the limit."""


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
        callback=time_limit_callback(limit, show),
        verbose=False,
    )
    try:
        raise_if_interrupted(model.fit(samples.X, samples.y))
    except OutOfTime:
        return {"accuracy": None}
    return {
        "accuracy": accuracy(model, samples),
        "epochs": model.n_epochs_,
        "seconds": model.history_[-1].seconds,
        "primal": model.history_[-1].primal,
        "gap": model.gap_,
    }


def accuracy(model: WestonWatkinsSVC, samples: Samples) -> float:
    """Percent of the test samples."""
    return 100 * float((model.predict(samples.X_test) == samples.y_test).mean())


def time_limit_callback(limit: float, show: Show) -> Callable[[Certificate], None]:
    """A callback that shows the gap and gives up at the limit."""
    start = time.perf_counter()

    def callback(certificate: Certificate) -> None:
        show(f"gap {certificate.gap:.2e}")
        if time.perf_counter() - start > limit:
            raise OutOfTime

    return callback
