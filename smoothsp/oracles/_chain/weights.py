"""Parts of a chain times weights: the last step of a gradient, compiled."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import weigh as cpu_weigh
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain.arrays import array

# Into how many ranges the gradient is cut, for threads.
PIECES = 16


def weigh(
    weights: Tensor, parts: tuple[Tensor, ...], shared: bool
) -> tuple[Tensor, ...]:
    """Weights ``[B]`` times the parts of their rows, added up to potentials' shapes.

    What ``_to_potentials`` does, in one compiled pass and without a derivative.
    """
    given = [array(x) for x in parts]
    weight = array(weights.to(parts[0].dtype))
    return run_pieces(cpu_weigh.weigh, given, shared, weight)


def run_pieces(
    kernel: Any, parts: list[Any], shared: bool, *inputs: Any
) -> tuple[Tensor, ...]:
    """Gradients of the potentials that a kernel of ``chain.cpu.weigh`` fills."""
    nodes, edges, heads, _ = parts
    S = heads.shape[1]
    dtype = nodes.dtype
    out = (
        np.empty(nodes.shape, dtype),
        np.empty((S, S) if shared else edges.shape, dtype),
        np.empty(S, dtype),
        np.empty(S, dtype),
    )
    work = (nodes.size + edges.size) // 2
    flat = (out[0], out[1].reshape(-1), out[2], out[3])
    run_rows(kernel, PIECES, work, PIECES, *inputs, *parts, shared, *flat)
    return tuple(torch.from_numpy(x) for x in out)
