"""Solvers take turns at one problem; each keeps the least of its times.

Noise only ever adds, so the least of many rounds is what a solver takes. What is timed
is a whole call, unless the answer has seconds of its own.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from measuring import timing


@dataclass(frozen=True)
class Answer:
    """What a call found: an objective, and where it counts otherwise, its seconds."""

    objective: float = math.nan
    seconds: float | None = None
    epochs: int = 0


@dataclass(frozen=True)
class Racer:
    """A call that is timed, and how its answer is read, which is not."""

    name: str
    call: Callable[[], Any]
    read: Callable[[Any], Answer]
    dtype: str = "float64"
    threads: int = 1
    highest: float = math.inf  # that its objective may be


@dataclass(frozen=True)
class Entry:
    """One solver in one race."""

    section: str
    case: str
    method: str
    dtype: str
    threads: int
    seconds: float  # the least
    median: float
    rounds: int
    objective: float
    epochs: int
    ratio: float  # of the least seconds, to those of the reference


class TooHigh(Exception):
    """A solver stopped above the objective that it had to reach."""


class Disagree(Exception):
    """Two methods claim the same minimum, and cannot both be right."""


def agree(where: str, bounds: list[tuple[float, float]]) -> None:
    """Each pair holds the minimum between its numbers: nothing is timed otherwise."""
    low, high = max(x for x, _ in bounds), min(x for _, x in bounds)
    if low > high + 1e-9 * abs(high):
        raise Disagree(
            f"{where}: nothing is reported, one method is at {high} and another says"
            f" that the minimum is at least {low}"
        )


def race(
    section: str, case: str, racers: list[Racer], reference: str, rounds: int
) -> list[Entry]:
    """All racers, in an order that rotates."""
    seconds: dict[tuple[str, str, int], list[float]] = {}
    answers: dict[tuple[str, str, int], Answer] = {}
    with timing.collected_between() as collect:
        for turn in range(rounds):
            shift = turn % len(racers)
            for racer in racers[shift:] + racers[:shift]:
                collect()
                with timing.threads(racer.threads):
                    began = time.perf_counter()
                    found = racer.call()
                    taken = time.perf_counter() - began
                answer = racer.read(found)
                # what has no objective has NaN
                if answer.objective > racer.highest:
                    raise TooHigh(
                        f"{section}, {case}: nothing is reported, {racer.name}"
                        f" stopped at {answer.objective}, above {racer.highest}"
                    )
                key = racer.name, racer.dtype, racer.threads
                own = taken if answer.seconds is None else answer.seconds
                seconds.setdefault(key, []).append(own)
                answers[key] = answer
    least = {key: min(values) for key, values in seconds.items()}
    against = min(least[key] for key in least if key[0] == reference)
    return [
        Entry(
            section,
            case,
            *key,
            least[key],
            statistics.median(seconds[key]),
            rounds,
            answers[key].objective,
            answers[key].epochs,
            least[key] / against,
        )
        for key in least
    ]


@dataclass(frozen=True)
class Goal:
    """What entries are meant to reach: the largest of ``values`` at most ``bound``."""

    name: str
    bound: float
    values: list[tuple[float, str]]
    unit: str = "x"

    @property
    def word(self) -> str:
        if not self.values:
            return "not measured"
        return "reached" if max(self.values)[0] <= self.bound else "missed"

    @property
    def cells(self) -> list[str]:
        """A line of the table of targets."""
        value, where = max(self.values) if self.values else (math.nan, "")
        found = f"{value:.2f}{self.unit}" if self.values else ""
        return [
            self.name,
            f"at most {self.bound:.3g}{self.unit}",
            found,
            where,
            self.word,
        ]


def ratios(
    entries: Iterable[Entry], section: str, method: str, **wanted: object
) -> list[tuple[float, str]]:
    """Ratios of a method in a section, and where they were found."""
    return [
        (entry.ratio, f"{entry.case} {entry.dtype}")
        for entry in entries
        if (entry.section, entry.method) == (section, method)
        and all(getattr(entry, name) == value for name, value in wanted.items())
    ]
