"""Compilation of kernels in advance, with a progress message.

Kernels are compiled on first use, which takes seconds, and cached on disk for later
processes.
"""

import sys
from collections.abc import Iterable
from typing import Any

import torch
from numba.core import event

from smoothsp.layers import LinearChain, LossName
from smoothsp.oracles import Multiclass, SpanTree

__all__ = ["compile_kernels"]

KERNELS = "smoothsp._kernels"
CLEAR = "\r\x1b[K"


class Watch(event.Listener):  # type: ignore[misc]
    """Counts kernels that are compiled; tells a terminal which, meanwhile."""

    def __init__(self) -> None:
        self.count, self.depth = 0, 0

    def on_start(self, event: Any) -> None:
        """A function is about to be compiled."""
        name = _kernel(event)
        if name is None:
            return
        self.count, self.depth = self.count + 1, self.depth + 1
        if self.depth == 1 and sys.stderr.isatty():
            sys.stderr.write(
                f"{CLEAR}smoothsp: compiling {name}, kept on disk for the next time"
            )
            sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """It has been compiled, or could not be."""
        if _kernel(event) is None:
            return
        self.depth -= 1
        if self.depth == 0 and sys.stderr.isatty():
            sys.stderr.write(CLEAR)
            sys.stderr.flush()


def _kernel(event: Any) -> str | None:
    """The name of the kernel that an event is about, if it is one of ours."""
    function = getattr((event.data or {}).get("dispatcher"), "py_func", None)
    if function is None or not (function.__module__ or "").startswith(KERNELS):
        return None
    return str(function.__name__)


_watch = Watch()
event.register("numba:compile", _watch)


def compile_kernels(
    losses: Iterable[LossName] = ("crf",),
    dtypes: Iterable[torch.dtype] = (torch.float32,),
    others: bool = False,
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
        Also compile for ``Multiclass`` and for structures that are circuits.

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
    before = _watch.count
    with torch.random.fork_rng([]), torch.enable_grad():
        for dtype in dtypes:
            for batch, time in ((1, 3), (32, 20)):
                _ask(names, dtype, batch, time)
            if others:
                choice = Multiclass(torch.zeros(2, 3, dtype=dtype, requires_grad=True))
                choice.decode(), choice.decode_topk(2)
                torch.autograd.backward(choice.log_partition().sum())
                scores = torch.zeros(2, 3, 3, dtype=dtype, requires_grad=True)
                trees = SpanTree(scores)
                trees.decode(), trees.decode_topk(2)
                torch.autograd.backward(trees.log_partition().sum())
    return _watch.count - before


def _ask(losses: list[LossName], dtype: torch.dtype, batch: int, time: int) -> None:
    """Run one training step and one prediction of this size."""
    head = LinearChain(5).to(dtype)
    emissions = torch.zeros(batch, time, 5, dtype=dtype, requires_grad=True)
    tags = torch.zeros(batch, time, dtype=torch.int64)
    mask = torch.ones(batch, time, dtype=torch.bool)
    mask[-1, 1:] = False
    for name in losses:
        torch.autograd.backward(head(emissions, tags, mask, name))
    head.decode(emissions, mask)
    head.decode(emissions, mask, top_k=2)
    head.marginals(emissions, mask)
