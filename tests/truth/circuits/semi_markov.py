"""Segmentations: all ways to cut a row into labelled segments."""

import itertools

import torch

from smoothsp.oracles import SemiMarkov
from tests.truth.circuits.cases import Case, strings


def segmentations(n, longest, states):
    """Lists of (first position, duration, state)."""
    found = []
    for cuts in itertools.product((False, True), repeat=max(n - 1, 0)):
        starts = [0, *(t for t, cut in enumerate(cuts, 1) if cut)] if n else []
        durations = [b - a for a, b in itertools.pairwise([*starts, n])]
        if all(d <= longest for d in durations):
            for labels in strings(states, len(starts)):
                found.append(list(zip(starts, durations, labels, strict=True)))
    return found


def case(generator, by_step=False):
    B, T, D, S = 4, 4, 3, 2
    lengths = torch.tensor([4, 0, 3, 1])
    rows = [segmentations(n, D, S) for n in lengths.tolist()]

    def starts(segments):
        y = torch.full((T,), -1)
        for t, _, s in segments:
            y[t] = s
        return y

    def parts(b, y):
        (segments,) = (x for x in rows[b] if torch.equal(starts(x), y))
        found = [("segments", (b, t, d - 1, s)) for t, d, s in segments]
        states = [s for _, _, s in segments]
        for (t, _, s), before in zip(segments[1:], states, strict=False):
            found.append(("transitions", (b, t, before, s) if by_step else (before, s)))
        if states:
            found += [("start", (states[0],)), ("end", (states[-1],))]
        return found

    shapes = {
        "segments": (B, T, D, S),
        "transitions": (B, T, S, S) if by_step else (S, S),
        "start": (S,),
        "end": (S,),
    }
    return Case(
        SemiMarkov,
        {name: torch.zeros(shape).double() for name, shape in shapes.items()},
        [[starts(x) for x in row] for row in rows],
        parts,
        {"lengths": lengths},
        ("start", "end") if by_step else ("transitions", "start", "end"),
    )
