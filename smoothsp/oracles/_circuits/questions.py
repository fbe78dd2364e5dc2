"""Questions to a circuit.

CPU and CUDA tensors go to compiled loops; any others are answered in plain torch, level
by level.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from smoothsp.oracles._circuits import compiled, levels
from smoothsp.oracles._circuits.asked import Asked, Leaves
from smoothsp.oracles._circuits.gradients import (
    Chosen,
    Eager,
    EagerLogPartition,
    Entropy,
    LogPartition,
    Marginals,
    Samples,
    Score,
    finite,
)
from smoothsp.oracles._circuits.loops import LOOPS, loops_for
from smoothsp.oracles._questions.registration import (
    is_ordinary,
    is_plain,
    nothing_traces,
)


def log_partition(leaves: Leaves, asked: Asked, dtype: torch.dtype) -> Tensor:
    """Logarithm of the sum over all outputs ``[B]``; differentiable twice."""
    return log_partition_looked_at(leaves, asked, dtype)[0]


def log_partition_looked_at(
    leaves: Leaves, asked: Asked, dtype: torch.dtype
) -> tuple[Tensor, bool]:
    """``log_partition``, and whether all of it is known to be finite."""
    tensors = (*leaves.own, *leaves.shared)
    if nothing_traces() and all(map(_is_eager, tensors)):
        question = Eager(asked, len(leaves.own), dtype)
        if _wants_gradient(tensors):
            return EagerLogPartition.apply(question, *tensors), question.finite
        value = question.sums(tensors, [False] * len(tensors))[0]
        return value, question.finite
    if loops_for(leaves) is None:
        value = levels.log_partition(leaves.joined(), asked.topology, asked.roots)
        return value.to(dtype), False
    return LogPartition.apply(asked, len(leaves.own), dtype, *tensors), False


def _is_eager(x: Tensor) -> bool:
    """Whether compiled loops may be called for it at once, where nothing traces."""
    return is_ordinary(x) or (
        not x.is_cpu and x.device.type in LOOPS and is_plain(x, x.device.type)
    )


def marginals(leaves: Leaves, asked: Asked) -> list[Tensor]:
    """Chances of the leaves, arrays ``[B, ...]``; differentiable once."""
    if loops_for(leaves) is None:
        graph = _wants_gradient((*leaves.own, *leaves.shared))
        joined = leaves.joined()
        found = levels.sums(joined, asked.topology, asked.roots, graph)[1]
        return compiled.split(found, leaves)
    tensors = (*leaves.own, *leaves.shared)
    return list(Marginals.apply(asked, len(leaves.own), None, *tensors))


def best(leaves: Leaves, asked: Asked) -> tuple[Tensor, Tensor]:
    """Highest scores ``[B]`` in float64, and the labels ``[B, 1, N]`` of an output."""
    if loops_for(leaves) is None:
        value, labels = levels.best(leaves.joined(), asked.topology, asked.roots)
        return value.double(), labels[:, None]
    values, labels = _chosen(leaves, asked, None)
    return values.squeeze(1), labels


def chosen_looked_at(
    leaves: Leaves, asked: Asked, k: int | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, bool]:
    """Values ``[B, K]`` and labels ``[B, K, N]`` of the best, or of the k best.

    And whether all values are known to be finite: of the dtype then, else in float64.
    """
    tensors = (*leaves.own, *leaves.shared)
    if _direct(tensors) and all(map(is_ordinary, tensors)):
        return compiled.rounded_choice(leaves, asked, k, dtype)
    if k is None:
        value, labels = best(leaves, asked)
        return value[:, None], labels, False
    return *k_best(leaves, asked, k), False


def k_best(leaves: Leaves, asked: Asked, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores ``[B, k]`` in float64, labels ``[B, k, N]``; on the CPU.

    -inf and -1 where there are fewer outputs.
    """
    device = leaves.own[0].device
    values, labels = _chosen(leaves.map(lambda x: x.cpu()), asked, k)
    return values.to(device), labels.to(device)


def samples(leaves: Leaves, asked: Asked, seeds: Tensor) -> Tensor:
    """Labels ``[B, n, N]`` of independent draws, from seeds ``[B, n]``; on the CPU."""
    leaves = leaves.map(lambda x: x.detach().cpu())
    tensors = (*leaves.own, *leaves.shared)
    found: Tensor = Samples.apply(asked, len(leaves.own), seeds.cpu(), *tensors)
    return found.to(seeds.device)


def distinct_samples(
    leaves: Leaves, asked: Asked, n: int, seeds: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels ``[B, n, N]`` of distinct draws, and which of them exist; on the CPU."""
    _require_plain("sample(replace=False)")
    leaves = leaves.map(lambda x: x.detach().cpu())
    found = compiled.distinct_samples(leaves, asked, n, seeds.cpu())
    return found[0].to(seeds.device), found[1].to(seeds.device)


def max_marginals(leaves: Leaves, asked: Asked) -> list[Tensor]:
    """Highest scores of outputs with each leaf ``[B, ...]``, in float64; on the CPU."""
    _require_plain("max_marginals")
    device = leaves.own[0].device
    found = compiled.max_marginals(leaves.map(lambda x: x.detach().cpu()), asked)
    return [x.to(device) for x in found]


def _require_plain(name: str) -> None:
    if not nothing_traces():
        raise TypeError(f"{name}: expected a call outside of torch.func and compile")


def entropy(leaves: Leaves, asked: Asked) -> Tensor:
    """Entropy ``[B]`` of the outputs in float64; differentiable once."""
    tensors = (*leaves.own, *leaves.shared)
    if loops_for(leaves) is not None:
        found: Tensor = Entropy.apply(asked, len(leaves.own), None, *tensors)
        return found
    graph, joined = _wants_gradient(tensors), leaves.joined()
    value, chances = levels.sums(joined, asked.topology, asked.roots, graph)
    return (value - (chances * finite(joined)).sum(1)).double().clamp(min=0)


def score(leaves: Leaves, used: Tensor) -> Tensor:
    """Sums ``[B, K]``, in float64, of the leaves ``used`` ``[B, K, U]``, -1 none."""
    if loops_for(leaves) is None:
        return levels.total(leaves.joined(), used)
    found: Tensor = Score.apply(
        None, len(leaves.own), used, *leaves.own, *leaves.shared
    )
    return found


def _wants_gradient(tensors: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _direct(tensors: Sequence[Tensor]) -> bool:
    """Whether kernels may be called at once: no gradient is wanted, nothing traces."""
    return nothing_traces() and not _wants_gradient(tensors)


def _chosen(leaves: Leaves, asked: Asked, k: int | None) -> tuple[Tensor, Tensor]:
    """Values ``[B, K]`` and labels ``[B, K, N]`` of the best, or of the k best."""
    tensors = (*leaves.own, *leaves.shared)
    if _direct(tensors):
        values, labels, _ = loops_for(leaves).choose(leaves, asked, k)
        return values, labels
    values, labels, _ = Chosen.apply(asked, len(leaves.own), k, *tensors)
    return values, labels
