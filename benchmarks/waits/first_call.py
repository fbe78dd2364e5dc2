"""CPU seconds of the import and of the first call of each question to a chain.

    python -m waits.first_call    # one fresh process, in benchmarks/

A call compiles, or loads, what the calls above it did not. Prints JSON.
"""

import json
from itertools import pairwise

from measuring import cpu

IMPORT, LOSS = "import smoothsp", "CRF loss"
QUESTIONS = (
    IMPORT,
    LOSS,
    "decode",
    "five best",
    "hinge",
    "L2-smoothed hinge",
    "marginals",
)


def first_calls() -> dict[str, float]:
    """Seconds by question; the import of PyTorch is not counted."""
    import torch

    emissions = torch.randn(32, 50, 9, requires_grad=True)
    transitions = torch.randn(9, 9, requires_grad=True)
    y = torch.randint(9, (32, 50))
    emissions.sum().backward()
    laps = [cpu.seconds()]
    import smoothsp

    laps.append(cpu.seconds())
    chain = smoothsp.oracles.Chain(emissions, transitions)
    losses = smoothsp.losses
    for call in (
        lambda: losses.CRFLoss()(chain, y).backward(),
        lambda: chain.decode(),
        lambda: chain.decode_topk(5),
        lambda: losses.StructuralHinge()(chain, y).backward(),
        lambda: losses.StructuralHinge(losses.L2(1.0, 5))(chain, y).backward(),
        lambda: chain.marginals(),
    ):
        call()
        laps.append(cpu.seconds())
    passed = [end - begin for begin, end in pairwise(laps)]
    return dict(zip(QUESTIONS, passed, strict=True))


if __name__ == "__main__":
    print(json.dumps(first_calls()))
