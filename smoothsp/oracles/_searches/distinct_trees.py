"""Draws of trees without replacement, by a race of all trees.

As ``_kernels/circuits/cpu/distinct_samples.py`` has it: a set of trees, those with the
same heads of the first words and without some heads of the next one, waits with the
time of its first arrival, exponential with the rate of its probability. The race is run
from the top, word by word, and what is not chosen waits for its own first arrival.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Below this share, what is left of a set is summed anew: chances have the rounding
# errors of 1, so that heads which no tree has may seem to have some.
LITTLE = 1e-6
# Log-partitions ``[B]`` and chances ``[B, m, m, L]`` of arcs.
Sums = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def distinct_trees(
    arcs: Tensor,
    lengths: Tensor,
    n: int,
    generator: torch.Generator | None,
    sums: Sums,
) -> Tensor:
    """Heads and labels ``[B, n, words, 2]``.

    Of arcs ``[B, m, m, L]`` in float64, -inf where none is; ``sums(arcs, lengths)``
    sums over all trees. -1 beyond a row, and where it has fewer trees.
    """
    B, m, _, L = arcs.shape
    ys = lengths.new_full((B, n, m - 1, 2), -1)
    sizes, number = lengths.tolist(), itertools.count()

    def noise(size: int) -> Tensor:
        drawn = torch.empty(size, dtype=torch.float64, device=arcs.device)
        return drawn.exponential_(generator=generator).log()

    # of each row (time, number, log-probability, first heads and labels, arcs)
    waiting: list[list[Any]] = [
        [(time, next(number), 0.0, (), arcs[b])]
        for b, time in enumerate(noise(B).tolist())
    ]
    for k in range(n):
        rows = [b for b in range(B) if waiting[b]]
        if not rows:
            break
        popped = [heapq.heappop(waiting[b]) for b in rows]
        times, log_p = ([x[i] for x in popped] for i in (0, 2))
        heads, held = [x[3] for x in popped], torch.stack([x[4] for x in popped])
        while True:
            # the rows whose next word has no head yet
            open_ = [i for i, b in enumerate(rows) if len(heads[i]) < sizes[b]]
            if not open_:
                break
            some = lengths[[rows[i] for i in open_]]
            total, chances = sums(held[open_], some)
            at = [1 + len(heads[i]) for i in open_]
            every = torch.arange(len(open_), device=arcs.device)
            column = chances[every, :, at].reshape(len(open_), m * L)
            upto = column.cumsum(1)
            uniform = torch.rand(
                len(open_), 1, generator=generator, dtype=torch.float64,
                device=arcs.device,
            )  # fmt: skip
            chosen = (upto <= uniform * upto[:, -1:]).sum(1)
            chosen = torch.minimum(chosen, (upto < upto[:, -1:]).sum(1))
            rest = column.clone()
            rest[every, chosen] = 0
            left = held[open_].clone()
            scores = left[every, :, at].reshape(len(open_), m * L)
            scores[every, chosen] = -torch.inf
            left[every, :, at] = scores.reshape(len(open_), m, L)
            share = (rest.sum(1) / upto[:, -1]).log()
            lost = (rest.sum(1) < LITTLE) & (scores > -torch.inf).any(1)
            if bool(lost.any()):
                again = sums(left[lost], some[lost])[0] - total[lost]
                share[lost] = again
            taken = (column[every, chosen] / upto[:, -1]).log()
            for j, (i, new) in enumerate(
                zip(open_, noise(len(open_)).tolist(), strict=True)
            ):
                less = log_p[i] + float(share[j])
                if less > -torch.inf:
                    later = float(
                        torch.logaddexp(
                            torch.tensor(times[i], device="cpu"),
                            torch.tensor(new - less, device="cpu"),
                        )
                    )
                    entry = (later, next(number), less, heads[i], left[j])
                    heapq.heappush(waiting[rows[i]], entry)
                log_p[i] += float(taken[j])
                head, label = divmod(int(chosen[j]), L)
                kept = held[i, head, at[j], label].clone()
                held[i, :, at[j]] = -torch.inf
                held[i, head, at[j], label] = kept
                heads[i] = (*heads[i], (head, label))
        for i, b in enumerate(rows):
            if heads[i]:
                ys[b, k, : len(heads[i])] = ys.new_tensor(heads[i])
    return ys
