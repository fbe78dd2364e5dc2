"""Label sequences: all of them. The chain as a circuit, twin of ``Chain``."""

import itertools

import numpy as np
import torch

from smoothsp.oracles._circuits import Circuit, CircuitStructure, topology
from tests.truth.circuits.cases import Case, strings


def build(T, S):
    """Forward sums, ``ends`` for each length."""
    c = Circuit()
    emission = c.leaves(T, S)
    move, start, end = c.shared(S, S), c.shared(S), c.shared(S)
    c.label(emission, np.arange(T)[:, None], np.arange(S))
    alpha, reach, ends = c.chart(T, S), c.chart(T, S), c.chart(T + 1)
    ends[0] = c.ONE
    for t in range(T):
        if t:
            c.define(reach[t], (alpha[t - 1][None], move.T))
        c.multiply(alpha[t], reach[t] if t else start, emission[t])
        c.define(ends[t + 1], (alpha[t], end))
    return c, ends


class CircuitChain(CircuitStructure):
    """A chain whose transitions are shared, as a circuit."""

    def __init__(self, emissions, transitions, start, end, *, lengths=None):
        B, T, S = emissions.shape
        built = topology(build, T, S)
        if lengths is None:
            lengths = torch.full((B,), T)
        super().__init__(
            built,
            {"emissions": emissions},
            {"transitions": transitions, "start": start, "end": end},
            roots=built.root(lengths),
            lengths=lengths,
            shape=(T,),
        )

    def leaves_used(self, labels):
        y = labels
        B, K, T = y.shape
        S = self.emissions.shape[2]
        known = (y >= 0) & (y < S)
        nodes = torch.where(known, torch.arange(T) * S + y, -1)
        P = T * S
        edges = torch.where(known[..., 1:], P + y[..., :-1] * S + y[..., 1:], -1)
        real = self.lengths[:, None, None] > 0
        first = torch.where(real, P + S * S + y[..., :1], -1)
        last = y.gather(
            2, (self.lengths - 1).clamp(min=0)[:, None, None].expand(B, K, 1)
        )
        last = torch.where(real, P + S * S + S + last, -1)
        return torch.cat([nodes, edges, first, last], 2)


def case(generator, S=3):
    B, T = 3, 4
    lengths = torch.tensor([4, 2, 0])

    def parts(b, y):
        labels = y[: lengths[b]].tolist()
        found = [("emissions", (b, t, s)) for t, s in enumerate(labels)]
        moves = itertools.pairwise(labels)
        found += [("transitions", move) for move in moves]
        if labels:
            found += [("start", (labels[0],)), ("end", (labels[-1],))]
        return found

    outputs = [
        [torch.tensor([*labels, *[-1] * (T - n)]) for labels in strings(S, n)]
        for n in lengths.tolist()
    ]
    shapes = {"emissions": (B, T, S), "transitions": (S, S), "start": (S,), "end": (S,)}
    return Case(
        CircuitChain,
        {name: torch.zeros(shape).double() for name, shape in shapes.items()},
        outputs,
        parts,
        {"lengths": lengths},
        ("transitions", "start", "end"),
    )
