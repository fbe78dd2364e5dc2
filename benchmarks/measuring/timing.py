"""Methods take turns: one sample of each a round, so that ratios hold under any load.

A round in which other processes took more than a fifth of a core is disturbed. Rounds
are added, up to twice the number, until enough are undisturbed; disturbed ones count
only if fewer than ``ENOUGH`` are not.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from inference.questions import Method

ENOUGH = 5
WARM = 4  # one untimed call for so many timed ones: others have had the caches
Stopwatch = Callable[[Callable[[], object], int], float]


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    rounds: int = 11
    sample_seconds: float = 0.02  # of one method in one round
    slow_seconds: float = 1.5  # of one method in all rounds, for calls that take long
    limit_seconds: float = 8.0  # a call that takes longer is not sampled


@dataclass(frozen=True)
class Summary:
    """Seconds a call: median and quartiles, and their ratio to the reference's."""

    median: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    samples: int
    cores: float  # that this process kept busy meanwhile


@dataclass(frozen=True)
class Measured:
    """Samples [round]; None where a slow method sat out."""

    samples: dict[str, list[float | None]]
    cores: dict[str, float]
    disturbed: list[bool]


def on_the_wall(call: Callable[[], object], calls: int) -> float:
    """Seconds a call."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls


def on_the_device(call: Callable[[], object], calls: int) -> float:
    """Seconds a call between two events on the CUDA device."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / calls


def rounds_of(seconds: float, effort: Effort) -> int:
    """In how many rounds a call of so many seconds is sampled."""
    return max(1, min(effort.rounds, int(effort.slow_seconds / seconds)))


def calls_of(seconds: float, effort: Effort) -> int:
    """How many calls make a sample."""
    return max(1, math.ceil(effort.sample_seconds / seconds))


def measure(
    methods: dict[str, Method],
    seconds: dict[str, float],
    effort: Effort,
    stopwatch: Stopwatch = on_the_wall,
) -> Measured:
    """Time methods of which a call takes about so many seconds."""
    names = list(methods)
    calls = {name: calls_of(seconds[name], effort) for name in names}
    turns = {name: rounds_of(seconds[name], effort) for name in names}
    samples: dict[str, list[float | None]] = {name: [] for name in names}
    busy = {name: [0.0, 0.0] for name in names}  # seconds of this process, of the wall
    disturbed: list[bool] = []
    with collected_between() as collect:
        for turn in range(2 * effort.rounds):
            if disturbed.count(False) == effort.rounds:
                break
            collect()
            others = Others()
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                if turn >= turns[name] and turns[name] < effort.rounds:
                    samples[name].append(None)
                    continue
                with threads(methods[name].threads):
                    for _ in range(calls[name] // WARM):
                        methods[name].call()
                    began = time.process_time(), time.perf_counter()
                    samples[name].append(stopwatch(methods[name].call, calls[name]))
                    busy[name][0] += time.process_time() - began[0]
                    busy[name][1] += time.perf_counter() - began[1]
            disturbed.append(others.disturb())
    cores = {name: process / wall for name, (process, wall) in busy.items()}
    return Measured(samples, cores, disturbed)


def kept(measured: Measured) -> list[int]:
    """The rounds that count."""
    every = range(len(measured.disturbed))
    quiet = [turn for turn in every if not measured.disturbed[turn]]
    return quiet if len(quiet) >= ENOUGH else list(every)


def summarise(measured: Measured, reference: str) -> dict[str, Summary]:
    summaries = {}
    for name, times in measured.samples.items():
        sampled = [turn for turn, x in enumerate(times) if x is not None]
        # a method that sat most rounds out keeps what it has
        rounds = [turn for turn in kept(measured) if times[turn] is not None] or sampled
        ours = measured.samples[reference]
        paired = [times[t] / ours[t] for t in rounds if ours[t] is not None]
        low, median, high = quartiles([times[turn] for turn in rounds])
        ratio_low, ratio, ratio_high = quartiles(paired)
        summaries[name] = Summary(
            median,
            low,
            high,
            ratio,
            ratio_low,
            ratio_high,
            len(rounds),
            measured.cores[name],
        )
    return summaries


def quartiles(values: list[float]) -> list[float]:
    if len(values) < 2:
        return [values[0] if values else math.nan] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


@contextmanager
def collected_between() -> Iterator[Callable[[], object]]:
    """No garbage is collected but where the block asks for it."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
        gc.unfreeze()


class Others:
    """How busy other processes keep the machine, since this was made. Linux only."""

    STAT = Path("/proc/stat")
    SHARE = 0.2  # of a core
    GRAIN = 0.02  # seconds: the kernel counts in hundredths

    def __init__(self) -> None:
        self._busy, self._own = self._busy_seconds(), time.process_time()
        self._began = time.perf_counter()

    def disturb(self) -> bool:
        own = time.process_time() - self._own
        wall = time.perf_counter() - self._began
        others = self._busy_seconds() - self._busy - own
        return others > self.SHARE * wall + self.GRAIN

    @classmethod
    def _busy_seconds(cls) -> float:
        """Of all cores, what the hypervisor took included."""
        if not cls.STAT.exists():
            return 0.0
        ticks = [int(x) for x in cls.STAT.read_text().split("\n")[0].split()[1:9]]
        idle, waiting = ticks[3:5]
        return (sum(ticks) - idle - waiting) / 100
