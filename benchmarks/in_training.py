"""Measure the share of the structured loss in a training step of the NER recipe.

    pip install -e ".[bench,recipes]"
    python benchmarks/in_training.py --data DIR    # CoNLL-2003; without, invented

A step is forward, loss, backward and update on a batch, with the network and the
optimizers of the recipe. Losses take turns on the same batch, on one thread, in CPU
time. If pytorch-crf is installed, it replaces our chain in the same network.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from measuring import machine
from smoothsp.losses import L2, CRFLoss, StructuralHinge
from training.recipe_data import tagger_batches

HERE = Path(__file__).parent
PEER = "pytorch-crf"
OURS = {
    "CRF": CRFLoss(),
    "hinge": StructuralHinge(),
    "hinge, smoothed over the 5 best": StructuralHinge(L2(mu=1.0, k=5)),
}
# emissions, labels and mask to the mean loss of a batch
Head = Callable[[Tensor, Tensor, Tensor], Tensor]


def main() -> None:
    if os.environ.get("OMP_NUM_THREADS") != "1":
        # libraries read it when they are imported
        os.execve(sys.executable, [sys.executable, *sys.argv], machine.pinned(1))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", help="folder of CoNLL-2003; none: invented sentences")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=HERE / "results/in_training.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.data, options.steps)
    where = machine.where_measured(1, "cpu")
    kept = {name: where[name] for name in ("commit", "date", "machine", "torch")}
    with options.output.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *kept], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | kept for row in rows)
    print("| loss | ms a step | ms of the loss and its gradients | share |")
    print("| --- | --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")


def measure(data: str | None, steps: int) -> list[dict[str, object]]:
    """Medians over the steps, of which the first four do not count."""
    network, optimizers, batches = tagger_batches(data)
    contenders = list(heads(network))
    found: dict[str, list[tuple[float, float]]] = {}
    for number, batch in zip(range(steps), batches, strict=False):
        for name, head in contenders:
            times = step(network, optimizers, batch, head)
            if number >= 4:
                found.setdefault(name, []).append(times)
    return [
        {
            "loss": name,
            "step_ms": f"{1e3 * statistics.median(whole for _, whole in times):.1f}",
            "loss_ms": f"{1e3 * statistics.median(loss for loss, _ in times):.2f}",
            "share": f"{statistics.median(x / y for x, y in times):.1%}",
        }
        for name, times in found.items()
    ]


def heads(network: torch.nn.Module) -> Iterator[tuple[str, Head]]:
    for name, loss in OURS.items():
        yield name, lambda *given, loss=loss: network.head.loss(*given, loss=loss)
    try:
        from torchcrf import CRF
    except ModuleNotFoundError:
        return
    layer = CRF(len(network.head.transitions), batch_first=True)
    yield PEER, lambda *given: -layer(*given, reduction="mean")


def step(
    network: torch.nn.Module,
    optimizers: list[torch.optim.Optimizer],
    batch: tuple[object, Tensor, Tensor],
    head: Head,
) -> tuple[float, float]:
    """Seconds of the loss with its gradients, and of the step."""
    inputs, labels, mask = batch
    began = time.thread_time()
    for optimizer in optimizers:
        optimizer.zero_grad()
    emissions = network(inputs)
    before = time.thread_time()
    scores = emissions.detach().requires_grad_()
    head(scores, labels, mask).backward()
    after = time.thread_time()
    emissions.backward(scores.grad)
    # said aloud, or PyTorch warns that it does not check its own optimizer
    with torch.sparse.check_sparse_tensor_invariants(False):
        for optimizer in optimizers:
            optimizer.step()
    return after - before, time.thread_time() - began


if __name__ == "__main__":
    main()
