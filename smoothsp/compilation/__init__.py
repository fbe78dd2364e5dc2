"""Compilation of kernels in advance.

Kernels are compiled on first use, which takes seconds, and cached on disk for later
processes. ``python -m smoothsp.compilation`` compiles those of the usual calls.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from smoothsp._kernels.compilation import prebuilt
from smoothsp.compilation.listener import listener
from smoothsp.layers import LinearChain, LossName
from smoothsp.oracles import Multiclass, SpanTree

__all__ = ["compile_kernels"]


def compile_kernels(
    losses: Iterable[LossName] = ("crf",),
    dtypes: Iterable[torch.dtype] = (torch.float32,),
    others: bool = False,
    native: bool = False,
) -> int:
    """Compile the kernels for training and decoding with ``LinearChain``.

    Use it in the build of a container, for example. Compiled kernels are stored in
    ``NUMBA_CACHE_DIR``, or else beside the package. Later processes on the same kind of
    processor load them.

    Parameters
    ----------
    losses
        Names of losses, as in ``LinearChain.loss``.
    dtypes
        Dtypes of emissions: float32, float64.
    others
        Also compile entropies and samples of chains, ``Multiclass`` and structures that
        are circuits.
    native
        Also compile kernels that smoothsp was installed with, for exactly this
        processor. Call it before any other function of smoothsp: kernels that the
        process has loaded already remain as they are.

    Returns
    -------
    int
        Number of kernels compiled; 0 if all were cached.

    Examples
    --------
    >>> import smoothsp
    >>> compiled = smoothsp.compile_kernels(("crf",))
    >>> smoothsp.compile_kernels(("crf",))
    0
    """
    if isinstance(losses, str) or not isinstance(losses, Iterable):
        raise TypeError(f"losses: expected a list of names, got {losses!r}")
    if not isinstance(dtypes, Iterable):
        raise TypeError(f"dtypes: expected a list of dtypes, got {dtypes!r}")
    names, dtypes = list(losses), list(dtypes)
    for dtype in dtypes:
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"dtypes: expected torch.float32 and torch.float64, got {dtype!r}"
            )
    count_before = listener.count
    with ignore_prebuilt(native), torch.random.fork_rng([]), torch.enable_grad():
        for dtype in dtypes:
            run_training(names, dtype)
            run_prediction(dtype)
            if others:
                run_entropies_and_samples(dtype)
                run_circuits(dtype)
    return listener.count - count_before


@contextmanager
def ignore_prebuilt(native: bool) -> Iterator[None]:
    """Context manager: if ``native``, ignore kernels installed with the package."""
    previous, prebuilt.enabled = prebuilt.enabled, not native and prebuilt.enabled
    try:
        yield
    finally:
        prebuilt.enabled = previous


def _example_batches(
    dtype: torch.dtype,
) -> Iterator[tuple[LinearChain, Tensor, Tensor]]:
    """Yield a head, emissions and a mask for each variant of the kernels.

    One row, many rows (in threads), and constrained transitions.
    """
    labels = "O", "B-A", "I-A"
    for head, batch, time in (
        (LinearChain(3), 1, 3),
        (LinearChain(3), 32, 20),
        (LinearChain(labels, labels), 2, 3),
    ):
        mask = torch.ones(batch, time, dtype=torch.bool)
        mask[-1, 1:] = False
        emissions = torch.zeros(batch, time, 3, dtype=dtype, requires_grad=True)
        yield head.to(dtype), emissions, mask


def run_training(losses: Iterable[LossName], dtype: torch.dtype) -> None:
    """Run one training step with each loss."""
    for head, emissions, mask in _example_batches(dtype):
        tags = torch.zeros(mask.shape, dtype=torch.int64)
        for name in losses:
            torch.autograd.backward(head(emissions, tags, mask, name))


def run_prediction(dtype: torch.dtype) -> None:
    """Call decoding, k-best decoding and marginals."""
    for head, emissions, mask in _example_batches(dtype):
        head.decode(emissions, mask)
        head.decode(emissions, mask, top_k=2)
        head.marginals(emissions, mask)


def run_entropies_and_samples(dtype: torch.dtype) -> None:
    """Call log-partition and entropy with gradients, and sampling, of chains."""
    for head, emissions, mask in _example_batches(dtype):
        chain = head.structure(emissions, mask)
        torch.autograd.backward(chain.log_partition().sum() + chain.entropy().sum())
        chain.sample(2)


def run_circuits(dtype: torch.dtype) -> None:
    """Call decoding and log-partition of structures that are circuits."""
    for structure in (
        Multiclass(torch.zeros(2, 3, dtype=dtype, requires_grad=True)),
        SpanTree(torch.zeros(2, 3, 3, dtype=dtype, requires_grad=True)),
    ):
        structure.decode(), structure.decode_topk(2)
        torch.autograd.backward(structure.log_partition().sum())
