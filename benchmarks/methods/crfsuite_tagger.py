"""python-crfsuite: tags sentences of attributes, with weights that it has learnt.

It takes no dense scores. So a small model is trained with as many labels as the problem
has states, and the sentences to tag have the lengths of the problem's rows. Read back
from the model, the weights give the chain of which its tags must be a maximiser. It
computes in float64 on one thread. Attributes become items before the clock starts.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch

from inference.problems import Problem
from inference.questions import DECODE, Answer, Method

NAME = "python-crfsuite"
ATTRIBUTES = 10  # of each token
VALUES = 97  # of each attribute
SENTENCES = 20  # to train on, each with every label
SIX_DECIMALS = 1e-5  # with which weights are read back


def methods(problem: Problem) -> dict[str, Method]:
    import pycrfsuite

    rng = np.random.default_rng(0)
    batch, time, states = problem.emissions.shape
    tagger = pycrfsuite.Tagger()
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        train(model, states, rng)
        tagger.open(model)
        weights = tagger.info()
    lengths = problem.mask.sum(1).tolist()
    sentences = [sentence(n, rng) for n in lengths]
    items = [pycrfsuite.ItemSequence(x) for x in sentences]
    judged = learnt_problem(weights, sentences, problem)

    def decode() -> list[list[str]]:
        return [tagger.tag(x) for x in items]

    def read(rows: list[list[str]]) -> Answer:
        labels = torch.zeros(batch, time, dtype=torch.int64)
        for row, tags in zip(labels, rows, strict=True):
            row[: len(tags)] = torch.tensor([int(tag) for tag in tags])
        return (labels,)

    return {DECODE: Method(DECODE, judged, decode, read, tolerance=SIX_DECIMALS)}


def sentence(length: int, rng: np.random.Generator) -> list[list[str]]:
    values = rng.integers(VALUES, size=(length, ATTRIBUTES))
    return [[f"{a}={v}" for a, v in enumerate(token)] for token in values]


def train(model: str, states: int, rng: np.random.Generator) -> None:
    import pycrfsuite

    trainer = pycrfsuite.Trainer(algorithm="averaged-perceptron", verbose=False)
    for _ in range(SENTENCES):
        labels = rng.permutation(np.concatenate([np.arange(states)] * 2))
        trainer.append(sentence(len(labels), rng), [str(y) for y in labels])
    trainer.set_params({"max_iterations": 2})
    trainer.train(model)


def learnt_problem(weights, sentences: list, problem: Problem) -> Problem:
    """The chain that the model makes of the sentences."""
    batch, time, states = problem.emissions.shape
    emissions = torch.zeros(batch, time, states, dtype=torch.float64)
    transitions = torch.zeros(states, states, dtype=torch.float64)
    for (before, after), weight in weights.transitions.items():
        transitions[int(before), int(after)] = weight
    of_attribute: dict[str, torch.Tensor] = {}
    for (attribute, label), weight in weights.state_features.items():
        row = of_attribute.setdefault(attribute, torch.zeros_like(transitions[0]))
        row[int(label)] = weight
    for b, tokens in enumerate(sentences):
        for t, attributes in enumerate(tokens):
            for attribute in attributes:
                if attribute in of_attribute:
                    emissions[b, t] += of_attribute[attribute]
    start, end = torch.zeros(2, states, dtype=torch.float64)
    lengths = problem.lengths
    return Problem(emissions, transitions, start, end, problem.labels, lengths)
