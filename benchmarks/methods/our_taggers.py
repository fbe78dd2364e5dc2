"""Solvers of ``smoothsp.linear`` as taggers: whole calls of ``solve``."""

from typing import Any

from smoothsp.linear.solvers import LBFGS, SGD
from training.races import Answer, Racer
from training.tagged_texts import Task

NAME = "smoothsp"
SVM, CRF = f"{NAME} SVM, SGD", f"{NAME} CRF, SGD"
BATCH = f"{NAME} CRF, L-BFGS"
# c of lambda = c / n, and the rate
SETTINGS = {SVM: (3.0, 0.1), CRF: (0.6, 0.1)}
LOSSES = {SVM: "hinge", CRF: "likelihood"}
# CRFsuite's penalty is c2 |w|^2, ours is lambda / 2 |w|^2 for the mean
BATCH_C = 0.2


def sgd(task: Task, name: str, passes: int) -> Racer:
    """The average of the iterates after the first pass."""
    c, rate = SETTINGS[name]
    solver = SGD(
        lam=c / len(task.train),
        loss=LOSSES[name],
        rate=rate,
        average_after=min(1, passes - 1),
        evaluate_every=passes,
        max_passes=passes,
    )
    return racer(task, f"{name}, {passes}", solver)


def lbfgs(task: Task, evaluations: int) -> Racer:
    """The objective of CRFsuite, with weights for all pairs of feature and tag."""
    solver = LBFGS(lam=BATCH_C / len(task.train), tol=0, max_passes=evaluations)
    return racer(task, f"{BATCH}, {evaluations}", solver)


def racer(task: Task, name: str, solver: Any) -> Racer:
    def read(found: Any) -> Answer:
        return Answer(found.primal, epochs=found.passes, score=task.f1(found.w))

    return Racer(name, lambda: solver.solve(task.train), read)
