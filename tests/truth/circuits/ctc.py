"""Paths of a target over frames: all strings of classes that become the target."""

import itertools

import torch

from smoothsp.oracles import CTC
from tests.truth.circuits.cases import Case, strings

BLANK = 1


def target_of(path):
    """Equal neighbours merged, then blanks dropped."""
    merged = [label for label, _ in itertools.groupby(path)]
    return [label for label in merged if label != BLANK]


def case(generator):
    T, C = 5, 3
    lengths, target_lengths = torch.tensor([5, 4, 0, 2]), torch.tensor([2, 3, 0, 0])
    targets = torch.tensor([[2, 2, 9], [0, 2, 0], [-1, -1, -1], [0, 0, 0]])
    rows = list(zip(lengths.tolist(), target_lengths.tolist(), strict=True))

    def parts(b, y):
        path = y[: lengths[b]].tolist()
        return [("log_probs", (b, t, label)) for t, label in enumerate(path)]

    outputs = [
        [
            torch.tensor([*path, *[-1] * (T - n)])
            for path in strings(C, n)
            if target_of(path) == targets[b, :m].tolist()
        ]
        for b, (n, m) in enumerate(rows)
    ]
    return Case(
        make,
        {"log_probs": torch.zeros(len(rows), T, C).double()},
        outputs,
        parts,
        {"lengths": lengths, "target_lengths": target_lengths, "targets": targets},
    )


def make(log_probs, targets, lengths, target_lengths):
    return CTC(
        log_probs, targets, lengths=lengths, target_lengths=target_lengths, blank=BLANK
    )
