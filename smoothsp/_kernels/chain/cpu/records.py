"""Named tuples for the arrays of a batch of chains.

Python passes plain tuples in these orders to kernels, as a named tuple costs half a
microsecond per call. A kernel converts them first.
"""

from typing import Any, NamedTuple

import numpy as np

from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors import arrays
from smoothsp._kernels.vectors.arrays import carray


class Chain(NamedTuple):
    """A batch, as ``ChainBuffers.arrays``."""

    emissions: Any  # [B, T, S]
    transitions: Any  # [1, 1, S, S] if shared, else [B, T - 1, S, S]
    start: Any  # [S]
    end: Any  # [S]
    steps: Any  # [B, T], the real positions of a row before masked ones
    lengths: Any  # [B]
    shared: Any


class Potentials(NamedTuple):
    """Numbers in the shapes of the potentials: gradients and counts."""

    emissions: Any
    transitions: Any
    start: Any
    end: Any


class Marginals(NamedTuple):
    """Numbers in the shapes of the marginals of each row."""

    nodes: Any  # [B, T, S]
    edges: Any  # [B, 1, S, S], summed over time, or [B, T - 1, S, S]
    start_marginals: Any  # [B, S], the first of the nodes
    end_marginals: Any  # [B, S], the last of the nodes


class Addresses(NamedTuple):
    """A batch in memory, as ``ChainBuffers.addresses``.

    Address 0 for steps and lengths: all positions are real.
    """

    B: Any
    T: Any
    S: Any
    emissions: Any
    transitions: Any
    start: Any
    end: Any
    steps: Any
    lengths: Any
    zeros: Any  # [V], of the dtype of the potentials, V the lanes of a vector


@subroutine(optimise=False)
def chain_from_addresses(addresses, has_shared_transitions):
    """Return the arrays of a batch given by addresses; missing masks are filled in."""
    B, T, S, zeros = addresses.B, addresses.T, addresses.S, addresses.zeros
    if addresses.steps == 0:
        steps = arrays.empty((B, T), np.int64)
        for b in range(B):
            for t in range(T):
                steps[b, t] = t
    else:
        steps = carray(addresses.steps, (B, T), np.int64)
    lengths = arrays.empty(B, np.int64)
    for b in range(B):
        lengths[b] = T
    if addresses.lengths != 0:
        lengths = carray(addresses.lengths, (B,), np.int64)
    P, Q = (1, 1) if has_shared_transitions else (B, max(T - 1, 0))
    return Chain(
        carray(addresses.emissions, (B, T, S), zeros),
        carray(addresses.transitions, (P, Q, S, S), zeros),
        carray(addresses.start, (S,), zeros),
        carray(addresses.end, (S,), zeros),
        steps,
        lengths,
        has_shared_transitions,
    )


@subroutine
def order_by_length(lengths, T):
    """Return the rows by decreasing length, ties in order, by counting sort."""
    first = arrays.empty(T + 2, np.int64)
    for x in range(T + 2):
        first[x] = 0
    for n in lengths:
        first[T - n + 1] += 1
    for x in range(T + 1):
        first[x + 1] += first[x]
    order = arrays.empty(len(lengths), np.int64)
    for b in range(len(lengths)):
        x = T - lengths[b]
        order[first[x]] = b
        first[x] += 1
    return order
