"""Several optimizers on the same images, several seeds each, in one figure."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from localization import figures, report
from localization.training import Diverged
from runs import checkpoint

METHODS = {
    "linear": ("sgd", "svrg", "casimir-const", "casimir-adapt", "bcfw"),
    "nonlinear": ("sgd", "sgd-sqrt", "sgd-inv", "prox-linear"),
}
SEEDS = (1, 2, 3)
# what is tuned of each, on images in an order that no seed of the figure has
TUNED = {"casimir-const": "smoothness", "prox-linear": "smoothness"}
# its step sizes are searched, not set
UNTUNED = ("bcfw",)
TUNING_SEED, FACTOR, FARTHEST = 0, 4.0, 6

# the baselines, the same for all, beside what was learned
NUMBERS = ("corloc", "ap", "centre_box", "best_candidate")

Train = Callable[[Any], dict[str, float]]


def compare(
    config: Any, defaults: dict[str, dict[str, float]], train: Train, title: str
) -> dict[str, float]:
    """Tune each optimizer, train with each seed; the means over seeds come back.

    ``defaults`` has the numbers of each optimizer where tuning begins. Each run has its
    folder in ``--out``; with ``--resume`` those that are there are continued, or kept
    if they were finished.
    """
    histories: dict[str, list[figures.History]] = {}
    rows, result = [], {}
    for method in METHODS[config.scores]:
        changed = {}
        if method not in UNTUNED:
            name = TUNED.get(method, "lr")
            value = _tune(config, method, name, defaults[method][name], train)
            result[f"{method}_{name}"] = changed[name] = value
        found = []
        for seed in SEEDS:
            said = "".join(f", {name} {value:g}" for name, value in changed.items())
            print(f"\n{method}{said}, seed {seed}")
            one = _run(config, method, f"{seed}", seed=seed, **changed)
            found.append(train(one))
            history = checkpoint.load(one.checkpoint)["history"]
            histories.setdefault(method, []).append(history)
            rows += [{"optimizer": method, "seed": seed} | row for row in history]
        for number in found[0].keys() - {"best_round"}:
            mean = sum(one[number] for one in found) / len(found)
            result[f"{method}_{number}"] = mean
    report.history_csv(config.out / "comparison.csv", rows)
    figures.curves(config.out / "comparison.png", histories, title)
    print(f"\nmeans over seeds {SEEDS}")
    for method in METHODS[config.scores]:
        cells = [f"objective {result[f'{method}_lowest_objective']:.4f}"]
        shown = [f"{part}_{n}" for part in ("val", "test") for n in NUMBERS]
        for number in shown:
            if f"{method}_{number}" in result:
                cells.append(f"{number} {100 * result[f'{method}_{number}']:.1f}")
        print(f"{method:<14}" + "  ".join(cells))
    print(f"see {config.out}: comparison.csv, comparison.png")
    return result


def _run(config: Any, method: str, name: str, **changed: Any) -> Any:
    out = config.out / f"{method}-{name}"
    resume = config.resume and (out / "checkpoint.pt").exists()
    return dataclasses.replace(
        config, optimizer=method, out=out, compare=False, resume=resume, **changed
    )


def _tune(config: Any, method: str, name: str, start: float, train: Train) -> float:
    """The value with the lowest objective, of a grid of factors of 4.

    It has three values at first, and grows until the best one is not at its end.
    """
    found: dict[int, float] = {}

    def look(exponent: int) -> None:
        value = start * FACTOR**exponent
        print(f"\n{method}, tuning: {name} {value:g}")
        one = _run(
            config, method, f"tuning-{value:g}", seed=TUNING_SEED, **{name: value}
        )
        try:
            found[exponent] = train(one)["lowest_objective"]
        except Diverged:
            print("diverged")
            found[exponent] = math.inf

    for exponent in (-1, 0, 1):
        look(exponent)
    while (best := min(found, key=found.__getitem__)) in (min(found), max(found)):
        if abs(best) == FARTHEST:
            break
        look(best + (1 if best == max(found) else -1))
    return start * FACTOR**best
