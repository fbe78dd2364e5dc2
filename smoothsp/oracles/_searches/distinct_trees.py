"""Sampling of trees without replacement by exponential races.

Each tree arrives at an exponential time whose rate is its probability; the n earliest
trees are a sample without replacement. A priority queue holds disjoint sets of trees:
those with given heads of the first words, and without some heads of the next word. The
key of a set is the time of its first arrival, exponential with the total probability as
its rate. The earliest set is split word by word until one tree is left; each remainder
is queued with its first arrival, conditioned on being later.

``_kernels/circuits/cpu/distinct_samples.py`` does the same for circuits.

Source: Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them" (2019);
exponential times are the negated Gumbel variables on a log scale.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Below this fraction of a set's probability, the remainder is summed anew. As a sum of
# marginals it has an absolute error of about 1e-16, and may be positive for no tree.
MIN_FRACTION = 1e-6
# (arcs, lengths) -> log-partitions ``[B]`` and arc marginals ``[B, m, m, L]``.
SumFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def sample_distinct_trees(
    arcs: Tensor,
    lengths: Tensor,
    n: int,
    generator: torch.Generator | None,
    log_partition_and_marginals: SumFunction,
) -> Tensor:
    """Sample n distinct trees of each row: heads and labels ``[B, n, words, 2]``.

    ``arcs`` are scores ``[B, m, m, L]`` in float64, -inf for absent arcs. Entries are
    -1 beyond the length of a row, and for samples beyond its number of trees.
    """
    B, m, _, L = arcs.shape
    ys = lengths.new_full((B, n, m - 1, 2), -1)
    # the counter decides ties of times, so that heapq never compares tensors
    sizes, tie_break = lengths.tolist(), itertools.count()

    def log_exponential(size: int) -> Tensor:
        values = torch.empty(size, dtype=torch.float64, device=arcs.device)
        return values.exponential_(generator=generator).log()

    # entries of each row: (time, tie break, log-probability, first heads and labels,
    # arcs left)
    queues: list[list[Any]] = [
        [(time, next(tie_break), 0.0, (), arcs[b])]
        for b, time in enumerate(log_exponential(B).tolist())
    ]
    for k in range(n):
        rows = [b for b in range(B) if queues[b]]
        if not rows:
            break
        entries = [heapq.heappop(queues[b]) for b in rows]
        times, log_p = ([x[i] for x in entries] for i in (0, 2))
        heads, arcs_left = [x[3] for x in entries], torch.stack([x[4] for x in entries])
        while True:
            # rows whose tree is not yet complete; one batched sum over all of them
            incomplete = [i for i, b in enumerate(rows) if len(heads[i]) < sizes[b]]
            if not incomplete:
                break
            row_lengths = lengths[[rows[i] for i in incomplete]]
            total, marginals = log_partition_and_marginals(
                arcs_left[incomplete], row_lengths
            )
            next_word = [1 + len(heads[i]) for i in incomplete]
            row_index = torch.arange(len(incomplete), device=arcs.device)
            head_probs = marginals[row_index, :, next_word].reshape(
                len(incomplete), m * L
            )
            cumulative = head_probs.cumsum(1)
            uniform = torch.rand(
                len(incomplete), 1, generator=generator, dtype=torch.float64,
                device=arcs.device,
            )  # fmt: skip
            chosen = (cumulative <= uniform * cumulative[:, -1:]).sum(1)
            # rounding of uniform * total may pass the last head of positive probability
            chosen = torch.minimum(chosen, (cumulative < cumulative[:, -1:]).sum(1))
            other_probs = head_probs.clone()
            other_probs[row_index, chosen] = 0
            other_arcs = arcs_left[incomplete].clone()
            scores = other_arcs[row_index, :, next_word].reshape(len(incomplete), m * L)
            scores[row_index, chosen] = -torch.inf
            other_arcs[row_index, :, next_word] = scores.reshape(len(incomplete), m, L)
            log_fraction = (other_probs.sum(1) / cumulative[:, -1]).log()
            is_imprecise = (other_probs.sum(1) < MIN_FRACTION) & (
                scores > -torch.inf
            ).any(1)
            if bool(is_imprecise.any()):
                recomputed = (
                    log_partition_and_marginals(
                        other_arcs[is_imprecise], row_lengths[is_imprecise]
                    )[0]
                    - total[is_imprecise]
                )
                log_fraction[is_imprecise] = recomputed
            log_chosen = (head_probs[row_index, chosen] / cumulative[:, -1]).log()
            for j, (i, log_arrival) in enumerate(
                zip(incomplete, log_exponential(len(incomplete)).tolist(), strict=True)
            ):
                other_log_p = log_p[i] + float(log_fraction[j])
                if other_log_p > -torch.inf:
                    # memoryless: later than times[i] by another exponential time; keys
                    # are log times, hence logaddexp
                    arrival = float(
                        torch.logaddexp(
                            torch.tensor(times[i], device="cpu"),
                            torch.tensor(log_arrival - other_log_p, device="cpu"),
                        )
                    )
                    entry = (
                        arrival,
                        next(tie_break),
                        other_log_p,
                        heads[i],
                        other_arcs[j],
                    )
                    heapq.heappush(queues[rows[i]], entry)
                log_p[i] += float(log_chosen[j])
                head, label = divmod(int(chosen[j]), L)
                arc_score = arcs_left[i, head, next_word[j], label].clone()
                arcs_left[i, :, next_word[j]] = -torch.inf
                arcs_left[i, head, next_word[j], label] = arc_score
                heads[i] = (*heads[i], (head, label))
        for i, b in enumerate(rows):
            if heads[i]:
                ys[b, k, : len(heads[i])] = ys.new_tensor(heads[i])
    return ys
