"""python-crfsuite: trains taggers, by its log without reading data and writing models.

Data goes in once; each training begins anew, with the features that occur with a label
in the data, as CRFsuite has it by default.
"""

import ctypes
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from training.races import Answer, Racer
from training.tagged_texts import Task

PACKAGE, NAME = "python-crfsuite", "crfsuite"
# its penalty is c2 |w|^2, the loss a sum over sentences
OPTIONS: dict[str, dict[str, float]] = {
    "lbfgs": {"c2": 0.1},
    "l2sgd": {"c2": 0.1},
    "ap": {},
}
# from the last line about features to the last one about training
BEGINS, ENDS = "Seconds required", "Total seconds required for training"


def installed() -> bool:
    return find_spec("pycrfsuite") is not None


@dataclass(frozen=True)
class Trained:
    """A model as in its file, and how long it took."""

    model: bytes
    seconds: float


class Log:
    """When the trainer said what."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def __call__(self, message: str) -> None:
        wanted = ENDS if self.moments else BEGINS
        if wanted in message and len(self.moments) < 2:
            self.moments.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        first, last = self.moments
        return last - first


class Trainer:
    """All trainings on one task."""

    def __init__(self, task: Task) -> None:
        from pycrfsuite import ItemSequence

        self.task = task
        self.attributes = list(task.attributes(task.train))
        self.dev = [ItemSequence(x) for x in task.attributes(task.dev)]
        self.trainer: Any = None

    def loading(self) -> Racer:
        """Attributes become the data of a trainer."""
        from pycrfsuite import Trainer

        def call() -> None:
            self.trainer = Trainer(verbose=False)
            tags = self.task.texts.train.tags
            for attributes, labels in zip(self.attributes, tags, strict=True):
                self.trainer.append(attributes, labels)

        return Racer(NAME, call, lambda _: Answer())

    def racer(self, algorithm: str, iterations: int) -> Racer:
        return Racer(
            f"{NAME} {algorithm}, {iterations}",
            lambda: self.train(algorithm, iterations),
            lambda found: Answer(
                seconds=found.seconds, epochs=iterations, score=self.f1(found)
            ),
        )

    def train(self, algorithm: str, iterations: int) -> Trained:
        log = Log()
        self.trainer.select(algorithm)
        self.trainer.set_params(OPTIONS[algorithm] | {"max_iterations": iterations})
        self.trainer.message, self.trainer.verbose = log, True
        if sys.platform == "linux":
            # the order of sentences as in a fresh process
            ctypes.CDLL(None).srand(1)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            self.trainer.train(str(path))
            return Trained(path.read_bytes(), log.seconds)

    def f1(self, trained: Trained) -> float:
        from pycrfsuite import Tagger

        tagger = Tagger()
        tagger.open_inmemory(trained.model)
        return self.task.f1_of(tag for x in self.dev for tag in tagger.tag(x))
