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

from smoothsp.oracles._circuits.schedule import depths, products
from smoothsp.oracles._circuits.topology import Topology

Level = tuple[Tensor, Tensor, Tensor]
_found: "WeakKeyDictionary[Topology, dict[torch.device, list[Level]]]"
_found = WeakKeyDictionary()


def levels(topology: Topology, device: torch.device) -> list[Level]:
    """Items ``[H]`` and their left and right factors ``[H, n]``, those before first."""
    places = _found.setdefault(topology, {})
    if device not in places:
        places[device] = _levels(topology, device)
    return places[device]


def _levels(topology: Topology, device: torch.device) -> list[Level]:
    edges = topology.edges
    definition, left, right = products(edges)
    counts = np.bincount(definition, minlength=len(edges.heads))
    first = np.cumsum(counts) - counts
    depth = depths(edges)[edges.heads].astype(np.int64)
    key = depth * (1 + counts.max(initial=0)) + counts
    found = []
    for value in np.unique(key):
        heads = np.flatnonzero(key == value)
        at = first[heads][:, None] + np.arange(counts[heads[0]])
        arrays = edges.heads[heads].astype(np.int64), left[at], right[at]
        items, lefts, rights = (torch.from_numpy(x).to(device) for x in arrays)
        found.append((items, lefts, rights))
    return found


def log_partition(leaves: Tensor, topology: Topology, roots: Tensor) -> Tensor:
    """Logarithm of the sum over all outputs of each row, ``[B]``.

    ``leaves`` are ``[B, P + Q]``: those of the row, then those that all rows share.
    """
    return _answers(leaves, topology, roots, _logsumexp)


def sums(
    leaves: Tensor, topology: Topology, roots: Tensor, graph: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-partition and marginals of the leaves, with a graph if wanted."""
    with torch.enable_grad():
        free = leaves if leaves.requires_grad else leaves.detach().requires_grad_()
        value = log_partition(free, topology, roots)
        (chances,) = torch.autograd.grad(value.sum(), free, create_graph=graph)
    return (value if graph else value.detach()), chances


def covariance(
    leaves: Tensor, topology: Topology, roots: Tensor, along: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-partition, the mean of ``along``, and how marginals move along it."""
    with torch.enable_grad():
        free = leaves.detach().requires_grad_()
        value, chances = sums(free, topology, roots, graph=True)
        means = (chances * along).sum(1)
        (moved,) = torch.autograd.grad(means.sum(), free)
    return value.detach(), means.detach(), moved


def best(
    leaves: Tensor, topology: Topology, roots: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest score of each row ``[B]``, labels ``[B, N]`` and parts ``[B, U]``.

    Parts are the leaves that an output uses, from 0, then -1. The gradient of a maximum
    says how often it uses each.
    """
    B = len(leaves)
    with torch.enable_grad():
        free = leaves.detach().requires_grad_()
        value = _answers(free, topology, roots, lambda x: x.max(1).values)
        (used,) = torch.autograd.grad(value.sum(), free)
    value = (used * torch.where(used > 0, leaves, 0)).sum(1)
    tables = topology.edges.positions, topology.edges.values
    positions, values = (torch.from_numpy(x[1:]).long().to(used.device) for x in tables)
    said = (used > 0) & (positions >= 0)
    labels = positions.new_full((B, topology.labels + 1), -1)
    at = torch.where(said, positions + 1, 0)
    labels = labels.scatter(1, at, torch.where(said, values, -1))[:, 1:]
    row, leaf = used.nonzero().unbind(1)
    times = used[row, leaf].long()
    row, leaf = row.repeat_interleave(times), leaf.repeat_interleave(times)
    counts = used.sum(1).long()
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    parts = positions.new_full((B, topology.most), -1, dtype=torch.int32)
    parts[row, place] = leaf.int()
    return value, labels, parts


def total(leaves: Tensor, used: Tensor) -> Tensor:
    """Sums ``[B, K]``, in float64, of the leaves ``used`` ``[B, K, U]``, -1 none."""
    flat = used.flatten(1).long()
    picked = leaves.gather(1, flat.clamp(min=0)).masked_fill(flat < 0, 0)
    return picked.reshape(used.shape).sum(2, dtype=torch.float64)


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
    for items, left, right in levels(topology, device):
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
