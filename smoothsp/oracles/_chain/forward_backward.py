"""Log-partition, marginals, their covariances and the entropy of a chain on the CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import (
    covariance,
    entropy,
    forward_backward_float64,
    fused,
    steps,
)
from smoothsp._kernels.threads.ranges import run_rows
from smoothsp.oracles._chain.buffers import EMPTY, ChainBuffers
from smoothsp.oracles._chain.chunks import (
    SimdLayout,
    run_in_chunks,
    single_call_layout,
)
from smoothsp.oracles._chain.vjp import SavedMarginals, unpack_marginals
from smoothsp.oracles._inference.to_numpy import to_numpy

Sums = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _marginal_shapes(sizes: torch.Size, shared: bool) -> list[tuple[int, ...]]:
    """Shapes of nodes, edges, heads and tails."""
    B, T, S = sizes
    edges = (B, S, S) if shared else (B, max(T - 1, 0), S, S)
    return [(B, T, S), edges, (B, S), (B, S)]


def log_partition_and_marginals(
    chain: ChainBuffers, wide: bool, parts: Tensor | None = None
) -> Sums:
    """Log-partition ``[B]`` and marginals: nodes, edges, heads, tails.

    Edges are ``[B, S, S]``, summed over time, when the transitions are shared, else
    ``[B, T - 1, S, S]``. Heads and tails are the first and the last node marginals. The
    log-partition is in float64 if ``wide``, else of the dtype of the potentials; its
    value as a sum of two float64 numbers fills ``parts`` ``[B, 2]``.
    """
    B = chain.sizes[0]
    value = chain.empty(B, dtype=torch.float64 if wide else None)
    shapes = _marginal_shapes(chain.sizes, chain.shared_transitions)
    nodes, edges, heads, tails = (chain.empty(*shape) for shape in shapes)
    out = (value, nodes, edges, heads, tails)
    if not chain.shared_transitions:
        _fill_steps(chain, out, parts)
    elif _fill(chain, wide, value.data_ptr(), _at(parts), _places(out[1:])):
        _fill_pending(chain, value.isnan(), out, parts)
    return out


def log_partition_and_saved_marginals(
    chain: ChainBuffers, parts: Tensor | None
) -> tuple[Tensor, SavedMarginals]:
    """Log-partitions for shared transitions, and the marginals; ``parts`` as above."""
    B, T, S = chain.sizes
    vector = chain.addresses[-1]
    new = EMPTY[chain.dtype].new_empty
    value, nodes, others = new(B), new(B, T, S), new(B * S * (S + 2))
    edges_at = others.data_ptr()
    heads_at = edges_at + B * S * S * vector.itemsize
    tails_at = heads_at + B * S * vector.itemsize
    places = nodes.data_ptr(), edges_at, heads_at, tails_at
    kept = nodes, others, (B, T, S, vector), places
    if _fill(chain, False, value.data_ptr(), _at(parts), places):
        out = (value, *unpack_marginals(kept))
        _fill_pending(chain, value.isnan(), out, parts)
    return value, kept


def _at(parts: Tensor | None) -> int:
    return 0 if parts is None else parts.data_ptr()


def _places(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(x.data_ptr() for x in tensors)


def _fill(
    chain: ChainBuffers, wide: bool, value: int, pairs: int, places: tuple[int, ...]
) -> int:
    """Fill the outputs at these addresses; how many rows are not safe in the dtype."""
    where, (B, T, S) = chain.addresses, chain.sizes
    item = where[-1].itemsize
    if way := single_call_layout(B, T, S, item):
        pending: int = fused.forward_backward(where, *way, wide, value, pairs, places)
        return pending
    one, two = 8 if wide else item, 16 if pairs else 0
    sizes = [item * x for x in (T * S, S * S, S, S)]

    def ask(where: tuple[Any, ...], way: SimdLayout, b: int) -> int:
        out = tuple(x + b * size for x, size in zip(places, sizes, strict=True))
        at = value + b * one, pairs + b * two
        far: int = fused.forward_backward(where, *way, wide, *at, out)
        return far

    return run_in_chunks(where, ask)


def _fill_steps(chain: ChainBuffers, out: Sums, parts: Tensor | None) -> None:
    """Fill the outputs with edges of each step."""
    B, pending = chain.sizes[0], np.ones(chain.sizes[0], np.bool_)
    exact = np.empty((B, 2)) if parts is None else parts.numpy()
    zeros, marginals = chain.addresses[-1], tuple(x.numpy() for x in out[1:])
    arrays = (chain.arrays, zeros, pending, exact, marginals)
    run_rows(steps.forward_backward, B, chain.inner_steps // 2, *arrays)
    out[0].numpy()[:] = exact[:, 0]
    if pending.any():
        _fill_pending(chain, torch.from_numpy(pending), out, parts)


def _fill_pending(
    chain: ChainBuffers, pending: Tensor, out: Sums, parts: Tensor | None
) -> None:
    """Fill the rows ``pending`` ``[B]``, out of range: in float64, or else by laws."""
    if chain.dtype == torch.float32:
        rows = pending.nonzero().squeeze(1)
        exact = torch.empty(len(rows), 2, dtype=torch.float64, device="cpu")
        some = chain.select_rows_as_float64(rows)
        every = out[2].dim() == 4 and chain.shared_transitions
        wide = (
            per_step_marginals(some)
            if every
            else log_partition_and_marginals(some, True, exact)
        )
        for x, found in zip(out, wide, strict=True):
            x[rows] = found.to(x.dtype)
        if parts is not None:
            parts[rows] = exact
        return
    _fill_by_laws(chain, pending.numpy().nonzero()[0], out, parts)


def _fill_by_laws(
    chain: ChainBuffers, rows: Any, out: Sums, parts: Tensor | None
) -> None:
    """Fill rows of any range."""
    value, marginals = out[0].numpy(), _by_steps(out[1:], out[2].dim() == 3)
    exact = np.empty((len(value), 2))
    arrays = (rows, chain.as_float64.arrays, exact, marginals)
    run_rows(
        forward_backward_float64.forward_backward,
        len(rows),
        4 * chain.inner_steps,
        *arrays,
    )
    value[rows] = exact[rows, 0]
    if parts is not None:
        parts.numpy()[rows] = exact[rows]


def _by_steps(parts: Sequence[Tensor], shared: bool) -> tuple[Any, ...]:
    """Arrays in the shapes of marginals; shared edges are those of one step."""
    nodes, edges, *ends = (to_numpy(x) for x in parts)
    return nodes, edges[:, None] if shared else edges, *ends


def covariance_cpu(chain: ChainBuffers, *v: Tensor) -> tuple[Tensor, ...]:
    """Covariance of every part with the sum of weights v over an output's parts.

    The Hessian of the log-partition times v. Shapes as the marginals of ``sums_of``.
    """
    wide, (B, T, S) = chain.as_float64, chain.sizes
    along = [x.double().contiguous() for x in v]
    found = [torch.empty_like(x) for x in along]
    places = [(x.data_ptr(), x.stride(0) * 8) for x in (*along, *found)]
    pending = np.ones(B, np.bool_)
    at = pending.ctypes.data

    def ask(where: tuple[Any, ...], way: SimdLayout, b: int) -> int:
        here = tuple(place + b * size for place, size in places)
        far: int = covariance.covariance(where, here[:4], here[4:], at + b)
        return far

    # measured: where lanes are full, or what they need fits the cache
    pays = chain.shared_transitions and (len(wide.addresses[-1]) <= B or T * S <= 2000)
    if not pays or run_in_chunks(wide.addresses, ask, 3):
        rows = pending.nonzero()[0]
        weights, out = (
            _by_steps(along, chain.shared_transitions),
            _by_steps(found, chain.shared_transitions),
        )
        arrays = (rows, wide.arrays, weights, out)
        run_rows(
            forward_backward_float64.covariance,
            len(rows),
            8 * chain.inner_steps,
            *arrays,
        )
    return tuple(x.to(chain.dtype) for x in found)


def entropy_cpu(chain: ChainBuffers) -> Tensor:
    """Entropy ``[B]`` of each row's distribution, in nats."""
    wide = chain.as_float64
    value = np.full(chain.sizes[0], np.nan)
    # of the digits that cancel, a result keeps all that its dtype has
    least = 2.0**-24 if chain.dtype == torch.float32 else 2.0**-3
    at = value.ctypes.data

    def ask(where: tuple[Any, ...], way: SimdLayout, b: int) -> int:
        far: int = entropy.entropy(where, *way, least, at + 8 * b)
        return far

    if not chain.shared_transitions or run_in_chunks(wide.addresses, ask):
        rows = np.isnan(value).nonzero()[0]
        work = 4 * chain.inner_steps
        run_rows(
            forward_backward_float64.entropy, len(rows), work, rows, wide.arrays, value
        )
    return torch.from_numpy(value).to(chain.dtype)


def per_step_marginals(chain: ChainBuffers) -> Sums:
    """``sums_of`` with edges ``[B, T - 1, S, S]``, though transitions are shared."""
    B = chain.sizes[0]
    shapes = _marginal_shapes(chain.sizes, False)
    nodes, edges, heads, tails = (chain.empty(*shape) for shape in shapes)
    out = (chain.empty(B, dtype=torch.float64), nodes, edges, heads, tails)
    _fill_steps(chain, out, None)
    return out
