"""Viterbi decoding, k best outputs and sampling of a chain on the CPU."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothsp._kernels.chain.cpu import (
    forward_backward_float64,
    fused,
    samples,
    viterbi,
)
from smoothsp._kernels.chain.cpu.viterbi_over_states import ROWS_PER_PASS
from smoothsp._kernels.threads.ranges import WORK_PER_THREAD, run_all, run_rows
from smoothsp.oracles._chain.buffers import ChainBuffers
from smoothsp.oracles._chain.chunks import (
    MAX_STATES_IN_LANES,
    SimdLayout,
    rows_per_chunk_rowwise,
    run_in_chunks,
    slice_rows,
)
from smoothsp.oracles._inference.to_numpy import to_numpy


def _order_longest_first(lengths: Any) -> Any:
    return np.argsort(-lengths, kind="stable")


def _estimate_work(chain: ChainBuffers, k: int = 0) -> int:
    """Work of Viterbi and k further outputs, in the unit of ``run_rows``.

    Measured: an iteration of the innermost loop costs a quarter of the unit, a label of
    a further output 40 units.
    """
    B, T, _ = chain.sizes
    return chain.inner_steps // 4 + 40 * k * B * T


def decode_cpu(
    chain: ChainBuffers, gold: Tensor | None = None, cost: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Maxima ``[B]`` and maximisers ``[B, T]``, -1 at masked positions.

    ``cost`` is added, in float64, for each label that differs from ``gold`` ``[B, T]``.
    """
    B, T, S = chain.sizes
    labels = chain.empty(B, T, dtype=torch.int64)
    value = chain.empty(B)
    if not chain.shared_transitions or gold is not None:
        label_array, scores = labels.numpy(), np.empty(B)
        order = _order_longest_first(chain.arrays[5])
        gold_labels = label_array if gold is None else to_numpy(gold)
        arrays = (chain.arrays, order, gold_labels, cost, label_array, scores)
        run_rows(
            viterbi.viterbi, B, _estimate_work(chain), *arrays, group_size=ROWS_PER_PASS
        )
        return torch.from_numpy(scores).to(chain.dtype), labels
    addresses, rows = chain.addresses, rows_per_chunk_rowwise(B, T, S)
    if rows >= B:
        fused.decode(addresses, labels.data_ptr(), value.data_ptr())
        return value, labels
    run_all(
        [
            partial(
                fused.decode,
                slice_rows(addresses, b, rows),
                labels[b:].data_ptr(),
                value[b:].data_ptr(),
            )
            for b in range(0, B, rows)
        ]
    )
    return value, labels


def decode_topk_cpu(chain: ChainBuffers, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best outputs ``[B, k, T]``, their validity and scores, both ``[B, k]``."""
    B, T, _ = chain.sizes
    labels = chain.empty(B, k, T, dtype=torch.int64)
    valid = chain.empty(B, k, dtype=torch.bool)
    work = _estimate_work(chain, k)
    if chain.shared_transitions and (
        work < 2 * WORK_PER_THREAD or torch.get_num_threads() == 1
    ):
        values = chain.empty(B, k)
        out = labels.data_ptr(), valid.data_ptr(), values.data_ptr()
        fused.decode_topk(chain.addresses, k, *out)
        return labels, valid, values
    order, scores = _order_longest_first(chain.arrays[5]), np.empty((B, k))
    arrays = (chain.arrays, order, labels.numpy(), valid.numpy(), scores)
    run_rows(viterbi.viterbi_topk, B, work, *arrays, group_size=ROWS_PER_PASS)
    return labels, valid, torch.from_numpy(scores).to(chain.dtype)


def sample_cpu(chain: ChainBuffers, uniforms: Tensor) -> Tensor:
    """Sample outputs ``[B, n, T]`` from ``uniforms`` of that shape.

    Forward filtering, backward sampling.
    """
    (B, n, T), S = uniforms.shape, chain.sizes[2]
    labels, float64_buffers = chain.empty(B, n, T, dtype=torch.int64), chain.as_float64
    uniforms, pending = uniforms.contiguous(), np.ones(B, np.bool_)
    data_ptrs = uniforms.data_ptr(), labels.data_ptr(), pending.ctypes.data

    def run_chunk(addresses: tuple[Any, ...], layout: SimdLayout, b: int) -> int:
        uniforms_ptr, labels_ptr, pending_ptr = data_ptrs
        row_ptrs = (
            uniforms_ptr + 8 * b * n * T,
            labels_ptr + 8 * b * n * T,
            pending_ptr + b,
        )
        num_out_of_range: int = samples.sample(addresses, *layout, n, *row_ptrs)
        return num_out_of_range

    # measured: with many states the log-space forward pass is as fast as both scaled
    # passes; sampling a label costs a tenth of the sums at its position
    in_lanes = chain.shared_transitions and S <= MAX_STATES_IN_LANES
    if not in_lanes or run_in_chunks(float64_buffers.addresses, run_chunk, 1 + n // 10):
        rows = pending.nonzero()[0]
        arrays = (rows, float64_buffers.arrays, uniforms.numpy(), labels.numpy())
        work = 2 * (chain.inner_steps + uniforms.numel() * S)
        run_rows(forward_backward_float64.sample, len(rows), work, *arrays)
    return labels
