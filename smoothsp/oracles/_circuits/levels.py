"""Circuits in plain torch, level by level: any device, differentiable twice.

The twin of the compiled loops in the tests, and what answers on devices without any.
Definitions of a level need only those of levels before, and those with as many products
are one operation.
"""

from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from smoothsp.oracles._circuits.topology import Topology

Level = tuple[Tensor, Tensor, Tensor]
_found: "WeakKeyDictionary[Topology, list[Level]]" = WeakKeyDictionary()


def levels(topology: Topology) -> list[Level]:
    """Items ``[H]`` and their left and right factors ``[H, n]``, those before first."""
    if topology not in _found:
        _found[topology] = _levels(topology)
    return _found[topology]


def _levels(topology: Topology) -> list[Level]:
    edges = topology.edges
    runs, starts = edges.runs, edges.starts
    count, a, step_a, b, step_b = runs.T.astype(np.int64)
    run = np.repeat(np.arange(len(runs)), count)
    offset = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    left = a[run] + offset * step_a[run]
    right = b[run] + offset * step_b[run]
    first = np.append(0, np.cumsum(count))[starts]
    products = np.diff(first)
    depth = np.zeros(edges.items, np.int64)
    for h, item in enumerate(edges.heads):
        span = slice(first[h], first[h + 1])
        below = max(depth[left[span]].max(initial=0), depth[right[span]].max(initial=0))
        depth[item] = below + 1
    key = depth[edges.heads] * (1 + products.max(initial=0)) + products
    found = []
    for value in np.unique(key):
        heads = np.flatnonzero(key == value)
        at = first[heads][:, None] + np.arange(products[heads[0]])
        arrays = edges.heads[heads].astype(np.int64), left[at], right[at]
        items, lefts, rights = (torch.from_numpy(x) for x in arrays)
        found.append((items, lefts, rights))
    return found


def log_partition(leaves: Tensor, topology: Topology, roots: Tensor) -> Tensor:
    """Logarithm of the sum over all outputs of each row, ``[B]``.

    ``leaves`` are ``[B, P + Q]``: those of the row, then those that all rows share.
    """
    return _answers(leaves, topology, roots, _logsumexp)


def best(leaves: Tensor, topology: Topology, roots: Tensor) -> Tensor:
    """The largest score of an output of each row, ``[B]``; its gradient marks one."""
    return _answers(leaves, topology, roots, lambda x: x.max(1).values)


def _answers(
    leaves: Tensor,
    topology: Topology,
    roots: Tensor,
    join: Callable[[Tensor], Tensor],
) -> Tensor:
    B, device = len(leaves), leaves.device
    clean = torch.where(leaves < torch.inf, leaves, -torch.inf)
    charts = clean.new_full((topology.edges.items - 1 - topology.leaves, B), -torch.inf)
    x = torch.cat([clean.new_zeros(1, B), clean.T, charts])
    for level in levels(topology):
        items, left, right = (i.to(device) for i in level)
        if left.shape[1]:
            x = x.index_copy(0, items, join(x[left] + x[right]))
    return x[roots.to(device), torch.arange(B, device=device)]


def _logsumexp(x: Tensor) -> Tensor:
    """Over axis 1; -inf where all are, with a gradient of 0 there."""
    top = x.detach().amax(1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    total = (x - top).exp().sum(1)
    none = total == 0
    value = total.masked_fill(none, 1).log() + top.squeeze(1)
    return value.masked_fill(none, -torch.inf)
