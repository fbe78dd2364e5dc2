"""Taggers of the same features: seconds of training and F1, next to CRFsuite."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from methods import crfsuite_training, our_taggers
from training import tagged_texts
from training.races import Answer, Entry, Goal, Racer, race
from training.tagged_texts import CONLL, Task, Texts

FEATURES, TRAINING = "features", "training"
REACH = "within 0.3 of CRFsuite's best F1"
NEAR, GOOD = 0.3, 90.0
PEER = crfsuite_training.NAME


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    data: Path | None = None  # folder of eng.train and eng.testa; None draws
    drawn: int = 1000
    passes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
    likelihood: tuple[int, ...] = (5, 10, 30)
    peer: tuple[int, ...] = (5, 10, 15, 20, 30)  # of l2sgd and ap
    batch: tuple[int, ...] = (100,)  # iterations of L-BFGS
    rounds: int = 3


QUICK = Plan(
    drawn=300, passes=(1, 3, 10), likelihood=(5,), peer=(5, 20), batch=(20,), rounds=2
)


def measure(plan: Plan) -> Iterator[Entry]:
    """Everything, part by part."""
    given = tagged_texts.texts(plan.data, plan.drawn)
    case = f"{given.name}, n = {len(given.train.tags):,}"
    warm_up()
    task = tagged_texts.task(given)
    ours = trainings(plan, task)
    if crfsuite_training.installed():
        trainer = crfsuite_training.Trainer(task)
        yield from race(FEATURES, case, [reading(given), trainer.loading()], PEER, 2)
        theirs = [
            trainer.racer(algorithm, count)
            for algorithm in crfsuite_training.OPTIONS
            for count in (plan.batch if algorithm == "lbfgs" else plan.peer)
        ]
        yield from compare(plan, case, ours, theirs)
    else:
        print(f"CRFsuite is left out: pip install {crfsuite_training.PACKAGE}")
        yield from race(FEATURES, case, [reading(given)], our_taggers.NAME, 2)
        yield from race(TRAINING, case, ours, ours[0].name, 1)


def warm_up() -> None:
    """Compile all that is timed."""
    task = tagged_texts.task(tagged_texts.texts(None, 10))
    for racer in trainings(Plan(passes=(1,), likelihood=(1,), batch=(1,)), task):
        racer.read(racer.call())


def trainings(plan: Plan, task: Task) -> list[Racer]:
    return [
        *(our_taggers.sgd(task, our_taggers.SVM, n) for n in plan.passes),
        *(our_taggers.sgd(task, our_taggers.CRF, n) for n in plan.likelihood),
        *(our_taggers.lbfgs(task, n) for n in plan.batch),
    ]


def reading(given: Texts) -> Racer:
    """From sentences to the problem that a solver takes."""
    return Racer(
        our_taggers.NAME,
        lambda: tagged_texts.prepare(given),
        lambda task: Answer(seconds=task.seconds),
    )


def compare(
    plan: Plan, case: str, ours: list[Racer], theirs: list[Racer]
) -> Iterator[Entry]:
    """Each training once; then in turns the fastest ones that are good enough."""
    entries = race(TRAINING, case, [*theirs, *ours], theirs[-1].name, 1)
    yield from entries
    best = max(x.score for x in entries if x.method.startswith(PEER))
    chosen = [quickest(entries, racers, best - NEAR) for racers in (theirs, ours)]
    reached = [racer for racer in chosen if racer is not None]
    yield from race(REACH, case, reached, reached[0].name, plan.rounds)


def quickest(entries: list[Entry], racers: list[Racer], wanted: float) -> Racer | None:
    """The one that took least of those with so much F1."""
    names = {racer.name: racer for racer in racers}
    good = [x for x in entries if x.method in names and x.score >= wanted]
    return names[min(good, key=lambda x: x.seconds).method] if good else None


def goals(entries: list[Entry]) -> list[Goal]:
    """What this part is meant to reach, with CoNLL-2003."""
    real = [x for x in entries if x.case.startswith(CONLL)]
    done = [x for x in real if x.section == TRAINING]
    ours, theirs = (
        [x for x in done if x.method.startswith(name)]
        for name in (our_taggers.NAME, PEER)
    )
    reach = [(x.ratio, x.method) for x in named(real, REACH)]
    lead = [(best(theirs) - best(ours), CONLL)] if theirs else []
    good = [(x.seconds, x.method) for x in ours if x.score >= GOOD]
    none = [(math.inf, "not reached")] if ours else []
    return [
        Goal(
            "seconds to 0.3 below CRFsuite's best F1: ours over CRFsuite's fastest",
            1 / 3,
            reach or (none if theirs else []),
        ),
        Goal("F1: CRFsuite's best less ours", 0, lead, ""),
        Goal(f"training to an F1 of {GOOD:g}", 4, [min(good)] if good else none, " s"),
        Goal(
            "features of the training sentences",
            3,
            [(x.seconds, x.case) for x in named(real, FEATURES)],
            " s",
        ),
    ]


def named(entries: list[Entry], section: str) -> list[Entry]:
    """Ours in a section."""
    return [
        x
        for x in entries
        if x.section == section and x.method.startswith(our_taggers.NAME)
    ]


def best(entries: list[Entry]) -> float:
    return max(x.score for x in entries)
