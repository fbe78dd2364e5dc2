"""Mini-batches: number of examples, and order in an epoch."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

Size = Callable[[Any], float]


def num_examples(batch: Any) -> float:
    """Length of the first tensor of a batch; without tensors, of the batch itself."""
    first = next(_iterate_tensors(batch), None)
    if first is not None:
        return len(first)
    if hasattr(batch, "__len__") and not isinstance(batch, str | dict):
        return len(batch)
    if isinstance(batch, int):
        return 1
    raise TypeError(
        "batches: expected batches with a tensor or a length, to weigh them by their "
        f"number of examples, got {type(batch).__name__}; give size=, a function that "
        "returns the number"
    )


def batch_weight(batch: Any, size: Size) -> float:
    """Weight of a batch: the validated result of ``size``."""
    weight = size(batch)
    if isinstance(weight, Tensor) and weight.numel() == 1:
        weight = weight.item()
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise TypeError(
            "size: expected a function that returns the number of examples of a batch,"
            f" got one that returns {type(weight).__name__}"
        )
    if not 0 <= weight < math.inf:
        raise ValueError(
            f"size: expected numbers of examples of at least 0, got {weight}"
        )
    return float(weight)


def _iterate_tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        if batch.dim():
            yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from _iterate_tensors(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _iterate_tensors(value)


def require_repeatable(name: str, batches: Iterable[Any]) -> None:
    """Raise for iterators and for objects that are not iterable."""
    if not hasattr(batches, "__iter__") and not isinstance(batches, Sequence):
        raise TypeError(
            f"batches: {name} expected a list or a DataLoader, got"
            f" {type(batches).__name__}"
        )
    if isinstance(batches, Iterator):
        raise TypeError(
            f"batches: {name} reads them several times: expected a list or a "
            f"DataLoader, got {type(batches).__name__}; wrap it in list()"
        )


def sample_batches(
    batches: Iterable[Any], steps: int | None, generator: torch.Generator
) -> Iterator[Any]:
    """Yield the batches of one epoch.

    A sequence is sampled uniformly with replacement, by default ``len(batches)`` times.
    Other iterables, such as a ``DataLoader``, are read in order, and again until
    ``steps`` batches were read.
    """
    if isinstance(batches, Sequence):
        num_samples = len(batches) if steps is None else steps
        for index in torch.randint(
            len(batches), (num_samples,), generator=generator
        ).tolist():
            yield batches[index]
        return
    num_steps = 0
    while steps is None or num_steps < steps:
        num_steps_before = num_steps
        for batch in batches:
            if num_steps == steps:
                return
            yield batch
            num_steps += 1
        # An iterable without batches would loop for ever.
        if steps is None or num_steps == num_steps_before:
            return


def check_generator(generator: torch.Generator | None) -> torch.Generator:
    """Validate a generator; None makes one seeded from the global generator."""
    if generator is None:
        # From the global generator, so that torch.manual_seed determines the order.
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        return torch.Generator().manual_seed(seed)
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator: expected a torch.Generator, got {type(generator).__name__}"
        )
    if generator.device.type != "cpu":
        raise TypeError(
            f"generator: expected one on the cpu, which draws the order of batches, "
            f"got {generator.device}"
        )
    return generator
