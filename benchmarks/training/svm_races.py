"""Binary and multiclass SVMs: against LIBLINEAR, and exact against greedy blocks."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from methods import liblinear_svms, our_svms
from smoothsp.linear import CrammerSingerSVC, HingeSVC
from smoothsp.projections import project_weston_watkins
from training.drawn_measurements import drawn_measurements
from training.drawn_texts import drawn_texts
from training.races import Answer, Entry, Goal, Racer, race, ratios

CRAMMER_SINGER = "Crammer-Singer"
BINARY = "binary hinge"
FEW_FEATURES = "few dense features"
BLOCKS = "Walrus over greedy"
BLOCK = "one block"
THREADS = "two threads"
C = 1.0


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    sections: tuple[str, ...] = ()  # of SECTIONS; all if there are none
    samples: int = 20_000
    features: int = 50_000
    classes: tuple[int, ...] = (3, 10, 30, 100, 500)
    exact_classes: int = 100  # LIBLINEAR's tight tolerance is tried up to here
    binary: tuple[tuple[int, int, int], ...] = (
        (20_000, 50_000, 60),
        (100_000, 100_000, 80),
    )
    # samples, features, classes, and whether one class has most of them
    dense: tuple[tuple[int, int, int, bool], ...] = (
        (7500, 16, 10, False),
        (43_500, 9, 7, True),
    )
    greedy_classes: tuple[int, ...] = (10, 100, 300, 1000)
    entries: tuple[int, ...] = (4, 64, 256, 1024)
    rounds: int = 7
    slow_rounds: int = 3  # from 100 classes on


QUICK = Plan(
    samples=2000,
    features=5000,
    classes=(10, 100),
    binary=((2000, 5000, 60),),
    dense=((1000, 16, 5, False),),
    greedy_classes=(10, 300),
    entries=(256,),
    rounds=2,
    slow_rounds=1,
)


def measure(plan: Plan) -> Iterator[Entry]:
    """Section by section."""
    warm_up()
    for name in plan.sections or SECTIONS:
        if name in RACED_WITH_LIBLINEAR and not liblinear_svms.installed():
            print(f"{name} is left out: pip install {liblinear_svms.PACKAGE}")
        else:
            yield from SECTIONS[name](plan)


def warm_up() -> None:
    """Compile all that is timed."""
    X, y = drawn_texts(200, 300, 3)
    for dtype in our_svms.DTYPES:
        narrow = X.astype(dtype)
        CrammerSingerSVC(tol=0.5).fit(narrow, y)
        HingeSVC(tol=0.5).fit(narrow, y > 0)
        for solver in ("walrus", "greedy"):
            our_svms.weston_watkins(X, y, solver, dtype, 0.5).call()
        project_weston_watkins(torch.ones(2, 4, dtype=getattr(torch, dtype)), 1.0)


def crammer_singer(plan: Plan) -> Iterator[Entry]:
    """LIBLINEAR to its own tolerance, then ours to the objective that it reached."""
    for k in plan.classes:
        X, y = drawn_texts(plan.samples, plan.features, k)
        for epsilon in (0.1, 0.001) if k <= plan.exact_classes else (0.1,):
            solver = liblinear_svms.CRAMMER_SINGER
            yield from against_liblinear(
                plan, CRAMMER_SINGER, CrammerSingerSVC, X, y, y, solver, epsilon, k
            )


def binary(plan: Plan) -> Iterator[Entry]:
    for samples, features, words in plan.binary:
        X, y = drawn_texts(samples, features, 10, words)
        signs = np.where(y % 2 == 0, 1, -1)
        for epsilon in (0.1, 0.001):
            solver = liblinear_svms.BINARY
            yield from against_liblinear(
                plan, BINARY, HingeSVC, X, signs, signs, solver, epsilon, 2
            )


def few_features(plan: Plan) -> Iterator[Entry]:
    """Many samples of few numbers, to a tight tolerance."""
    for samples, features, k, skewed in plan.dense:
        X, y = drawn_measurements(samples, features, k, skewed)
        signs = np.where(y % 2 == 0, 1, -1)
        for kind, labels, solver, classes in (
            (CrammerSingerSVC, y, liblinear_svms.CRAMMER_SINGER, k),
            (HingeSVC, signs, liblinear_svms.BINARY, 2),
        ):
            yield from against_liblinear(
                plan, FEW_FEATURES, kind, X, labels, labels, solver, 0.001, classes
            )


def against_liblinear(plan, section, kind, X, y, labels, solver, epsilon, k):
    peer = liblinear_svms.racer(X, labels, solver, epsilon, C)
    highest = peer.read(peer.call()).objective
    mine = [
        our_svms.to_objective(kind, X, y, C, highest, dtype)
        for dtype in our_svms.DTYPES
    ]
    n, d = X.shape
    case = f"{n:,} x {d:,}, k = {k}, -e {epsilon:g}"
    rounds = plan.rounds if k < 100 else plan.slow_rounds
    yield from race(section, case, [peer, *mine], peer.name, rounds)


def blocks(plan: Plan) -> Iterator[Entry]:
    """Both solvers of the Weston-Watkins block, on the same permutations."""
    for k in plan.greedy_classes:
        n, d = max(plan.samples // 5, 4 * k), plan.features // 5
        X, y = drawn_texts(n, d, k)
        rounds = plan.rounds if k < 100 else plan.slow_rounds
        for dtype in our_svms.DTYPES:
            for tol in (0.1, 0.001):
                racers = [
                    our_svms.weston_watkins(X, y, solver, dtype, tol)
                    for solver in ("greedy", "walrus")
                ]
                case = f"{n:,} x {d:,}, k = {k}, gap {tol:g}"
                yield from race(BLOCKS, case, racers, "greedy", rounds)


def block(plan: Plan) -> Iterator[Entry]:
    """A batch of normal vectors with bounds of 1; the time of one."""
    for size in plan.entries:
        count = (1 << 19) // size
        for dtype in our_svms.DTYPES:
            generator = torch.Generator().manual_seed(0)
            v = torch.randn(count, size, generator=generator, dtype=torch.float64)
            v = v.to(getattr(torch, dtype))
            racer = Racer(
                "smoothsp",
                lambda v=v: project_weston_watkins(v, 1.0),
                lambda _: Answer(),
            )
            (entry,) = race(BLOCK, f"k - 1 = {size}", [racer], "smoothsp", plan.rounds)
            yield one_of(entry, count, dtype)


def one_of(entry: Entry, count: int, dtype: str) -> Entry:
    """An entry about a batch as one about a single row."""
    return replace(
        entry, seconds=entry.seconds / count, median=entry.median / count, dtype=dtype
    )


def two_threads(plan: Plan) -> Iterator[Entry]:
    """Where the machine lets this process have two cores."""
    if len(os.sched_getaffinity(0)) < 2:
        print("two threads are left out: this process may use one core")
        return
    k = max(plan.classes)
    X, y = drawn_texts(plan.samples, plan.features, k)
    racers = [our_svms.threaded(X, y, threads) for threads in (1, 2)]
    yield from race(
        THREADS, f"Crammer-Singer, k = {k}", racers, "1 thread", plan.slow_rounds
    )


RACED_WITH_LIBLINEAR = CRAMMER_SINGER, BINARY, FEW_FEATURES
SECTIONS: dict[str, Callable[[Plan], Iterator[Entry]]] = {
    CRAMMER_SINGER: crammer_singer,
    BINARY: binary,
    FEW_FEATURES: few_features,
    BLOCKS: blocks,
    BLOCK: block,
    THREADS: two_threads,
}


def goals(entries: list[Entry]) -> list[Goal]:
    """What this part is meant to reach."""
    mine = ratios(entries, CRAMMER_SINGER, our_svms.NAME)
    rough = [x for x in mine if "-e 0.1" in x[1]]
    many = [x for x in rough if classes_in(x[1]) >= 100]
    both = ratios(entries, BLOCKS, "walrus")
    single = [
        (entry.seconds * 1e6, entry.dtype)
        for entry in entries
        if entry.section == BLOCK and entry.case == "k - 1 = 256"
    ]
    return [
        Goal(
            "Crammer-Singer, k >= 100: our time over LIBLINEAR's -s 4 -e 0.1", 0.5, many
        ),
        Goal("Crammer-Singer, every k: our time over LIBLINEAR's -s 4", 1, mine),
        Goal(
            "binary: our time over LIBLINEAR's -s 3",
            0.75,
            ratios(entries, BINARY, our_svms.NAME),
        ),
        Goal(
            "few dense features: our time over LIBLINEAR's -s 4 and -s 3 -e 0.001",
            1,
            ratios(entries, FEW_FEATURES, our_svms.NAME),
        ),
        Goal(
            "Weston-Watkins, k >= 300: time of Walrus over greedy",
            0.6,
            [x for x in both if classes_in(x[1]) >= 300],
        ),
        Goal("one block of k - 1 = 256", 10, single, " us"),
        Goal(
            "a fit with two threads over one, a gap after each epoch",
            1,
            ratios(entries, THREADS, "2 threads"),
        ),
    ]


def classes_in(where: str) -> int:
    return int(where.split("k = ")[1].split(",")[0].split()[0])
