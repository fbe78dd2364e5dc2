"""Answers to questions about a circuit in plain torch: functions as of ``compiled``.

For devices without loops, and for what loops of a device lack.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from smoothsp.oracles._circuits import compiled, levels
from smoothsp.oracles._circuits.query import Leaves, Query
from smoothsp.oracles._questions.exact import as_two


def sums(
    leaves: Leaves, query: Query, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, the same as two numbers, and marginals ``[B, ...]``."""
    joined = leaves.joined().detach()
    value, chances = levels.sums(joined, query.topology, query.roots)
    none = joined.new_empty(0)
    found = compiled.split(chances, leaves)
    marginals = [x if some else none for x, some in zip(found, wanted, strict=True)]
    return value.to(dtype), as_two(value), marginals


def choose(
    leaves: Leaves,
    query: Query,
    k: None,
    dtype: torch.dtype,
    precise: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values ``[B]``, as two numbers, labels and parts of the best."""
    joined = leaves.joined().detach()
    given = joined.double() if precise else joined, query.topology, query.roots
    value, labels, parts = levels.best(*given)
    return value.to(dtype), as_two(value), labels, parts


def tangent(
    leaves: Leaves, query: Query, along: Leaves, wanted: Sequence[bool]
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition, mean of ``along`` ``[B]``, and how marginals ``[B, ...]`` move.

    In float64; ``along`` are directions, those of shared leaves as they are or
    ``[B, ...]``.
    """
    scores, ways = (x.joined().detach().double() for x in (leaves, along))
    where = query.topology, query.roots
    if not any(wanted):
        value, chances = levels.sums(scores, *where)
        return value, (chances * ways).sum(1), [scores.new_empty(0) for _ in wanted]
    value, means, moved = levels.covariance(scores, *where, ways)
    return value, means, compiled.split(moved, leaves)


def total(leaves: Leaves, used: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sums ``[B, K]`` of the leaves ``used`` ``[B, K, U]``, -1 none; as two numbers."""
    value = levels.total(leaves.joined().detach(), used)
    return value.to(dtype), as_two(value)
