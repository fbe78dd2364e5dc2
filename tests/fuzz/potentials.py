"""Draws of potentials: continuous ones, and special values that those never meet."""

import math
from random import Random

import numpy as np

from tests.fuzz.structures import Arrays, Kind

Floats = np.ndarray


def continuous(rng: Random, shape: tuple[int, ...]) -> Floats:
    scale = rng.choice((1.0, 1.0, 5.0, 40.0))
    return _each(shape, lambda: rng.gauss(0, scale))


def integers(rng: Random, shape: tuple[int, ...]) -> Floats:
    return _each(shape, lambda: float(rng.randint(-1, 1)))


def ties(rng: Random, shape: tuple[int, ...]) -> Floats:
    return np.full(shape, rng.choice((0.0, 0.0, -1.5, 3.0)))


def dyadic(rng: Random, shape: tuple[int, ...]) -> Floats:
    """Logarithms of probabilities, halves of halves along the last axis."""

    def split(n: int, p: float) -> list[float]:
        if n <= 1:
            return [p] * n
        k = rng.randint(1, n - 1)
        return split(k, p / 2) + split(n - k, p / 2)

    def one(n: int) -> list[float]:
        row = split(n, 1.0)
        if n > 2 and rng.random() < 0.5:  # one half, and any that sum to one half
            share = [rng.random() for _ in range(n - 1)]
            row = [0.5, *(x / sum(share) / 2 for x in share)]
        rng.shuffle(row)
        return [math.log(p) for p in row]

    if not shape:
        return np.array(0.0)
    rows = [one(shape[-1]) for _ in range(math.prod(shape[:-1]))]
    return np.array(rows, float).reshape(shape)


def halves(rng: Random, shape: tuple[int, ...]) -> Floats:
    """Two of each row tie, the others are unlikely."""
    found = _each(shape, lambda: rng.uniform(-60, -30))
    if shape and shape[-1] > 1:
        found[..., rng.sample(range(shape[-1]), 2)] = rng.gauss(0, 1)
    return found


def moves(rng: Random, shape: tuple[int, ...]) -> Floats:
    """As rare as a float64 can say; often tied."""
    low = rng.choice((-650.0, -745.0, -950.0))
    if rng.random() < 0.5:
        return np.full(shape, low)
    return _each(shape, lambda: rng.uniform(low, -650))


STYLES = (continuous, continuous, integers, ties, dyadic, dyadic, halves)


def draw(rng: Random, kind: Kind, zeros: Arrays) -> Arrays:
    style = rng.choice((*STYLES, None))  # None: each array in its own style
    found = {x: (style or rng.choice(STYLES))(rng, zeros[x].shape) for x in zeros}
    first, *others = found
    if rng.random() < 0.3:  # one array alone decides
        found |= {x: np.zeros(zeros[x].shape) for x in others}
    special = rng.random()
    if special < 0.2:
        sign = rng.choice((-1, 1))
        offset = sign * 10.0 ** rng.randint(3, 9)
        for name in found if rng.random() < 0.5 else [first]:
            if name not in kind.finite:
                found[name] = found[name] + offset
    elif special < 0.4:
        if others and rng.random() < 0.5:
            found[first] = rng.choice((ties, halves, integers))(rng, zeros[first].shape)
        for name in others or [first]:
            if name not in kind.finite:
                found[name] = moves(rng, zeros[name].shape)
    elif special < 0.5 and found[first].size:
        # one certain entry in each place
        certain = np.full(found[first].shape, -rng.choice((60.0, 800.0, 1e5)))
        certain[..., rng.randrange(certain.shape[-1])] = 0
        found[first] = certain
    return found


def forbid(rng: Random, kind: Kind, found: Arrays, lowest: float) -> Arrays:
    """Give some entries a score that forbids."""
    if rng.random() < 0.6:
        return found
    mask, share = rng.choice((-math.inf, lowest, -(2.0**40))), rng.uniform(0, 0.3)

    def some(x: Floats) -> Floats:
        return np.where(_each(x.shape, rng.random) < share, mask, x)

    return {x: v if x in kind.finite else some(v) for x, v in found.items()}


def _each(shape: tuple[int, ...], number) -> Floats:
    return np.array([number() for _ in range(math.prod(shape))], float).reshape(shape)
