"""Answers to questions about a circuit, computed on the CUDA device of its leaves.

The functions are those of ``compiled``, with its arguments and answers. Log-partition,
marginals and maximum are Triton kernels, one launch each way; second derivatives are
answered by ``levels``. Triton is imported at the first question.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from smoothsp.oracles._circuits import compiled, levels
from smoothsp.oracles._circuits.asked import Asked, Leaves
from smoothsp.oracles._circuits.by_levels import tangent, total
from smoothsp.oracles._circuits.schedule import placed
from smoothsp.oracles._questions.exact import as_two

__all__ = ["choose", "sums", "tangent", "total"]


def sums(
    leaves: Leaves, asked: Asked, wanted: Sequence[bool], dtype: torch.dtype
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-partition ``[B]``, the same as two numbers, and the marginals ``[B, ...]``.

    Waits for the device to read one flag: are scores too large for exponents? Such rows
    are done again in log space. While a CUDA graph is captured it is not read; the
    answer for such rows then means nothing.
    """
    from smoothsp._kernels.circuits.cuda import numbers
    from smoothsp._kernels.circuits.cuda import sums as kernels

    own, shared = _joined(leaves)
    B, outwards = len(own), any(wanted)
    value = own.new_empty(B, dtype=torch.float64)
    far = own.new_empty(B, dtype=torch.bool)
    chances = own.new_empty((B, own.shape[1] + len(shared)) if outwards else (0, 0))
    rows = placed(asked.topology, own.device), asked.lanes(own.device)
    kernels.sums(own, shared, *rows, outwards, value, far, chances)
    if not _capturing(own) and bool(far.any()):
        most = numbers.FURTHEST.value
        again = compiled.truly_far(leaves, asked, far.cpu().numpy(), most)
        if len(again):
            _do_in_log_space(leaves, asked, again.to(own.device), value, chances)
    none = own.new_empty(0)
    found = compiled.split(chances, leaves) if outwards else [none] * len(wanted)
    marginals = [x if some else none for x, some in zip(found, wanted, strict=True)]
    return value.to(dtype), as_two(value), marginals


def _do_in_log_space(
    leaves: Leaves, asked: Asked, rows: Tensor, value: Tensor, chances: Tensor
) -> None:
    scores = compiled.pick(leaves, rows).joined().detach().double()
    again = levels.sums(scores, asked.topology, asked.roots[rows.cpu()])
    value[rows] = again[0]
    if chances.numel():
        chances[rows] = again[1].to(chances.dtype)


def choose(
    leaves: Leaves,
    asked: Asked,
    k: None,
    dtype: torch.dtype,
    precise: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values ``[B, 1]``, labels ``[B, 1, N]`` and parts ``[B, 1, U]`` of the best.

    The values also, second, as two numbers; ``precise``: found in float64.
    """
    from smoothsp._kernels.circuits.cuda import best as kernels

    if precise:
        leaves = leaves.map(lambda x: x.double())
    own, shared = _joined(leaves)
    B, topology = len(own), asked.topology
    value = own.new_empty(B, dtype=torch.float64)
    labels = own.new_full((B, topology.labels), -1, dtype=torch.int64)
    parts = own.new_full((B, topology.most), -1, dtype=torch.int32)
    rows = placed(topology, own.device), asked.lanes(own.device)
    kernels.best(own, shared, *rows, value, labels, parts)
    exact = as_two(value)[:, None]
    return value.to(dtype)[:, None], exact, labels[:, None], parts[:, None]


def _joined(leaves: Leaves) -> tuple[Tensor, Tensor]:
    """Scores ``[B, P]`` of the rows, and ``[Q]`` of all rows, contiguous."""
    own = [x.detach().flatten(1) for x in leaves.own]
    common = [x.detach().flatten() for x in leaves.shared]
    shared = torch.cat(common) if common else own[0].new_empty(0)
    return (own[0] if len(own) == 1 else torch.cat(own, 1)).contiguous(), shared


def _capturing(near: Tensor) -> bool:
    """Whether a CUDA graph is being captured, when nothing may be read."""
    return near.is_cuda and torch.cuda.is_current_stream_capturing()
