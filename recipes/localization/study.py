"""What one setting changes: several values of it, several seeds, one figure each.

Of the paper's studies, on this task: how many boxes are smoothed over, where a round
begins, how strong the smoothing is, whether there is any, and how long prox-linear
solves each of its convex problems.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from localization import figures, report
from localization.training import Diverged
from runs import checkpoint

SEEDS = (1, 2, 3)
WARM_STARTS = ("prox-center", "extrapolation", "prev-iterate", "restart")
CONST, ADAPT, OUTER = "casimir-const", "casimir-adapt", "prox-linear"
# name of the curve, optimizer, and what is changed
Case = tuple[str, str, dict[str, Any]]
STUDIES: dict[str, list[Case]] = {
    "k": [(f"K = {k}", CONST, {"k": k}) for k in (2, 5, 10, 50, "exact")],
    "warm-start": [
        (f"{method[8:]}, {start}", method, {"warm_start": start})
        for method in (CONST, ADAPT)
        for start in WARM_STARTS[:3]
    ],
    "mu": [(f"mu = {mu:g}", CONST, {"mu": mu}) for mu in (0.1, 0.3, 1.0, 3.0, 10.0)],
    "budget": [
        (f"{n} epoch{'s' * (n > 1)} a round", OUTER, {"inner_epochs": n})
        for n in (1, 2, 5, 10)
    ],
}

Train = Callable[[Any], dict[str, float]]


def run(config: Any, train: Train, title: str) -> dict[str, float]:
    """Train each case with each seed; mean lowest objective and CorLoc come back.

    With ``--resume`` runs that are there are continued, or kept if they were finished.
    """
    result: dict[str, float] = {}
    for study in config.study:
        histories: dict[str, list[figures.History]] = {}
        rows = []
        for name, method, changed in STUDIES[study]:
            for seed in SEEDS:
                print(f"\n{study}: {name}, seed {seed}")
                out = config.out / study / f"{name.replace(' ', '')}-{seed}"
                resume = config.resume and (out / "checkpoint.pt").exists()
                one = dataclasses.replace(
                    config,
                    optimizer=method,
                    seed=seed,
                    out=out,
                    study=(),
                    resume=resume,
                    **changed,
                )
                try:
                    train(one)
                except Diverged as error:
                    print(error)
                    break
                history = checkpoint.load(one.checkpoint)["history"]
                histories.setdefault(name, []).append(history)
                rows += [{"case": name, "seed": seed} | row for row in history]
        report.history_csv(config.out / f"{study}.csv", rows)
        figures.curves(config.out / f"{study}.png", histories, f"{study}; {title}")
        print(f"\n{study}: means over seeds {SEEDS}")
        for name, found in histories.items():
            numbers = _summary(found)
            print(f"{name:<24}" + "  ".join(f"{k} {v:.4f}" for k, v in numbers.items()))
            result |= {f"{study}/{name}/{k}": v for k, v in numbers.items()}
        for name, *_ in STUDIES[study]:
            if len(histories.get(name, ())) < len(SEEDS):
                print(f"{name:<24}diverged")
    return result


def _summary(histories: list[Any]) -> dict[str, float]:
    last = [history[-1] for history in histories]
    exact = [row["exact"] for row in last if row["exact"] is not None]
    found = {
        "objective": float(np.mean([row["objective"] for row in last])),
        "seconds": float(np.mean([row["seconds"] for row in last])),
        "val_corloc": float(
            np.mean([max(row["val_corloc"] for row in h) for h in histories])
        ),
    }
    # share of examples for which k outputs were as good as all
    return found | ({"exact": float(np.mean(exact))} if exact else {})
