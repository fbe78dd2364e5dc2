"""Forward-backward on the CPU: log-partition, marginals, covariance, entropy.

Scaled kernels in the dtype come first. Rows out of their range are computed again in
float64, and then in log space.
"""

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
from smoothsp.oracles._chain.buffers import EMPTY_TENSORS, ChainBuffers
from smoothsp.oracles._chain.chunks import (
    SimdLayout,
    run_in_chunks,
    single_call_layout,
)
from smoothsp.oracles._chain.vjp import SavedMarginals, unpack_marginals
from smoothsp.oracles._inference.to_numpy import to_numpy

LogPartitionAndMarginals = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _marginal_shapes(sizes: torch.Size, shared: bool) -> list[tuple[int, ...]]:
    """Shapes of nodes, edges, heads and tails."""
    B, T, S = sizes
    edges = (B, S, S) if shared else (B, max(T - 1, 0), S, S)
    return [(B, T, S), edges, (B, S), (B, S)]


def log_partition_and_marginals(
    chain: ChainBuffers, returns_float64: bool, hi_lo_out: Tensor | None = None
) -> LogPartitionAndMarginals:
    """Log-partition ``[B]`` and marginals: nodes, edges, heads, tails.

    Edges are ``[B, S, S]``, summed over time, when the transitions are shared, else
    ``[B, T - 1, S, S]``. Heads and tails are the first and the last node marginals. The
    log-partition is float64 if ``returns_float64``, else it has the dtype of the
    potentials. ``hi_lo_out`` ``[B, 2]`` is filled with it as a double-double.
    """
    B = chain.sizes[0]
    value = chain.empty(B, dtype=torch.float64 if returns_float64 else None)
    shapes = _marginal_shapes(chain.sizes, chain.shared_transitions)
    nodes, edges, start_marginals, end_marginals = (
        chain.empty(*shape) for shape in shapes
    )
    out = (value, nodes, edges, start_marginals, end_marginals)
    if not chain.shared_transitions:
        _fill_steps(chain, out, hi_lo_out)
    elif _fill_scaled(
        chain,
        returns_float64,
        value.data_ptr(),
        _data_ptr(hi_lo_out),
        _data_ptrs(out[1:]),
    ):
        _refill_rows(chain, value.isnan(), out, hi_lo_out)
    return out


def log_partition_and_saved_marginals(
    chain: ChainBuffers, hi_lo_out: Tensor | None
) -> tuple[Tensor, SavedMarginals]:
    """Log-partition ``[B]`` for shared transitions, and marginals saved for ``vjp``.

    ``hi_lo_out`` as in ``log_partition_and_marginals``.
    """
    B, T, S = chain.sizes
    # edges, heads and tails in one allocation: they live and die together
    vector = chain.addresses[-1]
    new = EMPTY_TENSORS[chain.dtype].new_empty
    value, nodes, others = new(B), new(B, T, S), new(B * S * (S + 2))
    edges_at = others.data_ptr()
    heads_at = edges_at + B * S * S * vector.itemsize
    tails_at = heads_at + B * S * vector.itemsize
    data_ptrs = nodes.data_ptr(), edges_at, heads_at, tails_at
    saved = nodes, others, (B, T, S, vector), data_ptrs
    if _fill_scaled(chain, False, value.data_ptr(), _data_ptr(hi_lo_out), data_ptrs):
        out = (value, *unpack_marginals(saved))
        _refill_rows(chain, value.isnan(), out, hi_lo_out)
    return value, saved


def _data_ptr(hi_lo_out: Tensor | None) -> int:
    return 0 if hi_lo_out is None else hi_lo_out.data_ptr()


def _data_ptrs(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(x.data_ptr() for x in tensors)


def _fill_scaled(
    chain: ChainBuffers,
    returns_float64: bool,
    value_ptr: int,
    hi_lo_ptr: int,
    data_ptrs: tuple[int, ...],
) -> int:
    """Fill the outputs at these addresses by scaled kernels.

    Returns the number of rows out of range of the dtype, whose value is NaN.
    """
    addresses, (B, T, S) = chain.addresses, chain.sizes
    item = addresses[-1].itemsize
    if layout := single_call_layout(B, T, S, item):
        pending: int = fused.forward_backward(
            addresses, *layout, returns_float64, value_ptr, hi_lo_ptr, data_ptrs
        )
        return pending
    value_itemsize, hi_lo_itemsize = (
        8 if returns_float64 else item,
        16 if hi_lo_ptr else 0,
    )
    sizes = [item * x for x in (T * S, S * S, S, S)]

    def run_chunk(addresses: tuple[Any, ...], layout: SimdLayout, b: int) -> int:
        out = tuple(x + b * size for x, size in zip(data_ptrs, sizes, strict=True))
        at = value_ptr + b * value_itemsize, hi_lo_ptr + b * hi_lo_itemsize
        num_out_of_range: int = fused.forward_backward(
            addresses, *layout, returns_float64, *at, out
        )
        return num_out_of_range

    return run_in_chunks(addresses, run_chunk)


def _fill_steps(
    chain: ChainBuffers, out: LogPartitionAndMarginals, hi_lo_out: Tensor | None
) -> None:
    """Fill the outputs, with edge marginals of each step."""
    B, pending = chain.sizes[0], np.ones(chain.sizes[0], np.bool_)
    hi_lo = np.empty((B, 2)) if hi_lo_out is None else hi_lo_out.numpy()
    zeros, marginals = chain.addresses[-1], tuple(x.numpy() for x in out[1:])
    arrays = (chain.arrays, zeros, pending, hi_lo, marginals)
    run_rows(steps.forward_backward, B, chain.inner_steps // 2, *arrays)
    out[0].numpy()[:] = hi_lo[:, 0]
    if pending.any():
        _refill_rows(chain, torch.from_numpy(pending), out, hi_lo_out)


def _refill_rows(
    chain: ChainBuffers,
    pending: Tensor,
    out: LogPartitionAndMarginals,
    hi_lo_out: Tensor | None,
) -> None:
    """Fill the rows ``pending`` ``[B]``, out of range of the scaled kernels.

    float32 chains are computed again in float64, float64 chains in log space.
    """
    if chain.dtype == torch.float32:
        rows = pending.nonzero().squeeze(1)
        hi_lo = torch.empty(len(rows), 2, dtype=torch.float64, device="cpu")
        row_buffers = chain.select_rows_as_float64(rows)
        per_step = out[2].dim() == 4 and chain.shared_transitions
        results = (
            per_step_marginals(row_buffers)
            if per_step
            else log_partition_and_marginals(row_buffers, True, hi_lo)
        )
        for x, values in zip(out, results, strict=True):
            x[rows] = values.to(x.dtype)
        if hi_lo_out is not None:
            hi_lo_out[rows] = hi_lo
        return
    _fill_in_log_space(chain, pending.numpy().nonzero()[0], out, hi_lo_out)


def _fill_in_log_space(
    chain: ChainBuffers,
    rows: Any,
    out: LogPartitionAndMarginals,
    hi_lo_out: Tensor | None,
) -> None:
    """Fill rows by kernels in log space, which have no range limit."""
    value, marginals = out[0].numpy(), _as_step_arrays(out[1:], out[2].dim() == 3)
    hi_lo = np.empty((len(value), 2))
    arrays = (rows, chain.as_float64.arrays, hi_lo, marginals)
    run_rows(
        forward_backward_float64.forward_backward,
        len(rows),
        4 * chain.inner_steps,
        *arrays,
    )
    value[rows] = hi_lo[rows, 0]
    if hi_lo_out is not None:
        hi_lo_out.numpy()[rows] = hi_lo[rows]


def _as_step_arrays(parts: Sequence[Tensor], shared: bool) -> tuple[Any, ...]:
    """Convert marginals to arrays; shared edges get an axis of one step."""
    nodes, edges, *ends = (to_numpy(x) for x in parts)
    return nodes, edges[:, None] if shared else edges, *ends


def covariance_cpu(chain: ChainBuffers, *v: Tensor) -> tuple[Tensor, ...]:
    """Covariance of each part with the total weight v of an output's parts.

    The Hessian of the log-partition times v. Shapes are those of the marginals of
    ``log_partition_and_marginals``.
    """
    float64_chain, (B, T, S) = chain.as_float64, chain.sizes
    directions = [x.double().contiguous() for x in v]
    results = [torch.empty_like(x) for x in directions]
    data_ptrs = [(x.data_ptr(), x.stride(0) * 8) for x in (*directions, *results)]
    pending = np.ones(B, np.bool_)
    pending_ptr = pending.ctypes.data

    def run_chunk(addresses: tuple[Any, ...], layout: SimdLayout, b: int) -> int:
        row_ptrs = tuple(data_ptr + b * size for data_ptr, size in data_ptrs)
        num_out_of_range: int = covariance.covariance(
            addresses, row_ptrs[:4], row_ptrs[4:], pending_ptr + b
        )
        return num_out_of_range

    # measured: scaled kernels are faster if lanes are full or the data fits in cache
    use_scaled = chain.shared_transitions and (
        len(float64_chain.addresses[-1]) <= B or T * S <= 2000
    )
    if not use_scaled or run_in_chunks(float64_chain.addresses, run_chunk, 3):
        rows = pending.nonzero()[0]
        weights, out = (
            _as_step_arrays(directions, chain.shared_transitions),
            _as_step_arrays(results, chain.shared_transitions),
        )
        arrays = (rows, float64_chain.arrays, weights, out)
        run_rows(
            forward_backward_float64.covariance,
            len(rows),
            8 * chain.inner_steps,
            *arrays,
        )
    return tuple(x.to(chain.dtype) for x in results)


def entropy_cpu(chain: ChainBuffers) -> Tensor:
    """Entropy ``[B]`` of each row's distribution, in nats."""
    float64_chain = chain.as_float64
    value = np.full(chain.sizes[0], np.nan)
    # A - <mu, theta> cancels: below this ratio to its terms, log space is more accurate
    min_ratio = 2.0**-24 if chain.dtype == torch.float32 else 2.0**-3
    value_ptr = value.ctypes.data

    def run_chunk(addresses: tuple[Any, ...], layout: SimdLayout, b: int) -> int:
        num_out_of_range: int = entropy.entropy(
            addresses, *layout, min_ratio, value_ptr + 8 * b
        )
        return num_out_of_range

    if not chain.shared_transitions or run_in_chunks(
        float64_chain.addresses, run_chunk
    ):
        rows = np.isnan(value).nonzero()[0]
        work = 4 * chain.inner_steps
        run_rows(
            forward_backward_float64.entropy,
            len(rows),
            work,
            rows,
            float64_chain.arrays,
            value,
        )
    return torch.from_numpy(value).to(chain.dtype)


def per_step_marginals(chain: ChainBuffers) -> LogPartitionAndMarginals:
    """Log-partition and marginals with edges ``[B, T - 1, S, S]``.

    Edges have a time axis even if the rows share the transitions.
    """
    B = chain.sizes[0]
    shapes = _marginal_shapes(chain.sizes, False)
    nodes, edges, start_marginals, end_marginals = (
        chain.empty(*shape) for shape in shapes
    )
    out = (
        chain.empty(B, dtype=torch.float64),
        nodes,
        edges,
        start_marginals,
        end_marginals,
    )
    _fill_steps(chain, out, None)
    return out
