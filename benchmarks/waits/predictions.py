"""Predictions per second of the models that recipes save.

Each function returns the number of inputs and a call that predicts all of them, from
the folder of a run. Inputs are those of ``inputs``, or generated images.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

ROUNDS = 3
Prediction = tuple[int, Callable[[], object]]


def inputs(recipe: str) -> dict[str, list[Any]]:
    """Generated sentences of a recipe, and their tags or trees, by name."""
    if recipe == "conll_ner":
        from corpora import toy_corpus

        found = toy_corpus.make(scheme="BIO").dev
        return {"words": [s.words for s in found], "tags": [s.tags for s in found]}
    if recipe == "ud_parser":
        from parsing import dependency_grammar

        _, found = dependency_grammar.make()
        names = ("words", "heads", "labels")
        return {name: [getattr(s, name) for s in found] for name in names}
    from parsing import phrase_grammar

    return {"words": [tree.words for tree in phrase_grammar.make()[1]]}


def tagger(out: Path) -> Prediction:
    from smoothsp.models import load

    model, words = load(out / "model"), inputs("conll_ner")["words"]
    return len(words), lambda: model.tag(words)


def dependencies(out: Path) -> Prediction:
    from smoothsp.models import load

    model, words = load(out / "model"), inputs("ud_parser")["words"]
    return len(words), lambda: model.parse(words)


def constituents(out: Path) -> Prediction:
    from smoothsp.models import load

    model, words = load(out / "model"), inputs("constituency")["words"]
    return len(words), lambda: model.parse(words)


def boxes(out: Path) -> Prediction:
    from smoothsp.models import load

    model, images = load(out / "model"), [*islice(out.rglob("*.jpg"), 10)]
    return len(images), lambda: model.predict(images)


def masks(out: Path) -> Prediction:
    from segmentation import synthetic
    from smoothsp.models import load

    model, images = load(out / "model"), [x.image for x in synthetic.make(10)]
    return len(images), lambda: model.predict(images)


PREDICTIONS: dict[str, Callable[[Path], Prediction]] = {
    "conll_ner": tagger,
    "ud_parser": dependencies,
    "constituency": constituents,
    "voc_localization": boxes,
    "horse_segmentation": masks,
}


def per_second(count: int, call: Callable[[], object]) -> float:
    """Inputs a second of CPU time: the best of some rounds, after one untimed."""
    call()
    least = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        least = min(least, time.process_time() - began)
    return count / least
