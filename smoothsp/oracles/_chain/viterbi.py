"""Maximisers and samples of a chain on the CPU."""

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
    STATES_OVER_LANES,
    SimdLayout,
    rows_per_chunk_rowwise,
    run_in_chunks,
    slice_rows,
)
from smoothsp.oracles._inference.to_numpy import to_numpy


def _longest_first(lengths: Any) -> Any:
    return np.argsort(-lengths, kind="stable")


def _work(chain: ChainBuffers, k: int = 0) -> int:
    """Work of max-product and of k more outputs, as ``run_rows`` reckons.

    Measured: a step of the innermost loop takes a quarter of what it takes elsewhere, a
    label of one more output as long as 40.
    """
    B, T, _ = chain.sizes
    return chain.inner_steps // 4 + 40 * k * B * T


def decode_cpu(
    chain: ChainBuffers, gold: Tensor | None = None, cost: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Highest scores ``[B]``, and maximisers ``[B, T]``, -1 where nothing is real.

    ``cost`` is added, in float64, for each label that differs from ``gold`` ``[B, T]``.
    """
    B, T, S = chain.sizes
    labels = chain.empty(B, T, dtype=torch.int64)
    value = chain.empty(B)
    if not chain.shared_transitions or gold is not None:
        found, scores = labels.numpy(), np.empty(B)
        order = _longest_first(chain.arrays[5])
        right = found if gold is None else to_numpy(gold)
        arrays = (chain.arrays, order, right, cost, found, scores)
        run_rows(viterbi.viterbi, B, _work(chain), *arrays, group_size=ROWS_PER_PASS)
        return torch.from_numpy(scores).to(chain.dtype), labels
    where, rows = chain.addresses, rows_per_chunk_rowwise(B, T, S)
    if rows >= B:
        fused.decode(where, labels.data_ptr(), value.data_ptr())
        return value, labels
    run_all(
        [
            partial(
                fused.decode,
                slice_rows(where, b, rows),
                labels[b:].data_ptr(),
                value[b:].data_ptr(),
            )
            for b in range(0, B, rows)
        ]
    )
    return value, labels


def decode_topk_cpu(chain: ChainBuffers, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k best outputs ``[B, k, T]``, which of them exist, and scores ``[B, k]``."""
    B, T, _ = chain.sizes
    labels = chain.empty(B, k, T, dtype=torch.int64)
    valid = chain.empty(B, k, dtype=torch.bool)
    work = _work(chain, k)
    if chain.shared_transitions and (
        work < 2 * WORK_PER_THREAD or torch.get_num_threads() == 1
    ):
        values = chain.empty(B, k)
        out = labels.data_ptr(), valid.data_ptr(), values.data_ptr()
        fused.decode_topk(chain.addresses, k, *out)
        return labels, valid, values
    order, scores = _longest_first(chain.arrays[5]), np.empty((B, k))
    arrays = (chain.arrays, order, labels.numpy(), valid.numpy(), scores)
    run_rows(viterbi.viterbi_topk, B, work, *arrays, group_size=ROWS_PER_PASS)
    return labels, valid, torch.from_numpy(scores).to(chain.dtype)


def sample_cpu(chain: ChainBuffers, uniforms: Tensor) -> Tensor:
    """Draws ``[B, n, T]`` made from ``uniforms`` of that shape."""
    (B, n, T), S = uniforms.shape, chain.sizes[2]
    labels, wide = chain.empty(B, n, T, dtype=torch.int64), chain.as_float64
    uniforms, pending = uniforms.contiguous(), np.ones(B, np.bool_)
    places = uniforms.data_ptr(), labels.data_ptr(), pending.ctypes.data

    def ask(where: tuple[Any, ...], way: SimdLayout, b: int) -> int:
        numbers, found, left = places
        here = numbers + 8 * b * n * T, found + 8 * b * n * T, left + b
        far: int = samples.sample(where, *way, n, *here)
        return far

    # the forward pass of laws takes no longer than both passes over many states; a
    # label of a sample takes a tenth of what all sums at its position take
    few = chain.shared_transitions and S <= STATES_OVER_LANES
    if not few or run_in_chunks(wide.addresses, ask, 1 + n // 10):
        rows = pending.nonzero()[0]
        arrays = (rows, wide.arrays, uniforms.numpy(), labels.numpy())
        work = 2 * (chain.inner_steps + uniforms.numel() * S)
        run_rows(forward_backward_float64.sample, len(rows), work, *arrays)
    return labels
