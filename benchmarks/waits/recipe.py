"""Run a recipe's command once, and charge its CPU time to its parts.

    python -m waits.recipe ud_parser --epochs 1 --out DIR    # in benchmarks/

Prints seconds by part as JSON, and predictions per second of the model that was saved.
CPU time of subprocesses is included; imports, files and figures are the rest.
"""

import functools
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from numba.core import event

from measuring import cpu
from waits.predictions import PREDICTIONS, per_second

sys.path.append(str(Path(__file__).parents[2] / "recipes"))

READING, FEATURES, TRAINING = "reading", "features", "training"
EVALUATION, COMPILATION, REST = "evaluation", "compilation", "rest"
COLUMNS = (READING, FEATURES, TRAINING, EVALUATION, COMPILATION, REST)
CORPUS = "smoothsp.models.features:Corpus.__init__"
EPOCH = "runs.trainer:Run.epoch"
STEPS = "pytorch_lightning.loops:_TrainingEpochLoop.run"
SCORES = "smoothsp.training:StructuredModule.validation_step"
# Of each recipe the functions that are its parts.
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "conll_ner": {
        READING: ("conll_ner:load",),
        FEATURES: (CORPUS,),
        TRAINING: (STEPS,),
        EVALUATION: (SCORES,),
    },
    "lightning_ner": {
        READING: ("lightning_ner:read_splits", "corpora.toy_corpus:make"),
        FEATURES: (CORPUS,),
        TRAINING: (STEPS,),
        EVALUATION: ("pytorch_lightning.loops:_EvaluationLoop.run",),
    },
    "ud_parser": {
        READING: ("parsing.grammar:make", "ud_parser:read_dependencies"),
        FEATURES: (CORPUS,),
        TRAINING: ("pytorch_lightning.loops:_TrainingEpochLoop.run",),
        EVALUATION: ("smoothsp.models:Parser.scores",),
    },
    "constituency": {
        READING: ("constituency:load",),
        FEATURES: (CORPUS,),
        TRAINING: ("pytorch_lightning.loops:_TrainingEpochLoop.run",),
        EVALUATION: ("smoothsp.models:ConstituencyParser.scores",),
    },
    "voc_localization": {
        READING: ("localization.toy:make", "localization.folder:read"),
        FEATURES: ("smoothsp.models.localiser_training:prepare",),
        TRAINING: ("pytorch_lightning.loops:_TrainingEpochLoop.run",),
        EVALUATION: ("pytorch_lightning.loops:_EvaluationLoop.run",),
    },
    "horse_segmentation": {
        READING: ("segmentation.drawn:make", "horse_segmentation:load"),
        FEATURES: ("smoothsp.models.segmenter_training:_pictures",),
        TRAINING: (STEPS,),
        EVALUATION: (SCORES,),
    },
    "pose_tree": {
        READING: ("pose_tree:load",),
        FEATURES: (),
        TRAINING: (STEPS,),
        EVALUATION: (SCORES,),
    },
    "matching_points": {
        READING: ("matching_points:load",),
        FEATURES: ("matching.points:detect",),
        TRAINING: (STEPS,),
        EVALUATION: (SCORES,),
    },
    "conll_linear": {
        READING: ("linear_tagging.data:load",),
        FEATURES: ("linear_tagging.data:task_of",),
        TRAINING: ("smoothsp.linear.solvers:SGD.solve",),
        EVALUATION: ("linear_tagging.data:Task.f1",),
    },
    "ocr_words": {
        READING: ("ocr.toy:draw", "ocr.letters:load"),
        FEATURES: (),
        TRAINING: ("ocr.runs:train",),
        EVALUATION: ("ocr.report:write",),
    },
    "shortest_path": {
        READING: ("decisions.problems:drawn", "decisions.problems:read"),
        FEATURES: (),
        TRAINING: ("decisions.linear_models:fit",),
        EVALUATION: ("shortest_path:report",),
    },
    "multiclass_svm": {
        READING: ("multiclass.sets:digits", "multiclass.sets:load"),
        FEATURES: (),
        TRAINING: ("multiclass.fits:score",),
        EVALUATION: ("multiclass.report:write",),
    },
}


class Parts(event.Listener):
    """CPU time of parts; a part or a compilation within one is not charged to it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(COLUMNS, 0.0)
        self._begun: list[float] = []
        self._inner = [0.0]

    def begin(self) -> None:
        self._inner.append(0.0)
        self._begun.append(cpu.seconds())

    def end(self, part: str) -> None:
        whole = cpu.seconds() - self._begun.pop()
        self.seconds[part] += whole - self._inner.pop()
        self._inner[-1] += whole

    def on_start(self, _: event.Event) -> None:
        self.begin()

    def on_end(self, _: event.Event) -> None:
        self.end(COMPILATION)

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time charged to the part."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.begin()
            try:
                return function(*args, **kwargs)
            finally:
                self.end(part)

        return call


def place_of(name: str) -> tuple[Any, str]:
    """The module or class of a function, and the function's name there."""
    module, _, path = name.partition(":")
    owner, _, function = path.rpartition(".")
    return resolve_name(f"{module}:{owner}" if owner else module), function


def run(recipe: str) -> dict[str, float]:
    """Run a recipe as ``sys.argv`` says; CPU seconds of its parts, and its speed."""
    from runs import options

    module, parts = importlib.import_module(recipe), Parts()
    for part, names in PARTS[recipe].items():
        for owner, function in map(place_of, names):
            setattr(owner, function, parts.timed(part, getattr(owner, function)))
    event.register("numba:compile", parts)
    config = options.read(module.Config)
    module.main(config)
    found = parts.seconds
    # since the process began
    found[REST] = cpu.seconds() - sum(found.values())
    if recipe in PREDICTIONS:
        found["per second"] = per_second(*PREDICTIONS[recipe](config.out))
    return found


if __name__ == "__main__":
    del sys.argv[0]
    print(json.dumps(run(sys.argv[0])))
