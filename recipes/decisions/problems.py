"""Problems of ``shortest_path.py``: features, true numbers, and how one decides."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles import Knapsack, ShortestPath

FEATURES, GRID, ITEMS = 5, 5, 20


@dataclass(frozen=True)
class Examples:
    """Examples of several runs side by side.

    Attributes
    ----------
    features
        ``(runs, n, p)``.
    scores
        ``(runs, n, parts)``: true scores, which are minus costs, or values.
    best
        ``(runs, n, parts)``: the best decision of each example, 0 or 1.
    """

    features: Tensor
    scores: Tensor
    best: Tensor

    def __len__(self) -> int:
        return self.features.shape[1]

    def regret(self, problem: "Problem", predicted: Tensor) -> Tensor:
        """Normalised regret of decisions by ``predicted`` scores, for each run.

        What the decisions lose, as a share of what the best ones cost or are worth:
        equation 14 of Elmachtoub and Grigas.
        """
        chosen = problem.decide(predicted)
        loss = ((self.best - chosen) * self.scores).sum((1, 2))
        return loss / (self.best * self.scores).sum((1, 2)).abs()


@dataclass(frozen=True)
class Problem:
    """What is decided: ``build(scores)`` makes its structure of ``(batch, parts)``."""

    name: str
    parts: int
    sign: int
    build: Callable[[Tensor], Any]

    def decide(self, scores: Tensor) -> Tensor:
        """Best decisions ``(runs, n, parts)``."""
        with torch.no_grad():
            flat = scores.reshape(-1, self.parts)
            return self.build(flat).decode()[1].reshape(scores.shape).to(scores)

    def examples(self, features: Tensor, numbers: Tensor) -> Examples:
        """Of costs or values ``(runs, n, parts)``."""
        scores = self.sign * numbers
        return Examples(features, scores, self.decide(scores))


def grid() -> Problem:
    """Paths from one corner of a grid to the other, to the right or down."""
    node = torch.arange(GRID * GRID).reshape(GRID, GRID)
    right = torch.stack([node[:, :-1].flatten(), node[:, 1:].flatten()], 1)
    down = torch.stack([node[:-1].flatten(), node[1:].flatten()], 1)
    index = torch.cat([right, down])
    return Problem(
        "shortest-path",
        len(index),
        -1,
        lambda scores: ShortestPath(scores, index, 0, GRID * GRID - 1),
    )


def knapsack() -> Problem:
    """Items of drawn weights, of which two fifths by weight fit."""
    weights = torch.randint(3, 9, (ITEMS,), generator=torch.Generator().manual_seed(0))
    capacity = int(0.4 * int(weights.sum()))
    return Problem(
        "knapsack", ITEMS, 1, lambda scores: Knapsack(scores, weights, capacity)
    )


PROBLEMS = {"shortest-path": grid, "knapsack": knapsack}


def generate(
    problem: Problem, sizes: dict[str, int], runs: list[tuple[int, float, int]]
) -> dict[str, Examples]:
    """Examples of each run, which is a degree, a noise and a seed.

    The generator of Elmachtoub and Grigas, section 6.1: Gaussian features x and
    numbers ``(((B x) / sqrt(p) + 3)^degree + 1) eps / 3.5^degree``, each entry of B 0
    or 1, eps uniform around 1.
    """
    pairs_by_part: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in sizes}
    for degree, noise, seed in runs:
        generator = torch.Generator().manual_seed(seed)
        b = torch.randint(2, (problem.parts, FEATURES), generator=generator).float()
        for name, n in sizes.items():
            x = torch.randn(n, FEATURES, generator=generator)
            numbers = ((x @ b.T / FEATURES**0.5 + 3) ** degree + 1) / 3.5**degree
            eps = torch.rand(numbers.shape, generator=generator)
            pairs_by_part[name].append((x, numbers * (1 + noise * (2 * eps - 1))))
    return {
        name: problem.examples(*(torch.stack(x) for x in zip(*pairs, strict=True)))
        for name, pairs in pairs_by_part.items()
    }


def read(path: Path, name: str) -> tuple[Problem, Tensor, Tensor]:
    """The problem of a file, its features ``(n, p)`` and costs or values."""
    kind = "costs" if name == "shortest-path" else "values"
    structure_keys = (
        ("index", "source", "target") if kind == "costs" else ("weights", "capacity")
    )
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except FileNotFoundError:
        raise
    except (
        AttributeError,
        TypeError,
        ValueError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
    ):
        raise ValueError(
            f"{path}: expected arrays of numpy.savez, got another kind of file, a"
            " damaged one, or arrays of objects"
        ) from None
    for key in ("features", kind, *structure_keys):
        if key not in arrays:
            raise ValueError(
                f"{path}: expected the arrays features, {kind},"
                f" {', '.join(structure_keys)}; got no {key}"
            )
    features, numbers = (
        torch.tensor(arrays[key]).float() for key in ("features", kind)
    )
    for key, x in (("features", features), (kind, numbers)):
        if x.dim() != 2 or len(x) != len(features):
            raise ValueError(
                f"{path}: expected {len(features)} rows in {key}, one for each example,"
                f" got the shape {tuple(x.shape)}"
            )
        if not x.isfinite().all():
            raise ValueError(
                f"{path}: expected finite numbers in {key}, got NaN or infinity"
            )
    if len(features) < 10:
        raise ValueError(f"{path}: expected at least 10 examples, got {len(features)}")
    structure_arrays = [torch.tensor(arrays[key]) for key in structure_keys]
    try:
        if kind == "costs":
            index, source, target = (
                structure_arrays[0],
                int(structure_arrays[1]),
                int(structure_arrays[2]),
            )
            build: Callable[[Tensor], Any] = lambda scores: ShortestPath(  # noqa: E731
                scores, index, source, target
            )
        else:
            weights, capacity = structure_arrays[0], int(structure_arrays[1])
            build = lambda scores: Knapsack(scores, weights, capacity)  # noqa: E731
        sign = -1 if kind == "costs" else 1
        problem = Problem(name, numbers.shape[1], sign, build)
        problem.decide(sign * numbers[None])
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path}: {error}") from error
    return problem, features, numbers


def split_by_seed(
    problem: Problem, features: Tensor, numbers: Tensor, seeds: list[int]
) -> dict[str, Examples]:
    """For each seed another split: 60 percent to train on, 20 to choose, 20 to test."""
    n = len(features)
    orders = [
        torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        for seed in seeds
    ]
    bounds = {"train": (0, 3 * n // 5), "dev": (3 * n // 5, 4 * n // 5)}
    bounds["test"] = (4 * n // 5, n)
    return {
        name: problem.examples(
            *(
                torch.stack([x[o[first:last]] for o in orders])
                for x in (features, numbers)
            )
        )
        for name, (first, last) in bounds.items()
    }
